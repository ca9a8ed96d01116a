/* fastsock for a front end in C or C++: TCP connections between processes of one host, over shared memory.
 *
 * A connection is a connected TCP socket of the program. It starts on kernel TCP, and moves to a region of shared memory when both ends
 * have one and agree. The calls below are the same on both paths. This is all that a front end includes; it includes the parts:
 *
 *     fastsock_types.h   values and structures; what is answered without a call
 *     fastsock_reasons.h why a connection is on kernel TCP
 *     fastsock_poll.h    epoll, poll and select
 *     fastsock_fork.h    forks, execve(2), the control thread
 *
 * docs/design.md is a tour of the internals, docs/protocol.md the protocol between two processes. tests/native/public.c is a small echo
 * server and its client, of this header alone.
 *
 *     ./dev core                                                  makes build/core/libfastsock.a
 *     cc -I core/include program.c build/core/libfastsock.a -pthread
 *
 * The life of a connection
 *
 *     fs_begin(&front); fs_set_upgrade_config(&config);   once in a process
 *     c = fs_conn_init(memory);                  memory of fs_conn_size() bytes, which does not move
 *     fs_early_begin(&early, fd, operations, NULL, 0)  the socket is connected, or about to be
 *     fs_conn_begin(c, fd, 0, &early, 0)         it looks for its peer after so many operations
 *     fs_call_enter(c, &call)                    each call of the program
 *         if (fs_operate(c)) fs_step(c, NULL, &result);     with the host lock
 *         fs_try_recv(..), fs_try_send(..)
 *     after = fs_call_exit(c, &call);            and with the host lock, if it is not FS_EXIT_NOTHING:
 *     fs_after_exit(c, &call, after)             1: the memory is free
 *     if (fs_close_last_fd(c, fd)) fs_finish(c); inside a call, before close(2) on the last number
 *
 * A blocking receive, with the deadline in monotonic nanoseconds (negative: none):
 *
 *     while ((got = fs_try_recv(c, into, room, 0, FS_FINAL)) == -EAGAIN)
 *         if (!fs_spin(c, FS_RECEIVE) && fs_sleep(c, FS_RECEIVE, deadline, change) != 1) break;
 *
 * `change` is NULL in a program with one thread. With more, another thread may give the descriptor's number to another file meanwhile:
 * call fs_fd_change_subscribe before the sleep and fs_fd_change_unsubscribe after it. A blocking send does the same with fs_try_send and
 * FS_SEND, and continues after the accepted bytes. fs_may_wait applies the program's options and timeouts, and fs_end_partial gives the
 * result of a call that ends early.
 *
 * Locks
 *
 *     The host lock keeps the front end's threads apart: a mutex, or nothing in a program with one thread. Functions marked
 *     [host lock] need it. They may unlock it (`unlock` of struct fs_front_end) while they wait for another thread or process, and
 *     have it again when they return. Functions marked [inside] are called between fs_call_enter and fs_call_exit, which needs no lock.
 *     Functions marked [any] need neither. A function may be called with the host lock held unless it says otherwise.
 *
 * Which calls block
 *
 *     Those that say so, and no others. A function that takes a lock of the connection gives up after some 20 ms, if its holder is
 *     stopped, with nothing done: -EAGAIN from fs_try_*, else -EINTR. The caller runs its signal handlers and calls again.
 *
 * Results
 *
 *     Bytes, 0 or 1, or -errno, as each function says; "Errors" lists the values of errno. errno itself is not kept. FS_VIOLATED: the ring
 *     is broken beyond repair; the front end returns the result of fs_conn_reset to its program. A send without MSG_NOSIGNAL on a broken
 *     connection raises SIGPIPE, as send(2) does. A function without a list of errors cannot fail.
 *
 * Signal handlers
 *
 *     A handler may call fs_now, fs_allocate, fs_release, fs_is, fs_fd, fs_is_poller_data, fs_path_is_undecided, fs_reason_of,
 *     fs_reason_name, fs_reason_text, fs_wait_limit_of, fs_wait_deadline and fs_wait_spent. Others take a lock that the interrupted thread
 *     may have, or ask for the host lock. A front end whose handlers use connections puts them off while their thread is in one of those
 *     functions, and lets them run where it sleeps: in the calls of struct fs_calls (interpose/signals.c is an example), or in a wait
 *     with a mask (fs_poller_wait, fs_poller_poll). fs_sleep and the functions that block return -EINTR after a handler has run.
 *
 * Lifetimes
 *
 *     What a function is given by a pointer is copied, or used during the call only, but for
 *         the memory of a connection  from fs_conn_init until fs_after_exit or FS_EXIT_RELEASE of fs_unpin says that it is free
 *         struct fs_call              from fs_call_enter until fs_call_exit, and until fs_after_exit if that is due
 *         struct fs_service           and its statistics, as long as the memory of each connection that has it
 *         arrays of struct fs_limits  until the next fs_set_limits
 *         functions of fs_front_end   until fs_end; until the next fs_begin
 *     Strings that a function returns last for ever. */
