/* How a connection begins and ends in this process.
 *
 * Responsible for: FIN or reset to the peer and to the kernel when the last holder closes; freeing its memory. Never: when that may be
 * done (state.c); the descriptor itself, which its owner closes; the front end's index of connections. */
#include "conn/open_close.h"

#include "conn/peer_status.h"
#include "conn/attach.h"
#include "conn/receive.h"
#include "conn/side_lock.h"
#include "conn/state.h"
#include "conn/tap.h"
#include "conn/wake.h"
#include "os/fd_reserve.h"
#include "conn/request.h"
#include "process/holder_count.h"
#include "process/fork_shared_slab.h"
#include "process/conn_table.h"
#include "ring/doorbell.h"

/* ---- the beginning ------------------------------------------------------------------------------------------- */

int fs_conn_open(struct fs_connection *c, int fd, uint64_t inode, int place) {
    size_t life = offsetof(struct fs_connection, is.life), behind = life + sizeof c->is.life;
    memset(c, 0, life); /* `life` keeps its value until the rest is complete: fs_note_not_open */
    memset((char *)c + behind, 0, sizeof *c - behind);
    fs_store_relaxed(&c->fd, (uint32_t)fd);
    c->stream = &fs_tcp_stream;
    c->place = place;
    c->inode = inode;
    fs_store_relaxed(&c->number, (uint32_t)fd);
    fs_forget_timeouts(c);
    fs_spin_stats_init(&c->stats);
    struct fs_shared_side *own = fs_side_new();
    fs_store_relaxed(&c->own, own);
    if (!own) return -ENOMEM; /* no call begins: a thread that finds the memory too late would use the side that it has not got */
    fs_note_open(c);
    return 0;
}

int fs_conn_identify(struct fs_connection *c) {
    if (!c->inode) c->inode = fs_socket_inode(fs_fd(c));
    return c->inode != 0;
}

void fs_conn_discard(struct fs_connection *c, struct fs_counters *totals) {
    fs_table_remove(&c->place);
    if (!fs_own(c)) return; /* before it had a side */
    if (!fs_has_ended(c)) {
        fs_add_counters(totals, &c->ring.count, 1);
        fs_unregister_holder(fs_own(c));
    }
    fs_release_side(c);
}

void fs_conn_inherit(struct fs_connection *c) {
    fs_note_inherited(c);
    fs_store_sc(&c->recv_sleepers, 0);
    fs_store_sc(&c->send_sleepers, 0);
    memset(&c->watch, 0, sizeof c->watch); /* the parent's control thread has it */
    c->recorded = 0;
    fs_store_relaxed(&c->asked_here, 0);
    c->asked_before = 0;
    fs_store_relaxed(&c->receive_checked, 0);
    c->send_checked = 0;
    fs_register_child(fs_own(c));
}

/* ---- the end ------------------------------------------------------------------------------------------------- */

/* Also for a connection that has no region yet: fs_attach takes the lock as well, so either the region is here by now or the connection
 * gets none. A FIN that only the kernel sends would look like a death on the ring. The peer sees our FIN in the ring, and may reset the
 * connection before the kernel's shutdown begins. */
int fs_conn_shutdown(struct fs_connection *c, int receiving, int sending) {
    struct fs_sender *sender = fs_lock_send_within(c, FS_PATIENCE);
    int was_established = 0;
    if (!sender) return -EINTR; /* a stopped process has the lock: the caller handles signals, and calls again */
    /* Relaxed: a call that runs beside this one may be the earlier one. */
    fs_note_shut(c, receiving, sending);
    if (fs_is_attached(c) && !fs_is_broken(c)) {
        was_established = fs_liveness(c) != FS_OVER;
        if (sending && was_established && !sender->fin_sent) {
            fs_post_fin(&c->ring, sender, FS_FIN); /* also before the switch */
            if (fs_is_tapped(c) && !(fs_moved(c) & FS_SENDING_BACK)) fs_tap_end(c, FS_TAP_FIN_SENT);
            fs_notify_receiver(c, sender, fs_peer_doorbell(&c->ring) & (FS_ASLEEP | FS_SET_ASLEEP));
        }
        if (fs_load_relaxed(&c->is.shut_receiving) && (fs_load_relaxed(&c->is.shut_sending) || !c->stream->resets)) {
            fs_publish_shut(c);
            fs_wake_peer_all(c);
        }
    }
    fs_unlock_send(sender);
    return was_established;
}

/* How this end's stream ends by its close. A connection that the kernel has ended sends no FIN: its peer gets the kernel's error, after
 * the bytes that came before. (A kernel that resets nothing ends none: it looks so where the peer has shut both directions.) */
