/* The sending side of a connection: the switch to the ring, posting, and what the kernel answers for a peer that is
 * gone.
 *
 * Responsible for: where the bytes of a send go, and what it gets. Never: blocks, or decides whether the peer is dead
 * (lifeline.c) or has left (leavers_peer.c). */
#include "connection/send.h"

#include "connection/hear.h"
#include "connection/leavers_peer.h"
#include "connection/lifeline.h"
#include "connection/receive.h"
#include "connection/ringing.h"
#include "connection/state.h"
#include "connection/turns.h"
#include "transport/options.h"
#include "transport/tcp.h"

int fs_may_have_asked(struct fs_connection *c) {
    if (!fs_is_attached(c)) return 0;
    if (fs_load_sc(&c->vi.tx->ready) == FS_LEFT) return 1;
    return !(fs_moved(c) & FS_SENDING_BACK) && fs_peer_doorbell(&c->vi) & FS_EXPOSED &&
           fs_own32(&fs_own(c)->sender.posted) != fs_load_relaxed(&c->vi.tx->seen);
}

int fs_answer_ask(struct fs_connection *c, int patience) {
    struct fs_sender *sender = fs_take_turn_to_send(c, patience);
    if (!sender) {
        fs_wake_own(c); /* (an event set needs no turn for that) */
        return 0;
    }
    fs_answer_leaver(c, sender);
    if (fs_moved(c) & FS_SENDING_BACK && !fs_waits_for_leaver(c)) fs_tell_pollers(c, sender);
    /* (Without a region any more the descriptor leads to a bridge, and a byte would be the program's.) */
    if (fs_is_attached(c) && !(fs_moved(c) & FS_SENDING_BACK) && fs_own32(&sender->posted) != fs_load_relaxed(&c->vi.tx->seen))
        fs_ring(c, sender, fs_peer_doorbell(&c->vi) & FS_EXPOSED);
    fs_end_turn_to_send(c, sender);
    fs_wake_own(c);
    return 1;
}

/* Posts one descriptor's worth, and tells a receiver that sleeps or whose descriptor may be polled. As fs_post. */
static int64_t post_and_ring(struct fs_connection *c, struct fs_sender *sender, const char *data, size_t length, int combine) {
    int counted = 0, lacks = 0;
    uint32_t doorbell = 0;
    int ringing = fs_begin_ringing(&c->vi, sender);
    int64_t part = fs_post(&c->vi, sender, data, length, FS_DATA, combine, ringing ? &counted : NULL);
    if (part > 0) {
        doorbell = fs_peer_doorbell(&c->vi);
        /* (A peer whose death would be hidden: see fs_leave_byte.) */
        lacks = (doorbell & FS_EXPOSED || fs_hides_death(c)) && fs_all_heard(&c->vi, sender);
    }
    if (ringing && !lacks) fs_end_ringing(&c->vi, sender);
    if (counted) fs_send_doorbell_byte(c, sender);
    if (doorbell) doorbell &= ~(uint32_t)FS_EXPOSED;
    if (lacks) doorbell |= FS_EXPOSED;
    if (doorbell) fs_ring(c, sender, doorbell);
    if (ringing && lacks) fs_end_ringing(&c->vi, sender);
    return part;
}

