/* The sending side: the switch to the ring, posting, and what the kernel answers for a peer that is gone. */
#ifndef FASTSOCK_SEND_H
#define FASTSOCK_SEND_H

#include "conn/connection.h"

enum { FS_POLLS_FIRST = 1 << 23 }; /* a flag beside MSG_*, none of the kernel's: the caller waits for credits (fs_spin, fs_sleep) */

/* Bytes accepted, or -errno; -EAGAIN when there is no credit or no room; FS_VIOLATED. The other `flags` matter to the kernel only:
 * without MSG_NOSIGNAL a broken connection raises SIGPIPE. Never blocks. */
int64_t fs_try_send(struct fs_connection *c, const char *data, size_t length, int flags);

/* MSG_OOB: all but the last byte are ordinary data; the last one takes its place in the ring and is rung on the kernel connection
 * as urgent, which gives the peer its POLLPRI and SIGURG. As fs_try_send. */
int64_t fs_try_send_urgent(struct fs_connection *c, const char *data, size_t length, int flags);

/* Bytes that the kernel took, or -errno. Never blocks. */
int64_t fs_send_kernel(struct fs_connection *c, const char *data, size_t length, int flags);

/* SO_RCVBUF and SO_SNDBUF, bytes as the kernel reports them; 0: not set. In both turns, also of a connection that has no region
 * yet: fs_attach finds the limits, or they find the region. 0, or -EINTR as fs_conn_shutdown. */
int fs_set_buffer_limits(struct fs_connection *c, uint32_t receive, uint32_t send);

/* ---- for the rest of the core */

/* fs_send_kernel on a connection that has a region: doorbell bytes that are owed come first. */
int64_t fs_send_kernel_locked(struct fs_connection *c, struct fs_sender *sender, const char *data, size_t length, int flags);

/* The switch: records how many bytes went through the kernel; from here on it carries doorbell bytes. */
void fs_switch_sending(struct fs_connection *c, struct fs_sender *sender);

/* The peer asks for a doorbell byte, since it exposed its descriptor with data already posted; or it has left, or is settled
 * after that; or it cannot tell our event set by itself. Takes the turn. 0: a stopped process has it, and the answer is due.
 * `patience`: times some 10 ms that the turn is waited for. */
int fs_handle_request(struct fs_connection *c, int patience);

/* Whether the peer may have asked without our hearing of it. Needs no turn. */
int fs_peer_may_have_asked(struct fs_connection *c);

void fs_publish_cpu(struct fs_connection *c); /* tells the peer where we run: polling for somebody who needs this processor cannot pay */

#endif
