/* A loop-driven connection: the transport of an event loop reads and writes the kernel connection. Nobody else reads, writes or polls the
 * descriptor. (How the loop waits: ready/loop_wait.h.)
 *
 * The loop calls these functions in one thread, besides fs_try_recv and fs_try_send. Another process that inherited the connection may
 * use it meanwhile, so they take the side's locks. */
#ifndef FASTSOCK_LOOP_IO_H
#define FASTSOCK_LOOP_IO_H

#include "conn/receive.h"
#include "conn/send.h"
#include "conn/state.h"

/* Makes the connection loop-driven. Called again after fs_attach. */
void fs_drive_by_loop(struct fs_connection *c);

/* ---- reading ---------------------------------------------------------------------------------------------- */

/* The loop's transport has read `count` bytes from the kernel, of a connection that has a region. Takes the receive lock. Returns how
 * many of the first bytes come before those in the ring, or FS_VIOLATED. `*behind` bytes come after those in the ring, because the peer has
 * gone back to the kernel. */
int64_t fs_account_read(struct fs_connection *c, uint64_t count, uint64_t *behind);

/* Returns true if the peer has fallen back: bytes from the kernel may come behind those in the ring. */
static inline int fs_peer_is_back(struct fs_connection *c) { return (fs_load_sc(&c->ring.rx->fin) & FS_FIN_KIND) == FS_BACK; }

/* Returns true if the peer's stream ends with a reset. */
static inline int fs_ends_with_reset(struct fs_connection *c) {
    return fs_load_sc(&c->ring.rx->fin) >> 32 == FS_RESET >> 32;
}

/* ---- writing ---------------------------------------------------------------------------------------------- */

/* Returns true if the loop's transport sends the next bytes, which it does without our locks. */
static inline int fs_kernel_is_next(struct fs_connection *c) { return !fs_sends_on_ring(c) && !fs_waits_for_fallback(c); }

/* Returns true if the peer is ready for the ring, and this side's bytes still go through the kernel. */
static inline int fs_may_switch(struct fs_connection *c) {
    /* SYNC: consent - pairs with fs_give_consent. */
    return fs_load_sc(&c->ring.tx->ready) == FS_READY && !(fs_moved(c) & (FS_SENDING_MOVED | FS_SENDING_BACK));
}

/* Switches to the ring if the peer is ready. Everything written so far is in the kernel. Takes the send lock. Returns true if this side
 * sends on the ring. */
int fs_switch_if_ready(struct fs_connection *c);

/* Returns true if the sender should try again. A hint: fs_try_send decides. */
static inline int fs_credit_returned(struct fs_connection *c) {
    struct fs_shared_side *own = fs_own(c);
    uint32_t credited = fs_load_relaxed(&own->sender.credited);
    /* SYNC: payload free - pairs with fs_send_ack. Only a hint here, and so is the next. */
    return (int32_t)(fs_load_acquire(&c->ring.tx->acked) - credited) > 0 ||
           (int32_t)(fs_load_acquire(&own->receiver.ack_seen) - credited) > 0 || fs_peer_is_gone(c) ||
           (!fs_sends_on_ring(c) && !fs_waits_for_fallback(c));
}

#endif
