/* Sending: the switch to the ring, posting, and the kernel's answer for a peer that is gone.
 *
 * A direction switches here, in fs_switch_sending: at the first send that finds the peer's consent. The receiver follows in receive.c.
 *
 * Responsible for: the path of the bytes of a send, and its result. Never: blocks, or decides if the peer is dead (peer_status.c) or has
 * fallen back (fallback_peer.c). */
#include "conn/send.h"

#include "conn/fallback_peer.h"
#include "conn/peer_status.h"
#include "conn/state.h"
#include "conn/side_lock.h"
#include "conn/tap.h"

#define CHECK_INTERVAL ((int64_t)1000000) /* ns between checks of the kernel connection while the peer acknowledges nothing */

int fs_peer_may_have_asked(struct fs_connection *c) { return fs_is_attached(c) && fs_load_sc(&c->ring.tx->ready) == FS_LEFT; }

int fs_handle_request(struct fs_connection *c, int patience) {
    struct fs_sender *sender = fs_lock_send_within(c, patience);
    if (sender) {
        fs_answer_fallback(c, sender);
        fs_unlock_send(sender);
    }
    fs_wake_local(c); /* also without the lock, which an event set does not need */
    return sender != NULL;
}

/* Posts one descriptor's worth, and notifies a receiver that sleeps. Returns as fs_post. */
static inline __attribute__((always_inline)) int64_t post_and_notify(struct fs_connection *c, struct fs_sender *sender,
                                                                     struct fs_source from, size_t length, int combine) {
    int64_t part = fs_post_from(&c->ring, sender, from, length, combine);
    if (part > 0) fs_notify_receiver(c, sender, fs_peer_doorbell(&c->ring));
    return part;
}

int fs_probe_peer(struct fs_connection *c, struct fs_sender *sender) {
    if (fs_check_peer_lost(c)) return 1;
    /* (This kernel's tables are those of this network namespace: they have no socket of one elsewhere, dead or alive.) */
    enum fs_peer_state state = fs_far_of(c) ? FS_PEER_UNKNOWN : c->stream->peer_state(fs_fd(c));
    /* (With bytes unread its end is a reset, as on kernel TCP. The kernel of a peer that died has no room that we have not left it.) */
    if (state == FS_PEER_CLOSED && fs_peer_has_unread(&c->ring)) fs_draw_reset(c, sender);
    if (state == FS_PEER_CLOSED) fs_note_lost(c);
    if (state == FS_PEER_UNKNOWN) fs_send_fall_back(c, sender, 0);
    return fs_peer_is_gone(c) || !fs_sends_on_ring(c);
}

int fs_probe_now_and_then(struct fs_connection *c, struct fs_sender *sender) {
    int64_t now = fs_now();
    if (now - c->last_check < CHECK_INTERVAL) return 0;
    c->last_check = now;
    return fs_probe_peer(c, sender);
}

/* Called after a send that was not acknowledged. Checks now and then if the peer is alive. */
static void watch_liveness(struct fs_connection *c, struct fs_sender *sender) {
    c->unacknowledged_sends += 1;
    if (c->unacknowledged_sends % 4) return;
    int64_t now = fs_now();
    if (now - c->last_check < CHECK_INTERVAL) return;
    c->last_check = now;
    if (fs_eof_inconclusive(c)) fs_probe_peer(c, sender);
    else fs_check_peer_lost(c);
}

/* A half-closed peer that was reset, or has died with bytes unread: its FIN shows nothing new. (May go back to the kernel: before it is
 * asked whether bytes may go there already.) */
static void check_half_closed(struct fs_connection *c, struct fs_sender *sender) {
    if (fs_poll_events_now(fs_fd(c), 0)) {
        fs_check_peer_lost(c);
    } else if (fs_sends_on_ring(c) && fs_in_flight(sender) && !fs_peer_is_gone(c)) {
        fs_probe_now_and_then(c, sender);
    }
}

/* The kernel raises it with each EPIPE, and this one is not the kernel's. */
static void raise_sigpipe(void) {
    pid_t thread = fs_system.gettid();
    fs_system.tgkill((pid_t)fs_own_pid, thread, SIGPIPE);
}

