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

/* Wakes the sleeping threads only. For a connection that has a region, or had one until now (fs_swap_to_bridge). */
void fs_wake_local_threads(struct fs_connection *c);

/* Notes that `count` doorbell bytes were counted and not sent. They are sent now, or after the lock is released. */
void fs_defer_doorbell_bytes(struct fs_connection *c, struct fs_sender *sender, uint32_t count);

/* Sends the deferred doorbell bytes, urgent ones included. Returns 0 if there is no room for all. */
int fs_send_deferred(struct fs_connection *c, struct fs_sender *sender);

/* Returns the bytes that the kernel took, or -errno. Never blocks. */
int64_t fs_send_kernel(struct fs_connection *c, const char *data, size_t length, int flags);

/* As fs_send_kernel for a connection with a region: deferred doorbell bytes are sent first. */
int64_t fs_send_kernel_locked(struct fs_connection *c, struct fs_sender *sender, const char *data, size_t length, int flags);

/* The ring is full and the program may wait for POLLOUT. Fills the kernel's send buffer, which makes POLLOUT false until the receiver
 * returns credits and drains the buffer. Returns 0 if credits came meanwhile. */
int fs_plug(struct fs_connection *c, struct fs_sender *sender);

#endif
