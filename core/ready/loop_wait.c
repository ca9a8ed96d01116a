/* How an event loop waits (fastsock_loop.h): its members are the connections that its transports drive. The pollable of each is the
 * member's own, so no lock is taken, and all of this may be called with Python's.
 *
 * Responsible for: what is different for a poller whose wait is a loop's. Never: the order in which a loop delivers, or when it sleeps (the
 * package's completion queue). */
#include "include/fastsock_loop.h"

#include "control/page_offers.h"
#include "conn/state.h"
#include "ready/member_spin.h"
#include "ready/scan.h"

struct fs_poller *fs_loop_new(int *failed) {
    struct fs_poller *p = fs_poller_new(-1, failed);
    if (!p) return NULL;
    p->alone = 1;
    p->busy = 1; /* it waits always */
    /* (The loop's selector may be select(2), which takes no number of the reserved range.) */
    p->set = fs_event_set_new(failed);
    if (p->set) return p;
    fs_poller_end(p);
    return NULL;
}

void fs_loop_end(struct fs_poller *p) {
    p->busy = 0;
    if (!fs_load_relaxed(&p->parked)) fs_poller_end(p);
}

/* The pollable is the member's own. That of the socket belongs to pollers of the program, which go on asking the kernel alone. */
struct fs_member *fs_loop_add(struct fs_poller *p, struct fs_connection *c, void *data, int *failed) {
    struct fs_pollable *it = fs_system.calloc(1, sizeof *it);
    struct fs_member *m = it ? fs_member_new(p, it, -1, FS_IN, (uint64_t)(uintptr_t)data) : NULL;
    *failed = -ENOMEM;
    if (!m) {
        fs_system.free(it);
        return NULL;
    }
    fs_poller_connected(it, c);
    fs_note_parked(m, 1);
    m->last_told = fs_now();
    *failed = fs_poller_before_attach(it);
    if (!*failed) return m;
    fs_loop_drop(m);
    return NULL;
}

void fs_loop_enter(struct fs_member *m) {
    fs_set_register(m->poller->set, fs_load_relaxed(&m->it->c)); /* so that the peer has the page before the first sleep */
    fs_member_activate(m, 1);
}

void fs_loop_want(struct fs_member *m, uint32_t events, int ended) {
    m->events = events;
    m->enabled = events != 0;
    m->kernel = ended ? (uint32_t)EPOLLIN | EPOLLRDHUP : 0;
}

void fs_loop_activate(struct fs_member *m) { fs_member_activate(m, 1); }

int fs_loop_looks(const struct fs_poller *p) { return p->listed != 0; }

int fs_loop_fd(const struct fs_poller *p) { return (int)fs_load_own32(&p->set->epoll); }

int64_t fs_loop_late(const struct fs_poller *p) { return fs_longest_sleep(p); }

void fs_loop_activate_late(struct fs_poller *p) { fs_members_activate_unreported(p); }

void fs_loop_drop(struct fs_member *m) {
    struct fs_poller *p = m->poller;
    struct fs_pollable *it = m->it;
    fs_member_drop(m);
    fs_system.free(it);
    if (!p->busy) fs_loop_end(p);
}

int fs_loop_look(struct fs_poller *p, struct epoll_event *events, int max, int64_t now) {
    struct fs_told told = {.events = events, .max = max, .wait = ++p->waits, .now = now};
    fs_take_poller_hints(p);
    if (p->listed) fs_members_check(p, &told, FS_TELL);
    return told.count;
}

int fs_loop_await(struct fs_poller *p, int looks) {
    struct fs_member *m = p->first;
    if (!m || m->after || !m->enabled) return 0;
    struct fs_connection *c = fs_load_relaxed(&m->it->c);
    int wanted = fs_spun_wanted(c, m->events);
    while (looks--) {
        if (fs_may_be_ready(c, wanted)) return 1;
        fs_cpu_relax();
    }
    return 0;
}

void fs_loop_found(struct fs_poller *p) {
    if (p->quiet_since && p->budget) fs_spin_stats_update(&p->stats, &fs_poller_totals, p->quiet_since, 1, 1);
    p->quiet_since = 0;
}

int64_t fs_loop_budget(struct fs_poller *p, int64_t now) {
    if (!p->quiet_since) {
        p->quiet_since = now;
        p->spun = 0;
        p->budget = fs_spin_budget(&p->stats, now, fs_last_peer_cpu);
    }
    int64_t left = p->quiet_since + p->budget - now;
    if (left > 0) return left;
    fs_spun_in_vain(&p->spun);
    return 0;
}

int fs_loop_polls(struct fs_poller *p, int64_t now) { return fs_spin_budget(&p->stats, now, fs_last_peer_cpu) > 0; }

int fs_loop_spin(struct fs_poller *p, int64_t until) { return fs_members_spin(p, until, &p->spun); }

int fs_loop_arm(struct fs_poller *p) {
    struct fs_told nothing = {0};
    if (p->listed) fs_members_check(p, &nothing, FS_ARM);
    return p->listed != 0;
}

int fs_loop_sleep(struct fs_poller *p) {
    for (int tries = 0; tries < 2; tries++) {
        if (!fs_prepare_sleep(p->set)) return 0;
        fs_take_poller_hints(p);
        if (p->listed) break;
    }
    return 1; /* (also if hints of no member keep coming: the loop does its other work in between) */
}

void fs_loop_awake(struct fs_poller *p) {
    p->quiet_since = 0;
    fs_set_awake(p->set);
}

void fs_loop_wake(struct fs_poller *p) {
    int slept = !p->listed && p->quiet_since;
    fs_set_awake(p->set);
    fs_event_set_drain(p->set);
    fs_take_poller_hints(p);
    if (slept && p->listed) fs_spin_stats_update(&p->stats, &fs_poller_totals, p->quiet_since, p->budget > 0, 0);
    p->quiet_since = 0;
}
