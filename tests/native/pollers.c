/* Pollers (core/ready): moves, closes, data, signals, and who else polls the instance: `pollers [NAME]`. */
#include "pollers.h"

#include "ready/scan.h"

/* ---- a connection that moves while threads wait -------------------------------------------------------------------------------- */

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

/* A thread polls by a number, closes it and ends: the socket, which is open by another one, knows nothing of its poller any more. */
static void end_behind_a_copy(void) {
    struct pair *p = &pairs[0];
    struct fs_pollable *it = &p->its[1];
    struct fs_call call;
    open_pair(p);
    move_pair(p);
    check(transmit(p, 0, "a", 1) == 1, "sending");
    struct fs_poller *mine = new_poller(-1);
    struct pollfd waits = {fcntl(p->ends[1].number, F_DUPFD_CLOEXEC, 0), POLLIN, 0};
    check(begin_call(&p->ends[1], &call), "it has ended");
    check(fs_poller_poll(mine, &waits, &it, 1, FOREVER, NULL) == 1 && fs_load_relaxed(&it->home) == mine, "it has no seat");
    end_call(&p->ends[1], &call);
    fs_poller_close_number(it, waits.fd, 0);
    close(waits.fd);
    check(!it->members && !fs_load_relaxed(&it->home), "it keeps its seat");
    fs_poller_end(mine);
    close_pair(p);
}

/* ---- edges ---- */

/* A look for another reason comes between an arrival and its hint: the hint is an edge all the same. */
static void edge_behind_a_look(void) {
    struct epoll_event events[4];
    begin();
    open_pair(&pairs[0]);
    control(poller, EPOLL_CTL_ADD, &pairs[0], 1, EPOLLIN | EPOLLET, 5);
    move_pair(&pairs[0]);
    check(told_of(poller, 5, 0) == 0, "told of nothing");
    check(transmit(&pairs[0], 0, "a", 1) == 1, "sending");
    fs_poller_forked(poller);
    struct fs_told told = {.events = events, .max = 4, .wait = ++poller->waits};
    fs_lock_poller(poller);
    fs_members_check(poller, &told, FS_TELL);
    fs_unlock_poller(poller);
    check(told.count == 0 && told_of(poller, 5, FOREVER) == EPOLLIN, "the edge is lost");
    check(told_of(poller, 5, 0) == 0, "told twice");
    close_pair(&pairs[0]);
    finish();
}

/* ---- data
 * ------------------------------------------------------------------------------------------------------------------------------- */

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

/* ---- who polls the instance
 * -------------------------------------------------------------------------------------------------------------- */

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

/* ---- signals
 * --------------------------------------------------------------------------------------------------------------------------------- */

static volatile sig_atomic_t handled;
static void handle(int number) {
    (void)number;
    handled++;
}

static int entered, left, interrupts;
static int enter_sleep(void) {
    entered++;
    return interrupts;
}
static void leave_sleep(void) { left++; }
static int is_interrupted(void) { return interrupts; }

/* What a front end is asked that puts handlers off: a wait that one is due in polls no longer, and does not sleep. */
static void handlers_put_off(void) {
    struct epoll_event got;
    begin();
    open_pair(&pairs[0]);
    control(poller, EPOLL_CTL_ADD, &pairs[0], 1, EPOLLIN, 5);
    move_pair(&pairs[0]);
    fs_poller_host.before_sleep = enter_sleep;
    fs_poller_host.after_sleep = leave_sleep;
    fs_poller_host.is_interrupted = is_interrupted;
    check(fs_poller_wait(poller, poller->epoll, &got, 1, 1000000, NULL) == 0 && entered && entered == left, "it has not slept");
    interrupts = 1;
    check(fs_poller_wait(poller, poller->epoll, &got, 1, FOREVER, NULL) == -EINTR && entered == left, "not interrupted");
    check(transmit(&pairs[0], 0, "a", 1) == 1, "sending");
    int n;
    while ((n = fs_poller_wait(poller, poller->epoll, &got, 1, FOREVER, NULL)) == -EINTR) {} /* (the first hint may be on its way) */
    check(n == 1, "not told: %d", n);
    fs_poller_host = (struct fs_poller_host){.end_call = end_call_of};
    close_pair(&pairs[0]);
    finish();
}

static int empty_and_interrupt(void) {
    static char into[65536];
    while (receive(&pairs[0], 1, into, sizeof into) > 0) {}
    return 1;
}

