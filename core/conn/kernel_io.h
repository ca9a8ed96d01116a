/* Calls that wait on kernel TCP in the kernel's own recv or send, which saves a poll and some locking. The caller knows that nobody
 * moves the connection meanwhile, is inside a call (fs_call_enter), and has the host lock, which is unlocked. They return bytes, 0 at
 * the end of the stream, or -errno. */
#ifndef FASTSOCK_KERNEL_IO_H
#define FASTSOCK_KERNEL_IO_H

#include "conn/connection.h"

/* Spins for the budget; each attempt is a recv. Returns -EAGAIN if nothing came: the caller handles signals before it sleeps, as a
 * signal that came meanwhile would not end the sleep. `spun` is set if there was a budget. */
int64_t fs_receive_polling(struct fs_connection *c, char *into, size_t room, int flags, int *spun);

/* As recv. `spun`: this wait has spun in vain. */
int64_t fs_receive_asleep(struct fs_connection *c, char *into, size_t room, int flags, int spun);

/* As send. */
int64_t fs_send_asleep(struct fs_connection *c, const char *data, size_t length, int flags);

#endif
