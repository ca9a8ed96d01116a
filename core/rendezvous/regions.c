/* Regions and the connections that use them. A connection's region is released here; control/link.c has those that no connection has.
 *
 * Never: which connection gets one (connector.c), or its contents (control/region_mmap.c). */
#include "rendezvous/regions.h"

#include "control/region_mmap.h"
#include "control/control_requests.h"
#include "control/control_thread.h"
#include "conn/event_slot.h"
#include "conn/state.h"
#include "conn/tap.h"

int fs_region_new(const struct fs_peer_process *peer, int window, int chunk, struct fs_region_ref **made, int *memfd) {
    unsigned char id[16];
    int failed = fs_random_bytes(id, sizeof id);
    struct fs_region_ref *region_ref = failed ? NULL : fs_region_of(NULL, fs_region_size((uint32_t)window, (uint32_t)chunk), 0, id);
    if (!region_ref) return failed ? failed : -ENOMEM;
    failed = fs_link_join(region_ref, peer);
    *memfd = failed ? failed : fs_create_region(window, chunk, id, &region_ref->memory);
    if (*memfd < 0) {
        fs_region_discard(region_ref);
        return *memfd;
    }
    *made = region_ref;
    return 0;
}

int fs_region_accept(const struct fs_accepted_region *came, struct fs_region_ref **made) {
    struct fs_region_ref *region_ref = came->region_ref;
    int failed = 0;
    if (came->is_far && !(region_ref->far = fs_far_peer_join(came->peer.key, came->way))) failed = -EMFILE;
    if (!failed && !region_ref->link) failed = fs_link_join(region_ref, &came->peer);
    if (failed) fs_region_discard(region_ref);
    else *made = region_ref;
    return failed;
}

int fs_region_new_pair(int window, int chunk, struct fs_region_ref *ends[2]) {
    const struct fs_peer_process unknown = {.user = (uid_t)-1};
    int memfd, failed = fs_region_new(&unknown, window, chunk, &ends[0], &memfd);
    if (failed) return failed;
    void *memory = fs_map_memfd(memfd, ends[0]->size);
    fs_system.close(memfd);
    ends[1] = memory ? fs_region_of(memory, ends[0]->size, 1, ends[0]->id) : NULL;
    if (memory && !ends[1]) fs_system.munmap(memory, ends[0]->size);
    failed = ends[1] ? fs_link_join(ends[1], &unknown) : -ENOMEM;
    for (int i = 0; i < 2 && ends[i]; i++) {
        ends[i]->once = 1;
        if (failed) fs_region_discard(ends[i]);
    }
    return failed;
}

int fs_region_attach(struct fs_region_ref *region_ref, struct fs_connection *c, const struct fs_flow_options *flow,
                     const struct fs_attach_hooks *hooks, const char **wrong) {
    *wrong = NULL;
    int failed = fs_control_thread_start();
    if (!failed) failed = fs_requests_expect(c, region_ref->side, region_ref->id);
    if (failed) return failed;
    region_ref->asked = c;
    c->peer_process = region_ref->link->peer.pid;
    fs_store_release(&c->far, region_ref->far); /* SYNC: far peer - pairs with fs_far_of */
    if (hooks) failed = hooks->watch(hooks->whose, c);
    if (!failed) failed = fs_attach(c, region_ref->memory, region_ref->size, region_ref->side, flow, wrong);
    if (failed) {
        fs_region_stop_requests(region_ref);
        if (hooks) hooks->ignore(hooks->whose, c);
        return failed;
    }
    region_ref->window = c->ring.window;
    if (fs_tap_is_on()) fs_note_tapped(c, 1);
    fs_count(&region_ref->link->connections, 1);
    c->asked_before = 0; /* the token there was an earlier connection's */
    fs_store_relaxed(&c->asked_here, fs_requests_announce(region_ref->memory, region_ref->side));
    return 0;
}

int fs_region_inherit(struct fs_region_ref *region_ref, struct fs_connection *c) {
    int failed = fs_control_thread_start();
    if (!failed) failed = fs_requests_expect(c, region_ref->side, region_ref->id);
    if (failed) return failed;
    region_ref->asked = c;
    fs_requests_announce_holder(c);
    fs_wake_own_set(c); /* a loop of the parent's announces its set again */
    return 0;
}

void fs_region_stop_requests(struct fs_region_ref *region_ref) {
    struct fs_connection *asked = region_ref->asked;
    region_ref->asked = NULL;
    if (asked) fs_requests_stop(asked);
}

void fs_region_release(struct fs_region_ref *region_ref, int recyclable) {
    fs_region_stop_requests(region_ref); /* of a connection that was closed while it attached */
    if (!recyclable || region_ref->once) {
        fs_region_discard(region_ref);
        return;
    }
    region_ref->is_warm = fs_mark_done(region_ref->memory, region_ref->size, region_ref->side, (int)region_ref->window);
    fs_region_park(region_ref);
}

void FS_AT_FORK fs_regions_forget(void) {
    fs_control_forget();
    fs_links_forget();
}
