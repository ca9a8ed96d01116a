/* Statistics of the sessions of one service: their length, how often the search led to a move, and the cost of waits on the ring. A
 * service is a port that this process listens on, or connects to. Called with the host lock. */
#pragma once

#include "rendezvous/path_state.h"

enum {
    FS_SESSION_SHORTEST = 8,    /* operations: shorter sessions cost nothing, as none looks for its peer before that, and are not noted */
    /* FS_SESSION_LENGTHS: classes of lengths, each up to twice the one before: from 8 operations on, to 65,536 and more */
    FS_SESSION_MOVE_COST = 16,  /* cost of a move, in operations on kernel TCP */
    FS_SESSION_SEARCH_COST = 6, /* cost of a search that finds nobody (docs/decisions.md) */
    /* Where two processes have a region in common a move is cheap, but not free. Sessions that last begin to search with this operation: */
    FS_LINKED_BEGINS = 1,
    FS_LINKED_STEPS = 4,     /* operations at least in which a subsequent contact is tried, before a first one */
    FS_SESSION_LASTING = 14, /* operations from which that pays: 7 requests (docs/decisions.md) */
    FS_SESSIONS_KEPT = 16,   /* sessions that say what share of them lasts */
    FS_LINKED_FOR = 4,       /* lasting sessions that may fail to move, in turn, until their service counts as not linked */
    FS_LINK_TRIES = 32,      /* searches in vain that are spent for a link */
};

enum fs_search_result { FS_NOT_SEARCHED, FS_SEARCH_FAILED, FS_SEARCH_MOVED };

/* Notes a session that has ended after `operations` operations. `calls` and `messages` are for one that has moved. */
void fs_note_session(struct fs_service *service, int64_t operations, enum fs_search_result sought, uint64_t calls, uint64_t messages);

/* Returns false if statistics of so many short sessions say already what one more of `operations` does. */
static inline int fs_is_news(const struct fs_service *service, int64_t operations) {
    return operations >= FS_SESSION_SHORTEST || service->stats->lasting > 1.0 / 64 || service->stats->sessions < FS_SESSIONS_KEPT;
}

/* Notes the session of a connection that ends, unless the connection was not allowed to move. */
void fs_note_session_of(struct fs_service *service, const struct fs_path *path, const struct fs_connection *c);

/* A session has moved. */
static inline void fs_note_move(struct fs_service *service) { service->linked = FS_LINKED_FOR, service->tried = 0; }

/* Returns true if a first contact, which costs more than a session of the service gains, pays by the sessions that follow. */
static inline int fs_link_pays(const struct fs_service *service) { return service->stats->lasting > 0.5 && service->tried < FS_LINK_TRIES; }

/* Returns the number of operations before a connection of the service looks for its peer by a name: `move_after`, or more because of past
 * sessions. `service`: NULL if nothing is known. */
static inline int64_t fs_search_begins(const struct fs_service *service, int64_t move_after) {
    if (!service || !move_after || fs_link_pays(service)) return move_after;
    return FS_MAX(service->stats->later, move_after);
}

/* Returns true if a subsequent contact pays for a session of the service. */
static inline int fs_is_linked(const struct fs_service *service) { return service->linked && service->stats->lasting > 0.5; }

/* Returns the number of operations before the first step of the search, which may be a subsequent contact. */
static inline int64_t fs_first_step(const struct fs_service *service, int64_t begins) {
    return service && fs_is_linked(service) ? FS_MIN(begins, (int64_t)FS_LINKED_BEGINS) : begins;
}

/* Returns the number of operations before the first that publishes or looks up a name, of a search whose first step is at operation
 * `first`. (One that begins at once has a name at once.) */
static inline int64_t fs_first_contact(const struct fs_service *service, int64_t first, int64_t begins) {
    return FS_MAX(begins, first + (service && service->linked && begins ? FS_LINKED_STEPS : 0));
}

/* Returns the reason for kernel TCP until then. */
static inline enum fs_reason fs_reason_before(int64_t begins, int64_t move_after) {
    return begins > move_after ? FS_REASON_UNPAID : FS_REASON_FEW;
}
