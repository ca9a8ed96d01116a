/* Attaching a region to a connection, and handing out its descriptor.
 *
 * Attaching gives this side's consent and switches nothing: the peer's sends switch when they find the consent (send.c).
 *
 * Responsible for: bytes received and sent during the attachment are counted exactly once; a descriptor that somebody polls is readable
 * exactly while something waits. Never: maps the region, or decides whether a connection moves. */
#include "conn/attach.h"

#include "conn/doorbell_rx.h"
#include "conn/doorbell_tx.h"
#include "conn/event_slot.h"
#include "conn/state.h"
#include "conn/side_lock.h"
#include "process/fork_shared_slab.h"
#include "transport/options.h"
#include "transport/tcp.h"

#define EXPOSE_NS ((int64_t)20000000) /* time for the peer to send a doorbell byte for a descriptor that was handed out */

int fs_attach(struct fs_connection *c, void *memory, size_t size, int side, const struct fs_flow_options *flow,
              const char **wrong) {
    struct fs_ring_pair ring;
    *wrong = fs_ring_pair_attach(&ring, memory, size, side);
    if (*wrong) return -EINVAL;
    uint32_t most = FS_MAX(ring.window - 1, 1u);
    /* With a small buffer each message is acknowledged. */
    ring.ack_threshold = c->receive_limit ? 1 : FS_MIN(flow->ack_threshold, most);
    ring.combine_limit = flow->combine_limit;
    if (!flow->combine_when_full) ring.combine_from = (uint32_t)-1;
    ring.own = fs_own(c);
    uint64_t *ends = fs_slab_alloc(fs_ends_size(ring.window));
    if (!ends) return -ENOMEM;
    void *host_state = fs_host_unlock();
    uint64_t taken;
    /* With both locks: bytes that other threads receive and send meanwhile must be counted exactly once. */
    struct fs_side_locks locks = fs_lock_side(c);
    /* A thread that is about to shut the sending direction has found no region for its FIN: see fs_conn_shutdown. */
    int counted = fs_load_sc(&fs_own(c)->holders) == 1 && !fs_load_relaxed(&c->is.shut_sending) &&
                  fs_count_received(c, &taken);
    if (counted) {
        ring.oob_inline = fs_option(fs_fd(c), SOL_SOCKET, SO_OOBINLINE);
        locks.sender->ends = ends;
        fs_store_relaxed(&locks.receiver->kernel_taken, taken);
        fs_ring_pair_adopt(&c->ring, &ring);
        fs_set_send_limit(&c->ring, locks.sender, c->send_limit);
        memcpy(c->region_id, ring.region->id, 16);
        fs_store_relaxed(&c->nodelay, fs_option(fs_fd(c), IPPROTO_TCP, TCP_NODELAY) != 0);
        fs_note_attached(c);
        fs_freeze_recv_buffer(c);
        /* A thread that sleeps on the kernel's descriptor does not see the futex, so the peer must send doorbell bytes.
         * SYNC: exposed - pairs with fs_note_exposed. */
        if (fs_load_sc(&c->is.exposed) || fs_load_sc(&c->recv_sleepers)) fs_or_sc(&c->ring.rx->doorbell, FS_EXPOSED);
        fs_store_sc(&c->ring.rx->limit, c->receive_limit);
        fs_give_consent(c); /* after the doorbell state and the limit */
    }
    fs_unlock_side_quick(locks);
    fs_host_lock(host_state);
    if (!counted) {
        fs_slab_free(ends, fs_ends_size(ring.window));
        return -ENOTCONN;
    }
    return 0;
}

int fs_count_received(struct fs_connection *c, uint64_t *taken) {
    for (;;) {
        uint64_t sent, before, after, waiting;
        int64_t mark;
        char state;
        if (!fs_tcp_bytes(fs_fd(c), &state, &sent, &before) || !fs_kernel_queued(fs_fd(c), &waiting, &mark)) return 0;
        /* Nothing waits, and with both locks held nobody takes bytes: everything received by now was received, and taken, before. */
        if (!waiting && state == FS_TCP_ESTABLISHED) {
            *taken = before;
            return 1;
        }
        if (!fs_tcp_bytes(fs_fd(c), &state, &sent, &after) || state != FS_TCP_ESTABLISHED) return 0;
        if (before == after) { /* nothing came between the two counts */
            *taken = after - waiting;
            return 1;
        }
    }
}

/* Tells the peer on the ring that the descriptor is exposed. With the receive lock, with which a thread that goes to sleep reads `exposed`
 * and takes FS_EXPOSED back if it was not set. Returns 1 if this side reads the ring, 0 if not, -EINTR as fs_conn_shutdown. */
