/* Copies of plain bytes into and out of the ring.
 *
 * On AMD family 25 (Zen 3 and 4) memcpy of glibc 2.36 and others becomes `rep movsb` from 2112 bytes on. There that instruction is ten
 * times slower than vector loads and stores for some alignments, so long copies use vectors on these processors. Elsewhere memcpy is
 * right: on the next family `rep movsb` is fast, and faster than vectors where the lines of the destination are in another processor's
 * cache (docs/decisions.md, `./dev bench copies`).
 *
 * A copy guarantees no more than memcpy: bytes that change meanwhile may be read old or new, some may be read or written twice, and
 * nothing is ordered. Like memcpy, it relies on the commit word that is stored after it. */
#pragma once

#include <string.h>

#include "os/atomics.h"

/* memcpy is `rep movsb` from this many bytes on, and vectors below. (Payloads are shorter than the size at which it bypasses the
 * caches.) */
#define FS_LONG_COPY 2112

/* How long copies are made. The first one asks the processor, and not each process at its start: in a virtual machine that takes 24 us.
 * Relaxed: who asks at the same time gets the same answer. */
enum fs_long_copies { FS_LONG_BY_MEMCPY, FS_LONG_BY_VECTORS, FS_LONG_UNDECIDED };
extern fs_word32 fs_long_copies;

uint32_t fs_choose_long_copies(void); /* asks the processor, and returns how they are made from now on */

/* The parts of CPUID that this choice needs. */
struct fs_cpu_info {
    char vendor[13];    /* ends with a zero */
    uint32_t signature; /* stepping, model, family */
    int rep_movsb;      /* "erms": the instruction is said to be fast, so a C library uses it */
    int vectors;        /* 32-byte vectors, and the system saves them */
};

struct fs_cpu_info fs_read_cpu_info(void);

/* Returns true if long copies are faster with vectors on this processor. */
int fs_prefers_vectors(const struct fs_cpu_info *processor);

/* Copies `length` bytes, at least FS_SHORTEST_IN_VECTORS, with 32-byte loads and stores. Needs vectors. Otherwise like memcpy. No lazy
 * binding, lock or allocation, so signal handlers may call it. */
#define FS_SHORTEST_IN_VECTORS 160
void fs_copy_in_vectors(void *to, const void *from, size_t length);

static inline int fs_long_by_vectors(void) {
    uint32_t known = fs_load_relaxed(&fs_long_copies);
    return (known == FS_LONG_UNDECIDED ? fs_choose_long_copies() : known) == FS_LONG_BY_VECTORS;
}

static inline void fs_copy(void *to, const void *from, size_t length) {
    if (length >= FS_LONG_COPY && fs_long_by_vectors())
        fs_copy_in_vectors(to, from, length);
    else
        memcpy(to, from, length);
}
