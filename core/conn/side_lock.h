/* The two locks of one side of a connection, in `struct fs_shared_side` (ring/robust_lock.h).
 *
 * A held lock is a pointer: to the `struct fs_sender` or the `struct fs_receiver` that it protects. Functions that need a lock take that
 * pointer, and only this file makes it, so that nobody can go without the lock or with the other one. The same pointer is unlocked: a
 * bridge may put another side in place of this one meanwhile.
 *
 * Callers may have the host lock. It is unlocked while another thread has the side's lock, and no side lock is held while the host lock
 * is waited for. Callers are inside (fs_call_enter) or pinned, so that the connection stays. */
#pragma once

#include "conn/connection.h"

/* Take a lock. Return NULL if another thread has had it for `patience` waits of about 10 ms (negative: wait for ever). */
struct fs_sender *fs_lock_send_within(struct fs_connection *c, int patience);
struct fs_receiver *fs_lock_recv_within(struct fs_connection *c, int patience);

struct fs_sender *fs_lock_send(struct fs_connection *c);
struct fs_receiver *fs_lock_recv(struct fs_connection *c);

static inline void fs_unlock_send(struct fs_sender *sender) { fs_robust_unlock(&sender->lock); }
static inline void fs_unlock_recv(struct fs_receiver *receiver) { fs_robust_unlock(&receiver->lock); }

/* Both locks of one side. */
struct fs_side_locks {
    struct fs_sender *sender;
    struct fs_receiver *receiver;
};

/* Takes both locks, until fs_unlock_side. Never waits. Returns 0 if another thread has one. */
int fs_trylock_side(struct fs_connection *c, struct fs_side_locks *locks);
void fs_wait_for_side(struct fs_connection *c); /* after an attempt that failed */
int fs_lock_side_within(struct fs_connection *c, int patience, struct fs_side_locks *locks); /* returns 0 after `patience` attempts */
struct fs_side_locks fs_lock_side(struct fs_connection *c); /* does not hold one lock while it waits for the other */
void fs_unlock_side(struct fs_side_locks locks);

/* Takes the receive lock of the side that falls back. The connection may have another side by now, so nothing is recovered. Release with
 * fs_lock_abandon and `result`. */
struct fs_receiver *fs_lock_recv_of(struct fs_fallback_lock *fallback, int *result);

void fs_lock_abandon(struct fs_robust_lock *lock, int result); /* releases a lock that is of no use */
void fs_wait_for_lock(const struct fs_robust_lock *lock);      /* waits for a lock, without the host lock */
