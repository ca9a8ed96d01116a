/* Waking the peer and this side's own sleepers: futexes and event sets.
 *
 * Responsible for: who has said that it sleeps is woken, once. Never: blocks, or decides whether to sleep (wait.c, ready/loop_wait.c). */
#include "conn/wake.h"

#include "conn/event_slot.h"
#include "conn/peer_status.h"
#include "conn/state.h"
#include "events/futex.h"

int64_t fs_send_kernel(struct fs_connection *c, const char *data, size_t length, int flags) {
    int64_t part = fs_system.send(fs_fd(c), data, length, flags | MSG_DONTWAIT);
    return part >= 0 ? part : -errno;
}

/* (In a function of its own: who sends on the ring needs no stack for it.) */
__attribute__((noinline)) int64_t fs_send_pieces_kernel(int fd, const struct iovec *v, size_t skip, size_t length, int flags) {
    struct iovec first[FS_PIECES];
    size_t count;
    if (fs_first_pieces(v, skip, length, first, &count) < length) flags &= ~MSG_OOB; /* the last byte is the urgent one */
    struct msghdr message = {.msg_iov = first, .msg_iovlen = count};
    int64_t part = fs_system.sendmsg(fd, &message, flags);
    return part >= 0 ? part : -errno;
}

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
    /* (Where no poll for room ends by a shutdown, who sleeps on the descriptor is told.) */
    if (fs_load_relaxed(&c->is.shut_sending) && !c->stream->shut_is_writable && fs_load_sc(&c->send_sleepers)) fs_fd_change_notify();
    fs_wake_own_set(c);
}

void fs_notify_receiver(struct fs_connection *c, struct fs_sender *sender, uint32_t doorbell) {
    if (doorbell & (FS_ASLEEP | FS_SET_ASLEEP)) fs_wake_peer(c, fs_claim_receiver_wakeups(&c->ring, sender));
    if (doorbell & FS_GONE) fs_draw_reset(c, sender);
}

void fs_draw_reset(struct fs_connection *c, struct fs_sender *sender) {
    fs_note_lost(c);
    /* (Where the peer's own reset has come first, this call is told of it, and the kernel tells it once.) */
    if (!sender->reset_drawn && c->stream->resets && fs_send_kernel(c, "", 1, MSG_NOSIGNAL) == -ECONNRESET) fs_note_error(c, ECONNRESET);
    sender->reset_drawn = 1;
}

int fs_awaits_reset(struct fs_connection *c, struct fs_sender *sender) {
    if (!(fs_load_sc(&c->ring.tx->doorbell) & FS_GONE) || !fs_sends_on_ring(c) || sender->fin_sent || fs_is_broken(c)) return 0;
    if (!fs_peer_has_unread(&c->ring) || fs_liveness(c) == FS_OVER) return 0;
    fs_draw_reset(c, sender);
    return fs_liveness(c) != FS_OVER; /* (on the loopback it is there at once where the peer's socket is closed) */
}

void fs_answer_credit_wait(struct fs_connection *c, struct fs_receiver *receiver) {
    fs_send_ack(&c->ring, receiver);
    fs_wake_peer(c, fs_claim_sender_wakeups(&c->ring, receiver));
}
