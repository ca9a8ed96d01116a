/* What a poller is made of, for the files of this room. */
#pragma once

#include "ready/ready.h"
#include "events/event_set.h"
#include "include/fastsock_loop.h" /* FS_IN, FS_OUT_ROOM */

enum {
    FS_GENERATION_BITS = 16, /* of data: how often the slot was registered */
    FS_SLOT_BITS = 22,       /* of data: which slot, */
    FS_TAG_BITS = 10,        /* and which process registered it */
    FS_RANGE_BITS = FS_TAG_BITS + FS_SLOT_BITS + FS_GENERATION_BITS,
    FS_SET_SLOT = 0,         /* the event set's */
    FS_ENDINGS = EPOLLRDHUP | EPOLLHUP | EPOLLERR,
    FS_FLAGS = (int)(EPOLLET | EPOLLONESHOT | EPOLLWAKEUP | EPOLLEXCLUSIVE),
    FS_PARKED_EVENTS = (int)(EPOLLIN | EPOLLPRI | EPOLLRDHUP | EPOLLET), /* what the kernel reports of a parked member */
};

enum {
    FS_VAIN = 4,     /* wakeups for nothing, one after another, after which a thread naps before it sleeps again */
    FS_SPUN = 64,    /* connections that a thread polls at a time */
    FS_ANSWERS = 16, /* of memory alone, without the kernel being asked, */
};
#define FS_KERNEL_INTERVAL ((int64_t)50000) /* and nanoseconds for which there may be such ones; */
#define FS_SLICE ((int64_t)20000)           /* that a thread polls without asking the kernel; */
#define FS_UNCERTAIN ((int64_t)1000000)     /* of a sleep beside something that a look does not find yet, */
#define FS_UNREPORTED ((int64_t)20000000)       /* beside a member whose ring no event set has, */
#define FS_LATE_LOOK ((int64_t)500000000)   /* or one the death of whose peer may be no event */

enum fs_slot_kind { FS_NO_SLOT = 0, FS_OWN_SET = 1, FS_COMMON_SET = 2 }; /* who gets the ring's hints: the poller's set, the common one */

/* A member that is left to the event set, and looked at now and then all the same. */
enum fs_late_looks {
    FS_ON_TIME = 0,
    FS_MAY_DIE = 1, /* the death of the peer may be no event */
    FS_SHARED = 2,  /* another process may be told instead: fs_may_miss_hints */
};

/* How far a peer has posted, as a look found it. */
struct fs_mark {
    uint32_t number, length; /* of descriptors; and of the last one, which may grow */
    uint64_t fin;
};

/* A descriptor in a poller. Its memory stays until the poller ends, so a look that outlives it finds a slot and not a hole. */
struct fs_member {
    struct fs_pollable *it; /* NULL: a descriptor of the kernel's, whose data lie in our range; or the slot is free */
    struct fs_poller *poller;
    struct fs_member *next;          /* of the same pollable: with its lock */
    struct fs_member *sibling;       /* of the same pollable in the same poller: by another number */
    struct fs_member *before, *after; /* in the list of those that may be ready */
    uint64_t data;      /* the program's */
    uint32_t events;    /* as the program wants them, with its flags */
    uint32_t slot;
    uint32_t next_free; /* of a free slot: the next one; 0: none */
    uint32_t version;   /* changes with all that makes an earlier look worthless */
    uint16_t generation;
    uint16_t tag;       /* of the process that registered it */
    int fd;             /* -1: the number was closed, and the socket goes on; */
    int closed;         /* then which it was. (The kernel's registration is by file and number.) */
    int in_use, listed; /* listed: in the list of those that may be ready */
    int parked;         /* it is asked for its level, and the kernel reports changes alone */
    int slot_in;        /* enum fs_slot_kind */
    int unreported;     /* nobody reports the ring: it is looked at again and again */
    int enabled;        /* 0: a single shot that was told */
    uint32_t endings;   /* FS_ENDINGS that were reported, and EPOLLPRI before the kernel reported it */
    int fresh;          /* the kernel has reported nothing since it was added or changed */
    int edge;           /* something may have come since the last look: an edge-triggered one reports what is new since then, */
    uint32_t found;     /* which is what it was not ready for, */
    struct fs_mark mark; /* or what was not posted */
    uint32_t looks;     /* so often it was taken out of the list */
    int full;           /* a send found no room: the next room is an edge */
    int late;           /* enum fs_late_looks */
    int kernel_room;    /* parked: the kernel reports room too, as a send found none there */
    int asks;           /* the kernel has reported something that has not gone: a look asks it again */
    uint32_t kernel;    /* a loop's: what its transport has found in the kernel, which a look does not ask then */
    int64_t last_told;  /* monotonic ns */
    uint64_t told_by;   /* the last wait that reported it, */
    int told_at;        /* and the place among its events */
};

