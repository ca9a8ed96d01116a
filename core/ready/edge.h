/* Edges: whether something has come since an edge-triggered member (EPOLLET) was looked at.
 *
 * A look tells an edge-triggered member of what is ready and was not at the look before (`found` of struct fs_member), and of what has been
 * posted since (its mark). scan.c arms the member before it looks, so no arrival is lost. */
#pragma once

#include "ready/poller.h"

/* Brings a mark up to what the peer has posted by now. True if that is more. Without a lock. */
int fs_advance_mark(struct fs_connection *c, struct fs_mark *mark);

/* Returns true if what the kernel reports of a parked member is an edge: not the FIN that the ring had before. With the poller's lock. */
int fs_is_kernel_edge(const struct fs_member *m, uint32_t events);
