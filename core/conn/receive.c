/* Receiving: the kernel's part of the stream, then the ring, and the end of either. A receiver follows the sender's switch here, once it
 * has read the kernel's part.
 *
 * Responsible for: the result of a receive, and the order of the bytes. Never: blocks, or decides if the peer is dead
 * (peer_status.c). */
#include "conn/receive.h"

#include "conn/peer_status.h"
#include "conn/recovery.h"
#include "conn/settle.h"
#include "conn/side_lock.h"
#include "conn/state.h"
#include "conn/tap.h"
#include "conn/wake.h"

/* A receive of no bytes, or to nowhere, finds what one of a byte would find, and takes nothing. (Rare, so it is not inlined.) */
__attribute__((noinline)) static int64_t try_recv_nothing(struct fs_connection *c, size_t room, int flags, int final) {
    char byte;
    int64_t got = fs_try_recv(c, &byte, 1, (flags & ~MSG_TRUNC) | MSG_PEEK, final);
    return got <= 0 ? got : room ? -EFAULT : 0;
}

int64_t fs_try_recv(struct fs_connection *c, char *into, size_t room, int flags, int final) {
    if (flags & MSG_TRUNC && !c->stream->truncates) flags &= ~MSG_TRUNC;
    if (room == 0 || !(into || flags & MSG_TRUNC)) return try_recv_nothing(c, room, flags, final);
    struct fs_receiver *receiver = fs_lock_recv_within(c, FS_PATIENCE);
    if (!receiver) return -EAGAIN; /* a stopped process has the lock: the caller handles signals, and tries again */
    /* Damage by a dead holder cannot always be repaired. */
    int64_t got = c->ring.violation && !fs_is_broken(c) ? FS_VIOLATED : fs_recv_locked(c, receiver, into, room, flags, final);
    fs_unlock_recv(receiver);
    return got;
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

/* Checks the kernel connection when the ring is empty. Returns 0 if it has ended, -errno if it failed, -EAGAIN if it is alive,
 * FS_MOVED_ON if the ring has more by now, or FS_VIOLATED. */
__attribute__((noinline)) static int64_t check_liveness(struct fs_connection *c) {
    char byte;
    for (int checks = 0; checks < 3; checks++) {
        uint32_t events = fs_load_sc(&c->watch.told);
        int64_t got = fs_system.recv(fs_fd(c), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        if (got == 0) return fs_recv_at_end(c);
        if (got < 0 && errno == EAGAIN) fs_store_relaxed(&c->receive_checked, events);
        if (got < 0) return fs_recv_kernel_error(c, errno);
        if (fs_ring_readable(&c->ring)) return FS_MOVED_ON;
        if (fs_has_stray_bytes(c, &got)) return FS_VIOLATED;
        fs_discard_kernel(c, SIZE_MAX); /* they would hide the end */
    }
    return -EAGAIN;
}

/* True if the kernel's next byte is the urgent one. */
static int is_at_mark(struct fs_connection *c) {
    int at = 0;
    return fs_system.ioctl(fs_fd(c), SIOCATMARK, &at) == 0 && at;
}

/* Bytes that go on after those that the caller has: a receive that returns less than it was asked for says that there are no more. Their
 * error is the next receive's. */
static int64_t receive_behind(struct fs_connection *c, struct fs_receiver *receiver, char *into, size_t room, int flags) {
    int64_t more = fs_recv_locked(c, receiver, into, room, flags, FS_NOT_FINAL);
    if (more < 0 && more != -EAGAIN && more != FS_VIOLATED) fs_note_error(c, (uint32_t)-more);
    return FS_MAX(more, (int64_t)0);
}

/* fs_recv_locked for a connection that is watched. The bytes of the ring come before those of the kernel, unless the direction moves in
 * this call. */
__attribute__((noinline)) static int64_t recv_tapped(struct fs_connection *c, struct fs_receiver *receiver, char *into, size_t room,
                                                      int flags, int final) {
    uint64_t before = fs_load_relaxed(&c->ring.count.bytes_received);
    uint32_t fin_taken = fs_load_relaxed(&receiver->fin_taken);
    int on_ring = fs_receives_on_ring(c);
    c->recorded = 1;
    int64_t got = fs_recv_locked(c, receiver, into, room, flags, final);
    c->recorded = 0;
    uint64_t of_ring = fs_load_relaxed(&c->ring.count.bytes_received) - before;
    struct fs_source from = {.data = flags & MSG_TRUNC ? NULL : into, .skip = on_ring ? 0 : (size_t)got - of_ring};
    if (of_ring) fs_tap_bytes(c, FS_TAP_RECEIVED, fs_now(), before, from, of_ring);
    if (fs_load_relaxed(&receiver->fin_taken) != fin_taken) fs_tap_end(c, FS_TAP_FIN_RECEIVED);
    return got;
}

int64_t fs_recv_locked(struct fs_connection *c, struct fs_receiver *receiver, char *into, size_t room, int flags, int final) {
    int64_t got;
    if (!fs_is_attached(c) || fs_moved(c) & (FS_RECEIVING_BACK | FS_COLLECTING)) {
        if (fs_is_collecting(c)) return recv_beside_collector(c, receiver);
        if (fs_load_relaxed(&c->is.pending_error)) return fs_take_pending_error(c);
        got = fs_system.recv(fs_fd(c), into, room, flags | MSG_DONTWAIT);
        if (!(flags & MSG_PEEK)) fs_count_kernel(&c->kernel_received, got);
        return got >= 0 ? got : -errno;
    }
    if (fs_is_marked(c)) {
        if (fs_is_broken(c)) return 0;
        if (!c->recorded) return recv_tapped(c, receiver, into, room, flags, final);
    }
    if (!fs_receives_on_ring(c)) {
        uint32_t events = fs_load_sc(&c->watch.told);
        if ((fs_load_sc(&c->ring.rx->fin) & FS_FIN_KIND) == FS_BACK && !fs_load_sc(&c->ring.rx->switch_at)) { /* it never moves */
            fs_recv_fall_back(c, receiver);
            return fs_recv_locked(c, receiver, into, room, flags, final);
        }
        got = fs_recv_kernel(c, receiver, into, room, flags);
        if (got == -EAGAIN) fs_store_relaxed(&c->receive_checked, events);
        if (got != FS_MOVED_ON) return got;
    }
    for (int checks = 0; checks < 4; checks++) {
        got = fs_ring_recv(&c->ring, receiver, flags & MSG_TRUNC ? NULL : into, room, flags & MSG_PEEK ? FS_PEEK : FS_CONSUME);
        if (got > 0) fs_last_peer_cpu = fs_load_relaxed(&c->ring.rx->processor);
        if (got < 0) return FS_VIOLATED;
        if (got > 0 && !(flags & MSG_PEEK)) {
            if (fs_peer_credit_wait(&c->ring)) fs_answer_credit_wait(c, receiver);
            if (fs_load_relaxed(&c->ring.rx->fin) && fs_stream_end(&c->ring, receiver) == FS_BACK) {
                fs_recv_fall_back(c, receiver);
                if (is_at_mark(c)) return got; /* a receive stops in front of an urgent byte */
                /* (A loop may have read bytes of the kernel that come in front of those that lie there, and delivers them itself.) */
                if ((size_t)got < room && !fs_is_loop_driven(c)) got += receive_behind(c, receiver, into + got, room - (size_t)got, flags);
            }
        }
        if (got > 0) return got;
        if (fs_load_relaxed(&receiver->fin_taken) == FS_END_REPORTED) return c->stream->resets ? 0 : fs_recv_at_end(c);
        uint64_t end = fs_stream_end(&c->ring, receiver);
        if (end == FS_END_WRONG) return FS_VIOLATED;
        if (end == FS_FIN) {
            if (fs_has_stray_bytes(c, &got)) return FS_VIOLATED;
            fs_set_fin_taken(receiver, FS_END_REPORTED);
            fs_store_sc(&c->ring.rx->finack, 1);
            return got || c->stream->resets ? got : fs_recv_at_end(c);
        }
        if (end == FS_BACK) {
            fs_recv_fall_back(c, receiver);
            return fs_recv_locked(c, receiver, into, room, flags, final);
        }
        if (end == FS_RESET && fs_load_relaxed(&receiver->fin_taken) == FS_END_UNREAD)
            fs_set_fin_taken(receiver, FS_RESET_FOUND); /* the kernel's RST follows and completes this */
        if (fs_load_relaxed(&c->is.pending_error)) return fs_take_pending_error(c);
        uint32_t events = fs_load_sc(&c->watch.told);
        uint32_t checked = fs_load_relaxed(&c->receive_checked);
        if (end == 0 && (!final || (final == FS_IF_TOLD && events == checked && fs_is_watched(&c->watch, FS_HANGUP_AND_IN))))
            return -EAGAIN;
        got = check_liveness(c);
        if (got == -EAGAIN || got == FS_VIOLATED) return got;
        if (got == FS_MOVED_ON) continue;
        /* The peer is gone. The bytes that it posted before are visible now: check once more, then believe the kernel. */
        if (!fs_has_descriptor(&c->ring)) return got;
        if (got < 0) fs_note_error(c, (uint32_t)-got);
    }
    return -EAGAIN;
}

int fs_switch_reached(struct fs_connection *c) {
    uint64_t switch_at = fs_load_sc(&c->ring.rx->switch_at);
    /* (Or passed: the receive finds out that a peer has lied.) */
    return switch_at != 0 && !(fs_moved(c) & FS_RECEIVING_BACK) && switch_at - 1 <= fs_load_relaxed(&fs_own(c)->receiver.kernel_taken);
}

int fs_kernel_part_came(struct fs_connection *c) {
    uint64_t switch_at = fs_load_sc(&c->ring.rx->switch_at);
    if (fs_receives_on_ring(c)) return 1;
    return switch_at && c->stream->has_received(fs_fd(c), switch_at - 1);
}

/* The last byte of the kernel's part has been taken. Other waiting threads have found nothing readable in the ring until now, and the
 * peer has already notified them of what lies there. Each of them counted itself with the receive lock before it checked. */
static void wake_for_switch(struct fs_connection *c) {
    if (fs_load_sc(&c->recv_sleepers) || fs_is_shared(c) || fs_load_relaxed(&c->slot)) fs_wake_local(c);
}

/* Nothing of the kernel's part is in the queue. Returns true, with a violation noted, if all of it has come: somebody has read past us. */
static int was_read_past(struct fs_connection *c, uint64_t switch_at) {
    uint64_t position;
    if (!switch_at || !fs_kernel_position(c, &position) || position < switch_at - 1) return 0;
    c->ring.violation = "bytes were read past fastsock";
    return 1;
}

int64_t fs_recv_kernel(struct fs_connection *c, struct fs_receiver *receiver, char *into, size_t room, int flags) {
    for (;;) {
        int64_t got, more;
        /* Count first, then load the switch: bytes after the switch only ever follow it, so bytes counted before an unset switch are of
         * the kernel's part. */
        int queued = 0;
        /* SYNC: switch - pairs with fs_switch_sending. (A switch at the count of bytes taken needs no further count.) */
        uint64_t switch_at = fs_load_sc(&c->ring.rx->switch_at);
        if (!switch_at || switch_at - 1 != fs_load_relaxed(&receiver->kernel_taken)) {
            fs_system.ioctl(fs_fd(c), FIONREAD, &queued);
            switch_at = fs_load_sc(&c->ring.rx->switch_at);
        }
        uint64_t left = (uint64_t)queued;
        if (switch_at) {
            left = switch_at - 1 - fs_load_relaxed(&receiver->kernel_taken);
            if (left > (uint64_t)1 << 62) {
                c->ring.violation = "switch offset in the past";
                return FS_VIOLATED;
            }
            if (left == 0) {
                fs_change_receiving(c, receiver, FS_EV_RECEIVE_SWITCHED);
                return FS_MOVED_ON;
            }
        }
        if (queued == 0) {
            if (fs_load_relaxed(&c->is.pending_error))
                return fs_take_pending_error(c); /* of a receive that had taken bytes already */
            got = fs_system.recv(fs_fd(c), into, room, (flags & MSG_TRUNC) | MSG_PEEK | MSG_DONTWAIT);
            if (got < 0 && errno != EAGAIN) return fs_recv_kernel_error(c, errno);
            if (got >= 0 && !switch_at && fs_load_sc(&c->ring.rx->switch_at)) continue; /* came just now */
            if (got <= 0 && !fs_is_loop_driven(c) && was_read_past(c, switch_at)) return FS_VIOLATED;
            if (got < 0) return -EAGAIN;
            /* With a FIN in the ring the peer has ended its stream. (A kernel that resets nothing reports a close after that, too.) */
            uint64_t end = fs_load_sc(&c->ring.rx->fin) & FS_FIN_KIND;
            if (got == 0) return !end || !c->stream->resets ? fs_recv_at_end(c) : 0;
            /* They came just now, or after an urgent byte, where the kernel does not count. */
            queued = (int)FS_MIN(got, (int64_t)INT32_MAX);
            if (!switch_at) left = (uint64_t)queued;
        }
        got = fs_system.recv(fs_fd(c), into, FS_MIN(room, FS_MIN((uint64_t)queued, left)), flags | MSG_DONTWAIT);
        if (got < 0) return -errno;
        if (!(flags & MSG_PEEK)) {
            if (c->stream->counts_bytes) fs_count(&receiver->kernel_taken, (uint64_t)got);
            if (switch_at && (uint64_t)got == left) wake_for_switch(c);
        }
        if (switch_at && (uint64_t)got == left && room > left) {
            /* The rest of the kernel's part: go on in the ring, where TCP would have gone on too. */
            more = 0;
            if (flags & MSG_PEEK) {
                more = fs_ring_recv(&c->ring, receiver, flags & MSG_TRUNC ? NULL : into + got, room - (size_t)got, FS_PEEK);
            } else if (fs_has_descriptor(&c->ring)) {
                fs_change_receiving(c, receiver, FS_EV_RECEIVE_SWITCHED);
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

int fs_wait_for_more(struct fs_connection *c) {
    struct pollfd end = {fs_fd(c), POLLRDHUP, 0};
    struct timespec nap = {0, 50000};
    return fs_system.ppoll(&end, 1, &nap, NULL) <= 0 && !fs_peer_waits_for_credit(c);
}
