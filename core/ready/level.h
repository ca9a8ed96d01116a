/* What a connection is ready for now, in memory and in the kernel. */
#pragma once

#include "conn/state.h"
#include "ready/poller.h"

/* A look at one connection, from inside a call (fs_call_enter) and without a lock. */
struct fs_level {
    struct fs_connection *c;
    uint32_t wanted; /* events of epoll, without flags */
    uint32_t found;  /* those that are there: of `wanted`, and EPOLLHUP and EPOLLERR */
    int asks;        /* in: the kernel is asked. Out: it is to be asked again, as it reports something that stays */
    int no_room;     /* out: the kernel has to report room, which it has not got now */
    int told;        /* what the kernel has said to poll already, in `kernel`: it is not asked */
    uint32_t kernel;
};

/* Looks. The answer is the kernel's as it would be if the bytes had gone through it. Takes locks where a look at the ring does not
 * decide it, and waits some 20 ms for one at most. */
void fs_level_read(struct fs_level *l);

/* The same without a lock and without a call of the kernel's: 1: the connection is ready to be received from, and nothing else is wanted.
 * -1: nothing is there. 0: fs_level_read has to say. */
static inline int fs_level_peek(struct fs_connection *c, uint32_t wanted) {
    if (wanted & ~(uint32_t)(FS_IN | EPOLLPRI | EPOLLHUP | EPOLLERR)) return 0;
    if (fs_load_relaxed(&c->is.pending_error)) return 0;
    if (wanted & FS_IN && fs_has_descriptor(&c->ring)) return fs_receives_on_ring(c);
    if (fs_load_relaxed(&fs_own(c)->receiver.fin_taken) || fs_load_sc(&c->ring.rx->fin)) return 0;
    return -1;
}

/* Asks for hints in an event set: of what comes, and of room if a send would find none. Before the look at the level, so that what
 * comes after that look is told. True if it is not armed, or something is there that a look need not find yet: look again soon. `*late`:
 * the death of the peer may be no event: look again every half second. */
int fs_level_arm(struct fs_level *l, int *late);
