/* After a process of this side was killed in the middle of its turn: see ring/ring_recovery.h, which mends the ring's own
 * state. Here is what concerns the kernel connection. The kernel has counted every byte, so what the dead process did
 * not live to note can be told from its counts:
 *
 *     killed in              leaves                                        mended by
 *     fs_switch_sending      `switch_at` stored, not noted as moved        noting it
 *     fs_notify_receiver, post_urgent   one or two bytes counted, and not sent        sending them
 *     a plug                 bytes sent, and not counted                   counting them
 *     a post                 `ringing`, which readers wait for             clearing it
 *     fs_recv_kernel         bytes read, and not counted                   counting them
 *     fs_discard_doorbell_bytes             doorbell bytes heard, and perhaps not taken   `doorbell_debt`
 *                            urgent bytes in line in the kernel            the option as the program set it
 *     fs_recv_fall_back   doorbell bytes not heard, the peer held       hearing them, settling
 *     fs_conn_shutdown                FIN in the ring and not in the kernel         shutting down there
 *     fs_answer_credit_wait  the peer's wish cleared, the peer not woken   waking it: once too often does no harm
 *                            the same, the peer's plug not taken           taking it
 *     fs_notify_receiver                the peer's ASLEEP cleared, it was not woken   the same
 *
 * Not what `sending_step` and FS_COLLECTING mark: the way out moves bytes to where only the dead process knew of them.
 * The connection is dissolved then (the latter by fs_recv_beside_collector), so that nobody takes what is left for the whole
 * stream. The same where the kernel does not tell.
 *
 * Responsible for: what take_turn and fs_trylock_side find in an inherited turn. Never: takes or gives back a turn,
 * waits. */
#include "conn/recovery.h"

#include "conn/doorbell_rx.h"
#include "conn/fallback.h"
#include "conn/liveness.h"
#include "conn/doorbell_tx.h"
#include "conn/state.h"
#include "ring/ring_recovery.h"
#include "transport/tcp.h"

static void dissolve(struct fs_connection *c) {
    fs_note_lost(c);
    fs_reset_connection(fs_fd(c));
    fs_wake_local(c);
}

void fs_break_connection(struct fs_connection *c, const char *why) {
    fs_note_fault(c, why);
    dissolve(c);
}

void fs_recover_sending(struct fs_connection *c, struct fs_sender *sender) {
    uint64_t sent, received;
    char state;
    if (!fs_is_attached(c) || fs_moved(c) & FS_OUT)
        return; /* the kernel's stream, which has its own turns */
    if (sender->sending_step) {
        fs_break_connection(c, "a process of this side was killed while it took the connection back to the kernel");
        return;
    }
    if (fs_recover_sender(&c->ring, sender) == FS_VIOLATION) {
        dissolve(c); /* by the peer's fault */
        return;
    }
    uint64_t switch_at = fs_load_sc(&c->ring.tx->switch_at);
    if (switch_at) {
        fs_change_sending(c, sender, FS_EV_SEND_SWITCHED);
        if (!(fs_moved(c) & FS_SENDING_BACK) && fs_tcp_bytes(fs_fd(c), &state, &sent, &received)) {
            uint32_t rung = fs_load_relaxed(&c->ring.tx->rung);
            int32_t more = (int32_t)((uint32_t)(sent - (switch_at - 1)) - rung);
            if (more > 0) fs_store_sc(&c->ring.tx->rung, rung + (uint32_t)more);
            int64_t owed = -(int64_t)more;
            /* (Behind an urgent byte another one is counted at once.) */
            fs_defer_doorbell_bytes(c, sender, owed >= 0 && owed <= (int64_t)sender->bytes_unsent + 2 ? (uint32_t)owed : 0);
            if (sender->bytes_unsent) { /* the dead one may have been about to wait for room */
                sender->unsent_since = fs_now();
                c->late_sending = 1;
            }
        }
    }
    fs_end_notify(&c->ring, sender);
    fs_wake_peer_all(c);
    if ((fs_load_sc(&c->ring.tx->fin) & FS_FIN_KIND) == FS_FIN) fs_system.shutdown(fs_fd(c), SHUT_WR);
}

void fs_recover_receiving(struct fs_connection *c, struct fs_receiver *receiver) {
    uint64_t taken;
    int64_t mark;
    uint32_t moved = fs_moved(c);
    if (!fs_is_attached(c) || moved & FS_OUT) return;
    fs_recover_receiver(&c->ring, receiver);
    uint64_t switch_at = fs_load_sc(&c->ring.rx->switch_at);
    /* SYNC: rung - pairs with fs_count_ring and fs_count_plug. */
    if (moved & FS_RECEIVING_BACK) fs_store_sc(&c->ring.rx->heard, fs_load_acquire(&c->ring.rx->rung));
    /* A loop's transport reads the kernel without our turns, and accounts for it afterwards. */
    if (!fs_is_loop_driven(c) && !(moved & FS_RECEIVING_BACK && !switch_at) && !(fs_poll_events_now(fs_fd(c), 0) & POLLERR)) {
        /* (Whoever counts them by place has them in line for that time.) */
        fs_set_option(fs_fd(c), SOL_SOCKET, SO_OOBINLINE, c->ring.oob_inline);
        if (!fs_kernel_position(c, &taken, &mark)) {
            fs_break_connection(c, "a process of this side was killed while it read from the kernel");
            return;
        }
        if (!(moved & FS_RECEIVING_MOVED)) {
            fs_store_relaxed(&receiver->kernel_taken, taken);
        } else {
            uint32_t heard = fs_load_relaxed(&c->ring.rx->heard);
            /* (An urgent byte in front of the switch, which is passed over, may be unread.) */
            int64_t owed = (int32_t)(heard - (uint32_t)(FS_MAX(taken, switch_at - 1) - (switch_at - 1)));
            receiver->doorbell_debt = owed > 0 ? (uint32_t)owed : 0;
        }
    }
    if (moved & FS_RECEIVING_BACK && !(moved & FS_COLLECTING)) {
        fs_settle_locked(c, receiver);
    } else if (moved & FS_RECEIVING_MOVED) {
        fs_send_ack(&c->ring, receiver);
        if (!fs_is_loop_driven(c)) fs_drain_doorbell_bytes(c, receiver); /* (a plug whose wish stands is not taken by this) */
    }
    fs_wake_peer_all(c);
}
