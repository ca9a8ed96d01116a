/* Receiving: the kernel's part of the stream, then the ring, and the end of either. A receiver follows the sender's switch here, once it
 * has read the kernel's part.
 *
 * Responsible for: the result of a receive, and the order of the bytes. Never: blocks, decides if the peer is dead (peer_status.c), or
 * counts doorbell bytes (doorbell_rx.c). */
#include "conn/receive.h"

#include "conn/doorbell_rx.h"
#include "conn/peer_status.h"
#include "conn/doorbell_tx.h"
#include "conn/recovery.h"
#include "conn/settle.h"
#include "conn/state.h"
#include "conn/side_lock.h"
#include "transport/tcp.h"

int64_t fs_try_recv(struct fs_connection *c, char *into, size_t room, int flags, int final) {
    int64_t got = -EAGAIN;
    if (room == 0) return 0;
    for (int checks = 0; checks < 2; checks++) {
        struct fs_receiver *receiver = fs_lock_recv_within(c, FS_PATIENCE);
        if (!receiver) return -EAGAIN; /* a stopped process has the lock: the caller handles signals, and tries again */
        /* Damage by a dead holder cannot always be repaired. */
        got = c->ring.violation && !fs_is_broken(c) ? FS_VIOLATED : fs_recv_locked(c, receiver, into, room, flags, final);
        if (!fs_unlock_recv(c, receiver) || got != -EAGAIN) break;
    }
    return got;
}

/* Returns true if the kernel's queue may hold a plug: the peer said so now, or said so before and was answered when the plug could not
 * be taken yet. Doorbell bytes alone are not so many. */
static int may_be_plugged(struct fs_connection *c) {
    /* SYNC: rung - pairs with fs_count_plug. */
    return (fs_peer_credit_wait(&c->ring) & FS_PLUGGED) != 0 ||
           fs_load_acquire(&c->ring.rx->rung) - fs_load_relaxed(&c->ring.rx->heard) > FS_EDGES;
}

/* Peeks in the ring. An urgent byte in front with nothing behind is skipped for good: a peek on TCP sleeps behind it, and here it would
 * stay the event that a receiver waits for. The byte can still be read apart, but not with a plug behind it, for which its sender waits:
 * the plug can only be taken together with the byte. */
static int64_t peek(struct fs_connection *c, struct fs_receiver *receiver, char *into, size_t room) {
    int64_t got = fs_ring_recv(&c->ring, receiver, into, room, FS_PEEK);
    if (got || !fs_has_descriptor(&c->ring)) return got;
    got = fs_ring_recv(&c->ring, receiver, NULL, 1, FS_PASS);
    if (got) return got;
    receiver->passed = fs_load_relaxed(&receiver->consumed) - (may_be_plugged(c) ? 1 : 0);
    return fs_ring_recv(&c->ring, receiver, into, room, FS_PEEK);
}

/* Returns the result of a receive while another holder collects unread bytes: -EAGAIN, or FS_VIOLATED if that holder was killed or
 * failed, because the stream has a hole then. Called with the receive lock, which every holder needs to end collecting. (Rare, so it is not
 * inlined into fs_recv_locked, nor is the next one: that saves instructions of each receive.) */
__attribute__((noinline)) static int64_t recv_beside_collector(struct fs_connection *c, struct fs_receiver *receiver) {
    if (fs_is_broken(c)) return 0;
    if (!fs_lock_is_free(&fs_side_of_receiver(receiver)->fallback.lock)) return -EAGAIN;
    fs_break_connection(c, "unread data was lost: the process of this side that had it was killed");
    return FS_VIOLATED;
}

