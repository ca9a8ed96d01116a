/* Waking the peer: futexes and event sets, doorbell bytes, and the plug that holds POLLOUT back.
 *
 * Responsible for: every doorbell byte that is counted is sent in its place, or is recorded as deferred. Never: waits for room with
 * the lock held, or takes bytes of the peer (doorbell_rx.c). */
#include "conn/doorbell_tx.h"

#include "conn/event_slot.h"
#include "conn/state.h"
#include "transport/options.h"
#include "transport/tcp.h"
#include "events/futex.h"

enum {
    PLUG = 131072,       /* bytes left unsent behind a full window that hold POLLOUT back */
    PLUG_PIECE = 16384,  /* most of it in one segment, which has to fit into a window that opens again */
    PLUG_MOST = 1 << 26, /* most bytes of one plug, with the peer's window */
};

static const char junk[PLUG_PIECE]; /* content of doorbell bytes */

/* ---- the kernel ----------------------------------------------------------------------------------------------- */

int64_t fs_send_kernel(struct fs_connection *c, const char *data, size_t length, int flags) {
    int64_t part = fs_system.send(fs_fd(c), data, length, flags | MSG_DONTWAIT);
    return part >= 0 ? part : -errno;
}

/* ---- sleepers ----------------------------------------------------------------------------------------------- */

/* Wakes without counting a notification. Returns the number of system calls. */
static uint32_t wake(struct fs_connection *c, uint32_t who) {
    uint32_t calls = 0;
    if (who & FS_WAKE_RECEIVERS) {
        fs_futex_wake(&c->ring.tx->futex);
        calls += 1;
    }
    if (who & FS_WAKE_SENDERS) {
        fs_futex_wake(&c->ring.rx->credit_futex);
        calls += 1;
    }
    if (who & FS_WAKE_SET) calls += fs_wake_peer_set(c);
    return calls;
}

void fs_wake_peer(struct fs_connection *c, uint32_t who) {
    if (!who) return;
    uint32_t calls = wake(c, who);
    if (!calls) return; /* the peer's event set was awake, and has a hint */
    fs_count(&c->ring.count.doorbells_rung, 1);
    fs_count(&c->ring.count.system_calls, calls);
}

void fs_wake_peer_all(struct fs_connection *c) { wake(c, FS_WAKE_ALL); }

void fs_wake_local_threads(struct fs_connection *c) {
    fs_add_sc(&c->watch.told, 1); /* before the futexes: a sleeper reads them in the opposite order */
    fs_futex_wake(&c->ring.rx->futex);
    fs_futex_wake(&c->ring.tx->credit_futex);
}

void fs_wake_local(struct fs_connection *c) {
    if (fs_is_attached(c)) fs_wake_local_threads(c);
    fs_wake_own_set(c);
}

/* ---- doorbell bytes ----------------------------------------------------------------------------------------- */

void fs_notify_receiver(struct fs_connection *c, struct fs_sender *sender, uint32_t doorbell) {
    /* A descriptor that is shut in both directions is readable anyway, and its kernel would answer a byte with RST. A descriptor
     * whose peer (this side) has ended its stream is readable too: our kernel takes no byte then, and a byte that was counted would
     * never come. */
    if (doorbell & FS_EXPOSED && !(fs_peer_doorbell(&c->ring) & FS_SHUT) &&
        (fs_load_sc(&c->ring.tx->fin) & FS_FIN_KIND) != FS_FIN && fs_count_ring(&c->ring, sender))
        fs_send_doorbell_byte(c, sender);
    /* After the byte: a receiver that wakes up and drains the ring must find it, or the byte would lie there afterwards. */
    if (doorbell & (FS_ASLEEP | FS_SET_ASLEEP)) fs_wake_peer(c, fs_claim_receiver_wakeups(&c->ring, sender));
    if (doorbell & FS_GONE) {
        fs_note_lost(c);
        /* Draws the RST that data to a closed socket draws. Counted: the peer may be about to close, and reads the byte. */
        fs_store_sc(&c->ring.tx->rung, fs_load_relaxed(&c->ring.tx->rung) + 1);
        fs_send_kernel(c, junk, 1, MSG_NOSIGNAL);
    }
}

void fs_send_doorbell_byte(struct fs_connection *c, struct fs_sender *sender) {
    fs_count(&c->ring.count.doorbells_rung, 1);
    fs_count(&c->ring.count.system_calls, 1);
    fs_defer_doorbell_bytes(c, sender, sender->bytes_unsent + 1);
}

void fs_defer_doorbell_bytes(struct fs_connection *c, struct fs_sender *sender, uint32_t count) {
    int was_deferred = sender->bytes_unsent != 0;
    sender->bytes_unsent = count;
    if (!fs_send_deferred(c, sender) && !was_deferred) { /* once is enough */
        sender->unsent_since = fs_now();
        c->late_sending = 1;
    }
}

