/* The course of a connection: how it stands with its peer until its path is decided, and what its next operation does
 * about it. path_state.c has the table; nobody else writes a state. All of it with the front end's lock. */
#ifndef FASTSOCK_PATH_STATE_H
#define FASTSOCK_PATH_STATE_H

#include "conn/connection.h"
#include "wire/reasons.h"

struct fs_connector; /* connector.h */
struct fs_region_ref;    /* region_cache.h */

enum fs_path_state {
    FS_DECIDED = 0,    /* kernel TCP or the ring: operations do nothing but their work */
    FS_CONNECTING,     /* a connect is under way, and it is not counted as opened yet */
    FS_FEW_OPERATIONS, /* it has made too few operations to look for its peer */
    FS_STARTING,       /* it is being decided whether it may look for its peer (policy.h) */
    FS_TO_PUBLISH,     /* the publisher: its name is to be published */
    FS_PUBLISHED,      /* somebody may come to it */
    FS_LOOKING,        /* the seeker: looks the peer's name up */
    FS_AWAITING,       /* it has said hello, and awaits WAKEUP */
    FS_ATTACHING,      /* it has a region, and a thread is about to consent */
    FS_THREAD_LATER,   /* attached: the connection thread was stopped for a fork, and has to run again */
    FS_ANSWER_LATER,      /* attached, in a forked child: the peer's requests are to be answered here too */
    FS_PATH_STATES
};

enum fs_path_events {
    FS_PATH_CONNECT,   /* a connect begins that does not wait */
    FS_PATH_CONNECTED, /* it is over */
    FS_PATH_OPEN,      /* the connection stands, and its operations count */
    FS_PATH_START,     /* they are enough */
    FS_PATH_PUBLISH,   /* the search begins, at the end that publishes; */
    FS_PATH_SEEK,      /* at the end that seeks */
    FS_PATH_NAMED,     /* the name is published */
    FS_PATH_HELLO,     /* hello was said */
    FS_PATH_AGAIN,     /* the meeting came to nothing */
    FS_PATH_CAME,      /* both have the region */
    FS_PATH_MOVED,     /* this end has consented */
    FS_PATH_STAY,      /* kernel TCP, for a reason; or the connection ends */
    FS_PATH_FORK,      /* a fork begins, for which the connection thread stops */
    FS_PATH_ANSWERED,  /* the connection thread runs, and answers for this connection */
    FS_PATH_CHILD,     /* this process is a forked child: threads and names were the parent's */
    FS_PATH_INHERIT,   /* the same, of a connection that is attached */
    FS_PATH_EVENTS
};

struct fs_path {
    int state;  /* enum fs_path_state */
    int reason; /* enum fs_reason: why the connection is on kernel TCP */
    int64_t operations; /* of the program, ever */
    int64_t next;       /* the number of the operation that takes the next step */
    fs_word32 *listing_state; /* the state of the meeting that it waits for (listener.h); NULL: none */
    struct fs_connector *search; /* NULL: none */
    struct fs_region_ref *region_ref;       /* once attached */
    unsigned long attaching;  /* the thread that is at it; 0: none */
    int64_t waited;           /* ns that its operations have waited for the other end, by the setting `meeting_ms` */
    int waits;                /* one of them does so now */
};

/* Whether an operation may still have something to do about the path. */
static inline int fs_is_undecided(const struct fs_path *path) { return path->state != FS_DECIDED; }

/* Whether it looks for its peer. */
static inline int fs_is_searching(const struct fs_path *path) { return path->search != 0; }

/* An event of the course. Whether it was possible: of several threads at most one finds it so, and where another one
 * has decided otherwise, it changes nothing. */
int fs_path_event(struct fs_path *path, enum fs_path_events event);

/* What a state is called in reports. */
const char *fs_path_state_name(int state);

/* ---- reasons ---------------------------------------------------------------------------------------------- */

const char *fs_reason_text(int reason); /* of enum fs_reason, for people */

/* Connections of this process by the path that they are or were on to their end, and by the reason. Each counts as
 * opened with FS_REASON_FEW or FS_REASON_UNPAID, or with another one. */
struct fs_path_counts {
    int64_t by_reason[FS_REASONS]; /* on kernel TCP */
    int64_t ring;
};
extern struct fs_path_counts fs_path_counts;

static inline void fs_count_opened(enum fs_reason reason) { fs_path_counts.by_reason[reason]++; }

/* A connection that was counted under `before` is counted under `now`. */
static inline void fs_count_changed(enum fs_reason before, enum fs_reason now) {
    fs_path_counts.by_reason[before]--;
    fs_path_counts.by_reason[now]++;
}

/* Why the connection is on kernel TCP, from now on: in its course and on the roll. */
void fs_note_reason(struct fs_path *path, struct fs_connection *c, enum fs_reason reason);

void fs_change_reason(struct fs_path *path, struct fs_connection *c, enum fs_reason reason); /* and it is counted so */

/* ---- the beginning ---------------------------------------------------------------------------------------- */

/* The connection stands, and is counted as opened for `reason`: it looks for its peer after so many operations more. */
void fs_path_open(struct fs_path *path, struct fs_connection *c, int64_t operations, enum fs_reason reason);

#endif
