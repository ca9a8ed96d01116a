/* The two locks of one side of a connection, in `struct fs_shared_side` (ring/robust_lock.h).
 *
 * Responsible for: whoever has a `struct fs_sender` or a `struct fs_receiver` holds its lock (no other file makes such a pointer); the
 * lock is of the side that the connection has; state of a dead holder is recovered first. Never: does anything else with a lock held. */
#include "conn/side_lock.h"

#include "conn/recovery.h"
#include "conn/state.h"

/* ---- waiting without the host lock ----------------------------------------------------------------------------- */

void fs_wait_for_lock(const struct fs_robust_lock *lock) {
    void *host_state = fs_host_unlock();
    fs_lock_wait(lock);
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

void fs_unlock_side(struct fs_side_locks locks) {
    fs_unlock_send(locks.sender);
    fs_lock_pop(&locks.receiver->lock);
    fs_unlock_recv(locks.receiver);
}
