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

#include "conn/doorbell_tx.h"
#include "conn/state.h"
#include "transport/tcp.h"
#include "ring/doorbell.h"

#define CHECK_INTERVAL ((int64_t)1000000) /* ns between checks of the kernel connection while the peer acknowledges nothing */

/* ---- the state of the kernel connection ------------------------------------------------------------------------- */

enum fs_liveness fs_liveness(struct fs_connection *c) {
    uint64_t sent, received;
    char state;
    if (!fs_tcp_bytes(fs_fd(c), &state, &sent, &received) || state == FS_TCP_CLOSE) return FS_OVER;
    if (state == FS_TCP_CLOSE_WAIT || state == FS_TCP_LAST_ACK || state == FS_TCP_CLOSING || state == FS_TCP_TIME_WAIT)
        return FS_STREAM_ENDED;
    return FS_ALIVE;
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

/* The kernel counts the peer's FIN as a byte received. Returns true if it is counted in `received`, for a connection that is over: the
 * kernel no longer says if it ended with both FINs or with a reset. Without a reset a FIN has come. With a reset, a FIN has come if one
 * byte more was received than the peer has counted. (The opposite does not follow: the peer may have counted a byte that it could not
 * send any more. Nobody counts the bytes of a peer that has gone back to the kernel.) A reset that was already reported to a send is no
 * longer visible: then no FIN has come if the bytes not waiting are just those that this side has taken. Needs a region. */
static int fin_counted(struct fs_connection *c, uint64_t received, uint64_t waiting) {
    uint64_t switch_at = fs_load_sc(&c->ring.rx->switch_at);
    struct fs_shared_side *own = fs_own(c);
    if (!(fs_poll_events_now(fs_fd(c), 0) & POLLERR)) return received - waiting > fs_load_relaxed(&own->receiver.kernel_taken);
    /* SYNC: rung - pairs with fs_count_ring, whose byte comes behind the count or not at all. */
    return switch_at != 0 && fs_load_sc(&c->ring.rx->fin) >> 32 != FS_BACK >> 32 &&
           (int32_t)((uint32_t)(received + 1 - switch_at) - fs_load_acquire(&c->ring.rx->rung)) > 0;
}

int fs_kernel_position(struct fs_connection *c, uint64_t *taken, int64_t *mark) {
    uint64_t sent, before, after, waiting;
    char state;
    do {
        if (!fs_tcp_bytes(fs_fd(c), &state, &sent, &before) || !fs_kernel_queued(fs_fd(c), &waiting, mark)) return 0;
        if (!fs_tcp_bytes(fs_fd(c), &state, &sent, &after)) return 0;
    } while (before != after); /* until nothing came between the two counts */
    if (state == FS_TCP_CLOSE_WAIT || state == FS_TCP_LAST_ACK || state == FS_TCP_CLOSING ||
        state == FS_TCP_TIME_WAIT || (state == FS_TCP_CLOSE && fin_counted(c, after, waiting)))
        after -= 1; /* the FIN */
    *taken = after - waiting;
    return 1;
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

int fs_probe_peer(struct fs_connection *c, struct fs_sender *sender) {
    if (fs_check_peer_lost(c)) return 1;
    enum fs_peer_state state = fs_peer_socket_state(fs_fd(c));
    if (state == FS_PEER_CLOSED)
        fs_note_lost(c);
    else if (state == FS_PEER_UNKNOWN)
        fs_leave_probe_byte(c, sender);
    return fs_peer_is_gone(c);
}

/* Returns true if the kernel would not report the peer's death by the end of its stream: the stream has ended, or is not read here, or
 * its end may be behind bytes in the kernel's queue. */
static int eof_is_hidden(struct fs_connection *c) {
    int unread = 0;
    if (fs_eof_inconclusive(c)) return 1;
    return !fs_receives_on_ring(c) && fs_system.ioctl(fs_fd(c), FIONREAD, &unread) == 0 && unread > 0;
}

/* Called before a wait for credit from a peer whose end may be hidden. A doorbell byte in the peer's kernel queue makes the kernel
 * report its death at once: a process that dies with bytes unread resets the connection, as it would with our bytes unread on TCP; and
 * one that is dead already answers with RST. Not if the peer has shut both directions: its kernel would answer a byte with RST, where
 * TCP lets the sender wait. */
void fs_leave_probe_byte(struct fs_connection *c, struct fs_sender *sender) {
    if (fs_sends_on_ring(c) && eof_is_hidden(c) && !(fs_peer_doorbell(&c->ring) & (FS_SHUT | FS_GONE)) &&
        fs_all_drained(&c->ring, sender))
        fs_notify_receiver(c, sender, FS_EXPOSED);
}

void fs_watch_liveness(struct fs_connection *c, struct fs_sender *sender) {
    c->unacknowledged_sends += 1;
    if (c->unacknowledged_sends % 4) return;
    int64_t now = fs_now();
    if (now - c->last_check >= CHECK_INTERVAL) {
        c->last_check = now;
        fs_check_peer_lost(c);
    }
}

/* ---- the results of calls ---------------------------------------------------------------------------------------- */

/* The kernel connection has ended. TCP resets a connection when a process dies with bytes unread; here the bytes lay in the ring, where
 * the kernel did not see them. Returns -ECONNRESET once, then 0. */
static int64_t error_at_death(struct fs_connection *c) {
    if (fs_load_relaxed(&c->is.death_told) || fs_has_descriptor(&c->ring) || !fs_left_unread(&c->ring)) return 0;
    fs_note_death_told(c);
    return -ECONNRESET;
}

/* The kernel does not know of bytes of ours that were left in the ring, and takes some more while a peer closes. On TCP the reset that
 * they cause is reported once, and before our own end is: -ECONNRESET, or -EPIPE if the peer had ended its stream before. */
int64_t fs_send_error_after_close(struct fs_connection *c, struct fs_sender *sender) {
    if (fs_is_broken(c) || fs_load_relaxed(&c->is.death_told)) return -EPIPE;
    if (!fs_peer_is_gone(c) || fs_load_relaxed(&c->ring.tx->seen) == fs_load_own32(&sender->posted) || fs_moved(c) & FS_SENDING_BACK)
        return 0;
    if ((fs_load_sc(&c->ring.tx->doorbell) & (FS_SHUT | FS_GONE)) == FS_SHUT)
        return 0; /* the peer has shut both its directions, and may live: its kernel answers */
    fs_note_death_told(c);
    enum fs_liveness liveness = fs_liveness(c);
    /* The kernel's error, if it has come, is reported with this one, and POLLERR ends. If the kernel has no error any more, the program
     * has read it by SO_ERROR. (After our own FIN the end of the peer's stream is the end of the connection, and the kernel has no
     * error.) */
    if (fs_option(fs_fd(c), SOL_SOCKET, SO_ERROR) == 0 && liveness == FS_OVER && !sender->fin_sent) return -EPIPE;
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

/* A reset that the kernel reports here is not reported again. */
int64_t fs_kernel_result_after_end(struct fs_connection *c, int64_t result) {
    if (result == -ECONNRESET || result == -EPIPE) fs_note_death_told(c);
    return result;
}

/* How many of the bytes that the kernel has received the peer has not counted. */
static int32_t uncounted(struct fs_connection *c, uint64_t received, uint64_t switch_at) {
    /* SYNC: rung - pairs with fs_count_ring, whose byte comes behind the count or not at all. */
    return (int32_t)((uint32_t)(received + 1 - switch_at) - fs_load_acquire(&c->ring.rx->rung));
}

int fs_has_uncounted_bytes(struct fs_connection *c) {
    uint64_t sent, received, later, switch_at = fs_load_sc(&c->ring.rx->switch_at);
    char state;
    if (!switch_at || !fs_tcp_bytes(fs_fd(c), &state, &sent, &received) || uncounted(c, received, switch_at) <= 0) return 0;
    /* (The kernel tells of the state before it counts, and a FIN may come between the two: a second state is one behind the count.) */
    if (!fs_tcp_bytes(fs_fd(c), &state, &sent, &later) || state == FS_TCP_CLOSE || fs_load_relaxed(&fs_own(c)->receiver.fin_taken)) return 0;
    if (state == FS_TCP_CLOSE_WAIT || state == FS_TCP_LAST_ACK || state == FS_TCP_CLOSING || state == FS_TCP_TIME_WAIT) received -= 1; /* the FIN */
    /* What a peer that has gone back sends, or one that takes us for gone, is its program's. */
    if ((fs_load_sc(&c->ring.rx->fin) & FS_FIN_KIND) == FS_BACK || fs_load_sc(&c->ring.rx->doorbell) & (FS_SHUT | FS_GONE)) return 0;
    /* The bytes of a plug are sent before they are counted, and both before its mark goes: without the mark those in `received` are in
     * the count, which is read behind it. */
    if (fs_peer_is_notifying(&c->ring) || uncounted(c, received, switch_at) <= 0) return 0;
    c->ring.violation = "bytes were written past fastsock";
    return 1;
}

int64_t fs_take_pending_error(struct fs_connection *c) {
    int64_t error = -(int64_t)fs_load_relaxed(&c->is.pending_error);
    fs_note_error(c, 0);
    return fs_kernel_result_after_end(c, error);
}