static uint64_t end_by_close(struct fs_connection *c, int unread, int may_linger) {
    int is_alone = fs_peer_doorbell(&c->ring) & FS_GONE; /* nobody will read how it ended */
    int resets = c->stream->resets && ((may_linger && fs_has_linger_zero(fs_fd(c))) || (!is_alone && fs_liveness(c) == FS_OVER));
    return unread || resets ? FS_RESET : FS_FIN;
}

/* The holder that answered the peer's requests before does so again. Requests made here meanwhile are repeated or checked for. */
static void restore_request_token(struct fs_connection *c) {
    fs_word64 *asks = &c->ring.region->asks[c->ring.side];
    uint64_t here = fs_load_relaxed(&c->asked_here);
    if (here) fs_cas64(&c->ring.region->asks_else[c->ring.side], here, 0); /* nor instead of another */
    /* SYNC: token - pairs with fs_send_control_to_side: that holder's socket has been there all the time. */
    if (!c->asked_before || !fs_cas64(asks, here, c->asked_before)) return;
    fs_send_way(c, c->asked_before);
    fs_wake_local(c);
}

void fs_conn_close(struct fs_connection *c, int may_linger, struct fs_counters *totals) {
    fs_table_remove(&c->place);
    fs_watch_remove(&c->watch);
    int last = fs_release_unless_last(fs_own(c));
    if (!last && fs_is_attached(c)) restore_request_token(c);
    int whole = last && !fs_is_broken(c) && !fs_has_fallen_back(c) && !c->is.bridged;
    c->recyclable = whole && !c->is.own_inherited;
    int ends = FS_TAP_LEFT;
    if (fs_is_attached(c) && whole) {
        void *host_state = fs_host_unlock();
        struct fs_side_locks locks = fs_lock_side(c);
        /* GONE first, then the check: a sender that posts later than our check finds GONE. */
        fs_publish_gone(c);
        int unread = fs_has_unread(c, locks.receiver);
        uint64_t end = locks.sender->fin_sent ? FS_FIN : end_by_close(c, unread, may_linger);
        if (!locks.sender->fin_sent) fs_post_fin(&c->ring, locks.sender, end);
        ends = fs_moved(c) & FS_SENDING_BACK ? FS_TAP_LEFT : end == FS_RESET ? FS_TAP_RESET : FS_TAP_CLOSED;
        if (unread && c->stream->resets) fs_set_linger_zero(fs_fd(c));
        else if (fs_receives_on_ring(c)) fs_set_fin_taken(locks.receiver, FS_END_REPORTED);
        /* (Who waits for a fallback sleeps without saying so.) */
        uint32_t asleep = fs_moved(c) & (FS_SENDING_BACK | FS_RECEIVING_BACK) ? FS_WAKE_ALL
                              : fs_claim_receiver_wakeups(&c->ring, locks.sender) | fs_claim_sender_wakeups(&c->ring, locks.receiver);
        fs_unlock_side(locks);
        fs_wake_peer(c, asleep);
        fs_host_lock(host_state);
    }
    if (last && fs_is_tapped(c)) fs_tap_end(c, ends);
    fs_add_counters(totals, &c->ring.count, 1);
    if (last) fs_unregister_holder(fs_own(c));
}

int fs_close_last_fd(struct fs_connection *c, int fd) {
    if (fs_note_ended_alone(c)) return 1;
    /* (It is closed with the last call. Until then the program's next descriptors get the numbers that they would get on TCP.) */
    int size, spare, from = fs_reserved_range(&size);
    while ((spare = fs_system.fcntl(fd, F_DUPFD_CLOEXEC, from)) < 0 && from) from = 0;
    if (spare < 0) return fs_note_ended(c);
    fs_set_fd(c, spare);
    if (fs_fd(c) != spare || !fs_note_closing(c)) fs_system.close(spare); /* another thread has decided otherwise meanwhile */
    return 0;
}

void fs_forget_fd(struct fs_connection *c) {
    fs_set_fd(c, -1); /* its owner closes it now, and the number may mean another connection at once */
    fs_fd_change_notify();
}

void fs_release_side(struct fs_connection *c) {
    fs_watch_remove(&c->watch); /* a thread that was inside may have added a watch once more */
    if (fs_own(c) == &fs_ended_side) return;
    if (c->is.bridged && !c->is.bridged_inherited) fs_side_free(c->ring.own, fs_ends_size(c->ring.window));
    if (!c->is.own_inherited) fs_side_free(fs_own(c), fs_is_attached(c) ? fs_ends_size(c->ring.window) : 0);
    fs_store_relaxed(&c->own, &fs_ended_side);
    c->ring.own = &fs_ended_side;
}
