/* A connection that a fork hands over: the parent closes its copy, as a server does that has a child for each connection. */
#pragma once

#include "interpose.h"

#pragma GCC visibility push(hidden)

/* All with the lock. */

void ip_begin_hand_over(void);           /* a fork is about to look at all connections */
int ip_hand_over(struct ip_socket *s);   /* true if the connection stays early, in both processes */
void ip_hand_over_in_parent(void);       /* the fork is over */
void ip_hand_over_in_child(void);

/* The connection is about to be opened. Returns true if another process may have it, so that it is one of the kernel's for good. */
int ip_is_held_elsewhere(struct ip_socket *s);

/* The connection ends in this process: it is early, or watched. */
void ip_end_handed_over(struct ip_socket *s);

#pragma GCC visibility pop
