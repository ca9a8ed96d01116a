/* What a connection on the ring is ready for, as the program's own select, poll and epoll ask it.
 *
 * Responsible for: the answer that the kernel would give if the bytes had gone through it: what is said to be
 * readable makes a receive return, be it with an error, and nothing else is. Never: waits for more than a turn, or
 * says who is to be told. */
#include "conn/readiness.h"

#include "conn/fallback.h"
#include "conn/liveness.h"
#include "conn/receive.h"
#include "conn/side_lock.h"

/* Whether a receive of one byte would return, which takes nothing: an error that it gets is told once, and is the
 * program's. */
static int receives(struct fs_connection *c, int final) {
    char byte;
    int64_t got = fs_try_recv(c, &byte, 1, MSG_PEEK, final);
    if (got < 0 && got != -EAGAIN && got != FS_VIOLATED) fs_note_error(c, (uint32_t)-got);
    return got != -EAGAIN;
}

int fs_recv_ready(struct fs_connection *c) {
    int on_ring = fs_receives_on_ring(c);
    uint64_t fin;
    if (fs_load_relaxed(&c->is.pending_error)) return 1;
    /* The end stays, until the kernel tells it too. */
    if (on_ring && fs_load_relaxed(&fs_own(c)->receiver.fin_taken) == 1) return 1;
    if (!fs_ring_readable(&c->ring)) return 0;
    if (!on_ring && !fs_switch_reached(c)) return 0;
    /* An urgent byte is no part of the stream; behind BACK there may be nothing; and of a reset the kernel tells,
     * by an error that no look may take away. */
    fin = fs_load_sc(&c->ring.rx->fin) & FS_FIN_KIND;
    if (on_ring && fs_has_descriptor(&c->ring) && !fs_load_relaxed(&c->ring.rx->urgent)) return 1;
    if (!fs_has_descriptor(&c->ring) && fin != FS_BACK) return fin == FS_FIN;
    return receives(c, FS_NOT_FINAL);
}

int fs_recv_ready_after_kernel(struct fs_connection *c) { return receives(c, FS_FINAL); }

/* The peer has closed with bytes of ours unread: draws the RST that they would have drawn in the kernel, so that it
 * tells of an error. On the loopback it is there when this returns. (Not while a byte lies there unheard, which draws it as the
 * peer's kernel closes: a second one might come behind the RST, and take the error that is the program's.) */
static void draw_reset(struct fs_connection *c, struct fs_sender *sender) {
    if (fs_load_relaxed(&c->ring.tx->seen) == fs_load_own32(&sender->posted) || !fs_all_drained(&c->ring, sender)) return;
    if (fs_liveness(c) == FS_OVER) return;
    if (fs_load_sc(&c->ring.tx->doorbell) & FS_GONE) fs_notify_receiver(c, sender, FS_GONE);
}

int fs_send_ready(struct fs_connection *c) {
    if (fs_load_relaxed(&c->is.shut_sending)) return 1;
    if (fs_waits_for_fallback(c)) return 0;
    struct fs_sender *sender = fs_lock_send_within(c, FS_PATIENCE);
    if (!sender) return 0; /* a stopped process has it, and no send would go through */
    int gone = fs_peer_is_gone(c);
    if (gone && fs_sends_on_ring(c)) draw_reset(c, sender);
    int room = gone || !fs_sends_on_ring(c) || fs_ring_writable(&c->ring, sender);
    fs_unlock_send(c, sender);
    return room;
}
