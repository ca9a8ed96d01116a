/* The event set of connections that several pollers have. */
#ifndef FASTSOCK_READY_COMMON_H
#define FASTSOCK_READY_COMMON_H

#include "ready/poller.h"

/* The poller's epoll is woken when the set is, from now on. With the poller's lock. 0 or -errno. */
int fs_join_common(struct fs_poller *p);

/* The connection's seat is in this set. With the pollable's lock. 0 or -errno. */
int fs_take_common_seat(struct fs_pollable *it, struct fs_connection *c);
void fs_leave_common_seat(struct fs_connection *c);

/* As fs_seat, of a connection that has its seat here. */
void fs_say_common_seat(struct fs_connection *c);

/* Hints: their members may be ready, in each poller, and who sleeps there wakes. With no lock. */
void fs_take_common_hints(void);

/* A thread sleeps on a poller that has joined: the set is told. Hints that are there are taken. With no lock. */
void fs_sleep_on_common(void);
void fs_rise_from_common(void);

/* Somebody polls the number of an instance that has joined: the set sleeps whenever nobody takes its hints. With no lock. */
void fs_leave_common_asleep(void);

void fs_forget_common(void); /* in a forked child */

#endif
