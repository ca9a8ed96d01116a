/* Waiting without losing a wakeup.
 *
 * The lost-wakeup argument, once for both directions. The waiter writes "I wait" and then looks for the thing it waits for. The other
 * one writes that thing and then looks for "I wait". All four operations are sequentially consistent, so in their single total order at
 * least one look comes after the other's write: either the waiter sees the data (and does not sleep) or the other one sees the waiter
 * (and wakes it). The waiters are:
 *     the receiver   fs_arm_receiver: doorbell |= ASLEEP, then looks at the next commit word and the FIN
 *                    fs_post / fs_post_fin: commit word or FIN, then fs_peer_doorbell
 *     the sender     fs_arm_sender: credit_wait |= WAITS, then looks at the ACK
 *                    fs_send_ack: ACK, then fs_peer_credit_wait
 *     the descriptor fs_doorbell_bytes_to_drain: heard = rung, then looks at the next commit word
 *     (EXPOSED)      fs_post, then fs_all_drained: is a byte left that announces the post? */
#ifndef FASTSOCK_DOORBELL_H
#define FASTSOCK_DOORBELL_H

#include "ring/send_ring.h"
#include "ring/recv_ring.h"

/* The sleepers to wake: threads on `futex`, threads on `credit_futex`, the event set. */
enum fs_wake { FS_WAKE_RECEIVERS = 1, FS_WAKE_SENDERS = 2, FS_WAKE_SET = 4, FS_WAKE_ALL = 7 };

/* ---- the receiver waits ---------------------------------------------------------------------------- */

static inline int fs_ring_readable(const struct fs_ring_pair *ring) {
    return fs_has_descriptor(ring) || (fs_load_sc(&ring->rx->fin) && !fs_load_relaxed(&ring->own->receiver.fin_taken));
}

/* Announces that this side sleeps (FS_ASLEEP, FS_SET_ASLEEP). Returns true if it must not sleep: something is there already. */
static inline int fs_arm_receiver(struct fs_ring_pair *ring, uint32_t how) {
    fs_or_sc(&ring->rx->doorbell, how);
    return fs_ring_readable(ring);
}

/* For an event set that is awake, or a thread beside which nobody else sleeps. */
static inline void fs_disarm_receiver(struct fs_ring_pair *ring, uint32_t how) { fs_and_sc(&ring->rx->doorbell, ~how); }

/* For the sender: claims the wakeups that this call must do and no other. Returns bits of enum fs_wake. */
static inline uint32_t fs_claim_receiver_wakeups(struct fs_ring_pair *ring, struct fs_sender *sender) {
    uint32_t asleep = fs_and_sc(&ring->tx->doorbell, ~(uint32_t)(FS_ASLEEP | FS_SET_ASLEEP));
    return (asleep & FS_ASLEEP ? FS_WAKE_RECEIVERS : 0u) | (asleep & FS_SET_ASLEEP ? FS_WAKE_SET : 0u);
}

/* ---- the sender waits ------------------------------------------------------------------------------ */

/* Returns true if a send of any size would get a descriptor now, without an overflow buffer. */
static inline int fs_has_credit(struct fs_ring_pair *ring, struct fs_sender *sender) {
    if (fs_update_credits(ring, sender) < 0) return 1; /* the next post reports it */
    if (!fs_in_flight(sender)) return 1;
    uint32_t at;
    if (fs_in_flight(sender) + fs_free_overflows(ring, sender, &at) >= ring->window) return 0;
    uint64_t head = sender->head;
    int room = fs_arena_reserve(ring, sender, ring->chunk, &at) > 0; /* the largest payload, tried and undone */
    sender->head = head;
    return room;
}

/* Returns true if an overflow buffer would take the next send. */
static inline int fs_may_overflow(const struct fs_ring_pair *ring, const struct fs_sender *sender) {
    uint32_t at;
    return fs_overflow_is_open(ring, sender) || (fs_in_flight(sender) < ring->window && fs_free_overflows(ring, sender, &at));
}

/* Returns true if a send of any size would get something into the ring now. */
static inline int fs_ring_writable(struct fs_ring_pair *ring, struct fs_sender *sender) {
    return fs_has_credit(ring, sender) || fs_may_overflow(ring, sender);
}

/* Announces that this side waits for credits (FS_WAITS, FS_SET_WAITS, FS_PLUGGED, FS_ACK_NOW). Returns true if there are some already. */
static inline int fs_arm_sender(struct fs_ring_pair *ring, struct fs_sender *sender, uint32_t how) {
    fs_or_sc(&ring->tx->credit_wait, how);
    return fs_ring_writable(ring, sender);
}

