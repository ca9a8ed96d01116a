/* A connection's slot in an event set: allocating it, and waking the peer's set.
 *
 * Responsible for: names of sets in the region; waking a set in one way or the other. Never: hints (events/), or which process may have
 * which page (control/page_offers.c). */
#include "conn/event_slot.h"

#include "conn/request.h"
#include "conn/state.h"

enum { TRIES = 20 }; /* attempts to find room in the queue of the peer's control thread */

/* Uses the set's page and eventfd if this process has them. If it does not have them yet, had no room for them, or the program has
 * closed our number, it asks the peer's control thread. A full queue is emptied soon, and the thread that empties it checks all
 * connections whose request may have found no room (fs_handle_requests). */
uint32_t fs_wake_peer_set(struct fs_connection *c) {
    struct fs_region *region = c->ring.region;
    int peer = 1 - c->ring.side, tries = 0;
    /* SYNC: set name - pairs with fs_publish_slot. */
    uint64_t name = fs_load_acquire(&region->set[peer]);
    if (!name) return 0; /* no set of the peer has said that it sleeps */
    int calls = fs_remote_set_notify(fs_peer_token(c), name, &c->peer_set);
    if (calls >= 0) return (uint32_t)calls;
    for (int failed; tries < TRIES; tries++) {
        failed = fs_send_request(c, -1);
        if (failed != -EAGAIN && failed != -ENOBUFS && failed != -ENOMEM) break;
        sched_yield();
    }
    return 3;
}

int fs_peer_set_eventfd(struct fs_connection *c) {
    struct fs_region *region = c->ring.region;
    int peer = 1 - c->ring.side;
    /* SYNC: set name - pairs with fs_publish_slot. */
    uint64_t name = fs_load_acquire(&region->set[peer]);
    return name ? fs_remote_set_eventfd(fs_peer_token(c), name, &c->peer_set) : -1;
}

int fs_slot_alloc(struct fs_connection *c, struct fs_event_set *set) {
    int place = fs_set_slot_alloc(set);
    if (place < 0) return place;
    fs_store_relaxed(&c->slot, fs_slot_name(fs_load_relaxed(&set->id), (uint32_t)place));
    return 0;
}

void fs_slot_free(struct fs_connection *c, struct fs_event_set *set) {
    uint64_t name = fs_load_relaxed(&c->slot);
    if (!name || fs_slot_set(name) != fs_load_relaxed(&set->id) || !fs_event_set_is_own(set)) return;
    fs_store_relaxed(&c->slot, 0);
    if (fs_is_attached(c)) fs_cas64(&c->ring.region->set[c->ring.side], name, 0);
    fs_set_slot_free(set, fs_slot_index(name));
}

void fs_publish_slot(struct fs_connection *c) {
    fs_word64 *said = &c->ring.region->set[c->ring.side];
    uint64_t name = fs_load_relaxed(&c->slot);
    /* SYNC: set name - pairs with fs_wake_peer_set: the name is stored after the slot that it names. */
    if (fs_load_relaxed(said) != name) fs_store_release(said, name);
}
