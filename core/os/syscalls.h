/* The core's system calls: one table of functions, and bounded waits. Nothing here knows fastsock.
 *
 * Each system call and each allocation that can fail goes through `fs_system`, as fs_system.recv(...). No other file of the core names
 * the C library's function (tests/native/test_core.py checks the objects). So a test can replace an entry to watch a call or make it
 * fail. It must do so before the first connection, since the table is read without synchronization. Calls that cannot fail are made
 * directly: the clock (clock.c), yields, process ids. */
#pragma once

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "include/fastsock.h"

struct robust_list_head;
struct statx; /* (the C library declares it only with _GNU_SOURCE) */

/* The calls: type, name, value on failure, parameters, arguments. CALL is the C library's function of that name. RAW marks one that some
 * C libraries lack or declare differently; syscalls.c defines it. Tests derive their own lists from this one. */
#define FS_SYSTEM_CALLS(CALL, RAW) \
    /* bytes */ \
    CALL(ssize_t, read, -1, (int fd, void *into, size_t room), (fd, into, room)) \
    CALL(ssize_t, write, -1, (int fd, const void *data, size_t length), (fd, data, length)) \
    CALL(ssize_t, pread, -1, (int fd, void *into, size_t room, off_t at), (fd, into, room, at)) \
    CALL(ssize_t, recv, -1, (int fd, void *into, size_t room, int flags), (fd, into, room, flags)) \
    CALL(ssize_t, send, -1, (int fd, const void *data, size_t length, int flags), (fd, data, length, flags)) \
    CALL(ssize_t, sendto, -1, \
         (int fd, const void *data, size_t length, int flags, const struct sockaddr *to, socklen_t size), \
         (fd, data, length, flags, to, size)) \
    CALL(ssize_t, recvmsg, -1, (int fd, struct msghdr *message, int flags), (fd, message, flags)) \
    CALL(ssize_t, sendmsg, -1, (int fd, const struct msghdr *message, int flags), (fd, message, flags)) \
    CALL(ssize_t, getrandom, -1, (void *into, size_t room, unsigned flags), (into, room, flags)) \
    /* waits */ \
    CALL(int, poll, -1, (struct pollfd *fds, nfds_t count, int milliseconds), (fds, count, milliseconds)) \
    CALL(int, ppoll, -1, \
         (struct pollfd *fds, nfds_t count, const struct timespec *time, const sigset_t *mask), \
         (fds, count, time, mask)) \
    CALL(int, epoll_create1, -1, (int flags), (flags)) \
    CALL(int, epoll_ctl, -1, (int epoll, int what, int fd, struct epoll_event *event), (epoll, what, fd, event)) \
    RAW(int, epoll_pwait2, -1, \
        (int epoll, struct epoll_event *events, int most, const struct timespec *time, const sigset_t *mask), \
        (epoll, events, most, time, mask)) \
    CALL(int, eventfd, -1, (unsigned start, int flags), (start, flags)) \
    RAW(int, futex, -1, (void *word, int what, uint32_t value, const struct timespec *time), (word, what, value, time)) \
    CALL(int, nanosleep, -1, (const struct timespec *time, struct timespec *rest), (time, rest)) \
    /* sockets */ \
    CALL(int, socket, -1, (int family, int type, int protocol), (family, type, protocol)) \
    CALL(int, socketpair, -1, (int family, int type, int protocol, int ends[2]), (family, type, protocol, ends)) \
    CALL(int, bind, -1, (int fd, const struct sockaddr *to, socklen_t size), (fd, to, size)) \
    CALL(int, connect, -1, (int fd, const struct sockaddr *to, socklen_t size), (fd, to, size)) \
    CALL(int, listen, -1, (int fd, int backlog), (fd, backlog)) \
    CALL(int, accept4, -1, (int fd, struct sockaddr *from, socklen_t *size, int flags), (fd, from, size, flags)) \
    CALL(int, shutdown, -1, (int fd, int how), (fd, how)) \
    CALL(int, getsockname, -1, (int fd, struct sockaddr *name, socklen_t *size), (fd, name, size)) \
    CALL(int, getpeername, -1, (int fd, struct sockaddr *name, socklen_t *size), (fd, name, size)) \
    CALL(int, getsockopt, -1, (int fd, int level, int option, void *value, socklen_t *size), \
         (fd, level, option, value, size)) \
    CALL(int, setsockopt, -1, (int fd, int level, int option, const void *value, socklen_t size), \
         (fd, level, option, value, size)) \
    /* descriptors and files */ \
    CALL(int, open, -1, (const char *path, int flags), (path, flags)) \
    CALL(int, close, -1, (int fd), (fd)) \
    CALL(int, dup3, -1, (int from, int to, int flags), (from, to, flags)) \
    CALL(int, pipe2, -1, (int fds[2], int flags), (fds, flags)) \
    CALL(int, fcntl, -1, (int fd, int what, long argument), (fd, what, argument)) \
    CALL(int, ioctl, -1, (int fd, unsigned long what, void *argument), (fd, what, argument)) \
    CALL(int, fstat, -1, (int fd, struct stat *into), (fd, into)) \
    CALL(int, fstatfs, -1, (int fd, struct statfs *into), (fd, into)) \
    CALL(int, stat, -1, (const char *path, struct stat *into), (path, into)) \
    CALL(int, chmod, -1, (const char *path, mode_t mode), (path, mode)) \
    CALL(int, unlink, -1, (const char *path), (path)) \
    CALL(int, flock, -1, (int fd, int how), (fd, how)) \
    RAW(ssize_t, getdents64, -1, (int fd, void *into, size_t room), (fd, into, room)) \
    RAW(int, statx, -1, (int fd, const char *path, int flags, unsigned wanted, struct statx *into), \
        (fd, path, flags, wanted, into)) \
    CALL(off_t, lseek, -1, (int fd, off_t to, int whence), (fd, to, whence)) \
    CALL(int, ftruncate, -1, (int fd, off_t length), (fd, length)) \
    CALL(int, fallocate, -1, (int fd, int mode, off_t from, off_t length), (fd, mode, from, length)) \
    RAW(int, memfd_create, -1, (const char *name, unsigned flags), (name, flags)) \
    RAW(int, close_range, -1, (unsigned first, unsigned last, int flags), (first, last, flags)) \
    RAW(int, pidfd_open, -1, (pid_t process, unsigned flags), (process, flags)) \
    /* memory */ \
    RAW(void *, malloc, NULL, (size_t size), (size)) \
    RAW(void *, calloc, NULL, (size_t count, size_t size), (count, size)) \
    RAW(void *, realloc, NULL, (void *before, size_t size), (before, size)) \
    CALL(void *, mmap, MAP_FAILED, (void *at, size_t length, int access, int flags, int fd, off_t from), \
         (at, length, access, flags, fd, from)) \
    CALL(int, munmap, -1, (void *at, size_t length), (at, length)) \
    CALL(int, mprotect, -1, (void *at, size_t length, int access), (at, length, access)) \
    CALL(int, munlock, -1, (const void *at, size_t length), (at, length)) \
    CALL(int, madvise, -1, (void *at, size_t length, int advice), (at, length, advice)) \
    CALL(int, mincore, -1, (void *at, size_t length, unsigned char *into), (at, length, into)) \
    /* threads and processes */ \
    CALL(int, pthread_create, EAGAIN, \
         (pthread_t *thread, const pthread_attr_t *how, void *(*body)(void *), void *argument), \
         (thread, how, body, argument)) \
    CALL(int, pthread_atfork, ENOMEM, (void (*before)(void), void (*parent)(void), void (*child)(void)), \
         (before, parent, child)) \
    RAW(pid_t, clone, -1, (int flags), (flags)) \
    RAW(pid_t, gettid, -1, (void), ()) \
    RAW(int, get_robust_list, -1, (pid_t thread, struct robust_list_head **list, size_t *size), (thread, list, size)) \
    RAW(int, set_robust_list, -1, (struct robust_list_head *list, size_t size), (list, size)) \
    CALL(pid_t, waitpid, -1, (pid_t process, int *status, int options), (process, status, options)) \
    CALL(int, kill, -1, (pid_t process, int number), (process, number)) \
    RAW(int, tgkill, -1, (pid_t process, pid_t thread, int number), (process, thread, number)) \
    CALL(pid_t, setsid, -1, (void), ()) \
    CALL(int, chdir, -1, (const char *path), (path)) \
    CALL(int, prctl, -1, (int what, const char *argument), (what, argument)) \
    CALL(int, getrlimit, -1, (int what, struct rlimit *into), (what, into)) \
    CALL(int, sched_getaffinity, -1, (pid_t thread, size_t size, cpu_set_t *into), (thread, size, into)) \
    CALL(long, sysconf, -1, (int what), (what))

