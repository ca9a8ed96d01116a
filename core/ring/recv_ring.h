/* The receiving half of a ring pair: checks and consumes descriptors, and sends ACKs. Theory: ring.h. */
#pragma once

#include "os/copy.h"
#include "ring/ring.h"

struct fs_descriptor_view {
    const unsigned char *payload;
    uint32_t length, ack;
};

/* Reads descriptor `number` and claims it if it is open. Returns 1 with `view` filled and checked, 0 if the descriptor is not there yet,
 * or FS_VIOLATION. */
static inline int fs_read_descriptor(struct fs_ring_pair *ring, struct fs_receiver *receiver, uint32_t number,
                                     struct fs_descriptor_view *view) {
    struct fs_descriptor *d = fs_descriptor_at(ring, ring->rx, number);
    /* SYNC: payload visible - pairs with fs_post and fs_append. */
    uint64_t commit = fs_load_acquire(&d->commit);
    uint32_t sequence = FS_COMMIT_SEQ(commit);
    if (sequence != number + 1) {
        /* Before the post a slot holds nothing or the descriptor of one lap earlier. */
        if (commit == 0 || sequence == number - ring->mask) return 0;
        ring->violation = "descriptor out of sequence";
        return FS_VIOLATION;
    }
    while (FS_COMMIT_STATE(commit) == FS_OPEN) {
        /* Starved: claim the descriptor, so that combining never delays a byte. The sender may have appended meanwhile. */
        uint64_t claimed = FS_COMMIT(sequence, FS_COMMIT_LEN(commit), FS_COMMIT_TYPE(commit), FS_SEALED);
        if (fs_cas64(&d->commit, commit, claimed)) {
            commit = claimed;
        } else {
            /* SYNC: payload visible - pairs with fs_append. */
            commit = fs_load_acquire(&d->commit);
            if (FS_COMMIT_SEQ(commit) != sequence) {
                ring->violation = "open descriptor changed its sequence";
                return FS_VIOLATION;
            }
        }
    }
    uint32_t offset = *(volatile uint32_t *)&d->offset;
    view->ack = *(volatile uint32_t *)&d->ack;
    view->length = FS_COMMIT_LEN(commit);
    if (view->length == 0 || view->length > (offset < ring->rx_overflow ? ring->chunk : FS_OVERFLOW_SIZE)) {
        ring->violation = "descriptor with an impossible length";
        return FS_VIOLATION;
    }
    if (FS_COMMIT_TYPE(commit) != FS_DATA) {
        ring->violation = "descriptor of an unknown type";
        return FS_VIOLATION;
    }
    if (FS_COMMIT_STATE(commit) == FS_INLINED && view->length <= FS_INLINE) {
        view->payload = d->inlined;
    } else if (FS_COMMIT_STATE(commit) == FS_SEALED && offset <= ring->rx_span && view->length <= ring->rx_span - offset) {
        view->payload = ring->rx_arena + offset;
    } else {
        ring->violation = "descriptor in an impossible state";
        return FS_VIOLATION;
    }
    return 1;
}

/* Returns true if a descriptor waits, valid or not. Sequentially consistent, so that it can follow arming: see fs_arm_receiver. */
static inline int fs_has_descriptor(const struct fs_ring_pair *ring) {
    uint32_t number = fs_load_relaxed(&ring->own->receiver.consumed);
    return FS_COMMIT_SEQ(fs_load_sc(&fs_descriptor_at(ring, ring->rx, number)->commit)) == number + 1;
}

#define FS_END_WRONG UINT64_C(1) /* fs_stream_end: a violation */

/* Returns the kind of the stream's end, 0 if there is none or data precedes it, or FS_END_WRONG. */
static inline uint64_t fs_stream_end(struct fs_ring_pair *ring, struct fs_receiver *receiver) {
    /* SYNC: end of stream - pairs with fs_post_fin: all that was posted before is visible now. */
    uint64_t fin = fs_load_sc(&ring->rx->fin);
    if (!fin || fs_has_descriptor(ring)) return 0;
    uint64_t kind = fin & ~(uint64_t)UINT32_MAX;
    if ((uint32_t)fin != fs_load_relaxed(&receiver->consumed) ||
        (kind != FS_FIN && kind != FS_RESET && kind != FS_BACK)) {
        ring->violation = "FIN at an impossible place";
        return FS_END_WRONG;
    }
    return kind;
}

/* Packet ACK, alone: acknowledges everything consumed. */
static inline void fs_send_ack(struct fs_ring_pair *ring, struct fs_receiver *receiver) {
    /* SYNC: consumed - the receiving threads' reads happen before this ACK is sent. */
    uint32_t consumed = fs_load_acquire(&receiver->consumed);
    if (consumed == fs_load_relaxed(&receiver->acknowledged) && fs_load_relaxed(&ring->rx->acked) == consumed) return;
    fs_store_relaxed(&receiver->acknowledged, consumed);
    /* SYNC: payload free - pairs with fs_update_credits. Sequentially consistent for the credit wait: either the sender that starts to
     * wait sees this ACK, or this side sees it wait (fs_peer_credit_wait). */
    fs_store_sc(&ring->rx->acked, consumed);
    fs_count(&ring->count.acks_alone, 1);
}

