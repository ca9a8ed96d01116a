/* Readiness of a connection on the ring, as the program's own select, poll and epoll ask for it. The kernel knows the rest. */
#pragma once

#include "conn/receive.h"
#include "conn/send.h"
#include "conn/state.h"

/* Returns true if data in the ring, or its end, makes a receive return at once. Data in the kernel's own part of the stream is reported
 * by the kernel. Takes the receive lock if the ring alone does not decide. */
int fs_recv_ready(struct fs_connection *c);

/* As fs_recv_ready, after the kernel has reported its descriptor readable: looks at its queue too. */
int fs_recv_ready_after_kernel(struct fs_connection *c);

/* Returns true if the kernel's POLLOUT says nothing about this side's next send, which goes into the ring or waits for the peer's
 * fallback. */
static inline int fs_pollout_is_ours(const struct fs_connection *c) {
    return fs_is_attached(c) && (fs_sends_on_ring(c) || fs_waits_for_fallback(c));
}

/* Returns true if a send would find room then, or an error. Takes the send lock. */
int fs_send_ready(struct fs_connection *c);

/* A peer that has ended its stream may have ended since, with bytes of ours unread: they lay in the ring, so its kernel drew no reset, and
 * says nothing new. Asks for its socket, once in a millisecond at most. Returns true if the peer was found to be gone just now: the kernel
 * of this side knows of it then. Takes the send lock in that state only. */
int fs_look_for_death(struct fs_connection *c);

/* Called before the owner of an event set sleeps: it will be woken for bytes to receive, for credits, or for both. Takes the locks that it
 * needs. Returns 1 if something is there already, or if a stopped process holds a lock. (fs_disarm_receiver says that the owner is
 * awake.) */
int fs_arm_for_set(struct fs_connection *c, int receives, int sends);

/* For an event set that waits for room, if the peer's end may be hidden (fs_eof_is_hidden): the end of its process is a hint for the set.
 * Asks for its socket, but not at each call. Returns true if the peer is gone. */
int fs_probe_for_set(struct fs_connection *c);

/* Returns true if the sender should try again. A hint: fs_try_send decides. */
static inline int fs_credit_returned(struct fs_connection *c) {
    struct fs_shared_side *own = fs_own(c);
    uint32_t credited = fs_load_relaxed(&own->sender.credited);
    /* SYNC: payload free - pairs with fs_send_ack. Only a hint here, and so is the next. */
    return (int32_t)(fs_load_acquire(&c->ring.tx->acked) - credited) > 0 ||
           (int32_t)(fs_load_acquire(&own->receiver.ack_seen) - credited) > 0 || fs_peer_is_gone(c) ||
           (!fs_sends_on_ring(c) && !fs_waits_for_fallback(c));
}

/* Returns true if fs_recv_ready or fs_send_ready should be called again. Takes no lock. `events`: FS_RECEIVE, FS_SEND. */
static inline int fs_may_be_ready(struct fs_connection *c, int events) {
    return (events & FS_RECEIVE && fs_ring_readable(&c->ring)) || (events & FS_SEND && fs_credit_returned(c));
}
