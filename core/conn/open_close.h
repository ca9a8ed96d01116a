/* How a connection begins and ends in this process. How long it lives in between, and which calls may touch it, is in state.h.
 * With the front end's lock unless it says otherwise. */
#ifndef FASTSOCK_OPEN_CLOSE_H
#define FASTSOCK_OPEN_CLOSE_H

#include "conn/connection.h"

/* A new connection, on kernel TCP, of the descriptor `fd`, whose inode is `inode` (fs_inode(fd); 0: fs_conn_identify asks
 * later). 0 or -ENOMEM. `c` is written whole before anything can fail, so that fs_conn_discard may follow whatever it
 * returns. */
int fs_conn_open(struct fs_connection *c, int fd, uint64_t inode);

/* Whether it is known which socket this is (`c->inode`), from now on if not before: a system call, which a one-shot does
 * without. Before anything depends on the descriptor's number not being given away: a second descriptor, a search. 0: it is
 * closed, or no socket any more. */
int fs_conn_identify(struct fs_connection *c);

/* The memory of `c` is about to go, without a goodbye if there was none: gives back all that this process holds of
 * the connection. Adds its counters to `totals`, unless it has ended. Also of one that could not be opened, or of
 * zeroed memory. */
void fs_conn_discard(struct fs_connection *c, struct fs_counters *totals);

/* The connection ends here: whoever was told so says its goodbye (fs_note_ended, FS_EXIT_CLOSE), is inside meanwhile, and no fork
 * counts it any more (atfork.h). If this is the last holder: FIN, or a reset if data lies unread; the doorbell bytes are
 * taken out of the kernel's queue, where they would turn its FIN into a RST. Adds its counters to `totals`. The front
 * end's lock is let go while the peer is told. */
void fs_conn_close(struct fs_connection *c, struct fs_counters *totals);

/* The connection has ended and others have it still (fs_has_other_users): its owner closes the descriptor now, and the number may
 * mean another connection at once. As fs_set_fd (attach.h): no call that is inside has its turn then. */
void fs_forget_fd(struct fs_connection *c);

/* Gives back what this process holds of the side's memory. For who was told FS_EXIT_RELEASE; fs_note_detached follows, then the region. */
void fs_release_side(struct fs_connection *c);

/* Before the kernel's shutdown: FIN. In the turn to send. Whether the connection stood before: then the shutdown
 * succeeds, whatever the kernel says. -EINTR, and nothing was done: the turn is somebody else's (a stopped process's, mostly); the
 * caller looks for signals, and calls again. Without the front end's lock. */
int fs_conn_shutdown(struct fs_connection *c, int receiving, int sending);

/* This process is a forked child, and holds the connection: of the calls that were inside only this thread's are here. (So a
 * call that begins and ends now ends a connection that waited for calls of other threads to be closed.) */
void fs_conn_inherit(struct fs_connection *c);

#endif
