/* A sender that gets no credits goes on in the kernel.
 *
 * The kernel's buffers hold some megabytes more than the ring. So there are programs that come through on TCP and would wait for
 * ever on the ring, or run out of time: two that both send before they receive, or a peer that receives only after something else
 * that the sender does behind its send. Nobody has to answer for this way, and what was posted is read first: it is a leaver's
 * own direction (leave.c), without its other one.
 *
 * Responsible for: when it is time for that. Never: waits, or decides who waits. */
#include "connection/relief.h"

#include "connection/leavers_peer.h"
#include "connection/ringing.h"
#include "connection/state.h"
#include "connection/turns.h"

/* `in_call`: the sender waits in a call, which counts its own time: it may have little of it. */
static int64_t look(struct fs_connection *c, struct fs_sender *sender, uint32_t waits, int64_t rest, int in_call) {
    int64_t now = fs_now(), patience = waits & (FS_WAITS | FS_SET_WAITS | FS_PLUGGED) ? FS_STUCK : FS_STARVED;
    /* (A descriptor in a spare part is long, and credited at its end.) */
    uint32_t credited = fs_load_relaxed(&sender->credited) + fs_load_relaxed(&c->vi.tx->within);
    /* A peer that has shut both directions reads what is there, and its kernel answers more with RST, where TCP lets
     * the sender wait. */
    if (fs_peer_doorbell(&c->vi) & (FS_SHUT | FS_GONE)) return FS_STARVED;
    if (!c->starved_since || c->starved_at != credited || (in_call && !c->starved_in_call)) {
        c->starved_since = now;
        c->starved_at = credited;
        c->starved_in_call = in_call;
    }
    int64_t waited = now - c->starved_since;
    if (rest >= 0) /* half of the time that it has, but for those that have next to none */
        patience = FS_MIN(patience, FS_MAX((waited + rest) / 2, FS_STUCK));
    if (waited < patience) return patience - waited;
    fs_go_back_sending(c, sender, 0);
    return 0;
}

int64_t fs_relieve(struct fs_connection *c, struct fs_sender *sender, uint32_t waits, int64_t rest) {
    return look(c, sender, waits, rest, 1);
}

int fs_relieve_between_calls(struct fs_connection *c, struct fs_sender *sender) {
    return look(c, sender, fs_peer_credit_wait(&c->vi), -1, 0) == 0;
}

int fs_relieve_alone(struct fs_connection *c) {
    struct fs_sender *sender = fs_take_turn_to_send(c, 0);
    if (!sender) return 1; /* somebody sends at this moment */
    int starves = fs_sends_on_ring(c) && !fs_is_gone(c) && !fs_writable(&c->vi, sender) &&
                  !fs_relieve_between_calls(c, sender);
    fs_end_turn_to_send(c, sender);
    return starves;
}