#ifndef FASTSOCK_FASTSOCK_H
#define FASTSOCK_FASTSOCK_H

#include "fastsock_fork.h"
#include "fastsock_poll.h"
#include "fastsock_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the process ---------------------------------------------------------------------------------------------- */

/* Returns the kernel's monotonic time, ns. [any] */
int64_t fs_now(void);

/* malloc(3) and free(3), for signal handlers and for children of a fork past pthread_atfork(3) too. fs_allocate returns NULL if there is no
 * memory. [any] */
void *fs_allocate(size_t room);
void fs_release(void *memory);

/* Has the core call these functions from now on. Called before any other function of this header. [any] */
void fs_set_calls(const struct fs_calls *calls);

/* Begins the process, before its first connection; installs the handlers that count a forked child as a holder of its connections. Called
 * again, with or without an fs_end before, it replaces the front end's functions and does nothing else. Returns 0, or an errno.
 * Errors: ENOMEM (positive, as pthread_atfork(3) returns it). [any] */
int fs_begin(const struct fs_front_end *front);

/* The front end has no connection open, and opens no more. Its functions are not called from now on. [host lock] */
void fs_end(void);

/* Applies settings, whole, to all connections that have not moved yet. [host lock] */
void fs_set_upgrade_config(const struct fs_upgrade_config *config);
void fs_set_limits(const struct fs_limits *limits);

/* Applies the settings at once, to all connections and groups. Returns NULL, or why the rendezvous_dir is not used. [host lock] */
const char *fs_set_trust(const struct fs_trust *given);

/* Sets how long a wait may spin before it sleeps, ns; 0: never. [host lock] */
void fs_set_spin(int64_t longest);

/* The longest accept queue that a listener of the program has asked for: as many published names are accepted at once. [host lock] */
void fs_set_backlog(int length);

/* ---- the life of a connection --------------------------------------------------------------------------------- */

/* The bytes that a connection's memory needs. [any] */
size_t fs_conn_size(void);

/* Prepares memory of fs_conn_size() bytes, aligned to 64, for a connection; called again for each one that uses it. Until fs_conn_begin no
 * call begins there, so a front end that looks connections up without a lock may look at it whatever others do meanwhile. Returns the
 * connection, which is at the memory's beginning. [any] */
struct fs_connection *fs_conn_init(void *memory);

/* Statistics of the sessions of one service: a port that this process listens on, or connects to. All zero: nothing is known. The front
 * end may keep it in memory that forked processes share: several processes may write it at once, since all of it is a hint. */
struct fs_session_stats {
    double ended[FS_SESSION_LENGTHS];      /* sessions of each class of lengths; older ones count less */
    double operations[FS_SESSION_LENGTHS]; /* of those sessions */
    double found, missed;                  /* sessions whose search led to a move, and did not */
    double calls, messages;                /* on the ring: system calls to sleep and to wake, at both ends, and messages */
    uint32_t noted;                        /* sessions noted so far, up to the number needed for a decision */
    int64_t later;                         /* operations before which no session looks for its peer; 0: as the settings say */
    double lasting;                        /* the share of sessions that last (FS_SESSION_LASTING); older ones count less */
    uint32_t sessions;                     /* counted in it, up to 16 */
};

