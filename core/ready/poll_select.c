/* poll and select: one look at each descriptor that is named, in memory and in the kernel.
 *
 * A thread's poller keeps the connections that it has named as members between its calls, so that a call makes no slot. It sleeps in the
 * kernel's own poll, beside the epoll of its event set. A connection that is not on the ring is a member too: when it moves while the
 * thread sleeps, the set is told (fs_poller_after_attach).
 *
 * Responsible for: what poll and select tell. Never: what a connection is ready for (level.c). */
#include "control/page_offers.h"
#include "conn/state.h"
#include "ready/common_set.h"
#include "ready/level.h"
#include "ready/member_spin.h"
#include "ready/poll_alone.h"

enum { FEW = 2 }; /* descriptors of a call that need no memory beyond the stack */

struct polling {
    struct fs_poller *p;
    struct pollfd *fds;    /* the program's */
    struct fs_pollable *const *its;
    struct pollfd *kernel;    /* what the kernel is asked; room for one more */
    struct fs_member **named; /* the poller's members among them */
    nfds_t count;
    const sigset_t *mask;
    int64_t began, now, deadline, budget, spun, cap;
    int polled, uncertain, vain, common;
};

/* The connection of a descriptor, if it is on the ring. */
static struct fs_connection *on_ring(const struct polling *w, nfds_t i) {
    struct fs_connection *c = w->its[i] ? fs_load_relaxed(&w->its[i]->c) : NULL;
    return c && fs_is_attached(c) ? c : NULL;
}

/* A member of the thread's poller, with a slot if it can have one. NULL without memory. */
static struct fs_member *join(struct fs_poller *p, struct fs_pollable *it, int fd) {
    int no_set;
    pthread_mutex_lock(&it->lock);
    struct fs_member *m = fs_member_find(p, it, fd);
    if (!m) {
        fs_lock_poller(p);
        m = fs_member_new(p, it, fd, 0, 0);
        if (m) fs_note_parked(m, it->attached);
        fs_set_of_poller(p, &no_set); /* (without one it looks now and then) */
        fs_unlock_poller(p);
    }
    if (m && it->attached && !m->slot_in) fs_pollable_register(it);
    pthread_mutex_unlock(&it->lock);
    return m;
}

/* Asks memory alone, and `kernel`, what the kernel has said. Descriptors with events. */
static int look(struct polling *w, nfds_t i, struct fs_connection *c, int asked, short kernel) {
    struct pollfd *p = &w->fds[i];
    struct fs_level l = {.c = c, .wanted = (unsigned short)p->events, .told = 1, .kernel = asked ? (unsigned short)kernel : 0};
    fs_level_read(&l);
    p->revents = (short)l.found;
    return p->revents != 0;
}

static int look_at_all(struct polling *w, int asked) {
    int ready = 0;
    for (nfds_t i = 0; i < w->count; i++) {
        struct fs_connection *c = on_ring(w, i);
        w->fds[i].revents = asked ? (short)(w->kernel[i].revents & (w->fds[i].events | POLLERR | POLLHUP | POLLNVAL)) : 0;
        if (c && !(asked && w->kernel[i].revents & POLLNVAL)) look(w, i, c, asked, w->kernel[i].revents);
        /* Another thread has closed it meanwhile. (If the number means another file by now, who hears of it would read that one.) */
        if (w->its[i] && !fs_load_relaxed(&w->its[i]->c))
            w->fds[i].revents = fs_system.fcntl(w->fds[i].fd, F_GETFD, 0) < 0 ? POLLNVAL : 0;
        ready += w->fds[i].revents != 0;
    }
    return ready;
}

/* Asks the kernel of all, for so long; `w->kernel` has one more than the program names, for the event set. With the program's mask of
 * signals a look is a sleep too: a handler that the mask lets through ends the call. 0 or -errno. */
