/* The course of a connection: how it stands with its peer until its path is decided, and what its next operation does
 * about it. course.c has the table; nobody else writes a state. All of it with the front end's lock. */
#ifndef FASTSOCK_COURSE_H
#define FASTSOCK_COURSE_H

#include "connection/connection.h"
#include "wire/reasons.h"

struct fs_search; /* search.h */
struct fs_kit;    /* kits.h */

enum fs_course_state {
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
    FS_COURSE_STATES
};

enum fs_course_event {
    FS_CE_CONNECT,   /* a connect begins that does not wait */
    FS_CE_CONNECTED, /* it is over */
    FS_CE_OPEN,      /* the connection stands, and its operations count */
    FS_CE_START,     /* they are enough */
    FS_CE_PUBLISH,   /* the search begins, at the end that publishes; */
    FS_CE_SEEK,      /* at the end that seeks */
    FS_CE_NAMED,     /* the name is published */
    FS_CE_HELLO,     /* hello was said */
    FS_CE_AGAIN,     /* the meeting came to nothing */
    FS_CE_CAME,      /* both have the region */
    FS_CE_MOVED,     /* this end has consented */
    FS_CE_STAY,      /* kernel TCP, for a reason; or the connection ends */
    FS_CE_FORK,      /* a fork begins, for which the connection thread stops */
    FS_CE_ANSWERED,  /* the connection thread runs, and answers for this connection */
    FS_CE_CHILD,     /* this process is a forked child: threads and names were the parent's */
    FS_CE_INHERIT,   /* the same, of a connection that is attached */
    FS_COURSE_EVENTS
};

struct fs_course {
    int state;  /* enum fs_course_state */
    int reason; /* enum fs_reason: why the connection is on kernel TCP */
    int64_t operations; /* of the program, ever */
    int64_t next;       /* the number of the operation that takes the next step */
    fs_word32 *arrival; /* the state of the meeting that it waits for (meetings.h); NULL: none */
    struct fs_search *search; /* NULL: none */
    struct fs_kit *kit;       /* once attached */
    unsigned long attaching;  /* the thread that is at it; 0: none */
    int64_t waited;           /* ns that its operations have waited for the other end, by the setting `meeting_ms` */
    int waits;                /* one of them does so now */
};

/* Whether an operation may still have something to do about the path. */
static inline int fs_is_undecided(const struct fs_course *course) { return course->state != FS_DECIDED; }

/* Whether it looks for its peer. */
static inline int fs_is_searching(const struct fs_course *course) { return course->search != 0; }

/* An event of the course. Whether it was possible: of several threads at most one finds it so, and where another one
 * has decided otherwise, it changes nothing. */
int fs_proceed(struct fs_course *course, enum fs_course_event event);

/* What a state is called in reports. */
const char *fs_course_name(int state);

/* ---- reasons ---------------------------------------------------------------------------------------------- */

const char *fs_reason_text(int reason); /* of enum fs_reason, for people */

/* Connections of this process by the path that they are or were on to their end, and by the reason. Each counts as
 * opened with FS_REASON_FEW or FS_REASON_UNPAID, or with another one. */
struct fs_paths {
    int64_t by_reason[FS_REASONS]; /* on kernel TCP */
    int64_t ring;
};
extern struct fs_paths fs_paths;

static inline void fs_count_opened(enum fs_reason reason) { fs_paths.by_reason[reason]++; }

/* A connection that was counted under `before` is counted under `now`. */
static inline void fs_count_changed(enum fs_reason before, enum fs_reason now) {
    fs_paths.by_reason[before]--;
    fs_paths.by_reason[now]++;
}

/* Why the connection is on kernel TCP, from now on: in its course and on the roll. */
void fs_note_reason(struct fs_course *course, struct fs_connection *c, enum fs_reason reason);

void fs_change_reason(struct fs_course *course, struct fs_connection *c, enum fs_reason reason); /* and it is counted so */

/* ---- the beginning ---------------------------------------------------------------------------------------- */

/* The connection stands, and is counted as opened for `reason`: it looks for its peer after so many operations more. */
void fs_open_course(struct fs_course *course, struct fs_connection *c, int64_t operations, enum fs_reason reason);

#endif
