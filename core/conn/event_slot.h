/* A connection in an event set (events/event_set.h): its own side's, and the peer's. */
#ifndef FASTSOCK_EVENT_SLOT_H
#define FASTSOCK_EVENT_SLOT_H

#include "conn/connection.h"
#include "events/event_set.h"

/* Tells the peer's event set to look at this connection. System calls made. Never blocks; no lock needed. */
uint32_t fs_wake_peer_set(struct fs_connection *c);

/* The eventfd by which it is told, for a process that closes all other descriptors. -1: it is told in another way. */
int fs_peer_set_eventfd(struct fs_connection *c);

/* The same of this side's, of all its processes: a set that this process, or the one that it was forked from, has. */
static inline void fs_wake_own_set(struct fs_connection *c) { fs_wake_local_set(fs_load_relaxed(&c->slot)); }

/* Takes a place in the set, before the connection attaches. Nobody posts to it before fs_publish_slot. 0, or as fs_set_slot_alloc. */
int fs_slot_alloc(struct fs_connection *c, struct fs_event_set *set);

/* The connection leaves its set. With the thread that has the set, and its front end's lock. */
void fs_slot_free(struct fs_connection *c, struct fs_event_set *set);

/* Where it sits. Only of a connection that has taken a seat. */
static inline uint32_t fs_slot_of(const struct fs_connection *c) {
    return fs_slot_index(fs_load_relaxed((fs_word64 *)&c->slot));
}

/* The region says which set is to be told, before anybody is told that one sleeps (fs_arm_for_loop). Attached. */
void fs_publish_slot(struct fs_connection *c);

/* Sends a request to the peer's connection thread, with a parcel if `parcel` is not negative. 0 or -errno. */
int fs_send_request(struct fs_connection *c, int unread_data);

#endif
