/* Making, mapping and giving back the shared memory of a connection, and what is said in its meeting line.
 *
 * A region is a sealed memfd: its size cannot change under who has mapped it. wire/region.h has its bytes. */
#ifndef FASTSOCK_REGION_MEMORY_H
#define FASTSOCK_REGION_MEMORY_H

#include "os/memfd.h"
#include "os/syscalls.h"
#include "wire/region.h"

#ifndef MADV_REMOVE
#define MADV_REMOVE 9
#endif

/* Bytes of the file behind a descriptor. -1: there is no such descriptor. */
static inline int64_t fs_file_size(int fd) {
    struct stat st;
    return fs_system.fstat(fd, &st) == 0 ? (int64_t)st.st_size : -1;
}

/* ---- the account of held memory: of this process, whoever maps a region or gives one back ------------------ */

/* Bytes of the regions that are mapped, without their spare parts; and those of them that count against the cap. */
size_t fs_mapped_memory(void);
size_t fs_memory_used(void);

/* So much more of either; or less. */
void fs_count_memory(int64_t mapped, int64_t used);

/* A region that the publisher has parked counts whole: it is parked (1), or is no more (-1). */
void fs_count_cached(size_t size, int sign);

/* ---- one region ------------------------------------------------------------------------------------------- */

/* A new sealed region of fs_region_size(window, chunk) bytes: its memfd, and where it is mapped; both are the caller's.
 * Or -errno; -ENOMEM without address space, too. */
int fs_create_region(int window, int chunk, const unsigned char id[16], void **memory);

/* This side will not touch the region any more. The second to say so gives the arenas' pages back to the system, but
 * for the first few. */
void fs_mark_done(void *memory, size_t size, int side, int window);

/* Readies a region for the next connection if both sides are done with it: true if they are. */
int fs_recycle_region(void *memory, int window);

/* Packet WAKEUP: whether the publisher has taken the region. */
int fs_wakeup_seen(void *memory);

#endif
