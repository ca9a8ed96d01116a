/* A front end in C, under the sanitizers too: `front [seconds [round]]`.
 *
 * In each round a TCP connection over the loopback begins on the kernel, and both of its ends are driven in this process: one
 * thread each sends, one receives. On the way each end gets its half of a region, at a time of its own. Every byte is verified, and each
 * direction must have moved before it ends. */
#include "internals.h"
#include "harness.h"

#include <signal.h>

#define REST 200000 /* bytes, at most, that a direction carries before it moves, and again after that */

static pthread_mutex_t front = PTHREAD_MUTEX_INITIALIZER; /* the front end's lock */
static __thread int has_front;

static void take_front(void) {
    pthread_mutex_lock(&front);
    has_front = 1;
}

static void drop_front(void) {
    has_front = 0;
    pthread_mutex_unlock(&front);
}

static void *let_go(void) {
    if (!has_front) return NULL;
    drop_front();
    return &front;
}

static void take_again(void *given) {
    (void)given;
    take_front();
}

struct end {
    struct fs_connection c;
    struct end *peer;
    int number;
    struct mapping *map;
    uint32_t largest;
    uint64_t sent; /* by its sender, once that is over */
    fs_word32 attached;
    uint64_t seed[2];
    pthread_t sender, receiver;
};

/* Polls, then sleeps, inside a call. */
static void await(struct end *end, int what) {
    if (fs_spin(&end->c, what)) return;
    take_front();
    struct fs_fd_change *fd_change = fs_fd_change_subscribe();
    drop_front();
    int woken = fs_sleep(&end->c, what, fs_now() + (int64_t)(PATIENCE * 1e9), fd_change);
    take_front();
    if (fd_change) fs_fd_change_unsubscribe(fd_change);
    drop_front();
    check(woken, "side %d was never woken from a wait for %d; moved %u", end->number, what, fs_moved(&end->c));
}

static void enter(struct end *end, struct fs_call *call) {
    check(fs_call_enter(&end->c, call), "the connection has ended");
}

static void leave(struct end *end, struct fs_call *call) {
    check(fs_call_exit(&end->c, call) == FS_EXIT_NOTHING, "the connection has ended");
}

static void attach(struct end *end) {
    struct fs_flow_options flow = {.ack_threshold = 4, .combine_limit = 512, .combine_when_full = 1};
    const char *wrong = NULL;
    take_front();
    int failed = fs_attach(&end->c, end->map->memory, end->map->size, end->number, &flow, &wrong);
    drop_front();
    check(!failed, "attaching: %s", wrong ? wrong : strerror(-failed));
    fs_store_relaxed(&end->attached, 1);
}

static void send_bytes(struct end *end, uint32_t length) {
    struct fs_call call;
    uint32_t done = 0;
    enter(end, &call);
    while (done < length) {
        int64_t part = fs_try_send(&end->c, (const char *)pattern_at(end->sent + done), length - done, MSG_NOSIGNAL);
        check(part > 0 || part == -EAGAIN, "sending: %" PRId64, part);
        if (part > 0) done += (uint32_t)part;
        else await(end, FS_SEND);
    }
    end->sent += done;
    leave(end, &call);
}

static void *send_stream(void *argument) {
    struct end *end = argument;
    uint64_t *random = &end->seed[0];
    uint64_t attaches_at = below(random, REST), until = UINT64_MAX;
    double gives_up = seconds_now() + PATIENCE;
    while (end->sent < until) {
        if (!fs_load_relaxed(&end->attached) && end->sent >= attaches_at) {
            attach(end);
        }
        send_bytes(end, 1 + below(random, end->largest));
        if (until == UINT64_MAX && fs_sends_on_ring(&end->c)) until = end->sent + below(random, REST);
        check(until != UINT64_MAX || seconds_now() < gives_up, "side %d does not move", end->number);
    }
    struct fs_call call;
    enter(end, &call);
    while (fs_conn_shutdown(&end->c, 0, 1) == -EINTR) {}
    check(shutdown(fs_fd(&end->c), SHUT_WR) == 0, "shutdown: %m");
    leave(end, &call);
    return NULL;
}

static void *receive_stream(void *argument) {
    struct end *end = argument;
    uint64_t position = 0, *random = &end->seed[1];
    static const int flags[] = {0, 0, 0, MSG_PEEK};
    char *buffer = malloc(LARGEST);
    int64_t got = 1;
    while (got) {
        size_t room = 1 + below(random, LARGEST);
        int how = flags[below(random, 4)];
        struct fs_call call;
        enter(end, &call);
        while ((got = fs_try_recv(&end->c, buffer, room, how, 1)) == -EAGAIN) await(end, FS_RECEIVE);
        leave(end, &call);
        check(got >= 0 && (size_t)got <= room, "receiving: %" PRId64, got);
        check(!memcmp(buffer, pattern_at(position), (size_t)got), "wrong bytes among the %" PRId64 " at %" PRIu64, got,
              position);
        if (how == 0) position += (uint64_t)got;
    }
    free(buffer);
    pthread_join(end->peer->sender, NULL);
    check(position == end->peer->sent, "%" PRIu64 " bytes of %" PRIu64, position, end->peer->sent);
    return NULL;
}

