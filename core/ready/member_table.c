/* Pollers: the table of members, those that may be ready, whose data an event has.
 *
 * Responsible for: that what is looked up is there. Never: registers anything in the kernel (registration.c), looks at a connection, or
 * waits (epoll_wait.c). */
#include <sys/random.h>

#include "control/page_offers.h"
#include "conn/state.h"
#include "ready/poller.h"

uint64_t fs_poller_base;
uint32_t fs_poller_tag;
struct fs_poller_host fs_poller_host;
struct fs_counters fs_poller_totals;

/* ---- whose data ------------------------------------------------------------------------------------------------------- */

/* The highest bit is clear and the next one is set: no pointer, and no small number, positive or negative, is like that. */
void fs_pollers_begin(void) {
    uint64_t drawn = 0;
    if (fs_poller_base) return;
    /* (Without random numbers the clock's are good enough for a program that does not guess.) */
    if (fs_system.getrandom(&drawn, sizeof drawn, GRND_NONBLOCK) != sizeof drawn) drawn = (uint64_t)fs_now() * UINT64_C(0x9e3779b97f4a7c15);
    fs_poller_base = (drawn >> 1 | UINT64_C(1) << 62) >> FS_RANGE_BITS << FS_RANGE_BITS;
}

int fs_is_poller_data(uint64_t data) { return fs_is_ours(data); }

struct fs_member *fs_member_of_data(struct fs_poller *p, uint64_t data) {
    uint32_t slot = (uint32_t)(data >> FS_GENERATION_BITS) & ((1u << FS_SLOT_BITS) - 1);
    struct fs_member *m = slot && slot < p->used ? p->slots[slot] : NULL;
    uint32_t tag = (uint32_t)(data >> (FS_SLOT_BITS + FS_GENERATION_BITS)) & ((1u << FS_TAG_BITS) - 1);
    return m && m->in_use && m->generation == (uint16_t)data && m->tag == tag ? m : NULL;
}

/* ---- pollers ------------------------------------------------------------------------------------------------------------ */

struct fs_poller *fs_poller_new(int epoll, int *failed) {
    struct fs_poller *p = fs_system.calloc(1, sizeof *p);
    *failed = p ? 0 : -ENOMEM;
    if (!p) return NULL;
    pthread_mutex_init(&p->lock, NULL);
    p->epoll = epoll;
    p->process = fs_own_pid;
    p->used = 1;
    fs_spin_stats_init(&p->stats);
    return p;
}

void fs_poller_set_number(struct fs_poller *p, int epoll) {
    fs_lock_poller(p);
    p->epoll = epoll;
    if (p->set && !p->set->has_epoll) fs_store_relaxed(&p->set->epoll, epoll);
    fs_unlock_poller(p);
}

struct fs_event_set *fs_set_of_poller(struct fs_poller *p, int *failed) {
    *failed = 0;
    if (p->set) return p->set;
    p->set = p->epoll < 0 ? fs_event_set_new_reserved(failed) : fs_event_set_new_in(p->epoll, fs_poller_data(FS_SET_SLOT, 0), failed);
    /* (Who sleeps already is woken by the first post.) */
    if (p->set && p->sleepers) fs_prepare_sleep(p->set);
    return p->set;
}

void fs_member_activate(struct fs_member *m, int edge) {
    struct fs_poller *p = m->poller;
    if (!m->parked) return;
    m->edge |= edge;
    if (m->listed) return;
    m->listed = 1;
    m->after = NULL;
    m->before = p->last;
    if (p->last) p->last->after = m;
    else p->first = m;
    p->last = m;
    p->listed++;
}

void fs_member_deactivate(struct fs_member *m) {
    struct fs_poller *p = m->poller;
    if (!m->listed) return;
    m->listed = 0;
    if (m->before) m->before->after = m->after;
    else p->first = m->after;
    if (m->after) m->after->before = m->before;
    else p->last = m->before;
    p->listed--;
}

void fs_wake_waiters(struct fs_poller *p) {
    if ((p->sleepers || p->exposed) && p->set) fs_wake_owner(p->set);
}

void fs_take_poller_hints(struct fs_poller *p) {
    uint32_t places[FS_HINTS];
    int count;
    if (!p->set || !fs_has_hints(p->set)) return;
    fs_reoffer_pages(p->set);
    /* (A peer may make up hints without an end.) */
    for (int takes = 0; takes < 256 && (count = fs_take_hints(p->set, places, FS_HINTS)) > 0; takes++)
        for (int i = 0; i < count; i++) {
            struct fs_member *m = fs_slot_member(p->set, places[i]);
            for (; m; m = m->sibling) fs_member_activate(m, 1);
        }
}