int64_t fs_try_send(struct fs_connection *c, const char *data, size_t length, int flags) {
    int64_t done = 0, part;
    struct fs_sender *sender = fs_take_turn_to_send(c, FS_PATIENCE);
    if (!sender) return -EAGAIN; /* a stopped process has the turn: the caller looks for signals, and tries again */
    if (fs_load_relaxed(&c->is.pending_error)) { /* of a call that had done a part */
        part = fs_take_error(c);
        fs_end_turn_to_send(c, sender);
        return part;
    }
    if (!fs_is_attached(c)) { /* under the lock: another thread may have moved the connection meanwhile */
        part = fs_kernel_send(c, data, length, flags);
        fs_end_turn_to_send(c, sender);
        return part;
    }
    /* SYNC: consent - pairs with fs_say_ready.
     * SYNC: left - pairs with fs_say_left. */
    uint32_t ready = fs_load_sc(&c->vi.tx->ready);
    if (ready == FS_LEFT) fs_answer_leaver(c, sender);
    if ((fs_moved(c) & (FS_SENDING_BACK | FS_OUT)) == FS_SENDING_BACK) {
        if (!fs_goes_on_in_kernel(c, sender)) {
            fs_end_turn_to_send(c, sender);
            return length ? -EAGAIN : 0;
        }
    } else if (ready == FS_READY && length && !(fs_moved(c) & (FS_SENDING_MOVED | FS_SENDING_BACK))) {
        fs_switch_sending(c, sender);
    }
    if (fs_hides_death(c) && fs_events_now(fs_fd(c), 0))
        /* (A half-closed peer has died: its FIN was no news, but fs_leave_byte made the kernel find out.) */
        fs_peer_lost(c);
    uint32_t doorbell = fs_load_relaxed(&c->vi.tx->doorbell);
    if ((doorbell & (FS_SHUT | FS_GONE)) == FS_SHUT && fs_sends_on_ring(c) && !fs_is_lost(c) && !sender->fin_sent) {
        if (!fs_has_credit(&c->vi, sender)) {
            fs_end_turn_to_send(c, sender);
            return length ? -EAGAIN : 0;
        }
        fs_note_lost(c); /* there is room, and what is sent now draws a reset */
    }
    if (!fs_sends_on_ring(c) || fs_is_lost(c) || sender->fin_sent || fs_is_broken(c) || fs_moved(c) & FS_SENDING_BACK ||
        doorbell & FS_GONE) {
        /* Not moved yet, moved back, or nobody is left to read the ring: the kernel gives TCP's answer. */
        if (sender->fin_sent) fs_peer_lost(c); /* (nobody may have looked since) */
        part = fs_refusal(c, sender);
        if (part == 0) {
            part = fs_send_in_kernel(c, sender, data, length, flags);
            int of_our_end = part == -EPIPE && sender->fin_sent; /* tells of no reset */
            if (fs_is_gone(c) && !of_our_end) part = fs_tell_of_kernel(c, part);
        }
        return fs_end_turn_to_send(c, sender) ? part : FS_VIOLATED;
    }
    if (!(flags & FS_POLLS_FIRST)) sender->spends = FS_SPENDS;
    else if (sender->spends == FS_SPENDS) sender->spends = FS_SPENDS_LATER;
    int combine = c->vi.combine_limit && !fs_is_nodelay(c) && length <= c->vi.combine_limit;
    while (done < (int64_t)length) {
        part = post_and_ring(c, sender, data + done, length - (size_t)done, combine);
        if (part > 0) done += part;
        if (part < 0) done = FS_VIOLATED;
        if (part <= 0) break;
    }
    fs_note_processor(c);
    if (fs_in_flight(sender)) fs_watch_lifeline(c, sender);
    if (c->vi.violation) done = FS_VIOLATED;
    if (!fs_end_turn_to_send(c, sender)) done = FS_VIOLATED;
    return done || !length ? done : -EAGAIN;
}

void fs_note_processor(struct fs_connection *c) {
    uint32_t here = (uint32_t)sched_getcpu() + 1;
    if (fs_load_relaxed(&c->vi.tx->processor) != here) fs_store_relaxed(&c->vi.tx->processor, here);
}

int64_t fs_kernel_send(struct fs_connection *c, const char *data, size_t length, int flags) {
    int64_t part = fs_system.send(fs_fd(c), data, length, (flags & ~FS_POLLS_FIRST) | MSG_DONTWAIT);
    return part >= 0 ? part : -errno;
}

int64_t fs_send_in_kernel(struct fs_connection *c, struct fs_sender *sender, const char *data, size_t length, int flags) {
    return fs_send_owed(c, sender) ? fs_kernel_send(c, data, length, flags) : -EAGAIN;
}

/* The last byte of an urgent send. As post_and_ring. A doorbell byte follows the urgent one, which alone does not make
 * the descriptor readable. */
static int64_t post_urgent(struct fs_connection *c, struct fs_sender *sender, const char *byte) {
    int ringing = fs_begin_ringing(&c->vi, sender);
    unsigned char before = sender->urgent_byte; /* may be owed */
    sender->urgent_byte = (unsigned char)byte[0]; /* before it is counted: see mend.c */
    if (!fs_count_urgent(&c->vi, sender)) {
        sender->urgent_byte = before;
        if (ringing) fs_end_ringing(&c->vi, sender);
        return c->vi.violation ? -1 : 0;
    }
    int counted = ringing && fs_count_ring(&c->vi, sender);
    int64_t part = fs_post(&c->vi, sender, byte, 1, FS_OOB, 0, NULL); /* (there is credit) */
    uint32_t doorbell = fs_peer_doorbell(&c->vi);
    if (ringing) fs_end_ringing(&c->vi, sender);
    fs_owe_bytes(c, sender, sender->bytes_unsent + 1 + (uint32_t)counted);
    if (counted) {
        doorbell &= ~(uint32_t)FS_EXPOSED;
        fs_count(&c->vi.count.doorbells_rung, 1);
        fs_count(&c->vi.count.system_calls, 1);
    }
    if (doorbell) fs_ring(c, sender, doorbell);
    return part;
}

