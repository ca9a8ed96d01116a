/* Waking the peer: futexes and event sets, doorbell bytes, and the plug that holds POLLOUT back. */
#ifndef FASTSOCK_DOORBELL_TX_H
#define FASTSOCK_DOORBELL_TX_H

#include "conn/connection.h"

enum {
    FS_WIDENED = 393216, /* least send buffer that has room for a plug and doorbell bytes behind it, bytes */
};

/* Notifies a peer that sleeps, polls its descriptor, or has closed. `doorbell` is the peer's doorbell word. */
void fs_notify_receiver(struct fs_connection *c, struct fs_sender *sender, uint32_t doorbell);

void fs_send_doorbell_byte(struct fs_connection *c, struct fs_sender *sender); /* sends the byte that was counted */

/* Wakes and counts sleepers of the peer: `who` has bits of enum fs_wake, or none. Needs no lock. */
void fs_wake_peer(struct fs_connection *c, uint32_t who);

/* Wakes all sleepers of the peer, which check again. Needs no lock. */
void fs_wake_peer_all(struct fs_connection *c);

/* Wakes all sleepers of this side, in all its processes; they check again, at the kernel too. Needs no lock. */
void fs_wake_local(struct fs_connection *c);

/* Wakes the sleeping threads only. For a connection that has a region, or had one until now (fs_swap_to_bridge). */
void fs_wake_local_threads(struct fs_connection *c);

/* Notes that `count` doorbell bytes were counted and not sent. They are sent now, or after the lock is released. */
void fs_defer_doorbell_bytes(struct fs_connection *c, struct fs_sender *sender, uint32_t count);

/* Sends the deferred doorbell bytes, urgent ones included. Returns 0 if there is no room for all. */
int fs_send_deferred(struct fs_connection *c, struct fs_sender *sender);

/* Sends the deferred doorbell bytes that there is room for. Takes the send lock. Returns 1 if all of them are out, 0 if not or if a
 * stopped process has the lock. */
int fs_nothing_deferred(struct fs_connection *c);

/* Returns true if the caller must flush after unlocking. */
int fs_must_flush(struct fs_connection *c, struct fs_sender *sender);

/* Releases the send lock, then sends the doorbell bytes that the kernel had no room for. Returns as fs_wait_for_kernel_room. */
int fs_unlock_send(struct fs_connection *c, struct fs_sender *sender);

/* Waits until the kernel has taken the deferred doorbell bytes. Called with no lock. Returns 0 if the peer takes none of those that lie
 * there. */
int fs_wait_for_kernel_room(struct fs_connection *c);

/* Called after a send that does not wait. Takes the send lock. Returns 1 if the ring is full, and holds POLLOUT of an exposed descriptor
 * back; 0 if there is room in the ring or in the kernel. */
int fs_plug_if_full(struct fs_connection *c);

#endif
