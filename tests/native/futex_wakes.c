/* Threads that sleep on a futex while something happens to the kernel connection: somebody tells them, or they look by themselves.
 * `futex_wakes [seconds]`; one look at each is enough.
 *
 * Both ends are in this process, but where one of them has to die. A wait that the core would end by itself after some time, to look,
 * can be made one without end: then it is told, or it sleeps for ever. */
#include "pair.h"

#include <signal.h>

#include "events/futex.h"

static fs_word32 patient;            /* no sleep on a futex ends by itself */
static fs_word32 no_thread, no_room; /* what cannot be had */
static fs_word32 joined, looked_at; /* how often a socket came to the epoll; looks at the kernel's queue */
static fs_word32 wakeups;           /* calls that wake who sleeps on a futex */

static int sleep_patiently(void *word, int what, uint32_t value, const struct timespec *time) {
    if (what == FUTEX_WAKE) fs_add_sc(&wakeups, 1);
    return (int)syscall(SYS_futex, word, what, value, fs_load_sc(&patient) && what == FUTEX_WAIT ? NULL : time, NULL, 0);
}

static int make_thread(pthread_t *thread, const pthread_attr_t *how, void *(*body)(void *), void *argument) {
    return fs_load_sc(&no_thread) ? EAGAIN : pthread_create(thread, how, body, argument);
}

static int control_epoll(int epoll, int what, int fd, struct epoll_event *event) {
    int watches = event && event->events & EPOLLRDHUP;
    if (fs_load_sc(&no_room) && watches) {
        errno = ENOSPC;
        return -1;
    }
    if (watches && what == EPOLL_CTL_ADD) fs_add_sc(&joined, 1);
    return epoll_ctl(epoll, what, fd, event);
}

static ssize_t look_and_count(int fd, void *into, size_t room, int flags) {
    if (flags & MSG_PEEK) fs_add_sc(&looked_at, 1);
    return recv(fd, into, room, flags);
}

/* A call that waits: a byte to receive, or to send until somebody stops it. */
struct waiter {
    pthread_t thread;
    int what;
    struct end *end;
    fs_word32 id;
    int64_t got; /* what the last attempt got */
};

static void *wait_in_call(void *argument) {
    struct waiter *me = argument;
    char bytes[CHUNK] = {0};
    struct fs_call call;
    int64_t deadline = fs_now() + (int64_t)(PATIENCE * 1e9);
    int final = FS_NOT_FINAL;
    fs_store_sc(&me->id, (uint32_t)syscall(SYS_gettid));
    check(begin_call(me->end, &call), "a call begins");
    do {
        if (me->what == FS_RECEIVE) me->got = fs_try_recv(&me->end->c, bytes, 1, 0, final);
        else while ((me->got = fs_try_send(&me->end->c, bytes, sizeof bytes, MSG_NOSIGNAL)) > 0) {}
        final = FS_IF_TOLD;
    } while (me->got == -EAGAIN && wait_for(me->end, me->what, deadline, 0) == 1);
    end_call(me->end, &call);
    return NULL;
}

static void begin_wait(struct waiter *w, int what, struct end *end) {
    *w = (struct waiter){.what = what, .end = end};
    check(pthread_create(&w->thread, NULL, wait_in_call, w) == 0, "no thread");
    while (!fs_load_sc(&w->id)) usleep(100);
    await_sleep((pid_t)fs_load_sc(&w->id));
}

static int64_t end_wait(struct waiter *w) {
    pthread_join(w->thread, NULL);
    return w->got;
}

/* ---- what a sleeper is told -------------------------------------------------------------------------------- */

/* Two threads receive, before the peer's direction has moved and behind that: each byte wakes one for good, the end both. */
static void tell_receivers(void) {
    struct waiter waiters[2];
    open_ends();
    attach_ends();
    begin_wait(&waiters[0], FS_RECEIVE, &ends[1]);
    check(send(ends[0].number, "x", 1, 0) == 1, "sending: %m"); /* (as one would that knows nothing of the ring) */
    check(end_wait(&waiters[0]) == 1, "what came by the kernel");
    begin_wait(&waiters[0], FS_RECEIVE, &ends[1]);
    check(fs_try_send(&ends[0].c, "y", 1, MSG_NOSIGNAL) == 1 && fs_sends_on_ring(&ends[0].c), "it does not move");
    check(end_wait(&waiters[0]) == 1, "what came by the ring");
    for (int i = 0; i < 2; i++) begin_wait(&waiters[i], FS_RECEIVE, &ends[1]);
    check(fs_try_send(&ends[0].c, "z", 1, MSG_NOSIGNAL) == 1, "sending");
    usleep(1000);
    check(fs_conn_shutdown(&ends[0].c, 0, 1) && shutdown(ends[0].number, SHUT_WR) == 0, "shutdown: %m");
    check(end_wait(&waiters[0]) + end_wait(&waiters[1]) == 1, "one byte, and one end");
    close_ends();
}

