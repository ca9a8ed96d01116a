/* Liveness of the peer, and the result of a receive and of a send after its end.
 *
 * The kernel connection shows liveness. Its stream from the peer ends when the peer dies, and also when the peer ends its stream. The
 * ring distinguishes the two: a peer that ends its stream posts FIN in the ring before its kernel sends FIN. So everybody reads the
 * kernel's state first and the ring's FIN second. (In the opposite order, a peer that ends its stream between the two reads would be
 * taken for dead.) Nobody reads the bytes that we send if
 *
 *   1. the peer said so (FS_GONE), or
 *   2. the kernel connection is over in both directions: reset, or closed by both ends, or
 *   3. the kernel's stream from the peer has ended and the ring holds no FIN.
 *
 * `lost` remembers 2 and 3. Bytes that the peer posted before its end are read all the same.
 *
 * Responsible for: this decision, and reporting its error once. Never: blocks, or takes a lock. */
#include "conn/peer_status.h"

#include "conn/state.h"
#include "ring/doorbell.h"

/* ---- the state of the kernel connection ------------------------------------------------------------------------- */

enum fs_liveness fs_liveness(struct fs_connection *c) {
    int shut = fs_load_relaxed(&c->is.shut_receiving) ? FS_SHUT_RECEIVING : 0;
    return c->stream->liveness(fs_fd(c), fs_load_relaxed(&c->is.shut_sending) ? shut | FS_SHUT_SENDING : shut);
}

int fs_watch_kernel(struct fs_connection *c, uint32_t events) {
    struct fs_sleepers receivers = {&c->ring.rx->futex, &c->recv_sleepers}, senders = {&c->ring.tx->credit_futex, &c->send_sleepers};
    return fs_is_watched(&c->watch, events) || fs_watch_add(&c->watch, fs_fd(c), events, receivers, senders, &c->slot);
}

int64_t fs_peek_kernel(struct fs_connection *c, void *into, size_t room, int flags) {
    int64_t got = fs_system.recv(fs_fd(c), into, room, flags | MSG_DONTWAIT);
    if (got == 0) {
        if (fs_liveness(c) == FS_ALIVE) return -EAGAIN;
        /* Bytes that came before the end came before this read. */
        got = fs_system.recv(fs_fd(c), into, room, flags | MSG_DONTWAIT);
    }
    return got >= 0 ? got : -errno;
}

int64_t fs_discard_kernel(struct fs_connection *c, size_t most) {
    static char nowhere[65536]; /* (of all threads: nobody reads it) */
    return fs_peek_kernel(c, c->stream->truncates ? NULL : nowhere, FS_MIN(most, sizeof nowhere), MSG_TRUNC);
}

int fs_kernel_position(struct fs_connection *c, uint64_t *taken) {
    return c->stream->find_position(fs_fd(c), fs_load_relaxed(&fs_own(c)->receiver.kernel_taken), taken);
}

int fs_peer_ended(struct fs_connection *c) { return fs_liveness(c) != FS_ALIVE; }

int fs_check_peer_lost(struct fs_connection *c) {
    if (!fs_peer_is_gone(c)) {
        enum fs_liveness liveness = fs_liveness(c);
        /* The ring's FIN after the kernel's, see above. */
        if (liveness == FS_OVER || (liveness == FS_STREAM_ENDED && !fs_load_sc(&c->ring.rx->fin))) fs_note_lost(c);
    }
    return fs_peer_is_gone(c);
}

int fs_eof_is_hidden(struct fs_connection *c) {
    int unread = 0;
    if (fs_eof_inconclusive(c)) return 1;
    return !fs_receives_on_ring(c) && fs_system.ioctl(fs_fd(c), FIONREAD, &unread) == 0 && unread > 0;
}

/* ---- the results of calls ---------------------------------------------------------------------------------------- */

/* A kernel that resets nothing tells an end once, by whichever call asks first, that the other one closed with bytes unread. Those in the
 * ring it does not see. */
static int owes_unread_error(struct fs_connection *c) {
    if (c->stream->resets || !fs_is_attached(c) || fs_load_relaxed(&c->is.death_told) || fs_moved(c) & FS_SENDING_BACK) return 0;
    return (fs_load_sc(&c->ring.rx->fin) & FS_FIN_KIND) == FS_RESET ||
           (fs_peer_has_unread(&c->ring) && c->stream->peer_state(fs_fd(c)) == FS_PEER_CLOSED);
}

int fs_take_error(struct fs_connection *c) {
    if (fs_load_relaxed(&c->is.pending_error)) return (int)-fs_take_pending_error(c);
    if (!owes_unread_error(c)) return 0;
    fs_note_death_told(c);
    return ECONNRESET;
}

/* The kernel connection has ended. TCP resets a connection when a process dies with bytes unread; here the bytes lay in the ring, where
 * the kernel did not see them. Returns -ECONNRESET once, then 0. */
