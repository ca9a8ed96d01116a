/* Published names and what comes through them. With the front end's lock.
 *
 * A process that waits to be found publishes a name for each connection; its connection thread (control_thread.h) answers while
 * the program computes: it checks who asks, receives the region, validates and maps it, says WAKEUP and leaves the VI
 * in the accept queue, from where the connection takes it at its next operation (`fs_listing_result`). */
#ifndef FASTSOCK_LISTENER_H
#define FASTSOCK_LISTENER_H

#include <stddef.h>
#include <unistd.h>
#include <stdint.h>

#include "control/accepted_region.h"
#include "control/tcp_identity.h"

#include "os/atomics.h"

/* Whom the connection thread answers: processes of this user and root, or those of any user. */
void fs_set_trust(int any_user);

/* The bound of the accept queue: the largest backlog any listener asked for. */
void fs_set_backlog(int length);

enum { FS_TOO_MANY_LISTINGS = -100002 }; /* of fs_listing_publish: come again later */

/* Publishes an abstract unix name for the connection of the descriptor `fd`, for a while. `*handle` is for it. `ends`: of that
 * connection, if the caller has asked for them (fs_tcp_addresses); NULL: it has not.
 * `arrival`: where the connection keeps what it looks at, the meeting's state as a hint; NULL: nowhere. 0; or
 * -ENOTCONN; or -EADDRINUSE: somebody holds the name; or FS_TOO_MANY_LISTINGS; or as fs_reserve_fd or
 * fs_control_thread_start. */
int fs_listing_publish(const char *name, size_t length, int fd, const struct fs_tcp_identity *ends, fs_word32 **listing_state, uint64_t *handle);

/* What came through a published name: its state. FS_LISTING_WAITING: nothing yet. Otherwise it is published no longer,
 * and there is no hint any more. FS_LISTING_EXPIRED: unclaimed. */
enum fs_listing_state fs_listing_result(uint64_t handle, fs_word32 **listing_state, struct fs_accepted_region *came);

/* Takes a name back, and refuses a VI that was not yet taken. */
void fs_listing_withdraw(uint64_t handle, fs_word32 **listing_state);

/* The publisher's side of the region cache: keeps a finished connection's mapping for the next one. What it displaces is unmapped. */
void fs_cache_put(void *memory, size_t size, const unsigned char id[16]);

/* Unmaps what the cache holds. Whether there was anything. */
int fs_cache_clear(void);

#endif
