/* Subsequent contact: two processes that have a region in common agree to use it for another connection, by its cell (wire/region.h).
 * No message is sent, and no other thread takes part. */
#pragma once

#include "control/link.h"
#include "transport/stream.h"

/* The seeker offers a region with which it has finished, for the connection of the socket with this cookie (SO_COOKIE). */
void fs_cell_post(void *memory, uint64_t cookie, const struct fs_stream_identity *ends);

/* The seeker takes its offer back. Returns true if nobody has taken the region. */
int fs_cell_withdraw(void *memory);

/* Returns true if any parked region is offered, for whichever connection. Needs the host lock, as below. */
int fs_any_cell_posted(void);

/* The publisher looks if a parked region is offered for its connection, by a process of this user that has the connection's other end.
 * Returns the region, which belongs to the caller, or NULL. Needs the host lock, which it may unlock and relock. */
struct fs_region_ref *fs_cell_take(const struct fs_stream_identity *ends);
