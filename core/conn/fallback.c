/* The fallback: a connection that has moved goes back to the kernel, because somebody else is about to read its descriptor directly.
 *
 * Either side may fall back. Bytes that it sent lie in the ring, with BACK after them, and later bytes go through the kernel: nothing
 * more to do. Bytes that it has not read must come out of the kernel's queue instead, and only the peer can put them there. So
 *
 *   1. the side withdraws consent (LEFT) and asks the peer's control thread, which posts BACK after the bytes that the peer has
 *      posted, and sends nothing more until the fallback is settled (HELD);
 *   2. the side takes everything up to BACK, including the kernel's part of the stream, into a memfd, the *unread data*: the kernel's
 *      queue is empty then;
 *   3. the peer's control thread sends the unread data through the kernel, and the peer goes on there.
 *
 * This file has the side that falls back; its peer is in fallback_peer.c. If the peer cannot take part (closed, shut down, dead,
 * stopped, no room in the kernel), only a bridge helps (fallback_bridge.c). docs/moving.md argues why nothing is lost or doubled.
 *
 * Responsible for: the kernel's stream is the whole stream when somebody else gets the descriptor, or the result says that it cannot be.
 * Never: what follows (a bridge, a reset, the unread data for a loop's transport), which the caller decides. */
#include "conn/fallback.h"

#include "conn/fallback_peer.h"
#include "conn/peer_status.h"
#include "conn/receive.h"
#include "conn/settle.h"
#include "conn/side_lock.h"
#include "conn/state.h"
#include "conn/tap.h"
#include "conn/wake.h"
#include "conn/request.h"
#include "os/memfd.h"

#ifndef MFD_CLOEXEC
#define MFD_CLOEXEC 1
#endif

enum { PIECE = 16384, SMALL = 256 }; /* bytes collected at a time; few on the stack, if there is no memory */

#define REQUEST_INTERVAL ((int64_t)50000000) /* ns between two requests for the same */

/* Creates a memfd of `size` bytes with all memory allocated, so that no write fails. Returns the descriptor, or -1. */
static int new_memfd(uint64_t size) {
    if (!fs_may_make_file(size)) return -1;
    int fd = fs_system.memfd_create("fastsock-unread", MFD_CLOEXEC);
    if (fd >= 0 && fs_system.fallocate(fd, 0, 0, (off_t)size) < 0) {
        fs_system.close(fd);
        return -1;
    }
    return fd;
}

/* ---- reading up to BACK ------------------------------------------------------------------------------------ */

/* Returns `outcome` for a fallback that takes nothing more: releases the lock and settles. */
static enum fs_fallback_result stop_here(struct fs_connection *c, struct fs_receiver *receiver, enum fs_fallback_result outcome) {
    fs_unlock_recv(receiver);
    fs_settle(c);
    return outcome;
}

/* ---- falling back ------------------------------------------------------------------------------------------ */

/* Waits until the end of the ring's stream is known: at BACK, at FIN, or with the peer's death. Returns 0 if the peer does not tell in
 * time. */
static int await_end_of_ring(struct fs_connection *c) {
    int64_t now = fs_now(), deadline = now + FS_ANSWER_TIME, request_next = now;
    int checks = 0;
    /* SYNC: end of stream - pairs with fs_post_fin. */
    while (!fs_load_sc(&c->ring.rx->fin)) {
        checks += 1;
        if (checks > 200) {
            if (fs_peer_ended(c)) return 1;
            fs_short_sleep();
        }
        now = fs_now();
        if (now > deadline) return 0;
        if (now >= request_next) {
            request_next = now + REQUEST_INTERVAL;
            fs_send_request(c, -1);
        }
        fs_cpu_relax();
    }
    return 1;
}

/* Returns the bytes that lie unread or are on their way through the kernel, once the end of the ring's stream is known. */
static uint64_t count_unread(struct fs_connection *c, struct fs_receiver *receiver) {
    uint64_t switch_at = fs_load_sc(&c->ring.rx->switch_at);
    uint64_t count = fs_available(&c->ring, FS_UNREAD_DATA_MAX);
    if (switch_at && !(fs_moved(c) & FS_RECEIVING_MOVED)) count += switch_at - 1 - fs_load_relaxed(&receiver->kernel_taken);
    return count;
}

