/* The front end at the C library's calls: what its files share.
 *
 * A descriptor's number leads to a record by one table (`ip_things`). A number that is none of ours costs one load. A TCP socket has a
 * record from `socket` or `accept` on, which all of its numbers share, and an epoll instance has one. Records are never given back to the
 * system, so a thread that has found one may look at it whatever others do meanwhile. What it has found is still what the number means if
 * the number leads there once the call has begun (`ip_begin`).
 *
 * Locks: no call that sends or receives takes a lock of this front end's. How a connection begins, steps and ends is under one
 * (`ip_lock`), as the core wants it.
 *
 * Signals: a handler of the program's never runs while its thread is inside the core or has that lock (`ip_enter`, signals.c). */
#pragma once

#include "process_state.h" /* first */

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "libc_front.h"

#pragma GCC visibility push(hidden) /* what this library shows is what the C library shows (exports.map) */

enum {
    IP_NUMBERS = 1 << 20, /* descriptors from here on are the kernel's alone */
    IP_STRIDE = 262144,   /* bytes of a long send between two looks at whether the connection may move */
};

#define IP_MIN(a, b) ((a) < (b) ? (a) : (b))
#define IP_MAX(a, b) ((a) > (b) ? (a) : (b))

/* ---- records --------------------------------------------------------------------------------------------------- */

enum ip_kind {
    IP_NOTHING,
    IP_SOCKET,     /* TCP, and calls on it are the kernel's: not connected, or decided for kernel TCP */
    IP_EARLY,      /* a connection with too few operations to look for its peer: calls on it are the kernel's, and counted */
    IP_CONNECTION, /* calls on it are ours to serve */
    IP_EPOLL,
    IP_OURS, /* a descriptor of the core's: to the program it is not open */
};

struct ip_thing {
    fs_word32 kind; /* enum ip_kind */
    int numbers;    /* of this process that lead here. With the lock */
};

/* A registration that the kernel has as the program has made it, of a socket that is no connection of the core's yet. With the lock. */
struct ip_registration {
    struct ip_epoll *in; /* NULL: there is none */
    uint64_t data;
    uint32_t version;    /* of `in`: another one if that instance has gone since */
    uint32_t events;
    int fd;
};

enum ip_blocking { IP_BLOCKS, IP_NONBLOCKING, IP_ASK /* another process may have set the flag: the kernel knows */ };
/* What a fork has made of it: the child's, in the parent and in the child; or one that both have, and it is seen what the parent does with
 * it (handed_over.c). */
enum ip_handed { IP_NOT_HANDED, IP_HANDED_OVER, IP_INHERITED, IP_WATCHED };
/* Whether a receive of a message tells how much is left (TCP_INQ). */
enum ip_tells_left { IP_LEFT_NOT_ASKED, IP_LEFT_UNTOLD, IP_LEFT_TOLD };

/* Its connection follows it in memory (ip_conn). All that a connection needs which ends early is in two lines of the cache. */
struct ip_socket {
    _Alignas(64) struct ip_thing thing;
    fs_word32 nonblocking; /* enum ip_blocking: O_NONBLOCK, as this process has set it; relaxed */
    fs_word32 tells_left;  /* TCP_INQ: enum ip_tells_left; relaxed */
    fs_word32 unset;       /* enum fs_options: nobody has set these; relaxed. While it is open the core knows it */
    fs_word32 under_way;   /* its connect was under way, and nothing has come through since; relaxed */
    fs_word32 inside;      /* calls that have begun while it was early, and are in the kernel */
    fs_word32 left;        /* of the operations that it may make while it is early; relaxed */
    struct fs_early early; /* with the lock, as all that follows */
    ip_atomic_ptr(struct ip_socket) pair; /* the other end of its socketpair, until a fork; NULL: none. Relaxed */
    struct ip_socket *shared_with; /* the other end of a pair that a fork has shared, or the end itself: the other is gone (pairs.c) */
    struct ip_socket *next; /* that nobody has */
    char is_unix;          /* a stream socket of AF_UNIX */
    char prepared;         /* its connection is (ip_prepare) */
    char opened;           /* the connection was opened, and is not released yet */
    char shut;             /* while it was early: 1: for receiving, 2: for sending */
    char owes_error;       /* the next call returns an error that the core keeps */
    char driven;           /* the transport of an event loop has taken it over (loop_driven.c), */
    char waited_past;      /* and an epoll instance that is none of ours has it */
    char handed;           /* enum ip_handed */
    struct ip_registration registered;
};

