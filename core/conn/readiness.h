/* What a connection on the ring is ready for, as the program's own select, poll and epoll ask it. The kernel knows
 * of the rest. */
#ifndef FASTSOCK_READINESS_H
#define FASTSOCK_READINESS_H

#include "conn/loop_io.h"

/* Whether what lies in the ring, or its end, makes a receive return at once. A kernel that has its own part of the
 * stream unread tells of that itself. Takes the turn to receive where a look at the ring does not decide it. */
int fs_recv_ready(struct fs_connection *c);

/* The same, where the kernel says that its descriptor is readable: doorbell bytes that somebody has left there are
 * taken. */
int fs_recv_ready_after_kernel(struct fs_connection *c);

/* Whether the kernel's POLLOUT says nothing about this side's next send: that goes into the ring, or waits for a
 * leaver. */
static inline int fs_pollout_is_ours(const struct fs_connection *c) {
    return fs_is_attached(c) && (fs_sends_on_ring(c) || fs_waits_for_fallback(c));
}

/* Whether a send would find room then, or an error. Takes the turn to send. */
int fs_send_ready(struct fs_connection *c);

/* A look without a turn, for who polls: whether the two above should be asked again. `events`: FS_RECEIVE, FS_SEND. */
static inline int fs_may_be_ready(struct fs_connection *c, int events) {
    return (events & FS_RECEIVE && fs_ring_readable(&c->ring)) || (events & FS_SEND && fs_credit_returned(c));
}

#endif
