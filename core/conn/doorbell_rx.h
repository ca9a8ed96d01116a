/* Doorbell bytes as the receiver takes them: the kernel's queue holds some exactly while something waits in the ring, for a
 * descriptor that somebody else polls; and the credits that a sender waits for. */
#ifndef FASTSOCK_DOORBELL_RX_H
#define FASTSOCK_DOORBELL_RX_H

#include "conn/connection.h"

/* After a read: the kernel's queue then holds doorbell bytes exactly while something waits in the ring. */
void fs_drain_doorbell_bytes(struct fs_connection *c, struct fs_receiver *receiver);

/* Takes `count` doorbell bytes from the kernel's queue, and those that are owed. */
void fs_discard_doorbell_bytes(struct fs_connection *c, struct fs_receiver *receiver, uint64_t count);

/* Everything in the ring is read, and the peer rings no more: takes the doorbell bytes out of the kernel's queue. Those that have
 * not come are owed. */
void fs_drain_all_doorbell_bytes(struct fs_connection *c, struct fs_receiver *receiver);

/* The peer waits for credits: acknowledge, wake it, take the plug out of its send buffer. */
void fs_answer_credit_wait(struct fs_connection *c, struct fs_receiver *receiver);

/* At the attachment: one that has not grown yet does not grow any more. */
void fs_freeze_recv_buffer(struct fs_connection *c);
/* The kernel's queue is for doorbell bytes now. */
void fs_reserve_recv_buffer(struct fs_connection *c);
void fs_restore_recv_buffer(struct fs_connection *c); /* the kernel's queue is the program's again */

/* Ends a turn to receive, and waits then for what is late. Whether doorbell bytes were taken only then, which may have
 * hidden the end of the kernel's stream. */
int fs_unlock_recv(struct fs_connection *c, struct fs_receiver *receiver);

/* Waits for what a turn has found to be on its way (enum fs_late). With no turn. */
void fs_wait_for_late(struct fs_connection *c, int late);

/* `exposed` was set: on the ring the peer is told. Takes the turn. Whether the ring is read; -EINTR as fs_conn_shutdown. */
int fs_publish_exposed(struct fs_connection *c);

/* Whether something waits in the ring and neither a doorbell byte nor the end of the kernel's stream says so. */
int fs_lacks_doorbell_byte(struct fs_connection *c);

#endif
