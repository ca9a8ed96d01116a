/* Holders of a connection that are killed at a system call with a lock held: the next holder mends what concerns the
 * kernel connection, and the peer goes on. `killed [seconds]`; one look at each place is enough.
 *
 * Both ends are in this process, and a forked child holds one of them too. It dies in the function that stands
 * in the core's table of calls, and stays a zombie while the next holder works. */
#include "pair.h"

#include "events/futex.h"

#include <signal.h>

static fs_word32 *dies_at; /* waking who sleeps on this word kills this process */

static int wake_or_die(void *word, int what, uint32_t value, const struct timespec *time) {
    if (what == FUTEX_WAKE && word == dies_at) kill(getpid(), SIGKILL);
    return (int)syscall(SYS_futex, word, what, value, time, NULL, 0);
}

static int dies_behind_read; /* reading from a socket kills this process, once it has bytes */

static ssize_t receive_or_die(int fd, void *into, size_t room, int flags) {
    ssize_t got = recv(fd, into, room, flags);
    if (dies_behind_read && got > 0 && !(flags & MSG_PEEK)) kill(getpid(), SIGKILL);
    return got;
}

/* A forked child of this process holds both ends too, and dies in `act`. */
static void be_killed(void (*act)(void)) {
    siginfo_t info;
    pid_t child = fork_holder();
    if (child == 0) {
        for (int s = 0; s < 2; s++) fs_conn_inherit(&ends[s].c);
        act();
        _exit(1);
    }
    check(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT) == 0, "waitid: %m");
    check(info.si_code == CLD_KILLED && info.si_status == SIGKILL, "the child was not killed: %d", info.si_status);
}

static void reap(void) { check(waitpid(-1, NULL, 0) > 0, "waitpid: %m"); }

/* Half of what waits, by a child that dies as it wakes the sender. */
static void receive_half(void) {
    char bytes[WINDOW / 2 * CHUNK];
    dies_at = &ends[0].c.ring.tx->credit_futex;
    fs_try_recv(&ends[1].c, bytes, sizeof bytes, 0, 1);
}

static void kill_who_answers(void) {
    char bytes[CHUNK] = {0};
    open_ends();
    move_ends();
    while (fs_try_send(&ends[0].c, bytes, sizeof bytes, MSG_NOSIGNAL) > 0) {}
    fs_arm_sender(&ends[0].c.ring, &fs_own(&ends[0].c)->sender, FS_WAITS); /* another thread of this end sleeps on the futex */
    be_killed(receive_half);
    check(!fs_peer_credit_wait(&ends[1].c.ring), "the child has not answered");
    uint32_t before = fs_load_sc(&ends[0].c.ring.tx->credit_futex);
    check(fs_try_recv(&ends[1].c, bytes, 1, MSG_PEEK, 1) == 1, "what the child had not read");
    check(fs_load_sc(&ends[0].c.ring.tx->credit_futex) != before, "nobody wakes the sender");
    reap();
    close_ends();
}

static void read_two(void) {
    char bytes[2];
    dies_behind_read = 1;
    fs_try_recv(&ends[1].c, bytes, sizeof bytes, 0, 1);
}

/* A child dies between its read from the kernel and the count: what it read is lost with it, and nothing else. */
static void kill_who_reads(void) {
    char bytes[8];
    open_ends();
    check(send(ends[0].number, "abcd", 4, MSG_NOSIGNAL) == 4, "sending: %m");
    attach_ends();
    check(fs_try_send(&ends[0].c, "ef", 2, MSG_NOSIGNAL) == 2 && fs_sends_on_ring(&ends[0].c), "sending");
    be_killed(read_two);
    int64_t got = fs_try_recv(&ends[1].c, bytes, sizeof bytes, 0, 1);
    check(got == 4 && !memcmp(bytes, "cdef", 4), "%" PRId64 ", %s", got,
          ends[1].c.ring.violation ? ends[1].c.ring.violation : "no violation");
    reap();
    close_ends();
}

