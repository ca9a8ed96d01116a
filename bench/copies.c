/* Times copies, for bench/copies.py: of memcpy and of the core's copy in vectors, in one process and between two.
 *
 *     copies here LENGTH ...              lines of: KIND LENGTH SOURCE DESTINATION NANOSECONDS
 *     copies across CPU CPU LENGTH ...    lines of: KIND LENGTH ALIGNMENT 0 NANOSECONDS
 *
 * SOURCE and DESTINATION: how far behind a page's beginning. Across: one process copies into memory that both have, another one copies
 * out of it on the other processor, four messages behind at most. ALIGNMENT is that of the two processes' own memory. The time is that of
 * a message, from the reader's clock. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/atomics.h"
#include "os/copy.h"
#include "os/syscalls.h"

enum { ROOM = 4 << 20, RING = 1 << 20, BEHIND = 4, ROUNDS = 4000, BATCH = 16, SAMPLES = 7 };

static void by_memcpy(void *to, const void *from, size_t length) {
    memcpy(to, from, length);
    __asm__ volatile("" ::: "memory");
}

static const struct {
    const char *name;
    void (*copy)(void *, const void *, size_t);
} kinds[] = {{"memcpy", by_memcpy}, {"vectors", fs_copy_in_vectors}};

static int by_size(const void *a, const void *b) {
    double one = *(const double *)a, other = *(const double *)b;
    return (one > other) - (one < other);
}

static double median(double *times, size_t count) {
    qsort(times, count, sizeof *times, by_size);
    return times[count / 2];
}

static char *pages(size_t size) {
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) exit(1);
    memset(memory, 1, size);
    return memory;
}

static void here(int kind, size_t length) {
    static const int alignments[] = {0, 1, 15, 16, 31, 32, 47, 48, 63}, distances[] = {0, 64, 2048};
    char *from = pages(ROOM), *to = pages(ROOM);
    int times_each = (int)(400000 / length) + 2;
    for (int a = 0; a < 9; a++)
        for (int b = 0; b < 9; b++)
            for (int d = 0; d < 3; d++) {
                double samples[SAMPLES];
                int source = alignments[a], destination = alignments[b] + distances[d];
                for (int s = 0; s < SAMPLES; s++) {
                    int64_t begun = fs_now();
                    for (int n = 0; n < times_each; n++) kinds[kind].copy(to + destination, from + source, length);
                    samples[s] = (double)(fs_now() - begun) / times_each;
                }
                printf("%s %zu %d %d %.2f\n", kinds[kind].name, length, source, destination, median(samples, SAMPLES));
            }
    munmap(from, ROOM);
    munmap(to, ROOM);
}

struct shared {
    _Alignas(128) fs_word32 posted;
    _Alignas(128) fs_word32 taken;
    _Alignas(4096) char ring[RING];
};

static void stay_on(int processor) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    if (sched_setaffinity(0, sizeof set, &set)) perror("sched_setaffinity"), exit(1);
}

static void read_all(int kind, struct shared *shared, char *into, size_t length, uint32_t slots, size_t step, int alignment) {
    double times[ROUNDS / BATCH];
    int count = 0;
    int64_t before = 0;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        while (fs_load_acquire(&shared->posted) == i) {}
        kinds[kind].copy(into, shared->ring + i % slots * step, length);
        fs_store_release(&shared->taken, i + 1);
        if (i % BATCH) continue;
        int64_t now = fs_now();
        if (before) times[count++] = (double)(now - before) / BATCH;
        before = now;
    }
    printf("%s %zu %d 0 %.2f\n", kinds[kind].name, length, alignment, median(times, (size_t)count));
    fflush(stdout);
}

static void across(int kind, int writes, int reads, size_t length) {
    static const int alignments[] = {0, 1, 16, 48};
    size_t step = (length + 63) & ~(size_t)63;
    uint32_t slots = (uint32_t)(RING / 4 / step ? RING / 4 / step : 1);
    if (slots > 32) slots = 32;
    for (int a = 0; a < 4; a++) {
        struct shared *shared = (struct shared *)(void *)pages(sizeof *shared);
        char *own = pages(ROOM);
        int status;
        fs_store_relaxed(&shared->posted, 0);
        fs_store_relaxed(&shared->taken, 0);
        fflush(stdout);
        pid_t reader = fork();
        if (reader < 0) perror("fork"), exit(1);
        if (!reader) {
            char *into = pages(ROOM);
            stay_on(reads);
            read_all(kind, shared, into + alignments[a], length, slots, step, alignments[a]);
            _exit(0);
        }
        stay_on(writes);
        for (uint32_t i = 0; i < ROUNDS; i++) {
            while (i - fs_load_acquire(&shared->taken) >= BEHIND) {}
            kinds[kind].copy(shared->ring + i % slots * step, own + alignments[a], length);
            fs_store_release(&shared->posted, i + 1);
        }
        if (waitpid(reader, &status, 0) < 0 || status) exit(1);
        munmap(shared, sizeof *shared);
        munmap(own, ROOM);
    }
}

int main(int count, char **arguments) {
    if (count < 3) return 2;
    int apart = !strcmp(arguments[1], "across"), every = fs_read_cpu_info().vectors ? 2 : 1;
    for (int i = apart ? 4 : 2; i < count; i++)
        for (int kind = 0; kind < every; kind++)
            if (apart)
                across(kind, atoi(arguments[2]), atoi(arguments[3]), strtoul(arguments[i], NULL, 10));
            else
                here(kind, strtoul(arguments[i], NULL, 10));
    return 0;
}
