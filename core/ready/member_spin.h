/* Polling connections for a while before a wait sleeps. */
#pragma once

#include "conn/readiness.h"
#include "ready/poller.h"

/* Connections, and what is awaited of each. */
struct fs_spun {
    struct fs_connection *c[FS_SPUN];
    int wanted[FS_SPUN];
    int count;
};

static inline int fs_spun_wanted(const struct fs_connection *c, uint32_t events) {
    return (events & FS_IN ? FS_RECEIVE : 0) | (events & FS_OUT_ROOM && fs_pollout_is_ours(c) ? FS_SEND : 0);
}

static inline void fs_spun_add(struct fs_spun *s, struct fs_connection *c, uint32_t events) {
    s->wanted[s->count] = fs_spun_wanted(c, events);
    s->c[s->count++] = c;
}

/* Looks until one may be ready, `hinted` has a hint (NULL: nobody asks), a handler of the program waits, or the time is over. True if
 * something was found. Adds the time, ns, to `*spent`. From inside calls on the connections, and without a lock. */
int fs_spin_on(const struct fs_spun *s, struct fs_poller *hinted, struct fs_spin_stats *stats, int64_t until, int64_t *spent);

/* The same for the first FS_SPUN members of the list. With the poller's lock, which it lets go of. */
int fs_members_spin(struct fs_poller *p, int64_t until, int64_t *spent);

/* The wait is about to sleep: what it has spent has brought nothing. */
void fs_spun_in_vain(int64_t *spent);
