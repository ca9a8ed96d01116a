/* An echo server and its client, of fastsock.h and the C library alone. It is C and C++ at once.
 *
 *     public serve CONNECTIONS     prints its port, and serves so many connections, all in one thread, by epoll
 *     public call PORT ROUNDS      sends messages until it is on the ring, and as many more; goes back to kernel TCP, and sends as many
 * again.
 *                                  It compares what comes back
 *
 * Each end prints how many bytes it has received, and their path. A timer interrupts both programs all the time: its handler calls what a
 * signal handler may call, and what sleeps goes on. */
#include <fastsock.h>

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

enum { OPERATIONS = 8, MESSAGE = 600, ROOM = 4096, EVENTS = 16, ENDS = 64 };

/* One end of a connection. */
struct end {
    struct fs_connection *c;
    int fd;
    long bytes; /* received */
    int on_ring, moved; /* both directions are there after the last call; and have been */
    char waiting[ROOM]; /* received, and not sent back yet */
    size_t length, sent;
};

static struct end *ends[ENDS]; /* NULL: free */
static struct fs_connection *volatile interrupted_one; /* that the handler looks at */
static volatile long interruptions;

static void check(int good, const char *what) {
    if (good) return;
    fprintf(stderr, "%s failed\n", what);
    exit(1);
}

/* ---- the front end ----------------------------------------------------------------------------------------------- */

static void each(void (*body)(struct fs_connection *c, void *with), void *with) {
    for (int i = 0; i < ENDS; i++)
        if (ends[i]) body(ends[i]->c, with);
}

static void begin(void) {
    struct fs_front_end front;
    struct fs_upgrade_config config;
    struct fs_limits everything;
    struct fs_trust trust;
    memset(&front, 0, sizeof front); /* no host lock: there is one thread */
    front.each = each;
    front.polls = 1;
    memset(&config, 0, sizeof config);
    config.window = 64;
    config.chunk = 4096;
    config.flow.ack_threshold = 4;
    config.flow.combine_limit = 512;
    config.flow.combine_when_full = 1;
    config.memory_cap = 1 << 30;
    config.patience = INT64_C(60000000000);
    memset(&everything, 0, sizeof everything);
    memset(&trust, 0, sizeof trust);
    trust.self = 1;
    check(!fs_begin(&front), "fs_begin");
    fs_set_upgrade_config(&config);
    fs_set_limits(&everything);
    check(!fs_set_trust(&trust), "fs_set_trust");
    fs_set_spin(20000);
}

static struct end *open_end(int fd) {
    int place = 0;
    while (place < ENDS - 1 && ends[place]) place++;
    struct end *e = (struct end *)calloc(1, sizeof *e);
    check(e && !ends[place], "a place");
    e->fd = fd;
    e->c = fs_conn_init(aligned_alloc(64, fs_conn_size()));
    struct fs_early early;
    memset(&early, 0, sizeof early);
    fs_early_begin(&early, fd, OPERATIONS, NULL, 0);
    check(!fs_conn_begin(e->c, fd, 0, &early, 0), "fs_conn_begin");
    ends[place] = e;
    interrupted_one = e->c;
    return e;
}

/* Begins a call of the program that is one operation. */
static void enter(struct end *e, struct fs_call *call) {
    struct fs_step_result result;
    check(fs_call_enter(e->c, call), "fs_call_enter");
    if (!fs_operate(e->c)) return;
    fs_step(e->c, NULL, &result);
    check(result.what != FS_STEP_BROKEN && !result.failed && !result.no_thread, "fs_step");
}

/* Ends it. Frees the memory, and returns 1, once nobody has it. */
static int leave(struct end *e, struct fs_call *call) {
    e->on_ring = fs_is(e->c, FS_IS_SENDING_RING) && fs_is(e->c, FS_IS_RECEIVING_RING);
    e->moved |= e->on_ring;
    enum fs_exit_action after = fs_call_exit(e->c, call);
    if (after == FS_EXIT_NOTHING || !fs_after_exit(e->c, call, after)) return 0;
    for (int i = 0; i < ENDS; i++)
        if (ends[i] == e) ends[i] = NULL;
    free(e->c);
    return 1;
}

static void close_end(struct end *e, const char *who) {
    struct fs_call call;
    interrupted_one = NULL;
    check(fs_call_enter(e->c, &call), "fs_call_enter");
    const char *path = !e->moved                         ? fs_reason_text(fs_reason_of(e->c))
                       : fs_is(e->c, FS_IS_SENDING_RING) ? "on the ring"
                                                         : "on the ring, and back";
    printf("%s: %ld bytes, %s\n", who, e->bytes, path);
    fflush(stdout);
    fs_poller_close_number(fs_pollable_of(e->c), e->fd, 1);
    if (fs_close_last_fd(e->c, e->fd)) fs_finish(e->c);
    check(leave(e, &call), "the end");
    close(e->fd);
    free(e);
}

