/* What the two ends of a connection send and receive in a round of connection.c, and the threads that do it. */
#ifndef FASTSOCK_STREAMS_H
#define FASTSOCK_STREAMS_H

#include "frontend.h"

#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>


enum { MAX_THREADS = 3, MAX_EVENTS = 16, MOST_SECONDS = 40 /* of a round */ };

#if defined(__SANITIZE_THREAD__)
enum { MAY_BRIDGE = 0 }; /* the process of a bridge is no fork that the sanitizer knows of */
#else
enum { MAY_BRIDGE = 1 };
#endif

/* One direction: what its two ends verify against. In memory that both processes share. */
struct lane {
    uint64_t target;                    /* bytes to send before the end */
    uint32_t largest, lead;             /* as in stress.c */
    int ordered;                        /* senders and receivers each agree on a position: each byte has a place */
    pthread_mutex_t sending, receiving; /* for that */
    uint64_t begun;                     /* bytes that a sender has taken on; under `sending` */
    fs_word64 accepted, received, sum_sent, sum_received;
    fs_word32 ended; /* the sender's side has said so */
};

enum what { ATTACH, LEAVE, HOLD, UNHOLD, CLOSE, KILL, WHATS };

static const char *const names[WHATS] = {"attach", "leave", "hold", "unhold", "close", "kill"};

struct event {
    uint64_t at; /* bytes received, both ways */
    enum what what;
    int side;
};

enum wanted { NOT_WANTED, WANTED, TOO_LATE };

/* What has to be exercised in every run. */
#define STEPS(X) X(FROM_RING) X(OWN_BYTES) X(LATE) X(SWITCHED) X(FOUND_WHEN_ARMED) \
    X(WOKEN_BY_EVENTFD) X(WOKEN_BY_DESCRIPTOR) X(POLLED_IN_KERNEL) X(RECEIVED_ASLEEP) X(SENT_ASLEEP)
#define NAME(name) name,
enum step { STEPS(NAME) STEP_COUNT };
#undef NAME
#define NAME(name) #name,
static const char *const step_names[STEP_COUNT] = {STEPS(NAME)};
#undef NAME

static struct round {
    struct lane lanes[2]; /* by the side that sends */
    struct event events[MAX_EVENTS];
    int event_count, apart, urgent, closes, leaves, threads[4];
    int outcomes[2]; /* of leaving: enum fs_fallback_result, 10 more: by a bridge */
    int driven[2]; /* by a loop, which is asked for: */
    fs_word32 wants_attach[2], wants_close[2]; /* (the former: enum wanted) */
    int blocks; /* calls before the move wait in the kernel's own */
    int one_lock; /* of both ends, where sleepers have to hear of numbers */
    int excused; /* an end is killed or closed in the middle: the other one gets what TCP gives */
    struct fs_flow_options flow;
    uint32_t window, chunk;
    void *memory;
    size_t size;
    int lines[2];
    fs_word32 failed_calls, dissolved, tells_holder; /* tells_holder: the forked holder is to end */
    fs_word64 done[WHATS], bytes, urgent_bytes, bridges, slept;
    fs_word64 steps[STEP_COUNT];
    struct fs_counters counters;
} *the;

static struct end ends[2];
static pthread_mutex_t locks[2] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static fs_word32 working;  /* threads of this process */
static fs_word32 moving[2]; /* so nobody goes into the kernel's own call any more */
static pid_t holder, other; /* the forked holder, and the process of side 1 */

struct worker {
    pthread_t thread;
    struct end *end;
    struct lane *lane;
    uint64_t random;
    uint64_t from, until; /* what a sender in no order has taken on */
    char *buffer;
};

/* ---- system calls as the core makes them, unseen by ThreadSanitizer -------------------------------------- */

static ssize_t unseen_read(int fd, void *into, size_t room) { return syscall(SYS_read, fd, into, room); }
static ssize_t unseen_write(int fd, const void *data, size_t length) { return syscall(SYS_write, fd, data, length); }
static ssize_t unseen_recv(int fd, void *into, size_t room, int flags) {
    return syscall(SYS_recvfrom, fd, into, room, flags, NULL, NULL);
}
static ssize_t unseen_send(int fd, const void *data, size_t length, int flags) {
    return syscall(SYS_sendto, fd, data, length, flags, NULL, 0);
}
static ssize_t unseen_sendmsg(int fd, const struct msghdr *message, int flags) {
    return syscall(SYS_sendmsg, fd, message, flags);
}
static ssize_t unseen_recvmsg(int fd, struct msghdr *message, int flags) {
    return syscall(SYS_recvmsg, fd, message, flags);
}

