/* Getting rid of what strangers sent, without waiting for it.
 *
 * The last close of a descriptor can take for ever: a TCP socket lingers, a file in user space is flushed, and a unix socket closes
 * whatever lies unread in it. The same goes for a message whose descriptors nobody receives. So all this is done in threads that
 * nobody waits for. There are FS_REAPERS of them at most. While all are held, nothing more is taken from a stranger: it stays
 * where it is, and `fs_reaper_has_room` says so.
 *
 * None of these blocks, and none needs a lock. A forked child has no such threads, and nothing that waits for them. */
#ifndef FASTSOCK_FD_REAPER_H
#define FASTSOCK_FD_REAPER_H

enum { FS_REAPERS = 16 };

/* Whether something more may be taken from a stranger, as a thread could drop it. If threads could not be made before, it tries
 * again. */
int fs_reaper_has_room(void);

/* Closes a descriptor that came in a message. At once if that cannot block; `trusted`: its sender is believed. */
void fs_reap_fd(int fd, int trusted);
void fs_reap_tcp(int fd, int trusted); /* the same of what is known as a TCP socket */

/* Sends a visitor away: the letter `why`, and the end. What it said and was not received goes with it. */
void fs_refuse(int control, char why, int trusted);

/* Closes the socket of a visitor, or of a name, with all that lies there unread. At once if that is nothing. */
void fs_reap_control(int control, int trusted);
void fs_reap_listener(int listener);

/* Takes the next datagram off a socket, and drops it. 1: it is off. 0: no thread is free for it now, or none runs in time. */
int fs_reap_message(int fd);

/* The socket of a seeker takes no descriptors, where the kernel can refuse them (Linux 6.16): who holds the name may be a stranger. */
void fs_refuse_descriptors(int control);

/* Closes the socket of a seeker, with all that lies there unread. `trusted`: it is known that who has the name is believed. */
void fs_reap_seeker(int control, int trusted);

#endif
