/* The vector copy and the choice of processors. Theory: copy.h. */
#include "os/copy.h"

fs_word32 fs_long_copies = FS_LONG_UNDECIDED;

int fs_prefers_vectors(const struct fs_cpu_info *processor) {
    uint32_t family = processor->signature >> 8 & 15;
    if (family == 15) family += processor->signature >> 20 & 255;
    return processor->vectors && processor->rep_movsb && family == 25 && !memcmp(processor->vendor, "AuthenticAMD", 12);
}

uint32_t fs_choose_long_copies(void) {
    struct fs_cpu_info processor = fs_read_cpu_info();
    uint32_t choice = fs_prefers_vectors(&processor) ? FS_LONG_BY_VECTORS : FS_LONG_BY_MEMCPY;
    fs_store_relaxed(&fs_long_copies, choice);
    return choice;
}

#ifdef __x86_64__
#include <cpuid.h>

struct fs_cpu_info fs_read_cpu_info(void) {
    struct fs_cpu_info processor = {{0}, 0, 0, 0};
    uint32_t highest, a, b, c, d;
    __cpuid(0, highest, b, c, d);
    memcpy(processor.vendor, &b, 4);
    memcpy(processor.vendor + 4, &d, 4);
    memcpy(processor.vendor + 8, &c, 4);
    __cpuid(1, processor.signature, b, c, d);
    if (highest >= 7) {
        __cpuid_count(7, 0, a, b, c, d);
        processor.rep_movsb = b >> 9 & 1;
        __cpuid(1, a, b, c, d);
    }
    if (c & bit_OSXSAVE && c & bit_AVX) {
        __asm__("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
        processor.vectors = (a & 6) == 6; /* the system saves both halves of the registers */
    }
    return processor;
}

/* 32 bytes at any address, of any type. */
typedef long long vector __attribute__((vector_size(32), aligned(1), may_alias));

__attribute__((target("avx"))) void fs_copy_in_vectors(void *to, const void *from, size_t length) {
    enum { SIZE = sizeof(vector) };
    char *at = to, *end = at + length;
    const char *source = from, *last = source + length;
    /* The first vector and the last four have any alignment and overlap the part between. There each store is aligned. */
    vector first = *(const vector *)source;
    vector a4 = *(const vector *)(last - 4 * SIZE), a3 = *(const vector *)(last - 3 * SIZE);
    vector a2 = *(const vector *)(last - 2 * SIZE), a1 = *(const vector *)(last - SIZE);
    *(vector *)at = first;
    size_t skipped = SIZE - ((uintptr_t)at & (SIZE - 1));
    for (at += skipped, source += skipped; at < end - 4 * SIZE; at += 4 * SIZE, source += 4 * SIZE) {
        vector a = *(const vector *)source, b = *(const vector *)(source + SIZE);
        vector c = *(const vector *)(source + 2 * SIZE), d = *(const vector *)(source + 3 * SIZE);
        *(vector *)at = a;
        *(vector *)(at + SIZE) = b;
        *(vector *)(at + 2 * SIZE) = c;
        *(vector *)(at + 3 * SIZE) = d;
        __asm__ volatile("" ::: "memory"); /* else the compiler may turn the loop into a call of memcpy */
    }
    *(vector *)(end - 4 * SIZE) = a4;
    *(vector *)(end - 3 * SIZE) = a3;
    *(vector *)(end - 2 * SIZE) = a2;
    *(vector *)(end - SIZE) = a1;
}

#else

/* Other architectures' C libraries copy with vectors. */
struct fs_cpu_info fs_read_cpu_info(void) { return (struct fs_cpu_info){{0}, 0, 0, 0}; }

void fs_copy_in_vectors(void *to, const void *from, size_t length) { memcpy(to, from, length); }

#endif
