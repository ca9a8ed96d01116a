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
#ifndef FASTSOCK_INTERPOSE_H
#define FASTSOCK_INTERPOSE_H

#include "libc_functions.h" /* first */

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "atomics.h"
#include "fastsock.h"
#include "libc_front.h"

#pragma GCC visibility push(hidden) /* what this library shows is what the C library shows (exports.map) */

enum {
    IP_NUMBERS = 1 << 20, /* descriptors from here on are the kernel's alone */
    IP_STRIDE = 262144,   /* bytes of a long send between two looks at whether the connection may move */
};

#define IP_MIN(a, b) ((a) < (b) ? (a) : (b))
#define IP_MAX(a, b) ((a) > (b) ? (a) : (b))
#define ip_unlikely(condition) __builtin_expect(!!(condition), 0)
#define ip_likely(condition) __builtin_expect(!!(condition), 1)

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
    uint32_t version;    /* of `in`: another one if that instance has gone since */
    int fd;
    uint32_t events;
    uint64_t data;
};

enum ip_blocking { IP_BLOCKS, IP_NONBLOCKING, IP_ASK /* another process may have set the flag: the kernel knows */ };
/* Whether a receive of a message tells how much is left (TCP_INQ). */
enum ip_tells_left { IP_LEFT_NOT_ASKED, IP_LEFT_UNTOLD, IP_LEFT_TOLD };