static inline int64_t send_kernel(struct fs_connection *c, struct fs_source from, size_t length, int flags) {
    int64_t part = from.v ? fs_send_pieces_kernel(fs_fd(c), from.v, from.skip, length, flags | MSG_DONTWAIT)
                          : fs_send_kernel(c, from.data, length, flags);
    fs_count_kernel(&c->kernel_sent, part);
    return part;
}

/* Posts all that there is room for. Returns the bytes, or FS_VIOLATED. */
static inline __attribute__((always_inline)) int64_t post_all(struct fs_connection *c, struct fs_sender *sender, struct fs_source from,
                                                              size_t length, int flags) {
    int64_t done = 0, part;
    if (!(flags & FS_POLLS_FIRST)) sender->overflow_use = FS_OVERFLOW_USE;
    else if (sender->overflow_use == FS_OVERFLOW_USE) sender->overflow_use = FS_OVERFLOW_LATER;
    int combine = c->ring.combine_limit && !fs_is_nodelay(c) && length <= c->ring.combine_limit;
    while (done < (int64_t)length) {
        part = post_and_notify(c, sender, from, length - (size_t)done, combine);
        if (part > 0) done += part, from.skip += (size_t)part;
        if (part < 0) done = FS_VIOLATED;
        if (part <= 0) break;
    }
    return done;
}

/* The same for a connection that is watched. */
__attribute__((noinline)) static int64_t post_all_tapped(struct fs_connection *c, struct fs_sender *sender, struct fs_source from,
                                                          size_t length, int flags) {
    int64_t when = fs_now();
    uint64_t before = fs_load_relaxed(&c->ring.count.bytes_sent);
    int64_t done = post_all(c, sender, from, length, flags);
    fs_tap_bytes(c, FS_TAP_SENT, when, before, from, fs_load_relaxed(&c->ring.count.bytes_sent) - before);
    return done;
}

/* Returns true if nothing goes into the ring: the direction has not moved yet or has moved back, or nobody is left to read it. */
static inline int is_for_kernel(const struct fs_connection *c, const struct fs_sender *sender, uint32_t doorbell) {
    return !fs_sends_on_ring(c) || fs_peer_is_lost(c) || sender->fin_sent || fs_moved(c) & FS_SENDING_BACK || doorbell & FS_GONE;
}

