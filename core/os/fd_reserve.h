/* Our share of the descriptor numbers that a process may use. The descriptors that fastsock keeps lie in it, and nowhere else, so
 * that the program's own numbers stay low: select ends at 1024. The kernel's table of descriptors is as long as the highest number
 * in use, each fork copies it, and some programs go through it. So the share is low too: it begins at 1024. If the limit leaves no
 * room there (it is 1024 on many systems), it is the last part of the permitted numbers.
 *
 * The share is as many numbers as a sixteenth of the limit: 64 of 1024. Of a generous limit it is an eighth. That bounds how many
 * descriptors we keep, without a counter. If the program uses so many descriptors that its own fill the share, ours go to the last
 * numbers of the limit, as many again.
 *
 * The kernel gives out the lowest free number. So a program that uses the numbers right below the last part of the limit is near its
 * limit, and we make nothing then (`fs_has_fd_room`). It may use the free numbers of the share as well.
 *
 * The program may close our descriptors with all others (os.closerange, C code), and take their numbers for files of its own.
 * An eventfd has no name by which it could be told from another one (all are one inode). But poll tells it from most other files: it
 * says POLLIN and POLLOUT and no more, where regular files, sockets, pipes, terminals and devices say POLLRDNORM or POLLWRNORM too
 * (timerfds and signalfds do not).
 * So whoever polls an eventfd before it reads or writes asks for these as well (`fs_not_eventfd_events`), and knows whether the number
 * is still ours (`fs_says_eventfd`) without a system call more. */
#ifndef FASTSOCK_FD_RESERVE_H
#define FASTSOCK_FD_RESERVE_H

#include "os/atomics.h"
#include "os/syscalls.h"

#define FS_FD_HEADROOM 8            /* numbers below the last part that are free while we make descriptors: a hello brings four */
#define FS_LARGE_FD_LIMIT 4096     /* a limit above this one is generous */
#define FS_FD_LIMIT_MAX 1048576 /* of a limit that is higher, this much counts */
#define FS_SELECT_LIMIT 1024  /* where the numbers end that select knows (FD_SETSIZE) */
#define FS_RESERVED_FIRST 256    /* numbers of the share, at most, before those of meetings begin */

/* The first number of the limit's last part. `*size`: how many numbers that is, and how many the share has. */
static inline int fs_top_range(int *size) {
    struct rlimit limit = {0, 0};
    fs_system.getrlimit(RLIMIT_NOFILE, &limit);
    int all = limit.rlim_cur < FS_FD_LIMIT_MAX ? (int)limit.rlim_cur : FS_FD_LIMIT_MAX;
    *size = all / (all > FS_LARGE_FD_LIMIT ? 8 : 16);
    return all - *size;
}

/* The first number of the share. `*size`: how many there are. */
static inline int fs_reserved_range(int *size) { return FS_MIN(fs_top_range(size), FS_SELECT_LIMIT); }

/* Returns true if the program is far enough from its limit for us to make a descriptor. `last`: where the last part begins. The
 * kernel gives out the lowest free number, so a program that comes near takes the first of these numbers before the others. If it
 * was beyond, and has closed most of its descriptors since, the last one tells. (To ask each of them was half of the system calls
 * of a move.) */
static inline int fs_has_fd_room_below(int last) {
    return last > FS_FD_HEADROOM && fs_system.fcntl(last - FS_FD_HEADROOM, F_GETFD, 0) < 0 && fs_system.fcntl(last - 1, F_GETFD, 0) < 0;
}

static inline int fs_has_fd_room(void) {
    int size;
    return fs_has_fd_room_below(fs_top_range(&size));
}

/* Numbers of the share before those of meetings begin. */
static inline int fs_reserved_first(int size) { return FS_MIN(size / 2, FS_RESERVED_FIRST); }

/* Copies `fd` to the lowest free number from `from` on, and below `end`. Returns it, or -errno; -EAGAIN: there is none. */
static inline int fs_dup_in_range(int fd, int from, int end) {
    int copy = fs_system.fcntl(fd, F_DUPFD_CLOEXEC, from);
    if (copy < 0) return errno == EMFILE || errno == EINVAL ? -EAGAIN : -errno;
    if (copy < end) return copy;
    fs_system.close(copy);
    return -EAGAIN;
}

/* Copies a descriptor into the share: its number, or -errno. -EMFILE: the program is near its limit.
 * -EAGAIN: the share is full, or its second part for a `passing` descriptor, which serves a meeting. (Names and visitors must
 * leave room for the eventfds of those that meet.) */
