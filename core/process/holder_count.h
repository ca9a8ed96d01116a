/* The processes that hold a connection (struct fs_shared_side: `holders`, `children`). Needs no lock. */
#pragma once

#include "ring/ring.h"

/* Returns the number of processes that have this connection open. Uncounts forked children that were killed. */
uint32_t fs_count_holders(struct fs_shared_side *own);

/* Adds `by` to the count: 1 before a fork, -1 if the fork failed. See atfork.h. */
void fs_count_child(struct fs_shared_side *own, int by);

/* For a forked holder: registers its id, if there is room, so that it is uncounted if it is killed. */
void fs_register_child(struct fs_shared_side *own);

void fs_unregister_holder(struct fs_shared_side *own); /* this process no longer holds the connection */

/* This thread is about to call execve(2), which closes the connection: if that succeeds, the holder counts as one that was killed. */
void fs_holder_may_exec(struct fs_shared_side *own);

/* Returns 1 if this process is the last holder. Then it stays counted until fs_unregister_holder. Otherwise returns 0, and it is no
 * holder any more. */
int fs_release_unless_last(struct fs_shared_side *own);

