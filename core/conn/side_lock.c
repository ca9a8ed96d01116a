/* The two locks of one side of a connection, in `struct fs_shared_side` (ring/robust_lock.h), and what is late when they are released.
 *
 * Responsible for: whoever has a `struct fs_sender` or a `struct fs_receiver` holds its lock (no other file makes such a pointer); the
 * lock is of the side that the connection has; state of a dead holder is recovered first; what the holder had to leave is waited for
 * after the unlock. Never: does anything else with a lock held. */
#include "conn/side_lock.h"

#include "conn/doorbell_rx.h"
#include "conn/recovery.h"
#include "conn/doorbell_tx.h"
#include "conn/settle.h"
#include "conn/state.h"

enum { LATE_BYTES_MS = 10 }; /* how long to wait for late doorbell bytes, milliseconds */
#define POST_NS ((int64_t)5000000)     /* how long a sender may stay in a post that it sends a doorbell byte for */
#define LATE_POST_NS ((int64_t)100000) /* the same for a sender that was late before */
#define BYTE_NS ((int64_t)100000000)   /* how long doorbell bytes may find no room in the kernel */

/* ---- waiting without the host lock ----------------------------------------------------------------------------- */

void fs_wait_for_lock(const struct fs_robust_lock *lock) {
    void *host_state = fs_host_unlock();
    fs_lock_wait(lock);
    fs_host_lock(host_state);
}

/* Waits up to a millisecond for a byte. */
static void wait_for_byte(int fd) {
    void *host_state = fs_host_unlock();
    fs_poll_events(fd, POLLIN, 1);
    fs_host_lock(host_state);
}

/* Lets others run while the peer's `ringing` is set, until `deadline` (monotonic ns) at most. */
static void wait_for_post(struct fs_ring_pair *ring, int64_t deadline) {
    void *host_state = fs_host_unlock();
    while (fs_peer_is_notifying(ring) && fs_now() < deadline) sched_yield();
    fs_host_lock(host_state);
}

/* ---- one lock --------------------------------------------------------------------------------------------------- */

void fs_lock_abandon(struct fs_robust_lock *lock, int result) {
    if (result == FS_LOCK_OWNER_DIED)
        fs_unlock_owner_died(lock);
    else
        fs_robust_unlock(lock);
}

/* Returns the side whose lock was taken, or NULL. */
static inline struct fs_shared_side *lock_direction(struct fs_connection *c, int sends, int patience) {
    for (;;) {
        struct fs_shared_side *own = fs_own(c);
        struct fs_robust_lock *lock = sends ? &own->sender.lock : &own->receiver.lock;
        int result = fs_robust_trylock(lock, fs_own_pid);
        if (result == FS_LOCK_BUSY) {
            if (patience == 0) return NULL;
            patience -= 1;
            fs_wait_for_lock(lock);
        } else if (own != fs_own(c)) {
            fs_lock_abandon(lock, result);
        } else {
            if (result == FS_LOCK_OWNER_DIED) {
                if (sends)
                    fs_recover_sending(c, &own->sender);
                else
                    fs_recover_receiving(c, &own->receiver);
            }
            return own;
        }
    }
}

struct fs_sender *fs_lock_send_within(struct fs_connection *c, int patience) {
    struct fs_shared_side *own = lock_direction(c, 1, patience);
    return own ? &own->sender : NULL;
}

struct fs_receiver *fs_lock_recv_within(struct fs_connection *c, int patience) {
    struct fs_shared_side *own = lock_direction(c, 0, patience);
    return own ? &own->receiver : NULL;
}

struct fs_sender *fs_lock_send(struct fs_connection *c) { return fs_lock_send_within(c, -1); }

struct fs_receiver *fs_lock_recv(struct fs_connection *c) { return fs_lock_recv_within(c, -1); }

struct fs_receiver *fs_lock_recv_of(struct fs_fallback_lock *fallback, int *result) {
    struct fs_receiver *receiver = &fs_side_of_fallback(fallback)->receiver;
    *result = fs_robust_lock(&receiver->lock, fs_own_pid);
    return receiver;
}

/* ---- late work, after the lock is released --------------------------------------------------------------------------- */

/* Takes the doorbell bytes that were left in the kernel's queue (FS_LATE_POST) once the peer's post has ended, or after `patience`
 * nanoseconds. Returns what is late then. Called with no lock. */
static int await_post(struct fs_connection *c, int64_t patience) {
    struct fs_receiver *receiver;
    int64_t deadline = fs_now() + patience;
    for (;;) {
        wait_for_post(&c->ring, deadline);
        receiver = fs_lock_recv_within(c, FS_PATIENCE);
        if (!receiver) return 0; /* a stopped process has the lock: the next holder takes them */
        if (!fs_is_attached(c) || !fs_receives_on_ring(c) || !fs_peer_is_notifying(&c->ring)) break;
        if (fs_now() >= deadline) {
            c->peer_late = 1; /* stopped, killed or hostile: once is enough */
            break;
        }
        fs_unlock_recv_quick(receiver); /* the next post */
    }
    if (fs_is_attached(c) && fs_receives_on_ring(c)) fs_drain_without_waiting(c, receiver);
    int late = c->late;
    c->late = 0;
    fs_unlock_recv_quick(receiver);
    return late;
}

/* Gives a post and its doorbell bytes a few milliseconds: a caller that polls the descriptor afterwards would take a late byte for
 * data. The lock is not held, so another holder may receive meanwhile; that one, or one that is killed, leaves the outstanding
 * count in `doorbell_debt`, and each attempt starts from it. */
