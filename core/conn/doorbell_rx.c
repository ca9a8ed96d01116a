/* Doorbell bytes at the receiver, and answers to a sender that waits for credits.
 *
 * Responsible for: doorbell bytes are in the kernel's queue exactly while something waits in the ring; the count of outstanding
 * bytes; the size of the kernel's receive buffer. Never: waits with the lock held (late bytes are left for after the unlock,
 * fs_connection.late), or takes the program's bytes. */
#include "conn/doorbell_rx.h"

#include "conn/peer_status.h"
#include "conn/doorbell_tx.h"
#include "conn/state.h"
#include "transport/options.h"
#include "transport/tcp.h"

enum {
    DOORBELL_BUFFER = 262144,  /* limit of the receive buffer for doorbell bytes, bytes */
    RESTORED_BUFFER = 1 << 20, /* approximate receive buffer after the fallback, bytes */
    BYTE_CHECKS = 100,         /* checks for a doorbell byte before its reader gives up the lock */
    POST_CHECKS = 200,         /* checks for the end of a post */
};

static char junk[65536]; /* where doorbell bytes go */

/* ---- the kernel's receive buffer --------------------------------------------------------------------------- */

/* The kernel doubles the size that is set. */
static void limit_recv_buffer(struct fs_connection *c, int size) {
    fs_set_option(fs_fd(c), SOL_SOCKET, SO_RCVBUF, size / 2);
    c->recv_buffer_limited = 1;
    c->recv_buffer_grown = 0;
}

/* A buffer that has grown is not limited before the kernel's part of the stream is read: megabytes of that part may lie in the
 * peer's kernel, and would come through the small window in small pieces, each after the kernel's timer of 200 ms. */
void fs_freeze_recv_buffer(struct fs_connection *c) {
    if (c->receive_limit) return; /* the program has set it */
    int size = fs_option(fs_fd(c), SOL_SOCKET, SO_RCVBUF);
    if (size <= DOORBELL_BUFFER) limit_recv_buffer(c, size);
}

/* Without a limit the buffer would grow with plugs that are read fast, and so would the next plug; a size that was set does not
 * grow. A buffer that has grown shrinks once the window that it offered is used up. */
void fs_reserve_recv_buffer(struct fs_connection *c) {
    uint32_t heard = fs_load_relaxed(&c->ring.rx->heard);
    if (c->receive_limit || c->recv_buffer_limited) return;
    int size = fs_option(fs_fd(c), SOL_SOCKET, SO_RCVBUF);
    if (size <= DOORBELL_BUFFER || (c->recv_buffer_grown && heard - c->drained_when_grown > (uint32_t)size)) {
        limit_recv_buffer(c, FS_MIN(size, DOORBELL_BUFFER));
        return;
    }
    if (!c->recv_buffer_grown) {
        c->recv_buffer_grown = 1;
        c->drained_when_grown = heard;
    }
    fs_set_option(fs_fd(c), IPPROTO_TCP, TCP_WINDOW_CLAMP, DOORBELL_BUFFER / 4);
}

void fs_restore_recv_buffer(struct fs_connection *c) {
    c->recv_buffer_limited = 0;
    if (!c->receive_limit) {
        fs_set_option(fs_fd(c), SOL_SOCKET, SO_RCVBUF, RESTORED_BUFFER);
        fs_set_option(fs_fd(c), IPPROTO_TCP, TCP_WINDOW_CLAMP, RESTORED_BUFFER);
    }
}

/* ---- credits ------------------------------------------------------------------------------------------------ */

/* The plug is taken only once a third of the window is free, as POLLOUT means a third of the buffer in TCP. Otherwise each read
 * would cost a plug. */
