/* Links: what this process and another one have in common from their first contact on.
 *
 * A link owns the regions that both have mapped, those in which this process is the seeker and those in which it is the publisher. A region
 * is one object from its hello to its end. While a connection uses it, it is the connection's, and needs the host lock. When that has
 * ended, it lies parked in its link for the next one, which takes it from there: by a cell (cell.h), or by the seeker's hello with its id.
 *
 * A link ends with its last region. One that is idle is looked at (fs_links_look): its regions go if the other process has ended, and in
 * any case become fewer.
 *
 * Links, what is parked and what is counted: with the table lock, which these functions take (fs_control_lock_hosted), so they may
 * unlock and relock the host lock, which they need, where nothing else is said. */
#pragma once

#include "process/far_peer.h"
#include "transport/stream.h"

enum {
    FS_CAP_REACHED = -100004, /* the memory cap leaves no room for another region */
    FS_PARKED_PER_LINK = 8,   /* regions, of each side */
    FS_PARKED_BY_SEEKER = 64, FS_PARKED_BY_PUBLISHER = 16, /* of all links: a publisher looks at each of them */
};

struct fs_region_ref {
    void *memory; /* NULL: unmapped */
    size_t size;
    int side; /* 0 the seeker, 1 the publisher */
    unsigned char id[16];
    struct fs_link *link;                  /* NULL: it has come, and nobody has taken it yet */
    struct fs_far_peer *far;               /* of a connection whose other process is in another network namespace */
    uint32_t window;                       /* known once attached */
    int is_warm;                           /* it keeps its pages, and this side is to give them back */
    struct fs_stream_endpoint services[2]; /* the seeker's: of its last first contact */
    int once;                              /* both ends were one process's: it is not used again */
    struct fs_connection *asked;           /* the connection whose requests are answered; NULL: none */
    size_t counted;                        /* bytes that count against the cap */
    struct fs_region_ref *next, *previous; /* of the counted regions, circular; NULL: not counted */
};

struct fs_link {
    struct fs_peer_process peer;
    int is_of_own_user;   /* as it was at the last first contact */
    int is_far;           /* it is in another network namespace */
    uint64_t token;       /* of the other process's control socket, as it said last; 0: unknown */
    int regions;          /* of its connections, and parked */
    size_t counted;       /* bytes of them that count against the cap */
    fs_word64 connections; /* made over it; with the host lock, and read without: relaxed */
    int64_t used;         /* monotonic ns: a region was parked last */
    int looks;            /* since then */
    struct fs_region_ref *parked[2][FS_PARKED_PER_LINK + 1]; /* by side, the oldest first */
    int parked_count[2];
    struct fs_link *next; /* in its chain of the table */
};

/* ---- the cap ---------------------------------------------------------------------------------------------- */

/* Sets the cap. fs_memory_used is the sum of all mappings as long as that is below the cap. Beyond the cap, a region counts the pages
 * that were in memory at its last check. (A region that has just come counts whole.) Needs no table lock. */
void fs_set_memory_cap(int64_t bytes);
size_t fs_memory_used(void);

/* ---- one region ------------------------------------------------------------------------------------------- */

/* Returns a region of no link, which has the mapping from now on; NULL without memory. Any thread. */
struct fs_region_ref *fs_region_of(void *memory, size_t size, int side, const unsigned char id[16]);

/* Puts a region into the link with a process, which it makes if there is none, and counts it. Returns 0, FS_CAP_REACHED or -ENOMEM. */
int fs_link_join(struct fs_region_ref *region_ref, const struct fs_peer_process *peer);

/* Unmaps a region that is of no link, and frees the reference. Needs no table lock, and the host lock only if it has a far peer. */
void fs_region_free(struct fs_region_ref *region_ref);

void fs_region_discard(struct fs_region_ref *region_ref); /* takes the region from its link, and frees it */

/* ---- parked regions --------------------------------------------------------------------------------------- */

/* Parks a region of a link, as the newest: its connection has ended, or nobody has taken it. */
void fs_region_park(struct fs_region_ref *region_ref);

/* Parks a region again that was offered in vain: all others come first now. */
void fs_region_park_last(struct fs_region_ref *region_ref);

/* Takes the newest parked region of the seeker's for a connection to the process with this key, if both sides have finished with it and the
 * geometry fits, and readies it; NULL: there is none. */
struct fs_region_ref *fs_region_take(uint64_t key, int window, int chunk);

/* Takes a parked region from each link with a process of this user, one that has one of the two `services` in common (fs_stream_identity).
 * The other side may not have finished with it yet. Returns how many, at most `room`. */
int fs_regions_take_to(const struct fs_stream_endpoint *services, int window, int chunk, struct fs_region_ref **into, int room);

/* Takes a parked region of the publisher's from a link with a process of this user, the first one that `fits`; NULL: there is none. */
struct fs_region_ref *fs_region_take_fitting(int (*fits)(const struct fs_region_ref *, void *with), void *with);

/* Returns true if there is one that `fits` (`with` is NULL). */
int fs_region_any_parked(int (*fits)(const struct fs_region_ref *, void *with));

/* Returns a parked region of the publisher's by its id, of the link with this key, or NULL; and takes it. Both need the table lock, and no
 * host lock. */
struct fs_region_ref *fs_region_find_parked(uint64_t key, const unsigned char id[16]);
void fs_region_unpark(struct fs_region_ref *region_ref);

/* Returns the number of parked regions of a side. Needs no table lock, and is a hint. */
int fs_regions_parked(int side);

/* Unmaps all parked regions. Returns true if there were any. */
int fs_links_clear(void);

/* ---- the control thread ----------------------------------------------------------------------------------- */

/* Looks at the links that have been idle for a while. Returns when the next one is due (monotonic ns), INT64_MAX: none. Needs the table
 * lock, and no host lock. */
int64_t fs_links_look(int64_t now);

/* Calls `tell` for each link, until it returns false. Returns true if it never has. Needs the table lock, and no host lock. */
int fs_links_each(int (*tell)(const struct fs_link *link, void *with), void *with);

/* ---- a fork ------------------------------------------------------------------------------------------------ */

/* Called in a forked child: parked regions are the parent's. */
void fs_links_forget(void);
