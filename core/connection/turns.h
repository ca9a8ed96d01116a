/* Whose turn it is on one side of a connection: the two locks of `struct fs_side` (ring/lock.h), as connections take them.
 *
 * Each of these returns the side whose lock it took, and that side's lock is the one to give back: a bridge may put another
 * side in its place meanwhile. Callers may have the front end's lock; it is let go while somebody else has the turn, and no turn
 * is held while that lock is waited for. They are inside (fs_begin) or kept, so that the connection stays. */
#ifndef FASTSOCK_TURNS_H
#define FASTSOCK_TURNS_H

#include "connection/connection.h"

/* NULL if somebody else has had the turn for `patience` times some 10 ms (negative: for ever). */
struct fs_side *fs_take_turn(struct fs_connection *c, int sends, int patience);

struct fs_side *fs_lock_receiving(struct fs_connection *c);
struct fs_side *fs_lock_sending(struct fs_connection *c);

struct fs_side *fs_try_both(struct fs_connection *c); /* until fs_unlock_both. NULL: one is somebody else's. Never waits */
void fs_await_both(struct fs_connection *c);          /* after an attempt that failed */
struct fs_side *fs_lock_both(struct fs_connection *c); /* while one turn is held the other is not waited for */
void fs_unlock_both(struct fs_side *own);

/* fs_unlock_both, with what the end of each turn waits for. */
void fs_end_both(struct fs_connection *c, struct fs_side *own);

void fs_give_up(struct fs_lock *lock, int turn);      /* ends a turn that was taken in vain */
void fs_give_way(const struct fs_lock *lock);         /* waits for a turn, without the front end's lock */
void fs_await_byte(int fd);                           /* waits for a millisecond or for a byte, likewise */
void fs_nap_aside(void);                              /* a nap, likewise */

/* Lets others run for as long as the peer's `ringing` stands; until `deadline` (monotonic ns) at most. Likewise. */
void fs_await_post(struct fs_vi *vi, int64_t deadline);

#endif