void fs_answer_credit_wait(struct fs_connection *c, struct fs_receiver *receiver) {
    uint32_t keep = 0, consumed = fs_load_relaxed(&receiver->consumed);
    if (fs_peer_credit_wait(&c->ring) & FS_PLUGGED) {
        if (!c->plug_seen) {
            c->plug_seen = 1;
            c->plug_seen_at = consumed;
        }
        /* Nobody takes a plug before the kernel's part is read: the request stands until the ring is read. */
        if (!fs_receives_on_ring(c) || (fs_has_descriptor(&c->ring) && consumed - c->plug_seen_at < c->ring.window / 3))
            keep = FS_PLUGGED;
        else
            c->plug_seen = 0;
    }
    fs_send_ack(&c->ring, receiver);
    uint32_t wants = fs_claim_credit_wait(&c->ring, receiver, keep);
    fs_wake_peer(c, fs_sender_wakeups(wants));
    if (wants & FS_PLUGGED) fs_drain_doorbell_bytes(c, receiver);
}

/* ---- doorbell bytes ----------------------------------------------------------------------------------------- */

/* Returns true if bytes may still come after a read that got none. Only the end of the connection cancels outstanding bytes, not an
 * error that passes: bytes that come later would be taken for the program's. */
static int may_come(struct fs_connection *c, int64_t got) {
    return got == -EAGAIN || (got < 0 && fs_liveness(c) != FS_OVER);
}

/* Takes up to `count` doorbell bytes from the kernel. Returns as fs_peek_kernel. Nothing is written to `junk`, but the kernel
 * checks that the length fits. Not inlined: ThreadSanitizer is told to ignore this function only (tests/sanitizers/thread.supp). */
__attribute__((noinline)) static int64_t discard(struct fs_connection *c, uint32_t count) {
    return fs_peek_kernel(c, junk, FS_MIN((size_t)count, sizeof junk), MSG_TRUNC);
}

/* Called when a read got no outstanding byte. Returns true if another attempt may get some: the peer has counted them but not sent them
 * yet, as it is between the two steps or was interrupted there. Otherwise nothing comes any more. */
static int come_later(struct fs_connection *c, struct fs_receiver *receiver, int64_t got) {
    fs_cpu_relax();
    if (may_come(c, got)) return 1;
    if (got < 0) fs_note_error(c, (uint32_t)-got);
    receiver->doorbell_debt = 0;
    return 0;
}

/* Takes outstanding bytes (`doorbell_debt`) as far as they have come. For when no urgent byte is among them, so that each byte is
 * counted. */
static void take_counted(struct fs_connection *c, struct fs_receiver *receiver) {
    int tries = 0;
    while (receiver->doorbell_debt && tries < BYTE_CHECKS) {
        int64_t got = discard(c, receiver->doorbell_debt);
        if (got > 0) receiver->doorbell_debt -= (uint32_t)got;
        else tries += come_later(c, receiver, got);
    }
}

/* Takes outstanding bytes when urgent bytes are among them. recv skips urgent bytes, and where two of them meet so does the kernel.
 * So the bytes taken are not counted; the kernel is asked how far the queue was read. Returns 0 if the kernel cannot say: the rest
 * stays outstanding. */
static int take_by_position(struct fs_connection *c, struct fs_receiver *receiver) {
    uint64_t position;
    int64_t mark;
    int tries = 0;
    while (fs_kernel_position(c, &position, &mark)) {
        uint32_t missing =
            fs_load_relaxed(&c->ring.rx->heard) - (uint32_t)(position + 1 - fs_load_sc(&c->ring.rx->switch_at));
        receiver->doorbell_debt = (int32_t)missing > 0 ? missing : 0;
        if (!receiver->doorbell_debt || tries == BYTE_CHECKS) return 1;
        int in_line = fs_option(fs_fd(c), SOL_SOCKET, SO_OOBINLINE);
        fs_set_option(fs_fd(c), SOL_SOCKET, SO_OOBINLINE, 1); /* takes the urgent byte with the others */
        int64_t got = discard(c, missing);
        fs_set_option(fs_fd(c), SOL_SOCKET, SO_OOBINLINE, in_line);
        if (got > 0) receiver->doorbell_debt = missing - (uint32_t)got;
        else if (come_later(c, receiver, got)) tries += 1;
        else return 1;
    }
    return 0;
}

