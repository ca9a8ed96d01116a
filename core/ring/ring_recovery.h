/* Recovery of a ring whose lock holder was killed.
 *
 * The state of a side outlives its processes, so a lock inherited from a dead holder (FS_LOCK_OWNER_DIED) may find the state between any
 * two stores. The ring's own state is written so that the difference can always be told:
 *
 *     killed in           leaves                                           recovered by
 *     fs_post             reserved arena bytes, or an overflow buffer      nothing: they return with the next ACK
 *     fs_ring_writable    the same, at most a rest before the wrap         the same
 *                         `posted` counted, the descriptor not there       undoing the count: it was never sent
 *                         sent, and not noted as open                      nothing: the receiver claims it, nobody appends
 *     fs_append           appended, `open_length` and `head` behind        the length in the commit word
 *     fs_update_credits   `credited` ahead of `tail`                       nothing: less room until the next ACK; or
 *                                                                          all read: the arena starts again
 *     fs_post_fin         FIN there, not noted                             noting it
 *     fs_ring_recv        bytes copied, `consumed` behind                  nothing: a living process reads them again
 *                         `consumed` ahead of `taken`                      `begun`, the descriptor of `taken`
 *                         `acknowledged` ahead of `acked`                  nothing: fs_send_ack looks at both
 *
 * Bytes that the dead process had consumed are lost with it, as in TCP. conn/recovery.c recovers the kernel connection. */
#pragma once

#include "ring/send_ring.h"
#include "ring/recv_ring.h"

/* The newest descriptor may be longer than its dead sender noted: adopts its length, and ends combining. */
static inline int fs_recover_open(struct fs_ring_pair *ring, struct fs_sender *sender) {
    uint32_t number = fs_load_own32(&sender->posted) - 1, length;
    struct fs_descriptor *d = fs_descriptor_at(ring, ring->tx, number);
    uint64_t commit;
    do {
        /* SYNC: payload visible - the descriptor is this side's own: the dead sender wrote it, and the lock orders it. */
        commit = fs_load_acquire(&d->commit);
        length = FS_COMMIT_LEN(commit);
    } while (FS_COMMIT_STATE(commit) == FS_OPEN &&
             !fs_cas64(&d->commit, commit, FS_COMMIT(number + 1, length, FS_DATA, FS_SEALED)));
    sender->is_open = 0;
    int in_overflow = fs_in_overflow(ring, sender->open_at);
    if (!length || length > (in_overflow ? FS_OVERFLOW_SIZE : ring->chunk) ||
        length > fs_segment_end(ring, sender->open_at) - sender->open_at) {
        ring->violation = "open descriptor with an impossible length";
        return FS_VIOLATION;
    }
    if (in_overflow) return 0; /* it uses no arena */
    /* `ends` has the position after the new or the old length; either is at most an arena past its start. */
    uint64_t *end = &sender->ends[number & ring->mask];
    uint64_t distance = (*end - sender->open_at) % ring->arena;
    sender->head = *end = *end - (distance ? distance : ring->arena) + fs_round_to_line(length);
    return 0;
}

/* Call with an inherited lock. Returns 0, or FS_VIOLATION. */
static inline int fs_recover_sender(struct fs_ring_pair *ring, struct fs_sender *sender) {
    if (fs_in_flight(sender)) {
        uint32_t number = fs_load_own32(&sender->posted) - 1;
        /* SYNC: payload visible - as above. */
        if (FS_COMMIT_SEQ(fs_load_acquire(&fs_descriptor_at(ring, ring->tx, number)->commit)) != fs_load_own32(&sender->posted)) {
            fs_store_relaxed(&sender->posted, number);
            sender->is_open = 0;
        } else if (sender->is_open && fs_recover_open(ring, sender) < 0) {
            return FS_VIOLATION;
        }
    }
    if (!fs_in_flight(sender)) {
        sender->head = sender->tail = sender->limited_from = 0;
        sender->is_open = 0;
    }
    fs_recover_stream_end(ring, sender);
    return 0;
}

/* Call with an inherited lock. */
static inline void fs_recover_receiver(struct fs_ring_pair *ring, struct fs_receiver *receiver) {
    if (receiver->begun != fs_load_relaxed(&receiver->consumed)) fs_store_relaxed(&receiver->taken, 0);
}
