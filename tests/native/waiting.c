/* What waits: event sets and their offers, threads that the control thread watches for, calls in the kernel's own recv and send,
 * forks, looks at the peer, and what is asked in single calls. How the scenarios run, and fail by place: runs.h. */
#include "runs.h"

#include <netinet/tcp.h>

#include "control/fd_reaper.h"
#include "control/introspection.h"
#include "control/trust.h"
#include "include/fastsock_loop.h"
#include "conn/wake.h"
#include "conn/peer_status.h"
#include "conn/wait.h"
#include "events/spin_budget.h"
#include "transport/stream.h"

static void sleep_in_loop(void) {
    struct pollfd waits = {.fd = fs_loop_fd(loop), .events = POLLIN};
    struct fs_member *m = ends[1].member;
    fs_loop_wake(loop);
    fs_reoffer_pages(loop->set);
    usleep(3000); /* the offer is taken */
    fs_loop_want(m, FS_IN, 0);
    fs_loop_activate(m);
    int there = fs_loop_arm(loop) || fs_loop_sleep(loop);
    put(0);
    if (!lost && !there && poll(&waits, 1, (int)(PATIENCE * 1000)) != 1) violate("the loop sleeps on");
    fs_loop_awake(loop);
    get(1);
}

static void run_loop(void) {
    int failed;
    step("a loop");
    loop = fs_loop_new(&failed);
    if (!loop) {
        goes_on(failed);
        return;
    }
    if (open_two(1)) {
        put(0);
        get(1);
        if (!lost) fs_drive_by_loop(&ends[1].c);
        step("told by the control thread, or by the page");
        for (int i = 0; !lost && i < 3; i++) sleep_in_loop();
        step("its eventfd was closed by the program");
        if (!lost) close((int)fs_load_relaxed(&loop->set->fd));
        if (!lost) sleep_in_loop();
        fs_wake_owner(loop->set);
        fs_event_set_drain(loop->set);
    }
    step("the end of a loop");
    close_two();
    fs_loop_end(loop);
    loop = NULL;
}

static void *get_on_thread(void *nothing) {
    is_program = 1;
    get(1);
    return nothing;
}

static void run_sleepers(void) {
    pthread_t thread;
    step("a thread sleeps");
    if (open_two(1)) {
        for (int i = 0; !lost && i < 2; i++) {
            check(pthread_create(&thread, NULL, get_on_thread, NULL) == 0, "no thread");
            usleep(12000);
            put(0);
            pthread_join(thread, NULL);
        }
        step("a look waits for more");
        if (!lost && !fs_wait_for_more(&ends[1].c)) violate("more may come");
        step("a sender sleeps");
        struct fs_call call;
        int64_t sent = 1;
        while (!lost && sent > 0 && begin_call(&ends[0], &call)) {
            sent = fs_try_send(&ends[0].c, (const char *)pattern, 1024, MSG_NOSIGNAL);
            if (sent == -EAGAIN) wait_for(&ends[0], FS_SEND, fs_now() + 20000000, 0);
            end_call(&ends[0], &call);
        }
        if (strict && fs_wait_for_more(&ends[1].c)) violate("no more comes while the sender has no room");
        step("the thread ends");
        fs_control_thread_stop();
        fs_control_thread_restart();
    }
    close_two();
}

static void run_blocking(void) {
    char byte = 0;
    int polled = 0;
    step("blocking");
    if (open_two(0)) {
        struct fs_call call;
        for (int i = 0; i < 2 && begin_call(&ends[1], &call); i++) {
            enter(&ends[0]);
            int64_t sent = fs_send_asleep(&ends[0].c, &(struct iovec){"x", 1}, 0, 1, MSG_NOSIGNAL);
            leave();
            enter(&ends[1]);
            int64_t got = i ? fs_receive_asleep(&ends[1].c, &byte, 1, MSG_DONTWAIT, 0)
                            : fs_receive_polling(&ends[1].c, &byte, 1, 0, &polled);
            leave();
            end_call(&ends[1], &call);
            if (strict && (sent != 1 || (got != 1 && polled))) violate("bytes are lost");
        }
    }
    close_two();
}

static fs_word32 children;
static int count_child(int by) {
    fs_add_sc(&children, (uint32_t)by);
    return 1;
}

/* A fork that comes to nothing sets errno; but so may anybody's handler. */
static void set_errno(void) { errno = EAGAIN; }

static void run_fork(void) {
    int status;
    step("a fork");
    fs_store_sc(&children, 0);
    check(pthread_atfork(NULL, set_errno, NULL) == 0, "no handler");
    if (!goes_on(-fs_reaper_begin()) || !goes_on(-fs_atfork_install(count_child))) return;
    fs_expect_fork(1);
    pid_t child = fork();
    if (child == 0) end_at_once(0);
    fs_expect_fork(0);
    check(child > 0 && waitpid(child, &status, 0) == child, "fork: %m");
    if (fs_load_sc(&children) != 1 && strict) violate("the child is not counted");
}