/* Creates a memfd for all unread bytes. Called before any byte is taken, because taken bytes must be kept. */
static void prepare_unread_data(struct fs_connection *c, struct fs_unread_data *unread_data) {
    struct fs_receiver *receiver = fs_lock_recv(c);
    uint64_t room = count_unread(c, receiver);
    fs_unlock_recv(receiver);
    if (0 < room && room <= FS_UNREAD_DATA_MAX) {
        unread_data->fd = new_memfd(room);
        unread_data->room = unread_data->fd >= 0 ? room : 0;
    }
}

static enum fs_fallback_result fail_on_excess(struct fs_connection *c) {
    c->ring.violation = "more bytes of the stream than announced";
    return FS_FALLBACK_FAILED;
}

/* Appends `count` bytes to the unread data. Returns 0 if they do not fit. */
static int append(struct fs_unread_data *unread_data, const char *bytes, int64_t count) {
    int64_t done = 0;
    while (done < count) {
        int64_t part = fs_system.write(unread_data->fd, bytes + done, (size_t)(count - done));
        if (part <= 0) return 0;
        done += part;
    }
    unread_data->size += (uint64_t)count;
    return 1;
}

/* Shortens the memfd to the bytes in it. */
static void trim(struct fs_unread_data *unread_data) {
    while (unread_data->fd >= 0 && fs_system.ftruncate(unread_data->fd, (off_t)unread_data->size) < 0 && errno == EINTR) {}
}

/* As fs_has_stray_bytes, after BACK: a peer that had moved sends nothing before the fallback is settled. */
static int has_stray_bytes(struct fs_connection *c) {
    int waiting = 0;
    fs_system.ioctl(fs_fd(c), FIONREAD, &waiting);
    if (waiting <= 0 || fs_load_sc(&c->ring.rx->ready) != FS_LEFT || fs_load_sc(&c->ring.rx->settled) != FS_UNSETTLED) return 0;
    if (!fs_load_sc(&c->ring.rx->switch_at) || fs_load_relaxed(&c->ring.rx->doorbell) & FS_SHUT) return 0;
    c->ring.violation = "bytes were written past fastsock";
    return 1;
}

/* Takes all unread bytes, in the kernel's queue and in the ring, while FS_COLLECTING is set. Returns
 * FS_FELL_BACK if nothing is left outside the kernel's queue. */
static enum fs_fallback_result collect(struct fs_connection *c, struct fs_unread_data *unread_data, char *piece, size_t room,
                                       int64_t deadline) {
    int64_t got;
    int more = 1;
    struct fs_receiver *receiver;
    while (fs_load_sc(&c->ring.rx->switch_at) && !(fs_moved(c) & FS_RECEIVING_MOVED)) {
        receiver = fs_lock_recv(c);
        got = fs_recv_kernel(c, receiver, piece, room, 0);
        fs_unlock_recv(receiver);
        if (got == FS_VIOLATED) return FS_FALLBACK_FAILED;
        if (got > 0) {
            if (!append(unread_data, piece, got)) return fail_on_excess(c);
        } else if (got == -EAGAIN && fs_now() <= deadline) {
            fs_short_sleep();
        } else if (got != FS_MOVED_ON) {
            return FS_NEEDS_BRIDGE;
        }
    }
    while (more && fs_moved(c) & FS_RECEIVING_MOVED) {
        receiver = fs_lock_recv(c);
        more = fs_has_descriptor(&c->ring) || fs_load_relaxed(&receiver->taken);
        uint64_t before = fs_load_relaxed(&c->ring.count.bytes_received);
        got = more ? fs_ring_recv(&c->ring, receiver, piece, room, FS_CONSUME) : 0;
        if (got > 0 && fs_is_tapped(c))
            fs_tap_bytes(c, FS_TAP_RECEIVED, fs_now(), before, (struct fs_source){.data = piece}, (size_t)got);
        fs_unlock_recv(receiver);
        if (got < 0) return FS_FALLBACK_FAILED;
        if (got > 0 && !append(unread_data, piece, got)) return fail_on_excess(c);
    }
    receiver = fs_lock_recv(c);
    more = fs_stream_end(&c->ring, receiver) != FS_END_WRONG && !has_stray_bytes(c);
    if (more) fs_change_receiving(c, receiver, FS_EV_RECEIVE_BACK);
    fs_unlock_recv(receiver);
    if (!more) return FS_FALLBACK_FAILED;
    return FS_FELL_BACK;
}

