/* Pollers (core/ready): an epoll instance, several of them that have one connection, and threads that poll. How the scenarios run, and fail
 * by place: runs.h. */
#include "runs.h"

#include <sys/epoll.h>

#include "ready/poller.h"

enum { MOST_NUMBERS = 4 }; /* more than a look has room for on the stack */

static struct fs_pollable its[2];

static void end_call_of(struct fs_connection *c, struct fs_call *call) { end_call((struct end *)c, call); }

static struct fs_poller *new_poller(int epoll) {
    int failed;
    struct fs_poller *made = fs_poller_new(epoll, &failed);
    if (!made) goes_on(failed);
    return made;
}

static void control(struct fs_poller *p, int op, int fd, struct fs_pollable *it, uint64_t data) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = data};
    goes_on(fs_poller_ctl(p, op, fd, it, &event));
}

static int open_pollable(void) {
    int opened = open_two(0);
    for (int s = 0; s < 2; s++) {
        memset(&its[s], 0, sizeof its[s]);
        if (fs_load_sc(&ends[s].open)) fs_poller_connected(&its[s], &ends[s].c);
    }
    return opened;
}

/* To the ring; an end that gets no slot keeps the connection on the kernel. */
static void move(void) {
    static const struct fs_flow_options flow = {4, 0, 0};
    int taken = 0, failed = 0;
    while (taken < 2 && !failed) {
        failed = fs_poller_before_attach(&its[taken]);
        if (!failed) taken++;
        else if (strict) goes_on(failed);
    }
    for (int s = 0; s < taken; s++) {
        int attached = taken == 2 && !lost && goes_on(attach_end(&ends[s], &flow));
        fs_poller_after_attach(&its[s], attached);
    }
}

static void close_pollable(void) {
    for (int s = 0; s < 2; s++) fs_poller_close_number(&its[s], ends[s].number, 1);
    close_two();
}

/* Until it is told of end 1. */
static void await_told(struct fs_poller *p) {
    struct epoll_event event = {.events = 0};
    int n = 0;
    for (double until = seconds_now() + PATIENCE; !lost && n <= 0;) {
        n = fs_poller_wait(p, p->epoll, &event, 1, 5000000, NULL);
        if (n < 0 && n != -EINTR) goes_on(n);
        if (seconds_now() > until) violate("nobody is told of the byte");
    }
    if (!lost && (event.data.u64 != 1 || event.events != EPOLLIN))
        violate("told of something else: %#x of %" PRIu64, event.events, event.data.u64);
}

/* The same of a thread that polls `count` numbers, of which one is there. */
static void await_polled(struct fs_poller *p, nfds_t count) {
    struct pollfd fds[3] = {{ends[1].number, POLLIN, 0}, {-1, POLLIN, 0}, {-1, POLLIN, 0}};
    struct fs_pollable *named[3] = {&its[1], NULL, NULL};
    struct fs_call call;
    int n = 0;
    for (double until = seconds_now() + PATIENCE; !lost && n <= 0;) {
        if (!begin_call(&ends[1], &call)) return;
        n = fs_poller_poll(p, fds, named, count, 5000000, NULL);
        end_call(&ends[1], &call);
        if (n < 0 && n != -EINTR && n != -ENOMEM) goes_on(n);
        if (seconds_now() > until) violate("polling is told of nothing");
    }
}

static void look_in_vain(struct fs_poller *p) {
    struct epoll_event event;
    int n = lost ? 0 : fs_poller_wait(p, p->epoll, &event, 1, 5000000, NULL);
    if (n > 0) violate("told of nothing");
    if (n != -EINTR) goes_on(n);
}

