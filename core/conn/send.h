/* Sending: the switch to the ring, posting, and the kernel's answer for a peer that is gone. */
#ifndef FASTSOCK_SEND_H
#define FASTSOCK_SEND_H

#include "conn/doorbell_tx.h"

enum { FS_POLLS_FIRST = 1 << 23 }; /* a flag beside MSG_*, not the kernel's: the caller waits for credits (fs_spin, fs_sleep) */

/* Sends without blocking. Returns the bytes accepted, or -errno: -EAGAIN if there is no credit or no room; FS_VIOLATED. The other
 * `flags` matter to the kernel only: without MSG_NOSIGNAL a broken connection raises SIGPIPE. */
int64_t fs_try_send(struct fs_connection *c, const char *data, size_t length, int flags);

/* Sends with MSG_OOB: all but the last byte are ordinary data. The last one takes its place in the ring and is sent on the kernel
 * connection as urgent, which gives the peer its POLLPRI and SIGURG. Returns as fs_try_send. */
int64_t fs_try_send_urgent(struct fs_connection *c, const char *data, size_t length, int flags);

/* Called after a send that does not wait. Takes the send lock. Returns 1 if the ring is full, and holds POLLOUT of an exposed descriptor
 * back; 0 if there is room in the ring or in the kernel. */
int fs_plug_if_full(struct fs_connection *c);

/* Sends the deferred doorbell bytes that there is room for. Takes the send lock. Returns 1 if all of them are out, 0 if not or if a
 * stopped process has the lock. */
int fs_nothing_deferred(struct fs_connection *c);

/* Sets SO_RCVBUF and SO_SNDBUF, bytes as the kernel reports them; 0: not set. Takes both locks, also for a connection without a region:
 * either fs_attach finds the limits, or this function finds the region. Returns 0, or -EINTR as fs_conn_shutdown. */
int fs_set_buffer_limits(struct fs_connection *c, uint32_t receive, uint32_t send);

/* ---- for the rest of the core */

/* Switches to the ring: records how many bytes went through the kernel, which carries doorbell bytes from here on. */
void fs_switch_sending(struct fs_connection *c, struct fs_sender *sender);

/* Handles a request of the peer: it exposed its descriptor with data already posted and needs a doorbell byte; or it has fallen back, or
 * is settled after that; or it cannot wake our event set by itself. Takes the send lock, with up to `patience` waits of about 10 ms.
 * Returns 0 if a stopped process has the lock, and the answer is still due. */
int fs_handle_request(struct fs_connection *c, int patience);

/* Returns true if the peer may have sent a request that has not arrived. Needs no lock. */
int fs_peer_may_have_asked(struct fs_connection *c);

void fs_publish_cpu(struct fs_connection *c); /* publishes our processor: spinning pays nothing if the other side needs it */

#endif
