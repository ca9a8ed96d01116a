/* A connection's slot in an event set (events/event_set.h): this side's and the peer's. */
#pragma once

#include "conn/connection.h"
#include "events/event_set.h"

/* Tells the peer's event set to check this connection. Returns the number of system calls. Never blocks; needs no lock. */
uint32_t fs_wake_peer_set(struct fs_connection *c);

/* Returns the eventfd that wakes the peer's set, for a process that closes all other descriptors; -1 if the set is woken another way. */
int fs_peer_set_eventfd(struct fs_connection *c);

/* Wakes this side's event set, of this process or of the one that it was forked from. */
static inline void fs_wake_own_set(struct fs_connection *c) { fs_wake_local_set(fs_load_relaxed(&c->slot)); }

/* Allocates a slot in the set, before the connection attaches. Nobody posts to it before fs_publish_slot. Returns 0, or as
 * fs_set_slot_alloc. */
int fs_slot_alloc(struct fs_connection *c, struct fs_event_set *set);

/* Frees the slot. Called by the thread that owns the set, or with the lock of its poller. */
void fs_slot_free(struct fs_connection *c, struct fs_event_set *set);

/* Returns the index of the slot. The connection must have one. */
static inline uint32_t fs_slot_of(const struct fs_connection *c) {
    return fs_slot_index(fs_load_relaxed((fs_word64 *)&c->slot));
}

/* Writes the slot's name into the region, before the peer is told that the set sleeps (fs_arm_for_set). The connection is attached. */
void fs_publish_slot(struct fs_connection *c);
