/* A connection in an event set: how its own side takes a place, and how the peer's set is told.
 *
 * Responsible for: names of sets in the region, and that a set is told in one way or the other. Never: hints (waiter/), or who may
 * have which page (channel/sets.c). */
#include "connection/seat.h"

#include "connection/state.h"
#include "wire/request.h"

enum { TRIES = 20 }; /* to find room in the queue of the peer's connection thread */

int fs_ask_peer(struct fs_connection *c, int parcel) {
    return fs_ask_side(c->vi.region, c->region_id, 1 - c->vi.side, parcel);
}

/* By its page and eventfd, if this process has them. Otherwise the peer's connection thread is asked to: it has not got them yet, or
 * there was no room for them, or the program has closed our number. A queue that is full is emptied soon, and who empties it looks
 * after all that may have found no room (fs_answer_requests). */
uint32_t fs_wake_set_of_peer(struct fs_connection *c) {
    struct fs_region *region = c->vi.region;
    int peer = 1 - c->vi.side, tries = 0;
    /* SYNC: set name - pairs with fs_say_seat. */
    uint64_t name = fs_load_acquire(&region->set[peer]);
    if (!name) return 0; /* no set of the peer's has said that it sleeps */
    int calls = fs_tell_set(fs_load_acquire(&region->asks[peer]), name, &c->told);
    if (calls >= 0) return (uint32_t)calls;
    for (int failed; tries < TRIES; tries++) {
        failed = fs_ask_peer(c, -1);
        if (failed != -EAGAIN && failed != -ENOBUFS && failed != -ENOMEM) break;
        sched_yield();
    }
    return 3;
}

int fs_eventfd_for_peer(struct fs_connection *c) {
    struct fs_region *region = c->vi.region;
    int peer = 1 - c->vi.side;
    /* SYNC: set name - pairs with fs_say_seat. */
    uint64_t name = fs_load_acquire(&region->set[peer]);
    /* SYNC: token - pairs with fs_answer_asks. */
    return name ? fs_kept_eventfd(fs_load_acquire(&region->asks[peer]), name, &c->told) : -1;
}

int fs_take_seat(struct fs_connection *c, struct fs_set *set) {
    int place = fs_take_place(set);
    if (place < 0) return place;
    fs_store_relaxed(&c->seat, fs_set_name(fs_load_relaxed(&set->id), (uint32_t)place));
    return 0;
}

void fs_leave_seat(struct fs_connection *c, struct fs_set *set) {
    uint64_t name = fs_load_relaxed(&c->seat);
    if (!name || fs_set_of(name) != fs_load_relaxed(&set->id) || !fs_is_own_set(set)) return;
    fs_store_relaxed(&c->seat, 0);
    if (fs_is_attached(c)) fs_swap_if64(&c->vi.region->set[c->vi.side], name, 0);
    fs_give_place(set, fs_place_of(name));
}

void fs_say_seat(struct fs_connection *c) {
    fs_word64 *said = &c->vi.region->set[c->vi.side];
    uint64_t name = fs_load_relaxed(&c->seat);
    /* SYNC: set name - pairs with fs_wake_set_of_peer: what the name means was there before it. */
    if (fs_load_relaxed(said) != name) fs_store_release(said, name);
}
