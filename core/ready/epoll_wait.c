/* How a thread waits on a poller: looks, polling for the budget, and a sleep in the program's own epoll instance.
 *
 * No wakeup is lost. Before a thread sleeps each member on the ring was armed, and looked at after that; the event set says that it
 * sleeps, and is looked at for hints after that (events/event_set.h). What the kernel reports is a member of the instance in which it
 * sleeps. Several threads may sleep. Who posts tells the set once, which wakes one of them; that one says again that the set sleeps if
 * others do.
 *
 * Responsible for: when a thread looks, polls and sleeps. Never: what it is told (scan.c). */
#include "ready/inherited.h"
#include "ready/member_spin.h"
#include "ready/common_set.h"
#include "ready/scan.h"

/* One wait. */
struct wait {
    struct fs_poller *p;
    int epoll; /* the program's number: without the lock another thread may close the one in the poller */
    struct fs_told told;
    const sigset_t *mask;
    int64_t began, now, deadline; /* monotonic ns; `deadline` negative: none */
    int64_t budget, spun;         /* of polling; negative: not known yet; and what it has taken since the last sleep */
    int polled, uncertain, vain;
};

/* With the lock. */
static void end_sleep(struct fs_poller *p) {
    p->sleepers--;
    if (!p->sleepers && p->set) fs_set_awake(p->set);
}

/* Asks the kernel. Lets go of the lock if that may take time. 0 or -errno. */
static int ask_kernel_once(struct wait *w, int64_t nanoseconds) {
    struct fs_poller *p = w->p;
    struct fs_told *told = &w->told;
    int interrupted = 0, got = 0, error = 0, max = told->max - told->count;
    told->changed = 0;
    if (p->ended) return nanoseconds ? -EBADF : 0; /* the number is another file's */
    if (nanoseconds) {
        p->sleepers++;
        fs_unlock_poller(p);
        interrupted = fs_poller_host.before_sleep && fs_poller_host.before_sleep();
    }
    if (!interrupted) {
        got = fs_epoll_wait(w->epoll, told->events + told->count, max, nanoseconds, nanoseconds ? w->mask : NULL);
        error = got < 0 ? -errno : 0;
    }
    if (nanoseconds) {
        if (fs_poller_host.after_sleep) fs_poller_host.after_sleep();
        fs_lock_poller(p);
        end_sleep(p);
    }
    if (got > 0) fs_sort_events(p, told, got);
    return interrupted ? -EINTR : error;
}

/* The same, and notes the time. */
static int ask_kernel(struct wait *w, int64_t nanoseconds) {
    int failed = ask_kernel_once(w, nanoseconds);
    w->now = w->p->asked = fs_now();
    w->p->answers = 0;
    return failed;
}

/* Whether the wait went on polling, and is to look again. */
static int polls(struct wait *w) {
    struct fs_poller *p = w->p;
    if (!p->set || !fs_load_relaxed(&p->parked) || w->uncertain) return 0;
    if (w->budget < 0) w->budget = fs_cpus_are_busy(w->now) ? 0 : fs_spin_budget(&p->stats, w->now, fs_last_peer_cpu);
    int64_t spent = w->now - w->began;
    if (spent >= w->budget || (w->deadline >= 0 && w->now >= w->deadline)) return 0;
    if (fs_poller_host.is_interrupted && fs_poller_host.is_interrupted()) return 0; /* before the sleep it is told */
    w->polled = 1;
    if (w->now - p->asked >= FS_SLICE) {
        ask_kernel(w, 0);
        if (w->told.count || w->told.changed) return 1;
    }
    fs_members_spin(p, w->now + FS_MIN(FS_SLICE, w->budget - spent), &w->spun);
    w->now = fs_now();
    return 1;
}

/* Sleeps in the instance, unless something may be there. With the lock, which it lets go of. 0, or -errno. */
static int sleep_in_kernel(struct wait *w) {
    struct fs_poller *p = w->p;
    int64_t rest = w->deadline < 0 ? -1 : FS_MAX(w->deadline - w->now, 0), cap = -1;
    fs_spun_in_vain(&w->spun);
    if (p->set) {
        if (p->listed) fs_members_check(p, &w->told, FS_TELL_SLEEP);
        if (w->told.count) return 0;
        if (fs_prepare_sleep(p->set) || p->listed) {
            if (!w->uncertain++) return 0;
            cap = FS_UNCERTAIN;
        }
    }
    if (cap < 0) cap = fs_longest_sleep(p);
    if (cap >= 0 && (rest < 0 || rest > cap)) rest = cap;
    int64_t slept = w->now;
    int failed = ask_kernel(w, rest);
    fs_members_activate_unreported(p);
    if (w->told.count && p->set) fs_spin_stats_update(&p->stats, &fs_poller_totals, w->began, w->polled, 0);
    if (failed || w->told.count) return failed;
    w->uncertain = 0;
    if (w->now - slept > FS_UNCERTAIN) w->vain = 0;
    if (p->listed || (p->set && fs_has_hints(p->set))) {
        fs_spin_stats_update(&p->stats, &fs_poller_totals, w->began, w->polled, 0);
        w->polled = 0; /* (the sleep has found what the next look reports: it is not counted once more, as found by polling) */
    } else if (rest && ++w->vain > FS_VAIN) {
        fs_unlock_poller(p);
        fs_short_sleep(); /* somebody wakes us for nothing, again and again */
        fs_lock_poller(p);
    }
    return 0;
}

