/* Members of pollers: how a descriptor becomes one, changes over between the kernel and the ring, and goes.
 *
 * Responsible for: registrations in the kernel, and who has the connection's slot in an event set. Never: looks at a connection's bytes, or
 * waits (epoll_wait.c). */
#include "conn/event_slot.h"
#include "conn/state.h"
#include "ready/inherited.h"
#include "ready/scan.h"
#include "ready/shared_set.h"

/* ---- slots ------------------------------------------------------------------------------------------------------------------ */

/* The members in `p` hang together, and hints of its set are at the first one. */
static void chain(struct fs_pollable *it, struct fs_poller *p, struct fs_connection *c) {
    struct fs_member *first = NULL;
    for (struct fs_member *m = fs_load_relaxed(&it->members); m; m = m->next) {
        if (m->poller != p) continue;
        m->sibling = first;
        first = m;
        m->seated = fs_load_relaxed(&it->home) == p ? FS_OWN_SET : it->common ? FS_COMMON_SET : FS_NO_SLOT;
        fs_member_note_unreported(m, it->attached && !m->seated);
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

static void leave_seat(struct fs_pollable *it, struct fs_connection *c) {
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
static int take_seat(struct fs_pollable *it, struct fs_poller *p, struct fs_connection *c) {
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
    if (!c) return 0; /* its last number was closed as another thread took a step: nobody is told of it any more */
    struct fs_poller *one = who_waits(it, &several, &alone, &at_home);
    /* (A common slot is kept while there are several: who polls now and then would move it to and fro.) */
    int stays = it->common ? !alone : fs_load_relaxed(&it->home) && at_home && !several && (!one || one == fs_load_relaxed(&it->home));
    if (!stays) {
        leave_seat(it, c);
        if (several) failed = take_seat(it, NULL, c);
        if (one && (failed || !several)) failed = take_seat(it, one, c);
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
static int register_member(struct fs_member *m, int op) {
    uint32_t events = m->parked ? (uint32_t)FS_PARKED_EVENTS | (m->kernel_room ? EPOLLOUT : 0u) : m->events & ~(uint32_t)EPOLLEXCLUSIVE;
    struct epoll_event event = {.events = events, .data.u64 = fs_poller_data(m->slot, m->generation)};
    m->tag = (uint16_t)fs_poller_tag;
    if (m->poller->epoll < 0 || m->fd < 0) return 0;
    return fs_register_in_kernel(m->poller, op, m->fd, m->it ? fs_load_relaxed(&m->it->c) : NULL, event);
}

/* What was registered before, and perhaps told, counts no more: a change asks anew. */
static int register_again(struct fs_member *m) {
    m->generation++;
    m->version++;
    return register_member(m, EPOLL_CTL_MOD);
}

/* (An edge that is there at once is of room that has come since. What was told of before still counts.) */
void fs_await_kernel_room(struct fs_member *m) {
    if (m->kernel_room || !m->parked || m->fd < 0) return;
    m->kernel_room = 1;
    register_member(m, EPOLL_CTL_MOD);
}

void fs_member_park(struct fs_member *m) {
    fs_note_parked(m, 1);
    m->found = 0;
    register_again(m); /* (a number that the program has closed behind us is told of no more) */
    fs_member_activate(m, 1);
}

/* A member that a look finds disabled stays: a registration that tells of nothing at all cannot be made. */
static void unpark_member(struct fs_member *m) {
    if (!m->parked || !m->enabled || m->fd < 0 || m->poller->epoll < 0) return;
    fs_member_deactivate(m);
    fs_note_parked(m, 0);
    m->kernel_room = 0;
    register_again(m);
}

/* ---- epoll_ctl -------------------------------------------------------------------------------------------------------------- */

static int pass(struct fs_poller *p, int op, int fd, const struct epoll_event *event) {
    return fs_register_in_kernel(p, op, fd, NULL, event ? *event : (struct epoll_event){0});
}

/* A descriptor of the kernel's: only one whose data lie in our range is a member. */
static int control_foreign(struct fs_poller *p, int op, int fd, const struct epoll_event *event) {
    struct fs_member *m = p->foreign ? fs_member_find(p, NULL, fd) : NULL;
    int failed, clashes = op != EPOLL_CTL_DEL && fs_is_poller_data(event->data.u64);
    if (!clashes) {
        failed = pass(p, op, fd, event);
        if (!failed && m) fs_member_free(m); /* (a new one of this number, or another one's by now) */
        return failed;
    }
    struct fs_member *fresh = fs_member_new(p, NULL, fd, event->events, event->data.u64);
    if (!fresh) return -ENOMEM;
    struct epoll_event ours = {.events = event->events, .data.u64 = fs_poller_data(fresh->slot, fresh->generation)};
    failed = pass(p, op, fd, &ours);
    if (failed) fs_member_free(fresh);
    else if (m) fs_member_free(m);
    return failed;
}

/* As the kernel judges the flag. */
static int is_bad(int op, const struct fs_member *m, uint32_t events) {
    uint32_t goes = EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLWAKEUP | EPOLLET | EPOLLEXCLUSIVE;
    if (op == EPOLL_CTL_MOD) return (events | (m ? m->events : 0)) & EPOLLEXCLUSIVE;
    return events & EPOLLEXCLUSIVE && events & ~goes;
}

static int add(struct fs_poller *p, int op, int fd, struct fs_pollable *it, const struct epoll_event *event) {
    struct fs_member *m = fs_member_new(p, it, fd, event->events, event->data.u64);
    if (!m) return -ENOMEM;
    fs_note_parked(m, it->attached);
    int failed = register_member(m, op);
    if (failed) {
        fs_member_free(m);
        return failed;
    }
    fs_renew_member(m);
    m->asks = m->fresh = 1; /* of what the kernel knows alone, such as a reset, the first look tells too */
    fs_member_activate(m, 1);
    return 0;
}

static int change(struct fs_member *m, const struct epoll_event *event, int attached) {
    m->events = event->events;
    m->data = event->data.u64;
    m->enabled = 1;
    m->full = 0;
    m->endings = m->found = 0;
    m->asks = m->fresh = 1;
    fs_renew_member(m);
    if (m->parked && !attached) unpark_member(m);
    else if (!m->parked) return register_again(m);
    m->version++;
    fs_member_activate(m, 1);
    return 0;
}

static int control(struct fs_poller *p, int op, int fd, struct fs_pollable *it, const struct epoll_event *event) {
    struct fs_member *m = fs_member_find(p, it, fd);
    if (m && fs_is_handed_over(m)) {
        fs_member_drop(m);
        m = NULL;
    }
    if (op != EPOLL_CTL_DEL && is_bad(op, m, event->events)) return -EINVAL;
    if (op == EPOLL_CTL_ADD && m) return -EEXIST;
    if (op == EPOLL_CTL_DEL) {
        int failed = pass(p, op, fd, event);
        if (m && !failed) fs_member_drop(m);
        return failed;
    }
    /* (One that was registered before its descriptor could become a connection is no member: it becomes one.) */
    return m ? change(m, event, it->attached) : add(p, op, fd, it, event);
}

int fs_poller_ctl(struct fs_poller *p, int op, int fd, struct fs_pollable *it, const struct epoll_event *event) {
    int failed;
    if (op != EPOLL_CTL_ADD && op != EPOLL_CTL_MOD && op != EPOLL_CTL_DEL) return pass(p, op, fd, event);
    if (op != EPOLL_CTL_DEL && !event) return -EFAULT;
    if (!it) {
        fs_lock_poller(p);
        failed = control_foreign(p, op, fd, event);
        fs_unlock_poller(p);
        return failed;
    }
    if (fs_load_relaxed(&p->family) && fs_control_inherited(p, op, fd, it, event, &failed)) return failed;
    pthread_mutex_lock(&it->lock);
    fs_lock_poller(p);
    p->waiters++; /* (another thread may close the instance meanwhile) */
    int64_t longest = fs_longest_sleep(p);
    failed = control(p, op, fd, it, event);
    fs_unlock_poller(p);
    if (it->attached && !failed && op != EPOLL_CTL_MOD) fs_pollable_register(it);
    pthread_mutex_unlock(&it->lock);
    fs_lock_poller(p);
    if (!failed && op != EPOLL_CTL_DEL) fs_pass_to_sleepers(p, longest);
    fs_leave_wait(p);
    return failed;
}

/* ---- what happens to a socket -------------------------------------------------------------------------------------------------- */

void fs_poller_connected(struct fs_pollable *it, struct fs_connection *c) {
    pthread_mutex_lock(&it->lock);
    fs_store_relaxed(&it->c, c);
    pthread_mutex_unlock(&it->lock);
}

int fs_poller_before_attach(struct fs_pollable *it) {
    pthread_mutex_lock(&it->lock);
    int failed = fs_load_relaxed(&it->c) ? 0 : -EBADF; /* its last number is closed */
    for (struct fs_member *m = fs_load_relaxed(&it->members); m; m = m->next)
        if (m->fd < 0 && m->poller->epoll >= 0 && !m->parked) failed = -EBADF; /* its registration can no longer be changed */
    it->attached = !failed;
    if (!failed && (failed = fs_pollable_register(it)) < 0) it->attached = 0;
    pthread_mutex_unlock(&it->lock);
    return failed;
}

void fs_poller_after_attach(struct fs_pollable *it, int attached) {
    if (!attached) {
        fs_poller_after_leave(it);
        return;
    }
    pthread_mutex_lock(&it->lock);
    for (struct fs_member *m = fs_load_relaxed(&it->members); m; m = m->next) {
        fs_lock_poller(m->poller);
        if (!m->parked) fs_member_park(m);
        fs_unlock_poller(m->poller);
    }
    fs_pollable_register(it);
    for (struct fs_member *m = fs_load_relaxed(&it->members); m; m = m->next) {
        fs_lock_poller(m->poller);
        fs_wake_waiters(m->poller);
        fs_unlock_poller(m->poller);
    }
    pthread_mutex_unlock(&it->lock);
}

void fs_poller_after_leave(struct fs_pollable *it) {
    pthread_mutex_lock(&it->lock);
    it->attached = 0;
    leave_seat(it, fs_load_relaxed(&it->c));
    uint64_t claim = fs_claim_handover(it);
    for (struct fs_member *m = fs_load_relaxed(&it->members), *next; m; m = next) {
        struct fs_poller *p = m->poller;
        next = m->next;
        fs_lock_poller(p);
        fs_member_note_unreported(m, 0);
        if (!fs_hand_over_member(m, claim)) {
            unpark_member(m);
            if (m->parked) fs_member_activate(m, 1);
        }
        fs_wake_waiters(p);
        fs_unlock_poller(p);
    }
    pthread_mutex_unlock(&it->lock);
}

void fs_poller_sent_part(struct fs_pollable *it) {
    /* (Relaxed: who adds one meanwhile has it looked at.) */
    if (!fs_load_relaxed(&it->members)) return;
    pthread_mutex_lock(&it->lock);
    for (struct fs_member *m = fs_load_relaxed(&it->members); m; m = m->next) {
        fs_lock_poller(m->poller);
        if (m->parked && m->events & EPOLLET && m->events & FS_OUT_ROOM) {
            m->full = 1;
            fs_member_activate(m, 0);
            fs_wake_waiters(m->poller);
        }
        fs_unlock_poller(m->poller);
    }
    pthread_mutex_unlock(&it->lock);
}

/* The number is about to be closed, the last one of its socket here. If another process may have the socket, its registration stays with the
 * program's own data: the kernel goes on telling of it, here and in a process that has inherited the instance, as it would without us. (A
 * parked member tells of changes alone, and a single shot that was told tells of nothing: they stay as they are. And the close takes a socket
 * that nobody else has out of the instance.) */
static void hand_over(struct fs_member *m, struct fs_connection *c) {
    struct epoll_event event = {.events = m->events & ~(uint32_t)EPOLLEXCLUSIVE, .data.u64 = m->data};
    if (m->parked || !m->enabled || (c && !fs_is_shared(c)) || fs_is_handed_over(m)) return;
    pass(m->poller, fs_is_poller_data(m->data) ? EPOLL_CTL_DEL : EPOLL_CTL_MOD, m->fd, &event);
}

void fs_poller_close_number(struct fs_pollable *it, int fd, int last) {
    struct fs_member *next;
    /* (Relaxed: who adds one while the number is closed may as well come too late.) */
    if (!fs_load_relaxed(&it->members) && !fs_load_relaxed(&it->c)) return;
    pthread_mutex_lock(&it->lock);
    struct fs_connection *c = fs_load_relaxed(&it->c);
    for (struct fs_member *m = fs_load_relaxed(&it->members); m; m = next) {
        struct fs_poller *p = m->poller;
        next = m->next;
        if (!last && m->fd != fd) continue;
        fs_lock_poller(p);
        if (p->busy && !last) {
            m->fd = m->closed = -1; /* (who is in poll is told of what comes all the same, and drops it: fs_poller_poll) */
        } else if (last || p->epoll < 0) {
            if (p->epoll >= 0 && m->fd == fd && m->tag == fs_poller_tag) hand_over(m, c);
            fs_member_drop(m);
            /* (Who is in poll keeps the connection open until it returns, and is told of nothing that comes from here on.) */
            if (last && p->epoll < 0) fs_wake_waiters(p);
        } else {
            m->kernel_room = 1; /* (what it is told of can be changed no more) */
            if (c) fs_member_park(m);
            m->closed = m->fd;
            m->fd = -1;
        }
        fs_unlock_poller(p);
    }
    if (last) {
        leave_seat(it, c);
        fs_store_relaxed(&it->c, NULL);
        it->attached = 0;
    }
    pthread_mutex_unlock(&it->lock);
}

void fs_poller_forked(struct fs_poller *p) {
    fs_lock_poller(p);
    for (uint32_t i = 1; i < p->used && fs_load_relaxed(&p->parked); i++)
        if (p->slots[i]->in_use) fs_member_activate(p->slots[i], 0);
    fs_note_single_events(p);
    fs_wake_waiters(p);
    fs_unlock_poller(p);
}

void fs_poller_expose(struct fs_poller *p) {
    int failed;
    fs_lock_poller(p);
    p->exposed = 1;
    if (fs_load_relaxed(&p->parked) && fs_set_of_poller(p, &failed)) fs_wake_owner(p->set); /* the next wait arms */
    fs_unlock_poller(p);
    fs_common_leave_asleep();
}

void fs_pollable_after_fork(struct fs_pollable *it) {
    pthread_mutex_init(&it->lock, NULL);
    fs_store_relaxed(&it->home, NULL);
    it->common = 0;
    /* (Those of threads that are not here have members still, which are told of what comes.) */
    for (struct fs_member *m = fs_load_relaxed(&it->members); m; m = m->next)
        if (m->poller->epoll < 0 && m->poller->process != fs_own_pid) fs_poller_after_fork(m->poller);
}

void fs_poller_after_fork(struct fs_poller *p) {
    static uint32_t tagged; /* the process that has its tag */
    if (tagged != fs_own_pid) fs_poller_tag = (fs_poller_tag + 1 + fs_own_pid % ((1u << FS_TAG_BITS) - 1)) % (1u << FS_TAG_BITS);
    tagged = fs_own_pid;
    pthread_mutex_init(&p->lock, NULL); /* (its holder may be a thread that is not here) */
    p->process = fs_own_pid;
    p->sleepers = p->waiters = 0;
    p->common = p->busy = 0;
    p->set = NULL;
    p->reseats = fs_load_relaxed(&p->parked) != 0;
    fs_note_single_events(p);
    fs_forget_common();
    for (uint32_t i = 1; i < p->used; i++) {
        struct fs_member *m = p->slots[i];
        if (!m->in_use || !m->it) continue;
        fs_pollable_after_fork(m->it);
        m->seated = FS_NO_SLOT;
        fs_member_note_unreported(m, m->it->attached);
    }
}
