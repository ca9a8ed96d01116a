/* Attaching a region to a connection, and changing its descriptor. */
#pragma once

#include "conn/state.h"

/* Attaches a region and gives consent: from then on this side reads the bytes that the peer posts after its switch. `memory` is the
 * mapping, of `size` bytes; it stays the caller's. `side` is 0 for the seeker, 1 for the publisher. The caller has the host lock,
 * which is unlocked while the side's locks are taken.
 * Returns 0, or -ENOMEM; -ENOTCONN if the connection is being closed or shared, or the kernel does not count its bytes; -EINVAL if
 * the region is unsound, with the reason in `*wrong`. */
int fs_attach(struct fs_connection *c, void *memory, size_t size, int side, const struct fs_flow_options *flow, const char **wrong);

/* Returns the descriptor for a system call that is made without a lock. As on TCP, it may be closed before that call begins. */
static inline int fs_fd_unlocked(const struct fs_connection *c) { return (int)fs_load_own32(&c->number); }
