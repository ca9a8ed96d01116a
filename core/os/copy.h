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

#include <stdint.h>
#include <string.h>

/* memcpy is `rep movsb` from this many bytes on, and vectors below. (Payloads are shorter than the size at which it bypasses the
 * caches.) */
#define FS_LONG_COPY 2112

/* True if long copies use vectors. Set by a constructor, before main or before an import ends. Earlier copies use memcpy. */
extern int fs_copies_in_vectors;

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

static inline void fs_copy(void *to, const void *from, size_t length) {
    if (length >= FS_LONG_COPY && fs_copies_in_vectors)
        fs_copy_in_vectors(to, from, length);
    else
        memcpy(to, from, length);
}
