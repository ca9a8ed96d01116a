/* Pollers (core/ready) under load: threads that wait on one, and on several; forks; peers that do not read; calls that fail: `storms
 * [NAME]`. */
#include "pollers.h"

#include "os/memory.h"

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
        int n = fs_poller_wait(poller, poller->epoll, got, 3, 200000000, NULL);
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
        check(fs_load_sc(&storm.received[i]) == storm.sent[i], "pair %d: %" PRIu64 " of %" PRIu64, i, fs_load_sc(&storm.received[i]),
              storm.sent[i]);
        close_pair(&pairs[i]);
    }
    finish();
}

static void storm_of_levels(void) { storm_of(0, WAITERS); }
static void storm_of_edges(void) { storm_of(EPOLLET, WAITERS); }
static void storm_of_single_shots(void) { storm_of(EPOLLONESHOT, WAITERS); }
static void storm_of_single_edges(void) { storm_of(EPOLLONESHOT | EPOLLET, WAITERS); }

static fs_word32 wakeups; /* by an event, of the thread that waits */
static int (*plain_wait)(int epoll, struct epoll_event *events, int most, const struct timespec *time, const sigset_t *mask);

static int count_wakeups(int epoll, struct epoll_event *events, int most, const struct timespec *time, const sigset_t *mask) {
    int got = plain_wait(epoll, events, most, time, mask);
    if (got > 0 && (uint32_t)syscall(SYS_gettid) == fs_load_sc(&waiter_id)) fs_add_sc(&wakeups, 1);
    return got;
}

/* A thread changes a member while another one sleeps, as programs do whose threads arm single shots: it wakes it for an event only. */
static void change_beside_a_sleeper(void) {
    pthread_t thread;
    uint32_t found = 0;
    char bytes[8];
    begin();
    open_pair(&pairs[0]);
    control(poller, EPOLL_CTL_ADD, &pairs[0], 1, EPOLLIN | EPOLLONESHOT, 5);
    move_pair(&pairs[0]);
    plain_wait = fs_system.epoll_pwait2;
    fs_system.epoll_pwait2 = count_wakeups;
    await_sleep(start(&thread, wait_once, &found));
    for (int i = 0; i < 100; i++) {
        control(poller, EPOLL_CTL_MOD, &pairs[0], 1, i % 2 ? EPOLLIN | EPOLLONESHOT : EPOLLONESHOT, 5);
        if (i % 10 == 0) usleep(1000); /* a thread that was woken has the time to look */
    }
    check(!fs_load_sc(&wakeups), "it was woken %u times", fs_load_sc(&wakeups));
    check(transmit(&pairs[0], 0, "a", 1) == 1, "sending");
    pthread_join(thread, NULL);
    check(found == EPOLLIN && receive(&pairs[0], 1, bytes, 8) == 1, "told %x", found);
    check(transmit(&pairs[0], 0, "b", 1) == 1, "sending");
    await_sleep(start(&thread, wait_once, &found));
    control(poller, EPOLL_CTL_MOD, &pairs[0], 1, EPOLLIN | EPOLLONESHOT, 5); /* what is there wakes it */
    pthread_join(thread, NULL);
    check(found == EPOLLIN, "told %x", found);
    fs_system.epoll_pwait2 = plain_wait;
    close_pair(&pairs[0]);
    finish();
}

/* ---- threads at several pollers ------------------------------------------------------------------------------------- */

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
        check(mine->unreported == 0, "nobody tells");
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

