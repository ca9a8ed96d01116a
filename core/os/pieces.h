/* Bytes that are sent: those of one buffer, or those of several pieces (struct iovec), which need not be gathered before. */
#pragma once

#include <sys/uio.h>

#include "os/copy.h"

/* (Made where it is used, so that the compiler knows which of both it is, and one buffer costs no question.) */
struct fs_source {
    const char *data;
    const struct iovec *v; /* pieces, of which there are enough; NULL: there is one buffer */
    size_t skip;           /* bytes of the buffer, or of all pieces, that come before */
};

enum { FS_PIECES = 16 }; /* pieces that one call of the kernel's gets */

/* Copies `length` bytes of pieces, after the first `skip`. */
void fs_gather(void *to, const struct iovec *v, size_t skip, size_t length);

/* Sets `part` to the first pieces of those bytes, at most FS_PIECES, and `*count` to their number. Returns their bytes. */
size_t fs_first_pieces(const struct iovec *v, size_t skip, size_t length, struct iovec part[FS_PIECES], size_t *count);

static inline __attribute__((always_inline)) void fs_copy_from(void *to, struct fs_source from, size_t length) {
    if (!from.v) fs_copy(to, from.data + from.skip, length);
    else fs_gather(to, from.v, from.skip, length);
}
