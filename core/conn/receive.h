/* The receiving side: the kernel's part of the stream, then the ring, and the end of either. */
#ifndef FASTSOCK_RECEIVE_H
#define FASTSOCK_RECEIVE_H

#include "conn/peer_status.h"

#define FS_MOVED_ON ((int64_t)-100001) /* fs_recv_kernel: the kernel's part of the stream has ended */

enum fs_final {
    FS_NOT_FINAL = 0,
    FS_FINAL = 1,   /* the caller has nothing else to try and needs to know if the peer is lost (a system call) */
    FS_IF_TOLD = 2, /* FS_FINAL for a caller that goes to sleep: unless the control thread would have reported it since */
};

/* Receives without blocking. Returns bytes, 0 at the end of the stream, or -errno, also FS_VIOLATED. `final`: enum fs_final. `flags`:
 * MSG_PEEK, MSG_TRUNC, and flags for the kernel. */
int64_t fs_try_recv(struct fs_connection *c, char *into, size_t room, int flags, int final);

/* The flags of recv that are supported here; a call with other flags needs the kernel. */
enum {
    FS_RECEIVE_FLAGS = MSG_PEEK | MSG_DONTWAIT | MSG_NOSIGNAL | MSG_TRUNC | MSG_WAITALL | MSG_CMSG_CLOEXEC,
};

/* Naps, for a call that peeks and wants more bytes. Returns true if more may still come. Called without the host lock. */
int fs_wait_for_more(struct fs_connection *c);

/* ---- for the rest of the core */

int64_t fs_recv_locked(struct fs_connection *c, struct fs_receiver *receiver, char *into, size_t room, int flags, int final);

/* Receives from the part of the stream before the peer's switch. Returns FS_MOVED_ON when that part has ended. */
int64_t fs_recv_kernel(struct fs_connection *c, struct fs_receiver *receiver, char *into, size_t room, int flags);

/* Returns true if the kernel's stream was read up to the switch. An urgent byte may lie in front of the switch: it can still be read
 * apart, and is not part of the stream. (The results of recv do not count skipped urgent bytes.) */
int fs_kernel_part_read(struct fs_connection *c, uint64_t switch_at);

/* Returns true if the kernel's part of the stream has been taken, so that the ring's bytes can be read. (What is left of that part may
 * be urgent bytes, which a loop's transport does not read.) A peer may claim kernel bytes that never come: a waiting thread uses this
 * function, not the switch alone. The connection is attached. */
int fs_switch_reached(struct fs_connection *c);

/* Returns true if the kernel's part of the stream has come whole, read or not: what the ring says of the end counts. */
int fs_kernel_part_came(struct fs_connection *c);

/* Returns true if bytes of the peer lie here that the program has not read. */
int fs_has_unread(struct fs_connection *c, struct fs_receiver *receiver);

/* Sets the ring's option, and the kernel's. Takes the receive lock. Returns 0, or -EINTR as fs_conn_shutdown (open_close.h). */
int fs_set_oob_inline(struct fs_connection *c, int inline_);

#endif