static int64_t error_at_death(struct fs_connection *c) {
    if (fs_load_relaxed(&c->is.death_told) || fs_has_descriptor(&c->ring)) return 0;
    if (c->stream->resets ? !fs_left_unread(&c->ring) : !owes_unread_error(c)) return 0;
    fs_note_death_told(c);
    return -ECONNRESET;
}

/* The kernel does not know of bytes of ours that were left in the ring, and takes some more while a peer closes. One that resets nothing
 * refuses a send for what the peer has shut, and tells the error only to one that had begun before. On TCP the reset that
 * they cause is reported once, and before our own end is: -ECONNRESET, or -EPIPE if the peer had ended its stream before. */
int64_t fs_send_error_after_close(struct fs_connection *c, struct fs_sender *sender, int tries_again) {
    if (fs_is_broken(c) || fs_load_relaxed(&c->is.death_told)) return -EPIPE;
    if (fs_load_relaxed(&c->is.pending_error)) return fs_take_pending_error(c);
    if (!c->stream->resets) return tries_again ? -fs_take_error(c) : 0;
    if (!fs_peer_is_gone(c) || !fs_peer_has_unread(&c->ring) || fs_moved(c) & FS_SENDING_BACK) return 0;
    if ((fs_load_sc(&c->ring.tx->doorbell) & (FS_SHUT | FS_GONE)) == FS_SHUT)
        return 0; /* the peer has shut both its directions, and may live: its kernel answers */
    fs_note_death_told(c);
    enum fs_liveness liveness = fs_liveness(c);
    /* The kernel's error, if it has come, is this one, and POLLERR ends. If the kernel has no error any more, the program has read it by
     * SO_ERROR. (After our own FIN the end of the peer's stream is the end of the connection, and the kernel has no error.) */
    int error = fs_option(fs_fd(c), SOL_SOCKET, SO_ERROR);
    if (error) return -error;
    if (liveness == FS_OVER && !sender->fin_sent) return -EPIPE;
    return (fs_load_sc(&c->ring.rx->fin) & FS_FIN_KIND) == FS_FIN ? -EPIPE : -ECONNRESET;
}

int64_t fs_recv_at_end(struct fs_connection *c) {
    if (fs_liveness(c) == FS_ALIVE) return 0; /* after our own SHUT_RD */
    fs_check_peer_lost(c);
    return error_at_death(c);
}

/* A reset is reported once; afterwards the stream has ended. */
int64_t fs_recv_kernel_error(struct fs_connection *c, int error) {
    if (error == ECONNRESET && fs_load_relaxed(&c->is.death_told)) return 0;
    return fs_kernel_result_after_end(c, -error);
}

/* What the kernel reports here is the one error of the connection: no other follows. */
int64_t fs_kernel_result_after_end(struct fs_connection *c, int64_t result) {
    if (result < 0 && result != -EAGAIN && result != -EINTR && (result != -EPIPE || c->stream->resets)) fs_note_death_told(c);
    return result;
}

/* Returns true if this side has sent something through the kernel after the switch: it may have drawn the reset itself. */
static int may_have_drawn(struct fs_connection *c) {
    uint64_t switch_at = fs_load_sc(&c->ring.tx->switch_at);
    return !switch_at || c->stream->has_sent_behind(fs_fd(c), switch_at - 1);
}

/* After the peer's FIN a receive returns 0 whatever comes, on kernel TCP too. So an error shows that the connection was over before the
 * kernel had that FIN. A reset that this side has drawn says nothing: the peer had ended its stream, and its own close was still to
 * come. (A kernel that resets nothing tells of bytes that were unread at the close, whatever the peer ended before.) */
static int64_t error_before_fin(struct fs_connection *c, int error) {
    if (error == EAGAIN || error == EINTR) return 0;
    if ((error == ECONNRESET || error == EPIPE) && c->stream->resets && may_have_drawn(c)) return 0;
    return fs_recv_kernel_error(c, error);
}

int fs_has_stray_bytes(struct fs_connection *c, int64_t *end) {
    char byte;
    ssize_t got = fs_system.recv(fs_fd(c), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    *end = got < 0 ? error_before_fin(c, errno) : 0;
    if (got <= 0) return 0;
    /* What a peer that has gone back sends comes after BACK, and is its program's. A peer that takes this side for gone, or draws a reset,
     * uses the kernel too. */
    if ((fs_load_sc(&c->ring.rx->fin) & FS_FIN_KIND) == FS_BACK) return 0;
    if ((fs_load_sc(&c->ring.rx->doorbell) | fs_load_sc(&c->ring.tx->doorbell)) & (FS_SHUT | FS_GONE)) return 0;
    c->ring.violation = "bytes were written past fastsock";
    return 1;
}

int64_t fs_take_pending_error(struct fs_connection *c) {
    int64_t error = -(int64_t)fs_load_relaxed(&c->is.pending_error);
    fs_note_error(c, 0);
    return fs_kernel_result_after_end(c, error);
}
