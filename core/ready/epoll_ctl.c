/* Members of pollers: how a descriptor becomes one, changes over between the kernel and the ring, and goes; and how a poller ends.
 *
 * Responsible for: what epoll_ctl(2), a move, a fallback, a close and a fork make of members. Never: looks at a connection's bytes, or
 * waits (epoll_wait.c). */
#include "conn/state.h"
#include "os/host.h"
#include "ready/inherited.h"
#include "ready/scan.h"
#include "ready/common_set.h"

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
    int failed = fs_member_register(m, op);
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
    /* Of a level it is known if the kernel has something that stays (`asks`), and what nobody has taken yet lies in the instance, unless
     * another process takes it there. (libzmq takes back its wish for room after each message, and has it again before the next one.) */
    int is_level = !((m->events | event->events) & (EPOLLET | EPOLLONESHOT));
    int knows = is_level && m->enabled && m->parked && attached && !fs_load_relaxed(&m->poller->family);
    m->events = event->events;
    m->data = event->data.u64;
    m->enabled = 1;
    m->full = 0;
    m->endings = m->found = 0;
    m->asks |= !knows;
    m->fresh = 1;
    fs_renew_member(m);
    if (m->parked && !attached) fs_member_unpark(m);
    else if (!m->parked) return fs_member_register_again(m);
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
    fs_pollable_unregister(it, fs_load_relaxed(&it->c));
    uint64_t claim = fs_claim_handover(it);
    for (struct fs_member *m = fs_load_relaxed(&it->members), *next; m; m = next) {
        struct fs_poller *p = m->poller;
        next = m->next;
        fs_lock_poller(p);
        fs_member_note_unreported(m, 0);
        if (!fs_hand_over_member(m, claim)) {
            fs_member_unpark(m);
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

/* The number is about to be closed, the last one of its socket here. If another process may have the socket, its registration stays with
 * the program's own data: the kernel goes on telling of it, here and in a process that has inherited the instance, as it would without us.
 * (A parked member reports changes alone, and a single shot that was told reports nothing: they stay as they are. And the close takes a
 * socket that nobody else has out of the instance.) */
static void hand_over(struct fs_member *m, struct fs_connection *c) {
    struct epoll_event event = {.events = m->events & ~(uint32_t)EPOLLEXCLUSIVE, .data.u64 = m->data};
    if (m->parked || !m->enabled || (c && !fs_is_shared(c)) || fs_is_handed_over(m)) return;
    pass(m->poller, fs_is_poller_data(m->data) ? EPOLL_CTL_DEL : EPOLL_CTL_MOD, m->fd, &event);
}

static __attribute__((noinline)) void close_number(struct fs_pollable *it, int fd, int last) {
    struct fs_member *next;
    pthread_mutex_lock(&it->lock);
    struct fs_connection *c = fs_load_relaxed(&it->c);
    for (struct fs_member *m = fs_load_relaxed(&it->members); m; m = next) {
        struct fs_poller *p = m->poller;
        next = m->next;
        if (!last && m->fd != fd) continue;
        fs_lock_poller(p);
        if (p->busy && !last) {
            m->fd = m->closed = -1; /* (who is in poll hears of what comes all the same, and drops it: fs_poller_poll) */
        } else if (last || p->epoll < 0) {
            if (p->epoll >= 0 && m->fd == fd && m->tag == fs_poller_tag) hand_over(m, c);
            fs_member_drop(m);
            /* (Who is in poll keeps the connection open until it returns, and hears of nothing that comes from here on.) */
            if (last && p->epoll < 0) fs_wake_waiters(p);
        } else {
            m->kernel_room = 1; /* (what it reports can be changed no more) */
            if (c) fs_member_park(m);
            m->closed = m->fd;
            m->fd = -1;
        }
        fs_unlock_poller(p);
    }
    if (last) {
        fs_pollable_unregister(it, c);
        fs_store_relaxed(&it->c, NULL);
        it->attached = 0;
    }
    pthread_mutex_unlock(&it->lock);
}

/* (Relaxed: who adds one while the number is closed may as well come too late.) */
void fs_poller_close_number(struct fs_pollable *it, int fd, int last) {
    if (fs_load_relaxed(&it->members) || fs_load_relaxed(&it->c)) close_number(it, fd, last);
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
    /* (Those of threads that are not here have members still, which hear of what comes.) */
    for (struct fs_member *m = fs_load_relaxed(&it->members); m; m = m->next)
        if (m->poller->epoll < 0 && m->poller->process != fs_own_pid) fs_poller_after_fork(m->poller);
}

void fs_poller_after_fork(struct fs_poller *p) {
    static uint32_t tagged; /* the process that has its tag */
    if (tagged != fs_own_pid) fs_poller_tag = (fs_poller_tag + 1 + fs_own_pid % ((1u << FS_TAG_BITS) - 1)) % (1u << FS_TAG_BITS);
    tagged = fs_own_pid;
    fs_renew_lock(&p->lock); /* (its holder may be a thread that is not here) */
    p->process = fs_own_pid;
    p->sleepers = p->waiters = 0;
    p->common = p->busy = 0;
    p->set = NULL;
    p->needs_slots = fs_load_relaxed(&p->parked) != 0;
    fs_note_single_events(p);
    fs_forget_common();
    for (uint32_t i = 1; i < p->used; i++) {
        struct fs_member *m = p->slots[i];
        if (!m->in_use || !m->it) continue;
        fs_pollable_after_fork(m->it);
        m->slot_in = FS_NO_SLOT;
        fs_member_note_unreported(m, m->it->attached);
    }
}

/* ---- all members ----------------------------------------------------------------------------------------------------------- */

void fs_members_each(struct fs_poller *p, void (*what)(struct fs_member *)) {
    for (uint32_t i = 1;;) {
        fs_lock_poller(p);
        if (i >= p->used) break;
        /* (Somebody may close the socket meanwhile. While it is a member it stays, and its lock comes first.) */
        struct fs_pollable *it = p->slots[i]->in_use ? p->slots[i]->it : NULL;
        int locked = it && pthread_mutex_trylock(&it->lock) == 0;
        if (locked && what) what(p->slots[i]);
        fs_unlock_poller(p);
        if (locked) {
            if (it->attached) fs_pollable_register(it);
            pthread_mutex_unlock(&it->lock);
        }
        if (it && !locked) sched_yield();
        else i++;
    }
    fs_unlock_poller(p);
}

/* If threads wait there, the poller goes on as a thread's: they still have the instance, as in the kernel, and are told of what comes, but
 * its number is another file's. True: they do. */
static int leave_to_waiters(struct fs_poller *p) {
    fs_lock_poller(p);
    int waited_on = p->waiters > 0;
    if (waited_on) {
        p->ended = 1;
        p->epoll = -1;
        p->busy = 1;
        if (p->set) fs_store_relaxed(&p->set->epoll, (uint32_t)-1);
    }
    fs_unlock_poller(p); /* (after it the last of them may free the poller) */
    return waited_on;
}

void fs_leave_wait(struct fs_poller *p) {
    int last = --p->waiters == 0 && p->ended;
    fs_unlock_poller(p);
    if (last) fs_poller_end(p);
}

enum { KEPT = 32 }; /* pollers that have ended */

/* A thread that is about to wait has found the poller, and may lock it only now: it finds one without members, and the kernel says of the
 * number what it means by then. So the memory of the last ones stays. */
static void keep_a_while(struct fs_poller *p) {
    static fs_atomic_ptr(struct fs_poller) kept[KEPT];
    static fs_word32 count;
    fs_system.free(fs_exchange_sc(&kept[fs_add_sc(&count, 1) % KEPT], p));
}

void fs_poller_end(struct fs_poller *p) {
    if (leave_to_waiters(p)) return;
    fs_members_each(p, fs_member_drop);
    fs_lock_poller(p);
    if (p->waiters) { /* one that has found it before, and came after the first look: the last of them ends it */
        p->ended = 1;
        fs_unlock_poller(p);
        return;
    }
    if (p->set) fs_event_set_end(p->set);
    for (uint32_t i = 1; i < p->used; i++) fs_system.free(p->slots[i]);
    fs_system.free(p->slots);
    p->slots = NULL;
    p->set = NULL;
    p->used = 1;
    p->room = p->first_free = 0;
    p->ended = 0;
    fs_unlock_poller(p);
    keep_a_while(p);
}