/* The peer's kernel says that it is gone, and nothing in the ring does. */
static void tell_of_death(int what) {
    struct waiter waiter;
    open_ends();
    move_ends();
    begin_wait(&waiter, what, &ends[0]);
    fs_tcp_stream.reset(ends[1].number);
    int64_t got = end_wait(&waiter);
    check(got <= 0 && got != -EAGAIN, "%" PRId64 " after a reset", got);
    close_ends();
}

/* A hundred sleeps join once and look at nothing. */
static void sleep_often(void) {
    struct waiter waiter;
    open_ends();
    move_ends();
    begin_wait(&waiter, FS_RECEIVE, &ends[1]);
    check(fs_try_send(&ends[0].c, "x", 1, MSG_NOSIGNAL) == 1, "sending");
    check(end_wait(&waiter) == 1, "receiving");
    uint32_t first_joined = fs_load_sc(&joined), first_looked = fs_load_sc(&looked_at);
    for (int i = 0; i < 100; i++) {
        fs_word32 *futex = &ends[1].c.ring.rx->futex;
        begin_wait(&waiter, FS_RECEIVE, &ends[1]);
        if (i % 2) fs_futex_wake(futex); /* in vain */
        check(fs_try_send(&ends[0].c, "x", 1, MSG_NOSIGNAL) == 1, "sending");
        check(end_wait(&waiter) == 1, "receiving");
    }
    check(fs_load_sc(&joined) == first_joined, "it has joined again");
    check(fs_load_sc(&looked_at) == first_looked, "%u looks at the kernel", fs_load_sc(&looked_at) - first_looked);
    close_ends();
}

/* ---- nobody tells ------------------------------------------------------------------------------------------ */

static void lose_watcher(void) {
    struct waiter waiters[2];
    open_ends();
    move_ends();
    begin_wait(&waiters[0], FS_RECEIVE, &ends[0]);
    begin_wait(&waiters[1], FS_SEND, &ends[0]);
    fs_control_thread_stop(); /* as for a fork */
    fs_tcp_stream.reset(ends[1].number);
    for (int i = 0; i < 2; i++) {
        int64_t got = end_wait(&waiters[i]);
        check(got <= 0 && got != -EAGAIN, "%" PRId64 " after a reset", got);
    }
    fs_control_thread_after_fork();
    check(fs_control_thread_restart() == 0, "no thread");
    close_ends();
}

/* They look by themselves, and join the next thread. */
static void find_next_watcher(void) {
    struct waiter waiter;
    open_ends();
    move_ends();
    begin_wait(&waiter, FS_RECEIVE, &ends[0]);
    fs_control_thread_stop();
    check(!fs_is_watched(&ends[0].c.watch, FS_HANGUP_EVENTS), "nobody is there to watch");
    fs_control_thread_after_fork();
    check(fs_control_thread_restart() == 0, "no thread");
    for (double until = seconds_now() + PATIENCE; !fs_is_watched(&ends[0].c.watch, FS_HANGUP_EVENTS); usleep(1000))
        check(seconds_now() < until, "it joins no other watcher");
    fs_store_sc(&patient, 1);
    fs_tcp_stream.reset(ends[1].number);
    check(end_wait(&waiter) <= 0, "receiving after a reset");
    fs_store_sc(&patient, 0);
    close_ends();
}

/* The number means another file; the sleeper goes on with its connection. */
static void change_number(void) {
    struct waiter waiter;
    open_ends();
    move_ends();
    fs_store_sc(&patient, 1);
    begin_wait(&waiter, FS_RECEIVE, &ends[0]);
    int other = fcntl(ends[0].number, F_DUPFD_CLOEXEC, 0), stranger[2];
    check(other >= 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, stranger) == 0, "descriptors: %m");
    enter(&ends[0]);
    fs_set_fd(&ends[0].c, other);
    leave();
    check(dup2(stranger[0], ends[0].number) >= 0, "dup2: %m");
    await_sleep((pid_t)fs_load_sc(&waiter.id));
    fs_tcp_stream.reset(ends[1].number);
    check(end_wait(&waiter) <= 0, "receiving after a reset");
    fs_store_sc(&patient, 0);
    close(stranger[0]);
    close(stranger[1]);
    close(ends[0].number);
    close_ends();
}

