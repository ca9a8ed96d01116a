/* Subsequent contact: two processes that have a region in common agree to use it for another connection, by its cell (wire/region.h).
 * No message is sent, and no other thread takes part. */
#ifndef FASTSOCK_CELL_H
#define FASTSOCK_CELL_H

#include "control/accepted_region.h"
#include "transport/stream.h"

/* The seeker offers a region, which is recycled, for the connection of `fd`. Returns 0 if the kernel does not tell the socket's cookie. */
int fs_cell_post(void *memory, int fd, const struct fs_stream_identity *ends);

/* The seeker takes its offer back. Returns true if nobody has taken the region. */
int fs_cell_withdraw(void *memory);

/* The publisher looks if a parked region is offered for its connection, by a process of this user that has the connection's other end.
 * Returns true and sets `*came`, which belongs to the caller. Needs the host lock. */
int fs_cell_take(const struct fs_stream_identity *ends, struct fs_accepted_region *came);

/* Returns true if there is any parked region. Needs the host lock. */
int fs_cell_may_come(void);

#endif
