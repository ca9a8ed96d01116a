/* The calls of the core that failures.c lets fail: what each is, with which errors, and the wrappers that the linker
 * puts in its place (tests/native/wraps reads their names here). */
#ifndef FASTSOCK_TESTS_CALLS_H
#define FASTSOCK_TESTS_CALLS_H

#include "harness.h"

#include <sys/epoll.h>
#include <sys/stat.h>

#include "base/atomics.h"

enum { MOST_ERRORS = 4 };

/* Name, errors (the last ones may be 0). Only what can happen: fstat, shutdown and close of what is open do not. */
#define EACH_CALL(CALL) \
    CALL(recv, EAGAIN, EINTR, ENOMEM) CALL(send, EAGAIN, ENOBUFS, EINTR) \
    CALL(sendmsg, EAGAIN, ECONNREFUSED, ETOOMANYREFS) CALL(recvmsg, EINTR, EAGAIN, ENOMEM) \
    CALL(sendto, EAGAIN, 0, 0) CALL(poll, EINTR, ENOMEM, 0) CALL(ppoll, EINTR, ENOMEM, 0) \
    CALL(ioctl, EINVAL, 0, 0) CALL(getsockopt, ENOBUFS, 0, 0) CALL(setsockopt, ENOBUFS, EPERM, 0) \
    CALL(fcntl, EMFILE, 0, 0) CALL(eventfd, EMFILE, ENOMEM, 0) CALL(syscall, EMFILE, ENOMEM, ENOSYS) \
    CALL(mmap, ENOMEM, 0, 0) CALL(malloc, ENOMEM, 0, 0) CALL(calloc, ENOMEM, 0, 0) \
    CALL(realloc, ENOMEM, 0, 0) CALL(socket, EMFILE, ENOBUFS, 0) CALL(pipe2, EMFILE, 0, 0) \
    CALL(dup3, EINTR, EBUSY, 0) CALL(open, EMFILE, ENOENT, 0) \
    CALL(read, EINTR, EAGAIN, 0) CALL(write, EINTR, EAGAIN, ENOSPC) CALL(bind, EADDRINUSE, ENOMEM, 0) \
    CALL(listen, EADDRINUSE, 0, 0) CALL(accept4, EMFILE, ECONNABORTED, EINTR) \
    CALL(connect, EADDRNOTAVAIL, EINTR, 0) CALL(epoll_create1, EMFILE, 0, 0) \
    CALL(epoll_ctl, ENOMEM, ENOSPC, 0) CALL(epoll_wait, EINTR, 0, 0) CALL(getsockname, ENOBUFS, 0, 0) \
    CALL(getpeername, ENOTCONN, 0, 0) CALL(fallocate, ENOSPC, EINTR, 0) CALL(ftruncate, EINTR, 0, 0) \
    CALL(pread, EINTR, EIO, 0) CALL(getrandom, EINTR, ENOSYS, 0) CALL(pthread_create, EAGAIN, 0, 0)

#define CALL(name, a, b, c) CALL_##name,
enum call { EACH_CALL(CALL) CALLS };
#undef CALL

#define CALL(name, a, b, c) {#name, {a, b, c, 0}},
static const struct {
    const char *name;
    int errors[MOST_ERRORS];
} call_table[CALLS] = {EACH_CALL(CALL)};
#undef CALL

static struct {
    int call, n, error, where; /* the n-th call, of the program's thread (0) or of another one (1) */
    int *fired;
} plan;
static volatile int armed;         /* calls are counted, and fail */
static __thread int is_program;    /* this is the program's thread */
static volatile int no_slabs;      /* no memory for blocks */
static fs_word32 calls_made[2][CALLS];
static fs_word32 allocations, slabs;

static int fails(enum call call) {
    int where = !is_program;
    if (!armed) return 0;
    uint32_t n = fs_add_sc(&calls_made[where][call], 1) + 1;
    if ((int)call != plan.call || where != plan.where || (int)n != plan.n) return 0;
    *plan.fired = 1;
    errno = plan.error;
    return 1;
}

#define WRAP(type, name, bad, parameters, arguments) \
    type __real_##name parameters; \
    type __wrap_##name parameters; \
    type __wrap_##name parameters { return fails(CALL_##name) ? (type)(bad) : __real_##name arguments; }

