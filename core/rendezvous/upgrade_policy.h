/* What the sessions of one service were like: how long they lived, whether the search of those that looked for their peer
 * led to a move, and what the waits on the ring cost. A service is a port that this process listens on, or connects to. With the front
 * end's lock. */
#ifndef FASTSOCK_UPGRADE_POLICY_H
#define FASTSOCK_UPGRADE_POLICY_H

#include "rendezvous/path_state.h"

enum {
    FS_SESSION_SHORTEST = 8, /* operations: shorter ones cost nothing, as none looks for its peer before that, and are not noted */
    FS_SESSION_LENGTHS = 14, /* classes of lengths, each up to twice the one before: from 8 operations on, to 65,536 and more */
    FS_SESSION_MOVE_COST = 16,    /* operations on kernel TCP that cost as much as a move, and */
    FS_SESSION_SEARCH_COST = 6,   /* as a search that finds nobody (docs/decisions.md) */
};

/* All zero: nothing is known. */
struct fs_session_stats {
    double ended[FS_SESSION_LENGTHS];      /* sessions of each class of lengths; what is older counts less */
    double operations[FS_SESSION_LENGTHS]; /* that they made */
    double found, missed; /* sessions whose search led to a move, and did not */
    double calls, messages; /* on the ring: system calls to sleep and to wake, at both ends, and messages */
    uint32_t noted; /* sessions, until that is enough to go by */
    int64_t later;  /* operations before which no session looks for its peer; 0: as the settings say */
};

enum fs_search_result { FS_NOT_SEARCHED, FS_SEARCH_FAILED, FS_SEARCH_MOVED };

/* A session has ended after so many operations. `calls`, `messages`: of one that has moved. */
void fs_note_session(struct fs_session_stats *s, int64_t operations, enum fs_search_result sought, uint64_t calls, uint64_t messages);

/* What came of a connection's search, for fs_note_session. -1: it is none that sessions are learned from, as it may not move. */
int fs_search_result_of(const struct fs_path *path);

#endif
