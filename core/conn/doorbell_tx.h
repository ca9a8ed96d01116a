/* How a sender tells its peer: bells and event sets, doorbell bytes with those that are owed, and the plug that keeps POLLOUT away. */
#ifndef FASTSOCK_DOORBELL_TX_H
#define FASTSOCK_DOORBELL_TX_H

#include "conn/connection.h"

enum {
    FS_WIDENED = 393216, /* bytes of send buffer, at least, for a plug and doorbell bytes behind it */
};

/* The peer sleeps, polls its descriptor, or has closed: `doorbell` is its doorbell word. */
void fs_notify_receiver(struct fs_connection *c, struct fs_sender *sender, uint32_t doorbell);

void fs_send_doorbell_byte(struct fs_connection *c, struct fs_sender *sender); /* the byte that was accounted */

/* Wakes sleepers of the peer: `who` has bits of enum fs_wake, or none. Counts it. No lock needed. */
void fs_wake_peer(struct fs_connection *c, uint32_t who);

/* Wakes all sleepers of the peer: they look again. No lock needed. */
void fs_wake_peer_all(struct fs_connection *c);

/* Wakes all sleepers of this side, of all its processes: they look again, at the kernel too. No lock needed. */
void fs_wake_local(struct fs_connection *c);

/* The threads among them, of a connection that has a region, or had one until now (fs_swap_to_bridge). */
void fs_wake_local_threads(struct fs_connection *c);

/* So many of the bytes that were counted as rung have not been sent: now, or without the turn when that ends. */
void fs_defer_doorbell_bytes(struct fs_connection *c, struct fs_sender *sender, uint32_t count);

/* Sends the doorbell bytes, urgent ones among them, that were counted as rung and not sent. 0 if there is no room for all. */
int fs_send_deferred(struct fs_connection *c, struct fs_sender *sender);

/* Whether the doorbell bytes that were counted as rung are out. Sends what there is room for. 0 also if a stopped process has
 * the turn. Takes the turn. */
int fs_nothing_deferred(struct fs_connection *c);

/* Whether this turn is the one that waits for room when it has ended. */
int fs_must_flush(struct fs_connection *c, struct fs_sender *sender);

/* Ends a turn to send, and sends then what doorbell bytes the kernel had no room for. As fs_wait_for_kernel_room. */
int fs_unlock_send(struct fs_connection *c, struct fs_sender *sender);

/* Waits until the kernel has room for the doorbell bytes that are owed. With no turn. 0 if the peer takes none of those that lie
 * there. */
int fs_wait_for_kernel_room(struct fs_connection *c);

/* At the end of a send that does not wait. 1 if the ring is full. POLLOUT of an exposed descriptor is false then. 0: there
 * is room, in the ring or in the kernel. Takes the turn. */
int fs_plug_if_full(struct fs_connection *c);

#endif
