/* Epoll instances that a fork has shared. */
#pragma once

#include "conn/state.h"
#include "ready/poller.h"

/* Returns true if the kernel has the registration as the program has made it, and nothing else counts: a process that shares the instance
 * has handed it over. With the poller's lock. */
static inline int fs_is_handed_over(const struct fs_member *m) {
    uint64_t family = fs_load_relaxed(&m->poller->family);
    struct fs_connection *c = family && m->it ? fs_load_relaxed(&m->it->c) : NULL;
    /* SYNC: handed over - pairs with fs_claim_handover and fs_control_inherited. */
    return c && fs_load_sc(&fs_own(c)->handed_over) & family;
}

/* A single shot is about to be told. Returns 0 if the kernel tells it instead. With the poller's lock. */
int fs_take_shot(struct fs_member *m);
/* The member is made or changed, and no other process has the connection: it counts, and may be told again. With the poller's lock. */
void fs_renew_member(struct fs_member *m);

/* Returns the families of the instances whose registrations of the connection this process is to hand over: nobody else does. With the
 * pollable's lock. */
uint64_t fs_claim_handover(struct fs_pollable *it);

/* Drops a member whose registration was handed over, with all locks. `claim`: what fs_claim_handover has returned. Returns 0 if it was
 * not. */
int fs_hand_over_member(struct fs_member *m, uint64_t claim);

/* epoll_ctl where another process has instance and connection too: the change is made in the kernel, to a registration that is there as the
 * program has made it. Returns true with the result in `*done`; or false: it is not for this one. With no lock. */
int fs_control_inherited(struct fs_poller *p, int op, int fd, struct fs_pollable *it, const struct epoll_event *event, int *done);

/* Before a wait on an instance that a fork has shared: if another process waits on it too, what is told once leaves the ring. With no
 * lock. */
void fs_leave_single_events(struct fs_poller *p);
