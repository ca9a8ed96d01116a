/* The event set of connections that several pollers have. */
#pragma once

#include "ready/poller.h"

/* The poller's epoll is woken when the set is, from now on. With the poller's lock. 0 or -errno. */
int fs_join_common(struct fs_poller *p);

/* The connection's slot is in this set. With the pollable's lock. 0 or -errno. */
int fs_common_slot_alloc(struct fs_pollable *it, struct fs_connection *c);
void fs_common_slot_free(struct fs_connection *c);

/* As fs_set_register, of a connection that has its slot here. */
void fs_common_slot_publish(struct fs_connection *c);

/* Hints: their members may be ready, in each poller, and who sleeps there wakes. With no lock. */
void fs_common_take_hints(void);

/* A thread sleeps on a poller that has joined: the set is told. Hints that are there are taken. With no lock. */
void fs_common_sleep(void);
void fs_common_wake(void);

/* Somebody polls the number of an instance that has joined: the set sleeps whenever nobody takes its hints. With no lock. */
void fs_common_leave_asleep(void);

void fs_forget_common(void); /* in a forked child */
