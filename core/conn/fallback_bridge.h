/* The bridge: the fallback when the peer cannot send the bytes again that lie unread here. */
#pragma once

#include "conn/fallback.h"

/* Starts a process that copies between the connection and one end of a new TCP connection within this process. Called with the host
 * lock, which is unlocked for the fork. Returns the process id, and the other end in `*near`: it is to replace the connection's
 * descriptors (fs_swap_to_bridge), and the caller closes it afterwards. Returns -errno if nothing was started. `unread_data` stays the
 * caller's: the process has its own copy of the descriptor. */
int64_t fs_start_bridge(struct fs_connection *c, struct fs_fallback_lock *fallback, struct fs_unread_data *unread_data, int *near);

/* Makes the connection's descriptors refer to `near`, an ordinary kernel TCP connection, with `side` as the connection's state. Never
 * waits; called with the host lock. Returns 1, or 0 if another thread has a lock and nothing has changed: the caller calls
 * fs_wait_for_side and looks the numbers up again. Returns -errno if a number could not be replaced: the program and the bridge would
 * both read one socket, so the connection is reset at both ends and not swapped; the caller dissolves it, and frees `side`.
 *
 * `numbers` has the `count` descriptors of the connection in this process, fs_fd(c) among them. Each is replaced in one step (dup3) and
 * keeps its FD_CLOEXEC. `near` stays the caller's, which closes it. `side` comes from fs_side_new and belongs to the connection
 * afterwards (fs_release_side). `inode` becomes the new socket's: the caller updates its index. The region and the old side stay mapped
 * until the connection ends. */
int fs_swap_to_bridge(struct fs_connection *c, int near, struct fs_shared_side *side, const int *numbers, int count);
