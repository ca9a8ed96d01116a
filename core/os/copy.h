/* Copies of plain bytes, into the ring and out of it.
 *
 * On AMD's family 25 (Zen 3 and 4) memcpy of glibc 2.36 and others becomes `rep movsb` from 2112 bytes on. There that instruction is
 * ten times slower than loads and stores of vectors for some alignments. So long copies are made of vectors on these processors.
 * Elsewhere memcpy is right: on the next family the same instruction is fast, and faster than vectors where the lines of the
 * destination are in another processor's cache (docs/decisions.md, `./dev bench copies`).
 *
 * A copy is no more than memcpy is: bytes that somebody changes meanwhile come in their old or their new state, some may be read or
 * written twice, and nothing is ordered by it. So what a copy needs around it is what memcpy needs: the commit word stored behind it. */
#ifndef FASTSOCK_COPY_H
#define FASTSOCK_COPY_H

#include <stdint.h>
#include <string.h>

/* Bytes from which on memcpy is `rep movsb`. Shorter ones it copies with vectors. (Payloads are shorter than what it would
 * write around the caches.) */
#define FS_LONG_COPY 2112

/* Whether long copies are made of vectors: decided when the program or the library is loaded, before main and before an import
 * ends. A copy that comes sooner is memcpy's. */
extern int fs_copies_in_vectors;

/* What a processor says of itself (CPUID), as far as this choice needs it. */
struct fs_cpu_info {
    char vendor[12];
    uint32_t signature; /* stepping, model, family */
    int rep_movsb;      /* it says that this instruction is fast ("erms"), so a C library uses it */
    int vectors;        /* of 32 bytes, and the system keeps them */
};

struct fs_cpu_info fs_read_cpu_info(void);

/* Whether this processor is one on which long copies are better made of vectors. */
int fs_prefers_vectors(const struct fs_cpu_info *processor);

/* Copies `length` bytes, FS_SHORTEST_IN_VECTORS at least, with loads and stores of 32. Only where the processor has vectors; copies
 * like memcpy otherwise. No lazy binding, no lock, no memory: for signal handlers too. */
#define FS_SHORTEST_IN_VECTORS 160
void fs_copy_in_vectors(void *to, const void *from, size_t length);

static inline void fs_copy(void *to, const void *from, size_t length) {
    if (length >= FS_LONG_COPY && fs_copies_in_vectors)
        fs_copy_in_vectors(to, from, length);
    else
        memcpy(to, from, length);
}

#endif
