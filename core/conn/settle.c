/* The end of this side's fallback: a held peer may go on.
 *
 * Responsible for: the peer learns that this side's fallback is settled. Never: takes a lock, or waits with one. */
#include "conn/settle.h"

#include "conn/state.h"
#include "conn/wake.h"

void fs_settle(struct fs_connection *c) {
    if (fs_load_sc(&c->ring.rx->ready) != FS_LEFT) return;
    fs_settle_go_on(c);
    fs_wake_peer_all(c);
}

void fs_recv_fall_back(struct fs_connection *c, struct fs_receiver *receiver) {
    fs_change_receiving(c, receiver, FS_EV_RECEIVE_BACK);
    fs_watch_ends_only(&c->watch); /* threads wait for bytes on the descriptor itself */
    fs_settle(c);
}
