/* fastsock for a front end in C: TCP connections between processes of one host, over shared memory.
 *
 * A connection is a connected TCP socket of the program. It starts on kernel TCP, and moves to a region of shared memory when both ends
 * have one and agree. The calls below are the same on both paths. This is all that a front end includes. docs/design.md is a tour of the
 * internals, docs/protocol.md the protocol between two processes. tests/native/public.c is a small front end.
 *
 *     ./dev core                                                  makes build/core/libfastsock.a
 *     cc -I core/include program.c build/core/libfastsock.a -pthread
 *
 * The life of a connection
 *
 *     fs_begin(&front); fs_set_upgrade_config(&config);   once in a process
 *     c = fs_conn_init(memory);                  memory of fs_conn_size() bytes, which does not move
 *     fs_conn_begin(c, fd, 0)                          the socket is connected, or about to be
 *     fs_path_begin(c, operations, NULL, 0)      it looks for its peer after so many operations
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
 *     Bytes, 0 or 1, or -errno, as each function says. errno itself is not kept. FS_VIOLATED: the ring is broken beyond repair; the front
 *     end returns the result of fs_conn_reset to its program. A send without MSG_NOSIGNAL on a broken connection raises SIGPIPE, as send(2)
 *     does. */
#ifndef FASTSOCK_FASTSOCK_H
#define FASTSOCK_FASTSOCK_H

#include "fastsock_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the process ---------------------------------------------------------------------------------------------- */

/* Returns the kernel's monotonic time, ns. [any] */
int64_t fs_now(void);

/* Memory, as malloc(3) and free(3), for signal handlers and for children of a fork past pthread_atfork(3) too. [any] */
void *fs_allocate(size_t room);
void fs_release(void *memory);

/* Has the core call these functions from now on. Before any other function of this header. [any] */
void fs_set_calls(const struct fs_calls *calls);

/* Begins the process, before its first connection; installs the handlers that count a forked child as a holder of its connections.
 * Returns 0, or pthread_atfork's errno. [any] */
int fs_begin(const struct fs_front_end *front);

/* This front end has no connection open, and opens no more. [host lock] */
void fs_end(void);

/* Applies settings, whole, to all connections that have not moved yet. Returns NULL, or why the rendezvous_dir is not used. [host lock] */
const char *fs_set_upgrade_config(const struct fs_upgrade_config *config);
void fs_set_limits(const struct fs_limits *limits);

/* Applies the setting at once, to all connections. [host lock] */
void fs_set_trust(const struct fs_trust *given);

/* Sets how long a wait may spin before it sleeps, ns; 0: never. [host lock] */
void fs_set_spin(int64_t longest);

/* The longest accept queue that a listener of the program has asked for: as many published names are accepted at once. [host lock] */
void fs_set_backlog(int length);

/* ---- the life of a connection --------------------------------------------------------------------------------- */

/* The bytes that a connection's memory needs. [any] */
size_t fs_conn_size(void);

/* Prepares memory of fs_conn_size() bytes, aligned to 64, for a connection. Again for each one that uses it. Until fs_conn_begin no call begins
 * there, so a front end that looks connections up without a lock may look at it whatever others do meanwhile. Returns the connection,
 * which is at the memory's beginning. [any] */
struct fs_connection *fs_conn_init(void *memory);

/* A front end may keep a connection *early* until it has made enough operations to look for its peer, since many end before that. Of an early
 * connection the core has its number, and a count of its operations. Its calls are the kernel's, and none of them is between fs_call_enter and
 * fs_call_exit. fs_conn_begin ends that, with this number.
 *
 * Begins it; fs_path_begin follows. [host lock] */
void fs_early_begin(struct fs_connection *c, int fd);

/* Counts an operation. Returns true, and has not counted it, if fs_conn_begin is due. [any] */
int fs_early_operate(struct fs_connection *c);

/* It is closed, and was early to its end. [host lock] */
void fs_early_end(struct fs_connection *c);

/* Opens a connection on kernel TCP for the descriptor `fd`, whose inode is `inode` (0: asked for when it is needed). Returns 0; or -ENOMEM,
 * and it is not open. [host lock] */
int fs_conn_begin(struct fs_connection *c, int fd, uint64_t inode);

/* Begins a call. Returns true if the connection has not ended, so that the call may touch it. The memory stays until fs_call_exit with
 * the same `call`, which must not move meanwhile. [any] */
