/* The system calls of the core, past the C library: none of them is a cancellation point (pthreads(7)), so a thread never ends with a lock
 * of the core's. Those in which a call of the program's waits are, and handlers run in them (ip_sleep).
 *
 * Responsible for: what the core calls in this front end (struct fs_calls). Never: calls of the program's. */
#include "interpose.h"
#include "kernel_numbers.h"
#include "own_numbers.h"
#include "signals.h"

#include <linux/futex.h>

enum { SIGNAL_SET = 8 }; /* bytes of the kernel's */

static long returned(long got) {
    if (got < 0) errno = (int)-got;
    return got < 0 ? -1 : got;
}

/* ---- calls that do not wait ------------------------------------------------------------------------------------------ */

#define FS_DIRECT(type, name, number, parameters, ...) \
    static type direct_##name parameters { return (type)returned(fs_call_kernel(number, (long[6]){__VA_ARGS__})); }

FS_DIRECT(ssize_t, read, SYS_read, (int fd, void *into, size_t room), fd, (long)into, (long)room)
FS_DIRECT(ssize_t, write, SYS_write, (int fd, const void *data, size_t length), fd, (long)data, (long)length)
FS_DIRECT(ssize_t, pread, SYS_pread64, (int fd, void *into, size_t room, off_t at), fd, (long)into, (long)room, at)
FS_DIRECT(ssize_t, sendto, SYS_sendto, (int fd, const void *data, size_t length, int flags, const struct sockaddr *to, socklen_t size),
          fd, (long)data, (long)length, flags, (long)to, size)
FS_DIRECT(int, connect, SYS_connect, (int fd, const struct sockaddr *to, socklen_t size), fd, (long)to, size)
FS_DIRECT(int, close_range, SYS_close_range, (unsigned first, unsigned last, int flags), first, last, flags)
FS_DIRECT(int, fallocate, SYS_fallocate, (int fd, int mode, off_t from, off_t length), fd, mode, from, length)
FS_DIRECT(int, nanosleep, SYS_nanosleep, (const struct timespec *time, struct timespec *rest), (long)time, (long)rest)
/* (The core's own children are none of the program's forks.) */
FS_DIRECT(pid_t, clone, SYS_clone, (int flags), flags)
FS_DIRECT(int, prctl, SYS_prctl, (int what, const char *argument), what, (long)argument)
FS_DIRECT(pid_t, waitpid, SYS_wait4, (pid_t process, int *status, int options), process, (long)status, options)

/* Those that make a number. */
#define FS_MAKES(name, number, parameters, ...) \
    static int make_##name parameters { return (int)returned(ip_make_passing(number, (long[6]){__VA_ARGS__})); }

FS_MAKES(accept4, SYS_accept4, (int fd, struct sockaddr *peer, socklen_t *size, int flags), fd, (long)peer, (long)size, flags)
FS_MAKES(open, SYS_openat, (const char *path, int flags), AT_FDCWD, (long)path, flags)
FS_MAKES(socket, SYS_socket, (int family, int type, int protocol), family, type, protocol)
FS_MAKES(eventfd, SYS_eventfd2, (unsigned start, int flags), start, flags)
FS_MAKES(memfd_create, SYS_memfd_create, (const char *name, unsigned flags), (long)name, flags)
FS_MAKES(pidfd_open, SYS_pidfd_open, (pid_t process, unsigned flags), process, flags)

static ssize_t receive_message(int fd, struct msghdr *message, int flags) { return returned(ip_receive_passing(fd, message, flags)); }

/* ---- calls that may ---------------------------------------------------------------------------------------------------- */

static long call_masked(int sleeps, long number, const long a[6], const sigset_t *mask) {
    return returned(sleeps && ip_thread.may_sleep ? ip_sleep(number, a, mask != NULL) : fs_call_kernel(number, a));
}

static long call(int sleeps, long number, const long a[6]) { return call_masked(sleeps, number, a, NULL); }

static ssize_t receive(int fd, void *into, size_t room, int flags) {
    return call(!(flags & MSG_DONTWAIT), SYS_recvfrom, (long[6]){fd, (long)into, (long)room, flags});
}

static ssize_t transmit(int fd, const void *data, size_t length, int flags) {
    return call(!(flags & MSG_DONTWAIT), SYS_sendto, (long[6]){fd, (long)data, (long)length, flags});
}

static ssize_t transmit_pieces(int fd, const struct msghdr *message, int flags) {
    return call(!(flags & MSG_DONTWAIT), SYS_sendmsg, (long[6]){fd, (long)message, flags});
}

