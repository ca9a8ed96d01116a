/* Liveness of the peer, and the result of a receive and of a send after its end. The only place that decides this. */
#pragma once

#include "conn/connection.h"

/* Returns the state of the kernel connection. One system call. (POLLRDHUP would also report our own SHUT_RD.) */
enum fs_liveness fs_liveness(struct fs_connection *c);

/* Returns true if the peer's FIN or RST has come. */
int fs_peer_ended(struct fs_connection *c);

/* Returns true if nobody reads any more what this side sends into the ring. Asks the kernel, and remembers the answer. All code that
 * needs to know about the peer's end calls this. */
int fs_check_peer_lost(struct fs_connection *c);

/* Returns true if the kernel would not report the peer's death by the end of its stream: the stream has ended, or is not read here, or
 * its end may be after bytes in the kernel's queue. */
int fs_eof_is_hidden(struct fs_connection *c);

/* Returns true if the control thread watches the kernel connection for these events, and the peer's process if it was asked to. Joins the
 * watch at the first call. Called with a lock, which keeps the descriptor. */
int fs_watch_kernel(struct fs_connection *c, uint32_t events);

/* Receives from the kernel's queue. Returns bytes, 0 at the end of the peer's stream, or -errno. After a SHUT_RD of this side the kernel
 * returns 0 for an empty queue although more may come: that is -EAGAIN here. */
int64_t fs_peek_kernel(struct fs_connection *c, void *into, size_t room, int flags);

/* Throws away what lies first in the kernel's queue, `most` bytes at most. Returns as fs_peek_kernel. */
int64_t fs_discard_kernel(struct fs_connection *c, size_t most);

/* Stores how far the kernel's stream was read, in bytes since the connection began. Returns 0 if the kernel cannot say. */
int fs_kernel_position(struct fs_connection *c, uint64_t *taken);

/* Returns the error of a send that nobody will read: -errno, or 0 if the kernel's answer counts. `tries_again`: FS_TRIES_AGAIN. */
int64_t fs_send_error_after_close(struct fs_connection *c, struct fs_sender *sender, int tries_again);

int64_t fs_recv_at_end(struct fs_connection *c); /* result of a receive at the end of the kernel's stream: 0 or -ECONNRESET */
int64_t fs_recv_kernel_error(struct fs_connection *c, int error); /* result of a receive when the kernel returns `error` */
int64_t fs_take_pending_error(struct fs_connection *c); /* an error that the kernel has reported already, and that comes after the bytes */
int64_t fs_kernel_result_after_end(struct fs_connection *c, int64_t result); /* notes the kernel's answer after the peer's end */

/* Returns true, with a violation noted, if the kernel's queue has bytes after the switch that are not the peer's: a program that has the
 * number wrote them past its fastsock. Needs the receive lock. `*end`: what a receive returns at the ring's FIN: 0, or -errno if the kernel
 * had ended the connection before (aborted, timed out, reset by somebody else). */
int fs_has_stray_bytes(struct fs_connection *c, int64_t *end);
