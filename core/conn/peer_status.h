/* Liveness of the peer, and the result of a receive and of a send after its end. The only place that decides this. */
#ifndef FASTSOCK_PEER_STATUS_H
#define FASTSOCK_PEER_STATUS_H

#include "conn/connection.h"

enum fs_liveness {
    FS_ALIVE = 0,
    FS_STREAM_ENDED = 1, /* the kernel's stream from the peer has ended */
    FS_OVER = 2,         /* the connection has ended */
};

/* Returns the state of the kernel connection. One system call. (POLLRDHUP would also report our own SHUT_RD.) */
enum fs_liveness fs_liveness(struct fs_connection *c);

/* Returns true if the peer's FIN or RST has come. */
int fs_peer_ended(struct fs_connection *c);

/* Returns true if nobody reads any more what this side sends into the ring. Asks the kernel, and remembers the answer. All code that
 * needs to know about the peer's end calls this. */
int fs_check_peer_lost(struct fs_connection *c);

/* As fs_check_peer_lost, for a peer whose stream has ended: the kernel reports no event when such a peer dies. */
int fs_probe_peer(struct fs_connection *c, struct fs_sender *sender);

/* Receives from the kernel's queue. Returns bytes, 0 at the end of the peer's stream, or -errno. After a SHUT_RD of this side the kernel
 * returns 0 for an empty queue although more may come: that is -EAGAIN here. */
int64_t fs_peek_kernel(struct fs_connection *c, void *into, size_t room, int flags);

/* Stores how far the kernel's stream was read, in bytes since the connection began, and `mark` as fs_kernel_queued. The results of recv
 * are not enough: recv skips an urgent byte, and so does the kernel when another one comes. Returns 0 if the kernel cannot say. */
int fs_kernel_position(struct fs_connection *c, uint64_t *taken, int64_t *mark);

/* Sends a doorbell byte that makes the kernel report the death of a peer whose end may be hidden. */
void fs_leave_probe_byte(struct fs_connection *c, struct fs_sender *sender);

/* Called after a send that was not acknowledged. Checks now and then if the peer is alive. */
void fs_watch_liveness(struct fs_connection *c, struct fs_sender *sender);

/* Returns the error of a send that nobody will read: -errno, or 0 if the kernel's answer counts. */
int64_t fs_send_error_after_close(struct fs_connection *c, struct fs_sender *sender);

int64_t fs_recv_at_end(struct fs_connection *c); /* result of a receive at the end of the kernel's stream: 0 or -ECONNRESET */
int64_t fs_recv_kernel_error(struct fs_connection *c, int error); /* result of a receive when the kernel returns `error` */
int64_t fs_take_pending_error(struct fs_connection *c); /* an error that the kernel has reported already, and that comes after the bytes */
int64_t fs_kernel_result_after_end(struct fs_connection *c, int64_t result); /* notes the kernel's answer after the peer's end */

/* Returns true, with a violation noted, if the kernel's stream has bytes that the peer has not counted: a program that has the number wrote them past
 * its fastsock. Needs the receive lock. */
int fs_has_uncounted_bytes(struct fs_connection *c);

#endif