/* A service as this process knows it. All but `stats` and `given` is the core's. */
struct fs_service {
    struct fs_session_stats *stats;
    int linked; /* sessions of this process have moved, so their peers and it have regions in common; 0: not lately */
    int tried;  /* searches in vain since then */
    int given;  /* the front end's: connections in turn that this process has closed unused after a fork */
};

/* A connection begins *early*: it has made too few operations to look for its peer, and most end before that. Its calls are the kernel's,
 * the front end counts them, and this is all that there is of it. The core's but for `allowed`. All zero before the first connection; the
 * next one may use it as it is. Where one has ended early the memory stays for ever: the control thread may look at it. */
struct fs_early {
    struct fs_service *service;
    uint32_t operations; /* after which it looks for its peer, unless its service says otherwise */
    uint32_t allowed;    /* so many operations it may make: with the next one fs_conn_begin is due */
    int entry;           /* 1 + its slot in the connection table; 0: none */
    fs_word32 shown;     /* 1 + its number; 0: there is no connection. Relaxed, as */
    fs_word32 reason;    /* enum fs_reason, as which it counts */
    char counted;        /* as opened: its connect is over */
    char meets;          /* it may find its peer at once, by a region that both processes have: it may be opened and take a step */
};

/* Begins a connection. It looks for its peer after `operations` operations, or later if moves have not paid for `service` (NULL: unknown).
 * `connecting`: a non-blocking connect is under way. (Where `meets` is set, the service's sessions have moved, so their numbers are used by
 * calls of the front end.) [host lock] */
void fs_early_begin(struct fs_early *e, int fd, int64_t operations, struct fs_service *service, int connecting);

/* That connect is over. No effect if it was known. [host lock] */
void fs_early_connected(struct fs_early *e);

/* Returns true if fs_conn_begin is not due yet after all, and one more operation is allowed: nothing has come of what its first operation
 * would find. (The ends of a stream of AF_UNIX are not known yet then.) [host lock] */
int fs_early_waits(struct fs_early *e, int is_tcp);

/* Ends a connection that is closed after `made` operations, and was early to its end. [host lock] */
void fs_early_end(struct fs_early *e, uint32_t made);

/* Opens a connection on kernel TCP for the descriptor `fd`, which was early until now and has made `made` operations. `unset`: enum
 * fs_options, those that nobody has set on the socket, or on the one that it was accepted from, and what is known of it; the kernel is
 * asked for the others. Returns 0 or -errno, and it is not open then. Errors: ENOMEM. [host lock] */
int fs_conn_begin(struct fs_connection *c, int fd, uint32_t unset, struct fs_early *e, uint32_t made);

/* Begins a call. Returns true if the connection has not ended, so that the call may touch it. The connection's memory stays until
 * fs_call_exit with the same `call`, which must not move meanwhile. Calls of a thread nest. [any] */
int fs_call_enter(struct fs_connection *c, struct fs_call *call);

/* What is left to do at the end of a call, or of a pin. */
enum fs_exit_action {
    FS_EXIT_NOTHING,
    FS_EXIT_RELEASE, /* the connection has ended and has no user any more */
    FS_EXIT_CLOSE,   /* the program has closed the connection, and this was the last call inside: it has ended now */
};

/* Ends a call. fs_after_exit does what the result says. [inside] */
enum fs_exit_action fs_call_exit(struct fs_connection *c, struct fs_call *call);

/* Does what fs_call_exit of this call has asked for: finishes a connection that was closed with calls inside, and closes the number that
 * it had for that time; frees what a connection has that nobody uses any more. Returns 1 if its memory is the caller's again. May block
 * for a lock. [host lock] */
int fs_after_exit(struct fs_connection *c, struct fs_call *call, enum fs_exit_action after);

