/* What the program and its connection thread share: published names and what came of them, parked regions, and the
 * connections whose requests are answered. For the files of this room alone. */
#ifndef FASTSOCK_CONTROL_STATE_H
#define FASTSOCK_CONTROL_STATE_H

#include <pthread.h>

#include "control/accepted_region.h"
#include "control/tcp_identity.h"
#include "conn/connection.h"
#include "wire/control_msg.h"

enum {
    FS_BACKLOG = 128,   /* of the accept queue, before a listener asked for more */
    FS_LISTINGS = 1024, /* names published at a time; more connections wait their turn */
    FS_CACHED_REGIONS = 16,     /* regions kept mapped for their next connection */
};

struct fs_listing {
    /* enum fs_listing_state. Written under the table lock, and so read by all who go on to use the entry. A
     * connection's operations read it without, as a hint that there is something to look for: relaxed. */
    fs_word32 state;
    uint32_t turn;              /* counts uses of this entry, so that a late event is not taken for a new one's */
    int listener, control;      /* sockets, -1: none. Of an entry that is not free */
    struct ucred who;           /* is at `control`, */
    int trusted;                /* and is believed. */
    int kept;                   /* `control` lies in our share, and is watched */
    struct fs_tcp_identity tcp; /* the connection, as its other end has to prove it */
    int64_t expires;            /* monotonic ns */
    struct fs_accepted_region came;
};

struct fs_cached_region {
    void *memory; /* NULL: an empty place */
    size_t size;
    unsigned char id[16];
};

/* A connection whose peer's requests are answered. It leaves the list before it ends. */
struct fs_request_target {
    struct fs_connection *connection;
    unsigned char id[FS_CONTROL_KEY_SIZE]; /* of the region, and the side: both may be in this process */
    int due;                       /* an answer, for which a stopped process has the turn */
};

/* A connection thread that answers a request, without the table lock. It is on that thread's stack. There are several if
 * the program has closed the descriptors of one, which was given up. */
struct fs_request_handler {
    struct fs_connection *connection; /* which does not end meanwhile */
    struct fs_request_handler *next;
};

struct fs_control_state {
    pthread_mutex_t lock;
    struct fs_listing meetings[FS_LISTINGS];
    int used; /* entries from here on are free */
    /* Monotonic ns. The thread looks at the names by itself at `wakes_at`, or sooner; at INT64_MAX: never. The last name was
     * published until `last_expires`: the thread wakes then whatever has come of it, so that it need not be woken for each name. */
    int64_t wakes_at, last_expires;
    struct fs_cached_region parked[FS_CACHED_REGIONS];
    int parked_next;
    int queued;           /* FS_LISTING_ACCEPTED entries: the accept queue */
    /* Settings. Relaxed: the thread may hear of a change with the next visitor. */
    fs_word32 backlog;    /* the queue's bound, from listen(), if that is more than FS_BACKLOG */
    fs_word32 trusts_any;
    /* control_requests.h */
    struct fs_request_target *on_ring;
    int on_ring_count;
    int on_ring_room;
    struct fs_request_handler *answering;
    int frozen; /* a fork is under way: the connection thread keeps off */
};

extern struct fs_control_state fs_control_state;

/* Takes the table lock, for a thread that has the front end's lock, which is not waited for with it. And it is held
 * only by those who have the front end's lock, and by the connection thread, so that at a fork, which happens under
 * that lock and without that thread, the table is whole. Nothing that may let go of the front end's lock, or make an
 * object of the front end, is done under it. */
void fs_control_lock_hosted(void);

/* The same for the connection thread. One that has not ended for a fork waits here until that is over. */
static inline void fs_control_lock(void) {
    pthread_mutex_lock(&fs_control_state.lock);
    while (fs_control_state.frozen) {
        pthread_mutex_unlock(&fs_control_state.lock);
        fs_short_sleep();
        pthread_mutex_lock(&fs_control_state.lock);
    }
}

static inline void fs_control_unlock(void) { pthread_mutex_unlock(&fs_control_state.lock); }

/* A name is to be found no longer: its sockets are closed. Under the table lock. */
void fs_listing_close(struct fs_listing *listing);

/* Unmaps what the cache holds. Whether there was anything. Under the table lock. */
int fs_cache_release_all(void);

/* ---- the connection thread's part ------------------------------------------------------------------------- */

/* Withdraws names that nobody claimed. Milliseconds until the next one is due, -1: none. Takes the table lock. */
int fs_expire_listings(void);

/* Something happened at the sockets of a name, whose handle this is: somebody came, or said something. Takes the table
 * lock. 1: somebody is there who cannot be sent away now (fd_reaper.h): come again. */
int fs_accept_hello(uint64_t handle);
int fs_accept_hellos(void); /* the same at all names */

/* ---- a fork ------------------------------------------------------------------------------------------------ */

/* In the child: what the parent published is the parent's. */
void fs_listings_forget(void);

#endif