/* Returns the sender's credit wait, bits of enum fs_credit_wait. Call after descriptors were consumed. */
static inline uint32_t fs_peer_credit_wait(const struct fs_ring_pair *ring) { return fs_load_sc(&ring->rx->credit_wait); }

enum fs_recv_mode { FS_CONSUME = 0, FS_PEEK = 1 };

/* Reads up to `room` bytes of the stream, from as many descriptors as there are, into `into` (NULL: discards them). Returns the number
 * of bytes, 0 if nothing waits, or FS_VIOLATION. */
static inline int64_t fs_ring_recv(struct fs_ring_pair *ring, struct fs_receiver *receiver, char *into, size_t room, int how) {
    uint32_t number = fs_load_relaxed(&receiver->consumed), taken = fs_load_relaxed(&receiver->taken);
    size_t got = 0;
    while (got < room) {
        struct fs_descriptor_view view;
        int there = fs_read_descriptor(ring, receiver, number, &view);
        if (there < 0) return FS_VIOLATION;
        if (!there) break;
        if (taken && view.length != receiver->begun_length && number == fs_load_relaxed(&receiver->consumed)) {
            ring->violation = "descriptor changed while it was read";
            return FS_VIOLATION;
        }
        size_t part = view.length - taken;
        if (part > room - got) part = room - got;
        if (into) fs_copy(into + got, view.payload + taken, part);
        got += part;
        taken += (uint32_t)part;
        if (taken < view.length) {
            if (how != FS_PEEK) {
                receiver->begun_length = view.length;
                receiver->begun = number;
            }
            break;
        }
        taken = 0;
        number++;
        if (how != FS_PEEK) {
            /* SYNC: ack seen - pairs with fs_update_credits: the sender sees the peer's reads that came before `view`. */
            if ((int32_t)(view.ack - fs_load_relaxed(&receiver->ack_seen)) > 0)
                fs_store_release(&receiver->ack_seen, view.ack);
            /* SYNC: consumed - pairs with fs_post and fs_send_ack. */
            fs_store_release(&receiver->consumed, number);
            fs_compiler_barrier(); /* a process killed here has not begun the next one: see ring_recovery.h */
            fs_store_relaxed(&receiver->taken, 0);
            fs_store_relaxed(&ring->rx->seen, number);
            fs_count(&ring->count.messages_received, 1);
            /* Needed also when DATA carries the ACKs: they may lie unread there while their sender runs out of credit. A sender with a
             * limit may wait with credits left, so each ACK is sent alone, even where a concurrent post carries it (`acknowledged`). */
            uint32_t threshold = fs_load_relaxed(&ring->rx->limited) ? 1 : ring->ack_threshold;
            if (threshold == 1 || view.length > ring->chunk || number - fs_load_relaxed(&receiver->acknowledged) >= threshold ||
                number - fs_load_relaxed(&ring->rx->acked) >= ring->window / 2 + ring->ack_threshold / 2)
                fs_send_ack(ring, receiver);
        }
    }
    if (how != FS_PEEK) {
        fs_compiler_barrier();
        fs_store_relaxed(&receiver->taken, taken);
        fs_count(&ring->count.bytes_received, got);
    }
    return (int64_t)got;
}

/* Returns the unread bytes in the first `most` descriptors of the ring; stops counting at `enough`. Needs no lock: every word is read
 * once, and the result may be outdated. */
static inline size_t fs_unread_bytes(const struct fs_ring_pair *ring, size_t enough, uint32_t most) {
    uint32_t number = fs_load_relaxed(&ring->own->receiver.consumed), last = number + (ring->window < most ? ring->window : most);
    uint32_t skip = fs_load_relaxed(&ring->own->receiver.taken);
    size_t total = 0;
    for (; number != last && total < enough; number++) {
        /* SYNC: payload visible - pairs with fs_post. */
        uint64_t commit = fs_load_acquire(&fs_descriptor_at(ring, ring->rx, number)->commit);
        if (FS_COMMIT_SEQ(commit) != number + 1) break;
        uint32_t length = FS_COMMIT_LEN(commit);
        total += length > skip ? length - skip : 0;
        skip = 0;
    }
    return total;
}

/* Returns the bytes that fs_ring_recv would give now, at most `enough`: a hint for sizing a buffer. */
static inline size_t fs_available(const struct fs_ring_pair *ring, size_t enough) {
    size_t unread = fs_unread_bytes(ring, enough, ring->window);
    return unread < enough ? unread : enough;
}
