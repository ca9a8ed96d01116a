/* Whose turn it is on one side of a connection: the locks of `struct fs_shared_side` (ring/robust_lock.h), as connections take them.
 *
 * A turn is a pointer: to the `struct fs_sender` or the `struct fs_receiver` whose lock was taken. Functions that need a turn
 * ask for that pointer, and it is made here only, so that nobody can do without the turn or with the other one. It is also
 * what is given back: a bridge may put another side in place of this one meanwhile.
 *
 * Callers may have the front end's lock; it is let go while somebody else has the turn, and no turn is held while that lock is
 * waited for. They are inside (fs_call_enter) or kept, so that the connection stays. */
#ifndef FASTSOCK_SIDE_LOCK_H
#define FASTSOCK_SIDE_LOCK_H

#include "conn/connection.h"

/* NULL if somebody else has had the turn for `patience` times some 10 ms (negative: for ever). */
struct fs_sender *fs_lock_send_within(struct fs_connection *c, int patience);
struct fs_receiver *fs_lock_recv_within(struct fs_connection *c, int patience);

struct fs_sender *fs_lock_send(struct fs_connection *c);
struct fs_receiver *fs_lock_recv(struct fs_connection *c);

/* End a turn that has left nothing to be waited for: else fs_unlock_send, fs_unlock_recv. */
static inline void fs_unlock_send_quick(struct fs_sender *sender) { fs_robust_unlock(&sender->lock); }
static inline void fs_unlock_recv_quick(struct fs_receiver *receiver) { fs_robust_unlock(&receiver->lock); }

/* Both turns of one side. */
struct fs_side_locks {
    struct fs_sender *sender;
    struct fs_receiver *receiver;
};

int fs_trylock_side(struct fs_connection *c, struct fs_side_locks *both); /* until fs_unlock_side_quick. 0: one is somebody else's. Never waits */
void fs_wait_for_side(struct fs_connection *c);                   /* after an attempt that failed */
int fs_lock_side_within(struct fs_connection *c, int patience, struct fs_side_locks *both); /* 0: as with one turn, after `patience` attempts */
struct fs_side_locks fs_lock_side(struct fs_connection *c); /* while one turn is held the other is not waited for */
void fs_unlock_side_quick(struct fs_side_locks both);

/* fs_unlock_side_quick, with what the end of each turn waits for. */
void fs_unlock_side(struct fs_connection *c, struct fs_side_locks both);

/* The turn to receive of the side that somebody leaves, which the connection may not have any more (so nothing is mended). Until
 * fs_lock_abandon, with `turn`. */
struct fs_receiver *fs_lock_recv_of(struct fs_fallback_lock *fallback, int *turn);

void fs_lock_abandon(struct fs_robust_lock *lock, int turn);      /* ends a turn that was taken in vain */
void fs_wait_for_lock(const struct fs_robust_lock *lock);         /* waits for a turn, without the front end's lock */
void fs_wait_for_byte(int fd);                           /* waits for a millisecond or for a byte, likewise */
void fs_short_sleep_unlocked(void);                              /* a nap, likewise */

/* Lets others run for as long as the peer's `ringing` stands; until `deadline` (monotonic ns) at most. Likewise. */
void fs_wait_for_post(struct fs_ring_pair *ring, int64_t deadline);

#endif