static void make_calls_unseen(void) {
    fs_system.read = unseen_read;
    fs_system.write = unseen_write;
    fs_system.recv = unseen_recv;
    fs_system.send = unseen_send;
    fs_system.sendmsg = unseen_sendmsg;
    fs_system.recvmsg = unseen_recvmsg;
}

/* ---- what went wrong ------------------------------------------------------------------------------------- */

__attribute__((no_sanitize("thread"))) static void show(void) {
    fprintf(stderr, "window %u, chunk %u, t %u, combine %u; %s, urgent %d, closes %d, threads %d %d %d %d,"
            " left %d %d\n", the->window, the->chunk, the->flow.ack_threshold, the->flow.combine_limit,
            the->apart ? "two processes" : "one process",
            the->urgent, the->closes, the->threads[0], the->threads[1], the->threads[2], the->threads[3],
            the->outcomes[0], the->outcomes[1]);
    for (int i = 0; i < the->event_count; i++)
        fprintf(stderr, "  at %" PRIu64 " side %d: %s\n", the->events[i].at, the->events[i].side,
                names[the->events[i].what]);
    for (int s = 0; s < 2; s++) {
        struct lane *lane = &the->lanes[s];
        fprintf(stderr, "lane %d: %" PRIu64 " begun, %" PRIu64 " accepted, %" PRIu64 " received of %" PRIu64
                ", largest %u, lead %u, ordered %d, ended %u\n", s, lane->begun, fs_load_relaxed(&lane->accepted),
                fs_load_relaxed(&lane->received), lane->target, lane->largest, lane->lead, lane->ordered,
                fs_load_relaxed(&lane->ended));
        if (fs_own(&ends[s].c)) show_end(&ends[s]);
    }
}

/* Shows how the other process stands too: it dies with this one. */
__attribute__((noreturn, format(printf, 1, 2))) static void lose(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    report("LOST", format, arguments);
    va_end(arguments);
    show();
    end_at_once(1);
}

static uint64_t received_so_far(void) {
    return fs_load_relaxed(&the->lanes[0].received) + fs_load_relaxed(&the->lanes[1].received);
}

static void on_death(int number) {
    (void)number;
    lose("a process of the round has failed");
}

/* A starved round is slow, and gets on. */
static void on_alarm(int number) {
    static uint64_t before;
    uint64_t received = received_so_far();
    (void)number;
    if (received == before) lose("the round has no end");
    before = received;
    alarm(MOST_SECONDS);
}

static void mind_the_end(void) {
    signal(SIGALRM, on_alarm);
    alarm(MOST_SECONDS);
    signal(SIGUSR1, on_death);
    prctl(PR_SET_PDEATHSIG, SIGUSR1);
}

/* A call has failed. Whether it may: the round is one in which an end dies, or is given up in a fallback. */
static void note_failure(const struct worker *me, const char *what, int64_t result) {
    fs_store_sc(&the->failed_calls, 1);
    if (the->excused) return;
    if (result == FS_VIOLATED) lose("side %d %s: %s", me->end->side, what, me->end->c.ring.violation);
    if (!the->leaves || MAY_BRIDGE) lose("side %d %s: %s", me->end->side, what, strerror((int)-result));
    /* (Otherwise it is judged when it is known whether the fallback gave the connection up.) */
}

/* Sleeps until something may have happened. A call that is inside a connection that is closed then has a timeout: it
 * would sleep as long as on TCP. */
static void sleep_for(struct worker *me, int what) {
    double until = seconds_now() + PATIENCE;
    int64_t nap = (int64_t)((the->excused ? 0.2 : PATIENCE) * 1e9);
    fs_add_sc(&the->slept, 1);
    do {
        if (wait_for(me->end, what, fs_now() + nap, !the->one_lock)) return;
        if (!fs_load_sc(&me->end->open)) return;
    } while (seconds_now() < until);
    lose("a %s of side %d was never woken", what == FS_SEND ? "sender" : "receiver", me->end->side);
}

