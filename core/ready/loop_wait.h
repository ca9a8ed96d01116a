/* How an event loop waits: its members are the connections that transports of the loop drive.
 *
 * The loop polls while it works, and sleeps in its own selector, beside the epoll of the poller's event set. The loop's own transport has
 * the kernel connection, so nothing here asks the kernel. Nobody but the loop's thread knows the poller, and the pollable of each member:
 * so no lock is taken, and all of this may be called with Python's. */
#ifndef FASTSOCK_LOOP_WAIT_H
#define FASTSOCK_LOOP_WAIT_H

#include "ready/poller.h"

/* An empty poller with an event set, or NULL with -errno in `*failed`. */
struct fs_poller *fs_loop_new(int *failed);

/* The loop has ended. The poller ends with its last member. */
void fs_loop_end(struct fs_poller *p);

/* A member for a connection that is about to attach, with a slot in the set. Events of it tell `data`. NULL with -errno in `*failed`. */
struct fs_member *fs_loop_add(struct fs_poller *p, struct fs_connection *c, void *data, int *failed);

/* It has attached: it may be ready from now on. */
void fs_loop_enter(struct fs_member *m);

/* Ends the member, whose connection is about to end or has not attached. */
void fs_loop_drop(struct fs_member *m);

/* What is wanted of it from now on: FS_IN, FS_OUT_ROOM. `ended`: the kernel's stream from the peer has, so no more comes than is in the
 * ring. */
static inline void fs_loop_want(struct fs_member *m, uint32_t events, int ended) {
    m->events = events;
    m->enabled = events != 0;
    m->kernel = ended ? (uint32_t)EPOLLIN | EPOLLRDHUP : 0;
}

/* Takes the hints, and tells which members of the list are ready, or as many as there is room for. They stay in the list. `now`: about
 * when, monotonic ns. */
int fs_loop_look(struct fs_poller *p, struct epoll_event *events, int max, int64_t now);

/* It may be ready, or what is wanted of it has changed: the next look looks at it. */
static inline void fs_loop_activate(struct fs_member *m) { fs_member_activate(m, 1); }

/* True if there are members that may be ready: the loop is to look on, and does not sleep. */
static inline int fs_loop_looks(const struct fs_poller *p) { return p->listed != 0; }

/* ---- polling ------------------------------------------------------------------------------------------------------------- */

/* A look has found something that was delivered: the wait is over. */
void fs_loop_found(struct fs_poller *p);

/* Nothing was found. Returns the ns for which the wait may go on polling, 0: it is to sleep. */
int64_t fs_loop_budget(struct fs_poller *p, int64_t now);

/* True if polling pays at present. */
int fs_loop_polls(struct fs_poller *p, int64_t now);

/* Looks at the only member of the list so many times, without hints and clock. True if it may be ready. */
int fs_loop_await(struct fs_poller *p, int looks);

/* Looks until one may be ready, there is a hint, or the time is over. True if something was found. */
int fs_loop_spin(struct fs_poller *p, int64_t until);

/* ---- sleeping ------------------------------------------------------------------------------------------------------------ */

/* The descriptor that the loop's selector has: readable when the set is woken. */
static inline int fs_loop_fd(const struct fs_poller *p) { return (int)fs_load_own32(&p->set->epoll); }

/* Leaves the members of the list to the event set. True if some are ready, and stay. */
int fs_loop_arm(struct fs_poller *p);

/* With no member in the list: says that the set sleeps. True if there are hints: the loop is to look on. */
int fs_loop_sleep(struct fs_poller *p);

/* The loop is awake, and begins to look. */
void fs_loop_awake(struct fs_poller *p);

/* The descriptor was readable: takes the hints. */
void fs_loop_wake(struct fs_poller *p);

/* How long the loop may wait, asleep or not, before it looks at members of which no event may tell, ns; -1: there are none. */
static inline int64_t fs_loop_late(const struct fs_poller *p) { return fs_longest_sleep(p); }

/* These may be ready. */
static inline void fs_loop_activate_late(struct fs_poller *p) { fs_members_activate_unreported(p); }

#endif
