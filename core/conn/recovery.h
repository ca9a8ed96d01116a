/* Recovery of the kernel connection's state after a process of this side was killed while it held a lock. recovery.c has the table;
 * ring/ring_recovery.h recovers the ring's own state. */
#pragma once

#include "conn/connection.h"

/* Called by the next holder of the lock. */
void fs_recover_sending(struct fs_connection *c, struct fs_sender *sender);
void fs_recover_receiving(struct fs_connection *c, struct fs_receiver *receiver);

/* The stream has a hole that cannot be repaired, by a fault of this side: the next call returns FS_VIOLATED, the peer gets a RST. */
void fs_break_connection(struct fs_connection *c, const char *why);
