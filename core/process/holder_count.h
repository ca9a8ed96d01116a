/* Which processes hold a connection (struct fs_shared_side: `holders`, `children`). Needs no lock. */
#ifndef FASTSOCK_HOLDER_COUNT_H
#define FASTSOCK_HOLDER_COUNT_H

#include "ring/ring.h"

/* Processes that have this connection open. Strikes out forked children that have died unseen. */
uint32_t fs_count_holders(struct fs_shared_side *own);

/* A fork is about to make one holder more (`by` 1), or has come to nothing (-1): see atfork.h. */
void fs_count_child(struct fs_shared_side *own, int by);

/* This process holds the connection since a fork: it is struck out if it is killed (one of the first, at least). */
void fs_register_child(struct fs_shared_side *own);

void fs_unregister_holder(struct fs_shared_side *own); /* this process holds the connection no longer */

/* Whether this process is the last that holds the connection. Then it is counted until fs_unregister_holder, when all is said;
 * otherwise it holds the connection no longer. */
int fs_release_unless_last(struct fs_shared_side *own);

/* The PID namespace of this process, which never changes: the number by which nsfs knows it. 0: nobody tells. */
uint32_t fs_pid_ns(void);

#endif
