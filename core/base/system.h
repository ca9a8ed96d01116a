/* What the core asks of the system: the headers, the clock, and waits with a bound. Nothing of fastsock is known here. */
#ifndef FASTSOCK_SYSTEM_H
#define FASTSOCK_SYSTEM_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Monotonic time in nanoseconds. */
static inline int64_t fs_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Sleeps for 50 us. */
static inline void fs_nap(void) {
    struct timespec t = {0, 50000};
    nanosleep(&t, NULL);
}

/* Sleeps until one of the three has an event, for at most `nanoseconds` (negative: for ever). */
static inline int fs_poll3(struct pollfd *fds, int64_t nanoseconds) {
    struct timespec t = {nanoseconds / 1000000000, nanoseconds % 1000000000};
    return ppoll(fds, 3, nanoseconds < 0 ? NULL : &t, NULL);
}

/* The events of one descriptor, after `milliseconds` at most. 0: none. */
static inline int fs_events_within(int fd, short events, int milliseconds) {
    struct pollfd p = {fd, events, 0};
    return poll(&p, 1, milliseconds) > 0 ? p.revents : 0;
}

static inline int fs_events_now(int fd, short events) { return fs_events_within(fd, events, 0); }

/* Whether an error of send or recv says nothing about the connection: the same call may succeed the next time. */
static inline int fs_passes(int error) {
    return error == EAGAIN || error == EINTR || error == ENOBUFS || error == ENOMEM;
}

#define FS_MIN(a, b) ((a) < (b) ? (a) : (b))
#define FS_MAX(a, b) ((a) > (b) ? (a) : (b))

#endif