static int ask_kernel(struct polling *w, int64_t nanoseconds, const sigset_t *mask) {
    struct fs_poller *p = w->p;
    struct timespec t = {nanoseconds / 1000000000, nanoseconds % 1000000000};
    int interrupted = 0, got = 0, error = 0, sleeps = nanoseconds != 0, runs = sleeps || mask;
    for (nfds_t i = 0; i < w->count; i++) {
        struct fs_connection *c = on_ring(w, i);
        w->kernel[i] = (struct pollfd){w->fds[i].fd, w->fds[i].events, 0};
        if (!c) continue;
        if (w->fds[i].events & FS_IN) w->kernel[i].events |= POLLRDHUP; /* (a peer that died with bytes of ours unread: fs_level_read) */
        if (!fs_pollout_is_ours(c)) continue;
        w->kernel[i].events &= ~(POLLOUT | POLLWRNORM);
        /* (The end of its stream tells of a peer that died: who waits for room gets none from it.) */
        if (w->fds[i].events & FS_OUT_ROOM && (fs_peer_is_lost(c) || !fs_eof_inconclusive(c))) w->kernel[i].events |= POLLRDHUP;
    }
    w->kernel[w->count] = (struct pollfd){p->set ? (int)p->set->epoll : -1, POLLIN, 0};
    if (runs && fs_poller_host.before_sleep) interrupted = fs_poller_host.before_sleep();
    if (!interrupted) {
        got = fs_system.ppoll(w->kernel, sleeps ? w->count + 1 : w->count, nanoseconds < 0 ? NULL : &t, mask);
        error = got < 0 ? -errno : 0;
    }
    if (runs && fs_poller_host.after_sleep) fs_poller_host.after_sleep();
    w->now = p->asked = fs_now();
    p->answers = 0;
    return interrupted ? -EINTR : error;
}

static void note(struct fs_poller *p, int *what, int value) {
    fs_lock_poller(p);
    *what = value;
    fs_unlock_poller(p);
}

/* Says that the thread sleeps, and then looks: a connection that moves after the look finds the sleeper. True if something may be
 * there. */
static __attribute__((noinline)) int arm_all(struct polling *w) {
    int there = 0;
    note(w->p, &w->p->sleepers, 1);
    w->cap = w->p->set ? -1 : FS_UNREPORTED;
    for (nfds_t i = 0; i < w->count; i++) {
        struct fs_connection *c = on_ring(w, i);
        int late = FS_ON_TIME, unreported = 0;
        struct fs_level l = {.c = c, .wanted = (unsigned short)w->fds[i].events};
        /* Another thread is about to close its number. (It has told this one already, and the kernel tells nobody.) */
        if (w->its[i] && !fs_load_relaxed(&w->its[i]->c)) w->cap = FS_UNREPORTED;
        if (!c) continue;
        fs_lock_poller(w->p);
        struct fs_member *m = w->named[i];
        if (m->slot_in == FS_OWN_SET) fs_set_register(w->p->set, c);
        else if (m->slot_in == FS_COMMON_SET) fs_common_slot_publish(c);
        else unreported = 1;
        fs_unlock_poller(w->p);
        there |= fs_level_arm(&l, &late);
        there |= look(w, i, c, 0, 0); /* (room that came before is armed by nobody) */
        if (unreported || fs_may_miss_hints(c)) w->cap = FS_UNREPORTED;
        else if (late && w->cap < 0) w->cap = FS_LATE_LOOK;
    }
    fs_lock_poller(w->p);
    there |= w->p->set && fs_prepare_sleep(w->p->set);
    w->common = w->p->common;
    fs_unlock_poller(w->p);
    if (w->common) fs_common_sleep();
    return there;
}

static void wake_up(struct polling *w) {
    struct fs_poller *p = w->p;
    if (w->common) fs_common_wake();
    w->common = 0;
    if (!p->set) {
        note(p, &p->sleepers, 0);
        return;
    }
    fs_lock_poller(p);
    p->sleepers = 0;
    fs_set_awake(p->set);
    if (w->kernel[w->count].revents) fs_event_set_drain(p->set);
    fs_take_poller_hints(p);
    while (p->first) fs_member_deactivate(p->first); /* (each call looks at all that it names) */
    fs_unlock_poller(p);
}