static void wait_for_late(struct fs_connection *c, int late) {
    if (late & (FS_LATE_POST | FS_LATE_AGAIN)) late |= await_post(c, late & FS_LATE_AGAIN ? LATE_POST_NS : POST_NS);
    if (late & FS_LATE_REQUEST) fs_repeat_settle_request(c); /* perhaps of a dead holder whose lock await_post recovered */
    if (!(late & FS_LATE_BYTES)) return;
    for (int tries = 0; tries < LATE_BYTES_MS; tries++) {
        wait_for_byte(fs_fd(c));
        struct fs_receiver *receiver = fs_lock_recv_within(c, FS_PATIENCE);
        if (!receiver) continue;
        if (fs_is_attached(c) && receiver->doorbell_debt) fs_discard_doorbell_bytes(c, receiver, 0);
        int outstanding = fs_is_attached(c) && receiver->doorbell_debt;
        fs_unlock_recv_quick(receiver);
        if (!outstanding) return;
    }
}

int fs_unlock_recv(struct fs_connection *c, struct fs_receiver *receiver) {
    int late = c->late;
    c->late = 0;
    fs_unlock_recv_quick(receiver);
    if (late) wait_for_late(c, late);
    return (late & (FS_LATE_POST | FS_LATE_AGAIN)) != 0;
}

/* Returns true if the caller must flush after unlocking. */
static int must_flush(struct fs_connection *c, struct fs_sender *sender) {
    int late = c->late_sending;
    c->late_sending = 0;
    if (sender->bytes_unsent && !late && fs_now() - sender->unsent_since > 2 * BYTE_NS) {
        /* The thread that waited was killed or stopped, or a stopped thread had the lock for so long. */
        sender->unsent_since = fs_now();
        late = 1;
    }
    return late;
}

/* Waits until the kernel has taken the deferred doorbell bytes. Called with no lock. Returns 0 if the peer takes none of those that lie
 * there.
 *
 * There is no room if the system is short of memory, or if the send buffer may not be widened. The lock is not held: another holder
 * that sends meanwhile sends these bytes, and a later one waits if this one cannot (must_flush). A peer that takes none has
 * counted them as taken: bytes are sent one at a time. */
static int wait_for_kernel_room(struct fs_connection *c) {
    int sent = 0, over = 0;
    uint32_t left = 0;
    int64_t deadline = fs_now() + 2 * BYTE_NS; /* after that the holder of the lock knows that nobody waits */
    while (!sent && !over) {
        fs_short_sleep_unlocked();
        struct fs_sender *sender = fs_lock_send_within(c, FS_PATIENCE);
        if (!sender) {
            if (fs_now() >= deadline) return 1; /* a stopped process has the lock */
            continue;
        }
        left = FS_MAX(left, sender->bytes_unsent);
        sent = !fs_is_attached(c) || fs_send_deferred(c, sender);
        if (!sent && sender->bytes_unsent < left) {
            /* Some bytes were sent: the time starts again. Written only here: it shows others that somebody waits. */
            sender->unsent_since = fs_now();
            deadline = sender->unsent_since + 2 * BYTE_NS;
        }
        left = sender->bytes_unsent;
        if (!sent && fs_now() - sender->unsent_since >= BYTE_NS) {
            over = 1;
            c->ring.violation = "stopped reading its doorbell";
        }
        c->late_sending = 0;
        fs_unlock_send_quick(sender);
    }
    return sent;
}

int fs_unlock_send(struct fs_connection *c, struct fs_sender *sender) {
    int late = must_flush(c, sender);
    fs_unlock_send_quick(sender);
    return !late || wait_for_kernel_room(c);
}

/* ---- both ------------------------------------------------------------------------------------------------------- */

int fs_trylock_side(struct fs_connection *c, struct fs_side_locks *locks) {
    struct fs_shared_side *own = fs_own(c);
    *locks = (struct fs_side_locks){&own->sender, &own->receiver};
    int receiving = fs_robust_trylock(&locks->receiver->lock, fs_own_pid);
    if (receiving == FS_LOCK_BUSY) return 0;
    fs_lock_push(&locks->receiver->lock);
    int sending = fs_robust_trylock(&locks->sender->lock, fs_own_pid);
    if (sending != FS_LOCK_BUSY) {
        if (own == fs_own(c)) {
            if (receiving == FS_LOCK_OWNER_DIED) fs_recover_receiving(c, locks->receiver);
            if (sending == FS_LOCK_OWNER_DIED) fs_recover_sending(c, locks->sender);
            return 1;
        }
        fs_lock_abandon(&locks->sender->lock, sending);
    }
    fs_lock_pop(&locks->receiver->lock);
    fs_lock_abandon(&locks->receiver->lock, receiving);
    return 0;
}

void fs_wait_for_side(struct fs_connection *c) {
    fs_wait_for_lock(&fs_own(c)->receiver.lock);
    fs_wait_for_lock(&fs_own(c)->sender.lock);
}

int fs_lock_side_within(struct fs_connection *c, int patience, struct fs_side_locks *locks) {
    while (!fs_trylock_side(c, locks)) {
        if (patience == 0) return 0;
        patience -= 1;
        fs_wait_for_side(c);
    }
    return 1;
}

struct fs_side_locks fs_lock_side(struct fs_connection *c) {
    struct fs_side_locks locks;
    fs_lock_side_within(c, -1, &locks);
    return locks;
}

void fs_unlock_side_quick(struct fs_side_locks locks) {
    fs_unlock_send_quick(locks.sender);
    fs_lock_pop(&locks.receiver->lock);
    fs_unlock_recv_quick(locks.receiver);
}

void fs_unlock_side(struct fs_connection *c, struct fs_side_locks locks) {
    int late = c->late;
    int late_sending = must_flush(c, locks.sender);
    c->late = 0;
    fs_unlock_side_quick(locks);
    if (late) wait_for_late(c, late);
    if (late_sending) wait_for_kernel_room(c);
}