/* Makes sure that the number is still the socket's and its inode is known. Before anything depends on it: a second number. Returns
 * 0 if the descriptor is closed, or is no socket any more. [host lock] */
int fs_conn_identify(struct fs_connection *c);

/* Makes `fd` the connection's descriptor, -1: none. Afterwards no call inside uses the old number under a lock. May block for a lock.
 * [host lock, inside] */
void fs_set_fd(struct fs_connection *c, int fd);

/* Closes the connection's last number `fd`. The kernel keeps a connection open while a call is in progress on it; likewise this function
 * gives the connection a reserved number for that time. Returns 1 if the connection has ended by this call: the caller calls fs_finish,
 * ends its call, and then closes `fd`. Returns 0 if not: the caller only ends its call. [host lock, inside] */
int fs_close_last_fd(struct fs_connection *c, int fd);

/* Ends the connection in any case, whatever calls are inside. Returns 1 if it had not ended: the caller calls fs_finish. [inside] */
int fs_note_ended(struct fs_connection *c);

/* Closes a connection that has ended; once, by the caller that ended it. The last holder sends FIN, or a reset if bytes lie unread. Notes
 * the session and the counters. May block for a lock. [host lock, inside] */
void fs_finish(struct fs_connection *c);

/* The connection is finished, and its owner closes the descriptor now: other calls that are inside use the number no more. May block for
 * a lock. [host lock, inside] */
void fs_lose_fd(struct fs_connection *c);

/* Posts FIN to the ring, before shutdown(2) on the descriptor, which fs_wake_local follows. Returns 1 if the connection was established
 * before: then the shutdown succeeds, whatever the kernel returns; 0 if not; or -errno.
 * Errors: EINTR (a lock's holder is stopped). [inside, without the host lock] */
int fs_conn_shutdown(struct fs_connection *c, int receiving, int sending);

/* Resets a connection whose ring is broken (FS_VIOLATED), by the peer or by this side. Returns the program's error, -ECONNRESET.
 * [inside] */
int64_t fs_conn_reset(struct fs_connection *c);

/* ---- the path -------------------------------------------------------------------------------------------------- */

/* The connect that was under way is over, as the front end has seen by a call that succeeded. No effect if it was known. The kernel is
 * asked only when the connection would look for its peer. [host lock] */
void fs_path_connected(struct fs_connection *c);

/* Counts an operation of the program, while that matters. Returns true if a step is due. [inside] */
int fs_count_operation(struct fs_connection *c);
static inline int fs_operate(struct fs_connection *c) {
    return !__atomic_load_n(&((const struct fs_conn_head *)(const void *)c)->settled, __ATOMIC_RELAXED) && fs_count_operation(c);
}

/* Returns true if neither kernel TCP nor the ring is decided: the connection may still move. [any] */
int fs_path_is_undecided(const struct fs_connection *c);

/* The functions that allocate and free a connection's slot in an event set around its attachment, for a loop that waits for many. */
struct fs_attach_hooks {
    int (*watch)(void *whose, struct fs_connection *c); /* 0, or a failure, and the connection does not attach */
    void (*ignore)(void *whose, struct fs_connection *c);
    void *whose;
};

/* The result of a step, for the front end to report and to act on. */
enum fs_step_outcome {
    FS_STEP_PENDING,
    FS_STEP_MOVED,  /* this end has consented */
    FS_STEP_TCP,    /* on kernel TCP; the path has the reason */
    FS_STEP_BROKEN, /* the same by a fault, `violation`, of the peer or of this side. The connection has been reset */
};
struct fs_step_result {
    enum fs_step_outcome what;
    int failed;    /* FS_STEP_TCP for lack of resources, as -errno: EMFILE, ENFILE, ENOMEM, ENOSPC and others of the kernel's; 0: unknown */
    int no_thread; /* why the control thread could not be restarted: -errno, or below -4095 if none can be made; 0: nothing failed */
    const char *violation;
};

