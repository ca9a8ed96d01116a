/* Where a member is registered: the connection's slot in an event set, and the kernel's instance.
 *
 * A connection has one slot: in the set of the one poller that waits for it, or in the common set (common_set.c) if several wait. In the
 * kernel a member is registered as the program wants it, or *parked*: for changes alone, while the ring has the bytes.
 *
 * Responsible for: who has the slot, and what the kernel is told. Never: what is ready (level.c, scan.c). */
#include "conn/event_slot.h"
#include "ready/common_set.h"

/* ---- slots ------------------------------------------------------------------------------------------------------------------ */

/* The members in `p` hang together, and hints of its set are at the first one. */
static void chain(struct fs_pollable *it, struct fs_poller *p, struct fs_connection *c) {
    struct fs_member *first = NULL;
    for (struct fs_member *m = fs_load_relaxed(&it->members); m; m = m->next) {
        if (m->poller != p) continue;
        m->sibling = first;
        first = m;
        m->slot_in = fs_load_relaxed(&it->home) == p ? FS_OWN_SET : it->common ? FS_COMMON_SET : FS_NO_SLOT;
        fs_member_note_unreported(m, it->attached && !m->slot_in);
    }
    if (fs_load_relaxed(&it->home) == p) fs_slot_put_member(p->set, fs_slot_of(c), first);
}

/* `moved`: the slot is another one. What was armed told of the old one, and a hint may have gone there: all look again. */
static void chain_all(struct fs_pollable *it, struct fs_connection *c, int moved) {
    for (struct fs_member *m = fs_load_relaxed(&it->members); m; m = m->next) {
        fs_lock_poller(m->poller);
        chain(it, m->poller, c);
        if (moved) {
            fs_member_activate(m, 1);
            fs_wake_waiters(m->poller);
        }
        fs_unlock_poller(m->poller);
    }
}

void fs_member_drop(struct fs_member *m) {
    struct fs_poller *p = m->poller;
    struct fs_pollable *it = m->it;
    int others = 0;
    fs_member_free(m);
    if (!it || fs_load_relaxed(&it->home) != p) return;
    for (m = fs_load_relaxed(&it->members); m; m = m->next) others |= m->poller == p;
    if (others) {
        chain(it, p, fs_load_relaxed(&it->c));
        return;
    }
    /* (The poller may end before the socket does, which would not hear of it.) */
    fs_store_relaxed(&it->home, NULL);
    fs_slot_free(fs_load_relaxed(&it->c), p->set);
}

void fs_pollable_unregister(struct fs_pollable *it, struct fs_connection *c) {
    struct fs_poller *home = fs_load_relaxed(&it->home);
    if (it->common) fs_common_slot_free(c);
    it->common = 0;
    if (!home) return;
    fs_lock_poller(home);
    fs_store_relaxed(&it->home, NULL);
    fs_slot_free(c, home->set);
    chain(it, home, c);
    fs_unlock_poller(home);
}

/* A place in the set of `p`, or, without, in the common one. 0 or -errno. */
static int take_slot(struct fs_pollable *it, struct fs_poller *p, struct fs_connection *c) {
    int failed = 0;
    for (struct fs_member *m = fs_load_relaxed(&it->members); m && !p && !failed; m = m->next) {
        fs_lock_poller(m->poller);
        failed = fs_join_common(m->poller);
        fs_unlock_poller(m->poller);
    }
    if (!p && !failed) failed = fs_common_slot_alloc(it, c);
    if (!p) {
        it->common = !failed;
        return failed;
    }
    fs_lock_poller(p);
    struct fs_event_set *set = fs_set_of_poller(p, &failed);
    if (set) failed = fs_slot_alloc(c, set);
    if (!failed) fs_store_relaxed(&it->home, p);
    fs_unlock_poller(p);
    return failed;
}

/* A poller of the connection's that waits for it, or may; a thread that is in no call of poll goes without. `*several`: there are others.
 * `*alone`: no other one has a member at all. `*at_home`: the one has that has the slot. */
