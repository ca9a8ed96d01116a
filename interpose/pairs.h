/* Socketpairs (pairs.c). All with the lock, but for ip_forget_pair. */
#pragma once

#include "interpose.h"

#pragma GCC visibility push(hidden)

/* Two sockets that the program has just made as a pair. Their calls are the kernel's until a fork. */
void ip_begin_pair(struct ip_socket *one, int fd, struct ip_socket *other, int other_fd);

/* The program has made an end of a pair one that does not wait: an event loop's, which wakes itself by it. It is the kernel's from now on,
 * and costs what it costs without us. */
void ip_forget_pair(struct ip_socket *s);

/* A fork is about to share both ends of a pair: they are on the ring before, or stay with the kernel. */
void ip_share_pair(struct ip_socket *s);

/* Before a fork shares pairs: which of those that were shared have been of use. */
void ip_judge_pairs(void);

/* The last number of the socket is about to be closed, or was. */
void ip_end_of_pair(struct ip_socket *s);

#pragma GCC visibility pop