/* A stranger moves who sleeps on a futex to a word of its own, where nobody rings. */
static void move_sleeper_away(void) {
    struct waiter waiter;
    open_ends();
    move_ends();
    fs_store_relaxed(&fs_untrusted_wakeups, 1);
    begin_wait(&waiter, FS_RECEIVE, &ends[1]);
    fs_word32 *futex = &ends[1].c.ring.rx->futex, *away = &ends[1].c.ring.rx->finack;
    long moved = syscall(SYS_futex, futex, FUTEX_REQUEUE, 0, (void *)1, away, 0);
    check(moved >= 0, "FUTEX_REQUEUE: %m"); /* (0: it looked just then) */
    check(fs_try_send(&ends[0].c, "x", 1, MSG_NOSIGNAL) == 1, "sending");
    check(end_wait(&waiter) == 1, "receiving");
    fs_store_relaxed(&fs_untrusted_wakeups, 0);
    close_ends();
}

/* ---- a peer that dies behind a half-close ------------------------------------------------------------------ */

/* The control thread has told of something since `told`. */
static void await_told(struct fs_connection *c, uint32_t told) {
    for (double until = seconds_now() + PATIENCE; fs_load_sc(&c->watch.told) == told; usleep(100))
        check(seconds_now() < until, "nobody tells of the end");
    usleep(20000); /* (a second event of the same end) */
}

/* Has the second end; ends its stream, and reads nothing. */
static void half_close_and_wait(void) {
    fs_conn_inherit(&ends[1].c);
    close(ends[0].number);
    if (!fs_conn_shutdown(&ends[1].c, 0, 1) || shutdown(ends[1].number, SHUT_WR)) end_at_once(1);
    for (;;) pause();
}

static void kill_behind_half_close(void) {
    struct waiter waiter;
    open_ends();
    move_ends();
    pid_t child = fork_holder();
    if (child == 0) half_close_and_wait();
    ends[0].c.peer_process = child;
    for (double until = seconds_now() + PATIENCE; !fs_load_sc(&ends[0].c.ring.rx->fin); usleep(1000))
        check(seconds_now() < until, "the peer does not end its stream");
    fs_add_sc(&fs_own(&ends[0].c)->holders, (uint32_t)-1); /* (the child has it no more, but for that it was killed) */
    fs_store_sc(&patient, 1);
    begin_wait(&waiter, FS_SEND, &ends[0]);
    close(ends[1].number); /* this process has it no more */
    check(kill(child, SIGKILL) == 0, "kill: %m");
    int64_t got = end_wait(&waiter);
    check(got < 0 && got != -EAGAIN, "%" PRId64 " after the peer's death", got);
    check(waitpid(child, NULL, 0) == child, "waitpid: %m");
    fs_store_sc(&patient, 0);
    ends[1].number = open("/dev/null", O_RDONLY | O_CLOEXEC);
    fs_store_relaxed(&ends[1].c.fd, (uint32_t)ends[1].number);
    close_ends();
}

/* The peer acknowledges and dies before the sender sleeps: who finds credits has not looked whether the peer is there. */
static void die_behind_credits(void) {
    static char bytes[1 << 20];
    struct fs_call call;
    char into[CHUNK];
    open_ends();
    move_ends();
    struct fs_connection *c = &ends[0].c;
    check(begin_call(&ends[0], &call), "a call begins");
    while (fs_try_send(c, bytes, sizeof bytes, MSG_NOSIGNAL) > 0) {}
    while (c->unacknowledged_sends % 4) fs_try_send(c, bytes, sizeof bytes, MSG_NOSIGNAL); /* (each 4th looks) */
    check(fs_sleep(c, FS_SEND, fs_now() + 1000000, NULL) == 0, "it is full");
    for (int i = 0; i < 8; i++) check(fs_try_recv(&ends[1].c, into, sizeof into, 0, FS_NOT_FINAL) > 0, "receiving");
    uint32_t told = fs_load_sc(&c->watch.told);
    fs_tcp_stream.reset(ends[1].number);
    await_told(c, told);
    check(fs_sleep(c, FS_SEND, fs_now() + 1000000000, NULL) == 1, "there are credits");
    int64_t got = fs_try_send(c, bytes, sizeof bytes, MSG_NOSIGNAL);
    if (got > 0) got = fs_try_send(c, bytes, sizeof bytes, MSG_NOSIGNAL);
    if (got == -EAGAIN) check(fs_sleep(c, FS_SEND, fs_now() + 2000000000, NULL) == 1, "a sender sleeps beside a dead peer");
    check(fs_peer_is_gone(c), "a sender goes on in the kernel, to a dead peer");
    end_call(&ends[0], &call);
    close_ends();
}

