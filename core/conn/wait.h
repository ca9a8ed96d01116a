/* Waiting on a connection: polling for the budget, and sleeping on a bell or on the kernel connection. */
#ifndef FASTSOCK_WAIT_H
#define FASTSOCK_WAIT_H

#include "conn/connection.h"

/* Polls for the budget until there is something to receive (FS_RECEIVE), or credit to send with (FS_SEND). Whether there is. */
int fs_spin(struct fs_connection *c, int what);

/* Sleeps until something may have happened. 1: look again, 0: the deadline (monotonic ns, negative: none) has passed, -EINTR: a
 * signal ended the sleep. `news`: of numbers; NULL where no other thread can change one. */
int fs_sleep(struct fs_connection *c, int what, int64_t deadline, struct fs_fd_change *fd_change);


/* A connection on the ring learns for itself; those on the kernel, which may be short, from each other. */
struct fs_spin_stats *fs_spin_stats_of(struct fs_connection *c);

/* Whether polling is on and has been paying here, and nobody else waits for the processor. */
int fs_spin_pays(struct fs_connection *c);

/* Whether polling the kernel's stream can win anything: for a peer on this host, while nobody else waits for a processor. */
int fs_may_spin_on_kernel(struct fs_connection *c, int64_t now);

int64_t fs_wait_budget(struct fs_connection *c, int64_t now); /* nanoseconds that this wait may poll */
void fs_note_wait(struct fs_connection *c, int64_t began, int polled, int paid); /* learns from a finished wait whether polling pays */

/* Whether the peer is known to be on this host, or obviously so: both ends have one address, or the peer's is a loopback address.
 * Asked of the kernel by the first wait. */
int fs_peer_is_local(struct fs_connection *c);

#endif
