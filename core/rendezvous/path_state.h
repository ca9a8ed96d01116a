/* The path state of a connection: its progress until its path is decided, and the work of its next operation. path_state.c has the
 * table; only that file writes a state. Called with the host lock. */
#pragma once

#include "conn/connection.h"
#include "include/fastsock.h"

struct fs_connector; /* connector.h */
struct fs_region_ref;    /* link.h */

enum fs_path_state {
    FS_DECIDED = 0,    /* kernel TCP or the ring: operations do only their work */
    FS_CONNECTING,     /* a connect is under way; not counted as opened yet */
    FS_FEW_OPERATIONS, /* too few operations so far to look for the peer */
    FS_STARTING,       /* the policy decides if it may look for its peer (eligibility.h) */
    FS_TO_PUBLISH,     /* the publisher: its name is to be published */
    FS_PUBLISHED,      /* a seeker may come */
    FS_LOOKING,        /* the seeker: looks the peer's name up */
    FS_AWAITING,       /* it has sent HELLO, and waits for WAKEUP */
    FS_ATTACHING,      /* it has a region, and a thread is about to consent */
    FS_FAULTED,        /* an event came that cannot be: the next operation ends the connection */
    FS_THREAD_LATER,   /* attached: the control thread was stopped for a fork, and must run again */
    FS_ANSWER_LATER,   /* attached, in a forked child: the peer's requests must be answered here too */
    FS_PATH_STATES
};

enum fs_path_events {
    FS_PATH_CONNECT,   /* a non-blocking connect begins */
    FS_PATH_CONNECTED, /* that connect is over */
    FS_PATH_OPEN,      /* the connection is established, and its operations count */
    FS_PATH_START,     /* there were enough operations */
    FS_PATH_PUBLISH,   /* the search begins, at the end that publishes */
    FS_PATH_SEEK,      /* the search begins, at the end that seeks */
    FS_PATH_NAMED,     /* the name is published */
    FS_PATH_HELLO,     /* HELLO was sent */
    FS_PATH_AGAIN,     /* this attempt failed */
    FS_PATH_CAME,      /* both have the region */
    FS_PATH_MOVED,     /* this end has consented */
    FS_PATH_STAY,      /* kernel TCP, for a reason; or the connection ends */
    FS_PATH_FORK,      /* a fork begins, for which the control thread stops */
    FS_PATH_ANSWERED,  /* the control thread runs, and answers for this connection */
    FS_PATH_CHILD,     /* this process is a forked child: threads and names were the parent's */
    FS_PATH_INHERIT,   /* the same for an attached connection */
    FS_PATH_EVENTS
};

/* A thread that counts an operation reads the atomic words without the host lock, as a hint: before it takes a step it takes the lock. */
struct fs_path {
    fs_word32 state;                  /* enum fs_path_state */
    int reason;                       /* enum fs_reason: why the connection is on kernel TCP */
    fs_word64 operations;             /* of the program, in total: fs_count, as several threads may count */
    fs_word64 next;                   /* the number of the operation that takes the next step */
    int64_t first_contact;            /* of the first operation that publishes or looks up a name; before it regions are posted or taken */
    fs_atomic_ptr(fs_word32) listing_state;    /* the listing's state word that it waits for (listener.h); NULL: none */
    fs_atomic_ptr(struct fs_connector) search; /* NULL: none */
    fs_word32 unset;                  /* enum fs_options: options that nobody has set, so that the kernel need not be asked. Relaxed */
    struct fs_region_ref *region_ref; /* once attached */
    unsigned long attaching;          /* the thread that attaches it; 0: none */
    int64_t waited;                   /* ns that its operations have waited for the other end, by the setting `meeting_ms` */
    const char *fault;                /* FS_FAULTED: the event */
};

/* These words as a thread without the host lock reads them. (Relaxed: nothing is read after them.) */
static inline int64_t fs_operations(const struct fs_path *path) { return (int64_t)fs_load_relaxed((fs_word64 *)&path->operations); }
static inline int64_t fs_next_step(const struct fs_path *path) { return (int64_t)fs_load_relaxed((fs_word64 *)&path->next); }
static inline int fs_is_unset(const struct fs_path *path, uint32_t option) {
    return (fs_load_relaxed((fs_word32 *)&path->unset) & option) != 0;
}
static inline uint32_t fs_path_state(const struct fs_path *path) { return fs_load_relaxed((fs_word32 *)&path->state); }

/* Returns true if the next operations may have work to do for the path: for an undecided one, or after a fork. */
static inline int fs_has_step(const struct fs_path *path) { return fs_path_state(path) != FS_DECIDED; }

/* Returns true if neither kernel TCP nor the ring is decided. */
static inline int fs_is_undecided(const struct fs_path *path) {
    uint32_t state = fs_path_state(path);
    return state != FS_DECIDED && state < FS_THREAD_LATER;
}

/* Returns true if it looks for its peer. */
static inline int fs_is_searching(const struct fs_path *path) {
    return fs_load_relaxed((fs_atomic_ptr(struct fs_connector) *)&path->search) != 0;
}

/* Applies an event. Returns true if it changed the state: at most one of several threads succeeds. If another one has decided otherwise,
 * nothing changes. An event that cannot be in this state is our fault: the next step ends the connection (FS_STEP_BROKEN). */
int fs_path_event(struct fs_path *path, enum fs_path_events event);

/* Returns the name of a state, for reports. */
const char *fs_path_state_name(int state);

/* ---- reasons ---------------------------------------------------------------------------------------------- */

/* Connections of this process by path, and by the reason. A closed connection stays counted. Each counts as opened with FS_REASON_FEW or
 * FS_REASON_UNPAID, or with another one. */
struct fs_path_counts {
    int64_t by_reason[FS_REASONS]; /* on kernel TCP */
    int64_t ring;
};
extern struct fs_path_counts fs_path_counts;

static inline void fs_count_opened(enum fs_reason reason) { fs_path_counts.by_reason[reason]++; }

static inline void fs_uncount_opened(enum fs_reason reason) { fs_path_counts.by_reason[reason]--; }

/* Counts a connection under `now` instead of `before`. */
static inline void fs_count_changed(enum fs_reason before, enum fs_reason now) {
    fs_path_counts.by_reason[before]--;
    fs_path_counts.by_reason[now]++;
}

/* Stores why the connection is on kernel TCP, in its path and in the connection table. */
void fs_note_reason(struct fs_path *path, struct fs_connection *c, enum fs_reason reason);

void fs_change_reason(struct fs_path *path, struct fs_connection *c, enum fs_reason reason); /* and counts the change */

/* ---- opening ---------------------------------------------------------------------------------------------- */

/* The connection is established, and is counted as opened for `reason`. It looks for its peer after `operations` more operations. */
void fs_path_open(struct fs_path *path, struct fs_connection *c, int64_t operations, enum fs_reason reason);
