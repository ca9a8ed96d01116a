/* The regions of this process's connections: made or accepted, attached, and parked in their link. Called with the host lock, which these
 * may unlock and relock (link.h).
 *
 * The search (connector.h) has a region until the connection is attached, and the connection's path until it is released. */
#pragma once

#include "control/link.h"
#include "control/listener.h"
#include "conn/connection.h"
#include "conn/attach.h"

/* Creates a region for the seeker, and its memfd, which is the caller's. Returns as fs_link_join, or -errno. */
int fs_region_new(const struct fs_peer_process *peer, int window, int chunk, struct fs_region_ref **region_ref, int *memfd);

/* Creates a region for two connections of this process, with a mapping for each. Returns as fs_region_new. */
int fs_region_new_pair(int window, int chunk, struct fs_region_ref *ends[2]);

/* Takes the region that a seeker sent to the publisher. Returns 0; or as fs_link_join or -EMFILE, and the region is unmapped. */
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

/* The connection has ended: parks the region if both sides may reuse it (`recyclable`), else unmaps it. */
void fs_region_release(struct fs_region_ref *region_ref, int recyclable);

/* Called in a forked child: published names and parked regions are the parent's. */
void fs_regions_forget(void);
