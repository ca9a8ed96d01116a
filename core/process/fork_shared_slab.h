/* Memory shared with forked children and with nobody else: two blocks for each connection (struct fs_shared_side and its `ends`). Needs
 * the host lock. */
#pragma once

#include "ring/ring.h"

extern struct fs_shared_side fs_ended_side; /* the side of a connection that has ended */

/* Returns zeroed memory shared with forked children, at most the `ends` of the widest window; NULL without memory or address space. */
void *fs_slab_alloc(size_t size);

void fs_slab_free(void *memory, size_t size);

/* Makes a side that this process alone holds. Returns NULL without memory or address space. */
struct fs_shared_side *fs_side_new(void);

/* Frees a connection's blocks once no process holds it any more. (Only this process can unregister a child that is killed after we
 * released the connection.) `ends_size`: bytes of `side->sender.ends`, see fs_ends_size. */
void fs_side_free(struct fs_shared_side *side, size_t ends_size);

/* For a forked child, which never allocates or frees inherited blocks. */
void fs_slab_forget(void);