/* Has the peer send the unread data again, and learns how much of it the kernel took. */
static enum fs_fallback_result give_back(struct fs_connection *c, struct fs_unread_data *unread_data) {
    int64_t now = fs_now(), deadline = now + FS_ANSWER_TIME;
    uint32_t answer = 0;
    int requested = 0;
    for (;;) {
        /* SYNC: returned - pairs with fs_settle_resent. */
        answer = fs_load_sc(&c->ring.rx->returned);
        if (answer) break;
        if (!requested) requested = fs_send_request(c, unread_data->fd) == 0;
        now = fs_now();
        int ended = fs_peer_ended(c);
        if (now > deadline || ended || fs_load_sc(&c->ring.rx->settled) == FS_REFUSED) {
            /* SYNC: settled - pairs with fs_settle_resending: fs_resend_unread has begun, or will not. */
            if (fs_settle_go_on(c) || fs_load_sc(&c->ring.rx->settled) != FS_RESENDING) {
                fs_wake_peer_all(c);
                return FS_NEEDS_BRIDGE;
            }
            answer = fs_load_sc(&c->ring.rx->returned);
            if (answer) break;
            unread_data->unknown = 1; /* killed or stopped within the one system call */
            return FS_NEEDS_BRIDGE;
        }
        fs_short_sleep();
    }
    unread_data->returned = answer - 1;
    if (unread_data->returned > unread_data->size) return fail_on_excess(c);
    return unread_data->returned == unread_data->size ? FS_FELL_BACK : FS_NEEDS_BRIDGE;
}

/* The peer may be falling back as well, and want bytes of ours again. Before anybody else writes to the descriptor, the peer gets them,
 * or is told that it is too late. */
static void let_peer_leave(struct fs_connection *c) {
    if (!fs_refuse_revocation(c, 1)) return; /* a sender that went on in the kernel may have refused before */
    int64_t deadline = fs_now() + FS_ANSWER_TIME;
    while (fs_load_sc(&c->ring.tx->settled) == FS_UNSETTLED && !fs_fallback_peer_ended(c) && fs_now() <= deadline) fs_short_sleep();
    /* Whatever ended the wait: unread data that comes from here on is not sent any more, as it would come after bytes written to the
     * descriptor. Unread data that is being sent is sent with the send lock held. */
    fs_settle_refused(c);
    struct fs_sender *sender = fs_lock_send(c);
    fs_unlock_send(sender);
}

int fs_fallback_is_running(const struct fs_connection *c) {
    return (fs_load_relaxed((fs_word32 *)&fs_own(c)->fallback.lock.word) & FUTEX_TID_MASK) == fs_current_thread(fs_own_pid)->thread;
}

/* Only another thread that falls back waits for this lock. It has no other lock, and could do nothing before the first one is done. */
struct fs_fallback_lock *fs_fallback_begin(struct fs_connection *c) {
    struct fs_side_locks both;
    if (!fs_lock_side_within(c, FS_PATIENCE, &both)) return NULL; /* the code below waits for each lock without a limit */
    fs_unlock_side(both);
    for (int patience = FS_PATIENCE;;) {
        struct fs_fallback_lock *fallback = &fs_own(c)->fallback;
        int result = fs_robust_trylock(&fallback->lock, fs_own_pid);
        if (result == FS_LOCK_BUSY) {
            if (patience-- == 0) return NULL;
            fs_wait_for_lock(&fallback->lock);
        } else if (fallback != &fs_own(c)->fallback) {
            fs_lock_abandon(&fallback->lock, result);
        } else {
            fs_lock_push(&fallback->lock);
            return fallback;
        }
    }
}

void fs_fallback_end(struct fs_connection *c, struct fs_fallback_lock *fallback, int whole) {
    if (whole && fs_load_relaxed(&fs_side_of_fallback(fallback)->moved) & FS_COLLECTING) {
        int result;
        struct fs_receiver *receiver = fs_lock_recv_of(fallback, &result);
        fs_change_receiving(c, receiver, FS_EV_COLLECTED);
        fs_lock_abandon(&receiver->lock, result);
    }
    fs_lock_pop(&fallback->lock);
    fs_robust_unlock(&fallback->lock);
    fs_wake_local(c);
}

/* Takes both directions back to the kernel. The receive lock is held for one check or one copy at a time; between two of them other
 * holders go on. Before FS_COLLECTING is set one of them may read as far as BACK, which is checked for; afterwards they do not receive.
 * `piece` has `room` bytes. */
