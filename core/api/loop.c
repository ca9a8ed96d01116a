/* What an event loop that drives a connection asks of its path, and a description of a connection.
 *
 * Responsible for: one answer of several parts. Never: the loop's poller (ready/loop_wait.c), or bytes (conn/loop_io.c). */
#include "api/whole.h"

#include "conn/state.h"
#include "include/fastsock_loop.h"
#include "process/holder_count.h"

int64_t fs_operations_of(const struct fs_connection *c) { return fs_operations(&fs_whole_of(c)->path); }

void fs_set_operations(struct fs_connection *c, int64_t operations) {
    fs_store_relaxed(&fs_whole_of(c)->path.operations, (uint64_t)operations);
}

int64_t fs_steps_at(const struct fs_connection *c) {
    const struct fs_path *path = &fs_whole_of(c)->path;
    if (!fs_has_step(path)) return INT64_MAX;
    return fs_load_relaxed(&((struct fs_path *)path)->listing_state) ? 0 : fs_next_step(path);
}

int fs_awaits_answer(const struct fs_connection *c) {
    fs_word32 *listing = fs_load_relaxed(&fs_whole_of(c)->path.listing_state); /* (once: another thread may end the search meanwhile) */
    return listing && fs_load_relaxed(listing) == FS_LISTING_WAITING;
}

void fs_describe(const struct fs_connection *of, struct fs_description *d) {
    struct fs_connection *c = &fs_whole_of(of)->c;
    const struct fs_path *path = &fs_whole_of(of)->path;
    *d = (struct fs_description){
        .stage = fs_path_state_name(fs_path_state(path)), .operations = fs_operations(path), .ended = fs_has_ended(c),
        .broken = fs_is_broken(c), .attached = fs_is_attached(c), .driven = fs_is_loop_driven(c), .lost = fs_peer_is_lost(c),
        .holders = fs_count_holders(fs_own(c)), .side = (uintptr_t)fs_own(c)};
    if (!d->attached || d->ended) return;
    struct fs_direction *tx = c->ring.tx, *rx = c->ring.rx;
    d->window = c->ring.window;
    d->peer_consents = fs_load_sc(&tx->ready) != 0;
    d->switched_at = fs_load_sc(&tx->switch_at);
    d->peer_switched_at = fs_load_sc(&rx->switch_at);
    d->acked = fs_load_sc(&tx->acked);
    d->doorbell = fs_load_sc(&rx->doorbell);
    d->peer_doorbell = fs_load_sc(&tx->doorbell);
    d->fin = fs_load_sc(&rx->fin);
}
