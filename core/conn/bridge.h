/* The bridge: the way out when the peer cannot send again what lies unread here. */
#ifndef FASTSOCK_BRIDGE_H
#define FASTSOCK_BRIDGE_H

#include "conn/fallback.h"

/* Starts a process that copies between the connection and one end of a new TCP connection within this process. Its
 * process id, and `*near`, the other end, which is to take the place of the connection's descriptors
 * (fs_swap_to_bridge) and is the caller's to close behind that; or -errno, and there is nothing. `parcel` stays the
 * caller's: the process has one of its own. With the front end's lock,
 * which is let go for the fork. */
int64_t fs_start_bridge(struct fs_connection *c, struct fs_fallback_lock *fallback, struct fs_unread_data *unread_data, int *near);

/* The connection's descriptors become `near`, a kernel TCP connection like any other, with `side` as its state.
 * Never waits; with the front end's lock. 0 if a turn is somebody else's, and nothing has changed then:
 * fs_wait_for_side, and look at the numbers again. -errno if a number could not be replaced: the program and the bridge would both
 * read one socket. So the connection is reset, at both ends, and has not changed over; the caller dissolves it, and frees `side`.
 *
 * `numbers`: the `count` descriptors of the connection in this process, fs_fd(c) among them. Each is replaced in one
 * step (dup3) and keeps its FD_CLOEXEC. `near` stays the caller's, which closes it. `side`: from fs_side_new; the connection's from here on (fs_release_side). `inode`
 * becomes that of the new socket: the caller changes what it finds connections by, from what it was. The region and
 * the old side stay mapped until the connection ends. */
int fs_swap_to_bridge(struct fs_connection *c, int near, struct fs_shared_side *side, const int *numbers, int count);

#endif