struct ip_epoll {
    struct ip_thing thing;
    int number;
    int exposed; /* somebody waits on the number. With the lock */
    fs_word64 family; /* a fork has shared the instance: a bit by which the processes know it; 0: none has. Relaxed, as the poller's */
    uint32_t version; /* another one for each instance that has the record */
    ip_atomic_ptr(struct fs_poller) poller; /* NULL: its calls are the kernel's as they are */
    struct ip_epoll *next;
};

extern ip_atomic_ptr(struct ip_thing) ip_things[IP_NUMBERS];

/* What a number means, or NULL. */
static inline struct ip_thing *ip_thing_at(int fd) {
    if (ip_unlikely((unsigned)fd >= IP_NUMBERS)) return NULL;
    /* SYNC: number - pairs with ip_set_number: the record is whole. */
    return ip_load_acquire(&ip_things[fd]);
}

/* True if the number is that of a TCP socket or an epoll instance. */
static inline int ip_is_known(int fd) { return ip_unlikely(ip_thing_at(fd) != NULL); }

static inline int ip_is(const struct ip_thing *thing, enum ip_kind kind) { return ip_load_relaxed(&thing->kind) == kind; }

static inline struct fs_connection *ip_conn(const struct ip_socket *s) { return (struct fs_connection *)(void *)(s + 1); }
/* Most sockets end early, and never need what this makes ready. With the lock. */
static inline void ip_prepare(struct ip_socket *s) {
    if (!s->prepared) fs_conn_init(ip_conn(s));
    s->prepared = 1;
}
static inline struct ip_socket *ip_socket_of(struct fs_connection *c) { return (struct ip_socket *)(void *)c - 1; }

/* True if the number is the core's. */
static inline int ip_is_ours(int fd) {
    struct ip_thing *thing = ip_thing_at(fd);
    return ip_unlikely(thing != NULL) && ip_is(thing, IP_OURS);
}

/* The socket that a number means, connected or not; or NULL. */
static inline struct ip_socket *ip_socket_at(int fd) {
    struct ip_thing *thing = ip_thing_at(fd);
    return thing && ip_load_relaxed(&thing->kind) - IP_SOCKET <= IP_CONNECTION - IP_SOCKET ? (struct ip_socket *)thing : NULL;
}

/* The same of an epoll instance. */
static inline struct ip_epoll *ip_epoll_at(int fd) {
    struct ip_thing *thing = ip_thing_at(fd);
    return ip_unlikely(thing != NULL) && ip_is(thing, IP_EPOLL) ? (struct ip_epoll *)thing : NULL;
}

/* The number means that from now on. With the lock. */
void ip_set_number(int fd, struct ip_thing *thing);
void ip_end_number(int fd, struct ip_socket *s); /* the only one of `s`, which is free then. The same */

/* The numbers that lead to it: at most `room` of them are written. How many there are. With the lock. */
int ip_numbers_of(const struct ip_thing *thing, int *numbers, int room);
void ip_raise_highest(int fd);
int ip_highest(void); /* the highest number that ever led somewhere, or -1 */

/* A record that nobody has, of the kind IP_SOCKET or IP_EPOLL; NULL without memory. The socket has its number then. With the lock. */
struct ip_socket *ip_new_socket(int fd, int nonblocking, int is_unix, uint32_t unset);
struct ip_epoll *ip_new_epoll(void);
void ip_free_socket(struct ip_socket *s);
void ip_free_epoll(struct ip_epoll *e);

/* Call `body` with each record that was ever made and has numbers, and with `with`. With the lock, which `body` may let go: others walk
 * meanwhile. */
void ip_each_socket(void (*body)(struct ip_socket *s, void *with), void *with);
void ip_each_epoll(void (*body)(struct ip_epoll *e, void *with), void *with);

/* ---- the lock, and signals ----------------------------------------------------------------------------------------- */

