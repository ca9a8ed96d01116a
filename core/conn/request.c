/* Requests of a connection to its peer's control thread.
 *
 * Responsible for: which process of the peer's side gets them, in this network namespace or in another. Never: what a request asks for
 * (control/control_requests.c answers). */
#include "conn/request.h"

#include "wire/control_msg.h"

enum { TRIES = 20 }; /* attempts to find room in the queue of the peer's control thread */

int fs_send_request(struct fs_connection *c, int unread_data) {
    struct fs_control_parcel p;
    struct fs_far_peer *far = fs_far_of(c);
    if (!far) return fs_send_control_to_side(c->ring.region, c->region_id, 1 - c->ring.side, unread_data);
    fs_fill_parcel(&p, FS_CONTROL_MAGIC, c->region_id, 1 - c->ring.side, unread_data);
    int failed = fs_send_far(far, &p.message);
    return failed == -ECONNREFUSED && far->before ? fs_send_far(far->before, &p.message) : failed; /* (as to `asks_else` of the region) */
}

void fs_send_way(struct fs_connection *c, uint64_t token) {
    struct fs_control_parcel p;
    struct fs_far_peer *far = fs_far_of(c);
    int way = far ? fs_make_way(token) : -1;
    if (way < 0) return;
    fs_fill_parcel(&p, FS_WAY_MAGIC, c->region_id, 1 - c->ring.side, way);
    for (int tries = 0; tries < TRIES && fs_is_transient(-fs_send_far(far, &p.message)); tries++) sched_yield();
    fs_system.close(way);
}

uint64_t fs_peer_token(struct fs_connection *c) {
    /* SYNC: token - pairs with fs_requests_announce. (The peer's process changes when a forked child takes over or its thread was given
     * up.) */
    uint64_t token = fs_load_acquire(&c->ring.region->asks[1 - c->ring.side]);
    struct fs_far_peer *far = fs_far_of(c);
    return token && far ? far->key : token;
}
