/* The end of a direction's stream: the only functions that write it.
 *
 *     sender     `fin` of its half    0 -> FIN, RESET or BACK, with the descriptor it stands before: what the peer is told
 *                `fin_sent`           0 -> 1: the same, as its own side knows it
 *     receiver   `fin_taken`          0 -> 1: the program was told of the end
 *                                     0 -> 2 -> 1: a reset, of which the kernel tells first
 *
 * None goes back before the region's next connection. Responsible for nothing else: who posts, and who tells the program, is in
 * send_ring.h and in connection/. */
#ifndef FASTSOCK_STREAM_END_H
#define FASTSOCK_STREAM_END_H

#include "ring/ring.h"

/* `kind` (FS_FIN, FS_RESET, FS_BACK) stands behind all that was posted. */
static inline void fs_set_stream_end(struct fs_ring_pair *ring, struct fs_sender *sender, uint64_t kind) {
    /* SYNC: end of stream - pairs with fs_stream_end. Sequentially consistent for the doorbell, as in fs_post. */
    fs_store_sc(&ring->tx->fin, kind | fs_load_own32(&sender->posted));
    sender->fin_sent = 1;
}

/* In an inherited turn: the one that had it may have been killed between the two stores. */
static inline void fs_recover_stream_end(struct fs_ring_pair *ring, struct fs_sender *sender) {
    if (fs_load_sc(&ring->tx->fin)) sender->fin_sent = 1;
}

static inline void fs_set_fin_taken(struct fs_receiver *receiver, uint32_t how) {
    fs_store_relaxed(&receiver->fin_taken, how);
}

#endif
