/* The end of this side's fallback (fallback.h): a held peer may go on. */
#ifndef FASTSOCK_SETTLE_H
#define FASTSOCK_SETTLE_H

#include "conn/connection.h"

#define FS_ANSWER_TIME ((int64_t)1000000000) /* ns that the peer's control thread gets for an answer */

/* Tells a held peer that it may go on. Returns 0 if the request must be repeated (fs_repeat_settle_request). */
int fs_settle(struct fs_connection *c);
void fs_repeat_settle_request(struct fs_connection *c); /* called with no lock */

/* fs_settle, and after the unlock fs_repeat_settle_request if necessary (FS_LATE_REQUEST). */
void fs_settle_locked(struct fs_connection *c, struct fs_receiver *receiver);

/* The fallback is settled: wakes the threads of the held peer that wait for this. A program that polls sleeps on the kernel's descriptor,
 * and only its own side can make an edge there: this asks the peer's control thread to. Returns 0 if there is no room for the request
 * now. */
int fs_wake_held_peer(struct fs_connection *c);

/* The ring is read up to BACK: bytes behind the doorbell bytes in the kernel's queue are the program's again. */
void fs_recv_fall_back(struct fs_connection *c, struct fs_receiver *receiver);

#endif
