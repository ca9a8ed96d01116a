/* Published names and their results. */
#include "control/listener.h"

#include "control/fd_reaper.h"
#include "control/link.h"
#include "control/named_socket.h"
#include "control/control_state.h"
#include "os/host.h"

#define VISIBLE_MS 2000 /* lifetime of a name: a fastsock peer looks for it within some operations */

void fs_set_backlog(int length) {
    if (length > (int)fs_load_relaxed(&fs_control_state.backlog)) fs_store_relaxed(&fs_control_state.backlog, (uint32_t)length);
}

/* Returns a free entry for another name, or -1 if the maximum is published. Needs the table lock. */
static int find_entry(void) {
    int size, found = -1, published = 0;
    fs_reserved_range(&size);
    for (int i = 0; i < fs_control_state.used; i++) {
        enum fs_listing_state state = (enum fs_listing_state)fs_load_relaxed(&fs_control_state.listings[i].state);
        published += state == FS_LISTING_WAITING;
        if (state == FS_LISTING_FREE && found < 0) found = i;
    }
    if (found < 0 && fs_control_state.used < FS_LISTINGS) found = fs_control_state.used;
    /* (A quarter of the reserved range: this process's seekers and incoming peers need numbers too.) */
    return published < size / 4 ? found : -1;
}

int fs_listing_publish(const char *name, size_t length, int fd, const struct fs_stream_identity *ends,
                       fs_atomic_ptr(fs_word32) *listing_state, uint64_t *handle) {
    struct fs_listing *listings = fs_control_state.listings;
    struct fs_stream_identity of_connection = ends ? *ends : (struct fs_stream_identity){.kind = &fs_tcp_stream};
    int found, kick = 0;
    if (!fs_reaper_has_room()) return FS_TOO_MANY_LISTINGS; /* untrusted users occupy the thread that could send the next one away */
    fs_control_lock_hosted();
    found = find_entry();
    fs_control_unlock();
    if (found < 0) return FS_TOO_MANY_LISTINGS; /* (Checked before the sockets are made: with many waiting connections each comes here
                                                 * often.) */
    if (!ends && !of_connection.kind->identify(fd, &of_connection)) return -ENOTCONN;
    if (!of_connection.kind->find_network(fd, &of_connection)) return -ENOTCONN;
    int listener = fs_named_socket(SOCK_SEQPACKET, name, length);
    if (listener < 0) return listener;
    fs_control_lock_hosted();
    found = find_entry(); /* (another thread may have taken it) */
    if (found >= 0) {
        struct fs_listing *m = &listings[found];
        fs_control_state.used = FS_MAX(fs_control_state.used, found + 1);
        fs_store_relaxed(&m->state, FS_LISTING_WAITING);
        m->generation++;
        m->came.failure = NULL;
        m->other_came = m->unproven_came = 0;
        m->file = fs_dir_number(name, length);
        m->proof = (struct fs_address_proof){.udp = -1};
        m->listener = listener;
        m->control = -1;
        m->ends = of_connection;
        m->expires = fs_control_state.last_expires = fs_now() + (int64_t)VISIBLE_MS * 1000000;
        fs_control_watch(fs_control_fds.epoll, listener, (uint64_t)m->generation << 32 | (uint64_t)found);
        if (listing_state) *listing_state = &m->state;
        kick = fs_control_state.wakes_at > m->expires;
    }
    fs_control_unlock();
    if (found < 0) {
        fs_dir_unlink(fs_dir_number(name, length));
        fs_reap_listener(listener);
        return FS_TOO_MANY_LISTINGS;
    }
    if (kick) fs_control_thread_kick(); /* the thread must see the earlier deadline */
    *handle = (uint64_t)listings[found].generation << 32 | (uint64_t)found;
    return 0;
}

/* Returns the entry of a handle, or NULL if it has been reused since. */
static struct fs_listing *listing_of(uint64_t handle) {
    struct fs_listing *m = &fs_control_state.listings[handle & 0xffffffff];
    return m->generation == (uint32_t)(handle >> 32) ? m : NULL;
}

