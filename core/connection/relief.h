/* A sender that gets no credits goes on in the kernel, whose buffers hold more than the ring. */
#ifndef FASTSOCK_RELIEF_H
#define FASTSOCK_RELIEF_H

#include "connection/connection.h"

/* Nanoseconds without a credit after which it does: */
#define FS_STUCK ((int64_t)50000000)     /* where the peer waits for credits too, which we do not give, */
#define FS_STARVED ((int64_t)1000000000) /* and where it does not read, for whatever reason */

/* A look at whether it is time for that, of a sender that finds no room in the ring. `waits`: how the peer waits for credits (enum
 * fs_credit_wait). `rest`: nanoseconds that the sender has left, negative: no end. When it is to look again, in nanoseconds; 0: it
 * sends through the kernel now. In a turn to send. */
int64_t fs_relieve(struct fs_connection *c, struct fs_sender *sender, uint32_t waits, int64_t rest);

/* The same of a sender that does not wait in its call. Whether it sends through the kernel now. */
int fs_relieve_between_calls(struct fs_connection *c, struct fs_sender *sender);

/* Such a look for a program that is in no call: it polls its descriptor for POLLOUT, or its event set tells it. 1: somebody
 * is to look again. Takes the turn, and does not wait for it. */
int fs_relieve_alone(struct fs_connection *c);

#endif
