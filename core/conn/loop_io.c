/* Support for a loop-driven connection: the loop reads the kernel's stream, and waits.
 *
 * Responsible for: which of the bytes that the loop has read are the program's; when a direction moves under a loop; notifying the peer
 * before the loop sleeps. Never: reads or writes the descriptor, or waits for anything but a lock. */
#include "conn/loop_io.h"

#include "conn/doorbell_rx.h"
#include "conn/peer_status.h"
#include "conn/send.h"
#include "conn/side_lock.h"

void fs_drive_by_loop(struct fs_connection *c) {
    fs_note_loop_driven(c); /* the peer learns this below, with the receive lock held */
    fs_store_relaxed(&c->nodelay, 0); /* asyncio sets TCP_NODELAY everywhere; combining on the ring delays nothing */
    if (!fs_is_attached(c)) return;
    struct fs_receiver *receiver = fs_lock_recv(c);
    fs_and_sc(&c->ring.rx->doorbell, ~(uint32_t)FS_EXPOSED);
    fs_drain_doorbell_bytes(c, receiver);
    fs_unlock_recv(c, receiver);
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

/* Accounts for the doorbell bytes among `count` bytes that the loop's transport took from the kernel behind the switch: all of them, or,
 * from a peer that goes back, as many as it sent. Returns their number. */
static uint64_t account_doorbell_bytes(struct fs_connection *c, struct fs_receiver *receiver, uint64_t count) {
    uint32_t drained = fs_load_relaxed(&c->ring.rx->heard);
    uint64_t outstanding = receiver->doorbell_debt, whole = count, position;
    int64_t mark;
    /* A doorbell byte that is here was counted in `rung` before it was sent, except for a plug's; a plug's are counted before BACK is
     * posted.
     * SYNC: end of stream - pairs with fs_post_fin. */
    int back = (fs_load_sc(&c->ring.rx->fin) & ~(uint64_t)0xffffffff) == FS_BACK;
    if (back) {
        uint64_t counted = outstanding + (uint32_t)(fs_load_acquire(&c->ring.rx->rung) - drained);
        count = FS_MIN(count, counted);
    }
    if (fs_load_relaxed(&c->ring.rx->urgent) && fs_kernel_position(c, &position, &mark)) {
        uint32_t taken = (uint32_t)(position + 1 - fs_load_sc(&c->ring.rx->switch_at));
        uint32_t excess = back ? taken - fs_load_acquire(&c->ring.rx->rung) : 0;
        if ((int32_t)excess <= 0) excess = 0;
        receiver->doorbell_debt = 0;
        fs_store_sc(&c->ring.rx->heard, taken - excess);
        return whole - FS_MIN((uint64_t)excess, whole);
    }
    outstanding = FS_MIN(count, outstanding);
    receiver->doorbell_debt -= (uint32_t)outstanding;
    fs_store_sc(&c->ring.rx->heard, drained + (uint32_t)(count - outstanding));
    return count;
}

int64_t fs_account_read(struct fs_connection *c, uint64_t count, uint64_t *behind) {
    uint64_t position, data = 0;
    int64_t mark;
    *behind = 0;
    struct fs_receiver *receiver = fs_lock_recv(c);
    /* The bytes were read before this load. Doorbell bytes only ever follow the switch, so without a switch all bytes are the program's.
     * (Also after a fallback that began before the peer had attached: no BACK follows there.)
     * SYNC: switch - pairs with fs_switch_sending. */
    uint64_t switch_at = fs_load_sc(&c->ring.rx->switch_at);
    if (!switch_at || !(fs_moved(c) & (FS_RECEIVING_MOVED | FS_RECEIVING_BACK))) {
        uint64_t left = switch_at - 1 - fs_load_relaxed(&receiver->kernel_taken);
        if (switch_at && left > (uint64_t)1 << 62) {
            c->ring.violation = "switch offset in the past";
            fs_unlock_recv(c, receiver);
            return FS_VIOLATED;
        }
        data = switch_at ? FS_MIN(left, count) : count;
        fs_count(&receiver->kernel_taken, data);
        if (switch_at && fs_kernel_position(c, &position, &mark)) {
            /* The loop's transport does not count urgent bytes that it skipped; they come in front of the bytes that it read. */
            uint64_t beyond = position > switch_at - 1 ? position - (switch_at - 1) : 0;
            data = count - FS_MIN(count, beyond);
            fs_store_relaxed(&receiver->kernel_taken, FS_MIN(position, switch_at - 1));
        }
    }
    if (data < count) *behind = count - data - account_doorbell_bytes(c, receiver, count - data);
    fs_unlock_recv(c, receiver);
    return (int64_t)data;
}

/* ---- writing ---------------------------------------------------------------------------------------------------- */

int fs_switch_if_ready(struct fs_connection *c) {
    struct fs_sender *sender = fs_lock_send(c);
    if (fs_may_switch(c) && !sender->fin_sent) fs_switch_sending(c, sender);
    fs_unlock_send(c, sender);
    return fs_sends_on_ring(c);
}

int fs_probe_loop_peer(struct fs_connection *c) {
    struct fs_sender *sender = fs_lock_send(c);
    int lost = fs_probe_peer(c, sender);
    fs_unlock_send(c, sender);
    return lost;
}

/* ---- sleeping --------------------------------------------------------------------------------------------------- */

int fs_arm_for_loop(struct fs_connection *c, int receives, int sends) {
    int ready = 0;
    struct fs_receiver *receiver = fs_lock_recv_within(c, FS_PATIENCE);
    if (!receiver) return 1;
    fs_answer_credit_wait(c, receiver); /* the acknowledgements delayed so far */
    if (receives && fs_arm_receiver(&c->ring, FS_SET_ASLEEP)) ready = fs_receives_on_ring(c) || fs_switch_reached(c);
    fs_unlock_recv(c, receiver);
    if (sends) {
        struct fs_sender *sender = fs_lock_send_within(c, FS_PATIENCE);
        if (!sender) return 1;
        /* Back in the kernel nobody wakes us when the deferred bytes are sent, which takes a moment at most. */
        ready = fs_arm_sender(&c->ring, sender, FS_SET_WAITS) || fs_peer_is_gone(c) || ready ||
                (!fs_sends_on_ring(c) && !fs_waits_for_fallback(c));
        fs_unlock_send(c, sender);
    }
    return ready;
}
