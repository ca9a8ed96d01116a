/* What tests of pollers (core/ready) share: pairs of connections whose ends may be members, and how tests are run. */
#ifndef FASTSOCK_POLLERS_H
#define FASTSOCK_POLLERS_H

#include "frontend.h"

#include <signal.h>
#include <sys/epoll.h>

#include "ready/poller.h"

enum { PAIRS = 6 };

static struct pair {
    struct end ends[2];
    struct fs_pollable its[2];
} pairs[PAIRS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the front end */
static int instance;
static struct fs_poller *poller;

static inline void end_call_of(struct fs_connection *c, struct fs_call *call) { end_call((struct end *)c, call); }

static inline void open_pair(struct pair *p) {
    int fds[2];
    size_t size;
    void *memory = make_region(8, 1024, &size);
    connect_pair(fds);
    for (int s = 0; s < 2; s++) {
        p->ends[s] = (struct end){.lock = &lock, .memory = memory, .size = size, .side = s};
        check(open_end(&p->ends[s], fds[s]) == 0, "opening");
        memset(&p->its[s], 0, sizeof p->its[s]);
        fs_poller_connected(&p->its[s], &p->ends[s].c);
    }
}

static inline void attach_side(struct pair *p, int s) {
    static const struct fs_flow_options flow = {.ack_threshold = 4, .combine_limit = 256, .combine_when_full = 1};
    check(fs_poller_before_attach(&p->its[s]) == 0, "no slot");
    check(attach_end(&p->ends[s], &flow) == 0, "attaching");
    fs_poller_after_attach(&p->its[s], 1);
}

static inline void move_pair(struct pair *p) {
    for (int s = 0; s < 2; s++) attach_side(p, s);
}

static inline int64_t receive(struct pair *p, int side, char *into, size_t room) {
    struct fs_call call;
    if (!begin_call(&p->ends[side], &call)) return -EBADF;
    int64_t got = fs_try_recv(&p->ends[side].c, into, room, 0, 1);
    end_call(&p->ends[side], &call);
    return got;
}

static inline int64_t transmit(struct pair *p, int side, const char *from, size_t count) {
    struct fs_call call;
    if (!begin_call(&p->ends[side], &call)) return -EBADF;
    int64_t sent = fs_try_send(&p->ends[side].c, from, count, MSG_NOSIGNAL);
    if (sent == -EAGAIN || (sent >= 0 && (size_t)sent < count)) fs_poller_sent_part(&p->its[side]);
    end_call(&p->ends[side], &call);
    return sent;
}

static inline void close_side(struct pair *p, int s) {
    if (!fs_load_sc(&p->ends[s].open)) return;
    fs_poller_close_number(&p->its[s], p->ends[s].number, 1);
    close_end(&p->ends[s], 1);
}

static inline void close_pair(struct pair *p) {
    for (int s = 0; s < 2; s++) close_side(p, s);
    munmap(p->ends[0].memory, p->ends[0].size);
}

static inline struct fs_poller *new_poller(int epoll) {
    int failed;
    struct fs_poller *made = fs_poller_new(epoll, &failed);
    check(made, "a poller: %d", failed);
    return made;
}

static inline void begin(void) {
    instance = epoll_create1(EPOLL_CLOEXEC);
    poller = new_poller(instance);
}

static inline void finish(void) {
    fs_poller_end(poller);
    close(instance);
}

static inline void control(struct fs_poller *in, int op, struct pair *p, int side, uint32_t events, uint64_t data) {
    struct epoll_event event = {.events = events, .data.u64 = data};
    int failed = fs_poller_ctl(in, op, p->ends[side].number, &p->its[side], &event);
    check(failed == 0, "epoll_ctl: %d", failed);
}

static inline uint32_t told_of(struct fs_poller *by, uint64_t data, int64_t timeout) {
    struct epoll_event got[8];
    int n = fs_poller_wait(by, by->epoll, got, 8, timeout, NULL);
    check(n >= 0, "waiting: %d", n);
    check(n <= 1, "%d events", n);
    check(!n || got->data.u64 == data, "another one's data: %" PRIx64, got->data.u64);
    return n ? got->events : 0;
}

#define FOREVER ((int64_t)(PATIENCE * 1e9))

static fs_word32 threads_in; /* that are about to wait */

static inline pid_t start(pthread_t *thread, void *(*body)(void *), void *argument) {
    check(pthread_create(thread, NULL, body, argument) == 0, "a thread");
    while (!fs_load_sc(&threads_in)) usleep(100);
    return (pid_t)fs_exchange_sc(&threads_in, 0);
}

static fs_word32 waiter_id;

static inline void say_in(void) {
    fs_store_sc(&waiter_id, (uint32_t)syscall(SYS_gettid));
    fs_store_sc(&threads_in, fs_load_sc(&waiter_id));
}

/* Waits for the member whose data are 5. */
static inline void *wait_once(void *argument) {
    uint32_t *found = argument;
    say_in();
    *found = told_of(poller, 5, FOREVER);
    return NULL;
}

struct test {
    const char *name;
    void (*runs)(void);
};
#define TEST(name) {#name, name}

/* All, or the one that is named. */
static int run_tests(const struct test *tests, size_t all, int count, char **arguments) {
    signal(SIGPIPE, SIG_IGN);
    become_front_end();
    fs_pollers_begin();
    fs_poller_host.end_call = end_call_of;
    const char *only = count > 1 && !strchr("0123456789", *arguments[1]) ? arguments[1] : NULL;
    int runs = 0;
    for (size_t i = 0; i < all; i++) {
        if (only && strcmp(only, tests[i].name) != 0) continue;
        double began = seconds_now();
        tests[i].runs();
        if (only) printf("%s: %.3f s\n", tests[i].name, seconds_now() - began);
        runs++;
    }
    fs_control_thread_stop();
    printf("%d runs\n", runs);
    return 0;
}

#endif
