/* Waiting without losing a wakeup.
 *
 * The lost-wakeup argument, once for both directions. The one that waits writes "I wait" and then looks for
 * what it waits for; the other one writes what is waited for and then looks for "I wait". All four are
 * sequentially consistent, so in their single total order at least one of the two looks comes after the
 * other's write: either the waiter sees the data (and does not sleep) or the other one sees the waiter (and
 * rings). Who waits:
 *     the receiver   fs_arm_receiver: doorbell |= ASLEEP, then looks at the next commit word and the FIN
 *                    fs_post / fs_post_fin: commit word or FIN, then fs_peer_doorbell
 *     the sender     fs_arm_sender: credit_wait |= WAITS, then looks at the ACK
 *                    fs_send_ack: ACK, then fs_peer_credit_wait
 *     the descriptor fs_doorbell_bytes_to_drain: heard = rung, then looks at the next commit word
 *     (EXPOSED)      fs_post, then fs_all_heard: is a byte left that tells of it?
 */
#ifndef FASTSOCK_DOORBELL_H
#define FASTSOCK_DOORBELL_H

#include "ring/send_ring.h"
#include "ring/recv_ring.h"

/* Who is to be woken: threads that sleep on `futex`, on `credit_futex`, and the event set. */
enum fs_wake { FS_WAKE_RECEIVERS = 1, FS_WAKE_SENDERS = 2, FS_WAKE_SET = 4, FS_WAKE_ALL = 7 };

/* ---- the receiver waits ---------------------------------------------------------------------------- */

static inline int fs_ring_readable(const struct fs_ring_pair *ring) {
    return fs_has_descriptor(ring) || (fs_load_sc(&ring->rx->fin) && !fs_load_relaxed(&ring->own->receiver.fin_taken));
}

/* Says how this side sleeps (FS_ASLEEP, FS_SET_ASLEEP). True if it must not: something is there already. */
static inline int fs_arm_receiver(struct fs_ring_pair *ring, uint32_t how) {
    fs_or_sc(&ring->rx->doorbell, how);
    return fs_ring_readable(ring);
}

/* Of an event set that is awake, or a thread beside which nobody else sleeps. */
static inline void fs_disarm_receiver(struct fs_ring_pair *ring, uint32_t how) { fs_and_sc(&ring->rx->doorbell, ~how); }

/* The sender's part: whom this call has to wake, and no other call. Bits of enum fs_wake. */
static inline uint32_t fs_claim_receiver_wakeups(struct fs_ring_pair *ring, struct fs_sender *sender) {
    uint32_t asleep = fs_and_sc(&ring->tx->doorbell, ~(uint32_t)(FS_ASLEEP | FS_SET_ASLEEP));
    return (asleep & FS_ASLEEP ? FS_WAKE_RECEIVERS : 0u) | (asleep & FS_SET_ASLEEP ? FS_WAKE_SET : 0u);
}

/* ---- the sender waits ------------------------------------------------------------------------------ */

/* Whether a send of any size would get a descriptor now, without a spare part. */
static inline int fs_has_credit(struct fs_ring_pair *ring, struct fs_sender *sender) {
    if (fs_update_credits(ring, sender) < 0) return 1; /* the next post reports it */
    if (!fs_in_flight(sender)) return 1;
    uint32_t at;
    if (fs_in_flight(sender) + fs_free_spares(ring, sender, &at) >= ring->window) return 0;
    uint64_t head = sender->head;
    int room = fs_arena_reserve(ring, sender, ring->chunk, &at) > 0; /* the most demanding one, tried and taken back */
    sender->head = head;
    return room;
}

/* Whether a spare part would take what is sent now. */
static inline int fs_may_overflow(const struct fs_ring_pair *ring, const struct fs_sender *sender) {
    uint32_t at;
    return fs_overflow_is_open(ring, sender) || (fs_in_flight(sender) < ring->window && fs_free_spares(ring, sender, &at));
}

/* Whether a send of any size would get something into the ring now. */
static inline int fs_ring_writable(struct fs_ring_pair *ring, struct fs_sender *sender) {
    return fs_has_credit(ring, sender) || fs_may_overflow(ring, sender);
}

