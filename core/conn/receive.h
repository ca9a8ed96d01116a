/* The receiving side: the kernel's part of the stream, then the ring, and the end of either. */
#pragma once

#include "conn/peer_status.h"
#include "include/fastsock_loop.h" /* fs_switch_reached */

#define FS_MOVED_ON ((int64_t)-100001) /* what follows is in the ring */

/* ---- for the rest of the core */

int64_t fs_recv_locked(struct fs_connection *c, struct fs_receiver *receiver, char *into, size_t room, int flags, int final);

/* Receives from the part of the stream before the peer's switch. Returns FS_MOVED_ON when that part has ended. */
int64_t fs_recv_kernel(struct fs_connection *c, struct fs_receiver *receiver, char *into, size_t room, int flags);

/* Returns true if the kernel's part of the stream has come whole, read or not: what the ring says of the end counts. */
int fs_kernel_part_came(struct fs_connection *c);

/* Returns true if bytes of the peer lie here that the program has not read. */
int fs_has_unread(struct fs_connection *c, struct fs_receiver *receiver);