/* ---- a handler ----------------------------------------------------------------------------------------------------- */

static void interrupt(int number) {
    struct fs_connection *c = interrupted_one;
    struct fs_wait_limit limit = fs_wait_limit_of(1);
    int64_t now = fs_now();
    char *memory = (char *)fs_allocate(100);
    if (memory) memset(memory, number, 100);
    limit.rest = 1000;
    fs_wait_spent(&limit, fs_wait_deadline(&limit));
    int sound = memory && now > 0 && !fs_is_poller_data(1) && *fs_reason_name(FS_REASON_FEW) && *fs_reason_text(FS_REASON_FEW);
    if (c)
        sound = sound && fs_fd(c) >= 0 && fs_reason_of(c) < FS_REASONS &&
                (fs_is(c, FS_IS_ATTACHED) || fs_path_is_undecided(c) || fs_reason_of(c));
    fs_release(memory);
    if (!sound) _exit(2);
    interruptions++;
}

static void interrupt_often(void) {
    struct sigaction how;
    struct itimerval often;
    memset(&how, 0, sizeof how);
    how.sa_handler = interrupt; /* without SA_RESTART: whatever sleeps returns -EINTR */
    check(!sigaction(SIGALRM, &how, NULL), "sigaction");
    often.it_interval.tv_sec = often.it_value.tv_sec = 0;
    often.it_interval.tv_usec = often.it_value.tv_usec = 700;
    check(!setitimer(ITIMER_REAL, &often, NULL), "setitimer");
}

/* ---- the server ---------------------------------------------------------------------------------------------------- */

static void watch(struct fs_poller *p, int op, struct end *e, uint32_t events) {
    struct epoll_event event;
    memset(&event, 0, sizeof event);
    event.events = events;
    event.data.ptr = e;
    check(!fs_poller_ctl(p, op, e->fd, fs_pollable_of(e->c), &event), "fs_poller_ctl");
}

/* Returns what fs_try_recv or fs_try_send has: one operation of the program. */
static int64_t transfer(struct end *e, int what) {
    struct fs_call call;
    int64_t part;
    enter(e, &call);
    if (what == FS_SEND) part = fs_try_send(e->c, e->waiting + e->sent, e->length - e->sent, MSG_NOSIGNAL);
    else part = fs_try_recv(e->c, e->waiting, ROOM, 0, FS_FINAL);
    if (what == FS_SEND && part != (int64_t)(e->length - e->sent)) fs_poller_sent_part(fs_pollable_of(e->c));
    leave(e, &call);
    return part;
}

/* Sends back what has come. */
static void serve_end(struct fs_poller *p, struct end *e) {
    for (;;) {
        int what = e->sent < e->length ? FS_SEND : FS_RECEIVE;
        int64_t part = transfer(e, what);
        if (part == -EAGAIN) {
            watch(p, EPOLL_CTL_MOD, e, what == FS_SEND ? EPOLLOUT : EPOLLIN);
            return;
        }
        if (part <= 0) { /* its end, or an error of the connection */
            close_end(e, part ? strerror((int)-part) : "served");
            return;
        }
        if (what == FS_SEND) {
            e->sent += (size_t)part;
        } else {
            e->bytes += (long)part;
            e->length = (size_t)part;
            e->sent = 0;
        }
    }
}

static int serve(int connections) {
    struct sockaddr_in at;
    socklen_t size = sizeof at;
    struct epoll_event events[EVENTS];
    int failed, listener = socket(AF_INET, SOCK_STREAM, 0), epoll = epoll_create1(EPOLL_CLOEXEC), begun = 0;
    memset(&at, 0, sizeof at);
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    check(!bind(listener, (struct sockaddr *)&at, size) && !listen(listener, ENDS), "listen");
    check(!getsockname(listener, (struct sockaddr *)&at, &size), "getsockname");
    struct fs_poller *p = fs_poller_new(epoll, &failed);
    check(p != NULL, "fs_poller_new");
    memset(events, 0, sizeof events);
    events[0].events = EPOLLIN; /* its data are NULL: the listener */
    check(!fs_poller_ctl(p, EPOLL_CTL_ADD, listener, NULL, &events[0]), "fs_poller_ctl");
    printf("port %d\n", ntohs(at.sin_port));
    fflush(stdout);
    for (int open = 0; begun < connections || open;) {
        int count = fs_poller_wait(p, epoll, events, EVENTS, -1, NULL);
        check(count > 0 || count == -EINTR, "fs_poller_wait");
        for (int i = 0; i < count; i++) {
            struct end *e = (struct end *)events[i].data.ptr;
            int fd = e ? -1 : accept(listener, NULL, NULL);
            if (e) {
                serve_end(p, e);
            } else if (fd >= 0) {
                begun++;
                watch(p, EPOLL_CTL_ADD, open_end(fd), EPOLLIN);
            }
        }
        open = 0;
        for (int i = 0; i < ENDS; i++) open += ends[i] != NULL;
    }
    fs_poller_end(p);
    close(epoll);
    close(listener);
    return 0;
}

