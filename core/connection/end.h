/* How long a connection lives, which calls may touch it, and how it ends in this process. With the front end's lock
 * unless it says otherwise. */
#ifndef FASTSOCK_END_H
#define FASTSOCK_END_H

#include "connection/connection.h"

/* A new connection, on kernel TCP, of the descriptor `fd`, whose inode is `inode` (fs_inode(fd); 0: fs_identify asks
 * later). 0 or -ENOMEM. `c` is written whole before anything can fail, so that fs_discard may follow whatever it
 * returns. */
int fs_open_connection(struct fs_connection *c, int fd, uint64_t inode);

/* Whether it is known which socket this is (`c->inode`), from now on if not before: a system call, which a one-shot does
 * without. Before anything depends on the descriptor's number not being given away: a second descriptor, a search. 0: it is
 * closed, or no socket any more. */
int fs_identify(struct fs_connection *c);

/* The memory of `c` is about to go, without a goodbye if there was none: gives back all that this process holds of
 * the connection. Adds its counters to `totals`, unless it has ended. Also of one that could not be opened, or of
 * zeroed memory. */
void fs_discard(struct fs_connection *c, struct fs_counters *totals);

/* Whether a call may touch this connection: it has not ended. It does not end then before fs_end_call, with the same
 * `call`, which stays where it is meanwhile. The one place that says so. */
int fs_begin(struct fs_connection *c, struct fs_call *call);

/* The call is over. What is to be done then: */
enum fs_after {
    FS_NOTHING_MORE,
    FS_RELEASE,       /* the connection has ended, and fs_may_release: its memory is to be given back */
    FS_END_LAST_CALL, /* the program has closed it meanwhile, and this was the last call inside: it is to be ended */
};
enum fs_after fs_end_call(struct fs_connection *c, struct fs_call *call);

struct fs_call *fs_innermost_call(void); /* of this thread */

/* The connection ends here, which is noted already (fs_note_finished), and no fork counts it any more (forks.h). If
 * this is the last holder: FIN, or a reset if data lies unread; the doorbell bytes are taken out of the kernel's
 * queue, where they would turn its FIN into a RST. Adds its counters to `totals`. The front end's lock is let go
 * while the peer is told. */
void fs_let_go_of(struct fs_connection *c, struct fs_counters *totals);

/* The connection has ended and calls or a transport are inside: its owner closes the descriptor now, and the number may
 * mean another connection at once. */
void fs_abandon_number(struct fs_connection *c);

/* Whether the memory of a connection that has ended may be given back (fs_free_own, fs_note_detached, then the
 * region): no call and no loop's transport is inside. */
int fs_may_release(const struct fs_connection *c);

void fs_free_own(struct fs_connection *c); /* gives back what this process holds of the side's memory */

/* Before the kernel's shutdown: FIN. In the turn to send. Whether the connection stood before: then the shutdown
 * succeeds, whatever the kernel says. Without the front end's lock. */
int fs_shut(struct fs_connection *c, int receiving, int sending);

/* This process is a forked child, and holds the connection: nobody is inside of it (the caller counts this thread's own
 * calls). */
void fs_inherit(struct fs_connection *c);

#endif
