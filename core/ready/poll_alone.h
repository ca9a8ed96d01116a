/* A poll that names one connection, for bytes to receive. */
#pragma once

#include "ready/poller.h"

enum { FS_NOT_ALONE = -EAGAIN };

/* Waits until the connection is readable. `p`: the thread's poller. `deadline`: monotonic ns, negative: none. Returns 1 with `revents`;
 * -EINTR; or FS_NOT_ALONE: something is unusual, or the time is short, and the call is to be made in the general way for what is left of
 * it. From inside a call on the connection. */
int fs_poll_alone(const struct fs_poller *p, struct pollfd *fd, struct fs_pollable *it, int64_t deadline);
