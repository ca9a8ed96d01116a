/* The reserved range: the part of the descriptor numbers in which fastsock keeps its own descriptors, and nowhere else. So the program's
 * numbers stay low (select ends at 1024). The kernel's descriptor table is as long as the highest number in use, each fork copies it and
 * some programs walk it. So the reserved range is low too: it begins at 1024. If the limit leaves no room there (often the limit is
 * 1024), it is the last part of the permitted numbers.
 *
 * The range has a sixteenth of the limit (64 of 1024), or an eighth of a large limit. That bounds our descriptors without a counter. If
 * the program's own descriptors fill the range, ours go to the top of the limit, as many again.
 *
 * The kernel gives out the lowest free number. So a program that uses the numbers right below the last part of the limit is near its
 * limit, and fastsock then makes no descriptor (`fs_has_fd_room`). The program may use free numbers of the range too.
 *
 * The program may close our descriptors with all others (os.closerange, C code) and reuse their numbers. Eventfds cannot be told apart
 * by inode: all share one. But poll tells an eventfd from most other files: it reports POLLIN and POLLOUT only, where regular files,
 * sockets, pipes, terminals and devices also report POLLRDNORM or POLLWRNORM (timerfds and signalfds do not). So code that polls an
 * eventfd before it reads or writes asks for these too (`fs_not_eventfd_events`), and learns without another system call if the number
 * is still ours (`fs_says_eventfd`). */
#pragma once

#include "os/atomics.h"
#include "os/syscalls.h"

#include <sys/stat.h>
#ifndef STATX_INO /* musl, until 1.2.5 */
#include <linux/stat.h>
#endif

#define FS_FD_HEADROOM 8            /* free numbers required below the last part: a hello brings four descriptors */
#define FS_LARGE_FD_LIMIT 4096     /* a higher limit is large */
#define FS_FD_LIMIT_MAX 1048576 /* a higher limit counts as this */
#define FS_SELECT_LIMIT 1024  /* select knows numbers below this (FD_SETSIZE) */
#define FS_RESERVED_FIRST 256    /* at most this many numbers precede the rendezvous part of the range */

/* Returns the first number of the limit's last part. Sets `*size` to its length, which is also that of the reserved range. */
static inline int fs_top_range(int *size) {
    struct rlimit limit = {0, 0};
    fs_system.getrlimit(RLIMIT_NOFILE, &limit);
    int all = limit.rlim_cur < FS_FD_LIMIT_MAX ? (int)limit.rlim_cur : FS_FD_LIMIT_MAX;
    *size = all / (all > FS_LARGE_FD_LIMIT ? 8 : 16);
    return all - *size;
}

/* Returns the first number of the reserved range. Sets `*size` to its length. */
static inline int fs_reserved_range(int *size) { return FS_MIN(fs_top_range(size), FS_SELECT_LIMIT); }

/* Returns true if the program is far enough from its limit for us to make a descriptor. `last` is where the last part begins. A program
 * that comes near its limit takes the first of the probed numbers first. The second probe finds one that was beyond and has closed most
 * of its descriptors since. (To probe each number was half of the system calls of a move.) */
static inline int fs_has_fd_room_below(int last) {
    return last > FS_FD_HEADROOM && fs_system.fcntl(last - FS_FD_HEADROOM, F_GETFD, 0) < 0 && fs_system.fcntl(last - 1, F_GETFD, 0) < 0;
}

static inline int fs_has_fd_room(void) {
    int size;
    return fs_has_fd_room_below(fs_top_range(&size));
}

/* Returns how many numbers of the range precede its rendezvous part. */
static inline int fs_reserved_first(int size) { return FS_MIN(size / 2, FS_RESERVED_FIRST); }

/* Copies `fd` to the lowest free number in [`from`, `end`). Returns the number, -EAGAIN if none is free, or another -errno. */
static inline int fs_dup_in_range(int fd, int from, int end) {
    int copy = fs_system.fcntl(fd, F_DUPFD_CLOEXEC, from);
    if (copy < 0) return errno == EMFILE || errno == EINVAL ? -EAGAIN : -errno;
    if (copy < end) return copy;
    fs_system.close(copy);
    return -EAGAIN;
}

/* Copies a descriptor into the reserved range. Returns the number, -EMFILE if the program is near its limit, -EAGAIN if the range is
 * full, or another -errno. A `passing` descriptor serves a rendezvous and may use the second part only, so that published names and
 * incoming peers leave room for the eventfds of those that meet. */
static inline int fs_dup_reserved(int fd, int passing) {
    int size, last = fs_top_range(&size), first = fs_reserved_range(&size);
    int skip = passing ? fs_reserved_first(size) : 0;
    if (!fs_has_fd_room_below(last)) return -EMFILE;
    int kept = fs_dup_in_range(fd, first + skip, first + size);
    return kept == -EAGAIN && first < last ? fs_dup_in_range(fd, FS_MAX(last, first + size) + skip, last + size) : kept;
}