/* Takes the next step of an undecided connection: looks at a connect under way, starts the search, goes on with it, attaches. `hooks`
 * NULL: pollers are told (`polls` of struct fs_front_end). Does not block, but for a lock when it attaches. One thread at a time takes a
 * step; for another one nothing happens. [host lock, inside] */
void fs_step(struct fs_connection *c, const struct fs_attach_hooks *hooks, struct fs_step_result *result);

/* Keeps a connection on kernel TCP that is not on the ring yet; `searching`: only if it is looking for its peer, which gives back its
 * descriptors. Returns 1 if that decided it. [host lock] */
int fs_stay_on_tcp(struct fs_connection *c, enum fs_reason reason, int searching);

/* Both ends are this process's, and a fork is about to share them: they attach without a search, if they may move. [host lock, inside
 * both] */
void fs_join_pair(struct fs_connection *one, struct fs_connection *other);

/* Returns why the connection is on kernel TCP; FS_REASON_NONE on the ring. [any] */
enum fs_reason fs_reason_of(const struct fs_connection *c);

/* Returns what has broken the connection's ring, "" if nothing has. `*own`: it is this side's fault, and not the peer's. [inside] */
const char *fs_violation_of(const struct fs_connection *c, int *own);

/* Waits a moment for the other end of a connection that is searching, or that has consented alone: for tests (`waits`). Returns 1 if the
 * caller shall take a step and call again; 0 if there is nothing to wait for any more, or it has waited for `longest` ns in all. Unlocks
 * the host lock and sleeps for 50 us. [host lock, inside] */
int fs_await_peer(struct fs_connection *c, int64_t longest);

/* What a fallback asks of the front end. `list` writes at most `room` of the connection's descriptors in this process, and returns how many
 * there are. `keep` is for a connection that a loop's transport drives: the transport delivers the `size` bytes of the file `unread`, which
 * is open during the call, before all that follows. Returns 0 on failure. NULL if no transport drives connections here. */
struct fs_fallback_hooks {
    int (*list)(void *whose, int *numbers, int room);
    int (*keep)(void *whose, int unread, uint64_t size);
    void *whose;
};

enum fs_fall_back_outcome { FS_CANNOT_FALL_BACK = 0, FS_NOW_IN_KERNEL = 1, FS_FELL_BACK_BROKEN = 2 };

/* The fallback, before somebody else reads and writes the descriptor: the connection goes back to the kernel, and stays there. If the
 * peer cannot help, the near end of a bridge replaces the kernel connection, and `*bridge` is its process id, else 0. Returns
 * FS_NOW_IN_KERNEL, also for a connection that was never on the ring; FS_FELL_BACK_BROKEN if bytes were lost and the connection was reset;
 * FS_CANNOT_FALL_BACK if resources are missing, and it stays on the ring; or -errno. Blocks until the peer has answered, some seconds at
 * most.
 * Errors: EINTR (a lock's holder is stopped): the connection is where it was. [host lock, inside] */
int fs_fall_back(struct fs_connection *c, const struct fs_fallback_hooks *hooks, int64_t *bridge);

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

enum fs_final {
    FS_NOT_FINAL = 0,
    FS_FINAL = 1,   /* the caller has nothing else to try and needs to know if the peer is lost (a system call) */
    FS_IF_TOLD = 2, /* FS_FINAL for a caller that goes to sleep: unless the control thread would have reported it since */
};

/* The flags of recv that are supported here. MSG_OOB and MSG_ERRQUEUE need the kernel; others mean nothing to TCP. */
enum { FS_RECEIVE_FLAGS = MSG_PEEK | MSG_DONTWAIT | MSG_NOSIGNAL | MSG_TRUNC | MSG_WAITALL | MSG_CMSG_CLOEXEC };

/* Flags of fs_try_send beside MSG_*, not the kernel's. */
enum {
    FS_POLLS_FIRST = 1 << 23, /* the caller waits for credits */
    FS_TRIES_AGAIN = 1 << 24,  /* this call has tried before, and found no room for all */
};