static void spin(struct polling *w, int64_t until) {
    struct fs_spun *s = fs_system.malloc(sizeof *s); /* (beyond the stack: a handler of the program may have little of it) */
    if (!s) return;
    s->count = 0;
    for (nfds_t i = 0; i < w->count && s->count < FS_SPUN; i++) {
        struct fs_connection *c = on_ring(w, i);
        if (c) fs_spun_add(s, c, (unsigned short)w->fds[i].events);
    }
    if (s->count) fs_spin_on(s, NULL, &w->p->stats, until, &w->spun);
    fs_system.free(s);
}

/* Whether to go on polling: 0: sleep. `rings`: how many of the descriptors are on the ring. A wait for one such connection polls as a
 * receive on it does. One for several does not while all CPUs are busy, as epoll's: whom it waits for may have to wait for a CPU itself. */
static int polls(struct polling *w, nfds_t rings) {
    struct fs_poller *p = w->p;
    if (!rings || w->uncertain) return 0;
    if (w->budget < 0) w->budget = w->count > 1 && fs_cpus_are_busy(w->now) ? 0 : fs_spin_budget(&p->stats, w->now, fs_last_peer_cpu);
    int64_t spent = w->now - w->began;
    if (spent >= w->budget || (w->deadline >= 0 && w->now >= w->deadline)) return 0;
    if (fs_poller_host.is_interrupted && fs_poller_host.is_interrupted()) return 0;
    w->polled = 1;
    if (w->now - p->asked < FS_SLICE) {
        spin(w, w->now + FS_MIN(FS_SLICE, w->budget - spent));
        w->now = fs_now();
    }
    return 1;
}

/* Returns the number of descriptors with events, or -errno. */
static int wait_for_events(struct polling *w, int64_t timeout) {
    struct fs_poller *p = w->p;
    for (;;) {
        nfds_t rings = 0;
        int joined = 0;
        for (nfds_t i = 0; i < w->count; i++) {
            rings += on_ring(w, i) != NULL;
            joined |= w->its[i] != NULL;
        }
        int ready = joined ? look_at_all(w, 0) : 0, failed;
        if (ready && timeout && p->answers < FS_ANSWERS && w->now - p->asked < FS_KERNEL_INTERVAL) {
            p->answers++;
            if (w->polled) fs_spin_stats_update(&p->stats, &fs_poller_totals, w->began, 1, 1);
            return ready;
        }
        int over = !timeout || (w->deadline >= 0 && w->now >= w->deadline), sleeps = 0;
        int64_t rest = 0;
        if (!ready && !over) {
            if (polls(w, rings)) {
                if (w->now - p->asked < FS_SLICE) continue;
            } else {
                sleeps = 1;
                fs_spun_in_vain(&w->spun);
                if (joined && arm_all(w)) {
                    wake_up(w);
                    if (!w->uncertain++) continue;
                    w->cap = FS_UNCERTAIN;
                }
                rest = w->deadline < 0 ? -1 : FS_MAX(w->deadline - w->now, 0);
                if (w->cap >= 0 && (rest < 0 || rest > w->cap)) rest = w->cap;
            }
        }
        int64_t before = w->now;
        failed = ask_kernel(w, rest, ready ? NULL : w->mask); /* (what is there comes before handlers) */
        if (sleeps) wake_up(w);
        if (failed && !ready) return failed;
        if (failed) return look_at_all(w, 0); /* (a signal takes away nothing that was found) */
        ready = look_at_all(w, 1);
        if (ready) {
            if (rings && (sleeps || w->polled))
                fs_spin_stats_update(&p->stats, &fs_poller_totals, w->began, w->polled, !sleeps && w->polled);
            return ready;
        }
        if (over) return 0;
        if (!sleeps) continue;
        if (w->polled) fs_spin_stats_update(&p->stats, &fs_poller_totals, w->began, 1, 0);
        w->uncertain = w->polled = 0; /* (what comes from here on was not found by polling) */
        if (w->now - before > FS_UNCERTAIN) w->vain = 0;
        else if (++w->vain > FS_VAIN) fs_short_sleep();
    }
}

/* After a call: a member whose number another thread has closed meanwhile goes. So does one that came after the last number had been
 * closed: nobody else would drop it before its memory becomes another connection's. */
