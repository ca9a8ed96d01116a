/* Control requests of the peers: to look at a connection, to fall back to the kernel, to resend unread data. The control thread answers. */
#pragma once

#include "conn/connection.h"

/* Prepares the control thread, which runs (fs_control_thread_start), to answer requests of the connection's peer; `side` and `id` are
 * the region's. Does everything that can fail before the connection attaches. Returns 0, or -ENOMEM and nothing has changed. Needs the
 * host lock. */
int fs_requests_expect(struct fs_connection *c, int side, const unsigned char id[16]);

/* The connection, passed to `fs_requests_expect` before, has attached: writes this process's token into the region, and returns
 * it. */
uint64_t fs_requests_announce(void *memory, int side);

/* fs_requests_announce if another holder may have done so before. Needs the host lock. */
void fs_requests_announce_holder(struct fs_connection *c);

/* Stops answering, before the connection ends or if it did not attach. Waits for an answer that is being made just now. Needs the host
 * lock, and unlocks it meanwhile. */
void fs_requests_stop(struct fs_connection *c);

/* Answers the requests at the control socket. Returns 1 if it must be called again: a datagram cannot be dropped now (fd_reaper.h), or
 * an answer is due and a stopped process has the lock. For the control thread alone. */
int fs_handle_requests(int request_fd);
int fs_handle_due_requests(int request_fd); /* the same, and answers that are due */