/* As a front end decides it, with its lock: nobody moves the connection while the call is in the kernel. */
static int may_block(struct end *e) {
    return the->blocks && !fs_is_attached(&e->c) && !fs_load_sc(&moving[e->side]) && fs_load_sc(&e->open);
}

/* ---- sending ----------------------------------------------------------------------------------------------- */

static uint64_t sum_of(const void *bytes, int64_t count) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < count; i++) sum += ((const unsigned char *)bytes)[i] * UINT64_C(0x10001) + 257;
    return sum;
}

static uint32_t pick_size(uint64_t *random, uint32_t largest) {
    static const uint32_t edges[] = {1, 47, 48, 49, 2048, 32768}; /* sizes at which something changes */
    uint32_t size = one_in(random, 3) ? 1 + below(random, largest) : edges[below(random, 6)];
    return size < largest ? size : largest;
}

/* Bytes of the stream that may have been sent by now. */
static uint64_t allowed(const struct worker *me) {
    struct lane *back = &the->lanes[!me->end->side];
    uint64_t came_back = fs_load_relaxed(&back->received);
    if (!me->lane->lead || came_back == back->target || fs_load_relaxed(&the->failed_calls)) return me->lane->target;
    came_back += me->lane->lead;
    return came_back < me->lane->target ? came_back : me->lane->target;
}

static int64_t try_to_send(struct worker *me, uint64_t position, size_t length) {
    struct fs_connection *c = &me->end->c;
    const char *data = (const char *)pattern_at(position);
    int blocks = may_block(me->end), locked = blocks || one_in(&me->random, 4); /* a front end may hold its lock */
    if (locked) enter(me->end);
    int64_t part;
    if (blocks && may_block(me->end)) {
        part = fs_send_asleep(c, &(struct iovec){(void *)data, length}, 0, length, MSG_NOSIGNAL);
        if (part > 0) fs_add_sc(&the->steps[SENT_ASLEEP], 1);
    } else if (the->urgent && one_in(&me->random, 64) && fs_is_attached(c)) {
        part = fs_try_send(c, data, length, MSG_NOSIGNAL | MSG_OOB);
        if (part > 0) fs_add_sc(&the->urgent_bytes, 1);
    } else {
        part = fs_try_send(c, data, length, MSG_NOSIGNAL);
    }
    if (locked) leave();
    return part;
}

static void end_stream(struct worker *me) {
    struct end *e = me->end;
    if (the->closes == e->side) return; /* the end of the connection ends it */
    while (fs_conn_shutdown(&e->c, 0, 1) == -EINTR) {}
    shutdown(e->number, SHUT_WR);
}

/* One send call, and what follows it. Whether this thread is done. */
static int send_some(struct worker *me) {
    struct lane *lane = me->lane;
    uint64_t length = pick_size(&me->random, lane->largest), until;
    int64_t part = 0;
    if (lane->ordered || me->from == me->until) {
        pthread_mutex_lock(&lane->sending);
        until = allowed(me);
        if (length > until - lane->begun) length = until - lane->begun;
        me->from = lane->begun;
        me->until = me->from + length;
        if (lane->ordered) {
            part = length ? try_to_send(me, me->from, length) : 0;
            me->until = me->from + (uint64_t)(part > 0 ? part : 0);
        }
        lane->begun = me->until;
        pthread_mutex_unlock(&lane->sending);
    } else {
        length = me->until - me->from;
    }
    if (!lane->ordered && length) part = try_to_send(me, me->from, length);
    if (part < 0 && part != -EAGAIN) {
        note_failure(me, "sends", part);
        return 1;
    }
    if (part > 0) {
        fs_add_sc(&lane->sum_sent, sum_of(pattern_at(me->from), part));
        fs_add_sc(&lane->accepted, (uint64_t)part);
        me->from += (uint64_t)part;
    }
    if (fs_load_sc(&lane->accepted) == lane->target) {
        if (fs_cas32(&lane->ended, 0, 1)) end_stream(me);
        return 1;
    }
    if (part == -EAGAIN) sleep_for(me, FS_SEND);
    else if (!length) sched_yield(); /* until more is allowed, or others have sent the last of it */
    if (one_in(&me->random, 16)) sched_yield(); /* starves the receivers: they claim what is open */
    return 0;
}