/* A descriptor of the kernel's, whose data lie in the range that is drawn for members. */
static void poll_clashing(struct fs_poller *p) {
    int was = armed;
    struct epoll_event event;
    armed = 0;
    int fd = eventfd(1, EFD_CLOEXEC);
    armed = was;
    control(p, EPOLL_CTL_ADD, fd, NULL, fs_poller_data(7, 7));
    if (!lost && (fs_poller_wait(p, p->epoll, &event, 1, 0, NULL) != 1 || event.data.u64 != fs_poller_data(7, 7)) && strict)
        violate("other data");
    if (!lost) control(p, EPOLL_CTL_DEL, fd, NULL, 0);
    close(fd);
}

/* Each instance has `numbers` of end 1. */
static void run_pollers(int pollers, int numbers, int polls) {
    struct fs_poller *made[2] = {NULL, NULL}, *mine = NULL;
    int instances[2], others[MOST_NUMBERS];
    fs_pollers_begin();
    step("pollers");
    int opened = open_pollable();
    for (int n = 1; n < numbers; n++) others[n] = dup(ends[1].number);
    for (int i = 0; i < pollers; i++) {
        instances[i] = epoll_create1(EPOLL_CLOEXEC);
        if (opened && !lost) made[i] = new_poller(instances[i]);
        if (made[i]) poll_clashing(made[i]);
        if (made[i] && !lost) control(made[i], EPOLL_CTL_ADD, ends[1].number, &its[1], 1);
        for (int n = 1; n < numbers && made[i] && !lost; n++) control(made[i], EPOLL_CTL_ADD, others[n], &its[1], 1);
    }
    if (polls && opened && !lost) mine = new_poller(-1);
    step("a connection moves");
    if (!lost) move();
    for (int round = 0; round < 2 && !lost; round++) {
        for (int i = 0; i < pollers; i++) look_in_vain(made[i]);
        step("a byte");
        put(0);
        for (int i = 0; i < pollers; i++) await_told(made[i]);
        if (mine) await_polled(mine, round ? 3 : 1); /* (more than have room on the stack) */
        get(1);
    }
    step("pollers end");
    for (int n = 1; n < numbers; n++) {
        fs_poller_close_number(&its[1], others[n], 0);
        close(others[n]);
    }
    close_pollable();
    for (int i = 0; i < pollers; i++) {
        if (made[i]) fs_poller_end(made[i]);
        close(instances[i]);
    }
    if (mine) fs_poller_end(mine);
}

/* A bridge has taken the place of the connection's file, whose registration went with that: a change makes it anew. */
static void run_replaced(void) {
    fs_pollers_begin();
    step("a registration is gone");
    int instance = epoll_create1(EPOLL_CLOEXEC);
    struct fs_poller *p = open_pollable() ? new_poller(instance) : NULL;
    if (p) control(p, EPOLL_CTL_ADD, ends[1].number, &its[1], 7);
    if (p && !lost) {
        check(epoll_ctl(instance, EPOLL_CTL_DEL, ends[1].number, NULL) == 0, "epoll_ctl: %m");
        ends[1].c.is.bridged = 1;
        control(p, EPOLL_CTL_MOD, ends[1].number, &its[1], 1);
        ends[1].c.is.bridged = 0;
    }
    if (p && !lost) {
        put(0);
        await_told(p);
        get(1);
    }
    close_pollable();
    if (p) fs_poller_end(p);
    close(instance);
}

/* A poll of end 1, as another thread closes its number: before the call's sleep, then before the call. Or the thread has told the poller,
 * and closes it once the poller has looked, and has slept in vain a few times. */
static struct fs_poller *beside;
static int sleeps;
static short asked; /* for more than bytes it waits beside its event set, for bytes alone on the futex */

static int close_beside(void) {
    fs_poller_close_number(&its[1], ends[1].number, 1);
    close_end(&ends[1], 1);
    return 0;
}

static int begin_to_close(void) {
    if (!sleeps++) fs_poller_close_number(&its[1], ends[1].number, 1);
    return 0;
}

static void close_late(void) {
    if (sleeps == 4) close_end(&ends[1], 1);
}