enum fs_listing_state fs_listing_result(uint64_t handle, fs_atomic_ptr(fs_word32) *listing_state, struct fs_accepted_region *came) {
    enum fs_listing_state state = FS_LISTING_EXPIRED;
    fs_control_lock_hosted();
    struct fs_listing *m = listing_of(handle);
    if (m && fs_load_relaxed(&m->state) == FS_LISTING_WAITING) {
        fs_control_unlock();
        return FS_LISTING_WAITING;
    }
    *listing_state = NULL;
    /* SYNC: arrived - by the table lock, under which judge wrote it. */
    if (m) {
        state = (enum fs_listing_state)fs_load_relaxed(&m->state);
        *came = m->came;
        fs_control_state.queued -= state == FS_LISTING_ACCEPTED;
        fs_store_relaxed(&m->state, FS_LISTING_FREE);
    }
    fs_control_unlock();
    return state;
}

/* Unmaps a region that came and was not taken. */
static void drop_region(const struct fs_accepted_region *came) {
    if (came->is_far) fs_system.close(came->way); /* (fs_is_way) */
    fs_region_discard(came->region_ref);
}

void fs_listing_withdraw(uint64_t handle, fs_atomic_ptr(fs_word32) *listing_state) {
    struct fs_accepted_region came = {.region_ref = NULL};
    fs_control_lock_hosted();
    *listing_state = NULL;
    struct fs_listing *m = listing_of(handle);
    if (m) {
        fs_listing_close(m);
        if (fs_load_relaxed(&m->state) == FS_LISTING_ACCEPTED) {
            fs_control_state.queued--;
            came = m->came;
        }
        fs_store_relaxed(&m->state, FS_LISTING_FREE);
    }
    fs_control_unlock();
    if (came.region_ref) drop_region(&came);
}

void fs_listing_close(struct fs_listing *m) {
    if (fs_load_relaxed(&m->state) == FS_LISTING_FREE) return; /* closed, or never used: its zeros are no descriptors */
    if (m->listener >= 0) {
        fs_dir_unlink(m->file); /* first: whoever finds the name free may have it */
        fs_reap_listener(m->listener);
    }
    m->unproven_came |= m->proof.udp >= 0;
    fs_proof_end(&m->proof);
    if (m->control >= 0) fs_reap_control(m->control, m->trusted);
    m->listener = m->control = -1;
}

int fs_expire_listings(void) {
    int64_t now = fs_now(), first = INT64_MAX;
    int used = 0;
    fs_control_lock();
    for (int i = 0; i < fs_control_state.used; i++) {
        struct fs_listing *m = &fs_control_state.listings[i];
        if (fs_load_relaxed(&m->state) != FS_LISTING_FREE) used = i + 1;
        if (fs_load_relaxed(&m->state) != FS_LISTING_WAITING) continue;
        if (m->expires <= now) {
            fs_listing_close(m);
            /* (FREE once its connection has seen it or has ended) */
            fs_store_relaxed(&m->state, m->unproven_came ? FS_LISTING_UNPROVEN
                                        : m->other_came  ? FS_LISTING_OTHER_USER
                                                         : FS_LISTING_EXPIRED);
        } else if (m->expires < first) {
            first = m->expires;
        }
    }
    fs_control_state.used = used;
    first = FS_MIN(first, fs_links_look(now));
    if (fs_control_state.last_expires > now) first = FS_MIN(first, fs_control_state.last_expires);
    fs_control_state.wakes_at = first;
    fs_control_unlock();
    return first == INT64_MAX ? -1 : (int)((first - now) / 1000000 + 1);
}

/* ---- a fork ------------------------------------------------------------------------------------------------ */

void fs_listings_forget(void) {
    /* Another thread of the parent may have waited for the lock. The table is consistent: see fs_control_lock_hosted. */
    fs_renew_lock(&fs_control_state.lock);
    fs_control_state.frozen = 0;
    fs_control_state.answering = NULL; /* of a thread that was given up and does not exist here */
    for (int i = 0; i < fs_control_state.used; i++) {
        struct fs_listing *m = &fs_control_state.listings[i];
        if (fs_load_relaxed(&m->state) == FS_LISTING_FREE) continue; /* its zeros are no descriptors */
        /* The parent has the same sockets: no shutdown, and no last close. */
        if (m->listener >= 0) fs_system.close(m->listener);
        if (m->control >= 0) fs_system.close(m->control);
        fs_proof_end(&m->proof);
        m->listener = m->control = -1;
        if (fs_load_relaxed(&m->state) == FS_LISTING_ACCEPTED) drop_region(&m->came);
        fs_store_relaxed(&m->state, FS_LISTING_FREE);
    }
    fs_control_state.queued = fs_control_state.used = 0;
}