struct fs_system {
#define FS_FIELD(type, name, failure, parameters, arguments) type(*name) parameters;
    FS_SYSTEM_CALLS(FS_FIELD, FS_FIELD)
#undef FS_FIELD
    void (*free)(void *memory); /* (cannot fail; in the table for tests that count allocations) */
};

extern struct fs_system fs_system;

/* Sleeps for 50 us. */
static inline void fs_short_sleep(void) {
    struct timespec t = {0, 50000};
    fs_system.nanosleep(&t, NULL);
}

/* Polls two descriptors, for at most `nanoseconds` (negative: no limit). Returns what poll returns. */
static inline int fs_poll2(struct pollfd *fds, int64_t nanoseconds) {
    struct timespec t = {nanoseconds / 1000000000, nanoseconds % 1000000000};
    return fs_system.ppoll(fds, 2, nanoseconds < 0 ? NULL : &t, NULL);
}

/* epoll_pwait with a timeout in nanoseconds (negative: none). `mask`: blocked signals meanwhile; NULL: the thread's own. */
static inline int fs_epoll_wait(int epoll, struct epoll_event *events, int most, int64_t nanoseconds, const sigset_t *mask) {
    struct timespec t = {nanoseconds / 1000000000, nanoseconds % 1000000000};
    return fs_system.epoll_pwait2(epoll, events, most, nanoseconds < 0 ? NULL : &t, mask);
}

/* Returns the events of one descriptor within `milliseconds`, or 0. */
static inline int fs_poll_events(int fd, short events, int milliseconds) {
    struct pollfd p = {fd, events, 0};
    return fs_system.poll(&p, 1, milliseconds) > 0 ? p.revents : 0;
}

static inline int fs_poll_events_now(int fd, short events) { return fs_poll_events(fd, events, 0); }

/* Returns true if an error of send or recv says nothing about the connection: the same call may succeed next time. */
static inline int fs_is_transient(int error) {
    return error == EAGAIN || error == EINTR || error == ENOBUFS || error == ENOMEM;
}

#define FS_MIN(a, b) ((a) < (b) ? (a) : (b))
#define FS_MAX(a, b) ((a) > (b) ? (a) : (b))