int64_t fs_try_send_urgent(struct fs_connection *c, const char *data, size_t length, int flags) {
    int64_t part;
    if (length == 0) return -EAGAIN;
    struct fs_sender *sender = fs_take_turn_to_send(c, FS_PATIENCE);
    if (!sender) return -EAGAIN;
    if (!fs_is_attached(c)) { /* a bridge may have come meanwhile: see fs_try_send */
        part = fs_kernel_send(c, data, length, flags | MSG_OOB);
        fs_end_turn_to_send(c, sender);
        return part;
    }
    fs_answer_leaver(c, sender);
    if ((fs_moved(c) & (FS_SENDING_BACK | FS_OUT)) == FS_SENDING_BACK && !fs_goes_on_in_kernel(c, sender)) {
        fs_end_turn_to_send(c, sender);
        return -EAGAIN;
    }
    if (!(fs_moved(c) & (FS_SENDING_MOVED | FS_SENDING_BACK)) && fs_load_sc(&c->vi.tx->ready) == FS_READY)
        fs_switch_sending(c, sender);
    if (!fs_sends_on_ring(c) || sender->fin_sent || fs_is_gone(c)) {
        part = fs_send_in_kernel(c, sender, data, length, flags | MSG_OOB);
        fs_end_turn_to_send(c, sender);
        return part;
    }
    part = length > 1 ? post_and_ring(c, sender, data, length - 1, 0) : post_urgent(c, sender, data);
    if (part == 0) {
        /* There is no credit, and the peer may read on only when it is told of the urgent byte: that follows in the kernel. */
        fs_go_back_sending(c, sender, 0);
        part = fs_send_in_kernel(c, sender, data, length, flags | MSG_OOB);
        if (!fs_end_turn_to_send(c, sender)) part = FS_VIOLATED;
        return part;
    }
    if (!fs_end_turn_to_send(c, sender)) part = -1;
    return part > 0 ? part : part == 0 ? -EAGAIN : FS_VIOLATED;
}

void fs_switch_sending(struct fs_connection *c, struct fs_sender *sender) {
    uint64_t sent, received;
    char state;
    int acknowledged;
    if (!fs_tcp_stand(fs_fd(c), &state, &sent, &received, &acknowledged)) return;
    /* Doorbell bytes will need room behind what the peer has not read yet. (There is room behind what it has acknowledged.) */
    if (!acknowledged && !(fs_events_now(fs_fd(c), POLLOUT) & POLLOUT)) return;
    if (state != FS_TCP_ESTABLISHED && state != FS_TCP_CLOSE_WAIT)
        return; /* our stream has ended, or the connection: POLLOUT means an error, and a FIN counts as a byte sent */
    fs_set_option(fs_fd(c), IPPROTO_TCP, TCP_NODELAY, 1); /* a doorbell byte waits for no ACK */
    /* SYNC: switch - pairs with fs_take_kernel. */
    fs_store_sc(&c->vi.tx->switch_at, sent + 1);
    fs_change_sending(c, sender, FS_EV_SEND_SWITCHED);
}

/* SO_RCVBUF or SO_SNDBUF was set in the middle. In both turns. */
static void limit_on_ring(struct fs_connection *c, struct fs_both both) {
    fs_limit_sends(&c->vi, both.sender, c->send_limit);
    fs_store_sc(&c->vi.rx->limit, c->receive_limit);
    if (c->receive_limit) c->vi.ack_threshold = 1;
    fs_answer_credit_wait(c, both.receiver); /* what is read counts no more, as in TCP */
}

int fs_note_limits(struct fs_connection *c, uint32_t receive, uint32_t send) {
    struct fs_both both;
    if (!fs_take_both(c, FS_PATIENCE, &both)) return -EINTR;
    c->receive_limit = receive;
    c->send_limit = send;
    if (send && fs_load_relaxed(&fs_own(c)->send_buffer_before)) fs_store_relaxed(&fs_own(c)->send_buffer_before, send);
    if (fs_is_attached(c)) limit_on_ring(c, both);
    fs_end_both(c, both);
    return 0;
}
