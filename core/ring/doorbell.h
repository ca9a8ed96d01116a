/* Waiting without losing a wakeup.
 *
 * The lost-wakeup argument, once for both directions. The waiter writes "I wait" and then looks for the thing it waits for. The other
 * one writes that thing and then looks for "I wait". All four operations are sequentially consistent, so in their single total order at
 * least one look comes after the other's write: either the waiter sees the data (and does not sleep) or the other one sees the waiter
 * (and wakes it). The waiters are:
 *     the receiver   fs_arm_receiver: doorbell |= ASLEEP, then looks at the next commit word and the FIN
 *                    fs_post / fs_post_fin: commit word or FIN, then fs_peer_doorbell
 *     the sender     fs_arm_sender: credit_wait |= WAITS, then looks at the ACK
 *                    fs_send_ack: ACK, then fs_peer_credit_wait */
#pragma once

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

/* Announces that this side waits for credits (FS_WAITS, FS_SET_WAITS, FS_ACK_NOW). Returns true if there are some already. */
static inline int fs_arm_sender(struct fs_ring_pair *ring, struct fs_sender *sender, uint32_t how) {
    fs_or_sc(&ring->tx->credit_wait, how);
    return fs_ring_writable(ring, sender);
}

/* For the receiver: claims the wakeups of a sender that waits for credits. Returns bits of enum fs_wake. */
static inline uint32_t fs_claim_sender_wakeups(struct fs_ring_pair *ring, struct fs_receiver *receiver) {
    uint32_t wants = fs_and_sc(&ring->rx->credit_wait, 0);
    return (wants & FS_WAITS ? FS_WAKE_SENDERS : 0u) | (wants & FS_SET_WAITS ? FS_WAKE_SET : 0u);
}