/* Receives without blocking. `final`: enum fs_final. `flags`: MSG_PEEK, MSG_TRUNC, and flags for the kernel. Returns bytes, 0 at the end of
 * the stream, FS_VIOLATED, or -errno.
 * Errors: EAGAIN (nothing is there, or a lock's holder is stopped); as TCP gives them, each once: ECONNRESET, ECONNREFUSED, EHOSTUNREACH,
 * ENETUNREACH, ETIMEDOUT; of recv(2) on kernel TCP: EBADF, EFAULT, EINVAL, ENOMEM, ENOTCONN. [inside] */
int64_t fs_try_recv(struct fs_connection *c, char *into, size_t room, int flags, int final);

/* Sends without blocking. Returns the bytes accepted, FS_VIOLATED, or -errno. With MSG_OOB what this side sends goes through the kernel
 * from now on. Other `flags` beside FS_POLLS_FIRST and FS_TRIES_AGAIN matter to the kernel only.
 * Errors: EAGAIN (no credit or no room, or a lock's holder is stopped); as TCP gives them: EPIPE, and ECONNRESET, ECONNREFUSED,
 * EHOSTUNREACH, ENETUNREACH, ETIMEDOUT, each once; of send(2) on kernel TCP: EBADF, EFAULT, EINVAL, ENOBUFS, ENOMEM, ENOTCONN. [inside] */
int64_t fs_try_send(struct fs_connection *c, const char *data, size_t length, int flags);

/* The same for several pieces: `length` bytes of them, after the first `skip`. On the ring they are one message. The kernel gets fewer, if
 * there are many pieces: fs_kernel_part returns how many bytes. Errors: those of fs_try_send. [inside] */
int64_t fs_try_send_pieces(struct fs_connection *c, const struct iovec *v, size_t skip, size_t length, int flags);
size_t fs_kernel_part(const struct iovec *v, size_t skip, size_t length); /* [any] */

/* Returns true if a wait may be the kernel's own blocking call (the next three functions): nobody moves the connection meanwhile, so the
 * bytes come there. `alone`: this thread is the only one. [inside] */
int fs_may_sleep_in_kernel(struct fs_connection *c, int alone);

/* Spins for the budget on kernel TCP; each attempt is a recv. Returns bytes, 0 at the end of the stream, or -errno: the caller handles
 * signals before it sleeps. `*spun` is set if there was a budget. Unlocks the host lock.
 * Errors: EAGAIN (nothing came), and those of recv(2). [inside] */
int64_t fs_receive_polling(struct fs_connection *c, char *into, size_t room, int flags, int *spun);

/* recv and sendmsg, which block. They unlock the host lock meanwhile. `spun`: this wait has spun in vain. Return bytes, 0 at the end of the
 * stream, or -errno.
 * Errors: EINTR (a signal), EAGAIN (SO_RCVTIMEO or SO_SNDTIMEO is over), and those of recv(2) and sendmsg(2). [inside] */
int64_t fs_receive_asleep(struct fs_connection *c, char *into, size_t room, int flags, int spun);
int64_t fs_send_asleep(struct fs_connection *c, const struct iovec *v, size_t skip, size_t length, int flags);

/* Returns the bytes in the ring that are unread here (FS_RECEIVE, FIONREAD), or at the peer (FS_SEND, SIOCOUTQ: as far as the kernel of its
 * kind counts them); -1 if this side does not receive from the ring, or send into it. [inside] */
int64_t fs_unread(struct fs_connection *c, int what);

/* Returns the error that SO_ERROR has to report and the kernel does not know, and clears it; 0: none. [inside] */
int fs_take_error(struct fs_connection *c);

/* ---- waits -------------------------------------------------------------------------------------------------------- */

/* Returns the limit of a call that has not waited yet. [any] */
static inline struct fs_wait_limit fs_wait_limit_of(int waits) {
    struct fs_wait_limit limit = {waits, FS_NOT_ASKED};
    return limit;
}

/* Returns true if a call that finds nothing to do may wait. [inside] */
int fs_may_wait(struct fs_connection *c, int what, struct fs_wait_limit *p);

