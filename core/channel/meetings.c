/* Published names and what came of them, and the publisher's cache of regions.
 *
 * Responsible for: the table that the program and its connection thread share, and its lock. Never: who may come
 * (visitors.c), when the thread runs (thread.c). */
#include "channel/meetings.h"

#include "base/front.h"
#include "channel/dropping.h"
#include "channel/names.h"
#include "channel/regions.h"
#include "channel/table.h"
#include "channel/thread.h"
#include "waiter/bell.h"

#define VISIBLE_MS 2000 /* how long a name stays published: a fastsock peer looks for it within some operations */

struct fs_table fs_table = {.lock = PTHREAD_MUTEX_INITIALIZER}; /* (All zero: no shared object carries its 130 KB.) */

void fs_take_table(void) {
    while (pthread_mutex_trylock(&fs_table.lock)) {
        void *given = fs_let_go();
        pthread_mutex_lock(&fs_table.lock);
        pthread_mutex_unlock(&fs_table.lock);
        fs_take_again(given);
    }
}

void fs_set_trust(int any_user) {
    fs_store_relaxed(&fs_table.trusts_any, (uint32_t)any_user);
    fs_store_relaxed(&fs_strangers_ring, (uint32_t)any_user);
}

int fs_trusts_any(void) { return (int)fs_load_relaxed(&fs_table.trusts_any); }

void fs_set_backlog(int length) {
    if (length > (int)fs_load_relaxed(&fs_table.backlog)) fs_store_relaxed(&fs_table.backlog, (uint32_t)length);
}

/* A free entry for one more name, or -1: as many are published as may be. Under the table lock. */
static int find_place(void) {
    int size, found = -1, published = 0;
    fs_share(&size);
    for (int i = 0; i < fs_table.used; i++) {
        enum fs_meeting_state state = (enum fs_meeting_state)fs_load_relaxed(&fs_table.meetings[i].state);
        published += state == FS_MEETING_WAITING;
        if (state == FS_MEETING_FREE && found < 0) found = i;
    }
    if (found < 0 && fs_table.used < FS_MEETINGS) found = fs_table.used;
    /* (A quarter of the share: the seekers of this process, and who comes to its names, need numbers too.) */
    return published < size / 4 ? found : -1;
}

int fs_publish(const char *name, size_t length, int fd, const struct fs_tcp_identity *ends, fs_word32 **arrival, uint64_t *handle) {
    struct fs_meeting *meetings = fs_table.meetings;
    struct fs_tcp_identity tcp;
    int found, late = 0;
    int failed = fs_ensure_thread();
    if (failed) return failed;
    if (!fs_can_drop()) return FS_TOO_MANY_NAMES; /* strangers hold all the threads that could send the next one away */
    if (ends) tcp = *ends;
    fs_take_table();
    found = find_place();
    fs_unlock_table();
    if (found < 0) return FS_TOO_MANY_NAMES; /* (A look before the sockets are made: of many that wait, each comes here often.) */
    if (!(ends ? fs_ask_network(fd, &tcp) : fs_identify_tcp(fd, &tcp))) return -ENOTCONN;
    int listener = fs_abstract_socket(SOCK_SEQPACKET, name, length);
    if (listener < 0) return listener;
    fs_take_table();
    found = find_place(); /* (another thread may have taken it) */
    if (found >= 0) {
        struct fs_meeting *m = &meetings[found];
        fs_table.used = FS_MAX(fs_table.used, found + 1);
        fs_store_relaxed(&m->state, FS_MEETING_WAITING);
        m->turn++;
        m->came.failure = NULL;
        m->listener = listener;
        m->control = -1;
        m->tcp = tcp;
        m->expires = fs_table.last_expires = fs_now() + (int64_t)VISIBLE_MS * 1000000;
        fs_watch_socket(listener, (uint64_t)m->turn << 32 | (uint64_t)found);
        if (arrival) *arrival = &m->state;
        late = fs_table.wakes_at > m->expires;
    }
    fs_unlock_table();
    if (found < 0) {
        fs_drop_listener(listener);
        return FS_TOO_MANY_NAMES;
    }
    if (late) fs_poke_thread(); /* to look at the new deadline */
    *handle = (uint64_t)meetings[found].turn << 32 | (uint64_t)found;
    return 0;
}

/* The entry of a handle, or NULL if it has been given to somebody else since. */
static struct fs_meeting *meeting_of(uint64_t handle) {
    struct fs_meeting *m = &fs_table.meetings[handle & 0xffffffff];
    return m->turn == (uint32_t)(handle >> 32) ? m : NULL;
}