/* ---- the client ---------------------------------------------------------------------------------------------------- */

/* A blocking send or receive of all the bytes. Returns how many were there before the end of the stream. */
static size_t transfer_all(struct end *e, int what, char *bytes, size_t length) {
    struct fs_call call;
    size_t done = 0;
    enter(e, &call);
    while (done < length) {
        int64_t part = what == FS_SEND ? fs_try_send(e->c, bytes + done, length - done, MSG_NOSIGNAL)
                                       : fs_try_recv(e->c, bytes + done, length - done, 0, FS_FINAL);
        check(part >= 0 || part == -EAGAIN, what == FS_SEND ? "send" : "receive");
        if (part == 0) break;
        if (part > 0) {
            done += (size_t)part;
        } else if (!fs_spin(e->c, what)) {
            int woken = fs_sleep(e->c, what, -1, NULL);
            check(woken == 1 || woken == -EINTR, "fs_sleep");
        }
    }
    leave(e, &call);
    if (what == FS_RECEIVE) e->bytes += (long)done;
    return done;
}

static int list_number(void *whose, int *numbers, int room) {
    if (room) *numbers = ((struct end *)whose)->fd;
    return 1;
}

static void go_back(struct end *e) {
    struct fs_call call;
    struct fs_fallback_hooks hooks;
    int64_t bridge;
    int done;
    memset(&hooks, 0, sizeof hooks);
    hooks.list = list_number;
    hooks.whose = e;
    check(fs_call_enter(e->c, &call), "fs_call_enter");
    do done = fs_fall_back(e->c, &hooks, &bridge);
    while (done == -EINTR);
    check(done == FS_NOW_IN_KERNEL && !fs_is(e->c, FS_IS_SENDING_RING), "fs_fall_back");
    leave(e, &call);
}

static void end_sending(struct end *e) {
    struct fs_call call;
    int done;
    check(fs_call_enter(e->c, &call), "fs_call_enter");
    do done = fs_conn_shutdown(e->c, 0, 1);
    while (done == -EINTR);
    check(!shutdown(e->fd, SHUT_WR) || done, "shutdown");
    fs_wake_local(e->c);
    leave(e, &call);
}

static void send_and_compare(struct end *e, int round) {
    char sent[MESSAGE], got[MESSAGE];
    memset(sent, round, MESSAGE);
    check(transfer_all(e, FS_SEND, sent, MESSAGE) == MESSAGE && transfer_all(e, FS_RECEIVE, got, MESSAGE) == MESSAGE, "echo");
    check(!memcmp(sent, got, MESSAGE), "comparison");
}

static int call_server(int port, int rounds) {
    struct sockaddr_in at;
    struct fs_counters sum;
    char nothing;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    memset(&at, 0, sizeof at);
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at.sin_port = htons((uint16_t)port);
    check(!connect(fd, (struct sockaddr *)&at, sizeof at), "connect");
    struct end *e = open_end(fd);
    while (!e->on_ring) send_and_compare(e, 0);
    for (int round = 0; round < rounds; round++) send_and_compare(e, round);
    go_back(e);
    for (int round = 0; round < rounds; round++) send_and_compare(e, round);
    end_sending(e);
    check(transfer_all(e, FS_RECEIVE, &nothing, 1) == 0, "the end of the stream");
    close_end(e, "called");
    fs_sum_counters(NULL, &sum);
    printf("%d messages on the ring, %ld interruptions\n", (int)sum.messages_sent, interruptions);
    return 0;
}

int main(int argc, char **argv) {
    check(argc > 2, "public serve CONNECTIONS | call PORT ROUNDS");
    begin();
    interrupt_often();
    int failed = argc == 3 ? serve(atoi(argv[2])) : call_server(atoi(argv[2]), atoi(argv[3]));
    fs_end();
    return failed;
}