static void *send_stream(void *argument) {
    struct worker *me = argument;
    struct fs_call call;
    int over = 0;
    while (!over && begin_call(me->end, &call)) { /* one call of the core's for many of a program's: fewer locks */
        for (uint32_t n = 1 + below(&me->random, 100); n && !over && fs_load_sc(&me->end->open); n--)
            over = send_some(me);
        end_call(me->end, &call);
    }
    fs_add_sc(&working, (uint32_t)-1);
    return NULL;
}

/* ---- receiving ----------------------------------------------------------------------------------------------- */

/* For reports: how many bytes are alike, */
static size_t alike(const char *got, const unsigned char *wanted, size_t length) {
    size_t n = 0;
    while (n < length && (unsigned char)got[n] == wanted[n]) n++;
    return n;
}

/* and where in the pattern the last ones stand. -1: nowhere, or they are too few. */
static int64_t place_of(const char *bytes, int64_t count) {
    for (int64_t at = 0; at < PERIOD && count >= 8; at++)
        if (memcmp(pattern + at + 8, bytes + count - 8, 8) == 0) return at + 16 - count;
    return -1;
}

/* With the front end's lock. */
static int64_t receive_blocking(struct end *e, char *into, size_t room, int flags) {
    int polled = 0;
    int64_t got = fs_receive_polling(&e->c, into, room, flags, &polled);
    if (polled) fs_add_sc(&the->steps[POLLED_IN_KERNEL], 1);
    if (got != -EAGAIN || !may_block(e)) return got;
    got = fs_receive_asleep(&e->c, into, room, flags, polled);
    if (got >= 0) fs_add_sc(&the->steps[RECEIVED_ASLEEP], 1);
    return got;
}

/* One receive call, and what follows it. Whether this thread is done. */
static int receive_some(struct worker *me) {
    struct lane *lane = me->lane;
    struct end *e = me->end;
    size_t room = pick_size(&me->random, 40000);
    int flags = one_in(&me->random, 8) ? MSG_PEEK : lane->ordered && one_in(&me->random, 8) ? MSG_TRUNC : 0;
    int final = !one_in(&me->random, 4), blocks = may_block(e), locked = blocks || one_in(&me->random, 4);
    char *into = me->buffer + LARGEST - room; /* so that a byte too many is out of bounds */
    if (lane->ordered) pthread_mutex_lock(&lane->receiving);
    uint64_t position = fs_load_relaxed(&lane->received);
    if (locked) enter(e);
    blocks = blocks && may_block(e);
    int64_t got = blocks ? receive_blocking(e, into, room, flags) : fs_try_recv(&e->c, into, room, flags, final);
    if (locked) leave();
    if (got > 0 && lane->ordered && !(flags & MSG_PEEK)) fs_store_relaxed(&lane->received, position + (uint64_t)got);
    if (lane->ordered) pthread_mutex_unlock(&lane->receiving);
    if (got == 0) {
        if (lane->ordered && position != lane->target) note_failure(me, "finds the end too early", -ENODATA);
        return 1;
    }
    if (got < 0) {
        if (got != -EAGAIN) note_failure(me, "receives", got);
        else if (!blocks) sleep_for(me, FS_RECEIVE); /* (it has waited) */
        return got != -EAGAIN;
    }
    check((size_t)got <= room, "%" PRId64 " bytes into room for %zu", got, room);
    if (lane->ordered && !(flags & MSG_TRUNC) && memcmp(into, pattern_at(position), (size_t)got) != 0)
        lose("side %d: wrong bytes among the %" PRId64 " at %" PRIu64 ", flags %#x: right are %zu, and at their end"
             " are those of %" PRId64, e->side, got, position, flags, alike(into, pattern_at(position), (size_t)got),
             place_of(into, got));
    if (flags & MSG_PEEK) return 0;
    fs_add_sc(&lane->sum_received, sum_of(flags & MSG_TRUNC ? (const char *)pattern_at(position) : into, got));
    if (!lane->ordered) fs_add_sc(&lane->received, (uint64_t)got);
    return 0;
}

static void *receive_stream(void *argument) {
    struct worker *me = argument;
    struct fs_call call;
    int over = 0;
    me->buffer = malloc(LARGEST);
    while (!over && begin_call(me->end, &call)) {
        for (uint32_t n = 1 + below(&me->random, 100); n && !over && fs_load_sc(&me->end->open); n--)
            over = receive_some(me);
        end_call(me->end, &call);
    }
    free(me->buffer);
    fs_add_sc(&working, (uint32_t)-1);
    return NULL;
}

#endif
