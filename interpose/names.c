/* The look-up of the table's functions.
 *
 * Responsible for: that `real` has the C library's functions from the first call on, and that the core calls those and never ours.
 * Never: does anything with a descriptor. */
#include "names.h"

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/syscalls.h"

#ifndef SYS_close_range
#define SYS_close_range 436 /* on every architecture, Linux 5.9 */
#endif
#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441 /* Linux 5.11 */
#endif

/* Until the look-up each entry is one of these. */
#define FS_EARLY(type, name, parameters, arguments) \
    static type early_##name parameters { \
        fs_set_lookup(); \
        return real.name arguments; \
    }
FS_ENTRY_POINTS(FS_EARLY)
#undef FS_EARLY

struct fs_real real = {
#define FS_FIRST(type, name, parameters, arguments) .name = early_##name,
    FS_ENTRY_POINTS(FS_FIRST)
#undef FS_FIRST
};

/* (The C library of the build may be newer than the one that runs.) */
static int missing_close_range(unsigned first, unsigned last, int flags) {
    long got = fs_call_kernel(SYS_close_range, (long[6]){(long)first, (long)last, flags});
    if (got < 0) errno = (int)-got;
    return got < 0 ? -1 : (int)got;
}

static void missing_closefrom(int first) {
    if (missing_close_range(first < 0 ? 0 : (unsigned)first, ~0u, 0) == 0) return;
    for (int fd = (int)sysconf(_SC_OPEN_MAX); fd-- > first;) real.close(fd);
}

static int old_epoll_pwait2(int epoll, struct epoll_event *events, int most, const struct timespec *time, const sigset_t *mask) {
    int64_t rest = time ? time->tv_sec * 1000 + (time->tv_nsec + 999999) / 1000000 : -1;
    int milliseconds = (int)FS_MIN(rest, (int64_t)INT32_MAX);
    return mask ? real.epoll_pwait(epoll, events, most, milliseconds, mask) : real.epoll_wait(epoll, events, most, milliseconds);
}

/* (A kernel that has it not counts in milliseconds.) */
static int missing_epoll_pwait2(int epoll, struct epoll_event *events, int most, const struct timespec *time, const sigset_t *mask) {
    long got = fs_call_kernel(SYS_epoll_pwait2, (long[6]){epoll, (long)events, most, (long)time, (long)mask, _NSIG / 8});
    if (got >= 0) return (int)got;
    errno = (int)-got;
    return errno == ENOSYS ? old_epoll_pwait2(epoll, events, most, time, mask) : -1;
}

/* (The core's own children are none of the program's forks.) */
static pid_t plain_clone(int flags) {
    long got = fs_call_kernel(SYS_clone, (long[6]){flags});
    if (got < 0) errno = (int)-got;
    return got < 0 ? -1 : (pid_t)got;
}

static int plain_fcntl(int fd, int what, long argument) { return real.fcntl(fd, what, (void *)argument); }

static int plain_prctl(int what, const char *argument) { return real.prctl(what, (unsigned long)argument, 0, 0, 0); }

/* The core's functions of the same names (core/os/syscalls.h) are the C library's and not ours. */
static void tell_core(void) {
#define FS_SAME(name) fs_system.name = real.name;
    FS_SAME(read) FS_SAME(write) FS_SAME(recv) FS_SAME(send) FS_SAME(sendto) FS_SAME(recvmsg) FS_SAME(sendmsg) FS_SAME(poll)
    FS_SAME(ppoll) FS_SAME(epoll_create1) FS_SAME(epoll_ctl) FS_SAME(socket) FS_SAME(connect) FS_SAME(accept4) FS_SAME(shutdown)
    FS_SAME(getsockopt) FS_SAME(setsockopt) FS_SAME(close) FS_SAME(dup3) FS_SAME(ioctl) FS_SAME(pthread_create)
#undef FS_SAME
    fs_system.fcntl = plain_fcntl;
    fs_system.clone = plain_clone;
    fs_system.prctl = plain_prctl;
    fs_system.close_range = missing_close_range;
    fs_system.epoll_pwait2 = missing_epoll_pwait2;
}

void fs_make_old_calls(void) { fs_system.epoll_pwait2 = old_epoll_pwait2; }

void fs_set_lookup(void) {
    static int done;
    if (done) return;
    done = 1;
#define FS_LOOK_UP(type, name, parameters, arguments) { \
        void *found = dlsym(RTLD_NEXT, #name); \
        if (found) memcpy(&real.name, &found, sizeof found); \
    }
    FS_ENTRY_POINTS(FS_LOOK_UP)
#undef FS_LOOK_UP
    if (real.close_range == early_close_range) real.close_range = missing_close_range;
    if (real.epoll_pwait2 == early_epoll_pwait2) real.epoll_pwait2 = missing_epoll_pwait2;
    if (real.closefrom == early_closefrom) real.closefrom = missing_closefrom;
    tell_core();
}
