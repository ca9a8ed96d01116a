/* Wakes threads whose descriptor was closed or whose number was reused (fd_change.c). */
#pragma once

#include "os/atomics.h"

struct fs_fd_change {
    int fd;
    uint64_t inode;
    int sleepers;
    fs_word32 over; /* its last sleeper ends it; atomic, as a sleeper sets it without the lock */
    struct fs_fd_change *next;
};

/* Wakes the sleepers: a connection's number has changed or means something else, and calls may sleep on it. */
void fs_fd_change_notify(void);

/* For a forked child: drops the parent's state. The threads that slept are not here. */
void fs_fd_change_forget(void);
