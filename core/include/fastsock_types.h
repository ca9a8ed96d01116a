/* Values and structures of fastsock.h, which includes this file, and what is answered without a call: fs_is, fs_fd. */
#ifndef FASTSOCK_TYPES_H
#define FASTSOCK_TYPES_H

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "fastsock_reasons.h"

#ifdef __cplusplus
typedef uint32_t fs_word32;
typedef uint64_t fs_word64;
#else
typedef _Atomic uint32_t fs_word32;
typedef _Atomic uint64_t fs_word64;
#endif

struct fs_connection; /* one end of a connection in this process */
struct fs_pollable;   /* its place in pollers */
struct fs_poller;     /* an epoll instance of the program, a thread that polls, or an event loop */
struct fs_fd_change;  /* tells a sleeper that its descriptor's number has changed */

enum { FS_FLAGS_LEVEL = -1 };             /* fs_option_set */
enum { FS_RECEIVE = 1, FS_SEND = 2, FS_MODE = 4 }; /* directions of a wait; and whether there is any (fs_wait_setting) */

/* What the core need not ask the kernel about a socket: options on which it acts, and that nobody has set. And what a front end knows. */
enum fs_options {
    FS_OPTION_BUFFERS = 1, /* SO_SNDBUF, SO_RCVBUF */
    FS_OPTION_TIMEOUTS = 2,
    FS_OPTION_LINGER = 4,
    FS_OPTION_NODELAY = 8,
    FS_OPTION_OTHER = 16, /* any that may keep it on kernel TCP */
    FS_OPTIONS = 31,
    FS_KNOWN_TCP = 32,   /* it is a TCP socket */
    FS_KNOWN_FRESH = 64, /* all bytes go through the front end, from the first one on; so nobody has to ask for how many there were */
};

#define FS_VIOLATED ((int64_t)-100000) /* the peer broke the protocol, or this side lost a part */

/* A call of this process that is inside a connection. A thread's calls form a chain, because a signal handler that runs inside one may
 * make another one, or fork: the child has this thread's calls and no others. */
struct fs_call {
    struct fs_connection *connection;
    struct fs_call *outer;
};

/* Counted at any time. A spin that ends within its first round adds nothing to `poll_ns`. `poll_unpaid_ns` is the time of spins that gave
 * up. `sleeps` are those on the ring; `system_calls` those made to sleep and to wake the peer. */
#define FS_COUNTERS(COUNTER) \
    COUNTER(bytes_sent) COUNTER(bytes_received) COUNTER(messages_sent) COUNTER(messages_received) \
    COUNTER(acks_alone) COUNTER(acks_piggybacked) COUNTER(sends_combined) COUNTER(doorbells_rung) COUNTER(polls_paid) \
    COUNTER(polls_unpaid) COUNTER(poll_ns) COUNTER(poll_unpaid_ns) COUNTER(sleeps) COUNTER(system_calls)
struct fs_counters {
#define FS_COUNTER(name) fs_word64 name;
    FS_COUNTERS(FS_COUNTER)
#undef FS_COUNTER
};

/* Returns a counter as it is now. [any] */
static inline uint64_t fs_counted(const fs_word64 *counter) {
    return __atomic_load_n((const uint64_t *)(const void *)counter, __ATOMIC_RELAXED);
}

/* Functions that the core calls instead of the C library's of the same names. NULL: the C library's. */
struct fs_calls {
    ssize_t (*read)(int fd, void *into, size_t room);
    ssize_t (*write)(int fd, const void *data, size_t length);
    ssize_t (*pread)(int fd, void *into, size_t room, off_t at);
    ssize_t (*recv)(int fd, void *into, size_t room, int flags);
    ssize_t (*send)(int fd, const void *data, size_t length, int flags);
    ssize_t (*sendto)(int fd, const void *data, size_t length, int flags, const struct sockaddr *to, socklen_t size);
    ssize_t (*recvmsg)(int fd, struct msghdr *message, int flags);
    ssize_t (*sendmsg)(int fd, const struct msghdr *message, int flags);
    int (*poll)(struct pollfd *fds, nfds_t count, int milliseconds);
    int (*ppoll)(struct pollfd *fds, nfds_t count, const struct timespec *time, const sigset_t *mask);
    int (*epoll_create1)(int flags);
    int (*epoll_ctl)(int epoll, int what, int fd, struct epoll_event *event);
    int (*epoll_pwait2)(int epoll, struct epoll_event *events, int most, const struct timespec *time, const sigset_t *mask);
    int (*futex)(void *word, int what, uint32_t value, const struct timespec *time);
    int (*nanosleep)(const struct timespec *time, struct timespec *rest);
    int (*socket)(int family, int type, int protocol);
    int (*socketpair)(int family, int type, int protocol, int ends[2]);
    int (*connect)(int fd, const struct sockaddr *to, socklen_t size);
    int (*accept4)(int fd, struct sockaddr *from, socklen_t *size, int flags);
    int (*shutdown)(int fd, int how);
    int (*getsockopt)(int fd, int level, int option, void *value, socklen_t *size);
    int (*setsockopt)(int fd, int level, int option, const void *value, socklen_t size);
    int (*eventfd)(unsigned start, int flags);
    int (*memfd_create)(const char *name, unsigned flags);
    int (*pidfd_open)(pid_t process, unsigned flags);
    int (*open)(const char *path, int flags);
    int (*close)(int fd);
    int (*dup3)(int from, int to, int flags);
    int (*fcntl)(int fd, int what, long argument);
    int (*ioctl)(int fd, unsigned long what, void *argument);
    int (*fallocate)(int fd, int mode, off_t from, off_t length);
    int (*close_range)(unsigned first, unsigned last, int flags);
    int (*prctl)(int what, const char *argument);
    pid_t (*clone)(int flags);
    pid_t (*waitpid)(pid_t process, int *status, int options);
    int (*pthread_create)(pthread_t *thread, const pthread_attr_t *how, void *(*body)(void *), void *argument);
};

