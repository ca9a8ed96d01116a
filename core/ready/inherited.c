/* Epoll instances that a fork has shared.
 *
 * To the kernel it is one instance: whoever adds, changes or takes out a descriptor, or is told of an edge or of a single shot, does so for
 * all processes that have it. But each process has a table of members of its own. So such an event has to go through the kernel, as soon as
 * two processes have the connection too:
 *
 *   - Who changes a registration, or makes one, takes the connection off the ring first, and *hands over* its registrations: they are in
 *     the kernel as the program has made them. Who takes one out hands it over without that.
 *   - A process that waits, and has inherited a member that is told once (EPOLLET, EPOLLONESHOT), does so if another process has waited
 *     before. Until then the tables agree, and one process alone uses the instance.
 *
 * A bit in the connection's side, which all its holders share, says that this was done: one bit for each instance, its *family*. Others
 * drop their members when they see the bit. A connection that one process alone has is served as ever.
 *
 * Responsible for: that processes which share an instance and a connection are told as by the kernel. Never: takes a connection off the
 * ring (the front end does). */
#include "ready/inherited.h"

void fs_poller_share(struct fs_poller *p, uint64_t family) { fs_store_relaxed(&p->family, family); }

/* ---- what is told once --------------------------------------------------------------------------------------------------- */

int fs_take_shot(struct fs_member *m) {
    uint64_t family = fs_load_relaxed(&m->poller->family);
    struct fs_connection *c = family && m->it ? fs_load_relaxed(&m->it->c) : NULL;
    if (!c) return 1;
    /* SYNC: shot - pairs with fs_hand_over_member: one of the two sees the other's bit. */
    fs_or_sc(&fs_own(c)->shots, family);
    return !fs_is_handed_over(m);
}

void fs_renew_member(struct fs_member *m) {
    uint64_t family = fs_load_relaxed(&m->poller->family);
    struct fs_connection *c = family && m->it ? fs_load_relaxed(&m->it->c) : NULL;
    if (!c) return;
    fs_and_sc(&fs_own(c)->shots, ~family);
    fs_and_sc(&fs_own(c)->handed_over, ~family);
}

void fs_note_single_events(struct fs_poller *p) {
    uint32_t single = 0;
    if (!fs_load_relaxed(&p->family)) return;
    for (uint32_t i = 1; i < p->used; i++)
        if (p->slots[i]->in_use && p->slots[i]->it) single |= p->slots[i]->events & (EPOLLET | EPOLLONESHOT);
    fs_store_relaxed(&p->single, single != 0);
}

/* Returns the connection if another process waits for it too, by a member that is told once; or NULL. */
static struct fs_connection *waited_beside(struct fs_pollable *it) {
    int beside = 0;
    pthread_mutex_lock(&it->lock);
    struct fs_connection *c = fs_load_relaxed(&it->c);
    if (c && it->attached && fs_is_shared(c)) {
        fs_word32 *waiter = &fs_own(c)->waiter;
        beside = !fs_cas32(waiter, 0, fs_own_pid) && fs_load_sc(waiter) != fs_own_pid;
    }
    pthread_mutex_unlock(&it->lock);
    return beside ? c : NULL;
}

/* (Another thread may close one meanwhile: its memory stays the front end's, which knows.) */
void fs_leave_single_events(struct fs_poller *p) {
    if (!fs_exchange_sc(&p->single, 0) || !fs_poller_host.leave) return;
    for (uint32_t i = 1;; i++) {
        fs_lock_poller(p);
        struct fs_member *m = i < p->used ? p->slots[i] : NULL;
        struct fs_pollable *it = m && m->in_use && m->events & (EPOLLET | EPOLLONESHOT) ? m->it : NULL;
        fs_unlock_poller(p);
        if (!m) return;
        struct fs_connection *c = it ? waited_beside(it) : NULL;
        if (c) fs_poller_host.leave(c);
    }
}

/* ---- handing over ---------------------------------------------------------------------------------------------------------- */

uint64_t fs_claim_handover(struct fs_pollable *it) {
    struct fs_connection *c = fs_load_relaxed(&it->c);
    uint64_t families = 0;
    for (struct fs_member *m = fs_load_relaxed(&it->members); m; m = m->next) families |= fs_load_relaxed(&m->poller->family);
    if (!c || !families || !fs_is_shared(c)) return 0;
    /* SYNC: handed over - pairs with fs_is_handed_over. */
    return families & ~fs_or_sc(&fs_own(c)->handed_over, families);
}

int fs_hand_over_member(struct fs_member *m, uint64_t claim) {
    struct fs_poller *p = m->poller;
    uint64_t family = fs_load_relaxed(&p->family);
    if (!fs_is_handed_over(m)) return 0;
    /* SYNC: shot - pairs with fs_take_shot. */
    int told = m->events & EPOLLONESHOT && fs_load_sc(&fs_own(fs_load_relaxed(&m->it->c))->shots) & family;
    /* (One that was told stays registered with data that nobody has any more: it reports nothing.) */
    if (claim & family && m->fd >= 0 && p->epoll >= 0 && m->enabled && !told) {
        struct epoll_event event = {.events = m->events & ~(uint32_t)EPOLLEXCLUSIVE, .data.u64 = m->data};
        fs_register_in_kernel(p, EPOLL_CTL_MOD, m->fd, fs_load_relaxed(&m->it->c), event);
    }
    fs_member_drop(m);
    return 1;
}

/* Those of `only`, or of all pollers. With the pollable's lock. */
static void hand_over(struct fs_pollable *it, const struct fs_poller *only, uint64_t claim) {
    struct fs_member *next;
    for (struct fs_member *m = fs_load_relaxed(&it->members); m; m = next) {
        struct fs_poller *p = m->poller;
        next = m->next;
        if (only && p != only) continue;
        fs_lock_poller(p);
        fs_hand_over_member(m, claim);
        fs_unlock_poller(p);
    }
    if (it->attached) fs_pollable_register(it);
}

int fs_control_inherited(struct fs_poller *p, int op, int fd, struct fs_pollable *it, const struct epoll_event *event, int *done) {
    int members = 0;
    pthread_mutex_lock(&it->lock);
    struct fs_connection *c = fs_load_relaxed(&it->c);
    for (struct fs_member *m = fs_load_relaxed(&it->members); m; m = m->next) members += m->poller == p;
    int shared = c && fs_is_shared(c) && fs_poller_host.leave && (op == EPOLL_CTL_DEL || !fs_is_poller_data(event->data.u64));
    pthread_mutex_unlock(&it->lock);
    /* (One registration that goes is the only one: nothing is left that the kernel has to tell.) */
    int leaves = op != EPOLL_CTL_DEL || members > 1;
    if (!shared || (leaves && !fs_poller_host.leave(c))) return 0;
    pthread_mutex_lock(&it->lock);
    if (leaves) hand_over(it, NULL, fs_claim_handover(it));
    struct epoll_event copy = op == EPOLL_CTL_DEL ? (struct epoll_event){0} : *event;
    *done = fs_register_in_kernel(p, op, fd, c, copy);
    if (*done == 0 && op == EPOLL_CTL_DEL && fs_load_relaxed(&it->c) == c) {
        /* SYNC: handed over - pairs with fs_is_handed_over. */
        fs_or_sc(&fs_own(c)->handed_over, fs_load_relaxed(&p->family));
        hand_over(it, p, 0);
    }
    pthread_mutex_unlock(&it->lock);
    return 1;
}
