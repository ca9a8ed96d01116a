/* Pollers (core/ready) among threads, closes, forks and other epoll instances: `pollers [NAME]`. */
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

static void end_call_of(struct fs_connection *c, struct fs_call *call) { end_call((struct end *)c, call); }

static void open_pair(struct pair *p) {
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

static void attach_side(struct pair *p, int s) {
    static const struct fs_flow_options flow = {.ack_threshold = 4, .combine_limit = 256, .combine_when_full = 1};
    check(fs_poller_before_attach(&p->its[s]) == 0, "no seat");
    check(attach_end(&p->ends[s], &flow) == 0, "attaching");
    fs_poller_after_attach(&p->its[s], 1);
}

static void move_pair(struct pair *p) {
    for (int s = 0; s < 2; s++) attach_side(p, s);
}

static int64_t receive(struct pair *p, int side, char *into, size_t room) {
    struct fs_call call;
    if (!begin_call(&p->ends[side], &call)) return -EBADF;
    int64_t got = fs_try_recv(&p->ends[side].c, into, room, 0, 1);
    end_call(&p->ends[side], &call);
    return got;
}

static int64_t transmit(struct pair *p, int side, const char *from, size_t count) {
    struct fs_call call;
    if (!begin_call(&p->ends[side], &call)) return -EBADF;
    int64_t sent = fs_try_send(&p->ends[side].c, from, count, MSG_NOSIGNAL);
    if (sent == -EAGAIN || (sent >= 0 && (size_t)sent < count)) fs_poller_sent_part(&p->its[side]);
    end_call(&p->ends[side], &call);
    return sent;
}

static void close_side(struct pair *p, int s) {
    if (!fs_load_sc(&p->ends[s].open)) return;
    fs_poller_close_number(&p->its[s], p->ends[s].number, 1);
    close_end(&p->ends[s], 1);
}

static void close_pair(struct pair *p) {
    for (int s = 0; s < 2; s++) close_side(p, s);
    munmap(p->ends[0].memory, p->ends[0].size);
}

static struct fs_poller *new_poller(int epoll) {
    int failed;
    struct fs_poller *made = fs_poller_new(epoll, &failed);
    check(made, "a poller: %d", failed);
    return made;
}

static void begin(void) {
    instance = epoll_create1(EPOLL_CLOEXEC);
    poller = new_poller(instance);
}

static void finish(void) {
    fs_poller_end(poller);
    close(instance);
}

static void control(struct fs_poller *in, int op, struct pair *p, int side, uint32_t events, uint64_t data) {
    struct epoll_event event = {.events = events, .data.u64 = data};
    int failed = fs_poller_ctl(in, op, p->ends[side].number, &p->its[side], &event);
    check(failed == 0, "epoll_ctl: %d", failed);
}

static uint32_t told_of(struct fs_poller *by, uint64_t data, int64_t timeout) {
    struct epoll_event got[8];
    int n = fs_poller_wait(by, got, 8, timeout, NULL);
    check(n >= 0, "waiting: %d", n);
    check(n <= 1, "%d events", n);
    check(!n || got->data.u64 == data, "another one's data: %" PRIx64, got->data.u64);
    return n ? got->events : 0;
}

#define FOREVER ((int64_t)(PATIENCE * 1e9))

static fs_word32 threads_in; /* that are about to wait */

static pid_t start(pthread_t *thread, void *(*body)(void *), void *argument) {
    check(pthread_create(thread, NULL, body, argument) == 0, "a thread");
    while (!fs_load_sc(&threads_in)) usleep(100);
    return (pid_t)fs_exchange_sc(&threads_in, 0);
}

static void say_in(void) { fs_store_sc(&threads_in, (uint32_t)syscall(SYS_gettid)); }

/* ---- a connection that moves while threads wait -------------------------------------------------------------------------------- */

static void *wait_once(void *argument) {
    uint32_t *found = argument;
    say_in();
    *found = told_of(poller, 5, FOREVER);
    return NULL;
}

static void *poll_once(void *argument) {
    uint32_t *found = argument;
    struct fs_poller *mine = new_poller(-1);
    struct pollfd waits = {pairs[0].ends[1].number, POLLIN, 0};
    struct fs_pollable *it = &pairs[0].its[1];
    struct fs_call call;
    check(begin_call(&pairs[0].ends[1], &call), "it has ended");
    say_in();
    int n = fs_poller_poll(mine, &waits, &it, 1, FOREVER, NULL);
    check(n == 1, "polling: %d", n);
    end_call(&pairs[0].ends[1], &call);
    fs_poller_end(mine);
    *found = (unsigned short)waits.revents;
    return NULL;
}

static void move_while_waiting(void *(*waits)(void *)) {
    pthread_t thread;
    uint32_t found = 0;
    char bytes[8];
    begin();
    open_pair(&pairs[0]);
    control(poller, EPOLL_CTL_ADD, &pairs[0], 1, EPOLLIN, 5);
    await_sleep(start(&thread, waits, &found));
    move_pair(&pairs[0]);
    check(transmit(&pairs[0], 0, "abc", 3) == 3 && fs_sends_on_ring(&pairs[0].ends[0].c), "it does not move");
    pthread_join(thread, NULL);
    check(found == EPOLLIN, "told %x", found);
    check(receive(&pairs[0], 1, bytes, 8) == 3, "receiving");
    check(told_of(poller, 5, 0) == 0, "told of nothing");
    close_pair(&pairs[0]);
    finish();
}

static void move_while_epoll_waits(void) { move_while_waiting(wait_once); }
static void move_while_poll_waits(void) { move_while_waiting(poll_once); }

/* A single shot is told by the kernel or by memory. */
static void single_shot_that_moves(void) {
    begin();
    open_pair(&pairs[0]);
    control(poller, EPOLL_CTL_ADD, &pairs[0], 1, EPOLLIN | EPOLLONESHOT, 5);
    check(transmit(&pairs[0], 0, "a", 1) == 1 && told_of(poller, 5, FOREVER) == EPOLLIN, "not told");
    move_pair(&pairs[0]);
    check(transmit(&pairs[0], 0, "b", 1) == 1, "sending");
    check(told_of(poller, 5, 20000000) == 0, "told twice");
    control(poller, EPOLL_CTL_MOD, &pairs[0], 1, EPOLLIN | EPOLLONESHOT, 5);
    check(told_of(poller, 5, FOREVER) == EPOLLIN && told_of(poller, 5, 0) == 0, "not told once");
    close_pair(&pairs[0]);
    finish();
}

/* A connection that goes back to the kernel is the kernel's again. */
static void leave_while_waiting(void) {
    pthread_t thread;
    uint32_t found = 0;
    char bytes[8];
    begin();
    open_pair(&pairs[0]);
    control(poller, EPOLL_CTL_ADD, &pairs[0], 1, EPOLLIN, 5);
    move_pair(&pairs[0]);
    check(transmit(&pairs[0], 0, "a", 1) == 1 && told_of(poller, 5, FOREVER) == EPOLLIN, "not told");
    check(receive(&pairs[0], 1, bytes, 8) == 1 && told_of(poller, 5, 0) == 0, "receiving");
    await_sleep(start(&thread, wait_once, &found));
    check(leave_end(&pairs[0].ends[1], 0) == FS_FELL_BACK, "it does not leave");
    fs_poller_after_leave(&pairs[0].its[1]);
    check(transmit(&pairs[0], 0, "b", 1) == 1, "sending");
    pthread_join(thread, NULL);
    check(found == EPOLLIN, "told %x", found);
    check(recv(pairs[0].ends[1].number, bytes, 8, 0) == 1 && told_of(poller, 5, 0) == 0, "receiving");
    close_pair(&pairs[0]);
    finish();
}

/* ---- threads at one poller ---------------------------------------------------------------------------------------------------------- */

enum { WAITERS = 3, MESSAGES = 3000 };

static struct storm {
    uint32_t flags;
    fs_word64 received[PAIRS];
    fs_word32 inside[PAIRS], ended;
    uint64_t sent[PAIRS];
} storm;

static void *send_storm(void *argument) {
    uint64_t random = (uint64_t)(uintptr_t)argument * 77 + 1;
    int i = (int)(uintptr_t)argument;
    char bytes[700] = {0};
    double until = seconds_now() + 6 * PATIENCE;
    for (int n = 0; n < MESSAGES; n++) {
        size_t size = 1 + below(&random, sizeof bytes);
        for (int64_t sent; size; size -= (size_t)sent) {
            sent = transmit(&pairs[i], 0, bytes, size);
            check(seconds_now() < until, "pair %d is stuck at message %d", i, n);
            if (sent == -EAGAIN) {
                sent = 0;
                usleep(100);
                continue;
            }
            check(sent > 0, "sending: %" PRId64, sent);
            storm.sent[i] += (uint64_t)sent;
        }
        if (one_in(&random, 50)) usleep(below(&random, 300));
        if (n == MESSAGES / 4) attach_side(&pairs[i], one_in(&random, 2));
        if (n == MESSAGES / 2)
            for (int s = 0; s < 2; s++)
                if (!fs_is_attached(&pairs[i].ends[s].c)) attach_side(&pairs[i], s);
    }
    fs_conn_shutdown(&pairs[i].ends[0].c, 0, 1);
    shutdown(pairs[i].ends[0].number, SHUT_WR);
    return NULL;
}

static void serve(int i) {
    char bytes[900];
    int single = (storm.flags & EPOLLONESHOT) != 0;
    int64_t got;
    if (single) check(fs_add_sc(&storm.inside[i], 1) == 0, "a single shot was told to two");
    do {
        got = receive(&pairs[i], 1, bytes, sizeof bytes);
        if (got > 0) fs_add_sc(&storm.received[i], (uint64_t)got);
    } while (got > 0 && storm.flags);
    check(got >= 0 || got == -EAGAIN, "receiving: %" PRId64, got);
    if (single) fs_add_sc(&storm.inside[i], (uint32_t)-1);
    if (got == 0) {
        static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
        pthread_mutex_lock(&once);
        struct epoll_event none = {0};
        if (fs_poller_ctl(poller, EPOLL_CTL_DEL, pairs[i].ends[1].number, &pairs[i].its[1], &none) == 0) fs_add_sc(&storm.ended, 1);
        pthread_mutex_unlock(&once);
    } else if (single) {
        struct epoll_event again = {.events = EPOLLIN | storm.flags, .data.u64 = (uint64_t)i};
        int failed = fs_poller_ctl(poller, EPOLL_CTL_MOD, pairs[i].ends[1].number, &pairs[i].its[1], &again);
        check(failed == 0 || failed == -ENOENT, "epoll_ctl: %d", failed);
    }
}

static void *wait_in_storm(void *nothing) {
    struct epoll_event got[3];
    double until = seconds_now() + 6 * PATIENCE;
    while (fs_load_sc(&storm.ended) < PAIRS) {
        check(seconds_now() < until, "%u of %d have ended", fs_load_sc(&storm.ended), PAIRS);
        int n = fs_poller_wait(poller, got, 3, 200000000, NULL);
        check(n >= 0, "waiting: %d", n);
        for (int i = 0; i < n; i++) {
            check(got[i].data.u64 < PAIRS, "another one's data: %" PRIx64, got[i].data.u64);
            serve((int)got[i].data.u64);
        }
    }
    return nothing;
}

/* Each byte is told and taken, whichever thread waits, and however the connection moves meanwhile. */
static void storm_of(uint32_t flags, int waiters) {
    pthread_t senders[PAIRS], threads[WAITERS];
    memset(&storm, 0, sizeof storm);
    storm.flags = flags;
    begin();
    for (int i = 0; i < PAIRS; i++) {
        open_pair(&pairs[i]);
        control(poller, EPOLL_CTL_ADD, &pairs[i], 1, EPOLLIN | flags, (uint64_t)i);
    }
    for (int i = 0; i < waiters; i++) check(pthread_create(&threads[i], NULL, wait_in_storm, NULL) == 0, "a thread");
    for (int i = 0; i < PAIRS; i++) check(pthread_create(&senders[i], NULL, send_storm, (void *)(uintptr_t)i) == 0, "a thread");
    for (int i = 0; i < PAIRS; i++) pthread_join(senders[i], NULL);
    for (int i = 0; i < waiters; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < PAIRS; i++) {
        check(fs_load_sc(&storm.received[i]) == storm.sent[i], "pair %d: %" PRIu64 " of %" PRIu64, i, fs_load_sc(&storm.received[i]), storm.sent[i]);
        close_pair(&pairs[i]);
    }
    finish();
}

static void storm_of_levels(void) { storm_of(0, WAITERS); }
static void storm_of_edges(void) { storm_of(EPOLLET, 1); }
static void storm_of_single_shots(void) { storm_of(EPOLLONESHOT, WAITERS); }
static void storm_of_single_edges(void) { storm_of(EPOLLONESHOT | EPOLLET, WAITERS); }

/* ---- closes and numbers -------------------------------------------------------------------------------------------------------------- */

static void close_while_waiting(void) {
    pthread_t thread;
    uint32_t found = 0;
    begin();
    for (int i = 0; i < 2; i++) {
        open_pair(&pairs[i]);
        control(poller, EPOLL_CTL_ADD, &pairs[i], 1, EPOLLIN, i ? 5 : 4);
        move_pair(&pairs[i]);
        check(transmit(&pairs[i], 1, "x", 1) == 1, "sending");
    }
    await_sleep(start(&thread, wait_once, &found));
    close_side(&pairs[0], 1);
    check(transmit(&pairs[1], 0, "a", 1) == 1, "sending");
    pthread_join(thread, NULL);
    check(found == EPOLLIN, "told %x", found);
    for (int i = 0; i < 2; i++) close_pair(&pairs[i]);
    finish();
}

/* The number it was added by is closed, and the socket is open by another one. */
static void close_a_number(void) {
    char bytes[8];
    for (int moves = 0; moves < 3; moves++) {
        begin();
        struct pair *p = &pairs[0];
        open_pair(p);
        control(poller, EPOLL_CTL_ADD, p, 1, EPOLLIN | EPOLLOUT * (moves == 2), 5);
        if (moves) move_pair(p);
        int before = p->ends[1].number, other = fcntl(before, F_DUPFD_CLOEXEC, 0);
        fs_poller_close_number(&p->its[1], before, 0);
        enter(&p->ends[1]);
        fs_set_fd(&p->ends[1].c, other);
        leave();
        p->ends[1].number = other;
        close(before);
        check(transmit(p, 0, "ab", 2) == 2, "sending");
        uint32_t told = EPOLLIN | (moves == 2 ? EPOLLOUT : 0);
        check(told_of(poller, 5, FOREVER) == told && told_of(poller, 5, FOREVER) == told, "not told");
        check(receive(p, 1, bytes, 8) == 2, "receiving");
        check(told_of(poller, 5, 0) == (told & EPOLLOUT), "told of nothing");
        struct epoll_event event = {0};
        check(fs_poller_ctl(poller, EPOLL_CTL_DEL, other, &p->its[1], &event) == -ENOENT, "deleted by another number");
        close_pair(p);
        check(told_of(poller, 5, 0) == 0, "told of a socket that is closed");
        finish();
    }
}

/* ---- data ------------------------------------------------------------------------------------------------------------------------------- */

/* Whatever data a program takes, it gets them back, and it gets no others. */
static void data_of_ours(void) {
    begin();
    open_pair(&pairs[0]);
    control(poller, EPOLL_CTL_ADD, &pairs[0], 1, EPOLLIN, 5);
    move_pair(&pairs[0]);
    for (uint32_t slot = 0; slot < 4; slot++) {
        uint64_t data = fs_poller_data(slot, slot == 1), other = fs_poller_data(slot, 2);
        check(fs_is_poller_data(data), "it does not lie in the range");
        int fd = eventfd(1, EFD_CLOEXEC);
        struct epoll_event event = {.events = EPOLLIN, .data.u64 = data};
        check(fs_poller_ctl(poller, EPOLL_CTL_ADD, fd, NULL, &event) == 0, "adding");
        check(told_of(poller, data, FOREVER) == EPOLLIN, "not told");
        event.data.u64 = other;
        check(fs_poller_ctl(poller, EPOLL_CTL_MOD, fd, NULL, &event) == 0 && told_of(poller, other, FOREVER) == EPOLLIN, "not told");
        event.data.u64 = 3;
        check(fs_poller_ctl(poller, EPOLL_CTL_MOD, fd, NULL, &event) == 0 && told_of(poller, 3, FOREVER) == EPOLLIN, "not told");
        check(fs_poller_ctl(poller, EPOLL_CTL_DEL, fd, NULL, &event) == 0 && told_of(poller, 3, 0) == 0, "told of nothing");
        check(fs_poller_ctl(poller, EPOLL_CTL_DEL, fd, NULL, &event) == -ENOENT, "deleted twice");
        close(fd);
    }
    check(transmit(&pairs[0], 0, "a", 1) == 1 && told_of(poller, 5, FOREVER) == EPOLLIN, "not told");
    close_pair(&pairs[0]);
    finish();
}

/* ---- who polls the instance -------------------------------------------------------------------------------------------------------------- */

static void nested(void) {
    char bytes[8];
    uint32_t told;
    struct epoll_event event = {.events = EPOLLIN};
    begin();
    int outer = epoll_create1(EPOLL_CLOEXEC);
    open_pair(&pairs[0]);
    control(poller, EPOLL_CTL_ADD, &pairs[0], 1, EPOLLIN, 5);
    move_pair(&pairs[0]);
    fs_poller_expose(poller);
    check(epoll_ctl(outer, EPOLL_CTL_ADD, instance, &event) == 0, "epoll_ctl: %m");
    for (int n = 0; n < 5; n++) {
        while (epoll_wait(outer, &event, 1, 0)) check(told_of(poller, 5, 0) == 0, "told of nothing");
        check(transmit(&pairs[0], 0, "ab", 2) == 2, "sending");
        /* (It may be readable for nothing.) */
        do check(epoll_wait(outer, &event, 1, (int)(PATIENCE * 1e3)) == 1, "the instance is not readable");
        while (!(told = told_of(poller, 5, 0)));
        check(told == EPOLLIN, "told %x", told);
        check(receive(&pairs[0], 1, bytes, 1) == 1 && epoll_wait(outer, &event, 1, 0) == 1, "it is readable no more");
        check(receive(&pairs[0], 1, bytes, 1) == 1, "receiving");
    }
    close_pair(&pairs[0]);
    close(outer);
    finish();
}

/* Two instances, and a thread that polls. */
static void several_pollers(void) {
    char bytes[8];
    begin();
    int second = epoll_create1(EPOLL_CLOEXEC);
    struct fs_poller *other = new_poller(second), *mine = new_poller(-1);
    open_pair(&pairs[0]);
    open_pair(&pairs[1]);
    control(poller, EPOLL_CTL_ADD, &pairs[0], 1, EPOLLIN, 5);
    control(other, EPOLL_CTL_ADD, &pairs[0], 1, EPOLLIN, 6);
    move_pair(&pairs[0]);
    move_pair(&pairs[1]);
    for (int n = 0; n < 20; n++) {
        struct pollfd waits[2] = {{pairs[0].ends[1].number, POLLIN, 0}, {pairs[1].ends[1].number, POLLIN, 0}};
        struct fs_pollable *its[2] = {&pairs[0].its[1], &pairs[1].its[1]};
        struct fs_call calls[2];
        check(transmit(&pairs[0], 0, "a", 1) == 1, "sending");
        for (int i = 0; i < 2; i++) check(begin_call(&pairs[i].ends[1], &calls[i]), "it has ended");
        check(told_of(n % 2 ? other : poller, n % 2 ? 6 : 5, FOREVER) == EPOLLIN, "not told");
        check(told_of(n % 2 ? poller : other, n % 2 ? 5 : 6, FOREVER) == EPOLLIN, "not told");
        check(fs_poller_poll(mine, waits, its, 2, FOREVER, NULL) == 1 && waits[0].revents == POLLIN, "not told");
        for (int i = 2; i-- > 0;) end_call(&pairs[i].ends[1], &calls[i]);
        check(receive(&pairs[0], 1, bytes, 8) == 1, "receiving");
        check(told_of(poller, 5, 0) == 0 && told_of(other, 6, 0) == 0, "told of nothing");
    }
    fs_poller_end(mine);
    fs_poller_end(other);
    close(second);
    check(transmit(&pairs[0], 0, "a", 1) == 1 && told_of(poller, 5, FOREVER) == EPOLLIN, "not told");
    for (int i = 0; i < 2; i++) close_pair(&pairs[i]);
    finish();
}

static pthread_barrier_t together;
static struct fs_poller *both[2];

static void *wait_among_others(void *argument) {
    int which = (int)(uintptr_t)argument;
    struct fs_poller *mine = which == 2 ? new_poller(-1) : both[which];
    for (int n = 0; n < 100; n++) {
        struct pollfd waits[2] = {{pairs[0].ends[1].number, POLLIN, 0}, {pairs[1].ends[1].number, POLLIN, 0}};
        struct fs_pollable *its[2] = {&pairs[0].its[1], &pairs[1].its[1]};
        struct fs_call calls[2];
        if (which < 2) {
            check(told_of(mine, (uint64_t)which, FOREVER) == EPOLLIN, "not told");
        } else {
            for (int i = 0; i < 2; i++) check(begin_call(&pairs[i].ends[1], &calls[i]), "it has ended");
            check(fs_poller_poll(mine, waits, its, 2, FOREVER, NULL) == 1, "not told");
            for (int i = 2; i-- > 0;) end_call(&pairs[i].ends[1], &calls[i]);
        }
        check(mine->untold == 0, "nobody tells");
        pthread_barrier_wait(&together); /* all were told: it is taken, */
        pthread_barrier_wait(&together); /* and the next one comes */
    }
    if (which == 2) fs_poller_end(mine);
    return NULL;
}

static void several_that_sleep(void) {
    pthread_t threads[3];
    char byte;
    begin();
    int second = epoll_create1(EPOLL_CLOEXEC);
    both[0] = poller;
    both[1] = new_poller(second);
    pthread_barrier_init(&together, NULL, 4);
    for (int i = 0; i < 2; i++) open_pair(&pairs[i]);
    for (int i = 0; i < 2; i++) control(both[i], EPOLL_CTL_ADD, &pairs[0], 1, EPOLLIN, (uint64_t)i);
    move_pair(&pairs[0]);
    move_pair(&pairs[1]);
    for (int i = 0; i < 3; i++) check(pthread_create(&threads[i], NULL, wait_among_others, (void *)(uintptr_t)i) == 0, "a thread");
    for (int n = 0; n < 100; n++) {
        usleep(n % 4 ? 300 : 20000);
        check(transmit(&pairs[0], 0, "a", 1) == 1, "sending");
        pthread_barrier_wait(&together);
        check(receive(&pairs[0], 1, &byte, 1) == 1, "receiving");
        pthread_barrier_wait(&together);
    }
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    fs_poller_end(both[1]);
    close(second);
    for (int i = 0; i < 2; i++) close_pair(&pairs[i]);
    finish();
}

/* ---- forks ---------------------------------------------------------------------------------------------------------------- */

static int count_child(int by) {
    for (int s = 0; s < 2; s++)
        if (fs_load_sc(&pairs[0].ends[s].open)) fs_add_sc(&fs_own(&pairs[0].ends[s].c)->holders, (uint32_t)by);
    return 2;
}

/* The instance was made before the fork, and both processes wait on it: what comes is told to both. The child closes what it has, and the
 * parent is told still. */
static void forked(void) {
    int status;
    char bytes[4];
    for (int moves = 0; moves < 2; moves++) {
        begin();
        open_pair(&pairs[0]);
        control(poller, EPOLL_CTL_ADD, &pairs[0], 1, EPOLLIN, 5);
        if (moves) move_pair(&pairs[0]);
        pid_t child = fork_holder();
        if (!child) {
            for (int s = 0; s < 2; s++) fs_conn_inherit(&pairs[0].ends[s].c);
            pairs[0].ends[0].asked = pairs[0].ends[1].asked = 0;
            fs_poller_after_fork(poller);
            check(told_of(poller, 5, FOREVER) == EPOLLIN, "the child is not told");
            open_pair(&pairs[1]); /* one that only the child has */
            control(poller, EPOLL_CTL_ADD, &pairs[1], 1, EPOLLIN | EPOLLONESHOT, 6);
            move_pair(&pairs[1]);
            check(transmit(&pairs[1], 0, "b", 1) == 1, "sending");
            struct epoll_event got[2];
            uint64_t told = 0;
            for (double until = seconds_now() + PATIENCE; told != 0x60; ) {
                int n = fs_poller_wait(poller, got, 2, 1000000, NULL);
                for (int i = 0; i < n; i++) told |= got[i].data.u64 == 6 ? 0x60 : 0;
                check(seconds_now() < until, "the child is not told of its own");
            }
            close_pair(&pairs[1]);
            for (int s = 0; s < 2; s++) close_side(&pairs[0], s);
            fs_poller_end(poller);
            end_at_once(0);
        }
        fs_poller_forked(poller);
        check(transmit(&pairs[0], 0, "a", 1) == 1 && told_of(poller, 5, FOREVER) == EPOLLIN, "not told");
        check(waitpid(child, &status, 0) == child && status == 0, "the child: %x", status);
        check(told_of(poller, 5, FOREVER) == EPOLLIN && receive(&pairs[0], 1, bytes, 4) == 1, "not told behind the child's end");
        check(told_of(poller, 5, 0) == 0 && transmit(&pairs[0], 0, "c", 1) == 1 && told_of(poller, 5, FOREVER) == EPOLLIN, "not told");
        close_pair(&pairs[0]);
        finish();
    }
}

/* ---- signals --------------------------------------------------------------------------------------------------------------------------------- */

static volatile sig_atomic_t handled;
static void handle(int number) {
    (void)number;
    handled++;
}

/* As epoll_pwait and ppoll have it: a signal that waits is handled as the mask lets it in. */
static void signals(void) {
    sigset_t blocked, open;
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    struct epoll_event got;
    sigaction(SIGUSR1, &action, NULL);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    begin();
    struct fs_poller *mine = new_poller(-1);
    for (int moves = 0; moves < 2; moves++) {
        struct fs_call call;
        open_pair(&pairs[0]);
        control(poller, EPOLL_CTL_ADD, &pairs[0], 1, EPOLLIN, 5);
        if (moves) move_pair(&pairs[0]);
        struct pollfd waits = {pairs[0].ends[1].number, POLLIN, 0};
        struct fs_pollable *it = &pairs[0].its[1];
        for (int polls = 0; polls < 2; polls++) {
            pthread_sigmask(SIG_BLOCK, &blocked, &open);
            raise(SIGUSR1);
            check(!handled, "handled");
            if (polls) {
                check(begin_call(&pairs[0].ends[1], &call), "it has ended");
                check(fs_poller_poll(mine, &waits, &it, 1, FOREVER, &open) == -EINTR, "not interrupted");
                end_call(&pairs[0].ends[1], &call);
            } else {
                check(fs_poller_wait(poller, &got, 1, FOREVER, &open) == -EINTR, "not interrupted");
            }
            check(handled == 1, "handled %d times", (int)handled);
            handled = 0;
            pthread_sigmask(SIG_SETMASK, &open, NULL);
        }
        close_pair(&pairs[0]);
    }
    fs_poller_end(mine);
    finish();
}

/* ---- */

#define TEST(name) {#name, name}
static const struct {
    const char *name;
    void (*runs)(void);
} tests[] = {
    TEST(move_while_epoll_waits), TEST(move_while_poll_waits), TEST(single_shot_that_moves), TEST(leave_while_waiting),
    TEST(storm_of_levels), TEST(storm_of_edges), TEST(storm_of_single_shots), TEST(storm_of_single_edges),
    TEST(close_while_waiting), TEST(close_a_number), TEST(data_of_ours), TEST(nested), TEST(several_pollers), TEST(several_that_sleep), TEST(forked), TEST(signals),
};

int main(int count, char **arguments) {
    signal(SIGPIPE, SIG_IGN);
    become_front_end();
    fs_atfork_install(count_child);
    fs_pollers_begin();
    fs_poller_host.end_call = end_call_of;
    int runs = 0;
    const char *only = count > 1 && !strchr("0123456789", *arguments[1]) ? arguments[1] : NULL;
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
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