static int publish_exposed(struct fs_connection *c) {
    struct fs_receiver *receiver = fs_lock_recv_within(c, FS_PATIENCE);
    if (!receiver) return -EINTR;
    int on_ring = fs_is_attached(c); /* a bridge may have replaced the region meanwhile */
    if (on_ring) {
        /* SYNC: exposed - ordered by the receive lock, with fs_sleep. */
        fs_or_sc(&c->ring.rx->doorbell, FS_EXPOSED);
        on_ring = !(fs_moved(c) & FS_RECEIVING_BACK);
        if (fs_receives_on_ring(c) && !fs_has_descriptor(&c->ring))
            fs_drain_doorbell_bytes(c, receiver); /* a byte without data behind it, see fs_leave_probe_byte */
    }
    fs_unlock_recv(c, receiver);
    return on_ring;
}

int fs_expose(struct fs_connection *c) {
    if (fs_is_loop_driven(c) || fs_is_told_exposed(c)) return 0;
    fs_note_exposed(c);
    if (!fs_load_sc(&c->is.attached)) return 0;
    void *host_state = fs_host_unlock();
    /* Bytes posted earlier were posted without a doorbell byte. Only the peer can put one into our queue. */
    int lacks = publish_exposed(c);
    if (lacks > 0) lacks = fs_lacks_doorbell_byte(c);
    fs_host_lock(host_state);
    return lacks;
}

void fs_wait_for_doorbell_byte(struct fs_connection *c) {
    int64_t deadline = fs_now() + EXPOSE_NS;
    while (fs_lacks_doorbell_byte(c) && fs_now() < deadline) {
        /* The byte is an event, unless bytes of the kernel's part lie in front of it. */
        if (fs_poll_events(fs_fd(c), POLLIN, 1)) sched_yield();
        else fs_send_request(c, -1); /* the request may have found no room; one too many does no harm */
    }
}

/* Called while no thread of this process has a lock: nobody uses the number or adds a watch. */
static void change_number(struct fs_connection *c) {
    fs_watch_remove(&c->watch);
    fs_store_relaxed(&c->fd, fs_load_relaxed(&c->number));
}

/* Returns true if another process holds the lock. If its thread id is also one of ours (another PID namespace), the caller waits for it.
 */
static int held_by_other_process(uint32_t word) {
    uint32_t thread = word & FUTEX_TID_MASK;
    return thread && fs_system.tgkill((pid_t)fs_own_pid, (pid_t)thread, 0) < 0 && errno == ESRCH;
}

/* change_number while another process, which may be stopped, holds one of the locks or both. That process has descriptors of its own.
 * Returns 0 if this is not possible. */
static int change_number_beside_others(struct fs_connection *c) {
    struct fs_shared_side *own = fs_own(c);
    struct fs_robust_lock *const locks[2] = {&own->receiver.lock, &own->sender.lock};
    uint32_t words[2] = {0, 0};
    int results[2], possible = 1;
    for (int i = 0; i < 2; i++) {
        results[i] = fs_robust_trylock(locks[i], fs_own_pid);
        if (results[i] != FS_LOCK_BUSY) {
            fs_lock_push(locks[i]);
        } else {
            words[i] = fs_load_relaxed(&locks[i]->word);
            possible &= held_by_other_process(words[i]);
        }
    }
    if (possible && own == fs_own(c)) {
        change_number(c);
        /* SYNC: side lock - pairs with the swap in fs_robust_trylock. Adding 0 is a read that is also a store, after the store of the number:
         * a thread of ours that takes the lock later finds the new number, and one that took the lock before shows in the word. */
        for (int i = 0; i < 2; i++) possible &= results[i] != FS_LOCK_BUSY || fs_add_sc(&locks[i]->word, 0) == words[i];
    }
    for (int i = 1; i >= 0; i--) {
        if (results[i] == FS_LOCK_BUSY) continue;
        fs_lock_pop(locks[i]);
        fs_lock_abandon(locks[i], results[i]); /* the next holder recovers what a dead one left */
    }
    return possible && own == fs_own(c);
}

void fs_set_fd(struct fs_connection *c, int fd) {
    /* While the locks are waited for, another thread may set another number or end the connection. The last decision counts, whoever
     * acts on it. */
    fs_store_relaxed(&c->number, (uint32_t)fd);
    void *host_state = fs_host_unlock();
    struct fs_side_locks locks;
    for (;;) {
        if (fs_lock_side_within(c, FS_PATIENCE, &locks)) {
            change_number(c);
            fs_unlock_side(c, locks);
            break;
        }
        if (change_number_beside_others(c)) break;
    }
    fs_host_lock(host_state);
    fs_wake_local(c);
    if (fs_calls_inside(c) > 1) fs_fd_change_notify();
}
