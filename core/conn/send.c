/* Sending: the switch to the ring, posting, and the kernel's answer for a peer that is gone.
 *
 * A direction switches here, in fs_switch_sending: at the first send that finds the peer's consent. The receiver follows in receive.c.
 *
 * Responsible for: the path of the bytes of a send, and its result. Never: blocks, or decides if the peer is dead (peer_status.c) or has
 * fallen back (fallback_peer.c). */
#include "conn/send.h"

#include "conn/doorbell_rx.h"
#include "conn/fallback_peer.h"
#include "conn/peer_status.h"
#include "conn/doorbell_tx.h"
#include "conn/state.h"
#include "conn/side_lock.h"
#include "transport/options.h"
#include "transport/tcp.h"

int fs_peer_may_have_asked(struct fs_connection *c) {
    if (!fs_is_attached(c)) return 0;
    if (fs_load_sc(&c->ring.tx->ready) == FS_LEFT) return 1;
    return !(fs_moved(c) & FS_SENDING_BACK) && fs_peer_doorbell(&c->ring) & FS_EXPOSED &&
           fs_load_own32(&fs_own(c)->sender.posted) != fs_load_relaxed(&c->ring.tx->seen);
}

int fs_handle_request(struct fs_connection *c, int patience) {
    struct fs_sender *sender = fs_lock_send_within(c, patience);
    if (!sender) {
        fs_wake_local(c); /* an event set needs no lock for that */
        return 0;
    }
    fs_answer_fallback(c, sender);
    if (fs_moved(c) & FS_SENDING_BACK && !fs_waits_for_fallback(c)) fs_signal_writable(c, sender);
    /* Without a region the descriptor leads to a bridge, and a doorbell byte would be taken for data. */
    if (fs_is_attached(c) && !(fs_moved(c) & FS_SENDING_BACK) && fs_load_own32(&sender->posted) != fs_load_relaxed(&c->ring.tx->seen))
        fs_notify_receiver(c, sender, fs_peer_doorbell(&c->ring) & FS_EXPOSED);
    fs_unlock_send(c, sender);
    fs_wake_local(c);
    return 1;
}

/* Posts one descriptor's worth, and notifies a receiver that sleeps or whose descriptor may be polled. Returns as fs_post. */
static int64_t post_and_notify(struct fs_connection *c, struct fs_sender *sender, const char *data, size_t length, int combine) {
    int counted = 0, lacks = 0;
    uint32_t doorbell = 0;
    int ringing = fs_begin_notify(&c->ring, sender);
    int64_t part = fs_post(&c->ring, sender, data, length, FS_DATA, combine, ringing ? &counted : NULL);
    if (part > 0) {
        doorbell = fs_peer_doorbell(&c->ring);
        /* A peer whose death would be hidden: see fs_leave_probe_byte. */
        lacks = (doorbell & FS_EXPOSED || fs_eof_inconclusive(c)) && fs_all_drained(&c->ring, sender);
    }
    if (ringing && !lacks) fs_end_notify(&c->ring, sender);
    if (counted) fs_send_doorbell_byte(c, sender);
    if (doorbell) doorbell &= ~(uint32_t)FS_EXPOSED;
    if (lacks) doorbell |= FS_EXPOSED;
    if (doorbell) fs_notify_receiver(c, sender, doorbell);
    if (ringing && lacks) fs_end_notify(&c->ring, sender);
    return part;
}