/* Nothing that `lies` in the kernel hides the end of the stream, which may be `error`. */
static void end_behind(void (*lies)(void), int64_t error) {
    if (open_two(1)) {
        for (int s = 0; s < 2; s++) {
            put(s);
            get(!s);
        }
        if (!lost) lies();
        shutdown(ends[1].number, SHUT_WR); /* as it is for an end that was killed */
        read_end(0, error);
    }
    close_two();
}

static void send_stray(void) { check(send(ends[1].number, "junk", 4, MSG_NOSIGNAL) == 4, "send: %m"); }

/* What a peer sends that takes this end for gone is its program's. */
static void send_to_gone(void) {
    fs_or_sc(&ends[0].c.ring.rx->doorbell, FS_GONE);
    send_stray();
}

/* The kernel's part of the stream ends with a byte that the program has read itself. */
static void read_past(void) {
    static const struct fs_flow_options flow = {4, 0, 0};
    char byte;
    if (open_two(0)) {
        put(0);
        for (int s = 0; !lost && s < 2; s++) goes_on(attach_end(&ends[s], &flow));
        put(0);
        if (!lost) {
            check(recv(ends[1].number, &byte, 1, 0) == 1, "recv: %m");
            read_end(1, FS_VIOLATED);
            if (strict && !ends[1].c.ring.violation) violate("nobody notices");
        }
    }
    close_two();
}

static void run_stray(void) {
    step("bytes that were written past the core");
    end_behind(send_stray, FS_VIOLATED);
    step("bytes of a peer that takes this end for gone");
    end_behind(send_to_gone, 0);
    step("a byte that was read past the core");
    read_past();
}

/* A loop has read a byte of the kernel's that comes behind the ring's: a receive ends with the ring's. */
static void run_late(void) {
    char bytes[16];
    uint64_t behind = 0;
    struct fs_call call;
    step("a loop's peer goes back");
    if (open_two(1)) {
        for (int s = 0; s < 2; s++) {
            put(s);
            get(!s);
        }
        fs_drive_by_loop(&ends[1].c);
        put(0);
        enum fs_fallback_result outcome = leave_end(&ends[0], 0);
        if (strict && outcome != FS_FELL_BACK) violate("it stays");
        for (int i = 0; i < 3 && !lost && outcome == FS_FELL_BACK; i++) put(0);
        if (!lost && outcome == FS_FELL_BACK && begin_call(&ends[1], &call)) {
            struct pollfd comes = {.fd = ends[1].number, .events = POLLIN};
            int64_t mine = 0, got = 0;
            for (int i = 0; i < 100 && !behind && mine >= 0 && poll(&comes, 1, (int)(PATIENCE * 1000)) == 1; i++)
                if (recv(ends[1].number, bytes, 1, MSG_DONTWAIT) == 1) mine = fs_account_read(&ends[1].c, 1, &behind);
            got = fs_try_recv(&ends[1].c, bytes, sizeof bytes, 0, 0);
            end_call(&ends[1], &call);
            if (strict && (mine || behind != 1 || got != 1)) violate("what comes behind it is received in front");
        }
    }
    close_two();
}

/* Behind the end of a peer that left bytes unread a send raises the signal, which this program ignores. */
static void run_broken_pipe(void) {
    struct fs_call call;
    int64_t sent = 0;
    step("sends behind the peer's end");
    if (open_two(1)) {
        for (int s = 0; s < 2; s++) {
            put(s);
            get(!s);
        }
        put(0); /* it never reads it */
        close_end(&ends[1], 1);
        for (double until = seconds_now() + PATIENCE; !lost && sent != -EPIPE && begin_call(&ends[0], &call);) {
            sent = fs_try_send(&ends[0].c, "x", 1, 0);
            end_call(&ends[0], &call);
            if (seconds_now() > until) violate("sends go on");
        }
    }
    close_two();
}

static int forgotten; /* a connection of which the kernel has forgotten the other end */

static void forget_peer(void) {
    int fds[2], second = 1;
    connect_pair(fds);
    check(setsockopt(fds[1], IPPROTO_TCP, TCP_LINGER2, &second, sizeof second) == 0, "TCP_LINGER2: %m");
    close(fds[1]);
    forgotten = fds[0];
    usleep(1500000);
}

static void run_peer(void) {
    step("looks at the peer");
    if (open_two(0)) {
        enum fs_peer_state stands = fs_tcp_stream.peer_state(fs_fd(&ends[0].c));
        if (strict && stands == FS_PEER_CLOSED) violate("it lives");
        close_end(&ends[1], 1);
        if (strict && fs_wait_for_more(&ends[0].c)) violate("no more comes behind the end");
        fs_tcp_stream.reset(fs_fd(&ends[0].c));
        fs_tcp_stream.peer_state(fs_fd(&ends[0].c));
        if (stands == FS_PEER_CLOSED) violate("it lived");
    }
    close_two();
    step("a peer that the kernel has forgotten");
    if (fs_tcp_stream.peer_state(forgotten) == FS_PEER_OPEN) violate("it has ended");
}