enum fs_meeting_state fs_arrived(uint64_t handle, fs_word32 **arrival, struct fs_arrival *came) {
    enum fs_meeting_state state = FS_MEETING_EXPIRED;
    fs_take_table();
    struct fs_meeting *m = meeting_of(handle);
    if (m && fs_load_relaxed(&m->state) == FS_MEETING_WAITING) {
        fs_unlock_table();
        return FS_MEETING_WAITING;
    }
    *arrival = NULL;
    /* SYNC: arrived - by the table lock, under which judge wrote it. */
    if (m) {
        state = (enum fs_meeting_state)fs_load_relaxed(&m->state);
        *came = m->came;
        fs_table.queued -= state == FS_MEETING_ARRIVED;
        fs_store_relaxed(&m->state, FS_MEETING_FREE);
    }
    fs_unlock_table();
    return state;
}

/* Unmaps a region that came and was not taken. */
static void refuse_arrival(const struct fs_arrival *came) {
    fs_system.munmap(came->memory, came->size);
    if (came->reused) fs_count_parked(came->size, -1);
}

void fs_withdraw(uint64_t handle, fs_word32 **arrival) {
    fs_take_table();
    *arrival = NULL;
    struct fs_meeting *m = meeting_of(handle);
    if (m) {
        fs_close_meeting(m);
        if (fs_load_relaxed(&m->state) == FS_MEETING_ARRIVED) {
            fs_table.queued--;
            refuse_arrival(&m->came);
        }
        fs_store_relaxed(&m->state, FS_MEETING_FREE);
    }
    fs_unlock_table();
}

void fs_close_meeting(struct fs_meeting *m) {
    if (fs_load_relaxed(&m->state) == FS_MEETING_FREE) return; /* closed, or never used: zeros are no descriptors */
    if (m->listener >= 0) fs_drop_listener(m->listener);
    if (m->control >= 0) fs_drop_control(m->control, m->trusted);
    m->listener = m->control = -1;
}

int fs_next_deadline(void) {
    int64_t now = fs_now(), first = INT64_MAX;
    int used = 0;
    fs_lock_table();
    for (int i = 0; i < fs_table.used; i++) {
        struct fs_meeting *m = &fs_table.meetings[i];
        if (fs_load_relaxed(&m->state) != FS_MEETING_FREE) used = i + 1;
        if (fs_load_relaxed(&m->state) != FS_MEETING_WAITING) continue;
        if (m->expires <= now) {
            fs_close_meeting(m);
            fs_store_relaxed(&m->state, FS_MEETING_EXPIRED); /* FREE when its connection has seen it, or has ended */
        } else if (m->expires < first) {
            first = m->expires;
        }
    }
    fs_table.used = used;
    if (fs_table.last_expires > now) first = FS_MIN(first, fs_table.last_expires);
    fs_table.wakes_at = first;
    fs_unlock_table();
    return first == INT64_MAX ? -1 : (int)((first - now) / 1000000 + 1);
}

/* ---- parked regions --------------------------------------------------------------------------------------- */

/* Gives a parked region back to the system. */
static void release_parked(struct fs_parked_region *region) {
    if (!region->memory) return;
    fs_system.munmap(region->memory, region->size);
    region->memory = NULL;
    fs_count_parked(region->size, -1);
}

void fs_park(void *memory, size_t size, const unsigned char id[16]) {
    fs_take_table();
    struct fs_parked_region *place = &fs_table.parked[fs_table.parked_next];
    struct fs_parked_region old = *place;
    place->memory = memory;
    place->size = size;
    memcpy(place->id, id, 16);
    fs_table.parked_next = (fs_table.parked_next + 1) % FS_PARKED;
    fs_unlock_table();
    fs_count_parked(size, 1);
    release_parked(&old);
}

int fs_release_all_parked(void) {
    int any_parked = 0;
    for (int i = 0; i < FS_PARKED; i++) {
        struct fs_parked_region *region = &fs_table.parked[i];
        if (region->memory) {
            any_parked = 1;
            release_parked(region);
        }
    }
    return any_parked;
}

int fs_drop_parked(void) {
    fs_take_table();
    int any = fs_release_all_parked();
    fs_unlock_table();
    return any;
}

/* ---- a fork ------------------------------------------------------------------------------------------------ */

void fs_forget_names_after_fork(void) {
    /* Another thread of the parent may have waited for the lock. The table under it is whole: see fs_take_table. */
    pthread_mutex_init(&fs_table.lock, NULL);
    fs_table.frozen = 0;
    fs_table.answering = NULL; /* of a thread that was given up, and is not here */
    for (int i = 0; i < fs_table.used; i++) {
        struct fs_meeting *m = &fs_table.meetings[i];
        if (fs_load_relaxed(&m->state) == FS_MEETING_FREE) continue; /* zeros are no descriptors */
        /* The parent has the same sockets: they are not shut, and this is no last close. */
        if (m->listener >= 0) fs_system.close(m->listener);
        if (m->control >= 0) fs_system.close(m->control);
        m->listener = m->control = -1;
        if (fs_load_relaxed(&m->state) == FS_MEETING_ARRIVED) refuse_arrival(&m->came);
        fs_store_relaxed(&m->state, FS_MEETING_FREE);
    }
    fs_table.queued = fs_table.used = 0;
    fs_drop_parked();
}
