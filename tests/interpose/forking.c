/* Cases of threads: some fork, by each way there is, while others begin connections, move them, wait for them and end them; and threads
 * that pthread_create(3) did not make. */
#include "conformance.h"

#include <linux/sched.h>
#include <sched.h>
#include <threads.h>

/* ---- ways to fork --------------------------------------------------------------------------------------------------- */

static int in_clone(void *nothing) {
    (void)nothing;
    _exit(7);
}

static pid_t by_fork(void) { return fork(); }
static pid_t by_bare_fork(void) { return _Fork(); }
static pid_t by_clone(void) {
    char stack[32768] __attribute__((aligned(16)));
    return clone(in_clone, stack + sizeof stack, SIGCHLD, NULL);
}
static pid_t by_number(void) { return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); }
static pid_t by_structure(void) {
    struct clone_args how = {.exit_signal = SIGCHLD};
    pid_t made = (pid_t)syscall(SYS_clone3, &how, sizeof how);
    return made < 0 && errno == ENOSYS ? by_number() : made;
}
static pid_t by_vfork(void) {
    pid_t made = vfork();
    if (made == 0) _exit(7);
    return made;
}
static pid_t by_spawn(void) {
    pid_t made = -1;
    posix_spawn(&made, "/bin/sh", NULL, NULL, (char *[]){"sh", "-c", "exit 7", NULL}, environ);
    return made;
}

static const struct {
    const char *name;
    pid_t (*fork)(void);
    int runs_handlers; /* of pthread_atfork: the child may do more than end */
} WAYS[] = {
    {"fork", by_fork, 1}, {"_Fork", by_bare_fork, 0}, {"clone", by_clone, 0}, {"clone by number", by_number, 0},
    {"clone3 by number", by_structure, 0}, {"vfork", by_vfork, 0}, {"posix_spawn", by_spawn, 0},
};

enum { WAY = sizeof WAYS / sizeof *WAYS, FORKERS = 3, OTHERS = 2, FORKS = 6 };

static _Atomic int over;
static _Atomic int way;
static pthread_mutex_t at_exit_of_way = PTHREAD_MUTEX_INITIALIZER;

/* The child uses what it has inherited, and forks once more. */
static _Noreturn void in_child(int fd) {
    pid_t again;
    int status = 0;
    if (WAYS[way].runs_handlers && write(fd, "child", 5) != 5) _exit(1);
    again = WAYS[way].fork();
    if (again == 0) _exit(7);
    if (waitpid(again, &status, 0) != again || WEXITSTATUS(status) != 7) _exit(2);
    _exit(7);
}

static void *forks_away(void *nothing) {
    int c, d;
    long right = 0;
    char into[8];
    (void)nothing;
    pthread_mutex_lock(&at_exit_of_way), pthread_mutex_unlock(&at_exit_of_way);
    connect_pair(&c, &d);
    for (int i = 0; i < 20; i++)
        if (write(c, "x", 1) != 1 || read(d, into, 1) != 1 || write(d, "y", 1) != 1 || read(c, into, 1) != 1) return NULL;
    for (int i = 0; i < FORKS; i++) {
        int status = -1;
        pid_t child = WAYS[way].fork();
        if (child == 0) in_child(c);
        if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 7) continue;
        right += !WAYS[way].runs_handlers || (recv(d, into, 5, MSG_WAITALL) == 5 && !memcmp(into, "child", 5));
    }
    close(c), close(d);
    return (void *)right;
}

/* ---- what the others do --------------------------------------------------------------------------------------------- */

static void begins_and_ends(void) {
    int c, d;
    char byte;
    connect_pair(&c, &d);
    for (int i = 0; i < 20; i++)
        if (write(c, "x", 1) != 1 || read(d, &byte, 1) != 1 || write(d, "y", 1) != 1 || read(c, &byte, 1) != 1) abort();
    close(c), close(d);
}

static void waits(void) {
    struct epoll_event e = {EPOLLIN, {.u64 = 7}}, told;
    int c, d, epoll = epoll_create1(EPOLL_CLOEXEC);
    char byte;
    connect_pair(&c, &d);
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, d, &e)) abort();
    for (int i = 0; i < 20; i++)
        if (write(c, "x", 1) != 1 || epoll_wait(epoll, &told, 1, 20000) != 1 || read(d, &byte, 1) != 1) abort();
    struct pollfd p = {d, POLLIN, 0};
    if (write(c, "x", 1) != 1 || poll(&p, 1, 20000) != 1) abort();
    close(epoll), close(c), close(d);
}

