/* After a process of this side was killed in the middle of its turn: what concerns the kernel connection (mend.c has the table;
 * ring/mending.h mends the ring's own state). */
#ifndef FASTSOCK_MEND_H
#define FASTSOCK_MEND_H

#include "connection/connection.h"

/* In an inherited turn. */
void fs_mend_sending(struct fs_connection *c, struct fs_sender *sender);
void fs_mend_receiving(struct fs_connection *c, struct fs_receiver *receiver);

/* The stream has a hole that cannot be mended, by a fault of this side: the next call says so (FS_VIOLATED), the peer gets a RST. */
void fs_break_off(struct fs_connection *c, const char *why);

#endif
