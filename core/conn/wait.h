/* Waiting on a connection: spinning for the budget, and sleeping on a futex or on the kernel connection. */
#pragma once

#include "conn/connection.h"

/* Returns the spin statistics. A connection on the ring has its own; those on the kernel, which may be short, share one. */
struct fs_spin_stats *fs_spin_stats_of(struct fs_connection *c);

/* Nanoseconds that this wait may spin: on the kernel's stream only if the peer is on this host, and no processor is waited for. */
int64_t fs_wait_budget(struct fs_connection *c, int64_t now);
void fs_note_wait(struct fs_connection *c, int64_t began, int spun, int paid); /* updates the spin statistics */

/* As fs_sleep for bytes from the ring, for a caller that looks for more than a receive does: first it reads the futex, which is `looked`,
 * then it looks, then it calls. Returns 1 at once if a receive would not wait on the ring. */
int fs_sleep_on_ring(struct fs_connection *c, uint32_t looked, int64_t deadline);

/* Returns true if the peer is known to be on this host: both ends have one address, or the peer's is a loopback address. The first wait
 * asks the kernel. */
int fs_peer_is_local(struct fs_connection *c);