/* The peer makes room between the last look of a poll and its sleep. */
static void room_before_the_sleep(void) {
    static char bytes[65536];
    int64_t spins = fs_spin_ns;
    struct fs_call call;
    open_pair(&pairs[0]);
    move_pair(&pairs[0]);
    while (transmit(&pairs[0], 0, bytes, sizeof bytes) > 0) {}
    struct fs_poller *mine = new_poller(-1);
    struct pollfd waits = {pairs[0].ends[0].number, POLLOUT, 0};
    struct fs_pollable *it = &pairs[0].its[0];
    fs_spin_ns = 1000000000;
    fs_poller_host.is_interrupted = empty_and_interrupt;
    fs_poller_host.before_sleep = enter_sleep;
    interrupts = 1;
    check(begin_call(&pairs[0].ends[0], &call), "it has ended");
    check(fs_poller_poll(mine, &waits, &it, 1, FOREVER, NULL) == 1 && waits.revents == POLLOUT, "it sleeps");
    end_call(&pairs[0].ends[0], &call);
    interrupts = 0;
    fs_poller_host = (struct fs_poller_host){.end_call = end_call_of};
    fs_spin_ns = spins;
    fs_poller_end(mine);
    close_pair(&pairs[0]);
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
                check(fs_poller_wait(poller, poller->epoll, &got, 1, FOREVER, &open) == -EINTR, "not interrupted");
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

/* ---- while more threads want to run than there are CPUs ---- */

static int (*plain_open)(const char *path, int flags);

static int open_load(const char *path, int flags, const char *load) {
    if (strcmp(path, "/proc/loadavg") != 0) return plain_open(path, flags);
    int fd = fs_system.memfd_create("load", 0);
    check(write(fd, load, strlen(load)) == (ssize_t)strlen(load) && lseek(fd, 0, SEEK_SET) == 0, "a load");
    return fd;
}

static int open_as_busy(const char *path, int flags) { return open_load(path, flags, "9.00 9.00 9.00 60000/60001 1\n"); }
static int open_as_idle(const char *path, int flags) { return open_load(path, flags, "0.00 0.00 0.00 1/60001 1\n"); }

static int two_usable(pid_t process, size_t size, cpu_set_t *set) {
    (void)process;
    memset(set, 0, size);
    CPU_SET(0, set);
    CPU_SET(1, set);
    return 0;
}

/* Who polls connections on the ring alone spins as who receives there; who names a descriptor of the kernel's too does not. */
static void busy_cpus(void) {
    int numbers[2], (*plain_usable)(pid_t process, size_t size, cpu_set_t *set) = fs_system.sched_getaffinity;
    int64_t spins = fs_spin_ns;
    check(pipe(numbers) == 0, "a pipe");
    open_pair(&pairs[0]);
    move_pair(&pairs[0]);
    struct fs_poller *mine = new_poller(-1);
    plain_open = fs_system.open;
    fs_system.open = open_as_busy;
    fs_system.sched_getaffinity = two_usable;
    fs_spin_ns = 50000;
    usleep(60000); /* what was known of the load and of the CPUs is believed for 50 ms */
    struct pollfd waits[2] = {{pairs[0].ends[1].number, POLLIN, 0}, {numbers[0], POLLIN, 0}};
    struct fs_pollable *its[2] = {&pairs[0].its[1], NULL};
    for (nfds_t count = 2; count > 0; count--) {
        struct fs_call call;
        uint64_t before = fs_load_relaxed(&fs_poller_totals.poll_ns);
        check(begin_call(&pairs[0].ends[1], &call), "it has ended");
        check(fs_poller_poll(mine, waits, its, count, 1000000, NULL) == 0, "nothing is there");
        end_call(&pairs[0].ends[1], &call);
        check((fs_load_relaxed(&fs_poller_totals.poll_ns) != before) == (count == 1), "%d descriptors", (int)count);
    }
    fs_system.open = plain_open;
    fs_system.sched_getaffinity = plain_usable;
    fs_spin_ns = spins;
    fs_poller_end(mine);
    close_pair(&pairs[0]);
    close(numbers[0]);
    close(numbers[1]);
}

/* A wait that polls, sleeps, and is woken by the ring has polled in vain, and not found it by polling as well. */
static void polls_in_vain(void) {
    int (*plain_usable)(pid_t process, size_t size, cpu_set_t *set) = fs_system.sched_getaffinity;
    int64_t spins = fs_spin_ns;
    char bytes[8];
    begin();
    open_pair(&pairs[0]);
    control(poller, EPOLL_CTL_ADD, &pairs[0], 1, EPOLLIN, 5);
    move_pair(&pairs[0]);
    plain_open = fs_system.open;
    fs_system.open = open_as_idle;
    fs_system.sched_getaffinity = two_usable;
    fs_spin_ns = 20000;
    usleep(60000); /* as in busy_cpus */
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        uint32_t found = 0;
        uint64_t paid = fs_load_relaxed(&fs_poller_totals.polls_paid), unpaid = fs_load_relaxed(&fs_poller_totals.polls_unpaid);
        await_sleep(start(&thread, wait_once, &found));
        usleep(1000);
        check(transmit(&pairs[0], 0, "a", 1) == 1, "sending");
        pthread_join(thread, NULL);
        check(found == EPOLLIN && receive(&pairs[0], 1, bytes, 8) == 1 && told_of(poller, 5, 0) == 0, "told %x", found);
        check(fs_load_relaxed(&fs_poller_totals.polls_paid) == paid, "it pays");
        check(fs_load_relaxed(&fs_poller_totals.polls_unpaid) == unpaid + 1, "it is not counted once");
    }
    fs_system.open = plain_open;
    fs_system.sched_getaffinity = plain_usable;
    fs_spin_ns = spins;
    close_pair(&pairs[0]);
    finish();
}

/* ---- */

static const struct test tests[] = {
    TEST(move_while_epoll_waits), TEST(move_while_poll_waits), TEST(single_shot_that_moves), TEST(leave_while_waiting),
    TEST(close_while_waiting), TEST(close_a_number), TEST(end_behind_a_copy), TEST(edge_behind_a_look), TEST(data_of_ours), TEST(nested),
    TEST(several_pollers), TEST(signals),
    TEST(handlers_put_off), TEST(room_before_the_sleep), TEST(busy_cpus), TEST(polls_in_vain),
};

int main(int count, char **arguments) {
    return run_tests(tests, sizeof tests / sizeof *tests, count, arguments);
}