void fs_members_activate_unreported(struct fs_poller *p) {
    for (uint32_t i = 1, left = p->unreported + p->late; left && i < p->used; i++) {
        struct fs_member *m = p->slots[i];
        if (!m->unreported && !m->late) continue;
        left--;
        m->asks |= m->unreported;
        /* (Without a report, an arrival looks like none.) */
        fs_member_activate(m, m->unreported || m->late == FS_SHARED);
    }
}

void fs_end_poller_call(struct fs_connection *c, struct fs_call *call) {
    if (fs_poller_host.end_call) fs_poller_host.end_call(c, call);
    else fs_call_exit(c, call);
}

/* ---- the table ------------------------------------------------------------------------------------------------------------ */

static struct fs_member *new_slot(struct fs_poller *p) {
    if (p->first_free) {
        struct fs_member *m = p->slots[p->first_free];
        p->first_free = m->next_free;
        return m;
    }
    if (p->used >= 1u << FS_SLOT_BITS) return NULL;
    if (p->used >= p->room) {
        uint32_t room = p->room ? 2 * p->room : 32;
        struct fs_member **larger = fs_system.realloc(p->slots, room * sizeof *larger);
        if (!larger) return NULL;
        p->slots = larger;
        p->room = room;
    }
    struct fs_member *m = fs_system.calloc(1, sizeof *m);
    if (!m) return NULL;
    m->slot = p->used;
    p->slots[p->used++] = m;
    return m;
}

struct fs_member *fs_member_new(struct fs_poller *p, struct fs_pollable *it, int fd, uint32_t events, uint64_t data) {
    struct fs_member *m = new_slot(p);
    if (!m) return NULL;
    *m = (struct fs_member){.it = it, .poller = p, .slot = m->slot, .generation = (uint16_t)(m->generation + 1),
                            .tag = (uint16_t)fs_poller_tag, .version = m->version + 1, .fd = fd, .events = events, .data = data,
                            .in_use = 1, .enabled = 1};
    if (it) {
        m->next = fs_load_relaxed(&it->members);
        fs_store_relaxed(&it->members, m);
    } else {
        p->foreign++;
    }
    return m;
}

struct fs_member *fs_member_find(struct fs_poller *p, struct fs_pollable *it, int fd) {
    if (it) {
        for (struct fs_member *m = fs_load_relaxed(&it->members); m; m = m->next) {
            if (m->poller != p || (m->fd < 0 ? m->closed : m->fd) != fd) continue;
            m->fd = fd; /* (if it was closed, it is a number of this socket again: the kernel has the registration by it) */
            return m;
        }
        return NULL;
    }
    for (uint32_t i = 1, left = p->foreign; left && i < p->used; i++) {
        struct fs_member *m = p->slots[i];
        if (!m->in_use || m->it) continue;
        if (m->fd == fd) return m;
        left--;
    }
    return NULL;
}

void fs_member_note_unreported(struct fs_member *m, int unreported) {
    unreported = unreported && m->parked;
    m->poller->unreported += (uint32_t)(unreported - m->unreported);
    m->unreported = unreported;
}

void fs_note_late(struct fs_member *m, int late) {
    m->poller->late += (uint32_t)((late != FS_ON_TIME) - (m->late != FS_ON_TIME));
    m->poller->shared += (uint32_t)((late == FS_SHARED) - (m->late == FS_SHARED));
    m->late = late;
}

void fs_note_parked(struct fs_member *m, int parked) {
    fs_store_relaxed(&m->poller->parked, fs_load_relaxed(&m->poller->parked) + (uint32_t)(parked - m->parked));
    m->parked = parked;
    if (parked) return;
    fs_member_note_unreported(m, 0);
    fs_note_late(m, FS_ON_TIME);
}

void fs_member_free(struct fs_member *m) {
    struct fs_poller *p = m->poller;
    struct fs_pollable *it = m->it;
    fs_member_deactivate(m);
    fs_note_parked(m, 0);
    if (it) {
        struct fs_member *first = fs_load_relaxed(&it->members);
        if (first == m) {
            fs_store_relaxed(&it->members, m->next);
        } else {
            while (first->next != m) first = first->next;
            first->next = m->next;
        }
    } else {
        p->foreign--;
    }
    m->it = NULL;
    m->in_use = m->slot_in = 0;
    m->version++;
    m->next_free = p->first_free;
    p->first_free = m->slot;
}