/* The slot goes to the set that both share, and back, while a thread sleeps: what comes then is told. */
static void another_comes_and_goes(void) {
    pthread_t thread;
    char byte;
    begin();
    int second = epoll_create1(EPOLL_CLOEXEC);
    struct fs_poller *other = new_poller(second);
    open_pair(&pairs[0]);
    move_pair(&pairs[0]);
    control(poller, EPOLL_CTL_ADD, &pairs[0], 1, EPOLLIN, 5);
    for (int n = 0; n < 6; n++) {
        uint32_t found = 0;
        await_sleep(start(&thread, wait_once, &found));
        control(other, n % 2 ? EPOLL_CTL_DEL : EPOLL_CTL_ADD, &pairs[0], 1, EPOLLIN | EPOLLET, 6);
        check(n % 2 || told_of(other, 6, 0) == 0, "told of nothing");
        await_sleep((pid_t)fs_load_sc(&waiter_id));
        check(transmit(&pairs[0], 0, "a", 1) == 1, "sending");
        pthread_join(thread, NULL);
        check(found == EPOLLIN && poller->unreported == 0, "told %x", found);
        check(n % 2 || told_of(other, 6, FOREVER) == EPOLLIN, "not told");
        check(n % 2 || other->set, "nothing wakes it for a change");
        check(receive(&pairs[0], 1, &byte, 1) == 1, "receiving");
    }
    fs_poller_end(other);
    close(second);
    close_pair(&pairs[0]);
    finish();
}

/* ---- calls of the system that fail -------------------------------------------------------------------------------------- */

static struct fs_system real; /* the core's calls */
static __thread int fails_at; /* 0: none; counts down */

#define FAILS (fails_at && --fails_at == 0)
static int fail_eventfd(unsigned start, int flags) { return FAILS ? (errno = EMFILE, -1) : real.eventfd(start, flags); }
static void *fail_calloc(size_t count, size_t size) { return FAILS ? NULL : real.calloc(count, size); }
static void *fail_realloc(void *before, size_t size) { return FAILS ? NULL : real.realloc(before, size); }
static int fail_epoll_ctl(int epoll, int op, int fd, struct epoll_event *event) {
    return FAILS ? (errno = ENOSPC, -1) : real.epoll_ctl(epoll, op, fd, event);
}

/* epoll_ctl fails as the kernel's does, and nothing is left of it. Without an event set the connection stays on the kernel, or, if it is on
 * the ring, is looked at now and then. */
static void failures(void) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 5};
    char bytes[4];
    for (int moves = 0; moves < 3; moves++) {
        int at = 0, failed;
        for (int over = 0; !over;) {
            int tried = ++at;
            begin();
            open_pair(&pairs[0]);
            if (moves == 1) move_pair(&pairs[0]);
            fails_at = tried;
            failed = fs_poller_ctl(poller, EPOLL_CTL_ADD, pairs[0].ends[1].number, &pairs[0].its[1], &event);
            if (failed) {
                check((failed == -ENOMEM || failed == -ENOSPC) && !fails_at, "adding: %d", failed);
                fails_at = 0;
                control(poller, EPOLL_CTL_ADD, &pairs[0], 1, EPOLLIN, 5);
            }
            if (moves == 2 && (failed = fs_poller_before_attach(&pairs[0].its[1])) == 0) {
                fails_at = 0;
                fs_poller_after_attach(&pairs[0].its[1], 0);
                move_pair(&pairs[0]);
            }
            over = fails_at != 0 || (moves == 2 && at > 20); /* there are no more calls */
            fails_at = 0;
            check(transmit(&pairs[0], 0, "a", 1) == 1 && told_of(poller, 5, FOREVER) == EPOLLIN, "not told");
            check(receive(&pairs[0], 1, bytes, 4) == 1 && told_of(poller, 5, 0) == 0, "told of nothing");
            close_pair(&pairs[0]);
            finish();
        }
        check(at > 3, "%d calls can fail", at - 1);
    }
}

/* ---- a peer that does not read ------------------------------------------------------------------------------------------- */

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
                int n = fs_poller_wait(poller, poller->epoll, got, 2, 1000000, NULL);
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

/* ---- */

static const struct test tests[] = {
    TEST(storm_of_levels), TEST(storm_of_edges), TEST(storm_of_single_shots), TEST(storm_of_single_edges),
    TEST(several_that_sleep), TEST(change_beside_a_sleeper), TEST(another_comes_and_goes), TEST(failures), TEST(forked),
};

int main(int count, char **arguments) {
    real = fs_system;
    fs_system.eventfd = fail_eventfd;
    fs_system.calloc = fail_calloc;
    fs_system.realloc = fail_realloc;
    fs_system.epoll_ctl = fail_epoll_ctl;
    fs_atfork_install(count_child);
    return run_tests(tests, sizeof tests / sizeof *tests, count, arguments);
}
