/* Attaching a region to a connection, and changing its descriptor.
 *
 * Attaching gives this side's consent and switches nothing: the peer's sends switch when they find the consent (send.c).
 *
 * Responsible for: bytes received and sent during the attachment are counted exactly once; nobody sleeps on a number that means another
 * file. Never: maps the region, or decides whether a connection moves. */
#include "conn/attach.h"

#include "conn/side_lock.h"
#include "process/fork_shared_slab.h"

/* Sets the bytes taken out of the kernel's queue so far. Returns 0 if the kernel does not know. */
static int find_taken(struct fs_connection *c, uint64_t *taken) {
    *taken = fs_load_relaxed(&c->kernel_received);
    return c->counted || c->stream->count_taken(fs_fd(c), taken);
}

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
    /* A thread that is about to shut the sending direction has found no region for its FIN, and one that shuts the other direction none
     * for its word to the peer: see fs_conn_shutdown. And the marks of urgent bytes are the kernel's: see fs_try_send. */
    int counted = fs_load_sc(&fs_own(c)->holders) == 1 && !fs_load_relaxed(&c->is.shut_sending) && !fs_moved(c) &&
                  (c->stream->resets || !fs_load_relaxed(&c->is.shut_receiving)) &&
                  find_taken(c, &taken);
    if (counted) {
        locks.sender->ends = ends;
        fs_store_relaxed(&locks.receiver->kernel_taken, taken);
        fs_ring_pair_adopt(&c->ring, &ring);
        fs_set_send_limit(&c->ring, locks.sender, c->send_limit);
        memcpy(c->region_id, ring.region->id, 16);
        fs_note_attached(c);
        fs_store_sc(&c->ring.rx->limit, c->receive_limit);
        fs_give_consent(c); /* after the limit */
    }
    fs_unlock_side(locks);
    fs_host_lock(host_state);
    if (counted && fs_load_sc(&c->recv_sleepers)) fs_fd_change_notify(); /* who sleeps on the kernel's descriptor sees no futex */
    if (!counted) {
        fs_slab_free(ends, fs_ends_size(ring.window));
        return -ENOTCONN;
    }
    return 0;
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
        /* SYNC: side lock - pairs with the swap in fs_robust_trylock. Adding 0 is a read that is also a store, after the store of the
         * number: a thread of ours that takes the lock later finds the new number, and one that took the lock before shows in the word. */
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
            fs_unlock_side(locks);
            break;
        }
        if (change_number_beside_others(c)) break;
    }
    fs_host_lock(host_state);
    fs_wake_local(c);
    if (fs_calls_inside(c) > 1) fs_fd_change_notify();
}