/* Sends deferred bytes as far as there is room. Returns 0 if all are sent, or -errno. */
static int64_t send_deferred_now(struct fs_connection *c, struct fs_sender *sender) {
    while (sender->bytes_unsent) {
        int64_t part;
        uint64_t urgent = fs_load_relaxed(&c->ring.tx->urgent); /* its place among the bytes that were counted */
        if (urgent && (uint32_t)urgent == fs_load_relaxed(&c->ring.tx->rung) - sender->bytes_unsent + 1)
            part = fs_send_kernel(c, (const char *)&sender->urgent_byte, 1, MSG_OOB | MSG_NOSIGNAL);
        else
            part = fs_send_kernel(c, junk, 1, MSG_NOSIGNAL);
        if (part < 0) return fs_is_transient((int)-part) ? -EAGAIN : part;
        sender->bytes_unsent -= 1;
    }
    return 0;
}

/* Makes the kernel's send buffer large enough for a plug and doorbell bytes behind it. A buffer that has grown by itself beyond
 * that stays: bytes sent before the switch may lie in it, and would leave no room in a smaller one. */
static void widen_send_buffer(struct fs_connection *c) {
    uint32_t before = fs_load_relaxed(&fs_own(c)->send_buffer_before);
    if (!before) {
        before = (uint32_t)fs_option(fs_fd(c), SOL_SOCKET, SO_SNDBUF);
        fs_store_relaxed(&fs_own(c)->send_buffer_before, before);
    }
    if (before < FS_WIDENED) fs_set_option(fs_fd(c), SOL_SOCKET, SO_SNDBUF, FS_WIDENED / 2); /* the kernel doubles it */
}

/* Bytes that the peer has counted as taken, and is only about to take, do not block these: there is room behind the largest plug,
 * beyond the low-water mark. */
int fs_send_deferred(struct fs_connection *c, struct fs_sender *sender) {
    /* Without its descriptor this process sends nothing any more; another holder sends the bytes. */
    if (!sender->bytes_unsent || fs_fd(c) < 0) return 1;
    int64_t part = send_deferred_now(c, sender);
    if (part == -EAGAIN) {
        widen_send_buffer(c);
        if (sender->plugs) fs_set_option(fs_fd(c), IPPROTO_TCP, TCP_NOTSENT_LOWAT, FS_ANY_UNSENT);
        part = send_deferred_now(c, sender);
        if (sender->plugs) fs_set_option(fs_fd(c), IPPROTO_TCP, TCP_NOTSENT_LOWAT, FS_NONE_UNSENT);
    }
    if (part < 0 && part != -EAGAIN && fs_inode(fs_fd(c)) == c->inode)
        sender->bytes_unsent = 0; /* nothing is sent any more (an error from another socket that has the number now means nothing) */
    return part != -EAGAIN;
}

int64_t fs_send_kernel_locked(struct fs_connection *c, struct fs_sender *sender, const char *data, size_t length, int flags) {
    return fs_send_deferred(c, sender) ? fs_send_kernel(c, data, length, flags) : -EAGAIN;
}

/* ---- the plug ----------------------------------------------------------------------------------------------- */

/* Called between fs_begin_plug and fs_end_notify. Returns 0 if credits came meanwhile. */
static int plug(struct fs_connection *c, struct fs_sender *sender) {
    int unsent = 0, unacknowledged = 0;
    int64_t whole = 0;
    uint32_t limit = fs_load_relaxed(&c->ring.tx->limit);
    size_t piece = limit ? FS_MIN(FS_MAX(limit / 8, 256u), (uint32_t)PLUG_PIECE) : (size_t)PLUG_PIECE;
    int room = fs_send_deferred(c, sender); /* in front of the plug; without room for these POLLOUT is false already */
    widen_send_buffer(c);
    if (sender->plugs) fs_set_option(fs_fd(c), IPPROTO_TCP, TCP_NOTSENT_LOWAT, FS_ANY_UNSENT);
    sender->plugs = 1;
    int most = fs_option(fs_fd(c), SOL_SOCKET, SO_SNDBUF) / 2; /* the rest is for doorbell bytes */
    /* A peer that takes the plug out as fast as it is put in must not keep us here. (One of ours returns credits first.) */
    while (room && whole < PLUG_MOST && !fs_ring_writable(&c->ring, sender) &&
           fs_system.ioctl(fs_fd(c), SIOCOUTQNSD, &unsent) == 0 && unsent < PLUG &&
           fs_system.ioctl(fs_fd(c), SIOCOUTQ, &unacknowledged) == 0 && unacknowledged < most) {
        int64_t part = fs_send_kernel(c, junk, piece, MSG_NOSIGNAL | MSG_EOR);
        if (part <= 0) break;
        whole += part;
        fs_count_plug(&c->ring, sender, (uint32_t)part);
    }
    /* POLLOUT now needs an empty send queue. The part within the peer's window is acknowledged sooner or later; the part behind it
     * stays unsent until the peer drains. */
    fs_set_option(fs_fd(c), IPPROTO_TCP, TCP_NOTSENT_LOWAT, FS_NONE_UNSENT);
    /* The kernel reports an edge of room only to a caller that has found none: by a send that was refused, or here. */
    fs_poll_events_now(fs_fd(c), POLLOUT);
    return !fs_ring_writable(&c->ring, sender);
}

int fs_plug(struct fs_connection *c, struct fs_sender *sender) {
    int full = fs_begin_plug(&c->ring, sender) && plug(c, sender);
    fs_end_notify(&c->ring, sender);
    return full;
}
