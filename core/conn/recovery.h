/* After a process of this side was killed in the middle of its turn: what concerns the kernel connection (recovery.c has the table;
 * ring/ring_recovery.h mends the ring's own state). */
#ifndef FASTSOCK_RECOVERY_H
#define FASTSOCK_RECOVERY_H

#include "conn/connection.h"

/* In an inherited turn. */
void fs_recover_sending(struct fs_connection *c, struct fs_sender *sender);
void fs_recover_receiving(struct fs_connection *c, struct fs_receiver *receiver);

/* The stream has a hole that cannot be mended, by a fault of this side: the next call says so (FS_VIOLATED), the peer gets a RST. */
void fs_break_connection(struct fs_connection *c, const char *why);

#endif
