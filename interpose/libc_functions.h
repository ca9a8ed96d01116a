/* The functions of the C library that stand in this library's place: one table of them, with the library's own.
 *
 * Each one is `real.NAME`. They are looked up once, when the process starts: a look-up later would take locks, and a signal handler or
 * a forked child that waits for one of those waits for ever. What other libraries call before this one has started looks them up too;
 * then there is one thread. */
#pragma once

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#undef _FORTIFY_SOURCE /* its headers define some of these functions themselves */
#include <aio.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

/* What the C libraries declare differently. */
#ifdef __GLIBC__
typedef unsigned long fs_ioctl_request;
typedef int fs_message_flags;
typedef __rlimit_resource_t fs_limit_kind;
typedef struct aiocb *const *fs_aio_list;
void __chk_fail(void) __attribute__((noreturn)); /* the program's buffer is too small for what it asks for */
/* What musl does not have may be missing: its loader does not start a program otherwise that has this library by mistake (install.c). */
#pragma weak __chk_fail
#else
#define __chk_fail() __builtin_trap()
ssize_t preadv2(int fd, const struct iovec *v, int count, off_t at, int flags); /* (of later versions) */
ssize_t pwritev2(int fd, const struct iovec *v, int count, off_t at, int flags);
int epoll_pwait2(int epoll, struct epoll_event *events, int most, const struct timespec *time, const sigset_t *mask);
typedef int fs_ioctl_request;
typedef unsigned fs_message_flags;
typedef int fs_limit_kind;
typedef struct aiocb *restrict const *fs_aio_list;
#endif

/* Type, name, parameters, arguments. A function that takes any number of arguments is declared with as many as it can have. */
#define FS_ENTRY_POINTS(E) \
    /* data */ \
    E(ssize_t, read, (int fd, void *into, size_t room), (fd, into, room)) \
    E(ssize_t, write, (int fd, const void *data, size_t length), (fd, data, length)) \
    E(ssize_t, readv, (int fd, const struct iovec *v, int count), (fd, v, count)) \
    E(ssize_t, writev, (int fd, const struct iovec *v, int count), (fd, v, count)) \
    E(ssize_t, preadv2, (int fd, const struct iovec *v, int count, off_t at, int flags), (fd, v, count, at, flags)) \
    E(ssize_t, pwritev2, (int fd, const struct iovec *v, int count, off_t at, int flags), (fd, v, count, at, flags)) \
    E(ssize_t, recv, (int fd, void *into, size_t room, int flags), (fd, into, room, flags)) \
    E(ssize_t, send, (int fd, const void *data, size_t length, int flags), (fd, data, length, flags)) \
    E(ssize_t, recvfrom, (int fd, void *into, size_t room, int flags, struct sockaddr *from, socklen_t *size), \
      (fd, into, room, flags, from, size)) \
    E(ssize_t, sendto, (int fd, const void *data, size_t length, int flags, const struct sockaddr *to, socklen_t size), \
      (fd, data, length, flags, to, size)) \
    E(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), (fd, message, flags)) \
    E(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags)) \
    E(int, recvmmsg, (int fd, struct mmsghdr *messages, unsigned count, fs_message_flags flags, struct timespec *time), \
      (fd, messages, count, flags, time)) \
    E(int, sendmmsg, (int fd, struct mmsghdr *messages, unsigned count, fs_message_flags flags), (fd, messages, count, flags)) \
    E(ssize_t, sendfile, (int to, int from, off_t *at, size_t count), (to, from, at, count)) \
    /* readiness */ \
    E(int, poll, (struct pollfd *fds, nfds_t count, int milliseconds), (fds, count, milliseconds)) \
    E(int, ppoll, (struct pollfd *fds, nfds_t count, const struct timespec *time, const sigset_t *mask), (fds, count, time, mask)) \
    E(int, select, (int count, fd_set *reads, fd_set *writes, fd_set *excepts, struct timeval *time), \
      (count, reads, writes, excepts, time)) \
    E(int, pselect, (int count, fd_set *reads, fd_set *writes, fd_set *excepts, const struct timespec *time, const sigset_t *mask), \
      (count, reads, writes, excepts, time, mask)) \
    E(int, epoll_create, (int size), (size)) \
    E(int, epoll_create1, (int flags), (flags)) \
    E(int, epoll_ctl, (int epoll, int what, int fd, struct epoll_event *event), (epoll, what, fd, event)) \
    E(int, epoll_wait, (int epoll, struct epoll_event *events, int most, int milliseconds), (epoll, events, most, milliseconds)) \
    E(int, epoll_pwait, (int epoll, struct epoll_event *events, int most, int milliseconds, const sigset_t *mask), \
      (epoll, events, most, milliseconds, mask)) \
    E(int, epoll_pwait2, (int epoll, struct epoll_event *events, int most, const struct timespec *time, const sigset_t *mask), \
      (epoll, events, most, time, mask)) \
    /* beginning and end */ \
    E(int, socket, (int family, int type, int protocol), (family, type, protocol)) \
    E(int, socketpair, (int family, int type, int protocol, int made[2]), (family, type, protocol, made)) \
    E(int, connect, (int fd, const struct sockaddr *to, socklen_t size), (fd, to, size)) \
    E(int, accept, (int fd, struct sockaddr *peer, socklen_t *size), (fd, peer, size)) \
    E(int, accept4, (int fd, struct sockaddr *peer, socklen_t *size, int flags), (fd, peer, size, flags)) \
    E(int, shutdown, (int fd, int how), (fd, how)) \
    E(int, close, (int fd), (fd)) \
    E(int, close_range, (unsigned first, unsigned last, int flags), (first, last, flags)) \
    E(void, closefrom, (int first), (first)) \
    E(int, dup, (int fd), (fd)) \
    E(int, dup2, (int from, int to), (from, to)) \
    E(int, dup3, (int from, int to, int flags), (from, to, flags)) \
    E(int, fcntl, (int fd, int what, void *argument), (fd, what, argument)) \
    E(int, ioctl, (int fd, fs_ioctl_request what, void *argument), (fd, what, argument)) \
    E(int, getsockopt, (int fd, int level, int option, void *value, socklen_t *size), (fd, level, option, value, size)) \
    E(int, setsockopt, (int fd, int level, int option, const void *value, socklen_t size), (fd, level, option, value, size)) \
    /* ways out */ \
    E(FILE *, fdopen, (int fd, const char *mode), (fd, mode)) \
    E(int, vdprintf, (int fd, const char *format, va_list more), (fd, format, more)) \
    E(ssize_t, splice, (int from, off64_t *at, int to, off64_t *to_at, size_t count, unsigned flags), (from, at, to, to_at, count, flags)) \
    E(int, aio_read, (struct aiocb *request), (request)) \
    E(int, aio_write, (struct aiocb *request), (request)) \
    E(int, lio_listio, (int mode, fs_aio_list requests, int count, struct sigevent *event), (mode, requests, count, event)) \
    /* processes */ \
    E(int, execve, (const char *path, char *const *arguments, char *const *environment), (path, arguments, environment)) \
    E(int, execvpe, (const char *file, char *const *arguments, char *const *environment), (file, arguments, environment)) \
    E(int, execveat, (int folder, const char *path, char *const *arguments, char *const *environment, int flags), \
      (folder, path, arguments, environment, flags)) \
    E(int, fexecve, (int fd, char *const *arguments, char *const *environment), (fd, arguments, environment)) \
    E(int, posix_spawn, (pid_t *made, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *how, \
                         char *const *arguments, char *const *environment), (made, path, actions, how, arguments, environment)) \
    E(int, posix_spawnp, (pid_t *made, const char *file, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *how, \
                          char *const *arguments, char *const *environment), (made, file, actions, how, arguments, environment)) \
    E(int, posix_spawn_file_actions_adddup2, (posix_spawn_file_actions_t *actions, int from, int to), (actions, from, to)) \
    E(int, system, (const char *command), (command)) \
    E(FILE *, popen, (const char *command, const char *mode), (command, mode)) \
    E(pid_t, _Fork, (void), ()) \
    E(pid_t, vfork, (void), ()) \
    E(int, clone, (int (*function)(void *), void *stack, int flags, void *argument, void *parent_tid, void *tls, void *child_tid), \
      (function, stack, flags, argument, parent_tid, tls, child_tid)) \
    E(int, pthread_cancel, (pthread_t thread), (thread)) \
    E(void, _exit, (int status), (status)) \
    E(int, unshare, (int flags), (flags)) \
    E(int, setns, (int fd, int kind), (fd, kind)) \
    E(int, prctl, (int what, unsigned long a, unsigned long b, unsigned long c, unsigned long d), (what, a, b, c, d)) \
    E(int, setrlimit, (fs_limit_kind kind, const struct rlimit *limit), (kind, limit)) \
    E(int, prlimit, (pid_t process, fs_limit_kind kind, const struct rlimit *limit, struct rlimit *before), \
      (process, kind, limit, before)) \
    /* signals */ \
    E(int, sigaction, (int number, const struct sigaction *how, struct sigaction *before), (number, how, before))

