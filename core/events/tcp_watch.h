/* Kernel connections that the connection thread watches for the threads that sleep on a bell, which no event of the kernel wakes.
 *
 * A connection joins when a thread first sleeps on its ring. That is one system call, once: the thread's epoll tells of each
 * change by an edge, so that a connection that stays half closed is no busy loop. An event is counted in the connection (`told`),
 * and rings those bells of its side on which threads of this process sleep. A sleeper looks at the kernel only if something was counted since its last look.
 *
 * Nobody has to look after who watches. The watcher that ends, or has lost its epoll, does the same for all that it watched.
 * Sleepers find that nobody watches them, look by themselves now and then, and join the next one.
 *
 * Processes are watched too (a pidfd each): the end of a peer whose stream has ended is no event of the connection. */
#ifndef FASTSOCK_TCP_WATCH_H
#define FASTSOCK_TCP_WATCH_H

#include <sys/epoll.h>
#include <sys/types.h>

#include "os/atomics.h"

/* What a connection wants to know of in any case; and of what it receives as long as that comes through the kernel. */
#define FS_HANGUP_EVENTS (EPOLLRDHUP | EPOLLHUP | EPOLLERR)
#define FS_HANGUP_AND_IN (FS_HANGUP_EVENTS | EPOLLIN)

/* Where threads sleep, and how many of this process do, or are about to. */
struct fs_sleepers {
    fs_word32 *futex, *count;
};

/* A connection that may be watched; all zero: it is not. */
struct fs_tcp_watch {
    fs_word32 turn;  /* of the watcher that it has joined; that is gone if it is not the present one */
    fs_word32 asked; /* the events that it is watched for */
    fs_word32 told;  /* how often something has happened that its sleepers have to look at */
    fs_word32 place; /* in the table, plus one; 0: it has none */
    /* The rest under the lock of the table. */
    uint64_t inode; /* of the descriptor, */
    int fd;         /* by which it was joined */
    int process;    /* of the peer, in the table of those, plus one; 0: not watched */
    struct fs_sleepers receivers, senders;
};

/* ---- for sleepers. No lock is needed, and none of the front end's may be held ---------------------------------- */

/* Whether its events of this kind are told, by a thread that rings the bells if it stops doing so. */
int fs_is_watched(const struct fs_tcp_watch *w, uint32_t events);

/* Sees to that, with the connection's descriptor `fd`. 0: there is no watcher, or it takes no more. Who sleeps has counted itself
 * before it asks for either, and reads `told` behind that: a bell is rung only where somebody is counted. */
int fs_watch_add(struct fs_tcp_watch *w, int fd, uint32_t events, struct fs_sleepers receivers, struct fs_sleepers senders);

/* From now on only its ends are told. */
void fs_watch_ends_only(struct fs_tcp_watch *w);

enum fs_process { FS_PROCESS_UNKNOWN, FS_PROCESS_LIVES, FS_PROCESS_ENDED };

/* The process of the peer, should it be watched too, or be watchable: from then on its end is an event of a connection that is
 * watched. `process` is its number, 0: it has none here. */
enum fs_process fs_watch_process(struct fs_tcp_watch *w, pid_t process);

/* ---- for whoever ends or changes a connection. Before `fd` means something else -------------------------------- */

/* Nothing touches `w` and its bells any more. May let go of the front end's lock. */
void fs_watch_remove(struct fs_tcp_watch *w);

/* The same for who may not wait, or let go. 0: the table is in use; try again. */
int fs_try_watch_remove(struct fs_tcp_watch *w);

/* ---- for the watcher -------------------------------------------------------------------------------------------- */

enum { /* in the lower half of an event's handle, beside a place */
    FS_OF_LIFELINE = 1 << 28,
    FS_OF_PROCESS = 1 << 29,
};

/* There is a thread from now on that waits on `epoll` and calls fs_watch_event, unless there is one already. Its turn. This and the
 * next one may let go of the front end's lock. */
uint32_t fs_watch_start(int epoll);

/* That one watches no more: all that it watched are woken. Nothing, if it is not the present one. */
void fs_watch_stop(uint32_t turn);

/* An event with this handle: whether it was one of ours. */
int fs_watch_event(uint64_t handle, uint32_t events);

/* In a forked child: the watcher is the parent's. (Its connections have forgotten it by fs_conn_inherit.) */
void fs_watch_forget(void);

#endif