/* `doorbell_debt` counts the bytes until they are taken, so that any holder can take them. The unlock waits for those that do not
 * come at once. */
void fs_discard_doorbell_bytes(struct fs_connection *c, struct fs_receiver *receiver, uint64_t count) {
    int outstanding = receiver->doorbell_debt != 0;
    int urgent = fs_load_relaxed(&c->ring.rx->urgent) != 0;
    receiver->doorbell_debt += (uint32_t)count;
    if (!urgent || !take_by_position(c, receiver)) {
        if (urgent) fs_set_option(fs_fd(c), SOL_SOCKET, SO_OOBINLINE, 1);
        take_counted(c, receiver);
        if (urgent) fs_set_option(fs_fd(c), SOL_SOCKET, SO_OOBINLINE, c->ring.oob_inline);
    }
    if (receiver->doorbell_debt && !outstanding) c->late |= FS_LATE_BYTES; /* once is enough */
}

/* Returns true if the peer is in no post, or ends it within a few instructions. A peer that does not is in a plug, or was
 * interrupted, perhaps by us: then it needs a processor, and this side does not wait for that with the lock held. */
static int post_ends(struct fs_connection *c) {
    for (int tries = 0; tries < POST_CHECKS; tries++) {
        if (!fs_peer_is_notifying(&c->ring)) return 1;
        fs_cpu_relax();
    }
    return !fs_peer_is_notifying(&c->ring);
}

void fs_drain_without_waiting(struct fs_connection *c, struct fs_receiver *receiver) {
    if (fs_peer_credit_wait(&c->ring) & FS_PLUGGED && fs_has_descriptor(&c->ring))
        return; /* a plug, perhaps a new one: left for fs_answer_credit_wait */
    fs_discard_doorbell_bytes(c, receiver, fs_doorbell_bytes_to_drain(&c->ring, receiver));
    if (c->recv_buffer_grown) fs_reserve_recv_buffer(c);
}

void fs_drain_doorbell_bytes(struct fs_connection *c, struct fs_receiver *receiver) {
    if (!fs_receives_on_ring(c)) return; /* the program's bytes come first */
    if (!post_ends(c)) {
        c->late |= c->peer_late ? FS_LATE_AGAIN : FS_LATE_POST;
        return;
    }
    fs_drain_without_waiting(c, receiver);
}

void fs_drain_all_doorbell_bytes(struct fs_connection *c, struct fs_receiver *receiver) {
    /* SYNC: rung - pairs with fs_count_ring and fs_count_plug. */
    uint32_t rung = fs_load_acquire(&c->ring.rx->rung);
    uint32_t count = rung - fs_load_relaxed(&c->ring.rx->heard);
    fs_store_sc(&c->ring.rx->heard, rung);
    if (count || receiver->doorbell_debt) fs_discard_doorbell_bytes(c, receiver, count);
}

/* While the kernel's part of the stream is unread, POLLIN says nothing. The count of bytes sent shows then that a doorbell byte
 * comes behind that part. An urgent byte with nothing behind it does not count: it makes no descriptor readable. */
int fs_lacks_doorbell_byte(struct fs_connection *c) {
    if (!fs_ring_readable(&c->ring)) return 0;
    if (fs_receives_on_ring(c)) return !fs_poll_events_now(fs_fd(c), POLLIN);
    /* SYNC: rung - pairs with fs_count_urgent: a reader that sees the count also sees `urgent`. */
    uint32_t rung = fs_load_acquire(&c->ring.rx->rung);
    uint64_t urgent = fs_load_relaxed(&c->ring.rx->urgent);
    int byte_comes = rung != fs_load_relaxed(&c->ring.rx->heard) && !(urgent && (int32_t)((uint32_t)urgent - rung) >= 0);
    return !byte_comes && !fs_peer_ended(c);
}
