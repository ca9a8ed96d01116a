/* A loop drives the connection: the transport of an event loop reads and writes the kernel connection, polls the ring, and
 * sleeps in the loop. Nobody else reads, writes or polls the descriptor.
 *
 * The loop calls these in one thread, and fs_try_recv and fs_try_send as everybody does. Another process that inherited the
 * connection may be at work on it meanwhile, so that they take turns. */
#ifndef FASTSOCK_LOOP_IO_H
#define FASTSOCK_LOOP_IO_H

#include "conn/receive.h"
#include "conn/doorbell_tx.h"
#include "conn/state.h"

/* From now on a loop drives the connection, and the peer rings no doorbell bytes any more. Called again behind fs_attach. Takes
 * the turn to receive, if there is a region. Without the front end's lock. */
void fs_drive_by_loop(struct fs_connection *c);

/* ---- reading ---------------------------------------------------------------------------------------------- */

/* The loop's transport has read `count` bytes from the kernel, of a connection that has a region. Returns how many of the first
 * ones are the program's, or FS_VIOLATED. What lies behind the switch are doorbell bytes. Behind those, `behind` bytes are the
 * program's again, because the peer has gone back to the kernel: they come after what is in the ring. Takes the turn to receive. */
int64_t fs_account_read(struct fs_connection *c, uint64_t count, uint64_t *behind);

/* Whether the peer keeps its POLLOUT away with bytes in our kernel's queue, which have to lie there. */
static inline int fs_keeps_plug(struct fs_connection *c) {
    return fs_peer_credit_wait(&c->ring) & FS_PLUGGED && fs_has_descriptor(&c->ring);
}

/* Whether the peer's stream ends with a reset. */
static inline int fs_ends_with_reset(struct fs_connection *c) {
    return fs_load_sc(&c->ring.rx->fin) >> 32 == FS_RESET >> 32;
}

/* ---- writing ---------------------------------------------------------------------------------------------- */

/* Whether what is written next is the loop's transport's, which sends it past our turns: not while doorbell bytes are owed. To
 * the peer, which has counted them, bytes that overtake them would be those. (Before the switch this side has rung none.) */
static inline int fs_kernel_is_next(struct fs_connection *c) {
    if (fs_sends_on_ring(c) || fs_waits_for_fallback(c)) return 0;
    return !(fs_moved(c) & FS_SENDING_BACK) || fs_nothing_deferred(c);
}

/* Whether the peer is ready for the ring, and this side's bytes still go through the kernel. */
static inline int fs_may_switch(struct fs_connection *c) {
    /* SYNC: consent - pairs with fs_give_consent. */
    return fs_load_sc(&c->ring.tx->ready) == FS_READY && !(fs_moved(c) & (FS_SENDING_MOVED | FS_SENDING_BACK));
}

/* Everything that was written is in the kernel, so that what follows may go to the ring. Whether it will. Takes the turn to send. */
int fs_switch_if_ready(struct fs_connection *c);

/* Whether the sender should try again. A hint: fs_try_send has the last word. */
static inline int fs_credit_returned(struct fs_connection *c) {
    struct fs_shared_side *own = fs_own(c);
    uint32_t credited = fs_load_relaxed(&own->sender.credited);
    /* SYNC: payload free - pairs with fs_send_ack. Only a hint here, and so is the next. */
    return (int32_t)(fs_load_acquire(&c->ring.tx->acked) - credited) > 0 ||
           (int32_t)(fs_load_acquire(&own->receiver.ack_seen) - credited) > 0 || fs_peer_is_gone(c) ||
           (!fs_sends_on_ring(c) && !fs_waits_for_fallback(c));
}

/* Whether a peer whose end of stream was seen is dead: fs_probe_peer, in the turn to send. */
int fs_probe_loop_peer(struct fs_connection *c);

/* ---- sleeping --------------------------------------------------------------------------------------------- */

/* The loop goes to sleep, and its event set is to wake it: for what there is to receive, for credits, or for both. 1 if something
 * is there already, or if a lock is held by a stopped process. Takes the turns that it needs. (fs_disarm_receiver says that the loop is
 * awake.) */
int fs_arm_for_loop(struct fs_connection *c, int receives, int sends);

#endif
