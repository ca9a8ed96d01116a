/* Drops descriptors and messages of untrusted users without waiting.
 *
 * The last close of a descriptor can take forever: a TCP socket lingers, a file in user space is flushed, and a unix socket closes all
 * descriptors unread in it. So can dropping a message with descriptors. One thread does this, for which nobody waits. A close that blocks
 * holds up those after it, so the queue is bounded: while FS_REAPER_ROOM things wait for the thread, nothing more is received from an
 * untrusted user, and no name is published; `fs_reaper_has_room` tells.
 *
 * None of these blocks or needs a lock. A forked child has no such thread, and nothing that waits for it. */
#pragma once

enum { FS_REAPER_ROOM = 16 };

/* Installs the handler of forks, once. Returns 0 or pthread_atfork's errno. */
int fs_reaper_begin(void);

/* That handler, for a child of a fork that runs none: before anything else of ours, since the thread is the parent's. */
void fs_reaper_in_child(void);

/* Returns true if more may be received from an untrusted user. Tries again to start the thread if that failed before. */
int fs_reaper_has_room(void);

/* Closes a descriptor that came in a message; at once if that cannot block. `trusted`: its sender is trusted. */
void fs_reap_fd(int fd, int trusted);
void fs_reap_tcp(int fd, int trusted); /* for a TCP socket */

/* Refuses an incoming peer: sends the letter `why` and closes. Its unread message is dropped too. */
void fs_refuse(int control, char why, int trusted);

/* Closes the socket of an incoming peer, or of a name, with all that is unread; at once if nothing is. */
void fs_reap_control(int control, int trusted);
void fs_reap_listener(int listener);

/* Drops the next datagram of a socket. Returns 1 when it is gone, 0 if the thread has something else to drop or does not start in time. For
 * the control thread alone. */
int fs_reap_message(int fd);

/* Makes a seeker's socket refuse descriptors, where the kernel can (Linux 6.16): the holder of the name may be an untrusted user. */
void fs_refuse_descriptors(int control);
void fs_accept_descriptors(int control); /* one is expected */

/* Closes a seeker's socket with all that is unread. `trusted`: the holder of the name is known to be trusted. */
void fs_reap_seeker(int control, int trusted);
