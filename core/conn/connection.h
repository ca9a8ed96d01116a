/* One end of one connection in one process, on either path.
 *
 * All descriptors of the connection in this process share it; all processes that inherited the connection share its `own` state. A
 * connection starts on kernel TCP. fs_attach gives it a region; from then on each direction switches when its sender finds the peer's
 * consent (`ready`) and has recorded the offset in the kernel's stream.
 *
 * Functions called fs_try_* never block. They return bytes, 0 at the end of the stream, or a negative errno, which may be FS_VIOLATED.
 * Their callers are inside (fs_call_enter, fs_call_exit), so that the connection stays. */
#pragma once

#include "os/host.h"
#include "os/fd_reserve.h"
#include "os/syscalls.h"
#include "ring/doorbell.h"
#include "events/liveness_watch.h"
#include "events/fd_change.h"
#include "events/spin_budget.h"
#include "process/far_peer.h"
#include "transport/stream.h"

enum { FS_LOCALITY_UNKNOWN = 0, FS_HERE = 1, FS_ELSEWHERE = 2 }; /* location of the peer */

enum {
    FS_PATIENCE = 2, /* number of waits for a lock, about 10 ms each, before a call of the program checks for signals and its timeout */
};

/* (It begins as struct fs_conn_head of the public header says.) */
struct fs_connection {
    /* identity */
    fs_word32 fd;   /* a descriptor of the kernel connection (fs_fd); -1: closed here */
    int place;      /* in the connection table; -1: none */
    uint64_t inode; /* the kernel's number of the socket; 0: not known yet (fs_conn_identify) */
    fs_atomic_ptr(struct fs_shared_side) own; /* fs_own */
    fs_word32 settled; /* no operation has work to do for the path. For api/path.c */
    /* flags: written by state.c only, read by the functions of state.h */
    struct fs_conn_flags {
        fs_word32 attached; /* there is a region: from then on `ring` does not change */
        /* Relaxed: each is written once, or with a lock; a reader that must be exact holds a lock. */
        fs_word32 marks;         /* enum fs_marks: what each send and receive looks at once */
        fs_word32 lost;          /* nobody reads any more what is sent into the ring */
        fs_word32 death_told;    /* the program has received the reset */
        fs_word32 pending_error; /* an errno for the next receive after the bytes; 0: none */
        fs_word32 shut_receiving, shut_sending;
        fs_word32 driven;               /* loop-driven: nobody else reads, writes or polls the descriptor */
        fs_word32 life;                 /* number of calls inside, and bits of enum fs_life */
        fs_word32 in_kernel;            /* calls that are in the kernel's own blocking call */
        fs_word32 stepping;             /* steps under way that may move it: a step lets go of the front end's lock as it attaches */
        int bridged, bridged_inherited; /* a bridge has replaced the descriptors; the region was another process's before */
        int own_inherited;              /* `own` is memory of a process that this one was forked from */
    } is;
    const struct fs_stream_kind *stream; /* the kind of the kernel connection, known for sure once its search begins */
    fs_word32 nodelay;  /* TCP_NODELAY: nothing is combined */
    fs_word32 locality; /* of the peer */
    /* as set by the program; ns, -1: not set, FS_NOT_ASKED; bytes, 0: not set */
    fs_word64 receive_timeout, send_timeout;
    uint32_t receive_limit, send_limit;
    fs_word64 known; /* of the settings of waits, while several processes have the connection: fs_wait_setting */
    /* Bytes of the kernel's stream that calls of this process have received and sent, while it has no region; exact if `counted`: nobody
     * else has had the connection, from its first byte on. (Its path needs the host lock to end that.) */
    fs_word64 kernel_received, kernel_sent;
    int counted;
    /* the ring */
    struct fs_ring_pair ring;
    fs_atomic_ptr(struct fs_far_peer) far; /* fs_far_of */
    pid_t peer_process; /* from the rendezvous; 0: unknown, or in another PID namespace */
    /* in an event set of this side, as the region names it (wire/event_page.h); 0: none. Relaxed: a stale value costs a hint */
    fs_word64 slot;
    fs_word32 peer_set; /* where the peer's set was found (fs_remote_set_notify) */
    unsigned char region_id[16];
    /* where the peer sends its requests, as the region says; with the host lock */
    fs_word64 asked_here;  /* token of this process; 0: not announced. Relaxed: pollers look without the lock, and again after each sleep */
    uint64_t asked_before; /* token that it replaced, another holder's; 0: none */
    /* calls */
    fs_word32 recv_sleepers, send_sleepers; /* sleeping threads of this process */
    fs_word32 number;                       /* `fd`, or its next value until both locks are held to change it (fs_fd_unlocked) */
    int recyclable;                         /* the region may be reused once this end has closed */
    struct fs_spin_stats stats;
    fs_word32 spun; /* this wait has spun */
    /* liveness */
    struct fs_tcp_watch watch;
    /* value of `watch.told` that a receiver and a sender have checked, with their locks (a poll looks without: ready/poll_alone.c) */
    fs_word32 receive_checked;
    uint32_t send_checked;
    /* an observer (conn/tap.h) */
    fs_word32 tap_number; /* the number of the last one that this connection was introduced to */
    int recorded;     /* with the receive lock: a receive is under way whose bytes are recorded */
    int own_fault; /* ring.violation is this side's fault: a process was killed in a step, or descriptors ran out */
    unsigned int unacknowledged_sends;
    int64_t last_check, last_probe;
    int64_t held_since;
};

/* The next wait asks the kernel for SO_RCVTIMEO and SO_SNDTIMEO. */
static inline void fs_forget_timeouts(struct fs_connection *c) {
    fs_store_relaxed(&c->receive_timeout, (uint64_t)FS_NOT_ASKED);
    fs_store_relaxed(&c->send_timeout, (uint64_t)FS_NOT_ASKED);
}

/* Returns the peer's process if it is in another network namespace, NULL if it is in this one. Set before the connection attaches; another
 * holder of the peer's side may take over. */
static inline struct fs_far_peer *fs_far_of(const struct fs_connection *c) {
    /* SYNC: far peer - pairs with fs_take_way. */
    return fs_load_acquire(&((struct fs_connection *)c)->far);
}

/* Returns this side's state. It changes when a bridge replaces the descriptors: a caller without a lock may get the old one, which stays
 * valid as long as the connection. */
static inline struct fs_shared_side *fs_own(const struct fs_connection *c) {
    /* SYNC: own side - pairs with fs_swap_to_bridge. */
    return fs_load_acquire(&((struct fs_connection *)c)->own);
}