/* The lock is nested, and nothing where no other thread runs. What a thread has begun so, it ends so: meanwhile it makes no thread but the
 * core's control thread, which never takes this lock. */
void ip_take_mutex(void) __attribute__((cold));
void ip_give_mutex(void) __attribute__((cold));

static inline void ip_lock(void) {
    ip_enter(); /* a handler that would wait for the lock does not run in who has it */
    if (ip_unlikely(ip_has_threads())) ip_take_mutex();
}
static inline void ip_unlock(void) {
    if (ip_unlikely(ip_thread.has_lock)) ip_give_mutex();
    ip_leave();
}
void *ip_let_go(void);    /* while the core waits for others */
extern uint32_t ip_times_let_go; /* With the lock */
void ip_take_again(void *held);

/* ---- calls on a connection -------------------------------------------------------------------------------------------- */

struct ip_socket *ip_begin_on(int fd, struct ip_thing *thing, struct fs_call *call);
struct ip_socket *ip_begin_early(int fd, struct ip_thing *thing, struct fs_call *call);

/* Calls that are inside an early connection. (Where no other thread runs, nobody looks meanwhile but a handler, whose own calls are over
 * when it returns.) */
static inline void ip_count_inside(struct ip_socket *s, uint32_t calls) {
    if (ip_unlikely(ip_has_threads())) ip_add(&s->inside, calls);
    else ip_store_relaxed(&s->inside, ip_load_relaxed(&s->inside) + calls);
}

/* The number of one that is early, and the operations that it has made. */
static inline int ip_early_fd(struct ip_socket *s) { return (int)ip_load_relaxed(&s->early.shown) - 1; }
static inline uint32_t ip_made_early(struct ip_socket *s) { return s->early.allowed - ip_load_relaxed(&s->left); }

/* True if a call on the number is the kernel's, and counted: ip_end_early follows it. Most calls of short sessions are such. */
static inline __attribute__((always_inline)) int ip_begins_early(int fd, struct ip_thing *thing) {
    struct ip_socket *s = (struct ip_socket *)thing;
    if (!ip_is(thing, IP_EARLY)) return 0;
    /* SYNC: early - pairs with ip_settle and ip_take_step: who opens it stores what it is, and then looks if a call is inside; this call is
     * inside, and then looks what it is. */
    ip_count_inside(s, 1);
    uint32_t left = ip_load_relaxed(&s->left);
    if (ip_likely(left && ip_thing_at(fd) == thing && ip_load_sc(&thing->kind) == IP_EARLY)) {
        ip_store_relaxed(&s->left, left - 1); /* (of two threads that count at once, one may not be counted) */
        return 1;
    }
    ip_count_inside(s, -1u);
    return 0;
}

static inline ssize_t ip_end_early(struct ip_socket *s, ssize_t result) {
    if (ip_unlikely(ip_load_relaxed(&s->under_way)) && result > 0) ip_store_relaxed(&s->under_way, 0);
    /* (It is 0 already where this process was forked in a handler that has interrupted the call.) */
    if (ip_likely(ip_load_relaxed(&s->inside))) ip_count_inside(s, -1u);
    return result;
}

/* A number's connection, if a call on it is ours to serve; the caller is inside then, until ip_end. NULL: the kernel's, and
 * ip_end_kernel follows it. */
static inline struct ip_socket *ip_begin(int fd, struct fs_call *call) {
    struct ip_thing *thing = ip_thing_at(fd);
    call->connection = NULL;
    if (ip_likely(!thing)) return NULL;
    if (ip_is(thing, IP_CONNECTION)) return ip_begin_on(fd, thing, call);
    return ip_is(thing, IP_EARLY) ? ip_begin_early(fd, thing, call) : NULL;
}

/* The kernel's call has returned that. */
static inline ssize_t ip_end_kernel(struct fs_call *call, ssize_t result) {
    return call->connection ? ip_end_early(ip_socket_of(call->connection), result) : result;
}

/* Begins a call on a socket that the caller knows to stay, until ip_end. 0: it is not open. */
static inline int ip_hold(struct ip_socket *s, struct fs_call *call) {
    ip_enter();
    if (fs_call_enter(ip_conn(s), call)) return 1;
    ip_leave();
    return 0;
}