/* What the core asks of its front end. NULL or 0 where it has nothing to say. */
struct fs_front_end {
    /* Releases the host lock if this thread has it, and returns what `lock` gets to take it again; NULL: this thread did not have it.
     * `lock` is called with no lock of the core held. */
    void *(*unlock)(void);
    void (*lock)(void *unlocked);
    /* Calls `body` with each connection that is open here, and with `with`. Called with the host lock, and in a fork. */
    void (*each)(void (*body)(struct fs_connection *c, void *with), void *with);
    /* A fork comes: what the front end has of its sockets alone, a child shall not have alone too. Called with the host lock. */
    void (*before_fork)(void);
    /* The program polls through pollers, so a connection is told to them before it attaches. */
    int polls;
    /* For pollers. Ends a call of theirs, with all that fs_call_exit may ask for. */
    void (*end_call)(struct fs_connection *c, struct fs_call *call);
    /* Waiting for `c` is an operation of the program, which fs_operate counts: in a forked child the first one has the peer ask this
     * process. Called in a call on `c`, and with no lock. */
    void (*operate)(struct fs_connection *c);
    /* Takes `c` off the ring, or keeps it on the kernel, for an instance that a fork has shared. Returns 0 if that cannot be. With no
     * lock. */
    int (*leave)(struct fs_connection *c);
    /* The thread is about to sleep in the kernel, and has no lock: the program's signal handlers may run from here until `after_sleep`, and
     * those that were put off run now. True if any ran: the wait ends with -EINTR. */
    int (*before_sleep)(void);
    void (*after_sleep)(void);
    int (*is_interrupted)(void); /* a handler waits to run in this thread: polling ends then. Called often: one load */
};

/* How an attached connection behaves. */
struct fs_flow_options {
    uint32_t ack_threshold; /* t; 1 acknowledges every descriptor */
    uint32_t combine_limit; /* largest send that is combined, bytes */
    int combine_when_full;  /* the last quarter of the window always combines */
};

/* The settings of the search. Connections that are searching follow them too. */
struct fs_upgrade_config {
    int window, chunk; /* of new regions */
    struct fs_flow_options flow;
    int64_t memory_cap; /* bytes */
    int64_t patience;   /* ns that a name is looked up before the peer counts as foreign, and that an answer is waited for */
    int waits;          /* operations may wait for the other end: they take steps even if no event is known */
};

enum { FS_RENDEZVOUS_DIR_MAX = 86 }; /* bytes of that path: the name of a socket follows (unix(7)) */
enum { FS_TRUSTED_USERS = 64 }; /* named users at most; fastsock/config.py says so to the user */

/* The settings `trust`, `rendezvous_dir` and `tcpdump`: the users whose processes may share memory with this one, where it finds some, and
 * whether they may look at its bytes. */
struct fs_trust {
    int any;               /* every user whom this user namespace has a number for */
    int self;              /* this process's own user, and root */
    int count;             /* of `users`, which are trusted by name */
    const uint32_t *users; /* copied */
    const char *rendezvous_dir; /* a folder that other network namespaces see, or NULL; copied. `trust` judges it */
    int hidden;            /* `fastsock tcpdump` gets nothing of this process */
};

struct fs_port_range {
    uint16_t first, last; /* both inclusive */
};

/* A network. An IPv4 network is stored as IPv4-mapped addresses, so `bits` is 96 more than its prefix length. */
struct fs_network {
    unsigned char address[16];
    int bits;
};

/* A path or a folder, or '@' and an abstract name, of stream sockets of AF_UNIX (sun_path, unix(7)). */
struct fs_path_pattern {
    int length;
    char text[108];
};

/* The settings of the same names: which connections may move. A connection has two ends; either one may exclude it, and either one may
 * allow it. The arrays stay the caller's until others replace them. */