int fs_call_enter(struct fs_connection *c, struct fs_call *call);

/* What is left to do at the end of a call, or of a pin. */
enum fs_exit_action {
    FS_EXIT_NOTHING,
    FS_EXIT_RELEASE, /* the connection has ended and has no user any more */
    FS_EXIT_CLOSE,   /* the program has closed the connection, and this was the last call inside: it has ended now */
};

/* Keeps the memory of a connection that has not ended, beyond calls. Returns 0 if it has ended. fs_unpin ends that; fs_after_exit does what
 * its result says, with no call. [any] */
int fs_pin(struct fs_connection *c);
enum fs_exit_action fs_unpin(struct fs_connection *c);

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
 * before: then the shutdown succeeds, whatever the kernel returns; 0 if not; -EINTR. [inside, without the host lock] */
int fs_conn_shutdown(struct fs_connection *c, int receiving, int sending);

/* Resets a connection whose ring is broken (FS_VIOLATED), by the peer or by this side. Returns the program's error, -ECONNRESET. [inside] */
int64_t fs_conn_reset(struct fs_connection *c);

/* (fs_is and fs_fd answer without a call: fastsock_types.h.) */

/* ---- the path -------------------------------------------------------------------------------------------------- */

/* Statistics of the sessions of one service: a port that this process listens on, or connects to. All zero: nothing is known. The front
 * end keeps it as long as connections have it, and reads `later`; the rest is the core's. */
struct fs_session_stats {
    double ended[FS_SESSION_LENGTHS];      /* sessions of each class of lengths; older ones count less */
    double operations[FS_SESSION_LENGTHS]; /* of those sessions */
    double found, missed;                  /* sessions whose search led to a move, and did not */
    double calls, messages;                /* on the ring: system calls to sleep and to wake, at both ends, and messages */
    uint32_t noted;                        /* sessions noted so far, up to the number needed for a decision */
    int64_t later;                         /* operations before which no session looks for its peer; 0: as the settings say */
    double lasting;                        /* the share of sessions that last (FS_SESSION_LASTING); older ones count less */
    uint32_t sessions;                     /* counted in it, up to 16 */
    int linked;                            /* sessions have moved, so that their peers and this process have regions in common; 0: not lately */
    int tried;                             /* searches in vain since then */
};

/* The path of a connection that is early or open: it looks for its peer after `operations` more operations, or later if moves have not paid for
 * `service` (NULL: unknown). `connecting`: a non-blocking connect is under way, and all that begins when it is over. [host lock] */
void fs_path_begin(struct fs_connection *c, int64_t operations, struct fs_session_stats *service, int connecting);

/* That connect is over, as the front end has seen by a call that succeeded. No effect if it was known. The kernel is asked only when the
 * connection would look for its peer. [host lock] */
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
    int failed;    /* FS_STEP_TCP for lack of resources: the failure; 0: unknown */
    int no_thread; /* why the control thread could not be restarted; 0: it was, or need not be */
    const char *violation;
};

/* Takes the next step of an undecided connection: looks at a connect under way, starts the search, goes on with it, attaches. `hooks`
 * NULL: pollers are told (`polls` of struct fs_front_end). Does not block, but for a lock when it attaches. One thread at a time takes a
 * step; for another one nothing happens. [host lock, inside] */
void fs_step(struct fs_connection *c, const struct fs_attach_hooks *hooks, struct fs_step_result *result);

/* Calls on the number of a connection that a loop drives are the program's from now on, and pollers are told of it. `loop`: the hooks of its
 * step. 0, or -errno: there is no room for that, and the loop drives it as before; -ENOTCONN: nobody does, as that has failed too. [host
 * lock, inside] */
int fs_leave_loop(struct fs_connection *c, const struct fs_attach_hooks *loop);

/* Keeps a connection on kernel TCP that is not on the ring yet; `searching`: if it is looking for its peer, which gives back its descriptors.
 * Returns 1 if that decided it. [host lock] */
int fs_stay_on_tcp(struct fs_connection *c, enum fs_reason reason, int searching);

/* Both ends are this process's, and a fork is about to share them: they attach without a search, if they may move. [host lock, inside both] */
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
 * FS_CANNOT_FALL_BACK if resources are missing, and it stays on the ring; -EINTR. Blocks until the peer has answered, some seconds at most.
 * [host lock, inside] */
