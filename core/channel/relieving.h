/* Senders that wait for credits in no call of theirs: the connection thread looks whether they go on in the kernel. */
#ifndef FASTSOCK_RELIEVING_H
#define FASTSOCK_RELIEVING_H

#include "connection/connection.h"

/* The ring is full, and the program waits for room in the kernel's poll, or in an event set. From now on the
 * connection thread looks every FS_STUCK, until there is room or the sender has gone on in the kernel. With the front
 * end's lock. */
void fs_look_after(struct fs_connection *c);

/* ---- the connection thread's part ------------------------------------------------------------------------- */

/* Milliseconds until the thread is to look, -1: at nobody. `due`: when that is (monotonic ns), which the thread keeps;
 * 0: it has not been said yet. */
int fs_until_relief(int64_t *due);

/* Looks, if it is time. Takes the table lock. */
void fs_relieve_due(int64_t *due);

#endif
