/* Published names and the regions that come through them. Needs the host lock.
 *
 * A process that waits for peers publishes a name for each connection. Its control thread (control_thread.h) answers while the
 * program computes: it checks the peer, receives, validates and maps the region, sends WAKEUP and puts the region into the accept queue.
 * The connection takes it from there at its next operation (`fs_listing_result`). */
#pragma once

#include <stddef.h>
#include <unistd.h>
#include <stdint.h>

#include "control/accepted_region.h"
#include "transport/stream.h"

#include "os/atomics.h"

enum { FS_TOO_MANY_LISTINGS = -100002 }; /* of fs_listing_publish: try again later */

/* Publishes an abstract unix name for the connection of `fd`, for a while, and sets `*handle`. The control thread has been started. `ends`:
 * the connection's, if the caller has them (fs_stream_kind.identify), or NULL: of a TCP connection. `listing_state`: receives a pointer to
 * the listing's state, as a hint; NULL: not needed. Returns 0, -ENOTCONN, -EADDRINUSE if the name is taken, FS_TOO_MANY_LISTINGS, or as
 * fs_reserve_fd. */
int fs_listing_publish(const char *name, size_t length, int fd, const struct fs_stream_identity *ends,
                       fs_atomic_ptr(fs_word32) *listing_state, uint64_t *handle);

/* Returns the state of a published name. Unless it is FS_LISTING_WAITING, the name is published no longer and the hint is gone.
 * FS_LISTING_EXPIRED or FS_LISTING_OTHER_USER: unclaimed. */
enum fs_listing_state fs_listing_result(uint64_t handle, fs_atomic_ptr(fs_word32) *listing_state, struct fs_accepted_region *came);

/* Withdraws a name, and drops a region that was not taken yet. */
void fs_listing_withdraw(uint64_t handle, fs_atomic_ptr(fs_word32) *listing_state);
