/* What a process that was killed in the middle of its turn leaves behind, and how the next one mends it.
 *
 * The state of a side lies in memory that outlives its processes, so a turn that is inherited (FS_INHERITED) may find it
 * between any two stores. The ring's own state is written so that this can always be told:
 *
 *     killed in        leaves                                        mended by
 *     fs_post          reserved arena bytes, or a spare part         nothing: they return with the next ACK
 *     fs_writable      the same, at most a rest before the wrap      the same
 *                      `posted` counted, the descriptor not there    taking the count back: it was never sent
 *                      sent, and not noted as open                   nothing: the receiver claims it, nobody appends
 *     fs_append        appended, `open_length` and `head` behind     the length in the commit word
 *     fs_take_credits  `credited` ahead of `tail`                    nothing: less room until the next ACK; or
 *                                                                    all read: the arena starts again
 *     fs_post_fin      FIN there, not noted                          noting it
 *     fs_take          bytes copied, `consumed` behind               nothing: they are read again, by somebody who lives
 *                      `consumed` ahead of `taken`                   `begun`, which says what `taken` is part of
 *                      `acknowledged` ahead of `acked`               nothing: fs_acknowledge looks at both
 *
 * Bytes that the dead process had consumed are gone with it, as they are in TCP. What concerns the kernel connection is mended
 * in connection/mend.c. */
#ifndef FASTSOCK_MENDING_H
#define FASTSOCK_MENDING_H

#include "ring/posting.h"
#include "ring/taking.h"

/* The newest descriptor may be longer than its sender lived to note: takes over its length, and ends combining. */
static inline int fs_mend_open(struct fs_vi *vi, struct fs_sender *sender) {
    uint32_t number = fs_own32(&sender->posted) - 1, length;
    struct fs_descriptor *d = fs_descriptor_at(vi, vi->tx, number);
    uint64_t commit;
    do {
        /* SYNC: payload visible - the descriptor is this side's own: the sender that died wrote it, and the turn orders it. */
        commit = fs_load_acquire(&d->commit);
        length = FS_COMMIT_LEN(commit);
    } while (FS_COMMIT_STATE(commit) == FS_OPEN &&
             !fs_swap_if64(&d->commit, commit, FS_COMMIT(number + 1, length, FS_DATA, FS_SEALED)));
    sender->is_open = 0;
    int spare = fs_is_spare(vi, sender->open_at);
    if (!length || length > (spare ? FS_SPARE : vi->chunk) ||
        length > fs_part_end(vi, sender->open_at) - sender->open_at) {
        vi->violation = "open descriptor with an impossible length";
        return FS_VIOLATION;
    }
    if (spare) return 0; /* nothing of the arena is its */
    /* `ends` has the position behind it or behind what it was; either is at most an arena past its start. */
    uint64_t *end = &sender->ends[number & vi->mask];
    uint64_t distance = (*end - sender->open_at) % vi->arena;
    sender->head = *end = *end - (distance ? distance : vi->arena) + fs_rounded(length);
    return 0;
}

/* In an inherited turn. 0, or FS_VIOLATION. */
static inline int fs_mend_sender(struct fs_vi *vi, struct fs_sender *sender) {
    if (fs_in_flight(sender)) {
        uint32_t number = fs_own32(&sender->posted) - 1;
        /* SYNC: payload visible - as above. */
        if (FS_COMMIT_SEQ(fs_load_acquire(&fs_descriptor_at(vi, vi->tx, number)->commit)) != fs_own32(&sender->posted)) {
            fs_store_relaxed(&sender->posted, number);
            sender->is_open = 0;
        } else if (sender->is_open && fs_mend_open(vi, sender) < 0) {
            return FS_VIOLATION;
        }
    }
    if (!fs_in_flight(sender)) {
        sender->head = sender->tail = sender->limited_from = 0;
        sender->is_open = 0;
    }
    fs_mend_end(vi, sender);
    return 0;
}

/* In an inherited turn. */
static inline void fs_mend_receiver(struct fs_vi *vi, struct fs_receiver *receiver) {
    if (receiver->begun != fs_load_relaxed(&receiver->consumed)) fs_store_relaxed(&receiver->taken, 0);
}

#endif
