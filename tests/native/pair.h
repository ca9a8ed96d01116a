/* A connection whose ends are both in this process: opened on the kernel, attached, moved, closed. */
#ifndef FASTSOCK_PAIR_H
#define FASTSOCK_PAIR_H

#include "frontend.h"

#define WINDOW 8
#define CHUNK 1024

static struct end ends[2];
static pthread_mutex_t locks[2] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};

/* Both ends of a connection that is on the kernel. */
static void open_ends(void) {
    int fds[2];
    size_t size;
    void *memory = make_region(WINDOW, CHUNK, &size);
    connect_pair(fds);
    for (int s = 0; s < 2; s++) {
        ends[s] = (struct end){.lock = &locks[s], .memory = memory, .size = size, .side = s};
        check(open_end(&ends[s], fds[s]) == 0, "opening");
    }
}

static void attach_ends(void) {
    static const struct fs_flow_options flow = {.ack_threshold = 4, .combine_limit = 0, .combine_when_full = 0};
    for (int s = 0; s < 2; s++) check(attach_end(&ends[s], &flow) == 0, "attaching");
}

static inline void close_ends(void) {
    for (int s = 0; s < 2; s++) close_end(&ends[s], 1);
    munmap(ends[0].memory, ends[0].size);
}

/* For forks (process/atfork.h): a child has both. */
static inline int count_child(int by) {
    for (int s = 0; s < 2; s++)
        if (fs_load_sc(&ends[s].open)) fs_add_sc(&fs_own(&ends[s].c)->holders, (uint32_t)by);
    return 2;
}

/* To the ring, in both directions. */
static inline void move_ends(void) {
    char byte;
    attach_ends();
    for (int s = 0; s < 2; s++) {
        check(fs_try_send(&ends[s].c, "x", 1, MSG_NOSIGNAL) == 1 && fs_sends_on_ring(&ends[s].c), "side %d does not move", s);
        check(fs_try_recv(&ends[!s].c, &byte, 1, 0, 1) == 1, "receiving");
    }
}

#endif