int fs_fall_back(struct fs_connection *c, const struct fs_fallback_hooks *hooks, int64_t *bridge);

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

enum fs_final {
    FS_NOT_FINAL = 0,
    FS_FINAL = 1,   /* the caller has nothing else to try and needs to know if the peer is lost (a system call) */
    FS_IF_TOLD = 2, /* FS_FINAL for a caller that goes to sleep: unless the control thread would have reported it since */
};

/* The flags of recv that are supported here. MSG_OOB and MSG_ERRQUEUE need the kernel; others mean nothing to TCP. */
enum { FS_RECEIVE_FLAGS = MSG_PEEK | MSG_DONTWAIT | MSG_NOSIGNAL | MSG_TRUNC | MSG_WAITALL | MSG_CMSG_CLOEXEC };

enum { FS_POLLS_FIRST = 1 << 23 }; /* a flag of fs_try_send beside MSG_*, not the kernel's: the caller waits for credits */

/* Receives without blocking. `final`: enum fs_final. `flags`: MSG_PEEK, MSG_TRUNC, and flags for the kernel. Returns bytes, 0 at the end of
 * the stream, -EAGAIN if there is nothing, another -errno as TCP would give it, or FS_VIOLATED. [inside] */
int64_t fs_try_recv(struct fs_connection *c, char *into, size_t room, int flags, int final);

/* Sends without blocking. Returns the bytes accepted; -EAGAIN if there is no credit or no room, another -errno as TCP would give it, or
 * FS_VIOLATED. With MSG_OOB what this side sends goes through the kernel from now on. Other `flags` beside FS_POLLS_FIRST matter to the
 * kernel only. [inside] */
int64_t fs_try_send(struct fs_connection *c, const char *data, size_t length, int flags);

/* The same for several pieces: `length` bytes of them, after the first `skip`. On the ring they are one message. The kernel gets fewer, if there
 * are many pieces: fs_kernel_part returns how many bytes. [inside] */
int64_t fs_try_send_pieces(struct fs_connection *c, const struct iovec *v, size_t skip, size_t length, int flags);
size_t fs_kernel_part(const struct iovec *v, size_t skip, size_t length); /* [any] */

/* Returns true if a wait may be the kernel's own blocking call (the next three functions): nobody moves the connection meanwhile, so the
 * bytes come there. `alone`: this thread is the only one. [inside] */
int fs_may_sleep_in_kernel(struct fs_connection *c, int alone);

/* Spins for the budget on kernel TCP; each attempt is a recv. Returns as recv, -EAGAIN if nothing came: the caller handles signals before
 * it sleeps. `*spun` is set if there was a budget. Unlocks the host lock. [inside] */
int64_t fs_receive_polling(struct fs_connection *c, char *into, size_t room, int flags, int *spun);

/* recv and sendmsg, which block. They unlock the host lock meanwhile. `spun`: this wait has spun in vain. Return bytes, 0 at the end of the
 * stream, or -errno. [inside] */
int64_t fs_receive_asleep(struct fs_connection *c, char *into, size_t room, int flags, int spun);
int64_t fs_send_asleep(struct fs_connection *c, const struct iovec *v, size_t skip, size_t length, int flags);

/* Returns the bytes in the ring that are unread here (FS_RECEIVE, FIONREAD), or at the peer (FS_SEND, SIOCOUTQ: as far as the kernel of its kind
 * counts them); -1 if this side does not receive from the ring, or send into it. [inside] */
int64_t fs_unread(struct fs_connection *c, int what);

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

/* Sleeps until something may have happened. Returns 1: check again, 0: the deadline (monotonic ns, negative: none) has passed, -EINTR: a
 * signal ended the sleep. `change` reports changed descriptors; NULL if no other thread can change one. [inside, without the host lock] */
int fs_sleep(struct fs_connection *c, int what, int64_t deadline, struct fs_fd_change *change);

/* Before this thread sleeps, if the process has other threads. Returns NULL if there is no descriptor, and the sleep may be deaf.
 * fs_fd_change_unsubscribe follows the sleep, before the number is looked at again. [any] */
struct fs_fd_change *fs_fd_change_subscribe(void);
void fs_fd_change_unsubscribe(struct fs_fd_change *joined);

/* Sleeps for 50 us, for a call that peeks and wants more bytes. Returns true if more may still come. [inside, without the host lock] */
int fs_wait_for_more(struct fs_connection *c);

