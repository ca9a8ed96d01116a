/* Recovery after a process of this side was killed while it held a lock. ring/ring_recovery.h recovers the ring's own state; this file
 * recovers the kernel connection's. The kernel has counted every byte, so its counts show the steps that the dead process did not
 * record:
 *
 *     killed in                        leaves                                          recovered by
 *     fs_switch_sending                `switch_at` stored, not noted as moved          noting it
 *     fs_recv_kernel                   bytes read and not counted                      counting them
 *     fs_recv_fall_back                the peer held                                   settling
 *     fs_conn_shutdown                 FIN in the ring and not in the kernel           shutting down there
 *     fs_answer_credit_wait            the peer's request cleared, the peer not woken  waking it: once too often is harmless
 *     fs_notify_receiver               the peer's ASLEEP cleared, the peer not woken   the same
 *
 * `sending_step` and FS_COLLECTING mark steps that cannot be recovered: the fallback moves bytes to where only the dead process knew of
 * them. The connection is dissolved then (for FS_COLLECTING by recv_beside_collector), so that nobody takes the rest for the whole
 * stream. Likewise if the kernel does not give its counts.
 *
 * Responsible for: the state that lock_direction and fs_trylock_side find under a dead holder's lock. Never: takes or releases a lock, or
 * waits. */
#include "conn/recovery.h"

#include "conn/peer_status.h"
#include "conn/settle.h"
#include "conn/state.h"
#include "conn/wake.h"
#include "ring/ring_recovery.h"

static void dissolve(struct fs_connection *c) {
    fs_note_lost(c);
    c->stream->reset(fs_fd(c));
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
    if (fs_load_sc(&c->ring.tx->switch_at)) fs_change_sending(c, sender, FS_EV_SEND_SWITCHED);
    fs_wake_peer_all(c);
    if ((fs_load_sc(&c->ring.tx->fin) & FS_FIN_KIND) == FS_FIN) fs_system.shutdown(fs_fd(c), SHUT_WR);
}

void fs_recover_receiving(struct fs_connection *c, struct fs_receiver *receiver) {
    uint64_t taken;
    uint32_t moved = fs_moved(c);
    if (!fs_is_attached(c) || moved & FS_OUT) return;
    fs_recover_receiver(&c->ring, receiver);
    /* A loop's transport reads the kernel without our locks, and accounts for it afterwards. */
    if (!fs_is_loop_driven(c) && !(moved & (FS_RECEIVING_MOVED | FS_RECEIVING_BACK)) && !(fs_poll_events_now(fs_fd(c), 0) & POLLERR)) {
        if (!fs_kernel_position(c, &taken)) {
            fs_break_connection(c, "a process of this side was killed while it read from the kernel");
            return;
        }
        fs_store_relaxed(&receiver->kernel_taken, taken);
    }
    if (moved & FS_RECEIVING_BACK && !(moved & FS_COLLECTING)) fs_settle(c);
    else if (moved & FS_RECEIVING_MOVED) fs_send_ack(&c->ring, receiver);
    fs_wake_peer_all(c);
}
