/* The control thread watches kernel connections for threads that sleep on a futex, which no kernel event wakes.
 *
 * A connection is added when a thread first sleeps on its ring: one system call, once. The epoll is edge-triggered, so a connection that
 * stays half closed is no busy loop. An event is counted in the connection (`told`) and wakes those futexes of its side on which threads
 * of this process sleep. A sleeper looks at the kernel only if an event was counted since its last look.
 *
 * Nobody has to supervise the watcher. A watcher that ends, or has lost its epoll, wakes all sleepers once. Sleepers find that nobody
 * watches, look by themselves now and then, and join the next watcher.
 *
 * Processes are watched too (a pidfd each): the end of a peer whose stream has already ended is no event of the connection. */
#pragma once

#include <sys/epoll.h>
#include <sys/types.h>

#include "os/atomics.h"

/* The events that a connection always needs; and with input, until the kernel's queue is the program's again. */
#define FS_HANGUP_EVENTS (EPOLLRDHUP | EPOLLHUP | EPOLLERR)
#define FS_HANGUP_AND_IN (FS_HANGUP_EVENTS | EPOLLIN)

/* A futex, and the count of this process's threads that sleep on it or are about to. */
struct fs_sleepers {
    fs_word32 *futex, *count;
};

/* A connection that may be watched; all zero: it is not. */
struct fs_tcp_watch {
    fs_word32 watcher;  /* the number of the watcher it has joined, which is gone if it is not the present one */
    fs_word32 asked; /* the events watched */
    fs_word32 told;  /* events so far that its sleepers must look at */
    fs_word32 place; /* slot in the table, plus one; 0: none */
    /* The rest needs the lock of the table. */
    uint64_t inode; /* of the descriptor */
    int fd;         /* the descriptor, when added */
    int process;    /* index of the peer's process, plus one; 0: not watched */
    struct fs_sleepers receivers, senders;
    fs_word64 *slot; /* in an event set of this side, by the region's name; the name may be 0 */
};

/* ---- for sleepers. They need no lock and must not hold the host lock ------------------------------------------------- */

/* Returns true if these events are watched, by a thread that wakes the sleepers if it stops. */
int fs_is_watched(const struct fs_tcp_watch *w, uint32_t events);

/* Watches the connection's descriptor `fd`; `slot` names its place in an event set, if it has one. Returns 0 if there is no watcher or it
 * is full. A sleeper counts itself before it calls either function, and reads `told` afterwards: only futexes with counted sleepers are
 * woken. */
int fs_watch_add(struct fs_tcp_watch *w, int fd, uint32_t events, struct fs_sleepers receivers, struct fs_sleepers senders,
                 fs_word64 *slot);

/* Watches only the ends from now on. The caller may have the host lock: nobody waits for that with the table's. */
void fs_watch_ends_only(struct fs_tcp_watch *w);

enum fs_process { FS_PROCESS_UNKNOWN, FS_PROCESS_LIVES, FS_PROCESS_ENDED };

/* Returns the state of the peer's process, and watches it if possible: then its end is an event of a watched connection. `process` is
 * its process id, 0: none here. */
enum fs_process fs_watch_process(struct fs_tcp_watch *w, pid_t process);

/* ---- before a connection ends or `fd` means something else ------------------------------------------------------------ */

/* Stops watching. Afterwards nothing touches `w` and its futexes. May unlock and relock the host lock. */
void fs_watch_remove(struct fs_tcp_watch *w);

/* Non-blocking variant that keeps the host lock. Returns 0 if the table is busy: try again. */
int fs_try_watch_remove(struct fs_tcp_watch *w);

/* ---- for the watcher -------------------------------------------------------------------------------------------- */

enum { /* kinds in the lower half of an event's handle, beside a slot */
    FS_OF_CONNECTION = 1 << 28,
    FS_OF_PROCESS = 1 << 29,
};

/* Announces a thread that waits on `epoll` and calls fs_watch_event, unless there is one already. Returns the watcher's number. This and
 * the next one may unlock and relock the host lock. */
uint32_t fs_watch_start(int epoll);

/* The watcher stops: wakes all that it watched. No effect if it is not the present one. */
void fs_watch_stop(uint32_t watcher);

/* Processes an event with this handle. Returns true if the handle was one of these. */
int fs_watch_event(uint64_t handle, uint32_t events);

/* For a forked child: the watcher is the parent's. (fs_conn_inherit resets the connections.) */
void fs_watch_forget(void);
