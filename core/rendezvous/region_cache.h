/* The memory that a connection shares with its peer, in the hands of this process: made or taken over, counted against
 * the cap, and parked for the next connection. All of it with the front end's lock.
 *
 * A region with what belongs to it is a kit. The search (connector.h) has it until the connection is attached, and the
 * connection's course until it is released. The seeker parks here by the peer's process, the publisher in the table of
 * its connection thread. */
#ifndef FASTSOCK_REGION_CACHE_H
#define FASTSOCK_REGION_CACHE_H

#include <stddef.h>
#include <sys/types.h>

#include "control/listener.h"
#include "control/region_memory.h"
#include "conn/connection.h"
#include "conn/attach.h"

enum { FS_CAP_REACHED = -100004 }; /* the memory cap leaves no room for another region */

struct fs_region_ref {
    void *memory; /* NULL: given back */
    size_t size;
    int side;            /* 0 the seeker, 1 the publisher */
    unsigned char id[16];
    pid_t peer;          /* the process at the other end of the meeting (0: of another PID namespace) */
    uint32_t window;     /* known once attached */
    struct fs_connection *asked; /* whose requests are answered; NULL: nobody's */
    size_t counted;              /* bytes of the region that count against the cap, */
    struct fs_region_ref *next, *previous; /* as this kit is in the circle of those that do; NULL: it is not */
};

/* ---- the cap ---------------------------------------------------------------------------------------------- */

/* What counts (fs_memory_used): all that is mapped, as long as that is below the cap. Beyond it, of a region the pages that were in
 * memory when it was last looked at. (A region that was parked or has just come counts whole.) */
void fs_set_memory_cap(int64_t bytes);

/* ---- one kit ---------------------------------------------------------------------------------------------- */

/* A fresh region for the seeker, and its memfd, which is the caller's. 0,
 * FS_CAP_REACHED or -errno. May let go of the front end's lock. */
int fs_region_new(pid_t peer, int window, int chunk, struct fs_region_ref **region_ref, int *memfd);

/* The region that a seeker sent to the publisher. 0, FS_CAP_REACHED or -ENOMEM, and then it is given back. */
int fs_region_accept(const struct fs_accepted_region *came, struct fs_region_ref **region_ref);

/* Who has to seat a connection in its event set before it attaches: a loop that waits for many. NULL: nobody. */
struct fs_attach_hooks {
    int (*watch)(void *whose, struct fs_connection *c); /* 0, or a failure, and the connection does not attach */
    void (*ignore)(void *whose, struct fs_connection *c);
    void *whose;
};

/* Attaches the connection, which consents with that and cannot take it back. So everything that can fail comes before:
 * 0; as fs_requests_expect, fs_attach or the watcher; and -EINVAL with `*wrong` if the region is unsound. */
int fs_region_attach(struct fs_region_ref *region_ref, struct fs_connection *c, const struct fs_flow_options *flow, const struct fs_attach_hooks *hooks,
                  const char **wrong);

/* In a forked child: from now on the connection thread of this process answers the peer's requests. As
 * fs_requests_expect. */
int fs_region_inherit(struct fs_region_ref *region_ref, struct fs_connection *c);

/* The connection is about to end: nobody answers its peer's requests any more. Waits for an answer that is being
 * given, without the front end's lock. */
void fs_region_stop_requests(struct fs_region_ref *region_ref);

/* The connection has ended: parks the region if both sides may come back to it (`recyclable`), else gives it back. The
 * kit is gone then. */
void fs_region_release(struct fs_region_ref *region_ref, int recyclable);

void fs_region_discard(struct fs_region_ref *region_ref); /* gives all of it back; it is gone then */

/* ---- parked by the seeker --------------------------------------------------------------------------------- */

enum { FS_CACHED_PER_PEER = 8, FS_CACHED_BY_SEEKER = 64 }; /* regions kept for one process, and for all */

/* A parked region for a connection to this process, if both sides have finished with it and it has this geometry.
 * NULL: there is none. */
struct fs_region_ref *fs_cached_region_for(pid_t peer, int window, int chunk);

int fs_cached_region_count(void);

/* Gives back all parked regions, of both caches. Whether there were any. */
int fs_region_cache_clear(void);

/* In a forked child: what the parent has published and parked is the parent's. */
void fs_regions_forget(void);

#endif
