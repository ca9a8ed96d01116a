/* Requests of the peers: for a doorbell byte, to go back to the kernel, to send a parcel again. The connection thread
 * answers. */
#ifndef FASTSOCK_CONTROL_REQUESTS_H
#define FASTSOCK_CONTROL_REQUESTS_H

#include "conn/connection.h"

/* Makes the connection thread ready to answer the requests of the connection's peer; `side` and `id` are the region's.
 * Everything that can fail is done here, before it attaches: 0, or as fs_control_thread_start, or -ENOMEM, and nothing has
 * changed. With the front end's lock. */
int fs_requests_expect(struct fs_connection *c, int side, const unsigned char id[16]);

/* The connection of this region, which `fs_requests_expect` knows, has attached: the region says where to ask. Never
 * fails. */
void fs_requests_announce(void *memory, int side);

/* The same, where another holder may have said so before. With the front end's lock. */
void fs_requests_announce_holder(struct fs_connection *c);

/* The connection ends, or has not attached. If it is being asked for something at this moment, this waits for the
 * answer. With the front end's lock, which it lets go of. */
void fs_requests_stop(struct fs_connection *c);

/* Asks the other side of a region for a doorbell byte. Never blocks. */
void fs_request_doorbell_byte(void *memory, int side, const unsigned char id[16]);

/* Answers what has come to the socket for requests. 1: something lies there that cannot be dropped now (fd_reaper.h), or an answer
 * is due whose turn is a stopped process's: come again. The connection thread's alone. */
int fs_handle_requests(int ask_fd);
int fs_handle_due_requests(int ask_fd); /* the same, and what is due */

#endif
