/* What other processes do to a connection: holders of an end that are killed or stopped, a peer in a process that is killed, forks
 * meanwhile. How the scenarios run, and fail by place: runs.h. */
#include "runs.h"

#include <sys/ioctl.h>

#include "conn/peer_status.h"
#include "events/liveness_watch.h"

static pid_t other;

static int count_child(int by) {
    for (int s = 0; s < 2; s++)
        if (fs_load_sc(&ends[s].open)) fs_add_sc(&fs_own(&ends[s].c)->holders, (uint32_t)by);
    return 2;
}

/* Another process that holds both ends, does `act` and then nothing until it is killed. */
static void fork_other(void (*act)(void)) {
    static int watched;
    int was = armed;
    armed = 0;
    if (!watched) check(fs_atfork_install(count_child) == 0, "forks are not watched");
    watched = 1;
    armed = was;
    other = fork_holder();
    if (other) return;
    armed = 0;
    for (int s = 0; s < 2; s++) fs_conn_inherit(&ends[s].c);
    if (act) act();
    for (;;) pause();
}

/* It stays a zombie until it is reaped. */
static void kill_other(void) {
    siginfo_t info;
    kill(other, SIGKILL);
    check(waitid(P_PID, (id_t)other, &info, WEXITED | WNOWAIT) == 0, "waitid: %m");
}

static void reap_other(void) { check(waitpid(other, NULL, 0) == other, "waitpid: %m"); }

/* A wait for what does not come: so that it is watched, and there are news (fd_change.h). */
static void look_once(int s) {
    struct fs_call call;
    if (!begin_call(&ends[s], &call)) return;
    wait_for(&ends[s], FS_RECEIVE, fs_now() + 5000000, 0);
    end_call(&ends[s], &call);
}

/* ---- scenarios ------------------------------------------------------------------------------------------------- */

/* Who is killed is struck out: the end that is left says goodbye for both. */
static void run_killed_holder(void) {
    step("another holder");
    if (open_two(1)) {
        look_once(1);
        put(0);
        get(1);
        fork_other(NULL);
        put(0);
        get(1);
        put(1);
        get(0);
        kill_other();
        step("another holder was killed");
        close_end(&ends[0], 1);
        read_end(1, 0);
        reap_other();
    }
    close_two();
}

/* As it is killed in fs_recv_kernel. */
static void read_and_keep_the_turn(void) {
    char byte;
    fs_lock_recv_within(&ends[1].c, -1);
    recv(ends[1].number, &byte, 1, 0);
}

/* Who receives next finds out from the kernel how far the dead one has read, or the connection ends. */
static void run_killed_reader(void) {
    static const struct fs_flow_options flow = {4, 0, 0};
    int waiting = 1;
    step("a holder was killed as it read from the kernel");
    if (open_two(0)) {
        put(0);
        for (int s = 0; !lost && s < 2; s++) goes_on(attach_end(&ends[s], &flow));
        if (!lost) {
            double until = seconds_now() + PATIENCE;
            fork_other(read_and_keep_the_turn);
            while (waiting) {
                if (seconds_now() > until) violate("it does not read");
                usleep(200);
                ioctl(ends[1].number, FIONREAD, &waiting);
            }
            kill_other();
            put(0);
            get(1);
            reap_other();
        }
    }
    close_two();
}

static void end_the_stream(void) {
    fs_unregister_holder(fs_own(&ends[0].c));
    close(ends[0].number);
    while (fs_conn_shutdown(&ends[1].c, 0, 1) == -EINTR) {}
    shutdown(ends[1].number, SHUT_WR);
}

static void *send_until_told(void *nothing) {
    struct fs_call call;
    int64_t sent = 1;
    is_program = 1;
    for (double until = seconds_now() + PATIENCE; sent > 0 || sent == -EAGAIN || sent == -EINTR || sent == -ENOBUFS || sent == -ENOMEM;) {
        if (!begin_call(&ends[0], &call)) break;
        sent = fs_try_send(&ends[0].c, (const char *)pattern, 1024, MSG_NOSIGNAL);
        if (sent == -EAGAIN) wait_for(&ends[0], FS_SEND, -1, 0);
        end_call(&ends[0], &call);
        if (seconds_now() > until) violate("nobody tells the sender");
    }
    return nothing;
}

/* A sender that sleeps behind the end of the peer's stream hears of the death of the peer's process. */
static void run_killed_peer(void) {
    pthread_t thread;
    step("a peer in another process");
    if (open_two(1)) {
        for (int s = 0; s < 2; s++) {
            put(s);
            get(!s);
        }
        fork_other(end_the_stream);
        ends[0].c.peer_process = other;
        close_end(&ends[1], 1);
        read_end(0, 0);
        check(pthread_create(&thread, NULL, send_until_told, NULL) == 0, "no thread");
        usleep(20000);
        step("a peer in another process was killed");
        kill_other();
        pthread_join(thread, NULL);
        reap_other();
    }
    close_two();
}

static fs_word32 may_end;

static void *call_for_long(void *nothing) {
    struct fs_call call;
    is_program = 1;
    if (!begin_call(&ends[0], &call)) return nothing;
    fs_store_sc(&may_end, 1);
    while (fs_load_sc(&may_end) != 2) usleep(200);
    end_call(&ends[0], &call);
    return nothing;
}

static void keep_the_turn(void) { fs_lock_send_within(&ends[0].c, -1); }

/* The number is closed beside a call of ours and a lock of a process that does not go on. */
static void run_stopped_holder(void) {
    pthread_t thread;
    step("another holder has the lock");
    if (open_two(1)) {
        double until = seconds_now() + PATIENCE;
        fork_other(keep_the_turn);
        while (!fs_load_sc(&fs_own(&ends[0].c)->sender.lock.word)) {
            if (seconds_now() > until) violate("it does not take the lock");
            usleep(200);
        }
        fs_store_sc(&may_end, 0);
        check(pthread_create(&thread, NULL, call_for_long, NULL) == 0, "no thread");
        while (!fs_load_sc(&may_end)) usleep(200);
        step("a number is closed beside another holder's lock");
        close_end(&ends[0], 1);
        kill_other();
        fs_store_sc(&may_end, 2);
        pthread_join(thread, NULL);
        reap_other();
    }
    close_two();
}

/* A connection whose earlier object has not left yet is watched anew. */
static void run_watched_twice(void) {
    static fs_word32 futex, sleepers;
    const struct fs_sleepers nobody = {&futex, &sleepers};
    static struct fs_tcp_watch watch;
    step("a number that is watched twice");
    if (open_two(1)) {
        put(1);
        get(0);
        look_once(0);
        watch = (struct fs_tcp_watch){0};
        double until = seconds_now() + PATIENCE; /* (an epoll that takes no more is left alone for a second) */
        while (!fs_watch_add(&watch, fs_fd(&ends[0].c), FS_HANGUP_EVENTS, nobody, nobody, &ends[0].c.slot) && strict) {
            if (seconds_now() > until) violate("it is not watched");
            usleep(1000);
        }
        fs_watch_remove(&watch);
    }
    close_two();
}

int main(void) {
    static const struct scenario all[] = {
        {"a killed holder", run_killed_holder},
        {"a killed reader", run_killed_reader},
        {"a killed peer", run_killed_peer},
        {"a stopped holder", run_stopped_holder},
        {"watched twice", run_watched_twice},
    };
    return run_all(all, sizeof all / sizeof *all);
}
