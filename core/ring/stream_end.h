/* The end of a direction's stream: the only functions that write it.
 *
 *     sender     `fin`          0 -> FIN, RESET or BACK, with the number of the descriptor after it, for the peer
 *                `fin_sent`     0 -> 1: the same, for the own side
 *     receiver   `fin_taken`    END_UNREAD -> END_REPORTED, to the program
 *                               END_UNREAD -> RESET_FOUND -> END_REPORTED: the kernel reports it first
 *
 * None goes back before the region's next connection. */
#pragma once

#include "ring/ring.h"

/* Ends the stream with `kind` (FS_FIN, FS_RESET, FS_BACK) after all that was posted. */
static inline void fs_set_stream_end(struct fs_ring_pair *ring, struct fs_sender *sender, uint64_t kind) {
    /* SYNC: end of stream - pairs with fs_stream_end. Sequentially consistent for the doorbell, as in fs_post. */
    fs_store_sc(&ring->tx->fin, kind | fs_load_own32(&sender->posted));
    sender->fin_sent = 1;
}

/* With an inherited lock: the last holder may have been killed between the two stores. */
static inline void fs_recover_stream_end(struct fs_ring_pair *ring, struct fs_sender *sender) {
    if (fs_load_sc(&ring->tx->fin)) sender->fin_sent = 1;
}

static inline void fs_set_fin_taken(struct fs_receiver *receiver, enum fs_fin_taken how) {
    fs_store_relaxed(&receiver->fin_taken, how);
}
