/* What readiness asks of the system (core/ready): epoll instances, threads that poll, members that move to the ring, and an event set that
 * several instances share. How the scenarios run, and fail by place: runs.h. */
#include "runs.h"

#include <sys/epoll.h>

#include "ready/poller.h"

static struct fs_pollable its[2];
static struct fs_poller *pollers[3]; /* of two instances, and of the thread */
static int instances[2], pipes[2];

static void end_call_of(struct fs_connection *c, struct fs_call *call) { end_call((struct end *)c, call); }

static int control(int which, int op, int fd, struct fs_pollable *it, uint64_t data) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = data};
    return goes_on(fs_poller_ctl(pollers[which], op, fd, it, &event));
}

/* The byte that was sent is told of by an instance, or the end has been told of an error. */
static void told_by_instance(int which) {
    struct epoll_event got;
    int told = 0;
    for (double until = seconds_now() + PATIENCE; !lost && !told;) {
        int n = fs_poller_wait(pollers[which], &got, 1, INT64_C(5000000), NULL);
        if (n < 0 && n != -EINTR) goes_on(n);
        told = n == 1 && got.data.u64 == 5;
        if (seconds_now() > until) violate("instance %d does not tell of it", which);
    }
}

static void told_by_poll(int other) {
    struct pollfd fds[2] = {{ends[1].number, POLLIN, 0}, {other, POLLIN, 0}};
    struct fs_pollable *const of[2] = {&its[1], NULL};
    for (double until = seconds_now() + PATIENCE; !lost && !(fds[0].revents & POLLIN);) {
        struct fs_call call;
        if (!begin_call(&ends[1], &call)) return;
        int n = fs_poller_poll(pollers[2], fds, of, 2, INT64_C(5000000), NULL);
        end_call(&ends[1], &call);
        if (n < 0 && n != -EINTR) goes_on(n);
        if (seconds_now() > until) violate("poll does not tell of it");
    }
}

/* As a front end does: what could not move stays on kernel TCP. */
static void move(int s) {
    static const struct fs_flow_options flow = {4, 0, 0};
    if (!goes_on(fs_poller_before_attach(&its[s]))) return;
    int failed = attach_end(&ends[s], &flow);
    fs_poller_after_attach(&its[s], !failed);
    goes_on(failed);
}

static void talk(int several) {
    for (int i = 0; !lost && i < 2; i++) {
        put(0);
        told_by_instance(0);
        if (several) told_by_instance(1);
        told_by_poll(pipes[0]);
        get(1);
    }
}

static void run_members(int several) {
    int failed = 0;
    step("pollers");
    fs_poller_base = 0;
    fs_pollers_begin();
    memset(its, 0, sizeof its);
    for (int i = 0; i < 3; i++) {
        pollers[i] = fs_poller_new(i < 2 ? instances[i] : -1, &failed);
        if (!pollers[i]) goes_on(failed);
    }
    int opened = open_two(0);
    lost = !opened || !pollers[0] || !pollers[1] || !pollers[2];
    for (int s = 0; opened && s < 2; s++) fs_poller_connected(&its[s], &ends[s].c);
    if (!lost) control(0, EPOLL_CTL_ADD, ends[1].number, &its[1], 5);
    if (!lost && several) control(1, EPOLL_CTL_ADD, ends[1].number, &its[1], 5);
    if (!lost) control(0, EPOLL_CTL_ADD, pipes[0], NULL, fs_poller_base + 1); /* data as ours: a member */
    talk(several);
    step("they move");
    for (int s = 0; !lost && s < 2; s++) move(s);
    talk(several);
    step("the end of pollers");
    if (!lost) control(0, EPOLL_CTL_MOD, ends[1].number, &its[1], 5);
    if (!lost) control(0, EPOLL_CTL_DEL, pipes[0], NULL, 0);
    if (!lost) control(0, EPOLL_CTL_DEL, ends[1].number, &its[1], 0);
    for (int s = 0; opened && s < 2; s++) fs_poller_close_number(&its[s], ends[s].number, 1);
    close_two();
    for (int i = 0; i < 3; i++)
        if (pollers[i]) fs_poller_end(pollers[i]);
}

static void run_with(int several) {
    int was = armed;
    armed = 0;
    for (int i = 0; i < 2; i++) check((instances[i] = epoll_create1(EPOLL_CLOEXEC)) >= 0, "epoll_create1: %m");
    check(pipe2(pipes, O_CLOEXEC) == 0, "pipe2: %m");
    fs_poller_host.end_call = end_call_of;
    armed = was;
    run_members(several);
    for (int i = 0; i < 2; i++) close(instances[i]), close(pipes[i]);
}

static void run_one(void) { run_with(0); }
static void run_several(void) { run_with(1); }

int main(void) {
    static const struct scenario all[] = {{"an instance", run_one}, {"several instances", run_several}};
    return run_all(all, sizeof all / sizeof *all);
}
