/* The end of this side's fallback: a held peer may go on.
 *
 * Responsible for: the peer learns that this side's fallback is settled. Never: takes a lock, or waits with one. */
#include "conn/settle.h"

#include "conn/doorbell_rx.h"
#include "conn/doorbell_tx.h"
#include "conn/event_slot.h"
#include "conn/state.h"

int fs_wake_held_peer(struct fs_connection *c) {
    fs_wake_peer_all(c);
    return !(fs_peer_doorbell(&c->ring) & FS_EXPOSED) || fs_send_request(c, -1) != -EAGAIN;
}

void fs_repeat_settle_request(struct fs_connection *c) {
    int64_t deadline = fs_now() + FS_ANSWER_TIME;
    while (!fs_wake_held_peer(c) && fs_now() < deadline) /* the thread's queue has no room for more requests */
        fs_short_sleep_unlocked();
}

int fs_settle(struct fs_connection *c) {
    if (fs_load_sc(&c->ring.rx->ready) == FS_LEFT) {
        fs_settle_go_on(c);
        return fs_wake_held_peer(c);
    }
    return 1;
}

void fs_settle_locked(struct fs_connection *c, struct fs_receiver *receiver) {
    if (!fs_settle(c)) c->late |= FS_LATE_REQUEST;
}

void fs_recv_fall_back(struct fs_connection *c, struct fs_receiver *receiver) {
    fs_change_receiving(c, receiver, FS_EV_RECEIVE_BACK);
    fs_restore_recv_buffer(c);
    fs_drain_all_doorbell_bytes(c, receiver); /* outstanding bytes are taken before the next receive */
    fs_settle_locked(c, receiver);
}