struct fs_limits {
    const struct fs_port_range *ports_allowed, *ports_excluded;
    const struct fs_network *addresses_allowed, *addresses_excluded;
    const struct fs_path_pattern *paths_allowed, *paths_excluded;
    int ports_allowed_count, ports_excluded_count, addresses_allowed_count, addresses_excluded_count, paths_allowed_count,
        paths_excluded_count;
    int unix_streams; /* stream sockets of AF_UNIX may move, too */
};

enum { FS_SESSION_LENGTHS = 14 };

#define FS_NOT_ASKED ((int64_t)-2) /* a timeout that no wait has needed yet */

/* How long a call may wait: SO_RCVTIMEO and SO_SNDTIMEO count only the time spent waiting. */
struct fs_wait_limit {
    int waits;
    int64_t rest; /* of the option's time, ns; negative: not set, or FS_NOT_ASKED */
};

/* What fs_is answers. Hints, if threads run in parallel, but for FS_IS_ATTACHED. */
enum fs_conn_query {
    FS_IS_ATTACHED,       /* there is a region: it is on the ring, or about to go there, or has been */
    FS_IS_CLOSED,         /* the program has closed it, perhaps with calls inside */
    FS_IS_RECEIVING_RING, /* this side receives from the ring now. Attached */
    FS_IS_SENDING_RING,   /* this side sends into the ring now. Attached or not */
    FS_IS_OUT,            /* it has fallen back: somebody else reads and writes the descriptor */
    FS_IS_BACK,           /* one direction at least is the kernel's again */
    FS_IS_SHARED,         /* another process holds it too */
};

/* What fs_is and fs_fd read: the beginning of a connection and of its shared side. For them alone. */
struct fs_conn_head {
    uint32_t fd;
    int place;
    uint64_t inode;
    const struct fs_side_head *own;
    uint32_t settled, attached, broken, lost, death_told, pending_error, shut_receiving, shut_sending, driven, life, in_kernel;
};
struct fs_side_head {
    unsigned char locked[256];
    uint32_t moved, holders;
};

/* Bits of `life` and of `moved`. Others are the core's (core/conn/state.h, core/ring/ring.h). */
enum {
    FS_CLOSING = 1 << 29, /* closed by the program, with calls inside: the connection ends with the last of them */
    FS_ENDED = 1 << 30,   /* it has ended in this process: no call begins any more */
};
enum {
    FS_SENDING_MOVED = 1,
    FS_RECEIVING_MOVED = 2,
    FS_SENDING_BACK = 4, /* data is sent through the kernel again */
    FS_RECEIVING_BACK = 8,
    FS_OUT = 32, /* another program reads and writes the descriptor: nothing more is written to the region */
};

/* Answers a query about an open connection. `what` is a constant, so that it costs a load. [any; with FS_IS_SHARED, _OUT, _BACK and the
 * rings inside] */
static inline __attribute__((always_inline)) int fs_is(const struct fs_connection *c, enum fs_conn_query what) {
    const struct fs_conn_head *head = (const struct fs_conn_head *)(const void *)c;
    switch (what) {
    /* SYNC: attached - pairs with fs_note_attached. */
    case FS_IS_ATTACHED: return __atomic_load_n(&head->attached, __ATOMIC_ACQUIRE) != 0;
    case FS_IS_CLOSED: return (__atomic_load_n(&head->life, __ATOMIC_RELAXED) & (FS_CLOSING | FS_ENDED)) != 0;
    default: break;
    }
    /* SYNC: own side - pairs with fs_swap_to_bridge. */
    const struct fs_side_head *own = __atomic_load_n(&head->own, __ATOMIC_ACQUIRE);
    if (what == FS_IS_SHARED) return __atomic_load_n(&own->holders, __ATOMIC_RELAXED) > 1;
    /* SYNC: moved - pairs with change: the counts of a direction are stored before it has moved. */
    uint32_t moved = __atomic_load_n(&own->moved, __ATOMIC_ACQUIRE);
    if (what == FS_IS_SENDING_RING) return (moved & (FS_SENDING_MOVED | FS_SENDING_BACK)) == FS_SENDING_MOVED;
    if (what == FS_IS_RECEIVING_RING) return (moved & (FS_RECEIVING_MOVED | FS_RECEIVING_BACK)) == FS_RECEIVING_MOVED;
    if (what == FS_IS_BACK) return (moved & (FS_SENDING_BACK | FS_RECEIVING_BACK)) != 0;
    return (moved & FS_OUT) != 0;
}

/* Returns the descriptor; -1: none. Exact with the host lock; else the number of a moment ago. [any] */
static inline int fs_fd(const struct fs_connection *c) {
    return (int)__atomic_load_n(&((const struct fs_conn_head *)(const void *)c)->fd, __ATOMIC_RELAXED);
}

#endif
