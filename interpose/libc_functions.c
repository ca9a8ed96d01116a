/* The look-up of the table's functions.
 *
 * Responsible for: that `real` has the C library's functions from the first call on, and that the core calls those and never ours.
 * Never: does anything with a descriptor. */
#include "interpose.h"
#include "kernel_numbers.h"

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

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
    long got = fs_call_kernel(SYS_close_range, (long[6]){first, last, flags});
    return got < 0 ? (errno = (int)-got, -1) : 0;
}

static void missing_closefrom(int first) {
    if (missing_close_range(first < 0 ? 0 : (unsigned)first, ~0u, 0) == 0) return;
    for (int fd = (int)sysconf(_SC_OPEN_MAX); fd-- > first;) real.close(fd);
}

static int missing_execveat(int folder, const char *path, char *const *arguments, char *const *environment, int flags) {
    long got = fs_call_kernel(SYS_execveat, (long[6]){folder, (long)path, (long)arguments, (long)environment, flags});
    errno = (int)-got;
    return -1;
}

static int missing_epoll_pwait2(int epoll, struct epoll_event *events, int most, const struct timespec *time, const sigset_t *mask) {
    int64_t milliseconds = time ? time->tv_sec * 1000 + (time->tv_nsec + 999999) / 1000000 : -1;
    return real.epoll_pwait(epoll, events, most, (int)IP_MIN(milliseconds, (int64_t)INT32_MAX), mask);
}

/* (Of a vector at a place, the kernel takes the halves of the place.) */
static ssize_t missing_preadv2(int fd, const struct iovec *v, int count, off_t at, int flags) {
    long got = fs_call_kernel(SYS_preadv2, (long[6]){fd, (long)v, count, at, 0, flags});
    return got < 0 ? (errno = (int)-got, -1) : got;
}

static ssize_t missing_pwritev2(int fd, const struct iovec *v, int count, off_t at, int flags) {
    long got = fs_call_kernel(SYS_pwritev2, (long[6]){fd, (long)v, count, at, 0, flags});
    return got < 0 ? (errno = (int)-got, -1) : got;
}

/* (Until glibc 2.34 they have a library of their own, which a plugin may bring along.) */
#define FS_OF_LIBRT(E) \
    E(aio_read, (struct aiocb *request), (request)) \
    E(aio_write, (struct aiocb *request), (request)) \
    E(lio_listio, (int mode, fs_aio_list requests, int count, struct sigevent *event), (mode, requests, count, event))

static void *look_up_late(const char *name) {
    void *librt = dlopen("librt.so.1", RTLD_LAZY);
    return librt ? dlsym(librt, name) : NULL;
}

#define FS_LATE(name, parameters, arguments) \
    static int late_##name parameters { \
        void *found = look_up_late(#name); \
        if (!found) return errno = ENOSYS, -1; \
        memcpy(&real.name, &found, sizeof found); \
        return real.name arguments; \
    }
FS_OF_LIBRT(FS_LATE)
#undef FS_LATE

void fs_set_lookup(void) {
    static int done;
    if (done) return;
    done = 1;
#define FS_LOOK_UP(type, name, parameters, arguments) { \
        void *found = dlsym(RTLD_NEXT, #name); \
        if (found) memcpy(&real.name, &found, sizeof found); \
    }
    FS_ENTRY_POINTS(FS_LOOK_UP)
#define FS_LOOK_UP_NEW(name, parameters, arguments) FS_LOOK_UP(int, name, parameters, arguments)
    FS_NEW_NUMBERS(FS_LOOK_UP_NEW, FS_LOOK_UP_NEW)
#undef FS_LOOK_UP_NEW
#undef FS_LOOK_UP
    if (real.close_range == early_close_range) real.close_range = missing_close_range;
    if (real.execveat == early_execveat) real.execveat = missing_execveat;
    if (real.epoll_pwait2 == early_epoll_pwait2) real.epoll_pwait2 = missing_epoll_pwait2;
    if (real.preadv2 == early_preadv2) real.preadv2 = missing_preadv2;
    if (real.pwritev2 == early_pwritev2) real.pwritev2 = missing_pwritev2;
    if (real.closefrom == early_closefrom) real.closefrom = missing_closefrom;
#define FS_SET_LATE(name, parameters, arguments) if (real.name == early_##name) real.name = late_##name;
    FS_OF_LIBRT(FS_SET_LATE)
#undef FS_SET_LATE
}