int64_t fs_try_send(struct fs_connection *c, const char *data, size_t length, int flags) {
    int64_t done = 0, part;
    struct fs_sender *sender = fs_lock_send_within(c, FS_PATIENCE);
    if (!sender) return -EAGAIN; /* a stopped process has the lock: the caller handles signals, and tries again */
    if (fs_load_relaxed(&c->is.pending_error)) { /* of a call that had done a part */
        part = fs_take_pending_error(c);
        fs_unlock_send(c, sender);
        return part;
    }
    if (!fs_is_attached(c)) { /* with the lock: another thread may have moved the connection meanwhile */
        part = fs_send_kernel(c, data, length, flags);
        fs_unlock_send(c, sender);
        return part;
    }
    /* SYNC: consent - pairs with fs_give_consent.
     * SYNC: left - pairs with fs_revoke_consent. */
    uint32_t ready = fs_load_sc(&c->ring.tx->ready);
    if (ready == FS_LEFT) fs_answer_fallback(c, sender);
    if ((fs_moved(c) & (FS_SENDING_BACK | FS_OUT)) == FS_SENDING_BACK) {
        if (!fs_send_resumes_in_kernel(c, sender)) {
            fs_unlock_send(c, sender);
            return length ? -EAGAIN : 0;
        }
    } else if (ready == FS_READY && length && !(fs_moved(c) & (FS_SENDING_MOVED | FS_SENDING_BACK))) {
        fs_switch_sending(c, sender);
    }
    if (fs_eof_inconclusive(c) && fs_poll_events_now(fs_fd(c), 0))
        /* A half-closed peer has died: its FIN showed nothing new, but fs_leave_probe_byte made the kernel find out. */
        fs_check_peer_lost(c);
    uint32_t doorbell = fs_load_relaxed(&c->ring.tx->doorbell);
    if ((doorbell & (FS_SHUT | FS_GONE)) == FS_SHUT && fs_sends_on_ring(c) && !fs_peer_is_lost(c) && !sender->fin_sent) {
        if (!fs_has_credit(&c->ring, sender)) {
            fs_unlock_send(c, sender);
            return length ? -EAGAIN : 0;
        }
        fs_note_lost(c); /* there is room, and bytes sent now draw a reset */
    }
    if (!fs_sends_on_ring(c) || fs_peer_is_lost(c) || sender->fin_sent || fs_is_broken(c) || fs_moved(c) & FS_SENDING_BACK ||
        doorbell & FS_GONE) {
        /* Not moved yet, moved back, or nobody is left to read the ring: the kernel gives TCP's answer. */
        if (sender->fin_sent) fs_check_peer_lost(c); /* nobody may have checked since */
        part = fs_send_error_after_close(c, sender);
        if (part == 0) {
            part = fs_send_kernel_locked(c, sender, data, length, flags);
            int of_our_end = part == -EPIPE && sender->fin_sent; /* not a reset by the peer */
            if (fs_peer_is_gone(c) && !of_our_end) part = fs_kernel_result_after_end(c, part);
        }
        return fs_unlock_send(c, sender) ? part : FS_VIOLATED;
    }
    if (!(flags & FS_POLLS_FIRST)) sender->overflow_use = FS_OVERFLOW_USE;
    else if (sender->overflow_use == FS_OVERFLOW_USE) sender->overflow_use = FS_OVERFLOW_LATER;
    int combine = c->ring.combine_limit && !fs_is_nodelay(c) && length <= c->ring.combine_limit;
    while (done < (int64_t)length) {
        part = post_and_notify(c, sender, data + done, length - (size_t)done, combine);
        if (part > 0) done += part;
        if (part < 0) done = FS_VIOLATED;
        if (part <= 0) break;
    }
    fs_publish_cpu(c);
    if (fs_in_flight(sender)) fs_watch_liveness(c, sender);
    if (c->ring.violation) done = FS_VIOLATED;
    if (!fs_unlock_send(c, sender)) done = FS_VIOLATED;
    return done || !length ? done : -EAGAIN;
}

void fs_publish_cpu(struct fs_connection *c) {
    uint32_t processor = (uint32_t)sched_getcpu() + 1;
    if (fs_load_relaxed(&c->ring.tx->processor) != processor) fs_store_relaxed(&c->ring.tx->processor, processor);
}

/* Posts the last byte of an urgent send, as post_and_notify. A doorbell byte follows the urgent one, which alone does not make the
 * descriptor readable. */
static int64_t post_urgent(struct fs_connection *c, struct fs_sender *sender, const char *byte) {
    int ringing = fs_begin_notify(&c->ring, sender);
    unsigned char before = sender->urgent_byte; /* may be deferred */
    sender->urgent_byte = (unsigned char)byte[0]; /* before it is counted: see recovery.c */
    if (!fs_count_urgent(&c->ring, sender)) {
        sender->urgent_byte = before;
        if (ringing) fs_end_notify(&c->ring, sender);
        return c->ring.violation ? -1 : 0;
    }
    int counted = ringing && fs_count_ring(&c->ring, sender);
    int64_t part = fs_post(&c->ring, sender, byte, 1, FS_OOB, 0, NULL); /* there is credit */
    uint32_t doorbell = fs_peer_doorbell(&c->ring);
    if (ringing) fs_end_notify(&c->ring, sender);
    fs_defer_doorbell_bytes(c, sender, sender->bytes_unsent + 1 + (uint32_t)counted);
    if (counted) {
        doorbell &= ~(uint32_t)FS_EXPOSED;
        fs_count(&c->ring.count.doorbells_rung, 1);
        fs_count(&c->ring.count.system_calls, 1);
    }
    if (doorbell) fs_notify_receiver(c, sender, doorbell);
    return part;
}