/* What the kernel tells of the two ends of a unix stream. It may say that it does not know; it says nothing wrong. */
static void run_unix(void) {
    const struct fs_stream_kind *kind = &fs_unix_stream;
    struct fs_stream_identity ends_of[2];
    struct fs_peer_socket peer;
    uint64_t count;
    char path[FS_PATH_TEXT];
    int fds[2], known[2], was = armed;
    step("the ends of a unix stream");
    armed = 0;
    check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0, "socketpair: %m");
    armed = was;
    for (int s = 0; s < 2; s++) known[s] = kind->identify(fds[s], &ends_of[s]);
    if (strict && !(known[0] > 0 && known[1] > 0)) violate("the ends are unknown");
    if (known[0] > 0 && known[1] > 0) {
        if (memcmp(&ends_of[0].here, &ends_of[1].there, sizeof ends_of[0].here)) violate("the ends have other names");
        int is_it = kind->is_other_end(&ends_of[0], fds[1]);
        if (kind->is_other_end(&ends_of[0], fds[0]) || (strict && !is_it)) violate("another end");
        if (kind->find_peer(&ends_of[0], -1, &peer) ? peer.cookie != fs_cookie(fds[1]) && strict : strict) violate("another socket");
    }
    if (kind->find_path(fds[0], 0, path) || kind->find_path(fds[0], 1, path)) violate("an end of a pair has a path");
    int taken = kind->count_taken(fds[0], &count), sent = kind->count_sent(fds[0], &count);
    if (strict && !(taken && sent)) violate("nothing lies there");
    enum fs_liveness lives = kind->liveness(fds[0], 0);
    if (strict && lives != FS_ALIVE) violate("it lives");
    kind->reset(fds[1]);
    lives = kind->liveness(fds[0], 0);
    if (strict && lives != FS_OVER) violate("it has ended");
    enum fs_peer_state stands = kind->peer_state(fds[0]);
    if (stands == FS_PEER_CLOSED) violate("the socket is there");
    close(fds[0]), close(fds[1]);
}

static void run_single(void) {
    unsigned char address[16];
    int port, pair[2], was = armed;
    struct fs_requester nobody = {.address = {AF_UNIX, ""}, .size = sizeof(sa_family_t) + 9};
    step("single calls");
    fs_count_processors();
    fs_set_trust(&(struct fs_trust){.self = 1});
    memcpy(nobody.address.sun_path + 1, "not here", 8);
    if (open_two(0)) {
        int fd = fs_fd(&ends[0].c);
        for (int remote = 0; remote < 2; remote++)
            if (fs_endpoint_address(fd, remote, address, &port) != 4 && strict) violate("an address is unknown");
        struct fs_wait_limit patience = fs_wait_limit_of(1);
        if (!fs_may_wait(&ends[0].c, FS_RECEIVE, &patience) || fs_wait_deadline(&patience) >= 0) violate("a time that nobody set");
        if (fs_option_ns(fd, SO_RCVTIMEO) != -1) violate("a timeout that nobody set");
        if (fs_wait_setting(&ends[0].c, FS_MODE) && strict) violate("a flag that nobody set");
        if (fs_control_is_open(1) && strict) violate("nobody listens there");
        fs_send_reply(fd, &nobody, "", 1);
        enter(&ends[0]);
        struct fs_fd_change *joined = fs_fd_change_subscribe();
        fs_fd_change_notify();
        if (joined) fs_fd_change_unsubscribe(joined);
        else if (strict) violate("no news");
        leave();
    }
    close_two();
    step("a set in a program's epoll");
    armed = 0;
    int failed, epoll = epoll_create1(EPOLL_CLOEXEC);
    check(epoll >= 0, "epoll_create1: %m");
    armed = was;
    struct fs_event_set *joined = fs_event_set_new_in(epoll, 7, &failed);
    if (joined) fs_event_set_end(joined);
    else goes_on(failed);
    close(epoll);
    step("a message of a stranger");
    armed = 0;
    check(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) == 0 && write(pair[1], "", 1) == 1, "socketpair: %m");
    armed = was;
    /* (Its caller asks for room before, which starts a thread in the place of one that could not be made.) */
    int dropped;
    double until = seconds_now() + PATIENCE;
    do dropped = fs_reaper_has_room() && fs_reap_message(pair[0]);
    while (!dropped && strict && seconds_now() < until);
    if (!dropped && strict) violate("it is not dropped");
    close(pair[0]);
    close(pair[1]);
    step("a seeker that is a stranger");
    armed = 0;
    check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0, "socketpair: %m");
    armed = was;
    fs_reap_seeker(pair[0], 0);
    close(pair[1]);
}

int main(void) {
    forget_peer();
    static const struct scenario all[] = {
        {"a loop", run_loop}, {"sleepers", run_sleepers}, {"blocking", run_blocking},
        {"a fork", run_fork}, {"stray bytes", run_stray}, {"late bytes of a loop", run_late}, {"looks at the peer", run_peer},
        {"the ends of a unix stream", run_unix},
        {"a broken pipe", run_broken_pipe}, {"single calls", run_single},
    };
    return run_all(all, sizeof all / sizeof *all);
}