/* A thread that sleeps on a futex of the second end, and looks at nothing by itself. */
struct sleeper {
    pthread_t thread;
    fs_word32 *futex;
    uint32_t heard;
    fs_word32 id, woken;
};

static void *sleep_on_futex(void *argument) {
    struct sleeper *me = argument;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL); /* (one that comes for the process, and is ignored, would have it look again) */
    fs_store_sc(&me->id, (uint32_t)syscall(SYS_gettid));
    fs_store_sc(&me->woken, (uint32_t)fs_futex_wait(me->futex, me->heard, (int64_t)(PATIENCE * 1e9)));
    return NULL;
}

static void put_to_sleep(struct sleeper *s) {
    *s = (struct sleeper){.futex = &ends[1].c.ring.rx->futex};
    s->heard = fs_futex_load(s->futex);
    check(!fs_arm_receiver(&ends[1].c.ring, FS_ASLEEP), "there is something to receive");
    check(pthread_create(&s->thread, NULL, sleep_on_futex, s) == 0, "no thread");
    while (!fs_load_sc(&s->id)) usleep(100);
    await_sleep((pid_t)fs_load_sc(&s->id));
}

static void post_and_die(void) {
    dies_at = &ends[0].c.ring.tx->futex;
    fs_try_send(&ends[0].c, "x", 1, MSG_NOSIGNAL);
}

/* The peer's thread sleeps, and nobody says so any more. Of the dead one's side the other holder only sleeps too, for the other
 * direction: it looks now and then, and mends what was left. */
static void kill_who_wakes(void) {
    struct sleeper sleeper;
    open_ends();
    move_ends();
    put_to_sleep(&sleeper);
    be_killed(post_and_die);
    check(!(fs_load_sc(&ends[1].c.ring.rx->doorbell) & FS_ASLEEP), "the child has not found the sleeper");
    check(!fs_load_sc(&sleeper.woken), "the child has woken the sleeper");
    int64_t deadline = fs_now() + (int64_t)(PATIENCE * 1e9);
    while (!fs_load_sc(&sleeper.woken)) check(fs_sleep(&ends[0].c, FS_RECEIVE, deadline, NULL) != 0, "nobody wakes the sleeper");
    pthread_join(sleeper.thread, NULL);
    check(fs_load_own32(&sleeper.woken) == 1, "the sleeper was never woken");
    reap();
    close_ends();
}

/* Of two processes that sleep on one futex one is killed: the other one is woken all the same. */
static void kill_who_sleeps(void) {
    struct sleeper sleeper;
    open_ends();
    move_ends();
    pid_t child = fork_holder();
    if (child == 0) {
        for (int s = 0; s < 2; s++) fs_conn_inherit(&ends[s].c);
        while (fs_sleep(&ends[1].c, FS_RECEIVE, -1, NULL) >= 0) {}
        _exit(1);
    }
    double until = seconds_now() + PATIENCE;
    while (!(fs_load_sc(&ends[1].c.ring.rx->doorbell) & FS_ASLEEP)) check(seconds_now() < until, "the child does not sleep");
    await_sleep(child);
    put_to_sleep(&sleeper);
    check(kill(child, SIGKILL) == 0, "kill: %m");
    reap();
    check(fs_try_send(&ends[0].c, "x", 1, MSG_NOSIGNAL) == 1, "sending");
    pthread_join(sleeper.thread, NULL);
    check(fs_load_own32(&sleeper.woken) == 1, "the sleeper was never woken");
    close_ends();
}

int main(int count, char **arguments) {
    struct rounds rounds = begin_rounds(count, arguments);
    uint64_t random;
    fs_system.futex = wake_or_die;
    become_front_end();
    fs_atfork_install(count_child);
    alarm(60);
    fs_system.recv = receive_or_die;
    while (next_round(&rounds, &random)) {
        kill_who_answers();
        kill_who_reads();
        kill_who_wakes();
        kill_who_sleeps();
    }
    printf("%u rounds, %u killed with a lock held, %u asleep\n", rounds.done,
           3 * rounds.done, rounds.done);
    return 0;
}