/* Functions that give the program one number or two (new_numbers.c). Ours are found by their addresses alone (relocations.c), and are not
 * shown: memory allocators call some of them before anything can be looked up. */
#define FS_NEW_NUMBERS(ONE, TWO) \
    ONE(open, (const char *path, int flags, mode_t mode), (path, flags, mode)) \
    ONE(__open_2, (const char *path, int flags), (path, flags)) \
    ONE(__open64_2, (const char *path, int flags), (path, flags)) \
    ONE(openat, (int folder, const char *path, int flags, mode_t mode), (folder, path, flags, mode)) \
    ONE(__openat_2, (int folder, const char *path, int flags), (folder, path, flags)) \
    ONE(__openat64_2, (int folder, const char *path, int flags), (folder, path, flags)) \
    ONE(creat, (const char *path, mode_t mode), (path, mode)) \
    ONE(eventfd, (unsigned value, int flags), (value, flags)) \
    ONE(timerfd_create, (int clock, int flags), (clock, flags)) \
    ONE(signalfd, (int fd, const sigset_t *mask, int flags), (fd, mask, flags)) \
    ONE(inotify_init, (void), ()) \
    ONE(inotify_init1, (int flags), (flags)) \
    ONE(memfd_create, (const char *name, unsigned flags), (name, flags)) \
    TWO(pipe, (int *made), (made)) \
    TWO(pipe2, (int *made, int flags), (made, flags))

struct fs_real {
#define FS_FIELD(type, name, parameters, arguments) type(*name) parameters;
    FS_ENTRY_POINTS(FS_FIELD)
#undef FS_FIELD
#define FS_FIELD(name, parameters, arguments) int(*name) parameters;
    FS_NEW_NUMBERS(FS_FIELD, FS_FIELD)
#undef FS_FIELD
};

#pragma GCC visibility push(hidden)
extern struct fs_real real;

/* Looks all of them up, and has the core call them. Once; the first constructor does so, or who calls before it. */
void fs_set_lookup(void);


/* Calls the kernel as syscall(2) does, but returns -errno. */
long fs_call_kernel(long number, const long a[6]);
#pragma GCC visibility pop