/* Does what the end of a call, or of a pin, asks for. With the lock. */
void ip_after_exit(struct ip_socket *s, struct fs_call *call, enum fs_exit_action after);

void ip_start_due_thread(void); /* the core's, before a wait: ip_thread_due */

/* Ends the call. */
void ip_end(struct ip_socket *s, struct fs_call *call);

/* Ends it, and returns what the program gets for `result`: bytes, or -1 with errno for -errno. */
ssize_t ip_end_with(struct ip_socket *s, struct fs_call *call, int64_t result);

/* Bytes, 0 at the end of the stream, -errno, or FS_VIOLATED. Inside. */
int64_t ip_receive(struct ip_socket *s, void *into, size_t room, int flags);
int64_t ip_send(struct ip_socket *s, const void *data, size_t length, int flags);
int64_t ip_send_pieces(struct ip_socket *s, const struct iovec *v, size_t length, int flags); /* `length`: of all, not 0 */

/* True if the socket's calls shall not wait. */
int ip_is_nonblocking(struct ip_socket *s);
void ip_note_nonblocking(struct ip_socket *s, int flag); /* this process has set O_NONBLOCK to `flag` */

/* Around a call that may set it: processes that have the connection too hear of the change. The connection, inside until the end; or
 * NULL. */
struct ip_socket *ip_begin_change(int fd, struct fs_call *call);
void ip_end_change(struct ip_socket *s, struct fs_call *call);

/* True if a receive of a message tells how much is left (TCP_INQ). Inside. */
int ip_tells_left(struct ip_socket *s);

/* ---- beginning and end -------------------------------------------------------------------------------------------------- */

/* The socket is connected, or is about to be (`under_way`). Returns true if it is to take a step at once. With the lock. */
static inline int ip_connected(struct ip_socket *s, int fd, int under_way, struct fs_service *service);
void ip_connected_again(struct ip_socket *s); /* one that is a connection: its connect is over. With the lock */
int ip_begins_sooner(struct ip_socket *s, int fd, int under_way) __attribute__((cold)); /* not after `move_after` operations */

/* It is early from now on. With the lock. */
static inline void ip_become_early(struct ip_socket *s, int fd, int64_t move_after, struct fs_service *service, int under_way) {
    ip_store_relaxed(&s->under_way, (uint32_t)under_way);
    fs_early_begin(&s->early, fd, move_after, service, under_way);
    ip_store_relaxed(&s->left, s->early.allowed);
    ip_store_relaxed(&s->thing.kind, IP_EARLY);
}

/* An early connection is one from now on; another socket stays what it is. With the lock. */
void ip_open(struct ip_socket *s);

/* The same of what a number means. */
void ip_open_number(int fd);

/* The poller of an instance, or NULL; and made if there is none: NULL with -errno in `*failed`. `epoll`: a number of the instance. (Another
 * thread may have closed it since it was looked up: whoever has the record next gets no poller of it.) */
static inline struct fs_poller *ip_poller_of(struct ip_epoll *e) {
    /* SYNC: poller - pairs with ip_poller_for: it is whole. */
    return ip_load_acquire(&e->poller);
}
struct fs_poller *ip_poller_for(struct ip_epoll *e, int epoll, int *failed);

/* Where the kernel has the registration of a socket as the program has made it, or NULL. With the lock. */
static inline struct ip_epoll *ip_where_registered(const struct ip_socket *s) {
    struct ip_epoll *e = s->registered.in;
    return e && s->registered.version == e->version ? e : NULL;
}

/* The registration that the kernel has is a member of the instance's poller from now on. 0, or -errno: it cannot be. With the lock. */
int ip_register(struct ip_socket *s);

/* Another number, or a forked child, is about to have the socket too: no more of it is kept in its record alone. With the lock. */
void ip_prepare_to_share(struct ip_socket *s);

/* fs_step, and reports its result. With the lock, inside. */
void ip_step_once(struct ip_socket *s, const struct fs_attach_hooks *hooks, struct fs_step_result *result);

/* Takes the next step of an undecided connection, and reports it. */
void ip_take_step(struct ip_socket *s, const struct fs_attach_hooks *hooks, struct fs_step_result *result);

void ip_step_on(struct ip_socket *s); /* the same, for who does not look at the result */

