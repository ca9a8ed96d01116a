/* Requests of the peers: for a doorbell byte, to go back to the kernel, to send a parcel again. The connection thread
 * answers. */
#ifndef FASTSOCK_REQUESTS_H
#define FASTSOCK_REQUESTS_H

#include "connection/connection.h"

/* Makes the connection thread ready to answer the requests of the connection's peer; `side` and `id` are the region's.
 * Everything that can fail is done here, before it attaches: 0, or as fs_ensure_thread, or -ENOMEM, and nothing has
 * changed. With the front end's lock. */
int fs_expect_asks(struct fs_connection *c, int side, const unsigned char id[16]);

/* The connection of this region, which `fs_expect_asks` knows, has attached: the region says where to ask. Never
 * fails. */
void fs_answer_asks(void *memory, int side);

/* The same, where another holder may have said so before. With the front end's lock. */
void fs_say_where_to_ask(struct fs_connection *c);

/* The connection ends, or has not attached. If it is being asked for something at this moment, this waits for the
 * answer. With the front end's lock, which it lets go of. */
void fs_ignore_asks(struct fs_connection *c);

/* Asks the other side of a region for a doorbell byte. Never blocks. */
void fs_ask_for_byte(void *memory, int side, const unsigned char id[16]);

/* Answers what has come to the socket for requests. 1: something lies there that cannot be dropped now (dropping.h), or an answer
 * is due whose turn is a stopped process's: come again. The connection thread's alone. */
int fs_answer_requests(int ask_fd);
int fs_answer_again(int ask_fd); /* the same, and what is due */

#endif
