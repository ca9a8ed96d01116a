/* Waking the peer and this side's own sleepers: futexes and event sets. */
#pragma once

#include "conn/connection.h"

/* Notifies a peer that sleeps or has closed, after a post. `doorbell` is the peer's doorbell word. */
void fs_notify_receiver(struct fs_connection *c, struct fs_sender *sender, uint32_t doorbell);

/* Answers a peer that waits for credits: acknowledges, and wakes it. */
void fs_answer_credit_wait(struct fs_connection *c, struct fs_receiver *receiver);

/* The peer has closed with bytes of this side unread in the ring: sends it a byte that draws the RST which those would have drawn in the
 * kernel. Once is enough: a second byte might come after the RST, and take the error that is the program's. */
void fs_draw_reset(struct fs_connection *c, struct fs_sender *sender);

/* Returns true if that RST is still to come: the peer has closed in the ring with bytes of this side unread, and its process is on its way
 * to the kernel's close. Draws it. Until it is there, the connection is as on kernel TCP before the close: without room, and without an
 * error. */
int fs_awaits_reset(struct fs_connection *c, struct fs_sender *sender);

/* Wakes and counts sleepers of the peer: `who` has bits of enum fs_wake, or none. Needs no lock. */
void fs_wake_peer(struct fs_connection *c, uint32_t who);

/* Wakes all sleepers of the peer, which check again. Needs no lock. */
void fs_wake_peer_all(struct fs_connection *c);

/* Wakes the sleeping threads only. For a connection that has a region, or had one until now (fs_swap_to_bridge). */
void fs_wake_local_threads(struct fs_connection *c);

/* Returns the bytes that the kernel took, or -errno. Never blocks. */
int64_t fs_send_kernel(struct fs_connection *c, const char *data, size_t length, int flags);

/* The same for pieces, of which the kernel gets FS_PIECES at most; blocks without MSG_DONTWAIT. Needs no lock then. */
int64_t fs_send_pieces_kernel(int fd, const struct iovec *v, size_t skip, size_t length, int flags);