/* Says how this side waits for credits (FS_WAITS, FS_SET_WAITS, FS_PLUGGED, FS_ACK_NOW). True if there are some already. */
static inline int fs_arm_sender(struct fs_ring_pair *ring, struct fs_sender *sender, uint32_t how) {
    fs_or_sc(&ring->tx->credit_wait, how);
    return fs_ring_writable(ring, sender);
}

/* The receiver's part: takes over what the sender asked for, but leaves the bits to `keep` where they are. */
static inline uint32_t fs_claim_credit_wait(struct fs_ring_pair *ring, struct fs_receiver *receiver, uint32_t keep) {
    return fs_and_sc(&ring->rx->credit_wait, keep) & ~keep;
}

/* Whom it has to wake then: bits of enum fs_wake. */
static inline uint32_t fs_sender_wakeups(uint32_t wants) {
    return (wants & FS_WAITS ? FS_WAKE_SENDERS : 0u) | (wants & FS_SET_WAITS ? FS_WAKE_SET : 0u);
}

/* ---- doorbell bytes: POLLIN on the kernel's descriptor ---------------------------------------------- */

/* A post to an EXPOSED receiver, its doorbell byte accounted (fs_post), and the look whether that byte was heard before the
 * post could be seen, belong together: a receiver that took the post in between might take the byte for an older
 * post's, and another byte would come with nothing behind it. So the sender says that it is at it, for as long as
 * that takes, and the receiver that has drained the ring waits for the end of it before it takes bytes. The system call
 * that sends the byte comes afterwards: the receiver knows of the byte by its count. */
static inline int fs_begin_notify(struct fs_ring_pair *ring, struct fs_sender *sender) {
    if (!(fs_load_relaxed(&ring->tx->doorbell) & FS_EXPOSED)) return 0;
    fs_store_relaxed(&ring->tx->ringing, 1); /* the post's release orders it */
    return 1;
}

/* The same around a plug, whose bytes are doorbell bytes too. True if the ring is still full: a receiver that drains it
 * from here on waits for the end, and one that drained it before has acknowledged, which this look sees. FS_PLUGGED comes
 * before the bytes, so that who counts them knows what they are. */
static inline int fs_begin_plug(struct fs_ring_pair *ring, struct fs_sender *sender) {
    fs_store_sc(&ring->tx->ringing, 1);
    return !fs_arm_sender(ring, sender, FS_PLUGGED);
}

/* SYNC: byte sent - pairs with fs_peer_is_notifying. */
static inline void fs_end_notify(struct fs_ring_pair *ring, struct fs_sender *sender) {
    fs_store_release(&ring->tx->ringing, 0);
}

/* SYNC: byte sent - pairs with fs_end_notify. Sequentially consistent for fs_begin_plug: the receiver has written its
 * ACK and looks for the mark, the sender has written the mark and looks for the ACK. */
static inline int fs_peer_is_notifying(struct fs_ring_pair *ring) { return fs_load_sc(&ring->rx->ringing) == 1; }

/* Of the bytes counted up to `rung`, those in front of an urgent one whose descriptor is unread, or was only passed by: it can
 * still be read apart. If data waits in front of it, one byte that tells of this stays too. */
static inline uint32_t fs_before_urgent(const struct fs_ring_pair *ring, const struct fs_receiver *receiver, uint32_t heard,
                                        uint32_t rung) {
    uint64_t urgent = fs_load_relaxed(&ring->rx->urgent);
    uint32_t consumed = fs_load_relaxed(&receiver->consumed);
    uint32_t at = (uint32_t)urgent, ahead = (uint32_t)(urgent >> 32) - consumed;
    if (!ahead && receiver->passed == consumed) ahead = 1;
    if (!urgent || (int32_t)ahead <= 0 || (int32_t)(rung - at) < 0 || (int32_t)(at - heard) <= 0) return rung;
    return at - 1 != heard && ahead > 1 ? at - 2 : at - 1;
}

/* Doorbell bytes to take from the kernel's queue now, so that it holds some exactly while something waits. */
static inline uint32_t fs_doorbell_bytes_to_drain(struct fs_ring_pair *ring, struct fs_receiver *receiver) {
    /* SYNC: rung - pairs with fs_count_urgent: who sees the count sees what it is of. */
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
        /* Posted just now, perhaps without ringing because enough bytes still lay there: leave one. If the
         * peer did ring there is one byte more than needed, and the next call takes it. */
    }
    fs_store_sc(&ring->rx->heard, rung - 1);
    return rung - 1 - heard;
}

#endif