static struct fs_counters run_round(uint64_t *random) {
    static const uint32_t windows[] = {1, 2, 4, 32}, chunks[] = {1024, 4096, FS_CHUNK_MAX};
    uint32_t window = windows[below(random, 4)], chunk = chunks[below(random, 3)];
    struct mapping map = map_guarded(window, chunk);
    struct end *ends = calloc(2, sizeof *ends);
    struct fs_counters totals = {0};
    int fds[2];
    format_region(&map, window, chunk);
    connect_pair(fds);
    fs_spin_ns = below(random, 2) * 20000;
    take_front();
    for (int i = 0; i < 2; i++) {
        struct end *end = &ends[i];
        *end = (struct end){.peer = &ends[!i], .number = i, .map = &map,
                            .largest = 1 + below(random, LARGEST),
                            .seed = {next_random(random), next_random(random)}};
        check(fs_conn_open(&end->c, fds[i], fs_inode(fds[i]), -1) == 0, "no connection");
    }
    drop_front();
    for (int i = 0; i < 2; i++) pthread_create(&ends[i].sender, NULL, send_stream, &ends[i]);
    for (int i = 0; i < 2; i++) pthread_create(&ends[i].receiver, NULL, receive_stream, &ends[i]);
    for (int i = 0; i < 2; i++) pthread_join(ends[i].receiver, NULL);
    take_front();
    for (int i = 0; i < 2; i++) {
        struct fs_connection *c = &ends[i].c;
        struct fs_call call;
        check(fs_call_enter(c, &call) && fs_note_ended_alone(c), "a call is inside");
        fs_conn_close(c, 1, &totals);
        close(fds[i]);
        check(fs_call_exit(c, &call) == FS_EXIT_RELEASE, "somebody has it");
        fs_release_side(c);
        fs_note_detached(c);
    }
    drop_front();
    check(totals.bytes_sent == totals.bytes_received && totals.bytes_sent, "the counters do not fit");
    munmap(map.start, map.length);
    free(ends);
    return totals;
}

static volatile sig_atomic_t signals;

static void count_signal(int number) {
    (void)number;
    signals += 1;
}

/* To a peer that has reset the connection: SIGPIPE as send(2) raises it, and none with MSG_NOSIGNAL. */
static void break_pipe(void) {
    struct mapping map = map_guarded(4, 1024);
    struct fs_counters totals = {0};
    struct end end = {.map = &map};
    struct fs_call call;
    int fds[2];
    signal(SIGPIPE, count_signal);
    format_region(&map, 4, 1024);
    connect_pair(fds);
    take_front();
    check(fs_conn_open(&end.c, fds[0], fs_inode(fds[0]), -1) == 0, "no connection");
    drop_front();
    attach(&end);
    fs_set_linger_zero(fds[1]);
    close(fds[1]);
    enter(&end, &call);
    check(fs_try_send(&end.c, "x", 1, MSG_NOSIGNAL) == -ECONNRESET && signals == 0, "what tells of the reset");
    check(fs_try_send(&end.c, "x", 1, MSG_NOSIGNAL) == -EPIPE && signals == 0, "a quiet send");
    check(fs_try_send(&end.c, "x", 1, MSG_NOSIGNAL | MSG_OOB) == -EPIPE && signals == 0, "a quiet urgent send");
    check(fs_try_send(&end.c, "x", 1, 0) == -EPIPE && signals == 1, "a send");
    check(fs_try_send(&end.c, "x", 1, MSG_OOB) == -EPIPE && signals == 2, "an urgent send");
    take_front();
    check(fs_note_ended_alone(&end.c), "another call is inside");
    fs_conn_close(&end.c, 1, &totals);
    close(fds[0]);
    check(fs_call_exit(&end.c, &call) == FS_EXIT_RELEASE, "somebody has it");
    fs_release_side(&end.c);
    fs_note_detached(&end.c);
    drop_front();
    munmap(map.start, map.length);
    signal(SIGPIPE, SIG_DFL);
}

/* A call that goes to sleep when another thread has closed the connection already, without a descriptor to spare: it joins the
 * news behind the word, and another sleeper may have taken the eventfd's. */
static void sleep_late(int attaches) {
    struct mapping map = map_guarded(4, 1024);
    struct fs_counters totals = {0};
    struct end end = {.map = &map};
    struct fs_call call;
    char byte;
    int fds[2];
    format_region(&map, 4, 1024);
    connect_pair(fds);
    take_front();
    check(fs_conn_open(&end.c, fds[0], fs_inode(fds[0]), -1) == 0, "no connection");
    drop_front();
    if (attaches) attach(&end);
    enter(&end, &call);
    take_front();
    fs_note_ended(&end.c);
    fs_conn_close(&end.c, 1, &totals);
    fs_forget_fd(&end.c);
    close(fds[0]);
    struct fs_fd_change *fd_change = fs_fd_change_subscribe();
    drop_front();
    for (int what = FS_RECEIVE; what <= FS_SEND; what++)
        check(fs_sleep(&end.c, what, fs_now() + (int64_t)(PATIENCE * 1e9), fd_change) == 1, "a wait for %d sleeps on", what);
    check(fs_try_recv(&end.c, &byte, 1, 0, 1) == -EBADF, "a receive");
    take_front();
    if (fd_change) fs_fd_change_unsubscribe(fd_change);
    check(fs_call_exit(&end.c, &call) == FS_EXIT_RELEASE, "a call is inside");
    fs_release_side(&end.c);
    fs_note_detached(&end.c);
    drop_front();
    close(fds[1]);
    munmap(map.start, map.length);
}

int main(int count, char **arguments) {
    struct rounds rounds = begin_rounds(count, arguments);
    uint64_t bytes = 0, sleeps = 0, random;
    fs_become_process();
    fs_host = (struct fs_host){.unlock = let_go, .lock = take_again};
    fill_pattern();
    break_pipe();
    sleep_late(0);
    sleep_late(1);
    while (next_round(&rounds, &random)) {
        struct fs_counters totals = run_round(&random);
        bytes += totals.bytes_sent;
        sleeps += totals.sleeps;
    }
    printf("%u rounds: %" PRIu64 " bytes on the ring, %" PRIu64 " sleeps\n", rounds.done, bytes, sleeps);
    return 0;
}
