/* Doorbell bytes at the receiver, and answers to a sender that waits for credits. For a descriptor that is polled outside, the
 * kernel's queue holds doorbell bytes exactly while something waits in the ring. */
#ifndef FASTSOCK_DOORBELL_RX_H
#define FASTSOCK_DOORBELL_RX_H

#include "conn/connection.h"

/* Called after a read. Leaves doorbell bytes in the kernel's queue exactly while something waits in the ring. */
void fs_drain_doorbell_bytes(struct fs_connection *c, struct fs_receiver *receiver);

/* The same without the check for a post. This side reads the ring. */
void fs_drain_without_waiting(struct fs_connection *c, struct fs_receiver *receiver);

/* Takes `count` doorbell bytes and the outstanding ones (`doorbell_debt`) from the kernel's queue. */
void fs_discard_doorbell_bytes(struct fs_connection *c, struct fs_receiver *receiver, uint64_t count);

/* Takes all doorbell bytes from the kernel's queue, once the ring is read and the peer sends no more of them. Bytes that have not
 * come yet stay outstanding. */
void fs_drain_all_doorbell_bytes(struct fs_connection *c, struct fs_receiver *receiver);

/* Answers a peer that waits for credits: acknowledges, wakes it, and takes the plug out of its send buffer. */
void fs_answer_credit_wait(struct fs_connection *c, struct fs_receiver *receiver);

/* Called when the region is attached: stops the receive buffer from growing, if it has not grown yet. */
void fs_freeze_recv_buffer(struct fs_connection *c);
/* From now on the kernel's queue is for doorbell bytes. */
void fs_reserve_recv_buffer(struct fs_connection *c);
void fs_restore_recv_buffer(struct fs_connection *c); /* the kernel's queue is the program's again */

/* Returns true if something waits in the ring and neither a doorbell byte nor the end of the kernel's stream shows it. */
int fs_lacks_doorbell_byte(struct fs_connection *c);

#endif
