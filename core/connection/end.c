/* How a connection begins and ends in this process.
 *
 * Responsible for: what the peer and the kernel are told when the last holder lets go; how its memory is given
 * back. Never: when that may be done (state.c); the descriptor itself, which its owner closes; what the front end finds
 * connections by. */
#include "connection/end.h"

#include "connection/hear.h"
#include "connection/lifeline.h"
#include "connection/move.h"
#include "connection/receive.h"
#include "connection/ringing.h"
#include "connection/state.h"
#include "connection/turns.h"
#include "registry/holders.h"
#include "registry/memory.h"
#include "registry/roll.h"
#include "transport/tcp.h"

/* ---- the beginning ------------------------------------------------------------------------------------------- */

int fs_open_connection(struct fs_connection *c, int fd, uint64_t inode) {
    size_t life = offsetof(struct fs_connection, is.life), behind = life + sizeof c->is.life;
    memset(c, 0, life); /* (`life` stays what it is until the rest is whole: fs_note_not_open) */
    memset((char *)c + behind, 0, sizeof *c - behind);
    fs_store_relaxed(&c->fd, (uint32_t)fd);
    c->place = -1; /* 0 would be another's */
    c->inode = inode;
    fs_store_relaxed(&c->number, (uint32_t)fd);
    c->receive_timeout = c->send_timeout = FS_NOT_ASKED;
    fs_take_up_polling(&c->habit);
    struct fs_side *own = fs_new_side();
    fs_store_relaxed(&c->own, own);
    if (own) c->place = fs_enroll(inode, fd);
    fs_note_open(c);
    return own ? 0 : -ENOMEM;
}

int fs_identify(struct fs_connection *c) {
    if (!c->inode) c->inode = fs_socket_inode(fs_fd(c));
    return c->inode != 0;
}

void fs_discard(struct fs_connection *c, struct fs_counters *totals) {
    if (!fs_own(c)) return; /* before it had a place */
    fs_strike(&c->place);
    if (!fs_has_ended(c)) {
        fs_add_counters(totals, &c->vi.count, 1);
        fs_count_out(fs_own(c));
    }
    fs_free_own(c);
}

void fs_inherit(struct fs_connection *c) {
    fs_note_inherited(c);
    fs_store_sc(&c->recv_sleepers, 0);
    fs_store_sc(&c->send_sleepers, 0);
    fs_store_sc(&c->kernel_sleepers, 0);
    memset(&c->watch, 0, sizeof c->watch); /* the parent's connection thread has it */
    c->asked_here = c->asked_before = 0;
    c->receive_looked = c->receive_late = c->send_looked = 0;
    fs_note_child(fs_own(c));
}

/* ---- the end ------------------------------------------------------------------------------------------------- */

/* (Of a connection that has no region yet too: fs_attach takes the turn as well, so that either the region is here
 * by now, or the connection gets none. A FIN that only the kernel sends would be taken for a death on the ring. And
 * the peer hears of ours in the ring, and may have reset the connection before the kernel's shutdown begins.) */
int fs_shut(struct fs_connection *c, int receiving, int sending) {
    struct fs_sender *sender = fs_take_turn_to_send(c, FS_PATIENCE);
    int stood = 0;
    if (!sender) return -EINTR; /* a stopped process has the turn: the caller looks for signals, and tries again */
    /* (Relaxed: a call that runs beside this one may be the earlier one.) */
    fs_note_shut(c, receiving, sending);
    if (fs_is_attached(c) && !fs_is_broken(c)) {
        stood = fs_lifeline(c) != FS_OVER;
        if (sending && !sender->fin_sent) {
            fs_post_fin(&c->vi, sender, FS_FIN); /* also before the switch */
            fs_ring(c, sender, fs_peer_doorbell(&c->vi) & (FS_ASLEEP | FS_SET_ASLEEP));
        }
        if (sending) fs_send_owed(c, sender); /* behind the kernel's FIN nothing goes out, and an urgent byte would be missed */
        if (fs_load_relaxed(&c->is.shut_receiving) && fs_load_relaxed(&c->is.shut_sending)) {
            fs_say_shut(c);
            fs_tell_peer(c);
        }
    }
    fs_end_turn_to_send(c, sender);
    return stood;
}

/* Who answered the peer's requests before does so again. What was asked here meanwhile is asked again, or looked for. */
static void give_asks_back(struct fs_connection *c) {
    fs_word64 *asks = &c->vi.region->asks[c->vi.side];
    if (c->asked_here) fs_swap_if64(&c->vi.region->asks_else[c->vi.side], c->asked_here, 0); /* nor instead of another */
    /* SYNC: token - pairs with fs_ask_side: that one's socket has been there all the time. */
    if (c->asked_before && fs_swap_if64(asks, c->asked_here, c->asked_before)) fs_wake_own(c);
}

void fs_let_go_of(struct fs_connection *c, struct fs_counters *totals) {
    fs_strike(&c->place);
    fs_leave_watch(&c->watch);
    int last = fs_let_go_unless_last(fs_own(c));
    if (!last && fs_is_attached(c)) give_asks_back(c);
    int whole = last && !fs_is_broken(c) && !fs_is_out(c) && !c->is.bridged;
    c->recyclable = whole && !c->is.own_inherited;
    if (fs_is_attached(c) && whole) {
        void *given = fs_let_go();
        struct fs_both both = fs_lock_both(c);
        /* GONE first, then the look: a sender that posts later than our look finds GONE. */
        fs_say_gone(c);
        int unread = fs_left_unread_here(c, both.receiver);
        if (!both.sender->fin_sent) fs_post_fin(&c->vi, both.sender, unread || fs_lingers_zero(fs_fd(c)) ? FS_RESET : FS_FIN);
        if (unread) {
            fs_linger_zero(fs_fd(c));
        } else if (fs_receives_on_ring(c)) {
            fs_note_fin_taken(both.receiver, 1);
            fs_take_doorbell_bytes(c, both.receiver);
        }
        fs_end_both(c, both);
        fs_tell_peer(c);
        fs_take_again(given);
    }
    fs_add_counters(totals, &c->vi.count, 1);
    if (last) fs_count_out(fs_own(c));
}

void fs_abandon_number(struct fs_connection *c) {
    fs_point_to(c, -1); /* its owner closes it now, and the number may mean another connection at once */
    fs_tell_of_number();
}

void fs_free_own(struct fs_connection *c) {
    fs_leave_watch(&c->watch); /* (a thread that was inside may have joined once more) */
    if (fs_own(c) == &fs_nobody) return;
    if (c->is.bridged && !c->is.bridged_inherited) fs_free_side(c->vi.own, fs_ends_size(c->vi.window));
    if (!c->is.own_inherited) fs_free_side(fs_own(c), fs_is_attached(c) ? fs_ends_size(c->vi.window) : 0);
    fs_store_relaxed(&c->own, &fs_nobody);
    c->vi.own = &fs_nobody;
}
