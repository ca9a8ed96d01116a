/* Recovery after a process of this side was killed while it held a lock. ring/ring_recovery.h recovers the ring's own state; this file
 * recovers the kernel connection's. The kernel has counted every byte, so its counts show the steps that the dead process did not
 * record:
 *
 *     killed in                        leaves                                          recovered by
 *     fs_switch_sending                `switch_at` stored, not noted as moved          noting it
 *     fs_notify_receiver, post_urgent  one or two bytes counted and not sent           sending them
 *     a plug                           bytes sent and not counted                      counting them
 *     a post                           `ringing`, which readers wait for               clearing it
 *     fs_recv_kernel                   bytes read and not counted                      counting them
 *     fs_discard_doorbell_bytes        bytes counted as drained, perhaps not taken     `doorbell_debt`
 *                                      urgent bytes inline in the kernel               the option as the program set it
 *     fs_recv_fall_back                doorbell bytes not drained, the peer held       draining them, settling
 *     fs_conn_shutdown                 FIN in the ring and not in the kernel           shutting down there
 *     fs_answer_credit_wait            the peer's request cleared, the peer not woken  waking it: once too often is harmless
 *                                      the same, the peer's plug not taken             taking it
 *     fs_notify_receiver               the peer's ASLEEP cleared, the peer not woken   the same
 *
 * `sending_step` and FS_COLLECTING mark steps that cannot be recovered: the fallback moves bytes to where only the dead process knew of
 * them. The connection is dissolved then (for FS_COLLECTING by recv_beside_collector), so that nobody takes the rest for the whole
 * stream. Likewise if the kernel does not give its counts.
 *
 * Responsible for: the state that lock_direction and fs_trylock_side find under a dead holder's lock. Never: takes or releases a lock, or
 * waits. */
#include "conn/recovery.h"

#include "conn/doorbell_rx.h"
#include "conn/peer_status.h"
#include "conn/doorbell_tx.h"
#include "conn/settle.h"
#include "conn/state.h"
#include "ring/ring_recovery.h"
#include "transport/tcp.h"

static void dissolve(struct fs_connection *c) {
    fs_note_lost(c);
    fs_reset_connection(fs_fd(c));
    fs_wake_local(c);
}

int64_t fs_conn_reset(struct fs_connection *c) {
    fs_note_broken(c);
    dissolve(c);
    return -ECONNRESET;
}

void fs_break_connection(struct fs_connection *c, const char *why) {
    fs_note_fault(c, why);
    dissolve(c);
}

void fs_recover_sending(struct fs_connection *c, struct fs_sender *sender) {
    uint64_t sent, received;
    char state;
    if (!fs_is_attached(c) || fs_moved(c) & FS_OUT)
        return; /* the kernel's stream, which has its own locking */
    if (sender->sending_step) {
        fs_break_connection(c, "a process of this side was killed while it took the connection back to the kernel");
        return;
    }
    if (fs_recover_sender(&c->ring, sender) == FS_VIOLATION) {
        dissolve(c); /* the peer's fault */
        return;
    }
    uint64_t switch_at = fs_load_sc(&c->ring.tx->switch_at);
    if (switch_at) {
        fs_change_sending(c, sender, FS_EV_SEND_SWITCHED);
        if (!(fs_moved(c) & FS_SENDING_BACK) && fs_tcp_bytes(fs_fd(c), &state, &sent, &received)) {
            uint32_t rung = fs_load_relaxed(&c->ring.tx->rung);
            int32_t more = (int32_t)((uint32_t)(sent - (switch_at - 1)) - rung);
            if (more > 0) fs_store_sc(&c->ring.tx->rung, rung + (uint32_t)more);
            int64_t unsent = -(int64_t)more;
            /* Behind an urgent byte another one is counted at once. */
            fs_defer_doorbell_bytes(c, sender, unsent >= 0 && unsent <= (int64_t)sender->bytes_unsent + 2 ? (uint32_t)unsent : 0);
            if (sender->bytes_unsent) { /* the dead process may have been about to wait for room */
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
    /* A loop's transport reads the kernel without our locks, and accounts for it afterwards. */
    if (!fs_is_loop_driven(c) && !(moved & FS_RECEIVING_BACK && !switch_at) && !(fs_poll_events_now(fs_fd(c), 0) & POLLERR)) {
        /* A holder that takes bytes by position sets the option for that time. */
        fs_set_option(fs_fd(c), SOL_SOCKET, SO_OOBINLINE, c->ring.oob_inline);
        if (!fs_kernel_position(c, &taken, &mark)) {
            fs_break_connection(c, "a process of this side was killed while it read from the kernel");
            return;
        }
        if (!(moved & FS_RECEIVING_MOVED)) {
            fs_store_relaxed(&receiver->kernel_taken, taken);
        } else {
            uint32_t heard = fs_load_relaxed(&c->ring.rx->heard);
            /* An urgent byte in front of the switch, which is skipped, may be unread. */
            int64_t missing = (int32_t)(heard - (uint32_t)(FS_MAX(taken, switch_at - 1) - (switch_at - 1)));
            receiver->doorbell_debt = missing > 0 ? (uint32_t)missing : 0;
        }
    }
    if (moved & FS_RECEIVING_BACK && !(moved & FS_COLLECTING)) {
        fs_settle_locked(c, receiver);
    } else if (moved & FS_RECEIVING_MOVED) {
        fs_send_ack(&c->ring, receiver);
        if (!fs_is_loop_driven(c)) fs_drain_doorbell_bytes(c, receiver); /* does not take a plug whose request stands */
    }
    fs_wake_peer_all(c);
}