/* Wakes all sleepers of this side, in all its processes; they check again, at the kernel too. [inside] */
void fs_wake_local(struct fs_connection *c);

/* Counts calls that are in the kernel's own blocking call (1: one enters, -1: it returns): nobody moves the connection meanwhile. For
 * calls of the front end's own; those of this header count themselves. [inside] */
void fs_note_in_kernel(struct fs_connection *c, int calls);

/* Returns the result of a call that has done `done` bytes and cannot go on; `why` is FS_VIOLATED or a negative errno. As
 * in the kernel, a call that has done a part returns that, and an error of the connection waits for the next call. A call that has done
 * nothing returns `why`. `done` -1: a receive of no bytes, whose wait has ended. [inside] */
int64_t fs_end_partial(struct fs_connection *c, int64_t done, int64_t why);

/* ---- options ------------------------------------------------------------------------------------------------------- */

/* Returns SO_RCVTIMEO (FS_RECEIVE) or SO_SNDTIMEO (FS_SEND) in nanoseconds, -1: not set; or true if O_NONBLOCK is set (FS_MODE). The first call
 * that needs the value asks the kernel, and the first one behind a change by whichever process has the connection. [inside] */
int64_t fs_wait_setting(struct fs_connection *c, int what);

/* The program is about to set an option at the kernel (`done` 0), or a flag of the number (level FS_FLAGS_LEVEL); or it has (1), and it counts on the
 * ring as well. Returns 0; or -EINTR with the kernel's value set. Takes both locks for a buffer's size. [inside] */
int fs_option_set(struct fs_connection *c, int level, int option, int done);

/* ---- epoll, poll and select ------------------------------------------------------------------------------------------- */

/* Pollers have no use for the host lock. The program's handlers are put off while a thread is in one of these functions, but for the time
 * between `before_sleep` and `after_sleep`. Returns the connection's place in pollers, also before it is open, and for a socket that may
 * become a connection. It is in the connection's memory. [any] */
struct fs_pollable *fs_pollable_of(struct fs_connection *c);

/* Whether data of the program's lie in the range that pollers use, so that fs_poller_ctl has to make the registration.
 * Async-signal-safe. [any] */
int fs_is_poller_data(uint64_t data);

/* A poller for the program's epoll instance `epoll`; or with -1 for a thread that polls. NULL and `*failed`: -errno. It takes no descriptor
 * before its first member is on the ring. [any] */
struct fs_poller *fs_poller_new(int epoll, int *failed);

/* The program is about to close the number by which the instance is known here. `epoll`: another one of it. [any] */
void fs_poller_set_number(struct fs_poller *p, int epoll);

/* The program is about to close the last number of the instance, or the thread ends. Who waits on it goes on waiting, as on the kernel's. [any] */
void fs_poller_end(struct fs_poller *p);

/* epoll_ctl. `it`: of a socket that is a connection or may become one; NULL: a descriptor of the kernel's. `event` is read as the kernel reads
 * it, and not at all by EPOLL_CTL_DEL. Returns 0, or as epoll_ctl. [any] */
int fs_poller_ctl(struct fs_poller *p, int op, int fd, struct fs_pollable *it, const struct epoll_event *event);

/* epoll_pwait2 by the number `epoll`, one of the instance's. `timeout`: ns, negative: for ever. `mask` is in force while the thread sleeps; NULL: the thread's own. Returns the number of
 * events, 0 when the time is over, -EINTR after a signal, or as epoll_wait. [any] */
int fs_poller_wait(struct fs_poller *p, int epoll, struct epoll_event *events, int max, int64_t timeout, const sigset_t *mask);

/* Before a wait. `sleeps`: its timeout is not 0. Returns true if no member is on the ring: the front end then calls the kernel's epoll_wait itself,
 * and fs_poller_end_kernel_wait with what that has returned. A member that moves to the ring meanwhile ends the sleep. [any] */
int fs_poller_begin_kernel_wait(struct fs_poller *p, int sleeps);

/* Behind that call: `events` become the program's. Returns how many they are, or `count` if that is 0 or less. 0 of more than 0 events: the wait
 * goes on by fs_poller_wait. [any] */
int fs_poller_end_kernel_wait(struct fs_poller *p, int sleeps, struct epoll_event *events, int count);

/* ppoll. `its`: for each of `fds` the pollable, or NULL for a descriptor of the kernel's. `p` is this thread's. The caller is inside each
 * connection that is named, also those that are not on the ring but may move. Returns the number of descriptors with events, 0 when the
 * time is over, or -errno. [inside] */
