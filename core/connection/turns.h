/* Whose turn it is on one side of a connection: the locks of `struct fs_side` (ring/lock.h), as connections take them.
 *
 * A turn is a pointer: to the `struct fs_sender` or the `struct fs_receiver` whose lock was taken. Functions that need a turn
 * ask for that pointer, and it is made here only, so that nobody can do without the turn or with the other one. It is also
 * what is given back: a bridge may put another side in place of this one meanwhile.
 *
 * Callers may have the front end's lock; it is let go while somebody else has the turn, and no turn is held while that lock is
 * waited for. They are inside (fs_begin) or kept, so that the connection stays. */
#ifndef FASTSOCK_TURNS_H
#define FASTSOCK_TURNS_H

#include "connection/connection.h"

/* NULL if somebody else has had the turn for `patience` times some 10 ms (negative: for ever). */
struct fs_sender *fs_take_turn_to_send(struct fs_connection *c, int patience);
struct fs_receiver *fs_take_turn_to_receive(struct fs_connection *c, int patience);

struct fs_sender *fs_lock_sending(struct fs_connection *c);
struct fs_receiver *fs_lock_receiving(struct fs_connection *c);

/* End a turn that has left nothing to be waited for: else fs_end_turn_to_send, fs_end_turn_to_receive. */
static inline void fs_unlock_sending(struct fs_sender *sender) { fs_unlock(&sender->lock); }
static inline void fs_unlock_receiving(struct fs_receiver *receiver) { fs_unlock(&receiver->lock); }

/* Both turns of one side. */
struct fs_both {
    struct fs_sender *sender;
    struct fs_receiver *receiver;
};

int fs_try_both(struct fs_connection *c, struct fs_both *both); /* until fs_unlock_both. 0: one is somebody else's. Never waits */
void fs_await_both(struct fs_connection *c);                   /* after an attempt that failed */
int fs_take_both(struct fs_connection *c, int patience, struct fs_both *both); /* 0: as with one turn, after `patience` attempts */
struct fs_both fs_lock_both(struct fs_connection *c); /* while one turn is held the other is not waited for */
void fs_unlock_both(struct fs_both both);

/* fs_unlock_both, with what the end of each turn waits for. */
void fs_end_both(struct fs_connection *c, struct fs_both both);

/* The turn to receive of the side that somebody leaves, which the connection may not have any more (so nothing is mended). Until
 * fs_give_up, with `turn`. */
struct fs_receiver *fs_lock_receiving_of(struct fs_leaver *leaver, int *turn);

void fs_give_up(struct fs_lock *lock, int turn);      /* ends a turn that was taken in vain */
void fs_give_way(const struct fs_lock *lock);         /* waits for a turn, without the front end's lock */
void fs_await_byte(int fd);                           /* waits for a millisecond or for a byte, likewise */
void fs_nap_aside(void);                              /* a nap, likewise */

/* Lets others run for as long as the peer's `ringing` stands; until `deadline` (monotonic ns) at most. Likewise. */
void fs_await_post(struct fs_vi *vi, int64_t deadline);

#endif