static int futex(void *word, int what, uint32_t value, const struct timespec *time) {
    return (int)call(what == FUTEX_WAIT, SYS_futex, (long[6]){(long)word, what, value, (long)time});
}

/* Returns `time` in milliseconds, for the older call without a mask, which costs less; -2: it is no whole number of them. (A filter of
 * system calls may know the newer ones alone.) */
static int64_t whole_ms(const struct timespec *time) {
    if (ip_load_relaxed(&ip_sandboxed)) return -2;
    if (!time) return -1;
    return time->tv_nsec % 1000000 || time->tv_sec >= INT32_MAX / 1000 ? -2 : time->tv_sec * 1000 + time->tv_nsec / 1000000;
}

static int poll_in_ns(struct pollfd *fds, nfds_t count, const struct timespec *time, const sigset_t *mask) {
#ifdef SYS_poll
    int64_t milliseconds = mask ? -2 : whole_ms(time);
    if (milliseconds >= -1) return (int)call(1, SYS_poll, (long[6]){(long)fds, (long)count, milliseconds});
#endif
    struct timespec rest = time ? *time : (struct timespec){0}; /* (the kernel writes there) */
    return (int)call_masked(1, SYS_ppoll, (long[6]){(long)fds, (long)count, time ? (long)&rest : 0, (long)mask, SIGNAL_SET}, mask);
}

static int poll_in_ms(struct pollfd *fds, nfds_t count, int milliseconds) {
    struct timespec rest = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    return (int)returned(fs_call_kernel(SYS_ppoll, (long[6]){(long)fds, (long)count, milliseconds < 0 ? 0 : (long)&rest, 0, SIGNAL_SET}));
}

static int wait_in_ms(int epoll, struct epoll_event *events, int most, int64_t milliseconds, const sigset_t *mask) {
    int time = (int)IP_MIN(milliseconds, (int64_t)INT32_MAX);
#ifdef SYS_epoll_wait
    if (!mask) return (int)call(1, SYS_epoll_wait, (long[6]){epoll, (long)events, most, time});
#endif
    return (int)call_masked(1, SYS_epoll_pwait, (long[6]){epoll, (long)events, most, time, (long)mask, SIGNAL_SET}, mask);
}

/* (In milliseconds where the kernel has it not, and where a filter may know the older ones alone.) */
static int wait_in_ns(int epoll, struct epoll_event *events, int most, const struct timespec *time, const sigset_t *mask) {
    int64_t milliseconds = time ? time->tv_sec * 1000 + (time->tv_nsec + 999999) / 1000000 : -1;
    if (ip_load_relaxed(&ip_sandboxed) || (!mask && whole_ms(time) >= -1)) return wait_in_ms(epoll, events, most, milliseconds, mask);
    long got = call_masked(1, SYS_epoll_pwait2, (long[6]){epoll, (long)events, most, (long)time, (long)mask, SIGNAL_SET}, mask);
    return got < 0 && errno == ENOSYS ? wait_in_ms(epoll, events, most, milliseconds, mask) : (int)got;
}

/* ---- the table ----------------------------------------------------------------------------------------------------------- */

static int plain_ioctl(int fd, unsigned long what, void *argument) { return real.ioctl(fd, (fs_ioctl_request)what, argument); }

#define FS_OWN(name) .name = direct_##name,
struct fs_calls ip_calls = {
    FS_OWN(read) FS_OWN(write) FS_OWN(pread) FS_OWN(sendto) FS_OWN(connect)
    FS_OWN(close_range) FS_OWN(fallocate) FS_OWN(nanosleep) FS_OWN(clone) FS_OWN(prctl) FS_OWN(waitpid)
    .accept4 = make_accept4, .open = make_open, .socket = make_socket, .eventfd = make_eventfd, .memfd_create = make_memfd_create,
    .pidfd_open = make_pidfd_open,
    .recvmsg = receive_message, .recv = receive, .send = transmit, .sendmsg = transmit_pieces, .futex = futex,
    .ppoll = poll_in_ns, .poll = poll_in_ms, .epoll_pwait2 = wait_in_ns,
    .fcntl = ip_make_own, .close = ip_close_own, .ioctl = plain_ioctl,
};
#undef FS_OWN

void ip_tell_core(void) {
#define FS_SAME(name) ip_calls.name = real.name;
    FS_SAME(epoll_create1) FS_SAME(socketpair) FS_SAME(epoll_ctl) FS_SAME(shutdown) FS_SAME(getsockopt) FS_SAME(setsockopt) FS_SAME(dup3)
#undef FS_SAME
    fs_set_calls(&ip_calls);
}
