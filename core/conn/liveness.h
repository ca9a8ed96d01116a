/* Whether the peer is still there: the one place that decides it, and what its end means for a receive and for a send. */
#ifndef FASTSOCK_LIVENESS_H
#define FASTSOCK_LIVENESS_H

#include "conn/connection.h"

enum fs_liveness {
    FS_ALIVE = 0,
    FS_STREAM_ENDED = 1, /* the kernel's stream from the peer has ended */
    FS_OVER = 2,         /* so has the connection */
};

/* How the kernel connection stands. (POLLRDHUP would also tell of our own SHUT_RD.) One system call. */
enum fs_liveness fs_liveness(struct fs_connection *c);

/* Whether the peer's FIN or RST has come. */
int fs_peer_ended(struct fs_connection *c);

/* Whether nobody reads any more what we send into the ring: asks the kernel, and remembers the answer. Everybody who wants
 * to know of the peer's end asks here. */
int fs_check_peer_lost(struct fs_connection *c);

/* As fs_check_peer_lost, of a peer whose end of stream was seen: its death ends nothing that the kernel would tell of by itself. */
int fs_probe_peer(struct fs_connection *c, struct fs_sender *sender);

/* What the kernel's queue holds: bytes, 0 at the end of the peer's stream, or -errno. After a SHUT_RD of this side the kernel
 * says 0 wherever it holds nothing, and more may come all the same: that is -EAGAIN here. */
int64_t fs_peek_kernel(struct fs_connection *c, void *into, size_t room, int flags);

/* How far the kernel's stream was read, in bytes since the connection began, and as fs_kernel_queued. What recv returned does
 * not tell: it passes over an urgent byte, and so does the kernel when another one comes. 0: the kernel does not tell. */
int fs_kernel_position(struct fs_connection *c, uint64_t *taken, int64_t *mark);

/* The doorbell byte that makes the kernel tell of the death of a peer whose end may be hidden. */
void fs_leave_probe_byte(struct fs_connection *c, struct fs_sender *sender);

/* Nothing was acknowledged for a while: see now and then whether the peer still lives. */
void fs_watch_liveness(struct fs_connection *c, struct fs_sender *sender);

/* What a send gets that nobody will read: -errno, or 0 if the kernel answers. */
int64_t fs_send_error_after_close(struct fs_connection *c, struct fs_sender *sender);

int64_t fs_recv_at_end(struct fs_connection *c);  /* what a receive gets at the end of the kernel's stream: 0 or -ECONNRESET */
int64_t fs_recv_kernel_error(struct fs_connection *c, int error);      /* what a receive gets when the kernel says `error` */
int64_t fs_kernel_result_after_end(struct fs_connection *c, int64_t result); /* what the kernel answered after the peer's end */

/* Nothing lies in the ring: 0 if the kernel connection has ended, -errno if it failed, -EAGAIN if it lives. */
int64_t fs_check_liveness(struct fs_connection *c, struct fs_receiver *receiver);

#endif