/* For the receiver: claims the sender's credit wait, except the bits in `keep`. Returns the claimed bits. */
static inline uint32_t fs_claim_credit_wait(struct fs_ring_pair *ring, struct fs_receiver *receiver, uint32_t keep) {
    return fs_and_sc(&ring->rx->credit_wait, keep) & ~keep;
}

/* Returns the wakeups that claimed bits ask for, as bits of enum fs_wake. */
static inline uint32_t fs_sender_wakeups(uint32_t wants) {
    return (wants & FS_WAITS ? FS_WAKE_SENDERS : 0u) | (wants & FS_SET_WAITS ? FS_WAKE_SET : 0u);
}

/* ---- doorbell bytes: POLLIN on the kernel's descriptor ---------------------------------------------- */

/* A post to an EXPOSED receiver counts its doorbell byte (fs_post) and then checks if that byte was drained before the post became
 * visible. Both steps belong together: a receiver that took the post in between might take the byte for an older post's, and another
 * byte would come with nothing behind it. So the sender sets a mark for that time, and a receiver that has drained the ring waits for
 * the end of the mark before it drains bytes. The system call that sends the byte comes afterwards: the receiver knows of the byte by
 * its count. */
static inline int fs_begin_notify(struct fs_ring_pair *ring, struct fs_sender *sender) {
    if (!(fs_load_relaxed(&ring->tx->doorbell) & FS_EXPOSED)) return 0;
    fs_store_relaxed(&ring->tx->ringing, 1); /* ordered by the post's release */
    return 1;
}

/* fs_begin_notify for a plug, whose bytes are doorbell bytes too. Returns true if the ring is still full. A receiver that drains the
 * ring from here on waits for the mark; one that drained it before has acknowledged, which this look sees. FS_PLUGGED comes before the
 * bytes, so the receiver that counts them knows their meaning. */
static inline int fs_begin_plug(struct fs_ring_pair *ring, struct fs_sender *sender) {
    fs_store_sc(&ring->tx->ringing, 1);
    return !fs_arm_sender(ring, sender, FS_PLUGGED);
}

/* SYNC: byte sent - pairs with fs_peer_is_notifying. */
static inline void fs_end_notify(struct fs_ring_pair *ring, struct fs_sender *sender) {
    fs_store_release(&ring->tx->ringing, 0);
}

/* SYNC: byte sent - pairs with fs_end_notify. Sequentially consistent for fs_begin_plug: the receiver writes its ACK and looks for the
 * mark; the sender writes the mark and looks for the ACK. */
static inline int fs_peer_is_notifying(struct fs_ring_pair *ring) { return fs_load_sc(&ring->rx->ringing) == 1; }

/* Returns the count of doorbell bytes that precede an urgent byte which can still be read apart: its descriptor is unread, or a peek
 * passed by it. Returns `rung` if there is none. If data waits before the urgent byte, one doorbell byte that announces the data stays
 * too. */
static inline uint32_t fs_before_urgent(const struct fs_ring_pair *ring, const struct fs_receiver *receiver, uint32_t heard,
                                        uint32_t rung) {
    uint64_t urgent = fs_load_relaxed(&ring->rx->urgent);
    uint32_t consumed = fs_load_relaxed(&receiver->consumed);
    uint32_t at = (uint32_t)urgent, ahead = (uint32_t)(urgent >> 32) - consumed;
    if (!ahead && receiver->passed == consumed) ahead = 1;
    if (!urgent || (int32_t)ahead <= 0 || (int32_t)(rung - at) < 0 || (int32_t)(at - heard) <= 0) return rung;
    return at - 1 != heard && ahead > 1 ? at - 2 : at - 1;
}

/* Returns the doorbell bytes to drain from the kernel's queue now, so that some are left exactly while something waits. */
static inline uint32_t fs_doorbell_bytes_to_drain(struct fs_ring_pair *ring, struct fs_receiver *receiver) {
    /* SYNC: rung - pairs with fs_count_urgent: a receiver that sees the count sees the urgent mark too. */
    uint32_t heard = fs_load_relaxed(&ring->rx->heard), rung = fs_load_acquire(&ring->rx->rung);
    if (rung == heard) return 0;
    uint32_t before = fs_before_urgent(ring, receiver, heard, rung);
    if (before != rung) {
        fs_store_sc(&ring->rx->heard, before);
        return before - heard;
    }
    if (!fs_ring_readable(ring)) {
        fs_store_sc(&ring->rx->heard, rung);
        if (!fs_ring_readable(ring)) return rung - heard;
        /* Posted just now, perhaps without a byte because enough of them still lay there: leave one. If the peer did send one, there is
         * one byte too many, and the next call drains it. */
    }
    fs_store_sc(&ring->rx->heard, rung - 1);
    return rung - 1 - heard;
}

#endif
