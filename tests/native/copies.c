/* Copies into and out of the ring against a loop of bytes: `copies`.
 *
 * Each length up to 4200 and some longer ones, at all alignments of source and destination, memcpy's and the one in vectors. The bytes
 * around a destination stay as they were, and nothing beyond the source is read: both also lie at the very beginning and the very end
 * of pages between pages that nobody may touch. Then which processors get vectors; and a source that somebody changes meanwhile. */
#include "harness.h"

#include "os/copy.h"

enum { MOST = 4200, LARGE = 32768, AROUND = 128, ROOM = 10 * 4096 };

static unsigned char source[ROOM], to[ROOM], expected[ROOM];
static uint64_t copies;

static void copy(int in_vectors, unsigned char *into, const unsigned char *from, size_t length) {
    fs_long_copies = in_vectors;
    if (in_vectors && length >= FS_SHORTEST_IN_VECTORS)
        fs_copy_in_vectors(into, from, length); /* also where fs_copy would not */
    else
        fs_copy(into, from, length);
    copies++;
}

static void try_at(int in_vectors, size_t from, size_t at, size_t length) {
    for (size_t i = 0; i < at + length + AROUND; i++) to[i] = expected[i] = (unsigned char)~i;
    for (size_t i = 0; i < length; i++) expected[at + i] = source[from + i];
    copy(in_vectors, to + at, source + from, length);
    check(!memcmp(to, expected, at + length + AROUND), "%zu bytes from %zu to %zu, vectors %d", length, from, at, in_vectors);
}

static void every_length(int in_vectors) {
    for (size_t length = 0; length <= MOST; length++)
        for (size_t i = 0; i < 8; i++) try_at(in_vectors, (length + 8 * i) % 64, AROUND + length * 7 % 64 + i, length);
}

static void every_alignment(int in_vectors) {
    static const size_t lengths[] = {0, 1, 48, FS_SHORTEST_IN_VECTORS, 161, 191, 192, 193, FS_LONG_COPY - 1, FS_LONG_COPY, LARGE};
    for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++)
        for (size_t from = 0; from < 64; from++)
            for (size_t at = 0; at < 64; at += lengths[n] == LARGE ? 16 : 1)
                try_at(in_vectors, from, AROUND + at, lengths[n]);
}

/* Pages between two that nobody may touch. */
static unsigned char *guarded(void) {
    unsigned char *start = mmap(NULL, 4 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(start != MAP_FAILED && !mprotect(start + 4096, 2 * 4096, PROT_READ | PROT_WRITE), "mprotect: %m");
    return start + 4096;
}

static void at_the_edges(int in_vectors) {
    unsigned char *from = guarded(), *into = guarded(), *last = from + 2 * 4096;
    memcpy(from, source, 2 * 4096);
    for (size_t length = 0; length <= MOST; length++) {
        copy(in_vectors, into, last - length, length);
        check(!memcmp(into, last - length, length), "%zu bytes from the end, vectors %d", length, in_vectors);
        copy(in_vectors, into + 2 * 4096 - length, from, length);
        check(!memcmp(into + 2 * 4096 - length, from, length), "%zu bytes to the end, vectors %d", length, in_vectors);
    }
    munmap(from - 4096, 4 * 4096);
    munmap(into - 4096, 4 * 4096);
}

static fs_word32 over;

/* Writes zeros and ones, as a peer may while its bytes are copied. */
static void *change(void *bytes) {
    for (int value = 0; !fs_load_relaxed(&over); value = 255 - value) memset(bytes, value, MOST);
    return NULL;
}

static void changed_meanwhile(int in_vectors) {
    static unsigned char changing[MOST];
#ifdef __SANITIZE_THREAD__
    return; /* that is the race which it would tell of */
#endif
    pthread_t thread;
    fs_store_relaxed(&over, 0);
    check(!pthread_create(&thread, NULL, change, changing), "no thread");
    for (int i = 0; i < 2000; i++) {
        memset(to, 7, MOST + 2 * AROUND);
        copy(in_vectors, to + AROUND, changing, MOST);
        for (size_t at = 0; at < MOST + 2 * AROUND; at++) {
            int inside = at >= AROUND && at < MOST + AROUND;
            check(inside ? to[at] == 0 || to[at] == 255 : to[at] == 7, "byte %zu is %d", at, to[at]);
        }
    }
    fs_store_relaxed(&over, 1);
    pthread_join(thread, NULL);
}

static void which_processors(void) {
    static const struct {
        struct fs_cpu_info processor;
        int wanted;
    } cases[] = {
        {{"AuthenticAMD", 0x00a20f12, 1, 1}, 1}, /* Zen 3 */
        {{"AuthenticAMD", 0x00a10f11, 1, 1}, 1}, /* Zen 4 */
        {{"AuthenticAMD", 0x00a20f12, 0, 1}, 0}, /* a hypervisor hides that the instruction is fast: memcpy does not use it */
        {{"AuthenticAMD", 0x00a20f12, 1, 0}, 0},
        {{"AuthenticAMD", 0x00830f10, 0, 1}, 0}, /* Zen 2 */
        {{"AuthenticAMD", 0x00b00f21, 1, 1}, 0}, /* Zen 5 */
        {{"GenuineIntel", 0x000606a6, 1, 1}, 0},
        {{"GenuineIntel", 0x00a20f12, 1, 1}, 0},
        {{{0}, 0, 0, 0}, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check(fs_prefers_vectors(&cases[i].processor) == cases[i].wanted, "processor %zu", i);
}

int main(void) {
    struct fs_cpu_info here = fs_read_cpu_info();
    uint64_t state = 1;
    fs_copy(to, source, FS_LONG_COPY);
    check(fs_long_copies == (uint32_t)fs_prefers_vectors(&here), "the first long copy has not asked the processor");
    which_processors();
    for (size_t i = 0; i < sizeof source; i++) source[i] = (unsigned char)next_random(&state);
    for (int in_vectors = 0; in_vectors <= here.vectors; in_vectors++) {
        every_length(in_vectors);
        every_alignment(in_vectors);
        at_the_edges(in_vectors);
        changed_meanwhile(in_vectors);
    }
    printf("%" PRIu64 " copies%s\n", copies, here.vectors ? "" : ", none in vectors: this processor has none of 32 bytes");
    return 0;
}
