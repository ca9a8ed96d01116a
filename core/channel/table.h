/* What the program and its connection thread share: published names and what came of them, parked regions, and the
 * connections whose requests are answered. For the files of this room alone. */
#ifndef FASTSOCK_TABLE_H
#define FASTSOCK_TABLE_H

#include <pthread.h>

#include "channel/arrival.h"
#include "channel/identity.h"
#include "connection/connection.h"
#include "wire/request.h"

enum {
    FS_BACKLOG = 128,   /* of the accept queue, before a listener asked for more */
    FS_MEETINGS = 1024, /* names published at a time; more connections wait their turn */
    FS_PARKED = 16,     /* regions kept mapped for their next connection */
};

struct fs_meeting {
    /* enum fs_meeting_state. Written under the table lock, and so read by all who go on to use the entry. A
     * connection's operations read it without, as a hint that there is something to look for: relaxed. */
    fs_word32 state;
    uint32_t turn;              /* counts uses of this entry, so that a late event is not taken for a new one's */
    int listener, control;      /* sockets, -1: none. Of an entry that is not free */
    struct ucred who;           /* is at `control`, */
    int trusted;                /* and is believed. */
    int kept;                   /* `control` lies in our share, and is watched */
    struct fs_tcp_identity tcp; /* the connection, as its other end has to prove it */
    int64_t expires;            /* monotonic ns */
    struct fs_arrival came;
};

struct fs_parked_region {
    void *memory; /* NULL: an empty place */
    size_t size;
    unsigned char id[16];
};

/* A connection whose peer's requests are answered. It leaves the list before it ends. */
struct fs_asked {
    struct fs_connection *connection;
    unsigned char id[FS_ASK_SIZE]; /* of the region, and the side: both may be in this process */
    int due;                       /* an answer, for which a stopped process has the turn */
};

/* A connection thread that answers a request, without the table lock. It is on that thread's stack. There are several if
 * the program has closed the descriptors of one, which was given up. */
struct fs_answerer {
    struct fs_connection *connection; /* which does not end meanwhile */
    struct fs_answerer *next;
};

struct fs_table {
    pthread_mutex_t lock;
    struct fs_meeting meetings[FS_MEETINGS];
    int used; /* entries from here on are free */
    /* Monotonic ns. The thread looks at the names by itself at `wakes_at`, or sooner; at INT64_MAX: never. The last name was
     * published until `last_expires`: the thread wakes then whatever has come of it, so that it need not be woken for each name. */
    int64_t wakes_at, last_expires;
    struct fs_parked_region parked[FS_PARKED];
    int parked_next;
    int queued;           /* FS_MEETING_ARRIVED entries: the accept queue */
    /* Settings. Relaxed: the thread may hear of a change with the next visitor. */
    fs_word32 backlog;    /* the queue's bound, from listen(), if that is more than FS_BACKLOG */
    fs_word32 trusts_any;
    /* requests.h */
    struct fs_asked *on_ring;
    int on_ring_count;
    int on_ring_room;
    struct fs_answerer *answering;
    int frozen; /* a fork is under way: the connection thread keeps off */
};

extern struct fs_table fs_table;

/* Takes the table lock, for a thread that has the front end's lock, which is not waited for with it. And it is held
 * only by those who have the front end's lock, and by the connection thread, so that at a fork, which happens under
 * that lock and without that thread, the table is whole. Nothing that may let go of the front end's lock, or make an
 * object of the front end, is done under it. */
void fs_take_table(void);

/* The same for the connection thread. One that has not ended for a fork waits here until that is over. */
static inline void fs_lock_table(void) {
    pthread_mutex_lock(&fs_table.lock);
    while (fs_table.frozen) {
        pthread_mutex_unlock(&fs_table.lock);
        fs_nap();
        pthread_mutex_lock(&fs_table.lock);
    }
}

static inline void fs_unlock_table(void) { pthread_mutex_unlock(&fs_table.lock); }

/* A name is to be found no longer: its sockets are closed. Under the table lock. */
void fs_close_meeting(struct fs_meeting *meeting);

/* Unmaps what the cache holds. Whether there was anything. Under the table lock. */
int fs_release_all_parked(void);

/* ---- the connection thread's part ------------------------------------------------------------------------- */

/* Withdraws names that nobody claimed. Milliseconds until the next one is due, -1: none. Takes the table lock. */
int fs_next_deadline(void);

/* Something happened at the sockets of a name, whose handle this is: somebody came, or said something. Takes the table
 * lock. 1: somebody is there who cannot be sent away now (dropping.h): come again. */
int fs_greet(uint64_t handle);
int fs_greet_all(void); /* the same at all names */

/* ---- a fork ------------------------------------------------------------------------------------------------ */

/* In the child: what the parent published is the parent's. */
void fs_forget_names_after_fork(void);

#endif