/* Counts an operation of the program, and lets an undecided connection take its next step. */
static inline void ip_operate(struct ip_socket *s) {
    if (ip_unlikely(fs_operate(ip_conn(s)))) ip_step_on(s);
}

extern fs_word32 ip_loops_drive; /* event loops have taken connections over: they do so before a connection moves. Relaxed */

void ip_settle(struct ip_socket *s); /* the kind of a socket follows from its path. With the lock */
void ip_forget_number(int fd);       /* the program closes it, or is about to have it mean something else */
void ip_forget_closed(int fd) __attribute__((cold)); /* the same of one that was closed past us */
void ip_also_means(int fd, int made); /* `made` means what `fd` means */

/* The kernel has just given the program this number: what it meant was closed past us. */
static inline int ip_new_number(int fd) {
    if (ip_unlikely(fd >= 0 && ip_is_known(fd))) ip_forget_closed(fd);
    return fd;
}

/* The record of a connection that the program has, and that is no connection of this front end's yet; or NULL. With the lock. */
struct ip_socket *ip_adopt_connected(int fd);

/* A call has failed. Returns true if it did for want of descriptors, and connections that look for their peers have given some back: the
 * call is made again. */
int ip_give_back(void) __attribute__((cold));

/* What is known of services is shared by this process and those that it forks later. Returns false without memory. With the lock. */
int ip_share_services(void);

/* The service at a listener's number, or at a port; NULL without memory. With the lock. */
struct fs_service *ip_service_of(int listener);
struct fs_service *ip_service_at(int port);
void ip_forget_listener(int fd); /* its number may be another one's from now on */

/* Numbers a connection that a fork hands over; 0: without memory. The parent tells the child that it has closed its copy. (So many further
 * ones later, which is 1,024, the child does not learn it.) With the lock. */
uint32_t ip_next_hand_over(void);
void ip_tell_closed(uint32_t number);
int ip_is_told_closed(uint32_t number);

/* ---- the fallback --------------------------------------------------------------------------------------------------------- */

/* The connection goes back to the kernel, and stays there: somebody is about to use its descriptor past us. 0: that is not possible. */
int ip_leave_ring(struct ip_socket *s);

/* The same, with the reason of one that has not moved yet. `unread`: where the transport of a loop gets a file with
 * the bytes that come before all that follows, to read and close; NULL: no transport drives the connection. */
int ip_leave_ring_for(struct ip_socket *s, enum fs_reason why, int *unread);
void ip_leave_number(int fd); /* the same, if the number means a connection */
void ip_leave_inherited(void); /* of every connection that a program inherits which is started now */

/* What pollers ask of a front end, in its description. */
void ip_poller_after_fork(void); /* in the child: the poller of this thread has nothing of the parent's */
void ip_begin_readiness(struct fs_front_end *front);

/* ---- the whole of it ---------------------------------------------------------------------------------------------------- */

/* Puts the functions in place of the C library's: NULL, or why that is not possible. */
const char *ip_put_in_place(void);
void ip_take_out_of_place(void);
void ip_look_again(void); /* (struct ip_above) */

/* ---- settings ------------------------------------------------------------------------------------------------------------- */

struct ip_settings {
    int64_t move_after, meeting_ns;
    int unix_streams;
    uint32_t version; /* another one each time they are given */
};
extern struct ip_settings ip_settings;

const char *ip_read_settings(struct fs_settings *settings); /* of the environment. NULL, or what is wrong */
void ip_use_settings(const struct fs_settings *settings);
int ip_is_preloaded(void);
int ip_is_asked_to_serve(void); /* the library was preloaded, and nothing else serves the process */
void ip_keep_statistics(const char *file); /* those of this process; NULL: none */
int ip_has_statistics(void);
void ip_write_statistics(void);

static inline int ip_connected(struct ip_socket *s, int fd, int under_way, struct fs_service *service) {
    ip_become_early(s, fd, ip_settings.move_after, service, under_way);
    return ip_unlikely(fd <= 2 || !ip_settings.move_after || s->early.meets) ? ip_begins_sooner(s, fd, under_way) : 0;
}

#pragma GCC visibility pop

#pragma GCC visibility push(default) /* the functions that follow in a file which includes this one */