/* (Twice in the program, for one buffer and for pieces: so one buffer costs no question.) */
static inline __attribute__((always_inline)) int64_t try_send(struct fs_connection *c, struct fs_source from, size_t length, int flags) {
    int64_t done = 0, part;
    struct fs_sender *sender = fs_lock_send_within(c, FS_PATIENCE);
    if (!sender) return -EAGAIN; /* a stopped process has the lock: the caller handles signals, and tries again */
    if (fs_load_relaxed(&c->is.pending_error)) { /* of a call that had done a part */
        part = fs_take_pending_error(c);
        fs_unlock_send(sender);
        return part;
    }
    if (!fs_is_attached(c)) { /* with the lock: another thread may have moved the connection meanwhile */
        if (flags & MSG_OOB) fs_change_sending(c, sender, FS_EV_SEND_BACK); /* it does not attach any more: see fs_attach */
        part = send_kernel(c, from, length, flags);
        fs_unlock_send(sender);
        return part;
    }
    /* SYNC: consent - pairs with fs_give_consent.
     * SYNC: left - pairs with fs_revoke_consent. */
    uint32_t ready = fs_load_sc(&c->ring.tx->ready);
    if (ready == FS_LEFT) fs_answer_fallback(c, sender);
    if (flags & MSG_OOB) fs_send_fall_back(c, sender, 0); /* the mark of an urgent byte is the kernel's */
    if (fs_eof_inconclusive(c)) check_half_closed(c, sender);
    if ((fs_moved(c) & (FS_SENDING_BACK | FS_OUT)) == FS_SENDING_BACK) {
        if (!fs_send_resumes_in_kernel(c, sender)) {
            fs_unlock_send(sender);
            return length ? -EAGAIN : 0;
        }
    } else if (ready == FS_READY && length && !(fs_moved(c) & (FS_SENDING_MOVED | FS_SENDING_BACK))) {
        fs_switch_sending(c, sender);
    }
    uint32_t doorbell = fs_load_relaxed(&c->ring.tx->doorbell);
    if ((doorbell & (FS_SHUT | FS_GONE)) == FS_SHUT && fs_sends_on_ring(c) && !fs_peer_is_lost(c) && !sender->fin_sent) {
        if (c->stream->resets && !fs_has_credit(&c->ring, sender)) {
            fs_unlock_send(sender);
            return length ? -EAGAIN : 0;
        }
        fs_note_lost(c); /* there is room, and bytes sent now draw a reset; or the kernel refuses them */
    }
    if (fs_is_marked(c) && !is_for_kernel(c, sender, doorbell)) { /* (Of a broken one the peer is lost.) */
        done = post_all_tapped(c, sender, from, length, flags);
    } else if (is_for_kernel(c, sender, doorbell)) {
        /* The kernel gives TCP's answer. */
        if (sender->fin_sent) fs_check_peer_lost(c); /* nobody may have checked since */
        part = fs_awaits_reset(c, sender) ? -EAGAIN : fs_send_error_after_close(c, sender, flags & FS_TRIES_AGAIN);
        if (part == -EPIPE && !(flags & MSG_NOSIGNAL)) raise_sigpipe();
        if (part == 0) {
            part = send_kernel(c, from, length, flags);
            int of_our_end = part == -EPIPE && sender->fin_sent; /* not a reset by the peer */
            if (fs_peer_is_gone(c) && !of_our_end) part = fs_kernel_result_after_end(c, part);
        }
        fs_unlock_send(sender);
        return part;
    } else {
        done = post_all(c, sender, from, length, flags);
    }
    fs_publish_cpu(c);
    fs_last_peer_cpu = fs_load_relaxed(&c->ring.rx->processor);
    if (fs_in_flight(sender)) watch_liveness(c, sender);
    if (c->ring.violation) done = FS_VIOLATED;
    fs_unlock_send(sender);
    return done || !length ? done : -EAGAIN;
}

int64_t fs_try_send(struct fs_connection *c, const char *data, size_t length, int flags) {
    return try_send(c, (struct fs_source){.data = data}, length, flags);
}

int64_t fs_try_send_pieces(struct fs_connection *c, const struct iovec *v, size_t skip, size_t length, int flags) {
    return try_send(c, (struct fs_source){.v = v, .skip = skip}, length, flags);
}

void fs_publish_cpu(struct fs_connection *c) {
    uint32_t processor = (uint32_t)sched_getcpu() + 1;
    if (fs_load_relaxed(&c->ring.tx->processor) != processor) fs_store_relaxed(&c->ring.tx->processor, processor);
}

/* Sets the bytes handed to the kernel. Returns 0 if the kernel does not know, or takes no more: it has the answer for the program. */
static int find_sent(struct fs_connection *c, struct fs_sender *sender, uint64_t *sent) {
    if (!c->counted || fs_is_shared(c)) return c->stream->count_sent(fs_fd(c), sent);
    *sent = fs_load_relaxed(&c->kernel_sent);
    return !sender->fin_sent && !fs_load_relaxed(&c->is.shut_sending);
}

void fs_switch_sending(struct fs_connection *c, struct fs_sender *sender) {
    uint64_t sent;
    if (!find_sent(c, sender, &sent)) return;
    /* SYNC: switch - pairs with fs_recv_kernel. */
    fs_store_sc(&c->ring.tx->switch_at, sent + 1);
    c->last_check = fs_now(); /* the kernel has taken a part of the stream just now, or nothing has come of it yet */
    fs_change_sending(c, sender, FS_EV_SEND_SWITCHED);
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
    if (fs_is_attached(c)) apply_limits(c, locks);
    fs_unlock_side(locks);
    return 0;
}