static void poll_closed(short wanted, int64_t timeout) {
    struct pollfd fds = {ends[1].number, asked, 0};
    struct fs_pollable *it = &its[1];
    int n = -EINTR;
    for (double until = seconds_now() + PATIENCE; n == -EINTR || n == -ENOMEM || fs_load_sc(&ends[1].open);) {
        n = fs_poller_poll(beside, &fds, &it, 1, timeout, NULL);
        if (seconds_now() > until) violate("polling does not end");
    }
    if (n != (wanted != 0) || fds.revents != wanted) violate("told %d, %#x, of a number that was closed", n, (unsigned)fds.revents);
}

static void run_closed_by(int (*before_sleep)(void), void (*after_sleep)(void), short events, int64_t timeout) {
    enum { LOWER = 64 }; /* numbers that are free below those of the connection: nobody else takes one of these */
    struct fs_call call;
    int lower[LOWER];
    fs_pollers_begin();
    step("a number that is polled is closed");
    for (int i = 0; i < LOWER; i++) lower[i] = dup(STDERR_FILENO);
    int opened = open_pollable();
    for (int i = 0; i < LOWER; i++) close(lower[i]);
    beside = opened ? new_poller(-1) : NULL;
    if (beside) move();
    if (beside && !lost) {
        put(0);
        await_polled(beside, 1);
        get(1);
        usleep(5000); /* the offer of its set's page is taken: what comes of it stays */
    }
    if (beside && !lost && begin_call(&ends[1], &call)) {
        sleeps = 0;
        asked = events;
        fs_poller_host.before_sleep = before_sleep;
        fs_poller_host.after_sleep = after_sleep;
        poll_closed(POLLNVAL, timeout);
        fs_poller_host.before_sleep = NULL;
        fs_poller_host.after_sleep = NULL;
        poll_closed(POLLNVAL, 5000000);
        step("another file has its number");
        int other = eventfd(1, EFD_CLOEXEC);
        if (other != ends[1].number) { /* (what the control thread had open for a moment may be below it) */
            check(dup2(other, ends[1].number) >= 0, "dup2: %m");
            close(other);
        }
        poll_closed(0, 0);
        close(ends[1].number);
        end_call(&ends[1], &call);
    }
    if (fs_load_sc(&ends[1].open)) fs_poller_close_number(&its[1], ends[1].number, 1);
    fs_poller_close_number(&its[0], ends[0].number, 1);
    close_two();
    memset(&its[1], 0, sizeof its[1]); /* its memory becomes another one's */
    if (beside) fs_poller_end(beside);
}

static void run_closed(void) { run_closed_by(close_beside, NULL, POLLIN | POLLPRI, 5000000); }
static void run_closed_alone(void) { run_closed_by(close_beside, NULL, POLLIN, 5000000); }
static void run_closed_late(void) { run_closed_by(begin_to_close, close_late, POLLIN | POLLPRI, (int64_t)((PATIENCE + 1) * 1e9)); }
static void run_closed_late_alone(void) { run_closed_by(begin_to_close, close_late, POLLIN, (int64_t)((PATIENCE + 1) * 1e9)); }
static void run_epoll(void) { run_pollers(1, 1, 0); }
static void run_several(void) { run_pollers(2, 1, 0); }
static void run_numbers(void) { run_pollers(1, MOST_NUMBERS, 0); }
static void run_poll(void) { run_pollers(0, 1, 1); }
static void run_all_kinds(void) { run_pollers(1, 1, 1); }

int main(void) {
    static const struct scenario all[] = {
        {"epoll", run_epoll},
        {"several instances", run_several},
        {"several numbers", run_numbers},
        {"poll", run_poll},
        {"epoll and poll", run_all_kinds},
        {"a registration that is gone", run_replaced},
        {"a number that is closed in poll", run_closed},
        {"a number that is closed in a poll for bytes alone", run_closed_alone},
        {"a number that is closed behind a poll's look", run_closed_late},
        {"a number that is closed behind a look for bytes alone", run_closed_late_alone},
    };
    fs_poller_host.end_call = end_call_of;
    return run_all(all, sizeof all / sizeof *all);
}
