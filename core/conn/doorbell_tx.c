/* How a sender tells its peer: bells and event sets, doorbell bytes with those that are owed, and the plug that keeps POLLOUT away.
 *
 * Responsible for: that every byte that is counted as rung goes out, in its place, or is known to be owed. Never: waits
 * for room with the turn, or takes bytes of the peer (doorbell_rx.c). */
#include "conn/doorbell_tx.h"

#include "conn/event_slot.h"
#include "conn/send.h"
#include "conn/state.h"
#include "conn/side_lock.h"
#include "transport/options.h"
#include "transport/tcp.h"
#include "events/futex.h"

enum {
    PLUG = 131072,       /* bytes left unsent behind a full window that keep POLLOUT away */
    PLUG_PIECE = 16384,  /* of it at most in one segment, which has to fit into a window that opens again */
    PLUG_MOST = 1 << 26, /* bytes of one plug, the peer's window and all */
};
#define BYTE_NS ((int64_t)100000000) /* that doorbell bytes may find no room in the kernel */

static const char junk[PLUG_PIECE]; /* what doorbell bytes are made of */

/* ---- sleepers ----------------------------------------------------------------------------------------------- */

/* Without counting what it is for. System calls made. */
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
    if (!calls) return; /* its event set was awake, and has a hint */
    fs_count(&c->ring.count.doorbells_rung, 1);
    fs_count(&c->ring.count.system_calls, calls);
}

void fs_wake_peer_all(struct fs_connection *c) { wake(c, FS_WAKE_ALL); }

void fs_wake_local_threads(struct fs_connection *c) {
    fs_add_sc(&c->watch.told, 1); /* before the bells: a sleeper reads them in the other order */
    fs_futex_wake(&c->ring.rx->futex);
    fs_futex_wake(&c->ring.tx->credit_futex);
}

void fs_wake_local(struct fs_connection *c) {
    if (fs_is_attached(c)) fs_wake_local_threads(c);
    fs_wake_own_set(c);
}

/* ---- doorbell bytes ----------------------------------------------------------------------------------------- */