static void part(struct fs_poller *p, struct fs_pollable *it, struct fs_member *m) {
    if (m->fd >= 0 && fs_load_relaxed(&it->c)) return; /* (who closes it from here on drops it) */
    pthread_mutex_lock(&it->lock);
    fs_lock_poller(p);
    /* (Its slot may be that of another descriptor of the call by now.) */
    if (m->in_use && m->it == it && (m->fd < 0 || !fs_load_relaxed(&it->c))) fs_member_drop(m);
    fs_unlock_poller(p);
    pthread_mutex_unlock(&it->lock);
}

int fs_poller_poll(struct fs_poller *p, struct pollfd *fds, struct fs_pollable *const *its, nfds_t count, int64_t timeout,
                   const sigset_t *mask) {
    /* (Each call has memory of its own, since a handler may poll within the sleep; and little of the stack, which may be a handler's.) */
    struct pollfd few_kernel[FEW + 1];
    struct fs_member *few_named[FEW];
    struct polling w = {.p = p, .fds = fds, .its = its, .kernel = few_kernel, .named = few_named, .count = count, .mask = mask,
                        .budget = -1, .cap = -1};
    w.began = w.now = fs_now();
    w.deadline = timeout < 0 || timeout > INT64_MAX - w.now ? -1 : w.now + timeout;
    if (count == 1 && its[0] && timeout && !mask) {
        int done = fs_poll_alone(p, fds, its[0], w.deadline);
        if (done != FS_NOT_ALONE) return done;
        w.now = fs_now();
        if (w.deadline >= 0) timeout = FS_MAX(w.deadline - w.now, (int64_t)0);
    }
    if (count > FEW) {
        if (!(w.kernel = fs_system.malloc((count + 1) * (sizeof *w.kernel + sizeof *w.named)))) return -ENOMEM;
        w.named = (struct fs_member **)(void *)(w.kernel + count + 1);
    }
    int failed = 0;
    nfds_t joined = 0;
    note(p, &p->busy, 1);
    for (; joined < count && !failed; joined++)
        if (its[joined] && !(w.named[joined] = join(p, its[joined], fds[joined].fd))) failed = -ENOMEM;
    if (!failed) failed = wait_for_events(&w, timeout);
    if (failed <= 0) fs_spun_in_vain(&w.spun); /* its time was over before it slept */
    note(p, &p->busy, 0);
    for (nfds_t i = 0; i < joined; i++)
        if (its[i] && w.named[i]) part(p, its[i], w.named[i]);
    if (count > FEW) fs_system.free(w.kernel);
    return failed;
}

/* ---- select ---------------------------------------------------------------------------------------------------------------- */

int fs_select_to_poll(int count, const fd_set *reads, const fd_set *writes, const fd_set *excepts, struct pollfd *fds) {
    int n = 0;
    for (int fd = 0; fd < count; fd++) {
        int events = (reads && FD_ISSET(fd, reads) ? POLLIN : 0) | (writes && FD_ISSET(fd, writes) ? POLLOUT : 0) |
                     (excepts && FD_ISSET(fd, excepts) ? POLLPRI : 0);
        if (events) fds[n++] = (struct pollfd){fd, (short)events, 0};
    }
    return n;
}

/* (As the kernel has it: an error is readable and writable, a hangup is readable.) */
int fs_poll_to_select(const struct pollfd *fds, int n, int count, fd_set *reads, fd_set *writes, fd_set *excepts) {
    fd_set *const sets[3] = {reads, writes, excepts};
    const short asked[3] = {POLLIN, POLLOUT, POLLPRI}, means[3] = {POLLIN | POLLHUP | POLLERR, POLLOUT | POLLERR, POLLPRI};
    int bits = 0;
    for (int i = 0; i < n; i++)
        if (fds[i].revents & POLLNVAL) return -EBADF;
    for (int s = 0; s < 3; s++) {
        if (!sets[s]) continue;
        memset(sets[s], 0, (size_t)(count + 63) / 64 * 8);
        for (int i = 0; i < n; i++) {
            if (!(fds[i].events & asked[s]) || !(fds[i].revents & means[s])) continue;
            FD_SET(fds[i].fd, sets[s]);
            bits++;
        }
    }
    return bits;
}
