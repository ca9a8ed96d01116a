/* Memory shared with forked children and with nobody else: two blocks for each connection (struct fs_shared_side and its `ends`). All
 * with the front end's lock. */
#ifndef FASTSOCK_FORK_SHARED_SLAB_H
#define FASTSOCK_FORK_SHARED_SLAB_H

#include "ring/ring.h"

extern struct fs_shared_side fs_ended_side; /* what a connection that has ended points to */

/* Zeroed memory that forked children share, at most the `ends` of the widest window. NULL without memory or address space. */
void *fs_slab_alloc(size_t size);

void fs_slab_free(void *memory, size_t size);

/* The memory of a side that this process alone holds. NULL without memory or address space. */
struct fs_shared_side *fs_side_new(void);

/* Takes back a connection's blocks, once no process holds it any more. (Nobody but us strikes out a child that is killed
 * after we have let go.) `ends_size`: bytes of `side->sender.ends`, as fs_ends_size says. */
void fs_side_free(struct fs_shared_side *side, size_t ends_size);

/* A forked child never hands out or takes back what it inherited. */
void fs_slab_forget(void);

#endif
