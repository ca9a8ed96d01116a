/* Attaching a region to a connection, and handing out its descriptor. */
#ifndef FASTSOCK_ATTACH_H
#define FASTSOCK_ATTACH_H

#include "conn/state.h"

/* Attaches a region and gives consent: from then on this side reads the bytes that the peer posts after its switch. `memory` is the
 * mapping, of `size` bytes; it stays the caller's. `side` is 0 for the seeker, 1 for the publisher. The caller has the host lock,
 * which is unlocked while the side's locks are taken.
 * Returns 0, or -ENOMEM; -ENOTCONN if the connection is being closed or shared, or the kernel does not count its bytes; -EINVAL if
 * the region is unsound, with the reason in `*wrong`. */
int fs_attach(struct fs_connection *c, void *memory, size_t size, int side, const struct fs_flow_options *flow, const char **wrong);

/* Counts the bytes of the kernel's stream that were received so far. Returns 0 if the connection is no longer established, or if
 * the kernel cannot say. */
int fs_count_received(struct fs_connection *c, uint64_t *taken);

/* The descriptor's number was handed out: from now on it must be readable exactly while something waits. The caller is inside
 * (fs_call_enter) until after fs_wait_for_doorbell_byte. The caller has the host lock, so that no loop starts to drive the
 * connection between the check and the note; it is unlocked while the receive lock is taken.
 * Returns 1 if the caller must ask the peer for a doorbell byte and wait for it with fs_wait_for_doorbell_byte; 0 if not; -EINTR as
 * fs_conn_shutdown (open_close.h). */
int fs_expose(struct fs_connection *c);

/* Returns true if the descriptor is exposed and the peer knows. An fs_expose that did not get the lock has not told the peer. */
static inline int fs_is_told_exposed(const struct fs_connection *c) {
    return fs_is_exposed(c) && (!fs_is_attached(c) || fs_load_relaxed(&c->ring.rx->doorbell) & FS_EXPOSED);
}

void fs_wait_for_doorbell_byte(struct fs_connection *c); /* for 20 ms at most, without the host lock */

/* Returns the descriptor for a system call that is made without a lock. As on TCP, it may be closed before that call begins. */
static inline int fs_fd_unlocked(const struct fs_connection *c) { return (int)fs_load_own32(&c->number); }

#endif
