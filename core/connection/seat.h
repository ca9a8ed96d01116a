/* A connection in an event set (waiter/set.h): its own side's, and the peer's. */
#ifndef FASTSOCK_SEAT_H
#define FASTSOCK_SEAT_H

#include "connection/connection.h"
#include "waiter/set.h"

/* Tells the peer's event set to look at this connection. System calls made. Never blocks; no lock needed. */
uint32_t fs_wake_set_of_peer(struct fs_connection *c);

/* The eventfd by which it is told, for a process that closes all other descriptors. -1: it is told in another way. */
int fs_eventfd_for_peer(struct fs_connection *c);

/* The same of this side's, of all its processes: a set that this process, or the one that it was forked from, has. */
static inline void fs_wake_own_set(struct fs_connection *c) { fs_wake_set(fs_load_relaxed(&c->seat)); }

/* Takes a place in the set, before the connection attaches. Nobody posts to it before fs_say_seat. 0, or as fs_take_place. */
int fs_take_seat(struct fs_connection *c, struct fs_set *set);

/* The connection leaves its set. With the thread that has the set, and its front end's lock. */
void fs_leave_seat(struct fs_connection *c, struct fs_set *set);

/* Where it sits. Only of a connection that has taken a seat. */
static inline uint32_t fs_seat_of(const struct fs_connection *c) {
    return fs_place_of(fs_load_relaxed((fs_word64 *)&c->seat));
}

/* The region says which set is to be told, before anybody is told that one sleeps (fs_arm_for_loop). Attached. */
void fs_say_seat(struct fs_connection *c);

/* Sends a request to the peer's connection thread, with a parcel if `parcel` is not negative. 0 or -errno. */
int fs_ask_peer(struct fs_connection *c, int parcel);

#endif
