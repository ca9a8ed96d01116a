/* How a connection begins and ends in this process. Its life in between, and which calls may touch it, are in state.h. Functions need
 * the host lock unless their comment says otherwise. */
#pragma once

#include "conn/connection.h"

/* Opens a connection on kernel TCP for the descriptor `fd`, whose inode is `inode` (fs_inode(fd); 0: fs_conn_identify asks later),
 * and which has that place in the connection table (-1: none). Returns 0 or -ENOMEM. Writes all of `c` before anything can fail, so that
 * fs_conn_discard may follow in any case. */
int fs_conn_open(struct fs_connection *c, int fd, uint64_t inode, int place);

/* Frees this process's resources, and adds the counters to `totals` unless the connection has ended. Sends no FIN. `c` may be a
 * connection that could not be opened, or zeroed memory. */
void fs_conn_discard(struct fs_connection *c, struct fs_counters *totals);

/* Ends the connection here. Called once, by the caller that the state chose (fs_note_ended, FS_EXIT_CLOSE), which is inside meanwhile;
 * no fork counts the connection any more (atfork.h). The last holder sends FIN, or a reset if bytes lie unread. Adds the counters to
 * `totals`. The host lock is unlocked while the peer is notified. */
void fs_conn_close(struct fs_connection *c, int may_linger, struct fs_counters *totals);

/* The connection has ended but others still use it (fs_has_other_users): its owner closes the descriptor now, and the number may mean
 * another connection at once. As fs_set_fd (attach.h): afterwards no call inside has a lock for the old number. */
void fs_forget_fd(struct fs_connection *c);

/* Frees this process's part of the side's memory. For the caller that got FS_EXIT_RELEASE; fs_note_detached follows, then the region. */
void fs_release_side(struct fs_connection *c);

/* Called in a forked child, which holds the connection now. Only the calls of this thread are still inside. (So a call that begins and
 * ends now ends a connection whose close waited for calls of other threads.) */
void fs_conn_inherit(struct fs_connection *c);
