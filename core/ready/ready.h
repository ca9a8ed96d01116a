/* Readiness: epoll, poll and select over the ring and the kernel at once, as the kernel means them.
 *
 * A poller stands for one epoll instance of the program, or for one thread that calls poll or select. Its members are descriptors. A
 * descriptor that is a connection, or may become one, is a `struct fs_pollable`; every other descriptor is the kernel's alone. (An event
 * loop that drives connections itself has a poller too: include/fastsock_loop.h.)
 *
 * How it works: as the kernel's own epoll does. A poller has a list of members that may be ready. A callback puts a member on it:
 * the kernel's event for what goes through the kernel connection, and a hint of the event set (events/event_set.h) for what goes through
 * the ring. A wait asks each member of the list for its level. Level-triggered members that were told stay on the list. Edge-triggered ones
 * leave it, and the next arrival puts them back; a message that arrives while others lie unread is such an arrival. A single shot is
 * disabled when it is told, under the poller's lock, so one wait tells it.
 *
 * The program's epoll instance stays the kernel's. Descriptors of the kernel are members of it with the program's own data. The set's
 * eventfd is a member too, so who polls the instance's number, or has it in another instance, is woken. A member on the ring is parked
 * there: edge-triggered, for everything, with a mask that is never changed. So neither a change of what is wanted nor re-arming a single
 * shot costs a system call.
 *
 * Whose event is it? epoll_wait returns 64 bits of data and no descriptor. The data of our registrations lie in a range of 2^48 values
 * whose start is drawn at random for the process (fs_pollers_begin). Three things keep them apart from the program's:
 *
 *   1. Every registration passes fs_poller_ctl or fs_is_poller_data. One whose data lie in our range is never given to the kernel as it is:
 *      it becomes a member with data of ours, and the program's data stand in our table. So no comparison is by chance, whatever data a
 *      program takes, be they copied from /proc.
 *   2. A registration that passes nobody (a system call past the C library, an instance that existed before this library was loaded) has
 *      data that were chosen without knowing the range. It lies there by chance with a probability of 2^-14 if they are a hash, and never
 *      if they are a pointer or a small number.
 *   3. An event in our range is looked up in the poller's table: a slot that nobody has, or that was given to another member since (a
 *      generation is part of the data), is an event of a registration of ours that has gone, and is dropped. So is one of a parent's or a
 *      child's that uses the same instance (a tag of the process is part of the data).
 *
 * An inner epoll instance, whose data are the same question one level down, would not answer it: its own registration in the program's
 * instance has data too.
 *
 * Locks: one for each poller but a loop's, one for each pollable, and one for the event set of connections that several pollers have.
 * Order: the pollable's, the poller's, the set's. None is held across a sleep, a lock of a connection, or a look at one. None is taken by
 * fs_is_poller_data. They are not for signal handlers: the front end puts the program's handlers off while a thread is in a function of
 * this file, but for the time between `before_sleep` and `after_sleep`.
 *
 * Functions return 0 or more, or -errno. They keep no lock of the front end's, and need none. */
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>

#include "conn/connection.h"

struct fs_poller;
struct fs_member;

/* A socket that is a connection, or may become one: a member of any number of pollers. All zero: not a connection yet, in no poller. Part
 * of the front end's record of the socket, one for all numbers that the socket has. It stays where it is as long as its connection's memory
 * does. Only this room touches what is in it. */
struct fs_pollable {
    pthread_mutex_t lock;
    fs_atomic_ptr(struct fs_member) members;
    fs_atomic_ptr(struct fs_connection) c; /* NULL: not a connection yet, or not any more */
    fs_atomic_ptr(struct fs_poller) home;  /* whose event set gets the ring's hints; NULL: no poller's */
    int common;                            /* the event set that several pollers share does */
    int attached;                          /* it is on the ring, or about to go there */
};

/* What a poller asks of its front end (struct fs_front_end). NULL: nothing is to be done. Set before the first poller. */
struct fs_poller_host {
    void (*end_call)(struct fs_connection *c, struct fs_call *call); /* NULL: fs_call_exit, and what it says is lost */
    void (*operate)(struct fs_connection *c);
    int (*leave)(struct fs_connection *c); /* NULL: no instance is ever shared */
    int (*before_sleep)(void);
    void (*after_sleep)(void);
    int (*is_interrupted)(void);
};
extern struct fs_poller_host fs_poller_host;

/* What waits have counted: poll_ns, poll_unpaid_ns, polls_paid, polls_unpaid. */
extern struct fs_counters fs_poller_totals;

/* Once in a process, before its first poller: draws the range of our data. A forked child keeps it. */
void fs_pollers_begin(void);

/* In a forked child, for each socket, before those: a thread that is not here may have had its lock. */
void fs_pollable_after_fork(struct fs_pollable *it);

/* ---- what happens to a socket ---------------------------------------------------------------------------------------- */

/* The socket is a connection from now on (fs_conn_open was called): before anything else here hears of it. */
void fs_poller_connected(struct fs_pollable *it, struct fs_connection *c);

/* The connection is about to attach: takes its slot. 0, or -errno: it cannot be told by an event set, and stays on the kernel. Before
 * fs_attach, also where nobody polls it yet. */
int fs_poller_before_attach(struct fs_pollable *it);

/* fs_attach has returned. `attached`: it succeeded. Members change over: each is asked anew, so nothing that came meanwhile is lost. */
void fs_poller_after_attach(struct fs_pollable *it, int attached);

/* The connection has left the ring for good (the fallback, or a bridge: fs_fd is what the kernel reports): members are the kernel's
 * again. */
void fs_poller_after_leave(struct fs_pollable *it);