/* Where there is the library, and it serves: settings again, its counters, and its end and another beginning. */
static int is_served(void) {
    int (*serves)(void) = (int (*)(void))library_function("fs_libc_serves");
    return serves && serves();
}

static void take_settings(void) {
    const char *(*put_in_place)(const void *, int) = (const char *(*)(const void *, int))library_function("fs_libc_install");
    if (put_in_place) put_in_place(NULL, 1);
}

static void configures(void) {
    char counters[4096];
    void (*sum)(void *) = (void (*)(void *))library_function("fs_libc_sum_counters");
    if (is_served()) take_settings();
    if (sum) sum(counters);
    begins_and_ends();
}

static void goes_and_comes(void) {
    void (*uninstall)(void) = (void (*)(void))library_function("fs_libc_uninstall");
    int served = is_served();
    if (served) uninstall();
    begins_and_ends();
    if (served) take_settings();
}

static void *goes_on(void *what) {
    void (*body)(void);
    memcpy(&body, what, sizeof body);
    while (!over) body();
    return NULL;
}

static void (*const WHAT[])(void) = {begins_and_ends, waits, configures, goes_and_comes};
static const char *const CALLED[] = {"connections", "waits", "settings", "library"};

void forking_threads(int a, int b) {
    for (size_t what = 0; what < sizeof WHAT / sizeof *WHAT; what++)
        for (way = 0; way < WAY; way++) {
            pthread_t forkers[FORKERS], others[OTHERS];
            long right = 0;
            over = 0;
            pthread_mutex_lock(&at_exit_of_way);
            for (int i = 0; i < FORKERS; i++) pthread_create(&forkers[i], NULL, forks_away, NULL);
            for (int i = 0; i < OTHERS; i++) pthread_create(&others[i], NULL, goes_on, (void *)&WHAT[what]);
            pthread_mutex_unlock(&at_exit_of_way);
            for (int i = 0; i < FORKERS; i++) {
                void *got;
                pthread_join(forkers[i], &got);
                right += (long)got;
            }
            over = 1;
            for (int i = 0; i < OTHERS; i++) pthread_join(others[i], NULL);
            printf("    %s, %s: %ld\n", CALLED[what], WAYS[way].name, right), fflush(stdout);
        }
    SAY(write(a, "x", 1));
    SAY(read(b, &(char[1]){0}, 1));
}

/* ---- threads that pthread_create did not make ---------------------------------------------------------------------------- */

static int reads(void *fd) {
    char into[64];
    long all = 0, got;
    while ((got = read(*(int *)fd, into, sizeof into)) > 0) all += got;
    return got ? -1 : (int)all;
}

static int writes(void *fd) {
    for (int i = 0; i < 2000; i++) {
        if (write(*(int *)fd, "12345678", 8) != 8) return -1;
        if (i % 97 == 0) thrd_yield();
    }
    return shutdown(*(int *)fd, SHUT_WR);
}

static int never_returns(void *fd) { return (int)read(*(int *)fd, &(char[8]){0}, 8); }

static int at_timer;
static void by_timer(union sigval value) {
    (void)value;
    if (write(at_timer, "timer", 5) != 5) abort();
}

void other_threads(int a, int b) {
    struct sigevent how = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = by_timer};
    thrd_t thread[4];
    timer_t timer;
    char into[64] = "";
    int got;
    for (int round = 0; round < 8; round++) { /* from the first byte on */
        int c, d, sum = 0;
        connect_pair(&c, &d);
        thrd_create(&thread[0], reads, &c), thrd_create(&thread[1], reads, &d);
        if (round % 3 == 0) nap(5);
        thrd_create(&thread[2], writes, &c), thrd_create(&thread[3], writes, &d);
        for (int i = 0; i < 4; i++) thrd_join(thread[i], &got), sum += got;
        SAY(sum);
        close(c), close(d);
    }
    SAY(thrd_create(&thread[0], never_returns, &b)); /* it reads */
    nap(50);
    SAY(write(a, "abc", 3));
    thrd_join(thread[0], &got);
    SAY(got);
    at_timer = a;
    SAY(timer_create(CLOCK_MONOTONIC, &how, &timer));
    SAY(timer_settime(timer, 0, &(struct itimerspec){.it_value.tv_nsec = 50000000}, NULL));
    SAY(read(b, into, 64));
    show(into, 5);
    timer_delete(timer);
    SAY(thrd_create(&thread[0], never_returns, &b)); /* it is cancelled */
    nap(100);
    SAY(pthread_cancel(thread[0]));
    void *end = NULL;
    SAY(pthread_join(thread[0], &end));
    SAY(end == PTHREAD_CANCELED);
    SAY(write(a, "xyz", 3));
    SAY(read(b, into, 64));
}
