/* The ring driven from C, without sockets, Python or sleeping: what SOVIA calls native VIA.
 *
 *   raw pingpong|stream|direct|lent SIZE SECONDS CPUS    prints seconds for half a round trip, or bytes per second
 *
 *   stream   two pipelined copies: into the ring, out of the ring
 *   direct   one copy by the kernel, after WSDLite's remote write: the sender announces a message, the receiver answers with
 *            the address of its buffer, the sender writes there (process_vm_writev) and says so
 *   lent     one copy: the sender copies into memory that both map, and the receiver uses it in place until it returns it
 *
 * Two processes, with a CPU each or one for both. They poll for what comes next; who polls in vain gives the processor away:
 * at once where there is one CPU, after a while where there are two. */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ring/send_ring.h"
#include "ring/recv_ring.h"

enum { WINDOW = 32, CHUNK = 32768, THRESHOLD = 16, PATIENCE = 2000, BUFFER = 1 << 24 };

enum mode { PINGPONG, STREAM, DIRECT, LENT };
static const char *const modes[] = {"pingpong", "stream", "direct", "lent"};

struct shared {
    fs_word32 stop; /* set by the side that times, after its last message */
    struct fs_shared_side sides[2];
};

static struct fs_ring_pair ring;
static struct shared *shared;
static char buffer[BUFFER]; /* the application's */
static char *lent;          /* mapped by both */
static uint32_t patience = PATIENCE;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void give_way(uint32_t *polls) {
    if (++*polls % patience == 0) sched_yield();
}

static int stopped(void) { return fs_load_relaxed(&shared->stop) != 0; }

/* Sends it all. 0 if the other side has stopped meanwhile. */
static int send_all(const void *from, size_t size) {
    uint32_t polls = 0;
    for (size_t done = 0; done < size;) {
        int64_t part = fs_post(&ring, &ring.own->sender, (const char *)from + done, size - done, 0);
        if (part < 0) exit(3);
        done += (size_t)part;
        if (part == 0) {
            if (stopped()) return 0;
            give_way(&polls);
        }
    }
    return 1;
}

static int receive_all(void *into, size_t size) {
    uint32_t polls = 0;
    for (size_t done = 0; done < size;) {
        int64_t part = fs_ring_recv(&ring, &ring.own->receiver, (char *)into + done, size - done, FS_CONSUME);
        if (part < 0) exit(3);
        done += (size_t)part;
        if (part == 0) {
            if (stopped()) return 0;
            give_way(&polls);
        }
    }
    return 1;
}

static void attach(void *region, size_t size, int side, int cpus) {
    const char *wrong = fs_ring_pair_attach(&ring, region, size, side);
    if (wrong) {
        fprintf(stderr, "raw: %s\n", wrong);
        exit(2);
    }
    ring.own = &shared->sides[side];
    ring.own->sender.ends = calloc(1, fs_ends_size(WINDOW));
    ring.ack_threshold = THRESHOLD;
    ring.combine_from = UINT32_MAX;
    cpu_set_t allowed, one;
    sched_getaffinity(0, sizeof allowed, &allowed);
    for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed) || seen++ != (cpus > 1 ? side : 0)) continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        sched_setaffinity(0, sizeof one, &one);
    }
}

static void serve(enum mode mode, size_t size) {
    uint64_t word;
    void *here = buffer;
    switch (mode) {
    case PINGPONG:
        while (receive_all(buffer, size) && send_all(buffer, size)) {}
        break;
    case STREAM:
        while (receive_all(buffer, size)) {}
        break;
    case DIRECT:
        while (receive_all(&word, sizeof word) && send_all(&here, sizeof here) && receive_all(&word, sizeof word)) {}
        break;
    case LENT:
        while (receive_all(&word, sizeof word) && send_all(&word, 1)) {}
        break;
    }
    exit(0);
}

/* One message there, and for the ping-pong one back. */
static void turn(enum mode mode, size_t size, pid_t peer) {
    uint64_t word = size;
    void *there;
    switch (mode) {
    case PINGPONG:
        send_all(buffer, size);
        receive_all(buffer, size);
        break;
    case STREAM:
        send_all(buffer, size);
        break;
    case DIRECT:
        send_all(&word, sizeof word);
        receive_all(&there, sizeof there);
        for (size_t done = 0; done < size;) {
            struct iovec from = {buffer + done, size - done}, into = {(char *)there + done, size - done};
            ssize_t part = process_vm_writev(peer, &from, 1, &into, 1, 0);
            if (part <= 0) {
                perror("raw: process_vm_writev");
                exit(4);
            }
            done += (size_t)part;
        }
        send_all(&word, sizeof word);
        break;
    case LENT:
        memcpy(lent, buffer, size);
        send_all(&word, sizeof word);
        receive_all(&word, 1);
        break;
    }
}

int main(int count, char **words) {
    if (count != 5) return 2;
    enum mode mode = PINGPONG;
    while (mode <= LENT && strcmp(words[1], modes[mode])) mode++;
    size_t size = (size_t)atol(words[2]);
    double seconds = atof(words[3]);
    int cpus = atoi(words[4]);
    if (mode > LENT || size < 1 || size > BUFFER || cpus < 1) return 2;
    if (cpus == 1) patience = 1;
    size_t bytes = fs_region_size(WINDOW, CHUNK);
    const int shared_memory = MAP_SHARED | MAP_ANONYMOUS;
    void *region = mmap(NULL, bytes, PROT_READ | PROT_WRITE, shared_memory, -1, 0);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, shared_memory, -1, 0);
    lent = mmap(NULL, BUFFER, PROT_READ | PROT_WRITE, shared_memory, -1, 0);
    if (region == MAP_FAILED || shared == MAP_FAILED || lent == MAP_FAILED) return 1;
    fs_region_format(region, WINDOW, CHUNK, (const unsigned char *)"0123456789abcdef");
    memset(buffer, 'm', size);
    pid_t child = fork();
    if (child < 0) return 1;
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        attach(region, bytes, 1, cpus);
        serve(mode, size);
    }
    attach(region, bytes, 0, cpus);
    double elapsed = 0, figure = 0;
    uint64_t batch = size > 1 << 16 ? 4 : 100;
    for (int timed = 0; timed < 2; timed++) { /* once to warm up */
        uint64_t turns = 0;
        double start = now();
        do {
            for (uint64_t i = 0; i < batch; i++) turn(mode, size, child);
            turns += batch;
            elapsed = now() - start;
        } while (elapsed < seconds);
        figure = mode == PINGPONG ? elapsed / (double)turns / 2 : (double)turns * (double)size / elapsed;
    }
    fs_store_relaxed(&shared->stop, 1);
    int status = 0;
    waitpid(child, &status, 0);
    printf("%.9g\n", figure);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 3;
}
