/* One end of one connection in one process, whichever path its bytes take.
 *
 * It is shared by all descriptors of the connection in this process, and its `own` state by all processes that inherited it.
 * It starts on kernel TCP. `fs_attach` gives it a region; from then on each direction moves when its sender finds the
 * peer's consent (`ready`) and has recorded the offset in the kernel's stream.
 *
 * Functions called fs_try_* return bytes, 0 at the end of the stream, or a negative errno, and never block; so may be told
 * FS_VIOLATED. Their callers are inside (`fs_call_enter`, `fs_call_exit`), so that the connection stays. */
#ifndef FASTSOCK_CONNECTION_H
#define FASTSOCK_CONNECTION_H

#include "os/host.h"
#include "os/fd_reserve.h"
#include "os/syscalls.h"
#include "ring/doorbell.h"
#include "events/tcp_watch.h"
#include "events/fd_change.h"
#include "events/spin_budget.h"

enum { FS_RECEIVE = 1, FS_SEND = 2 }; /* what a wait is for */

enum { FS_LOCALITY_UNKNOWN = 0, FS_HERE = 1, FS_ELSEWHERE = 2 }; /* of the peer */

#define FS_NOT_ASKED ((int64_t)-2)     /* a timeout that no wait has needed yet */
#define FS_VIOLATED ((int64_t)-100000) /* the peer broke the protocol, or this side lost a part: see vi.violation */

enum {
    FS_PATIENCE = 2, /* times some 10 ms that a call of the program waits for its turn before it looks for signals and its timeout */
};

enum fs_late { /* fs_connection.late */
    FS_LATE_BYTES = 1,   /* doorbell bytes that were counted and not sent yet */
    FS_LATE_REQUEST = 2, /* a request for which the peer's connection thread had no room */
    FS_LATE_POST = 4,    /* the end of the peer's post, before which its doorbell bytes are not taken */
    FS_LATE_AGAIN = 8,   /* the same of a peer that was late before */
};

struct fs_connection {
    /* identity */
    fs_word32 fd;   /* a descriptor of the kernel connection (fs_fd); -1: closed here */
    uint64_t inode; /* the kernel's number of the socket; 0: nobody has asked for it yet (fs_conn_identify) */
    int place;      /* in the roll; -1: none */
    /* how it stands: written by state.c only, asked by the functions of state.h */
    struct fs_conn_flags {
        fs_word32 attached; /* there is a region: from then on `vi` is what it stays */
        /* Relaxed, each written once or in turn, and whoever has to be exact looks under a lock. */
        fs_word32 exposed; /* somebody may poll the descriptor */
        fs_word32 broken;  /* the peer has broken the protocol */
        fs_word32 lost;    /* nobody reads any more what is sent into the ring */
        fs_word32 death_told;     /* the program has heard of the reset */
        fs_word32 pending_error;  /* an errno that the next receive behind the bytes tells; 0: none */
        fs_word32 shut_receiving, shut_sending;
        fs_word32 driven;    /* an event loop's transport drives it: nobody else reads, writes or polls the descriptor */
        fs_word32 life;      /* the calls that are inside, and bits of enum fs_life */
        fs_word32 in_kernel; /* calls that are in the kernel's own blocking call */
        int bridged, bridged_inherited; /* a bridge stands at the descriptors; the region was another process's before */
        int own_inherited; /* `own` is memory of a process that this one was forked from */
    } is;
    fs_word32 nodelay;  /* TCP_NODELAY: nothing is combined */
    fs_word32 locality; /* of the peer */
    int listens;        /* a listener's, which only polls for connections */
    /* as the program has set them; ns, -1: not set, FS_NOT_ASKED; bytes, 0: not set */
    int64_t receive_timeout, send_timeout;
    uint32_t receive_limit, send_limit;
    /* the virtual interface */
    struct fs_ring_pair ring;
    fs_atomic_ptr(struct fs_shared_side) own; /* fs_own */
    pid_t peer_process; /* of the meeting; 0: unknown, or of another PID namespace */
    fs_word64 slot; /* in an event set of this side, as the region names it (wire/event_page.h); 0: none. Relaxed: a hint goes astray */
    fs_word32 told; /* where the peer's set was found (fs_remote_set_notify) */
    unsigned char region_id[16];
    /* where the peer asks this side, as the region says it: with the front end's lock */
    uint64_t asked_here;   /* since this process has said so; 0: it has not */
    uint64_t asked_before; /* what stood there, another holder's; 0: nothing */
    /* calls */
    fs_word32 recv_sleepers, send_sleepers; /* threads of this process, */
    fs_word32 kernel_sleepers;              /* and those that sleep on the kernel's descriptor, to receive */
    fs_word32 number; /* `fd`, or what that becomes as soon as whoever decided it has both turns (fs_fd_unlocked) */
    int recyclable;   /* the region, once this end has said goodbye */
    struct fs_spin_stats stats;
    fs_word32 spun;   /* this wait has polled */
    /* the descriptor as somebody else polls it */
    int receive_buffer_held;   /* it does not grow any more */
    int receive_buffer_grown;  /* by itself, beyond what doorbell bytes need */
    uint32_t held_from;        /* doorbell bytes heard until then */
    int plug_seen;             /* the peer's */
    uint32_t plug_seen_at;     /* descriptors consumed */
    int peer_late;             /* a doorbell byte that it was about to send did not come */
    int late;                  /* enum fs_late: what a turn to receive has left to be waited for without it */
    int late_sending;          /* a turn to send has left doorbell bytes to be sent without it */
    /* the lifeline */
    struct fs_tcp_watch watch;
    uint32_t receive_looked, send_looked; /* what of `watch.told` a receiver and a sender have looked after, in their turns */
    uint32_t receive_late; /* what a receiver has looked at, and not seen the end of: a byte stood in front that could not be taken */
    int own_fault; /* vi.violation is this side's: say a process was killed in a step, or descriptors ran out */
    unsigned int unacknowledged_sends;
    int64_t last_look;
    int64_t held_since;
};

/* The descriptor, for a call of the kernel: in a turn the connection's, and without one what it was a moment ago (fs_fd_unlocked). */
static inline int fs_fd(const struct fs_connection *c) { return (int)fs_load_own32(&c->fd); }

/* This side's state. Another side's once a bridge stands at the descriptors: who has not been in a turn since may be told of either,
 * and the old one stays as long as the connection. */
static inline struct fs_shared_side *fs_own(const struct fs_connection *c) {
    /* SYNC: own side - pairs with fs_swap_to_bridge. */
    return fs_load_acquire(&((struct fs_connection *)c)->own);
}

/* A call of this process that is inside a connection. A thread's calls form a chain, since a signal handler that runs inside
 * of one may make another one, or fork: the child has this thread's calls and no others. */
struct fs_call {
    struct fs_connection *connection;
    struct fs_call *outer;
};

#endif
