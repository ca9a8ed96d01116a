/* What the native tests share: random numbers, a region between guard pages, the pattern that streams carry, and
 * ways to wait. System calls that wake or wait are made directly, because ThreadSanitizer takes its own wrappers of
 * read and write for synchronisation: it would then believe what the ring has to guarantee by itself. */
#ifndef FASTSOCK_HARNESS_H
#define FASTSOCK_HARNESS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "ring/doorbell.h"

#define PATIENCE 10.0 /* seconds: a sleep this long is a lost wakeup, nothing here takes a hundredth of it */

static uint64_t current_round; /* what to run again, for reports */

/* Ends the process. At _exit ThreadSanitizer looks for threads that nobody has joined, and makes its report the status:
 * a process that gives up has some, and a forked child takes its parent's for its own. */
__attribute__((noreturn)) static inline void end_at_once(int status) {
    syscall(SYS_exit_group, status);
    __builtin_unreachable();
}

/* In a forked child: ThreadSanitizer leaves a child alone whose parent has threads, but not if they have ended and are
 * yet to be joined. What those did would race with the child, which has memory of its own. */
static inline void forget_threads(void) {
#ifdef __SANITIZE_THREAD__
    void AnnotateIgnoreReadsBegin(const char *file, int line), AnnotateIgnoreWritesBegin(const char *file, int line);
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
#endif
}

__attribute__((format(printf, 2, 0))) static void report(const char *what, const char *format, va_list arguments) {
    fprintf(stderr, "%s in round 0x%016" PRIx64 ": ", what, current_round);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
}

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    report("FAILED", format, arguments);
    va_end(arguments);
    end_at_once(1);
}

#define check(condition, ...) ((condition) ? (void)0 : fail(__VA_ARGS__))

/* ---- random numbers (splitmix64) ------------------------------------------------------------------- */

static inline uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static inline uint32_t below(uint64_t *state, uint32_t bound) { return (uint32_t)(next_random(state) >> 33) % bound; }

static inline int one_in(uint64_t *state, uint32_t n) { return below(state, n) == 0; }

/* ---- time ------------------------------------------------------------------------------------------ */

static inline double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The rounds of a run: for so many seconds from one seed, or the one round that a report named. */
struct rounds {
    uint64_t seed, only;
    double until;
    uint32_t done;
};

static inline struct rounds begin_rounds(int count, char **arguments) {
    struct rounds rounds = {0};
    double seconds = count > 1 ? strtod(arguments[1], NULL) : 3;
    if (count > 2) rounds.only = strtoull(arguments[2], NULL, 0);
    rounds.seed = (uint64_t)time(NULL) << 20 ^ (uint64_t)getpid();
    rounds.until = seconds_now() + seconds;
    printf("%s: %.1f s, seed 0x%016" PRIx64 "\n", arguments[0], seconds, rounds.only ? rounds.only : rounds.seed);
    fflush(stdout);
    return rounds;
}

/* Seeds the next round's random numbers. False when it is over. */
static inline int next_round(struct rounds *rounds, uint64_t *random) {
    if (rounds->done && (rounds->only || seconds_now() > rounds->until)) return 0;
    *random = current_round = rounds->only ? rounds->only : next_random(&rounds->seed);
    rounds->done++;
    return 1;
}

/* ---- memory ---------------------------------------------------------------------------------------- */

struct mapping {
    void *start, *memory;
    size_t length, size;
};

/* A zeroed region between two pages that nobody may touch. It ends where the upper one begins. */
static inline struct mapping map_guarded(uint32_t window, uint32_t chunk) {
    struct mapping map = {.size = fs_region_size(window, chunk)};
    size_t page = (size_t)sysconf(_SC_PAGESIZE), inner = (map.size + page - 1) / page * page;
    map.length = inner + 2 * page;
    map.start = mmap(NULL, map.length, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(map.start != MAP_FAILED, "mmap: %m");
    check(mprotect((char *)map.start + page, inner, PROT_READ | PROT_WRITE) == 0, "mprotect: %m");
    map.memory = (char *)map.start + page + inner - map.size;
    return map;
}

static inline void format_region(struct mapping *map, uint32_t window, uint32_t chunk) {
    fs_region_format(map->memory, window, chunk, (const unsigned char *)"0123456789abcdef");
}

/* ---- the pattern ----------------------------------------------------------------------------------- */

#define PERIOD 65521 /* bytes, a prime: no position in the ring repeats with it */
#define LARGEST 65536

static unsigned char pattern[PERIOD + LARGEST];

static inline void fill_pattern(void) {
    uint64_t state = 1;
    for (size_t i = 0; i < sizeof pattern; i++)
        pattern[i] = i < PERIOD ? (unsigned char)next_random(&state) : pattern[i - PERIOD];
}

static inline const unsigned char *pattern_at(uint64_t position) { return pattern + position % PERIOD; }

/* ---- waking ---------------------------------------------------------------------------------------- */

static inline void wake(int fd) {
    uint64_t one = 1;
    syscall(SYS_write, fd, &one, sizeof one);
}

static inline void drain(int fd) {
    uint64_t drained;
    syscall(SYS_read, fd, &drained, sizeof drained);
}

/* Until a thread sleeps in the kernel: several looks in a row, as it may sleep for a moment on its way there. */
static inline void await_sleep(pid_t thread) {
    char path[64], text[512], *state = NULL;
    double until = seconds_now() + PATIENCE;
    snprintf(path, sizeof path, "/proc/%d/stat", thread);
    for (int looks = 0; looks < 5; looks++) {
        usleep(2000);
        FILE *stat = fopen(path, "r");
        check(stat && fgets(text, sizeof text, stat) && (state = strrchr(text, ')')), "%s: %m", path);
        fclose(stat);
        if (state[2] != 'S') looks = -1;
        check(seconds_now() < until, "%d does not sleep", thread);
    }
}

/* (And the one by which the list is read.) */
static inline int open_descriptors(void) {
    int count = 0;
    DIR *all = opendir("/proc/self/fd");
    check(all, "/proc/self/fd: %m");
    while (readdir(all)) count++;
    closedir(all);
    return count;
}

/* Two ends of a TCP connection on the loopback interface. */
static inline void connect_pair(int fds[2]) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, came;
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    check(listener >= 0 && bind(listener, (struct sockaddr *)&address, size) == 0 && listen(listener, 8) == 0 &&
          getsockname(listener, (struct sockaddr *)&address, &size) == 0, "listening: %m");
    fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    check(fds[0] >= 0 && connect(fds[0], (struct sockaddr *)&address, size) == 0, "connecting: %m");
    check(getsockname(fds[0], (struct sockaddr *)&address, &size) == 0, "getsockname: %m");
    for (;; close(fds[1])) { /* until it is our own end that has come, and not a stranger */
        fds[1] = accept4(listener, (struct sockaddr *)&came, &size, SOCK_CLOEXEC);
        check(fds[1] >= 0, "accepting: %m");
        if (came.sin_port == address.sin_port) break;
    }
    close(listener);
}

#endif
