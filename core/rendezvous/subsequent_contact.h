/* Subsequent contact: the seeker offers regions for a connection by their cells (control/cell.h), the publisher takes one. Called with the
 * host lock, which these may unlock and relock (link.h). */
#pragma once

#include "rendezvous/regions.h"

enum { FS_POSTS = 8 }; /* regions offered at a time: of as many processes, any of which may have accepted the connection */

struct fs_subsequent_contact {
    struct fs_region_ref *of[FS_POSTS];
    int count;
    int tries; /* to find one */
};

/* Posts a region of each process that has had a connection at the other end's address. Returns true if there is any. */
int fs_contact_post(struct fs_subsequent_contact *posts, int fd, const struct fs_stream_identity *ends, int window, int chunk);

/* Returns true if it is worth another try: another connection may end that has such a region. */
int fs_contact_may_post(const struct fs_subsequent_contact *posts);

/* Returns the region that the connection's other end has taken, which is the caller's, and withdraws the others; NULL: none yet. */
struct fs_region_ref *fs_contact_taken(struct fs_subsequent_contact *posts);

/* Withdraws all. `in_vain`: the connection's other end had time to take one. */
void fs_contact_withdraw(struct fs_subsequent_contact *posts, int in_vain);

/* Called in a forked child: they are the parent's. */
void fs_contact_forget(struct fs_subsequent_contact *posts);
