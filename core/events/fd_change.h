/* What a thread that sleeps on a descriptor's number is told when the number means something else from now on (fd_change.c). */
#ifndef FASTSOCK_FD_CHANGE_H
#define FASTSOCK_FD_CHANGE_H

#include "os/atomics.h"

struct fs_fd_change {
    int fd;
    uint64_t inode;
    int sleepers;
    fs_word32 over; /* nobody joins it any more; relaxed, since who reads it has the front end's lock */
    struct fs_fd_change *next;
};

/* This thread is about to sleep, beside other threads. NULL: there is no descriptor for that, and it may be deaf. */
struct fs_fd_change *fs_fd_change_subscribe(void);

/* The sleeper is awake, and looks at the number if it goes on. */
void fs_fd_change_unsubscribe(struct fs_fd_change *joined);

/* A connection's number is another one, or means something else, and calls are inside that may sleep on it. */
void fs_fd_change_notify(void);

/* This process is a forked child: what its parent tells is nothing to it, and the threads that slept are not here. */
void fs_fd_change_forget(void);

#endif
