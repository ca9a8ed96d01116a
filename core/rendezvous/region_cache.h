/* Regions of this process: created or accepted, counted against the memory cap, and cached for the next connection. Called with the host
 * lock.
 *
 * A region reference owns a region. The search (connector.h) has it until the connection is attached, and the connection's path until it
 * is released. The seeker caches regions here by the peer's process, the publisher in the table of its control thread. */
#ifndef FASTSOCK_REGION_CACHE_H
#define FASTSOCK_REGION_CACHE_H

#include <stddef.h>
#include <sys/types.h>

#include "control/listener.h"
#include "control/region_mmap.h"
#include "conn/connection.h"
#include "conn/attach.h"

enum { FS_CAP_REACHED = -100004 }; /* the memory cap leaves no room for another region */

struct fs_region_ref {
    void *memory; /* NULL: unmapped */
    size_t size;
    int side; /* 0 the seeker, 1 the publisher */
    unsigned char id[16];
    pid_t peer;                            /* the process at the other end (0: in another PID namespace) */
    uint64_t key;                          /* the same process among all: its id, or its key (far_peer.h) */
    struct fs_far_peer *far;               /* it is in another network namespace */
    uint32_t window;                       /* known once attached */
    struct fs_stream_endpoint service;     /* the seeker's: of its last connection */
    int is_of_own_user;                    /* the process at the other end is of this process's user */
    int once;                              /* both ends were one process's: it is not used again */
    int in_vain;                           /* posted so many times since its last connection, and not taken */
    struct fs_connection *asked;           /* the connection whose requests are answered; NULL: none */
    size_t counted;                        /* bytes of the region that count against the cap */
    struct fs_region_ref *next, *previous; /* list of counted regions, circular; NULL: not in the list */
};

/* ---- the cap ---------------------------------------------------------------------------------------------- */

/* Sets the cap. fs_memory_used is the sum of all mappings as long as that is below the cap. Beyond the cap, a region counts the pages
 * that were in memory at its last check. (A region that was cached or has just come counts whole.) */
void fs_set_memory_cap(int64_t bytes);

/* ---- one region ------------------------------------------------------------------------------------------- */

/* Creates a region for the seeker, and its memfd, which is the caller's. Returns 0, FS_CAP_REACHED or -errno. May unlock the host lock. */
int fs_region_new(pid_t peer, int window, int chunk, struct fs_region_ref **region_ref, int *memfd);

/* Creates a region for two connections of this process, with a mapping for each. Returns as fs_region_new. */
int fs_region_new_pair(int window, int chunk, struct fs_region_ref *ends[2]);

/* Takes the region that a seeker sent to the publisher. Returns 0; FS_CAP_REACHED or -ENOMEM if the region was unmapped. */
int fs_region_accept(const struct fs_accepted_region *came, struct fs_region_ref **region_ref);

/* Attaches the connection. This gives consent, which cannot be taken back, so everything that can fail comes before. Returns 0; an error
 * of fs_requests_expect, fs_attach or `watch`; or -EINVAL with `*wrong` if the region is unsound. */
int fs_region_attach(struct fs_region_ref *region_ref, struct fs_connection *c, const struct fs_flow_options *flow,
                     const struct fs_attach_hooks *hooks, const char **wrong);

/* Called in a forked child: from now on the control thread of this process answers the peer's requests. Returns as
 * fs_requests_expect. */
int fs_region_inherit(struct fs_region_ref *region_ref, struct fs_connection *c);

/* The connection is about to end: nobody answers its peer's requests any more. Waits for an answer that is under way, without the host
 * lock. */
void fs_region_stop_requests(struct fs_region_ref *region_ref);

/* The connection has ended: caches the region if both sides may reuse it (`recyclable`), else unmaps it. Frees the reference. */
void fs_region_release(struct fs_region_ref *region_ref, int recyclable);

void fs_region_discard(struct fs_region_ref *region_ref); /* unmaps the region and frees the reference */

/* ---- cached by the seeker --------------------------------------------------------------------------------- */

enum { FS_CACHED_PER_PEER = 8, FS_CACHED_BY_SEEKER = 64 }; /* regions kept for one process, and for all */

/* Returns the newest cached region for a connection to the process with this key, if both sides have finished with it and the geometry
 * fits; else NULL. */
struct fs_region_ref *fs_cached_region_for(uint64_t key, int window, int chunk);

/* The same for a connection of this service (fs_stream_identity), of a process of this user which has none of the `count` others: that of the
 * last one. */
struct fs_region_ref *fs_cached_region_to(const struct fs_stream_endpoint *service, struct fs_region_ref *const *others, int count, int window,
                                          int chunk);

/* Caches a region again that fs_cached_region_to has returned, and nobody has taken: as the one to be used last if it was posted in vain. */
void fs_region_put_back(struct fs_region_ref *region_ref, int in_vain);

int fs_cached_region_count(void);

/* Unmaps all cached regions, of both caches. Returns true if there were any. */
int fs_region_cache_clear(void);

/* Called in a forked child: published names and cached regions are the parent's. */
void fs_regions_forget(void);

#endif