int fs_poller_poll(struct fs_poller *p, struct pollfd *fds, struct fs_pollable *const *its, nfds_t count, int64_t timeout,
                   const sigset_t *mask);

/* The descriptors that select names, as poll has them; `fds` has room for `count`. Returns how many. A NULL set is empty. [any] */
int fs_select_to_poll(int count, const fd_set *reads, const fd_set *writes, const fd_set *excepts, struct pollfd *fds);

/* What poll has found, as select tells it: the sets are rewritten. Returns how many bits are set, or -EBADF. [any] */
int fs_poll_to_select(const struct pollfd *fds, int n, int count, fd_set *reads, fd_set *writes, fd_set *excepts);

/* Somebody polls the instance's number, or has added it to another instance: from now on it is readable while a member is ready, between the
 * program's waits too. [any] */
void fs_poller_expose(struct fs_poller *p);

/* A send that does not wait got -EAGAIN or a part: the next room is an edge, as on kernel TCP (SOCK_NOSPACE). [any] */
void fs_poller_sent_part(struct fs_pollable *it);

/* The program closes the number `fd`, which means the socket still. `last`: no other number of this process means it. A member by that
 * number goes if it was the last one; otherwise it goes on to be told, and can no longer be changed, as in the kernel. Before the close.
 * [any] */
void fs_poller_close_number(struct fs_pollable *it, int fd, int last);

/* In a fork's parent, once the fork is over, for each poller: the child may take a wakeup that was meant for this process. [any] */
void fs_poller_forked(struct fs_poller *p);

/* In a forked child, for each poller, after fs_fork_in_child. What the parent had registered stays registered as long as it has the
 * sockets, whatever the child closes. [any] */
void fs_poller_after_fork(struct fs_poller *p);

/* Before these two, and of a poller that is made later: the bit by which processes that share the instance know it (ready/inherited.c). [any] */
void fs_poller_share(struct fs_poller *p, uint64_t family);

/* Stops the control thread: for a fork (fs_fork_prepare does), or because this process shall make no more calls of its own. None is started
 * before the fork is over. Several threads may do so at once: one joins the thread, and the others wait for that. Nobody waits long: a
 * thread that an untrusted user blocks in a call ends later, and holds no lock meanwhile. [host lock] */
void fs_control_thread_stop(void);

/* After each fs_control_thread_stop that no fork follows: it starts again if it is wanted. `renamed`: the process may be in another user
 * namespace by now, where the numbers of users mean others. [host lock] */
void fs_control_thread_resume(int renamed);

/* ---- forks ---------------------------------------------------------------------------------------------------------- */

/* This thread is about to fork. Forks come one after another: waits until none of another thread's is under way. Then stops the control
 * thread, and waits until no other thread attaches a connection. `bare`, here and below: the fork runs no handlers of pthread_atfork(3), as
 * _Fork(3) and clone(2). [host lock, which is unlocked meanwhile, and then kept until after the fork] */
void fs_fork_prepare(int bare);

/* The fork is over, in the parent; or did not happen, and errno says why. The control thread starts again if it was there and `starts`, else
 * with fs_start_control_thread. [host lock] */
void fs_fork_in_parent(int bare, int starts);
void fs_start_control_thread(void);

/* In the child, with this thread alone: it holds the connections now. For each of them fs_fork_restart follows, after an fs_call_enter
 * and fs_call_exit, which end a connection whose close waited for calls of threads that are not here. [host lock] */
void fs_fork_in_child(int bare);

/* In the child, for a connection: a search starts again once this process is the only holder, and requests of an attached one's peer are
 * answered here. [host lock] */
void fs_fork_restart(struct fs_connection *c);

/* ---- other programs ------------------------------------------------------------------------------------------------- */

/* 1: this thread is about to call execve(2), which closes what has not gone back to the kernel. Until it has succeeded, all goes on. Then the
 * kernel tells the peers, and this process counts no more as a holder. 0: execve has returned. One thread at a time. [1: host lock, which is
 * not kept; 0: any] */
void fs_expect_exec(int comes);

/* ---- statistics ------------------------------------------------------------------------------------------------------- */

/* Sets `sum` to the counters of a connection that is open; or (`c` NULL) of all of this process, those included that have ended. [host lock] */
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
