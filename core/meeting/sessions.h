/* What the sessions of one service were like: how long they lived, whether the search of those that looked for their peer
 * led to a move, and what the waits on the ring cost. A service is a port that this process listens on, or connects to. With the front
 * end's lock. */
#ifndef FASTSOCK_SESSIONS_H
#define FASTSOCK_SESSIONS_H

#include "meeting/course.h"

enum {
    FS_SESSIONS_SHORTEST = 8, /* operations: shorter ones cost nothing, as none looks for its peer before that, and are not noted */
    FS_SESSIONS_LENGTHS = 14, /* classes of lengths, each up to twice the one before: from 8 operations on, to 65,536 and more */
    FS_SESSIONS_MOVE = 16,    /* operations on kernel TCP that cost as much as a move, and */
    FS_SESSIONS_SEARCH = 6,   /* as a search that finds nobody (docs/decisions.md) */
};

/* All zero: nothing is known. */
struct fs_sessions {
    double ended[FS_SESSIONS_LENGTHS];      /* sessions of each class of lengths; what is older counts less */
    double operations[FS_SESSIONS_LENGTHS]; /* that they made */
    double found, missed; /* sessions whose search led to a move, and did not */
    double calls, messages; /* on the ring: system calls to sleep and to wake, at both ends, and messages */
    uint32_t noted; /* sessions, until that is enough to go by */
    int64_t later;  /* operations before which no session looks for its peer; 0: as the settings say */
};

enum fs_sought { FS_NOT_SOUGHT, FS_SOUGHT_IN_VAIN, FS_SOUGHT_AND_MOVED };

/* A session has ended after so many operations. `calls`, `messages`: of one that has moved. */
void fs_note_session(struct fs_sessions *s, int64_t operations, enum fs_sought sought, uint64_t calls, uint64_t messages);

/* What came of a connection's search, for fs_note_session. -1: it is none that sessions are learned from, as it may not move. */
int fs_what_was_sought(const struct fs_course *course);

#endif