static inline int fs_dup_reserved(int fd, int passing) {
    int size, last = fs_top_range(&size), first = fs_reserved_range(&size);
    int skip = passing ? fs_reserved_first(size) : 0;
    if (!fs_has_fd_room_below(last)) return -EMFILE;
    int kept = fs_dup_in_range(fd, first + skip, first + size);
    return kept == -EAGAIN && first < last ? fs_dup_in_range(fd, FS_MAX(last, first + size) + skip, last + size) : kept;
}

/* Returns how many numbers of its part of the share lie below `fd`. */
static inline int fs_reserved_index(int fd) {
    int size, last = fs_top_range(&size), first = fs_reserved_range(&size);
    return fd - (fd < first + size ? first : FS_MAX(last, first + size));
}

/* Moves it there: `fd` is closed, whatever comes of it. A negative `fd` is the failure of the call that made it. */
static inline int fs_reserve_fd(int fd, int passing) {
    if (fd < 0) return -errno;
    int kept = fs_dup_reserved(fd, passing);
    fs_system.close(fd);
    return kept;
}

/* What the kernel calls the thing behind a descriptor; 0: no open descriptor. (All eventfds are one inode.) */
static inline uint64_t fs_inode(int fd) {
    struct stat s;
    return fs_system.fstat(fd, &s) == 0 ? s.st_ino : 0;
}

/* The same of a socket. 0: no open descriptor, or none of a socket. */
static inline uint64_t fs_socket_inode(int fd) {
    struct stat s;
    return fs_system.fstat(fd, &s) == 0 && S_ISSOCK(s.st_mode) ? s.st_ino : 0;
}

/* The socket that peers ask this process at, to ask them from where there is no number for another one; -1: there is none. Relaxed: it is
 * known by its inode, so that nothing is sent from a socket of the program's. */
extern fs_word32 fs_control_fd;
extern fs_word64 fs_control_fd_inode;

static inline int fs_valid_control_fd(void) {
    int fd = (int)fs_load_relaxed(&fs_control_fd);
    return fd >= 0 && fs_socket_inode(fd) == fs_load_relaxed(&fs_control_fd_inode) ? fd : -1;
}

#define FS_NOT_EVENTFD (POLLRDNORM | POLLWRNORM)

/* What to ask poll for beside POLLIN and POLLOUT. Nothing on a kernel that says these of an eventfd too (gVisor's): files are not
 * told apart there, and every number counts as ours. */
short fs_not_eventfd_events(void);

/* Whether `revents`, what poll said when it was asked for `fs_not_eventfd_events` too, may be said of an eventfd. The one place that
 * decides it. */
static inline int fs_says_eventfd(short revents) {
    return !(revents & (POLLNVAL | POLLHUP | FS_NOT_EVENTFD));
}

/* What an eventfd's number says of itself (it can always be read or written), without waiting. As poll. */
static inline int fs_poll_eventfd(struct pollfd *p, int fd) {
    int said;
    *p = (struct pollfd){fd, (short)(POLLIN | POLLOUT | fs_not_eventfd_events()), 0};
    while ((said = fs_system.poll(p, 1, 0)) < 0 && errno == EINTR) {} /* a signal is pending, whose handler runs now */
    return said;
}

/* The same of a number that nobody has polled yet. */
static inline int fs_is_own_eventfd(int fd) {
    struct pollfd p;
    return fd >= 0 && fs_poll_eventfd(&p, fd) > 0 && fs_says_eventfd(p.revents);
}

/* Rings an eventfd. Returns 0 if the number is not ours any more, and nothing was written then: an eventfd can always be read or
 * written. (It is polled first, as a hostile peer may have made its eventfd blocking and filled it.) */
static inline int fs_signal_eventfd(int fd) {
    struct pollfd p;
    uint64_t one = 1;
    int said = fd < 0 ? -1 : fs_poll_eventfd(&p, fd);
    if (said < 0) return 1;
    if (said == 0 || !fs_says_eventfd(p.revents)) return 0;
    /* A failure: filled meanwhile, so it is readable. */
    if (p.revents & POLLOUT && fs_system.write(fd, &one, sizeof one) < 0) return 1;
    return 1;
}

/* What the kernel knows of the file behind a descriptor by itself: a file system of another process or host (FUSE, NFS) is not
 * asked, as it need not answer. Whether it knows. */
static inline int fs_statx_local(int fd, struct statx *into) {
    return fs_system.statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO, into) == 0;
}

/* Whether `fd`, which another process has brought, is an eventfd, as `ours` is one. (Not asked of /proc, which need not be there.) All
 * of the kernel's anonymous files are one inode, and an eventfd is the one that takes a number, here 0, which changes nothing. */
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

#endif