/* Returns the end of the next wait, monotonic ns for fs_sleep; negative: none. Called after fs_may_wait. [any] */
int64_t fs_wait_deadline(const struct fs_wait_limit *p);

/* Subtracts a wait, which should have ended at `until`, from the option's time. [any] */
void fs_wait_spent(struct fs_wait_limit *p, int64_t until);

/* Spins for the budget until there is something to receive (FS_RECEIVE), or credit to send with (FS_SEND). Returns true if there is.
 * [inside, without the host lock] */
int fs_spin(struct fs_connection *c, int what);

/* Sleeps until something may have happened. Returns 1: check again; 0: the deadline (monotonic ns, negative: none) has passed; or -errno.
 * `change` reports changed descriptors; NULL if no other thread can change one. Blocks.
 * Errors: EINTR (a signal ended the sleep). [inside, without the host lock] */
int fs_sleep(struct fs_connection *c, int what, int64_t deadline, struct fs_fd_change *change);

/* Called before this thread sleeps, if the process has other threads. Returns NULL if there is no descriptor, and the sleep may miss a
 * change then. fs_fd_change_unsubscribe follows the sleep, before the number is looked at again. [any] */
struct fs_fd_change *fs_fd_change_subscribe(void);
void fs_fd_change_unsubscribe(struct fs_fd_change *joined);

/* Sleeps for 50 us, for a call that peeks and wants more bytes. Returns true if more may still come. [inside, without the host lock] */
int fs_wait_for_more(struct fs_connection *c);

/* Wakes all sleepers of this side, in all its processes; they check again, at the kernel too. [inside] */
void fs_wake_local(struct fs_connection *c);

/* A call begins to sleep in the kernel (1), which would not hear of what comes by the ring, or has returned (-1): nobody moves the
 * connection meanwhile. Returns 0 if another thread moves it just now (after 50 us), or has: then nothing has begun. Who asks whether
 * the call may be the kernel's (fs_may_sleep_in_kernel) does so after it has begun. [inside] */
int fs_note_in_kernel(struct fs_connection *c, int calls);

/* Returns the result of a call that has done `done` bytes and cannot go on; `why` is FS_VIOLATED or a negative errno. As
 * in the kernel, a call that has done a part returns that, and an error of the connection waits for the next call. A call that has done
 * nothing returns `why`. `done` -1: a receive of no bytes, whose wait has ended. [inside] */
int64_t fs_end_partial(struct fs_connection *c, int64_t done, int64_t why);

/* ---- options ------------------------------------------------------------------------------------------------------- */

/* Returns SO_RCVTIMEO (FS_RECEIVE) or SO_SNDTIMEO (FS_SEND) in nanoseconds, -1: not set; or true if O_NONBLOCK is set (FS_MODE). The first
 * call that needs the value asks the kernel, and the first one after a change by whichever process has the connection. [inside] */
int64_t fs_wait_setting(struct fs_connection *c, int what);

/* Called before the program sets an option at the kernel (`done` 0), or a flag of the number (level FS_FLAGS_LEVEL), and after that (1): it
 * counts on the ring as well. Returns 0, or -errno with the kernel's value set. Takes both locks for a buffer's size.
 * Errors: EINTR (a lock's holder is stopped). [inside] */
int fs_option_set(struct fs_connection *c, int level, int option, int done);

/* ---- statistics ------------------------------------------------------------------------------------------------------- */

/* Sets `sum` to the counters of a connection that is open; or (`c` NULL) of all of this process, those included that have ended. [host
 * lock] */
void fs_sum_counters(struct fs_connection *c, struct fs_counters *sum);

/* Returns how many connections of this process were counted on kernel TCP for this reason, on the ring for FS_REASON_NONE. A closed
 * connection stays counted. [host lock] */
int64_t fs_count_paths(enum fs_reason reason);

/* Return a reason's name in the source without the prefix, and its text for people. [any] */
const char *fs_reason_name(int reason);
const char *fs_reason_text(int reason);

#ifdef __cplusplus
}
#endif

#endif