/* The same, and the common set is told too. */
static int sleep_beside_common(struct wait *w) {
    struct fs_poller *p = w->p;
    fs_unlock_poller(p);
    fs_common_sleep();
    fs_lock_poller(p);
    int failed = sleep_in_kernel(w);
    fs_unlock_poller(p);
    fs_common_wake();
    fs_lock_poller(p);
    return failed;
}

/* With the lock. 0 or -errno; `told` says the rest. */
static int wait_for_events(struct wait *w, int64_t timeout) {
    struct fs_poller *p = w->p;
    int failed = 0, over = timeout == 0;
    for (;;) {
        if (p->common) {
            fs_unlock_poller(p);
            fs_common_take_hints();
            fs_lock_poller(p);
        }
        fs_take_poller_hints(p);
        if (p->listed) fs_members_check(p, &w->told, FS_TELL);
        if (w->told.count) {
            if (w->polled) fs_spin_stats_update(&p->stats, &fs_poller_totals, w->began, 1, 1);
            if (!w->polled) w->now = fs_now();
            if (timeout && p->answers < FS_ANSWERS && w->now - p->asked < FS_KERNEL_INTERVAL) p->answers++;
            else if (w->told.count < w->told.max) ask_kernel(w, 0);
            /* (An end of which the kernel alone knows is one event with the room that memory has shown.) */
            w->told.adds = w->told.changed;
            if (w->told.adds) fs_members_check(p, &w->told, FS_TELL);
            return 0;
        }
        if (over) {
            failed = ask_kernel(w, 0);
            if (failed || w->told.count || !w->told.changed) return failed;
            fs_members_check(p, &w->told, FS_TELL);
            return 0;
        }
        if (!polls(w)) failed = p->common ? sleep_beside_common(w) : sleep_in_kernel(w);
        if (failed || w->told.count) return failed;
        over = w->deadline >= 0 && w->now >= w->deadline;
    }
}

/* The thread goes back to the program: others who wait here, or poll the instance's number, have what stays. */
static void pass_on(struct wait *w) {
    struct fs_poller *p = w->p;
    if (!p->set) return;
    if (p->sleepers || p->exposed) fs_pass_to_sleepers(p, fs_longest_sleep(p));
    else fs_set_awake(p->set);
}

int fs_poller_wait(struct fs_poller *p, int epoll, struct epoll_event *events, int max, int64_t timeout, const sigset_t *mask) {
    struct wait w = {.p = p, .epoll = epoll, .told = {.events = events, .max = max}, .mask = mask, .budget = -1};
    if (max <= 0) return -EINVAL;
    if (fs_load_relaxed(&p->single)) fs_leave_single_events(p);
    fs_lock_poller(p);
    while (p->needs_slots) { /* (of two threads that come at once each sees to the slots, so none waits before they are there) */
        fs_unlock_poller(p);
        fs_members_each(p, NULL);
        fs_lock_poller(p);
        p->needs_slots = 0;
    }
    p->waiters++;
    w.told.wait = ++p->waits;
    w.began = w.now = fs_now();
    w.deadline = timeout < 0 || timeout > INT64_MAX - w.now ? -1 : w.now + timeout;
    int failed = wait_for_events(&w, timeout);
    if (!w.told.count) fs_spun_in_vain(&w.spun); /* its time was over before it slept */
    pass_on(&w);
    fs_leave_wait(p);
    return w.told.count ? w.told.count : failed;
}

/* ---- a wait that the kernel alone answers --------------------------------------------------------------------------------------- */

int fs_poller_begin_kernel_wait(struct fs_poller *p, int sleeps) {
    /* (Who does not sleep misses nothing if the first member comes now.) */
    if (fs_load_relaxed(&p->parked)) return 0;
    if (!sleeps) return 1;
    fs_lock_poller(p);
    int none_there = !fs_load_relaxed(&p->parked);
    if (none_there) {
        p->waiters++;
        p->sleepers++;
    }
    fs_unlock_poller(p);
    return none_there;
}

int fs_poller_end_kernel_wait(struct fs_poller *p, int sleeps, struct epoll_event *events, int count) {
    struct fs_told told = {.events = events, .max = count};
    if (!sleeps && count <= 0) return count;
    fs_lock_poller(p);
    if (sleeps) end_sleep(p);
    else p->waiters++;
    if (count > 0) fs_sort_events(p, &told, count);
    fs_leave_wait(p);
    return count > 0 ? told.count : count;
}