static struct fs_poller *who_waits(struct fs_pollable *it, int *several, int *alone, int *at_home) {
    struct fs_poller *one = NULL, *any = NULL;
    *several = *at_home = 0;
    *alone = 1;
    for (struct fs_member *m = fs_load_relaxed(&it->members); m; m = m->next) {
        struct fs_poller *p = m->poller;
        if (any && any != p) *alone = 0;
        any = p;
        *at_home |= p == fs_load_relaxed(&it->home);
        fs_lock_poller(p);
        int waits = p->epoll >= 0 || p->busy;
        fs_unlock_poller(p);
        if (!waits) continue;
        if (one && one != p) *several = 1;
        one = p;
    }
    return one;
}

int fs_pollable_register(struct fs_pollable *it) {
    struct fs_connection *c = fs_load_relaxed(&it->c);
    int several, alone, at_home, failed = 0;
    if (!c) return 0; /* its last number was closed as another thread took a step: nobody hears of it any more */
    struct fs_poller *one = who_waits(it, &several, &alone, &at_home);
    /* (A common slot is kept while there are several: who polls now and then would move it to and fro.) */
    int stays = it->common ? !alone : fs_load_relaxed(&it->home) && at_home && !several && (!one || one == fs_load_relaxed(&it->home));
    if (!stays) {
        fs_pollable_unregister(it, c);
        if (several) failed = take_slot(it, NULL, c);
        if (one && (failed || !several)) failed = take_slot(it, one, c);
    } else if (it->common) {
        for (struct fs_member *m = fs_load_relaxed(&it->members); m; m = m->next) {
            fs_lock_poller(m->poller);
            fs_join_common(m->poller);
            fs_unlock_poller(m->poller);
        }
    }
    chain_all(it, c, !stays);
    return failed;
}

/* ---- the kernel's registrations -------------------------------------------------------------------------------------------- */

int fs_register_in_kernel(struct fs_poller *p, int op, int fd, const struct fs_connection *c, struct epoll_event event) {
    int failed = fs_system.epoll_ctl(p->epoll, op, fd, &event) < 0 ? -errno : 0;
    if (failed != -ENOENT || op != EPOLL_CTL_MOD || !c || !c->is.bridged) return failed;
    return fs_system.epoll_ctl(p->epoll, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

/* As epoll_ctl, with our data. 0 or -errno. */
int fs_member_register(struct fs_member *m, int op) {
    uint32_t events = m->parked ? (uint32_t)FS_PARKED_EVENTS | (m->kernel_room ? EPOLLOUT : 0u) : m->events & ~(uint32_t)EPOLLEXCLUSIVE;
    struct epoll_event event = {.events = events, .data.u64 = fs_poller_data(m->slot, m->generation)};
    m->tag = (uint16_t)fs_poller_tag;
    if (m->poller->epoll < 0 || m->fd < 0) return 0;
    return fs_register_in_kernel(m->poller, op, m->fd, m->it ? fs_load_relaxed(&m->it->c) : NULL, event);
}

/* What was registered before, and perhaps told, counts no more: a change asks anew. */
int fs_member_register_again(struct fs_member *m) {
    m->generation++;
    m->version++;
    return fs_member_register(m, EPOLL_CTL_MOD);
}

/* (An edge that is there at once is of room that has come since. What was reported before still counts.) */
void fs_await_kernel_room(struct fs_member *m) {
    if (m->kernel_room || !m->parked || m->fd < 0) return;
    m->kernel_room = 1;
    fs_member_register(m, EPOLL_CTL_MOD);
}

void fs_member_park(struct fs_member *m) {
    fs_note_parked(m, 1);
    m->found = 0;
    fs_member_register_again(m); /* (a number that the program has closed past us is reported no more) */
    fs_member_activate(m, 1);
}

/* A member that a look finds disabled stays: a registration that reports nothing at all cannot be made. */
void fs_member_unpark(struct fs_member *m) {
    if (!m->parked || !m->enabled || m->fd < 0 || m->poller->epoll < 0) return;
    fs_member_deactivate(m);
    fs_note_parked(m, 0);
    m->kernel_room = 0;
    fs_member_register_again(m);
}
