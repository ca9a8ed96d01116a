/* The ring driven from C, without sockets, Python or sleeping: what SOVIA calls native VIA.
 *
 *   raw pingpong|stream SIZE SECONDS   prints seconds for half a round trip, or bytes per second
 *
 * Two processes, a CPU each where there are two. They poll for what comes next; who polls in vain for long gives the
 * processor away, so that one CPU is enough to end, if not to be fast. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ring.h"

enum { WINDOW = 32, CHUNK = 32768, THRESHOLD = 16, PATIENCE = 2000, TURNS = 100, BUFFER = 1 << 20 };

struct shared {
    fs_word32 stop; /* set by the side that times, after its last message */
    struct fs_side sides[2];
};

static struct fs_vi vi;
static struct shared *shared;
static char buffer[BUFFER];

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void give_way(uint32_t *polls) {
    if (++*polls % PATIENCE == 0) sched_yield();
}

/* Sends it all. 0 if the other side has stopped meanwhile. */
static int send_all(size_t size) {
    uint32_t polls = 0;
    for (size_t done = 0; done < size;) {
        int64_t part = fs_post(&vi, buffer + done, size - done, FS_DATA, 0, NULL);
        if (part < 0) exit(3);
        done += (size_t)part;
        if (part == 0) {
            if (fs_load_relaxed(&shared->stop)) return 0;
            give_way(&polls);
        }
    }
    return 1;
}

static int receive_all(size_t size) {
    uint32_t polls = 0;
    for (size_t done = 0; done < size;) {
        int64_t part = fs_take(&vi, buffer + done, size - done, FS_CONSUME);
        if (part < 0) exit(3);
        done += (size_t)part;
        if (part == 0) {
            if (fs_load_relaxed(&shared->stop)) return 0;
            give_way(&polls);
        }
    }
    return 1;
}

static void attach(void *region, size_t size, int side) {
    const char *wrong = fs_vi_attach(&vi, region, size, side);
    if (wrong) {
        fprintf(stderr, "raw: %s\n", wrong);
        exit(2);
    }
    vi.own = &shared->sides[side];
    vi.own->ends = calloc(1, fs_ends_size(WINDOW));
    vi.ack_threshold = THRESHOLD;
    vi.combine_from = UINT32_MAX;
    cpu_set_t allowed, one;
    sched_getaffinity(0, sizeof allowed, &allowed);
    for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed) || seen++ != side) continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        sched_setaffinity(0, sizeof one, &one);
    }
}

static void serve(int streaming, size_t size) {
    if (streaming) {
        while (receive_all(size)) {}
    } else {
        while (receive_all(size) && send_all(size)) {}
    }
    exit(0);
}

int main(int count, char **words) {
    if (count != 4) return 2;
    int streaming = !strcmp(words[1], "stream");
    size_t size = (size_t)atol(words[2]);
    double seconds = atof(words[3]);
    if (size < 1 || size > BUFFER) return 2;
    size_t bytes = fs_region_size(WINDOW, CHUNK);
    void *region = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (region == MAP_FAILED || shared == MAP_FAILED) return 1;
    fs_region_format(region, WINDOW, CHUNK, (const unsigned char *)"0123456789abcdef");
    pid_t child = fork();
    if (child < 0) return 1;
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        attach(region, bytes, 1);
        serve(streaming, size);
    }
    attach(region, bytes, 0);
    double elapsed = 0, figure = 0;
    for (int timed = 0; timed < 2; timed++) { /* once to warm up */
        uint64_t turns = 0;
        double start = now();
        do {
            for (int i = 0; i < TURNS; i++) {
                send_all(size);
                if (!streaming) receive_all(size);
            }
            turns += TURNS;
            elapsed = now() - start;
        } while (elapsed < seconds);
        figure = streaming ? (double)turns * (double)size / elapsed : elapsed / (double)turns / 2;
    }
    fs_store_relaxed(&shared->stop, 1);
    int status = 0;
    waitpid(child, &status, 0);
    printf("%.9g\n", figure);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 3;
}