/* Its connection lies behind it (ip_conn). */
struct ip_socket {
    _Alignas(64) struct ip_thing thing;
    fs_word32 nonblocking; /* enum ip_blocking: O_NONBLOCK, as this process has set it; relaxed */
    fs_word32 tells_left;  /* TCP_INQ: enum ip_tells_left; relaxed */
    int opened;            /* the connection was opened, and is not released yet */
    fs_word32 under_way;   /* its connect was under way, and nothing has come through since; relaxed */
    fs_word32 inside;      /* calls that have begun while it was early, and are in the kernel */
    int shut;              /* while it was early: 1: for receiving, 2: for sending. With the lock */
    struct ip_registration registered;
    int owes_error;        /* the next call is told of an error that the core keeps. With the lock */
    int is_unix;           /* a stream socket of AF_UNIX */
    ip_atomic_ptr(struct ip_socket) pair; /* the other end of its socketpair, until a fork; NULL: none. With the lock; relaxed */
    int driven;            /* the transport of an event loop has taken it over (loop_driven.c), */
    int waited_past;       /* and an epoll instance that is none of ours has it */
    struct ip_socket *next; /* that nobody has */
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

/* What this front end does in the process (install.c, ip_before_filter). Changes with the lock; relaxed: the calls of other threads that it
 * ends go on as they have begun. */
extern fs_word32 ip_activity;
enum {
    IP_INACTIVE,
    IP_ENDING,   /* serves what there is, */
    IP_CLAIMING, /* and sockets that the Python package claims, */
    IP_TAKING,   /* and all new ones */
};

static inline int ip_is_active(void) { return ip_load_relaxed(&ip_activity) != IP_INACTIVE; }
static inline int ip_is_taking(void) { return ip_load_relaxed(&ip_activity) == IP_TAKING; }
static inline int ip_is_claiming(void) { return ip_load_relaxed(&ip_activity) >= IP_CLAIMING; }

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
static inline struct ip_socket *ip_socket_of(struct fs_connection *c) { return (struct ip_socket *)(void *)c - 1; }

/* What the core calls to make and close its own numbers: they are known from their making on, and closed by nobody else, while this front end
 * is active. */
int ip_make_own(int fd, int what, long argument);
int ip_close_own(int fd);
void ip_forget_own_number(int fd);
void ip_forget_own_numbers(void);

/* What the core calls to make a number that it has for a moment (own_numbers.c). Both return -errno if they fail. */
long ip_make_passing(long number, const long a[6]);
long ip_receive_passing(int fd, struct msghdr *message, int flags);

/* As dup3(2), for the program: not onto a number that the core has for a moment. */
int ip_place(int from, int to, int flags);
void ip_numbers_after_fork(void); /* in the child */

extern struct fs_calls ip_calls; /* what the core calls: no cancellation points */
void ip_tell_core(void);

/* True if the number is the core's. */
static inline int ip_is_ours(int fd) {
    struct ip_thing *thing = ip_thing_at(fd);
    return ip_unlikely(thing != NULL) && ip_is(thing, IP_OURS);
}

/* The socket that a number means, connected or not; or NULL. */
static inline struct ip_socket *ip_socket_at(int fd) {
    struct ip_thing *thing = ip_thing_at(fd);
    return thing && (ip_is(thing, IP_SOCKET) || ip_is(thing, IP_EARLY) || ip_is(thing, IP_CONNECTION)) ? (struct ip_socket *)thing : NULL;
}

/* The same of an epoll instance. */
static inline struct ip_epoll *ip_epoll_at(int fd) {
    struct ip_thing *thing = ip_thing_at(fd);
    return ip_unlikely(thing != NULL) && ip_is(thing, IP_EPOLL) ? (struct ip_epoll *)thing : NULL;
}

/* The number means that from now on. With the lock. */
void ip_set_number(int fd, struct ip_thing *thing);

/* The numbers that lead to it: at most `room` of them are written. How many there are. With the lock. */
int ip_numbers_of(const struct ip_thing *thing, int *numbers, int room);
void ip_raise_highest(int fd);
int ip_highest(void); /* the highest number that ever led somewhere, or -1 */

/* A record that nobody has, of the kind IP_SOCKET or IP_EPOLL; NULL without memory. With the lock. */
struct ip_socket *ip_new_socket(void);
struct ip_epoll *ip_new_epoll(void);
void ip_free_socket(struct ip_socket *s);
void ip_free_epoll(struct ip_epoll *e);

/* Call `body` with each record that was ever made and has numbers, and with `with`. With the lock, which `body` may let go: others walk meanwhile. */
void ip_each_socket(void (*body)(struct ip_socket *s, void *with), void *with);
void ip_each_epoll(void (*body)(struct ip_epoll *e, void *with), void *with);

/* ---- the lock, and signals ----------------------------------------------------------------------------------------- */

struct ip_thread {
    int busy;       /* handlers of the program are put off */
    int has_lock;   /* how often */
    int may_sleep;  /* the next sleep of the core is a call's wait (ip_sleep) */
    int sleeps;     /* enum ip_sleeps, of sleep_call.h */
    int pending;    /* something is put off: handlers, */
    int cancelled;  /* or the thread's end */
    int forking;    /* between the two handlers of its fork, and the lock is held: how deep */
    uintptr_t handler; /* the frame from which the innermost handler of the program was called; 0: none */
    int forks_quietly; /* its forks leave the control thread stopped (fs_libc_fork_quietly) */
    uint32_t ran;   /* handlers that ran in this thread, */
    uint32_t ended; /* and those of them that end a call (no SA_RESTART) */
};
extern __thread struct ip_thread ip_thread __attribute__((tls_model("initial-exec")));

/* False: no other thread runs the program's code, nor does while this one sleeps. (The C library knows of all threads that it makes, for whichever
 * of its functions, and of the core's. An older one does not say.) */
extern char __libc_single_threaded __attribute__((weak));
extern fs_word32 ip_threads_by_hand; /* clone(2) has made threads that the C library does not know; relaxed */
static inline int ip_has_threads(void) {
    return !&__libc_single_threaded || !__libc_single_threaded || ip_load_relaxed(&ip_threads_by_hand);
}

extern fs_word32 ip_copied_past; /* this process is a copy of one with threads, made without the C library (_Fork(3)); relaxed */

/* True where the C library may be asked for threads and for the loader's lists: not in a handler, whose thread may be within malloc(3), nor
 * where another thread of the parent's may have been when the copy was made. (A handler that left by longjmp(3) has its frame below who is
 * asking.) */
static inline int ip_may_use_libc(void) {
    uintptr_t here = (uintptr_t)__builtin_frame_address(0), frame = ip_thread.handler;
    return !(here < frame && frame - here < 1 << 20) && !ip_load_relaxed(&ip_copied_past);
}

/* A handler has forked, and could not start the core's control thread again: the next wait does. Relaxed. */
extern fs_word32 ip_thread_due;
void ip_start_due_thread(void);

void ip_run_handlers(void); /* what was put off. Not while busy */

static inline void ip_enter(void) {
    ip_thread.busy++;
    ip_compiler_barrier();
}
static inline void ip_leave(void) {
    ip_compiler_barrier();
    if (--ip_thread.busy == 0 && ip_unlikely(ip_thread.pending)) ip_run_handlers();
}

void ip_lock(void);
void ip_unlock(void);
void *ip_let_go(void);    /* while the core waits for others */
extern uint32_t ip_times_let_go; /* With the lock */
void ip_take_again(void *held);

/* A system call in which the thread sleeps, and -errno. The program's handlers run in it if they end it with -EINTR, and only then: also those that
 * were put off, and those that come before the kernel has begun it. `masked`: the call has a mask of signals, and the kernel tells which end it. A
 * thread that is cancelled in it (pthread_cancel) ends when it is no more inside. */
long ip_sleep(long number, const long a[6], int masked);

extern fs_word32 ip_cancels; /* the program has cancelled threads; relaxed */

/* Where a call begins that need not sleep. Not inside. */
static inline void ip_cancellation_point(void) {
    if (ip_unlikely(ip_load_relaxed(&ip_cancels)) && !ip_thread.busy) pthread_testcancel();
}

void ip_wrap_handlers(void);   /* those that the program has set before */
void ip_wrap_later_handlers(void); /* those that it has set past us since, if nobody has looked for some time. Not with the lock */
int ip_sigaction_by_number(const long a[6], long *got); /* rt_sigaction(2). 0: it is the kernel's alone */
void ip_unwrap_handlers(void); /* the kernel gets back all of the program's */

/* True in the process that this front end serves: not in a child of vfork, which runs in its memory, nor in one that was forked past us. */
extern fs_word32 *ip_original_mark; /* 0 in a copy of this process's memory, however it was made; relaxed */
extern fs_word32 ip_memory_shared;  /* other processes run in this memory, or may: ask; relaxed */
int ip_ask_process(void);
void ip_claim_memory(void); /* this process is the one that is served */
static inline int ip_is_own_process(void) {
    if (!ip_is_active()) return 1;
    return ip_likely(!ip_load_relaxed(&ip_memory_shared)) ? (int)ip_load_relaxed(ip_original_mark) : ip_ask_process();
}

/* A clone with these flags makes a process with a copy of the memory, as fork(2) does. */
static inline int ip_makes_process(uint64_t flags) { return !(flags & (CLONE_VM | CLONE_SETTLS)); }

void ip_before_thread_with_table(void); /* with numbers of its own (own_tables.c) */
int ip_has_one_thread(int naps); /* while the core's is stopped: the process has no other thread than this one. Naps so often before it says no */

/* A process is about to be made with these flags: one that is no thread and has this memory shares it from its first instruction on. */
static inline void ip_before_clone(uint64_t flags) {
    if (flags & CLONE_THREAD) ip_store_relaxed(&ip_threads_by_hand, 1);
    else if (flags & CLONE_VM) ip_store_relaxed(&ip_memory_shared, 1);
    if (flags & CLONE_THREAD && !(flags & CLONE_FILES)) ip_before_thread_with_table();
}

/* The program is about to filter its system calls (seccomp(2)). */
void ip_before_filter(void);

/* From here on this process does what it does without us: what is on the ring goes back to the kernel. With the lock. */
void ip_go_without(void);

/* The thread is about to get a table of descriptors of its own, or to make a thread that has one (own_tables.c). Returns true if it has the
 * lock then, and the core has no thread, until ip_after_own_table. */
int ip_before_own_table(void);
void ip_after_own_table(void);

/* The environment for a program that is about to be started: without this library, if that cannot have it. `file` may be a name on the PATH.
 * ip_forget_environment follows if the program was not started, or is another process. */
struct ip_own_environment { void *memory; size_t size; };
char *const *ip_environment_for(const char *file, char *const *environment, struct ip_own_environment *own);
void ip_forget_environment(struct ip_own_environment *own);

long ip_fork_by_number(long number, const long a[6]); /* the call is one that forks */

/* ---- calls on a connection -------------------------------------------------------------------------------------------- */

struct ip_socket *ip_begin_on(int fd, struct ip_thing *thing, struct fs_call *call);
struct ip_socket *ip_begin_early(int fd, struct ip_thing *thing, struct fs_call *call);
void ip_end_early(struct fs_call *call, int64_t result);

/* The connection behind a number, if a call on it is ours to serve; the caller is inside then, until ip_end. NULL: the kernel's, and
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
    if (call->connection) ip_end_early(call, result);
    return result;
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

/* Ends the call. */
void ip_end(struct ip_socket *s, struct fs_call *call);

/* Ends it, and returns what the program gets for `result`: bytes, or -1 with errno for -errno. */
ssize_t ip_end_with(struct ip_socket *s, struct fs_call *call, int64_t result);

/* Bytes, 0 at the end of the stream, -errno, or FS_VIOLATED. Inside. */
int64_t ip_receive(struct ip_socket *s, void *into, size_t room, int flags);
int64_t ip_send(struct ip_socket *s, const void *data, size_t length, int flags);
int64_t ip_send_pieces(struct ip_socket *s, const struct iovec *v, size_t length, int flags); /* `length`: of all, not 0 */

/* A handler that ended has run since `before`, or any where a timeout option is set: a call that waits ends then (signal(7)). */
int ip_is_ended_by_signal(struct ip_socket *s, int what, uint32_t ran, uint32_t ended);

/* True if the socket's calls shall not wait. */
int ip_is_nonblocking(struct ip_socket *s);
void ip_note_nonblocking(struct ip_socket *s, int flag); /* this process has set O_NONBLOCK to `flag` */

/* Around a call that may set it: processes that have the connection too hear of the change. The connection, inside until the end; or NULL. */
struct ip_socket *ip_begin_change(int fd, struct fs_call *call);
void ip_end_change(struct ip_socket *s, struct fs_call *call);

/* True if a receive of a message tells how much is left (TCP_INQ). Inside. */
int ip_tells_left(struct ip_socket *s);

/* ---- beginning and end -------------------------------------------------------------------------------------------------- */

/* The socket is connected, or is about to be (`under_way`). With the lock. */
void ip_connected(struct ip_socket *s, int fd, int under_way, struct fs_session_stats *service);

/* An early connection is one from now on; another socket stays what it is. With the lock. */
void ip_open(struct ip_socket *s);

/* The same of what a number means. */
void ip_open_number(int fd);

/* Two sockets that the program has just made as a pair. Their calls are the kernel's until a fork. With the lock. */
void ip_begin_pair(struct ip_socket *one, int fd, struct ip_socket *other, int other_fd);

/* The program has made an end of a pair one that does not wait: an event loop's, which wakes itself by it. It is the kernel's from now on, and
 * costs what it costs without us. */
void ip_forget_pair(struct ip_socket *s);

/* A fork is about to share both ends of a pair: they are on the ring before, or stay with the kernel. With the lock. */
void ip_share_pair(struct ip_socket *s);

/* The registration that the kernel has is a member of the instance's poller from now on. 0, or -errno: it cannot be. With the lock. */
int ip_register(struct ip_socket *s);

/* Another number, or a forked child, is about to have the socket too: no more of it is kept in its record alone. With the lock. */
void ip_prepare_to_share(struct ip_socket *s);

/* Takes the next step of an undecided connection, and reports it: fs_step. */
void ip_take_step(struct ip_socket *s, const struct fs_attach_hooks *hooks, struct fs_step_result *result);

void ip_step_on(struct ip_socket *s); /* the same, for who does not look at the result */

/* Counts an operation of the program, and lets an undecided connection take its next step. */
static inline void ip_operate(struct ip_socket *s) {
    if (ip_unlikely(fs_operate(ip_conn(s)))) ip_step_on(s);
}

void ip_settle(struct ip_socket *s); /* the kind of a socket follows from its path. With the lock */
void ip_forget_number(int fd);       /* the program closes it, or is about to have it mean something else */
void ip_forget_closed(int fd);       /* the same of one that was closed past us */
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
int ip_give_back(void);

/* What is known of the sessions at a listener's number, or with a port. With the lock. */
struct fs_session_stats *ip_sessions_of_listener(int fd);
struct fs_session_stats *ip_sessions_with(int port);

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

/* ---- its own beginning and end --------------------------------------------------------------------------------------------- */

void ip_begin_end(void); /* of the process: the handlers of its exit */
int ip_begin_forks(void); /* 0, or it has failed */
int ip_fork_is_under_way(void); /* With the lock */
void ip_prepare_fork(void);     /* what the core asks for before a fork. With the lock */
void ip_each_connection(void (*body)(struct fs_connection *c, void *with), void *with); /* that is open. With the lock */
extern fs_word32 ip_filtered; /* the program has filtered its system calls: the core makes those alone that a filter may know */

/* Puts the functions in place of the C library's: NULL, or why that is not possible. */
const char *ip_put_in_place(void);
void ip_take_out_of_place(void);
void ip_look_again(void); /* at slots that threads were about to fill meanwhile. Without the lock */

void ip_end_if_unneeded(void); /* the end of the front end, if it was asked for and nothing needs it any more. With the lock */

/* ---- settings ------------------------------------------------------------------------------------------------------------- */

struct ip_settings {
    int64_t move_after, meeting_ns;
    int unix_streams;
};
extern struct ip_settings ip_settings;

const char *ip_read_settings(struct fs_settings *settings); /* of the environment. NULL, or what is wrong */
void ip_use_settings(const struct fs_settings *settings);
int ip_is_preloaded(void);
int ip_is_asked_to_serve(void); /* the library was preloaded, and nothing else serves the process */
void ip_keep_statistics(const char *file); /* those of this process; NULL: none */
void ip_write_statistics(void);

/* ---- the report for `fastsock doctor` (report.c). These do nothing if nobody watches -------------------------------------- */

void ip_begin_report(void);
void ip_end_report(void);
void ip_report_path(struct ip_socket *s); /* the path of a connection is decided. Inside */
void ip_report(struct ip_socket *s, const char *event, const char *name, const char *value); /* of fastsock/run_report.py. Inside */
void ip_report_error(struct ip_socket *s, const char *event, int failed); /* -errno */
void ip_report_broken(struct ip_socket *s); /* the connection was reset, by a fault of the peer or of this side. Inside */

void ip_report_fallback(struct ip_socket *s, int left, int64_t bridge); /* what fs_fall_back has come to. Inside */

/* ---- the program's own log (program_log.c) ------------------------------------------------------------------------------- */

enum { IP_ADDRESS = 64 };
int ip_ends(struct ip_socket *s, char *local, char *peer); /* both addresses as text, each in IP_ADDRESS bytes. 0: one is not known */
void ip_tell_program(struct ip_socket *s, const char *event, const char *name, const char *value, const char *reason); /* Inside */

#pragma GCC visibility pop

#pragma GCC visibility push(default) /* the functions that follow in a file which includes this one */

#endif
