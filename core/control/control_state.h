/* State shared by the program and its control thread: published names and their results, and the connections whose requests are
 * answered; its lock is that of the links (link.h), too. For this room alone. */
#pragma once

#include <pthread.h>

#include "control/accepted_region.h"
#include "control/address_proof.h"
#include "transport/stream.h"
#include "conn/connection.h"
#include "wire/control_msg.h"

enum {
    FS_BACKLOG = 128,   /* of the accept queue, unless a listener asked for more */
    FS_LISTINGS = 1024, /* names published at a time; more connections wait */
};

struct fs_listing {
    /* enum fs_listing_state. Written under the table lock, and read so by all that go on to use the entry. A connection's operations
     * read it without, as a hint: relaxed. */
    fs_word32 state;
    uint32_t generation;        /* counts uses of this entry, so that a late event is not taken for a new one's */
    int listener, control;      /* sockets, -1: none. Valid if the entry is not free */
    struct ucred who;           /* the peer at `control` */
    int trusted;                /* the peer is of this user, or root */
    int other_came;             /* a process came whose user is not admitted, or one of another user that left without a word */
    int unproven_came;          /* a process came that did not prove its address, or has not yet */
    uint64_t file;              /* the name's in the folder (rendezvous_dir.h); 0: it is abstract */
    struct fs_address_proof proof; /* of the peer at `control` */
    int kept;                   /* `control` is in the reserved range, and watched */
    struct fs_stream_identity ends; /* of the connection, whose other end the peer must prove to have */
    int64_t expires;            /* monotonic ns */
    struct fs_accepted_region came;
};

/* A connection whose peer's requests are answered. It is removed before it ends. */
struct fs_request_target {
    struct fs_connection *connection;
    unsigned char id[FS_CONTROL_KEY_SIZE]; /* region id and side; both sides may be in this process */
    int due;                       /* an answer is due, and a stopped process has the lock */
};

/* A control thread that answers a request without the table lock, on that thread's stack. There are several if the program closed the
 * descriptors of an earlier thread, which was given up. */
struct fs_request_handler {
    struct fs_connection *connection; /* it does not end meanwhile */
    struct fs_request_handler *next;
};

struct fs_control_state {
    pthread_mutex_t lock;
    struct fs_listing listings[FS_LISTINGS];
    int used; /* entries from here on are free */
    /* Monotonic ns. The thread checks the names by itself at `wakes_at`, or earlier; INT64_MAX: never. `last_expires` is the end of the
     * last published name. The thread wakes then in any case, so that not each new name has to wake it. */
    int64_t wakes_at, last_expires;
    int queued;           /* FS_LISTING_ACCEPTED entries: the length of the accept queue */
    fs_word32 backlog;    /* a setting: bound of the queue from listen(), if larger than FS_BACKLOG. Relaxed: for the next peer */
    /* control_requests.h */
    struct fs_request_target *on_ring;
    int on_ring_count;
    int on_ring_room;
    struct fs_request_handler *answering;
    int frozen; /* a fork is under way: the control thread stays away */
};

extern struct fs_control_state fs_control_state;

/* Takes the table lock, for a thread that has the host lock, which is unlocked while it waits. The table lock is held only by threads
 * with the host lock and by the control thread. A fork happens with the host lock and without that thread, so the table is consistent
 * then. No code under the table lock may unlock the host lock or create an object of the front end. */
void fs_control_lock_hosted(void);

/* For the control thread. If a thread has not ended for a fork, it waits here until the fork is over. */
static inline void fs_control_lock(void) {
    pthread_mutex_lock(&fs_control_state.lock);
    while (fs_control_state.frozen) {
        pthread_mutex_unlock(&fs_control_state.lock);
        fs_short_sleep();
        pthread_mutex_lock(&fs_control_state.lock);
    }
}

static inline void fs_control_unlock(void) { pthread_mutex_unlock(&fs_control_state.lock); }

/* Closes the sockets of a name. Needs the table lock. */
void fs_listing_close(struct fs_listing *listing);

/* ---- the control thread's descriptors ------------------------------------------------------------------ */

/* control_thread.c writes them: all are open, or none (-1). */
struct fs_control_fds {
    int epoll, kick, request; /* `kick` is an eventfd; `request` the control socket */
    uint64_t inode, token;    /* of the control socket; no token yet: 0. With the host lock */
    int diag;                 /* a socket of sock_diag(7), for the host lock's holder; -1: the kernel gives none */
    uint64_t diag_inode;
    /* The generation of the thread: it changes when a thread is given up. If the program closed its descriptors, the thread ends if it ever
     * wakes, and all its other descriptors count as lost too. Relaxed: nothing else depends on it. */
    fs_word32 generation;
};
extern struct fs_control_fds fs_control_fds;

static inline uint32_t fs_control_thread_generation(void) { return fs_load_relaxed(&fs_control_fds.generation); }

/* Makes the thread look at its deadlines again. Needs the host lock. */
static inline void fs_control_thread_kick(void) { fs_signal_eventfd(fs_control_fds.kick); }

static inline int fs_control_watch(int epoll, int fd, uint64_t what) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data = {.u64 = what}};
    return fs_system.epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

/* Returns the control socket, for sending: it proves to a receiver that this process is the sender. -1 if the number is not ours any
 * more. Needs the host lock. */
static inline int fs_request_socket(void) {
    return fs_control_fds.request >= 0 && fs_inode(fs_control_fds.request) == fs_control_fds.inode ? fs_control_fds.request : -1;
}

/* Returns the socket of sock_diag(7), -1: there is none, or the number is not ours any more. Needs the host lock. */
static inline int fs_diag_socket(void) {
    return fs_control_fds.diag >= 0 && fs_inode(fs_control_fds.diag) == fs_control_fds.diag_inode ? fs_control_fds.diag : -1;
}

/* ---- the control thread's part ------------------------------------------------------------------------- */

/* Withdraws expired names, and looks at idle links. Returns the milliseconds until the next of these is due,
 * -1: none. Takes the table lock. */
int fs_expire_listings(void);

/* Handles an event at the sockets of the name with this handle: a peer came or sent something. Takes the table lock. Returns 1 to be
 * called again: an incoming peer cannot be sent away now (fd_reaper.h). */
int fs_accept_hello(uint64_t handle);
int fs_accept_hellos(void); /* fs_accept_hello for all names */

/* ---- a fork ------------------------------------------------------------------------------------------------ */

/* For a forked child: drops the parent's names. */
void fs_listings_forget(void);