struct fs_poller {
    pthread_mutex_t lock;
    int epoll;            /* the program's; -1: a thread's, or a loop's */
    int alone;            /* a loop's: no other thread comes here, and no lock is taken */
    uint32_t process;     /* that it is of */
    struct fs_event_set *set;   /* NULL: no member has needed one yet */
    struct fs_member **slots;
    uint32_t used, room, first_free; /* of `slots`; the first one is the set's */
    struct fs_member *first, *last; /* those that may be ready */
    fs_word64 family;     /* a fork has shared the instance: its bit (inherited.c); 0: none has. Relaxed: set with the front end's lock,
                           * which a fork has too */
    fs_word32 single;     /* since the last fork nobody has waited here, and a member is told once */
    fs_word32 parked;     /* members; relaxed: changed with the lock, a hint without it */
    uint32_t listed, unreported, late, shared; /* members: in the list; parked and unreported; late; FS_SHARED */
    uint32_t foreign;     /* members that are descriptors of the kernel's */
    int waiters, sleepers; /* threads that are in a wait; of these, those that sleep */
    int ended;            /* the program has closed the instance, and the last of the waiters ends the poller */
    int busy;             /* without a number: somebody waits, or may */
    int needs_slots;          /* in a forked child: no member has its slot yet */
    int common;           /* the common set wakes it too */
    int exposed;          /* somebody polls the instance's number */
    uint64_t waits;       /* begun so far */
    int64_t asked;        /* when the kernel was asked, monotonic ns, */
    int answers;          /* and how often memory alone has answered since */
    struct fs_spin_stats stats;
    int64_t quiet_since;  /* a loop's wait, which polls: when it began, monotonic ns; 0: there is none; */
    int64_t budget, spun; /* ns that it may poll, and has polled */
};

extern uint64_t fs_poller_base; /* the beginning of our range of data */
extern uint32_t fs_poller_tag;  /* this process's, among forked ones */

static inline uint64_t fs_poller_data(uint32_t slot, uint16_t generation) {
    uint64_t of = (uint64_t)fs_poller_tag << FS_SLOT_BITS | slot;
    return fs_poller_base | of << FS_GENERATION_BITS | generation;
}

/* As fs_is_poller_data. */
static inline int fs_is_ours(uint64_t data) { return data >> FS_RANGE_BITS == fs_poller_base >> FS_RANGE_BITS && fs_poller_base; }

static inline void fs_lock_poller(struct fs_poller *p) {
    if (!p->alone) pthread_mutex_lock(&p->lock);
}
static inline void fs_unlock_poller(struct fs_poller *p) {
    if (!p->alone) pthread_mutex_unlock(&p->lock);
}

/* ---- with the poller's lock ------------------------------------------------------------------------------------------ */

/* The member may be ready: a wait looks at it, and one that sleeps wakes. */
void fs_member_activate(struct fs_member *m, int edge);
void fs_member_deactivate(struct fs_member *m);
void fs_note_late(struct fs_member *m, int late);
void fs_note_parked(struct fs_member *m, int parked);
void fs_member_note_unreported(struct fs_member *m, int unreported);

/* A wait is over: lets go of the lock. The last one ends a poller whose instance was closed meanwhile. */
void fs_leave_wait(struct fs_poller *p);

/* What the members are has changed: who sleeps there looks again. */
void fs_wake_waiters(struct fs_poller *p);

/* The event set, made if there is none. NULL and `*failed`: -errno. */
struct fs_event_set *fs_set_of_poller(struct fs_poller *p, int *failed);

/* Whose registration an event's data are, or NULL: it has gone. Data of ours, and not the set's. */
struct fs_member *fs_member_of_data(struct fs_poller *p, uint64_t data);

/* Takes the hints of the set: their members may be ready. */
void fs_take_poller_hints(struct fs_poller *p);

/* Those without hints of an event set, and late ones, may be ready. */
void fs_members_activate_unreported(struct fs_poller *p);

/* How long a thread may sleep beside what no event reports; -1: as long as it likes. */
static inline int64_t fs_longest_sleep(const struct fs_poller *p) {
    return p->unreported + p->shared ? FS_UNREPORTED : p->late ? FS_LATE_LOOK : -1;
}

/* Of an instance that a fork has shared: whether members are told once. */
void fs_note_single_events(struct fs_poller *p);

/* Registers the member in the kernel, by our data: as epoll_ctl with `op`; or anew, so that what was reported before counts no more, and
 * the kernel reports what is there. 0 or -errno. */
int fs_member_register(struct fs_member *m, int op);
int fs_member_register_again(struct fs_member *m);

/* From now on the kernel reports room of a parked member. */
void fs_await_kernel_room(struct fs_member *m);

/* ---- with the pollable's lock too ------------------------------------------------------------------------------------ */

/* A member of `p` by the number `fd`, or NULL. */
struct fs_member *fs_member_find(struct fs_poller *p, struct fs_pollable *it, int fd);

/* A new one, in no event set yet. NULL without memory. */
struct fs_member *fs_member_new(struct fs_poller *p, struct fs_pollable *it, int fd, uint32_t events, uint64_t data);
void fs_member_free(struct fs_member *m); /* of a pollable: fs_member_drop */
void fs_member_drop(struct fs_member *m);

/* From now on the member is asked for its level, and the kernel reports changes alone; and back. */
void fs_member_park(struct fs_member *m);
void fs_member_unpark(struct fs_member *m);

/* ---- with the pollable's lock alone ------------------------------------------------------------------------------------ */

/* Members have come or gone: sees to it that the set of one of the pollers has the connection. 0, or -errno: none has. */
int fs_pollable_register(struct fs_pollable *it);

/* `c`, its connection, is in no set any more. */
void fs_pollable_unregister(struct fs_pollable *it, struct fs_connection *c);

/* ---- with no lock ------------------------------------------------------------------------------------------------------ */

/* As epoll_ctl on the poller's instance; 0 or -errno. Where a bridge has taken the place of the connection's file (conn/fallback_bridge.h),
 * that file's registration has gone with it, and a change makes a new one. `c`: NULL: it is no connection. */
int fs_register_in_kernel(struct fs_poller *p, int op, int fd, const struct fs_connection *c, struct epoll_event event);

/* Ends a call on a connection as the front end does it. */
void fs_end_poller_call(struct fs_connection *c, struct fs_call *call);

/* For each member that is a socket: `what`, with both locks; then the slot. */
void fs_members_each(struct fs_poller *p, void (*what)(struct fs_member *));
