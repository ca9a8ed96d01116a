/* A call that waits on kernel TCP in the kernel's own recv or send: that saves a poll, and turns with the front end's lock. The
 * caller knows that nobody moves the connection meanwhile, is inside a call (fs_call_enter), and has the front end's lock, which is let
 * go. Bytes, 0 at the end of the stream, or -errno. */
#ifndef FASTSOCK_KERNEL_IO_H
#define FASTSOCK_KERNEL_IO_H

#include "conn/connection.h"

/* Polls for the budget; each look is an attempt. -EAGAIN: nothing came, and the caller hears its signals before it goes to sleep,
 * which one that came meanwhile would not wake. `polled`: whether there was a budget. */
int64_t fs_receive_polling(struct fs_connection *c, char *into, size_t room, int flags, int *polled);

/* As recv. `polled`: whether this wait has polled in vain. */
int64_t fs_receive_asleep(struct fs_connection *c, char *into, size_t room, int flags, int polled);

/* As send. */
int64_t fs_send_asleep(struct fs_connection *c, const char *data, size_t length, int flags);

#endif