void fs_notify_receiver(struct fs_connection *c, struct fs_sender *sender, uint32_t doorbell) {
    /* (A descriptor that is shut in both directions is readable anyway, and its kernel would answer a byte with RST. So
     * is one whose peer, we, has ended its stream: our kernel takes no byte then, and one that was counted would never
     * come.) */
    if (doorbell & FS_EXPOSED && !(fs_peer_doorbell(&c->ring) & FS_SHUT) &&
        (fs_load_sc(&c->ring.tx->fin) & FS_FIN_KIND) != FS_FIN && fs_count_ring(&c->ring, sender))
        fs_send_doorbell_byte(c, sender);
    /* After the byte: whoever wakes up and drains the ring must find it, else it would lie there afterwards. */
    if (doorbell & (FS_ASLEEP | FS_SET_ASLEEP)) fs_wake_peer(c, fs_claim_receiver_wakeups(&c->ring, sender));
    if (doorbell & FS_GONE) {
        fs_note_lost(c);
        /* Draws the RST that data to a closed socket draws. (Counted: it may be about to close, and reads the byte.) */
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
    int owed = sender->bytes_unsent != 0;
    sender->bytes_unsent = count;
    if (!fs_send_deferred(c, sender) && !owed) { /* once is enough */
        sender->unsent_since = fs_now();
        c->late_sending = 1;
    }
}

/* Sends what is owed as far as there is room. 0: all of it, or -errno. */
static int64_t send_owed_now(struct fs_connection *c, struct fs_sender *sender) {
    while (sender->bytes_unsent) {
        int64_t part;
        uint64_t urgent = fs_load_relaxed(&c->ring.tx->urgent); /* its place among those that were counted */
        if (urgent && (uint32_t)urgent == fs_load_relaxed(&c->ring.tx->rung) - sender->bytes_unsent + 1)
            part = fs_send_kernel(c, (const char *)&sender->urgent_byte, 1, MSG_OOB | MSG_NOSIGNAL);
        else
            part = fs_send_kernel(c, junk, 1, MSG_NOSIGNAL);
        if (part < 0) return fs_is_transient((int)-part) ? -EAGAIN : part;
        sender->bytes_unsent -= 1;
    }
    return 0;
}

/* Makes the kernel's send buffer take a plug, and doorbell bytes behind it. (If it has grown larger by itself it stays
 * so: what the program sent before the switch may lie in it, and would leave no room in a smaller one.) */
static void widen(struct fs_connection *c) {
    uint32_t before = fs_load_relaxed(&fs_own(c)->send_buffer_before);
    if (!before) {
        before = (uint32_t)fs_option(fs_fd(c), SOL_SOCKET, SO_SNDBUF);
        fs_store_relaxed(&fs_own(c)->send_buffer_before, before);
    }
    if (before < FS_WIDENED) fs_set_option(fs_fd(c), SOL_SOCKET, SO_SNDBUF, FS_WIDENED / 2); /* (the kernel doubles it) */
}

/* What the peer has counted as taken, and is only about to take, does not hold them back: there is room behind the
 * largest plug, beyond the low-water mark. */
int fs_send_deferred(struct fs_connection *c, struct fs_sender *sender) {
    /* (Without its descriptor nothing of this process goes out any more; the bytes are another holder's to send.) */
    if (!sender->bytes_unsent || fs_fd(c) < 0) return 1;
    int64_t part = send_owed_now(c, sender);
    if (part == -EAGAIN) {
        widen(c);
        if (sender->plugs) fs_set_option(fs_fd(c), IPPROTO_TCP, TCP_NOTSENT_LOWAT, FS_ANY_UNSENT);
        part = send_owed_now(c, sender);
        if (sender->plugs) fs_set_option(fs_fd(c), IPPROTO_TCP, TCP_NOTSENT_LOWAT, FS_NONE_UNSENT);
    }
    if (part < 0 && part != -EAGAIN && fs_inode(fs_fd(c)) == c->inode)
        sender->bytes_unsent = 0; /* nothing goes out any more (what a stranger behind the number says means nothing) */
    return part != -EAGAIN;
}

int fs_nothing_deferred(struct fs_connection *c) {
    struct fs_sender *sender = fs_lock_send_within(c, FS_PATIENCE);
    if (!sender) return 0;
    int out = fs_send_deferred(c, sender);
    fs_unlock_send(c, sender);
    return out;
}

/* ---- what is late ------------------------------------------------------------------------------------------- */

int fs_must_flush(struct fs_connection *c, struct fs_sender *sender) {
    int late = c->late_sending;
    c->late_sending = 0;
    if (sender->bytes_unsent && !late && fs_now() - sender->unsent_since > 2 * BYTE_NS) {
        /* Whoever waited was killed or stopped, or somebody who was stopped had the turn for so long. */
        sender->unsent_since = fs_now();
        late = 1;
    }
    return late;
}

int fs_unlock_send(struct fs_connection *c, struct fs_sender *sender) {
    int late = fs_must_flush(c, sender);
    fs_unlock_send_quick(sender);
    return !late || fs_wait_for_kernel_room(c);
}

/* There is none if the system is short of memory, or the send buffer may not be widened. Without the turn: another
 * holder that sends meanwhile sends them, and one whose turn ends later waits if this one cannot (fs_must_flush). Of the
 * peer that takes none: one at a time is sent, and it has counted them as taken. */
int fs_wait_for_kernel_room(struct fs_connection *c) {
    int sent = 0, over = 0;
    uint32_t left = 0;
    int64_t deadline = fs_now() + 2 * BYTE_NS; /* from then on the one that has the turn knows that nobody waits */
    while (!sent && !over) {
        fs_short_sleep_unlocked();
        struct fs_sender *sender = fs_lock_send_within(c, FS_PATIENCE);
        if (!sender) {
            if (fs_now() >= deadline) return 1; /* a stopped process has the turn */
            continue;
        }
        left = FS_MAX(left, sender->bytes_unsent);
        sent = !fs_is_attached(c) || fs_send_deferred(c, sender);
        if (!sent && sender->bytes_unsent < left) {
            /* Some went out: the time begins anew. (Only here: by it others know that somebody waits.) */
            sender->unsent_since = fs_now();
            deadline = sender->unsent_since + 2 * BYTE_NS;
        }
        left = sender->bytes_unsent;
        if (!sent && fs_now() - sender->unsent_since >= BYTE_NS) {
            over = 1;
            c->ring.violation = "stopped reading its doorbell";
        }
        c->late_sending = 0;
        fs_unlock_send_quick(sender);
    }
    return sent;
}

/* ---- the plug ----------------------------------------------------------------------------------------------- */

/* The ring is full and somebody may wait for POLLOUT: fill the kernel's send buffer, which makes it false, until the
 * receiver returns credits and drains it. 0 if credits came meanwhile. After fs_begin_plug. */
static int plug(struct fs_connection *c, struct fs_sender *sender) {
    int unsent = 0, unacknowledged = 0;
    int64_t whole = 0;
    uint32_t limit = fs_load_relaxed(&c->ring.tx->limit);
    size_t piece = limit ? FS_MIN(FS_MAX(limit / 8, 256u), (uint32_t)PLUG_PIECE) : (size_t)PLUG_PIECE;
    int room = fs_send_deferred(c, sender); /* in front of it; if there is no room for that, POLLOUT is false */
    widen(c);
    if (sender->plugs) fs_set_option(fs_fd(c), IPPROTO_TCP, TCP_NOTSENT_LOWAT, FS_ANY_UNSENT);
    sender->plugs = 1;
    int most = fs_option(fs_fd(c), SOL_SOCKET, SO_SNDBUF) / 2; /* the rest is for doorbell bytes */
    /* A peer that takes the plug out as fast as it is put in must not keep us here. (One of ours returns
     * credits first.) */
    while (room && whole < PLUG_MOST && !fs_ring_writable(&c->ring, sender) &&
           fs_system.ioctl(fs_fd(c), SIOCOUTQNSD, &unsent) == 0 && unsent < PLUG &&
           fs_system.ioctl(fs_fd(c), SIOCOUTQ, &unacknowledged) == 0 && unacknowledged < most) {
        int64_t part = fs_send_kernel(c, junk, piece, MSG_NOSIGNAL | MSG_EOR);
        if (part <= 0) break;
        whole += part;
        fs_count_plug(&c->ring, sender, (uint32_t)part);
    }
    /* POLLOUT now needs an empty send queue. What the peer's window holds is acknowledged sooner or later; what
     * lies behind it stays unsent until the peer drains. */
    fs_set_option(fs_fd(c), IPPROTO_TCP, TCP_NOTSENT_LOWAT, FS_NONE_UNSENT);
    /* The kernel tells an edge of room only to who has found none: by a send that was refused, or here. */
    fs_poll_events_now(fs_fd(c), POLLOUT);
    return !fs_ring_writable(&c->ring, sender);
}

int fs_plug_if_full(struct fs_connection *c) {
    int full = 0;
    struct fs_sender *sender = fs_lock_send_within(c, FS_PATIENCE);
    if (!sender) return 1;
    if (fs_sends_on_ring(c) && !fs_peer_is_lost(c) && !fs_ring_writable(&c->ring, sender)) {
        full = 1;
        if (fs_is_exposed(c)) {
            full = fs_begin_plug(&c->ring, sender) && plug(c, sender);
            fs_end_notify(&c->ring, sender);
        }
    }
    fs_unlock_send(c, sender);
    return full;
}