/* Returns the index of `fd` in its part of the reserved range. */
static inline int fs_reserved_index(int fd) {
    int size, last = fs_top_range(&size), first = fs_reserved_range(&size);
    return fd - (fd < first + size ? first : FS_MAX(last, first + size));
}

/* Moves `fd` there, and closes `fd` in any case. A negative `fd` is a failed call, whose -errno is returned. */
static inline int fs_reserve_fd(int fd, int passing) {
    if (fd < 0) return -errno;
    int kept = fs_dup_reserved(fd, passing);
    fs_system.close(fd);
    return kept;
}

/* Returns the inode of a descriptor's file, 0 if the descriptor is not open. (All eventfds share one inode.) */
static inline uint64_t fs_inode(int fd) {
    struct stat s;
    return fs_system.fstat(fd, &s) == 0 ? s.st_ino : 0;
}

/* Returns the inode of a socket, 0 if `fd` is not an open socket. */
static inline uint64_t fs_socket_inode(int fd) {
    struct stat s;
    return fs_system.fstat(fd, &s) == 0 && S_ISSOCK(s.st_mode) ? s.st_ino : 0;
}

/* The socket on which this process receives requests, also used to send them when no number is free for another socket; -1: none.
 * Relaxed: the inode is checked before use, so nothing is sent from a socket of the program. */
extern fs_word32 fs_control_fd;
extern fs_word64 fs_control_fd_inode;

static inline int fs_valid_control_fd(void) {
    int fd = (int)fs_load_relaxed(&fs_control_fd);
    return fd >= 0 && fs_socket_inode(fd) == fs_load_relaxed(&fs_control_fd_inode) ? fd : -1;
}

#define FS_NOT_EVENTFD (POLLRDNORM | POLLWRNORM)

/* Returns the events to poll for beside POLLIN and POLLOUT. 0 on a kernel that reports these for eventfds too (gVisor): files cannot be
 * told apart there, and every number counts as ours. */
short fs_not_eventfd_events(void);

/* Returns true if an eventfd can have reported `revents` when polled with fs_not_eventfd_events. */
static inline int fs_says_eventfd(short revents) {
    return !(revents & (POLLNVAL | POLLHUP | FS_NOT_EVENTFD));
}

/* Polls a number that should be an eventfd, without waiting. Returns what poll returns. (An eventfd is always readable or writable.) */
static inline int fs_poll_eventfd(struct pollfd *p, int fd) {
    int said;
    *p = (struct pollfd){fd, (short)(POLLIN | POLLOUT | fs_not_eventfd_events()), 0};
    while ((said = fs_system.poll(p, 1, 0)) < 0 && errno == EINTR) {} /* a signal is pending; its handler runs now */
    return said;
}

/* Returns true if `fd` polls as an eventfd. */
static inline int fs_is_own_eventfd(int fd) {
    struct pollfd p;
    return fd >= 0 && fs_poll_eventfd(&p, fd) > 0 && fs_says_eventfd(p.revents);
}

/* Writes 1 to an eventfd. Returns 0, and writes nothing, if the number is no longer ours. The poll comes first because a hostile peer
 * may have made its eventfd blocking and filled it. */
static inline int fs_signal_eventfd(int fd) {
    struct pollfd p;
    uint64_t one = 1;
    int said = fd < 0 ? -1 : fs_poll_eventfd(&p, fd);
    if (said < 0) return 1;
    if (said == 0 || !fs_says_eventfd(p.revents)) return 0;
    /* On failure the eventfd was filled meanwhile, so it is readable. */
    if (p.revents & POLLOUT && fs_system.write(fd, &one, sizeof one) < 0) return 1;
    return 1;
}

/* Asks for a file's inode without asking another process or host (FUSE, NFS), which need not answer. Returns true if known. */
static inline int fs_statx_local(int fd, struct statx *into) {
    return fs_system.statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO, into) == 0;
}

/* Returns true if `fd`, received from another process, is an eventfd like `ours`. (/proc need not be mounted.) All anonymous files share
 * one inode; only an eventfd accepts a written number, here 0, which changes nothing. */
static inline int fs_is_eventfd(int fd, int ours) {
    struct statx it, known;
    uint64_t nothing = 0;
    return fs_statx_local(fd, &it) && fs_statx_local(ours, &known) && it.stx_dev_major == known.stx_dev_major &&
           it.stx_dev_minor == known.stx_dev_minor && it.stx_ino == known.stx_ino &&
           fs_system.write(fd, &nothing, sizeof nothing) == sizeof nothing;
}

static inline void fs_close_eventfd(int fd) {
    if (fs_is_own_eventfd(fd)) fs_system.close(fd);
}