/* Checks the kernel connection when the ring is empty. Returns 0 if it has ended, -errno if it failed, -EAGAIN if it is alive. */
__attribute__((noinline)) static int64_t check_liveness(struct fs_connection *c, struct fs_receiver *receiver) {
    static char junk[65536]; /* for bytes that are thrown away */
    char byte;
    uint32_t events = 0;
    for (int checks = 0; checks < 3; checks++) {
        events = fs_load_sc(&c->watch.told);
        int64_t got = fs_system.recv(fs_fd(c), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        if (got == 0) return fs_recv_at_end(c);
        /* Only an empty queue shows all that `watch.told` announced: an end may be behind a byte that stays. Everybody who checks must
         * find an end that was found once. */
        if (got < 0 && errno == EAGAIN) c->receive_checked = events;
        if (got < 0) return fs_recv_kernel_error(c, errno);
        fs_drain_doorbell_bytes(c, receiver);
        if (fs_load_relaxed(&c->is.pending_error)) return fs_take_pending_error(c);
        if (fs_ring_readable(&c->ring)) break;
        if (fs_has_uncounted_bytes(c)) return FS_VIOLATED;
        /* SYNC: rung - pairs with fs_count_ring. */
        if (fs_liveness(c) != FS_ALIVE && !fs_ring_readable(&c->ring) &&
            fs_load_acquire(&c->ring.rx->rung) == fs_load_relaxed(&c->ring.rx->heard)) {
            /* Bytes that the peer never counted: from a peer that took us for gone, or from another process that has the number. In
             * front of the end of the connection they would hide it for ever. The receive after the last one gets the error that the
             * next check would have found. */
            while (got > 0) got = fs_system.recv(fs_fd(c), junk, sizeof junk, MSG_TRUNC | MSG_DONTWAIT);
            if (got < 0 && errno != EAGAIN) return fs_recv_kernel_error(c, errno);
        }
    }
    c->receive_inconclusive = events;
    return -EAGAIN;
}

/* Bytes that go on behind those that the caller has: a receive that returns less than it was asked for says that there are no more. Their
 * error is the next receive's. */
static int64_t receive_behind(struct fs_connection *c, struct fs_receiver *receiver, char *into, size_t room, int flags) {
    int64_t more = fs_recv_locked(c, receiver, into, room, flags, FS_NOT_FINAL);
    if (more < 0 && more != -EAGAIN && more != FS_VIOLATED) fs_note_error(c, (uint32_t)-more);
    return FS_MAX(more, (int64_t)0);
}

int64_t fs_recv_locked(struct fs_connection *c, struct fs_receiver *receiver, char *into, size_t room, int flags, int final) {
    int64_t got;
    if (!fs_is_attached(c) || fs_moved(c) & (FS_RECEIVING_BACK | FS_COLLECTING)) {
        if (fs_is_collecting(c)) return recv_beside_collector(c, receiver);
        if (fs_is_attached(c) && receiver->doorbell_debt) {
            fs_discard_doorbell_bytes(c, receiver, 0);
            if (receiver->doorbell_debt) return -EAGAIN; /* doorbell bytes come first */
        }
        if (fs_load_relaxed(&c->is.pending_error)) return fs_take_pending_error(c);
        got = fs_system.recv(fs_fd(c), into, room, flags | MSG_DONTWAIT);
        return got >= 0 ? got : -errno;
    }
    if (fs_is_broken(c)) return 0;
    if (!fs_receives_on_ring(c)) {
        uint32_t events = fs_load_sc(&c->watch.told);
        got = fs_recv_kernel(c, receiver, into, room, flags);
        if (got == -EAGAIN) c->receive_checked = events;
        if (got != FS_MOVED_ON) return got;
    }
    for (int checks = 0; checks < 4; checks++) {
        uint32_t consumed = fs_load_relaxed(&receiver->consumed);
        char *target = flags & MSG_TRUNC ? NULL : into;
        got = flags & MSG_PEEK ? peek(c, receiver, target, room) : fs_ring_recv(&c->ring, receiver, target, room, FS_CONSUME);
        if (got < 0) return FS_VIOLATED;
        /* An urgent byte is not part of `got`, but doorbell bytes and a plug may have been kept for it. */
        if ((got > 0 && !(flags & MSG_PEEK)) || fs_load_relaxed(&receiver->consumed) != consumed) {
            if (fs_peer_credit_wait(&c->ring)) fs_answer_credit_wait(c, receiver);
            if ((fs_load_relaxed(&c->ring.rx->doorbell) & FS_EXPOSED || fs_load_relaxed(&c->ring.rx->urgent)) &&
                (!fs_has_descriptor(&c->ring) ||
                 fs_load_relaxed(&c->ring.rx->rung) - fs_load_relaxed(&c->ring.rx->heard) >= FS_EDGES))
                fs_drain_doorbell_bytes(c, receiver);
            if (got > 0 && fs_load_relaxed(&c->ring.rx->fin) && fs_stream_end(&c->ring, receiver) == FS_BACK) {
                fs_recv_fall_back(c, receiver); /* now, so that no doorbell byte stays behind */
                /* (A loop may have read bytes of the kernel that come in front of those that lie there, and delivers them itself.) */
                if ((size_t)got < room && !fs_is_loop_driven(c)) got += receive_behind(c, receiver, into + got, room - (size_t)got, flags);
            }
        }
        if (got > 0) return got;
        if (fs_load_relaxed(&receiver->fin_taken) == FS_END_REPORTED) return 0;
        uint64_t end = fs_stream_end(&c->ring, receiver);
        if (end == FS_END_WRONG) return FS_VIOLATED;
        if (end == FS_FIN) {
            if (fs_has_uncounted_bytes(c)) return FS_VIOLATED;
            fs_set_fin_taken(receiver, FS_END_REPORTED);
            fs_store_sc(&c->ring.rx->finack, 1);
            fs_drain_doorbell_bytes(c, receiver);
            return 0;
        }
        if (end == FS_BACK) {
            fs_recv_fall_back(c, receiver);
            return fs_recv_locked(c, receiver, into, room, flags, final);
        }
        if (end == FS_RESET && fs_load_relaxed(&receiver->fin_taken) == FS_END_UNREAD)
            fs_set_fin_taken(receiver, FS_RESET_FOUND); /* the kernel's RST follows and completes this */
        if (fs_load_relaxed(&c->is.pending_error)) return fs_take_pending_error(c);
        uint32_t events = fs_load_sc(&c->watch.told);
        if (end == 0 && (!final || (final == FS_IF_TOLD && events == c->receive_checked && fs_is_watched(&c->watch, FS_HANGUP_EVENTS))))
            return -EAGAIN;
        got = check_liveness(c, receiver);
        if (got == -EAGAIN) return got;
        /* The peer is gone. The bytes that it posted before are visible now: check once more, then believe the kernel. */
        if (!fs_has_descriptor(&c->ring)) return got;
        if (got < 0) fs_note_error(c, (uint32_t)-got);
    }
    return -EAGAIN;
}

int fs_kernel_part_read(struct fs_connection *c, uint64_t switch_at) {
    uint64_t position;
    int64_t mark;
    return fs_kernel_position(c, &position, &mark) &&
           (position >= switch_at - 1 || (position == switch_at - 2 && mark == 0));
}

int fs_switch_reached(struct fs_connection *c) {
    uint64_t switch_at = fs_load_sc(&c->ring.rx->switch_at);
    return switch_at != 0 && !(fs_moved(c) & FS_RECEIVING_BACK) &&
           (switch_at - 1 == fs_load_relaxed(&fs_own(c)->receiver.kernel_taken) || fs_kernel_part_read(c, switch_at));
}

int fs_kernel_part_came(struct fs_connection *c) {
    uint64_t sent, received, switch_at = fs_load_sc(&c->ring.rx->switch_at);
    char state;
    if (fs_receives_on_ring(c)) return 1;
    return switch_at && fs_tcp_bytes(fs_fd(c), &state, &sent, &received) && received >= switch_at - 1;
}

/* The last byte of the kernel's part has been taken. Other waiting threads have found nothing readable in the ring until now, and the
 * peer has already notified them of what lies there. Each of them counted itself with the receive lock before it checked. */
static void wake_for_switch(struct fs_connection *c) {
    if (fs_load_sc(&c->recv_sleepers) || fs_is_shared(c) || fs_load_relaxed(&c->slot)) fs_wake_local(c);
}

/* The kernel's part of the stream has been read. */
static void move_receiving(struct fs_connection *c, struct fs_receiver *receiver) {
    fs_change_receiving(c, receiver, FS_EV_RECEIVE_SWITCHED);
    fs_reserve_recv_buffer(c);
}

int64_t fs_recv_kernel(struct fs_connection *c, struct fs_receiver *receiver, char *into, size_t room, int flags) {
    for (;;) {
        int64_t got, more, mark = -1;
        char byte;
        /* Count first, then load the switch: doorbell bytes only ever follow the switch, so bytes counted before an unset switch are the
         * program's. */
        uint64_t queued = 0;
        /* SYNC: switch - pairs with fs_switch_sending. (A switch at the count of bytes taken needs no further count.) */
        uint64_t switch_at = fs_load_sc(&c->ring.rx->switch_at);
        if (!switch_at || switch_at - 1 != fs_load_relaxed(&receiver->kernel_taken)) {
            fs_kernel_queued_after(fs_fd(c), fs_load_relaxed(&receiver->kernel_taken), &queued, &mark);
            switch_at = fs_load_sc(&c->ring.rx->switch_at);
        }
        uint64_t left = queued;
        if (switch_at) {
            left = switch_at - 1 - fs_load_relaxed(&receiver->kernel_taken);
            if (left > (uint64_t)1 << 62) {
                c->ring.violation = "switch offset in the past";
                return FS_VIOLATED;
            }
            if (left && fs_kernel_part_read(c, switch_at)) {
                left = 0;
                fs_store_relaxed(&receiver->kernel_taken, switch_at - 1);
            }
            if (left == 0) {
                move_receiving(c, receiver);
                return FS_MOVED_ON;
            }
            /* Count again: all of it may have come by now, and bytes that were not counted are not read. recv would skip an urgent byte
             * in front, and go on behind the switch. */
            fs_kernel_queued_after(fs_fd(c), fs_load_relaxed(&receiver->kernel_taken), &queued, &mark);
        }
        if (queued == 0 || (queued == 1 && mark == 0)) {
            if (fs_load_relaxed(&c->is.pending_error))
                return fs_take_pending_error(c); /* of a receive that had taken bytes already */
            got = fs_system.recv(fs_fd(c), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
            if (got > 0 || (got == 0 && !switch_at && fs_load_sc(&c->ring.rx->switch_at))) continue; /* came just now */
            if (got < 0) return errno != EAGAIN ? fs_recv_kernel_error(c, errno) : -EAGAIN;
            /* With a FIN in the ring the peer has ended its stream, and is alive. */
            return !fs_load_sc(&c->ring.rx->fin) ? fs_recv_at_end(c) : 0;
        }
        uint64_t limit = FS_MIN(queued, left);
        if (mark == 0)
            limit -= 1;
        else if (0 < mark && mark < (int64_t)limit)
            limit = (uint64_t)mark;
        if (!limit) continue; /* an urgent byte that ends the kernel's part has come just now: it is read */
        got = fs_system.recv(fs_fd(c), into, room < limit ? room : limit, flags | MSG_DONTWAIT);
        if (got < 0) return -errno;
        if (mark == 0 && got) {
            left -= 1;
            if (!(flags & MSG_PEEK)) fs_count(&receiver->kernel_taken, 1);
        }
        if (!(flags & MSG_PEEK)) {
            fs_count(&receiver->kernel_taken, (uint64_t)got);
            if (switch_at && (uint64_t)got == left) wake_for_switch(c);
        }
        if (switch_at && (uint64_t)got == left && room > left) {
            /* The rest of the kernel's part: go on in the ring, where TCP would have gone on too. */
            more = 0;
            if (flags & MSG_PEEK) {
                more = fs_ring_recv(&c->ring, receiver, flags & MSG_TRUNC ? NULL : into + got, room - (size_t)got, FS_PEEK);
            } else if (fs_has_descriptor(&c->ring)) {
                move_receiving(c, receiver);
                more = receive_behind(c, receiver, into + got, room - (size_t)got, flags);
            }
            got += more > 0 ? more : 0;
        }
        return got;
    }
}

int fs_has_unread(struct fs_connection *c, struct fs_receiver *receiver) {
    int waiting = 0;
    if (fs_has_descriptor(&c->ring) || fs_load_relaxed(&receiver->taken)) return 1;
    if (fs_receives_on_ring(c)) return 0;
    uint64_t switch_at = fs_load_sc(&c->ring.rx->switch_at);
    if (switch_at) return switch_at - 1 != fs_load_relaxed(&receiver->kernel_taken);
    fs_system.ioctl(fs_fd(c), FIONREAD, &waiting);
    return waiting > 0;
}

int fs_set_oob_inline(struct fs_connection *c, int inline_) {
    struct fs_receiver *receiver = fs_lock_recv_within(c, FS_PATIENCE);
    if (!receiver) return -EINTR;
    c->ring.oob_inline = inline_;
    /* For the doorbell bytes this does not matter. But a peer that has fallen back sends its urgent bytes in the kernel before this side
     * has seen that, and a kernel that is to keep them apart drops an unread one for the next one. */
    fs_set_option(fs_fd(c), SOL_SOCKET, SO_OOBINLINE, inline_);
    fs_unlock_recv_quick(receiver);
    return 0;
}

int fs_wait_for_more(struct fs_connection *c) {
    int events = fs_poll_events_now(fs_fd(c), POLLRDHUP);
    fs_short_sleep();
    return !(events & (POLLRDHUP | POLLHUP | POLLERR)) && !fs_peer_waits_for_credit(c);
}
