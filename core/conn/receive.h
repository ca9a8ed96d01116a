/* The receiving side: the kernel's part of the stream, then the ring, and the end of either. */
#ifndef FASTSOCK_RECEIVE_H
#define FASTSOCK_RECEIVE_H

#include "conn/connection.h"

#define FS_MOVED_ON ((int64_t)-100001) /* fs_recv_kernel: the kernel's part is exhausted */

enum fs_final {
    FS_NOT_FINAL = 0,
    FS_FINAL = 1,   /* the caller has nothing else to try and wants to know of a lost peer (a system call) */
    FS_IF_TOLD = 2, /* the same, of a caller that goes to sleep: not if the connection thread would have told it since */
};

/* Bytes received, 0 at the end of the stream, or -errno; FS_VIOLATED. `final`: enum fs_final. `flags`: MSG_PEEK, MSG_TRUNC, and what the kernel takes. Never blocks. */
int64_t fs_try_recv(struct fs_connection *c, char *into, size_t room, int flags, int final);

/* The flags of recv that a call here may have; with another one it is the kernel's alone. */
enum {
    FS_RECEIVE_FLAGS = MSG_PEEK | MSG_DONTWAIT | MSG_NOSIGNAL | MSG_TRUNC | MSG_WAITALL | MSG_CMSG_CLOEXEC,
};

/* For a call that peeks and wants more than there is: naps. Whether more may still come. Without the front end's lock. */
int fs_wait_for_more(struct fs_connection *c);

/* ---- for the rest of the core */

int64_t fs_recv_locked(struct fs_connection *c, struct fs_receiver *receiver, char *into, size_t room, int flags, int final);

/* The part of the stream that came before the peer's switch. FS_MOVED_ON when it is exhausted. */
int64_t fs_recv_kernel(struct fs_connection *c, struct fs_receiver *receiver, char *into, size_t room, int flags);

/* Whether the kernel's stream was read up to the switch; an urgent byte may lie in front of it, which can still be read apart
 * and is no part of the stream. What recv returned does not count those that it passed over. */
int fs_kernel_part_read(struct fs_connection *c, uint64_t switch_at);

/* Whether the kernel's part of the stream has been taken, so that what the ring has can be read. (What is left of that part may be
 * urgent bytes, which a loop's transport does not read.) A peer may say that bytes come by the kernel which never come: who
 * waits goes by this, and not by the switch alone. Of an end that is attached. */
int fs_switch_reached(struct fs_connection *c);

int64_t fs_take_pending_error(struct fs_connection *c); /* an error that the kernel has told already, and that comes after the bytes */

/* Whether bytes of the peer lie here that the program has not read. */
int fs_has_unread(struct fs_connection *c, struct fs_receiver *receiver);

/* The ring's option; the kernel's too, before the switch. Takes the turn. 0, or -EINTR as fs_conn_shutdown (open_close.h). */
int fs_set_oob_inline(struct fs_connection *c, int inline_);

#endif
