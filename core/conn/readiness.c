/* Readiness of a connection on the ring, as the program's own select, poll and epoll ask for it.
 *
 * Responsible for: the answer that the kernel would give if the bytes had gone through it. A connection is readable exactly if a receive
 * returns, perhaps with an error. Never: waits for more than a lock, or decides whom to notify. */
#include "conn/readiness.h"

#include "conn/fallback_peer.h"
#include "conn/peer_status.h"
#include "conn/receive.h"
#include "conn/side_lock.h"
#include "conn/wake.h"

/* ns between questions for a peer whose end is no event, as its process is not the one that is watched */
#define PROBE_INTERVAL ((int64_t)400000000)

/* Returns true if a receive of one byte would return. Takes nothing: an error is reported once, and is left for the program. */
static int would_receive(struct fs_connection *c, int final) {
    char byte;
    int64_t got = fs_try_recv(c, &byte, 1, MSG_PEEK, final);
    if (got < 0 && got != -EAGAIN && got != FS_VIOLATED) fs_note_error(c, (uint32_t)-got);
    return got != -EAGAIN;
}

int fs_recv_ready(struct fs_connection *c) {
    int on_ring = fs_receives_on_ring(c);
    uint64_t fin;
    if (fs_load_relaxed(&c->is.pending_error)) return 1;
    /* The end stays, until the kernel reports it too. */
    if (on_ring && fs_load_relaxed(&fs_own(c)->receiver.fin_taken) == FS_END_REPORTED) return 1;
    if (!fs_ring_readable(&c->ring)) return 0;
    if (!on_ring && !fs_switch_reached(c)) return 0;
    /* After BACK there may be nothing; and a reset is reported by the kernel, as an error that no check may take away. */
    fin = fs_load_sc(&c->ring.rx->fin) & FS_FIN_KIND;
    if (on_ring && fs_has_descriptor(&c->ring)) return 1;
    if (!fs_has_descriptor(&c->ring) && fin != FS_BACK) return fin == FS_FIN;
    return would_receive(c, FS_NOT_FINAL);
}

int fs_recv_ready_after_kernel(struct fs_connection *c) { return would_receive(c, FS_FINAL); }

int fs_send_ready(struct fs_connection *c) {
    if (fs_load_relaxed(&c->is.shut_sending) && c->stream->shut_is_writable) return 1;
    struct fs_sender *sender = fs_lock_send_within(c, FS_PATIENCE);
    if (!sender) return 0; /* a stopped process has the lock, and no send would go through */
    int held = fs_send_is_held(c, sender) || fs_awaits_reset(c, sender);
    int room = held ? 0 : fs_peer_is_gone(c) || !fs_sends_on_ring(c) || fs_ring_writable(&c->ring, sender);
    fs_unlock_send(sender);
    return room;
}

int fs_look_for_death(struct fs_connection *c) {
    if (!fs_eof_inconclusive(c) || !fs_sends_on_ring(c) || fs_peer_is_gone(c) || !fs_peer_has_unread(&c->ring)) return 0;
    struct fs_sender *sender = fs_lock_send_within(c, FS_PATIENCE);
    if (!sender) return 0;
    int lost = !fs_peer_is_gone(c) && fs_probe_now_and_then(c, sender);
    fs_unlock_send(sender);
    return lost;
}

/* ---- before a sleep ------------------------------------------------------------------------------------------------- */

int fs_probe_for_set(struct fs_connection *c) {
    struct fs_sender *sender = fs_lock_send_within(c, FS_PATIENCE);
    if (!sender) return 1;
    int64_t now = fs_now();
    /* First the watch, then the question: whose process ends after that is an event. */
    fs_watch_kernel(c, FS_HANGUP_EVENTS);
    enum fs_process process = fs_watch_process(&c->watch, c->peer_process);
    uint32_t told = fs_load_sc(&c->watch.told);
    int lost = fs_peer_is_gone(c);
    if (process == FS_PROCESS_LIVES && !c->last_probe) c->last_probe = now; /* (its end is an event; an end of a child is none) */
    if (!lost && (process == FS_PROCESS_ENDED || told != c->send_checked || now - c->last_probe >= PROBE_INTERVAL)) {
        c->send_checked = told;
        c->last_probe = now;
        lost = fs_probe_peer(c, sender);
    }
    fs_unlock_send(sender);
    return lost;
}

int fs_arm_for_set(struct fs_connection *c, int receives, int sends) {
    int ready = 0;
    struct fs_receiver *receiver = fs_lock_recv_within(c, FS_PATIENCE);
    if (!receiver) return 1;
    fs_answer_credit_wait(c, receiver); /* the acknowledgements delayed so far */
    if (receives && fs_arm_receiver(&c->ring, FS_SET_ASLEEP)) ready = fs_receives_on_ring(c) || fs_switch_reached(c);
    fs_unlock_recv(receiver);
    if (sends) {
        struct fs_sender *sender = fs_lock_send_within(c, FS_PATIENCE);
        if (!sender) return 1;
        ready = fs_arm_sender(&c->ring, sender, FS_SET_WAITS) || (fs_peer_is_gone(c) && !fs_awaits_reset(c, sender)) || ready ||
                (!fs_sends_on_ring(c) && !fs_waits_for_fallback(c));
        fs_unlock_send(sender);
    }
    return ready;
}