WRAP(ssize_t, recv, -1, (int fd, void *into, size_t room, int flags), (fd, into, room, flags))
WRAP(ssize_t, send, -1, (int fd, const void *data, size_t length, int flags), (fd, data, length, flags))
WRAP(ssize_t, sendmsg, -1, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
WRAP(ssize_t, recvmsg, -1, (int fd, struct msghdr *message, int flags), (fd, message, flags))
WRAP(ssize_t, sendto, -1, (int fd, const void *data, size_t n, int flags, const struct sockaddr *to, socklen_t size),
     (fd, data, n, flags, to, size))
WRAP(int, poll, -1, (struct pollfd *fds, nfds_t count, int milliseconds), (fds, count, milliseconds))
WRAP(int, ppoll, -1, (struct pollfd *fds, nfds_t count, const struct timespec *time, const void *mask),
     (fds, count, time, mask))
WRAP(int, ioctl, -1, (int fd, unsigned long what, void *argument), (fd, what, argument))
WRAP(int, eventfd, -1, (unsigned start, int flags), (start, flags))
WRAP(int, socket, -1, (int family, int type, int protocol), (family, type, protocol))
WRAP(int, pipe2, -1, (int fds[2], int flags), (fds, flags))
WRAP(int, dup3, -1, (int from, int to, int flags), (from, to, flags))
WRAP(int, open, -1, (const char *path, int flags, int mode), (path, flags, mode))
WRAP(ssize_t, read, -1, (int fd, void *into, size_t room), (fd, into, room))
WRAP(ssize_t, write, -1, (int fd, const void *data, size_t length), (fd, data, length))
WRAP(int, bind, -1, (int fd, const struct sockaddr *to, socklen_t size), (fd, to, size))
WRAP(int, listen, -1, (int fd, int backlog), (fd, backlog))
WRAP(int, accept4, -1, (int fd, struct sockaddr *from, socklen_t *size, int flags), (fd, from, size, flags))
WRAP(int, connect, -1, (int fd, const struct sockaddr *to, socklen_t size), (fd, to, size))
WRAP(int, epoll_create1, -1, (int flags), (flags))
WRAP(int, epoll_ctl, -1, (int epoll, int what, int fd, struct epoll_event *event), (epoll, what, fd, event))
WRAP(int, epoll_wait, -1, (int epoll, struct epoll_event *events, int most, int milliseconds),
     (epoll, events, most, milliseconds))
WRAP(int, getsockname, -1, (int fd, struct sockaddr *name, socklen_t *size), (fd, name, size))
WRAP(int, getpeername, -1, (int fd, struct sockaddr *name, socklen_t *size), (fd, name, size))
WRAP(int, fallocate, -1, (int fd, int mode, off_t from, off_t length), (fd, mode, from, length))
WRAP(int, ftruncate, -1, (int fd, off_t length), (fd, length))
WRAP(ssize_t, pread, -1, (int fd, void *into, size_t room, off_t at), (fd, into, room, at))
WRAP(ssize_t, getrandom, -1, (void *into, size_t room, unsigned flags), (into, room, flags))
WRAP(int, pthread_create, EAGAIN, (pthread_t *thread, const pthread_attr_t *how, void *(*body)(void *), void *argument),
     (thread, how, body, argument))

/* ---- those that differ */

#define OTHER(type, name, parameters) \
    type __real_##name parameters; \
    type __wrap_##name parameters; \
    type __wrap_##name parameters

/* An option that is a number cannot fail on an open socket. What a sandbox may refuse is the rest. */
OTHER(int, getsockopt, (int fd, int level, int option, void *value, socklen_t *size)) {
    return level != SOL_SOCKET && fails(CALL_getsockopt) ? -1 : __real_getsockopt(fd, level, option, value, size);
}

OTHER(int, setsockopt, (int fd, int level, int option, const void *value, socklen_t size)) {
    return option != SO_OOBINLINE && fails(CALL_setsockopt) ? -1 : __real_setsockopt(fd, level, option, value, size);
}

/* Of all that fcntl does only a new number may be wanting. */
OTHER(int, fcntl, (int fd, int what, long argument)) {
    return what == F_DUPFD_CLOEXEC && fails(CALL_fcntl) ? -1 : __real_fcntl(fd, what, argument);
}

/* memfd_create, get_robust_list, pidfd_open, close_range, and the clone of a bridge. (A thread has its id.) */
long __real_syscall(long number, ...);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f) {
    return number != SYS_gettid && fails(CALL_syscall) ? -1 : __real_syscall(number, a, b, c, d, e, f);
}

OTHER(void *, mmap, (void *at, size_t length, int access, int flags, int fd, off_t from)) {
    if (no_slabs || fails(CALL_mmap)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    if (flags == (MAP_SHARED | MAP_ANONYMOUS)) fs_add_sc(&slabs, 1);
    return __real_mmap(at, length, access, flags, fd, from);
}

OTHER(void *, malloc, (size_t size)) {
    void *memory = fails(CALL_malloc) ? NULL : __real_malloc(size);
    if (memory) fs_add_sc(&allocations, 1);
    return memory;
}

OTHER(void *, calloc, (size_t count, size_t size)) {
    void *memory = fails(CALL_calloc) ? NULL : __real_calloc(count, size);
    if (memory) fs_add_sc(&allocations, 1);
    return memory;
}

OTHER(void *, realloc, (void *before, size_t size)) {
    void *memory = fails(CALL_realloc) ? NULL : __real_realloc(before, size);
    if (memory && !before) fs_add_sc(&allocations, 1);
    return memory;
}

OTHER(void, free, (void *memory)) {
    if (memory) fs_add_sc(&allocations, (uint32_t)-1);
    __real_free(memory);
}

#define syscall_now __real_syscall /* the test's own */

#endif