int64_t fs_try_send_urgent(struct fs_connection *c, const char *data, size_t length, int flags) {
    int64_t part;
    if (length == 0) return -EAGAIN;
    struct fs_sender *sender = fs_lock_send_within(c, FS_PATIENCE);
    if (!sender) return -EAGAIN;
    if (!fs_is_attached(c)) { /* a bridge may have come meanwhile: see fs_try_send */
        part = fs_send_kernel(c, data, length, flags | MSG_OOB);
        fs_unlock_send(c, sender);
        return part;
    }
    fs_answer_fallback(c, sender);
    if ((fs_moved(c) & (FS_SENDING_BACK | FS_OUT)) == FS_SENDING_BACK && !fs_send_resumes_in_kernel(c, sender)) {
        fs_unlock_send(c, sender);
        return -EAGAIN;
    }
    if (!(fs_moved(c) & (FS_SENDING_MOVED | FS_SENDING_BACK)) && fs_load_sc(&c->ring.tx->ready) == FS_READY)
        fs_switch_sending(c, sender);
    if (!fs_sends_on_ring(c) || sender->fin_sent || fs_peer_is_gone(c)) {
        part = fs_send_kernel_locked(c, sender, data, length, flags | MSG_OOB);
        fs_unlock_send(c, sender);
        return part;
    }
    part = length > 1 ? post_and_notify(c, sender, data, length - 1, 0) : post_urgent(c, sender, data);
    if (part == 0) {
        /* There is no credit, and the peer may read on only when it learns of the urgent byte: that follows in the kernel. */
        fs_send_fall_back(c, sender, 0);
        part = fs_send_kernel_locked(c, sender, data, length, flags | MSG_OOB);
        if (!fs_unlock_send(c, sender)) part = FS_VIOLATED;
        return part;
    }
    if (!fs_unlock_send(c, sender)) part = -1;
    return part > 0 ? part : part == 0 ? -EAGAIN : FS_VIOLATED;
}

void fs_switch_sending(struct fs_connection *c, struct fs_sender *sender) {
    uint64_t sent, received;
    char state;
    int acknowledged;
    if (!fs_tcp_progress(fs_fd(c), &state, &sent, &received, &acknowledged)) return;
    /* Doorbell bytes will need room behind bytes that the peer has not read yet. (There is room behind bytes that it has acknowledged.) */
    if (!acknowledged && !(fs_poll_events_now(fs_fd(c), POLLOUT) & POLLOUT)) return;
    if (state != FS_TCP_ESTABLISHED && state != FS_TCP_CLOSE_WAIT)
        return; /* our stream has ended, or the connection: POLLOUT means an error, and a FIN counts as a byte sent */
    fs_set_option(fs_fd(c), IPPROTO_TCP, TCP_NODELAY, 1); /* a doorbell byte waits for no ACK */
    /* SYNC: switch - pairs with fs_recv_kernel. */
    fs_store_sc(&c->ring.tx->switch_at, sent + 1);
    fs_change_sending(c, sender, FS_EV_SEND_SWITCHED);
}

int fs_plug_if_full(struct fs_connection *c) {
    int full = 0;
    struct fs_sender *sender = fs_lock_send_within(c, FS_PATIENCE);
    if (!sender) return 1;
    if (fs_sends_on_ring(c) && !fs_peer_is_lost(c) && !fs_ring_writable(&c->ring, sender)) {
        full = 1;
        if (fs_is_exposed(c)) full = fs_plug(c, sender);
    }
    fs_unlock_send(c, sender);
    return full;
}

int fs_nothing_deferred(struct fs_connection *c) {
    struct fs_sender *sender = fs_lock_send_within(c, FS_PATIENCE);
    if (!sender) return 0;
    int out = fs_send_deferred(c, sender);
    fs_unlock_send(c, sender);
    return out;
}

/* SO_RCVBUF or SO_SNDBUF was set on an attached connection. Both locks are held. */
static void apply_limits(struct fs_connection *c, struct fs_side_locks locks) {
    fs_set_send_limit(&c->ring, locks.sender, c->send_limit);
    fs_store_sc(&c->ring.rx->limit, c->receive_limit);
    if (c->receive_limit) c->ring.ack_threshold = 1;
    fs_answer_credit_wait(c, locks.receiver); /* bytes read count no more, as in TCP */
}

int fs_set_buffer_limits(struct fs_connection *c, uint32_t receive, uint32_t send) {
    struct fs_side_locks locks;
    if (!fs_lock_side_within(c, FS_PATIENCE, &locks)) return -EINTR;
    c->receive_limit = receive;
    c->send_limit = send;
    if (send && fs_load_relaxed(&fs_own(c)->send_buffer_before)) fs_store_relaxed(&fs_own(c)->send_buffer_before, send);
    if (fs_is_attached(c)) apply_limits(c, locks);
    fs_unlock_side(c, locks);
    return 0;
}