static enum fs_fallback_result take_back(struct fs_connection *c, struct fs_unread_data *unread_data, char *piece, size_t room) {
    int end_known = 1;
    if (fs_has_fallen_back(c)) return FS_FELL_BACK;
    if (fs_is_collecting(c)) return FS_FALLBACK_FAILED; /* an earlier holder was killed in its fallback */
    int returns = fs_revoke_consent(c);
    struct fs_sender *sender = fs_lock_send(c);
    fs_send_fall_back(c, sender, 0);
    fs_unlock_send(sender);
    int attached = fs_load_sc(&c->ring.tx->ready) != FS_NOT_YET;
    if (attached && !(fs_moved(c) & FS_RECEIVING_BACK)) {
        end_known = await_end_of_ring(c);
        prepare_unread_data(c, unread_data);
    }
    struct fs_receiver *receiver = fs_lock_recv(c);
    if (fs_moved(c) & FS_RECEIVING_BACK) {
        /* The peer fell back first, or another holder has read up to its BACK. The peer may not be done, and may wait for us by now. */
        return stop_here(c, receiver, FS_FELL_BACK);
    }
    if (!attached || !end_known) {
        /* A peer that has not attached finds LEFT when it does, and has never moved. */
        if (!attached) fs_change_receiving(c, receiver, FS_EV_RECEIVE_BACK);
        return stop_here(c, receiver, attached ? FS_NEEDS_BRIDGE : FS_FELL_BACK);
    }
    uint64_t switch_at = fs_load_sc(&c->ring.rx->switch_at);
    /* A kernel whose socket is shut in both directions answers bytes with RST, and drops bytes that it has not sent yet. */
    returns = returns && (fs_load_sc(&c->ring.rx->fin) & FS_FIN_KIND) == FS_BACK && !fs_peer_ended(c) &&
              !(fs_load_relaxed(&c->ring.rx->doorbell) & FS_SHUT);
    if (!returns && (fs_has_descriptor(&c->ring) || fs_load_relaxed(&receiver->taken) ||
                     (switch_at && !fs_receives_on_ring(c) && switch_at - 1 != fs_load_relaxed(&receiver->kernel_taken))))
        return stop_here(c, receiver, FS_NEEDS_BRIDGE);
    if (count_unread(c, receiver) > unread_data->room) /* no memory or no descriptor for them: a bridge needs none */
        return stop_here(c, receiver, FS_NEEDS_BRIDGE);
    fs_change_receiving(c, receiver, FS_EV_COLLECT);
    fs_unlock_recv(receiver);
    enum fs_fallback_result outcome = collect(c, unread_data, piece, room, fs_now() + FS_ANSWER_TIME);
    trim(unread_data);
    if (outcome == FS_FELL_BACK && unread_data->size) return give_back(c, unread_data);
    fs_settle(c);
    return outcome;
}

/* A held side is released first: nothing holds its sends any more, and let_peer_leave has settled that with the peer. Both changes are
 * made with the send lock held. With that lock others check for both states, so that none of them sees one without the other. */
void fs_fallback_done(struct fs_connection *c, struct fs_fallback_lock *fallback) {
    struct fs_sender *sender = fs_lock_send(c);
    fs_change_sending(c, sender, FS_EV_RELEASE);
    fs_change_leaving(c, fallback, FS_EV_OUT);
    fs_unlock_send(sender);
}

enum fs_fallback_result fs_fallback(struct fs_connection *c, struct fs_fallback_lock *fallback, struct fs_unread_data *unread_data) {
    char small[SMALL], *piece = fs_system.malloc(PIECE);
    enum fs_fallback_result outcome = take_back(c, unread_data, piece ? piece : small, piece ? PIECE : SMALL);
    fs_system.free(piece);
    trim(unread_data); /* also if nothing was taken: a bridge reads the file to its end */
    if (outcome != FS_FALLBACK_FAILED && !fs_has_fallen_back(c)) {
        let_peer_leave(c);
        if (outcome == FS_FELL_BACK) fs_fallback_done(c, fallback);
    }
    return outcome;
}

/* If the peer was stopped within its one send of the unread data, the next bytes are unknown and the connection is given up. */
enum fs_fallback_result fs_fallback_collect(struct fs_connection *c, struct fs_fallback_lock *fallback,
                                            struct fs_unread_data *unread_data) {
    if (unread_data->unknown || !(fs_moved(c) & FS_RECEIVING_BACK)) return FS_FALLBACK_FAILED;
    /* Returned bytes are in our kernel's queue, in front of all others: they are taken out again. */
    int64_t deadline = fs_now() + FS_ANSWER_TIME;
    while (unread_data->returned) {
        int64_t got = fs_discard_kernel(c, unread_data->returned);
        if (got > 0) unread_data->returned -= (uint64_t)got;
        else if (got != -EAGAIN || fs_now() > deadline) return FS_FALLBACK_FAILED;
        else fs_short_sleep_unlocked();
    }
    return FS_FELL_BACK;
}