/* Bytes that a program writes past its library wake who sleeps, and end the connection. */
static void write_past(void) {
    struct waiter waiter;
    open_ends();
    move_ends();
    begin_wait(&waiter, FS_RECEIVE, &ends[1]);
    check(send(ends[0].number, "past", 4, 0) == 4, "sending: %m");
    check(end_wait(&waiter) == FS_VIOLATED, "nobody says so");
    fs_conn_reset(&ends[1].c);
    close_ends();
}

/* Processes that are watched cost a descriptor each, and no more after many forks. */
static void fork_often(void) {
    struct fs_call call;
    int before = 0;
    open_ends();
    move_ends();
    check(begin_call(&ends[1], &call), "a call begins");
    for (int i = 0; i < 10; i++) {
        char byte;
        while (fs_try_recv(&ends[1].c, &byte, 1, 0, FS_FINAL) != -EAGAIN) {}
        check(fs_sleep(&ends[1].c, FS_RECEIVE, fs_now() + 1000000, NULL) == 0, "it is empty");
        check(fs_watch_process(&ends[1].c.watch, getppid()) == FS_PROCESS_LIVES, "it is not watched");
        if (!i) before = open_descriptors();
        fs_control_thread_stop();
        fs_control_thread_after_fork();
        check(fs_control_thread_restart() == 0, "no thread");
    }
    check(open_descriptors() <= before, "%d descriptors, %d before", open_descriptors(), before);
    end_call(&ends[1], &call);
    close_ends();
}

/* A fork makes a call for each futex on which a thread sleeps, and none for a connection that is only watched. */
static void fork_beside_idle(void) {
    struct waiter waiter;
    struct fs_call calls[2];
    open_ends();
    move_ends();
    for (int i = 0; i < 2; i++) {
        check(begin_call(&ends[i], &calls[i]), "a call begins");
        check(fs_sleep(&ends[i].c, FS_RECEIVE, fs_now() + 1000000, NULL) == 0, "it is empty");
        check(fs_is_watched(&ends[i].c.watch, FS_HANGUP_EVENTS), "it is not watched");
        end_call(&ends[i], &calls[i]);
    }
    for (int sleeps = 0; sleeps < 2; sleeps++) {
        if (sleeps) begin_wait(&waiter, FS_RECEIVE, &ends[1]);
        uint32_t before = fs_load_sc(&wakeups), told = fs_load_sc(&ends[0].c.watch.told);
        fs_control_thread_stop();
        uint32_t made = fs_load_sc(&wakeups) - before;
        fs_control_thread_after_fork();
        check(made == (uint32_t)sleeps, "%u wakeups for %d sleepers", made, sleeps);
        check(sleeps || fs_load_sc(&ends[0].c.watch.told) == told + 1, "who sleeps next is not told to look");
        check(fs_control_thread_restart() == 0, "no thread");
    }
    check(fs_try_send(&ends[0].c, "x", 1, MSG_NOSIGNAL) == 1, "sending");
    check(end_wait(&waiter) == 1, "receiving");
    close_ends();
}

int main(int count, char **arguments) {
    struct rounds rounds = begin_rounds(count, arguments);
    uint64_t random;
    become_front_end();
    fs_spin_ns = 0;
    fs_system.futex = sleep_patiently;
    fs_system.pthread_create = make_thread;
    fs_system.epoll_ctl = control_epoll;
    fs_system.recv = look_and_count;
    fs_atfork_install(count_child);
    alarm(120);
    while (next_round(&rounds, &random)) {
        tell_receivers();
        fs_store_sc(&patient, 1);
        tell_of_death(FS_RECEIVE);
        tell_of_death(FS_SEND);
        sleep_often();
        fs_store_sc(&patient, 0);
        change_number();
        lose_watcher();
        find_next_watcher();
        kill_behind_half_close();
        move_sleeper_away();
        die_behind_credits();
        write_past();
        fork_often();
        fork_beside_idle();
        fs_store_sc(&no_room, 1); /* from here on sleepers look by themselves */
        tell_receivers();
        tell_of_death(FS_RECEIVE);
        tell_of_death(FS_SEND);
        fs_store_sc(&no_room, 0);
        fs_store_sc(&no_thread, 1);
        fs_control_thread_stop();
        fs_control_thread_after_fork();
        open_ends();
        check(fs_control_thread_restart() == FS_NO_THREAD, "there is a thread");
        close_ends();
        fs_store_sc(&no_thread, 0);
        check(fs_control_thread_restart() == 0, "no thread");
    }
    printf("%u rounds\n", rounds.done);
    return 0;
}
