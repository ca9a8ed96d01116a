/* The calls of the core that failures.c lets fail: all that the table has (core/os/syscalls.h). The list, the functions that stand
 * in the real ones' place and the test's rounds are made from it, so a call that is added to the table fails here too. */
#ifndef FASTSOCK_CALLS_H
#define FASTSOCK_CALLS_H

#include "harness.h"

#include "os/atomics.h"
#include "os/syscalls.h"
#include "sweep.h"

enum { MOST_ERRORS = 4, NEVER = -1 };

#define CALL(type, name, failure, parameters, arguments) CALL_##name,
enum call { FS_SYSTEM_CALLS(CALL, CALL) CALLS };
#undef CALL

#define CALL(type, name, failure, parameters, arguments) #name,
static const char *const call_names[CALLS] = {FS_SYSTEM_CALLS(CALL, CALL)};
#undef CALL

/* With which errors: only what can happen. A call that is not named here is refused, as a sandbox does that knows nothing of it. */
static const int errors_of[CALLS][MOST_ERRORS] = {
    [CALL_read] = {EINTR, EAGAIN},
    [CALL_write] = {EINTR, EAGAIN, ENOSPC},
    [CALL_pread] = {EINTR, EIO},
    [CALL_recv] = {EAGAIN, EINTR, ENOMEM},
    [CALL_send] = {EAGAIN, ENOBUFS, EINTR},
    [CALL_sendto] = {EAGAIN},
    [CALL_recvmsg] = {EINTR, ENOMEM}, /* (a datagram that is there is found) */
    [CALL_sendmsg] = {EAGAIN, ECONNREFUSED, ETOOMANYREFS},
    [CALL_getrandom] = {EINTR, ENOSYS},
    [CALL_poll] = {EINTR}, /* (of so few numbers neither needs memory) */
    [CALL_ppoll] = {EINTR},
    [CALL_epoll_create1] = {EMFILE},
    [CALL_epoll_ctl] = {ENOMEM, ENOSPC},
    [CALL_epoll_pwait2] = {EINTR},
    [CALL_eventfd] = {EMFILE, ENOMEM},
    [CALL_futex] = {EINTR, EAGAIN, ENOMEM},
    [CALL_nanosleep] = {EINTR},
    [CALL_socket] = {EMFILE, ENOBUFS},
    [CALL_bind] = {EADDRINUSE, ENOMEM},
    [CALL_connect] = {EADDRNOTAVAIL, EINTR},
    [CALL_listen] = {EADDRINUSE},
    [CALL_accept4] = {EMFILE, ECONNABORTED, EINTR},
    [CALL_shutdown] = {NEVER}, /* of a connection that is there */
    [CALL_getsockname] = {ENOBUFS},
    [CALL_getpeername] = {ENOTCONN},
    [CALL_getsockopt] = {ENOBUFS},
    [CALL_setsockopt] = {ENOBUFS, EPERM},
    [CALL_open] = {EMFILE, ENOENT},
    [CALL_close] = {EINTR, EIO}, /* the number is free all the same */
    [CALL_dup3] = {EINTR, EBUSY, EBADF},
    [CALL_pipe2] = {EMFILE},
    [CALL_fcntl] = {EMFILE},
    [CALL_ioctl] = {EINVAL},
    [CALL_fstat] = {NEVER}, /* of a descriptor that is open */
    [CALL_fstatfs] = {ENOSYS},
    [CALL_stat] = {ENOENT},
    [CALL_statx] = {ENOSYS, EPERM},
    [CALL_lseek] = {NEVER}, /* in memory */
    [CALL_ftruncate] = {EINTR},
    [CALL_fallocate] = {ENOSPC, EINTR},
    [CALL_memfd_create] = {EMFILE, ENOMEM, ENOSYS},
    [CALL_close_range] = {EMFILE, ENOMEM, ENOSYS},
    [CALL_pidfd_open] = {EMFILE, ENOMEM, ENOSYS},
    [CALL_malloc] = {ENOMEM},
    [CALL_calloc] = {ENOMEM},
    [CALL_realloc] = {ENOMEM},
    [CALL_mmap] = {ENOMEM},
    [CALL_munmap] = {ENOMEM},
    [CALL_mincore] = {EAGAIN},
    [CALL_pthread_create] = {EAGAIN},
    [CALL_pthread_atfork] = {ENOMEM},
    [CALL_clone] = {EAGAIN, ENOMEM, ENOSYS},
    [CALL_gettid] = {NEVER},
    [CALL_get_robust_list] = {EMFILE, ENOMEM, ENOSYS},
    [CALL_set_robust_list] = {EMFILE, ENOMEM, ENOSYS},
    [CALL_waitpid] = {EINTR},
    [CALL_sysconf] = {NEVER}, /* of what each system tells */
};

/* The i-th error of a call; 0: it has no more. */
static int error_of(int call, int i) {
    if (i == 0 && errors_of[call][0] == 0) return EPERM;
    return i < MOST_ERRORS && errors_of[call][i] != NEVER ? errors_of[call][i] : 0;
}

enum place { PROGRAM, CONNECTION_THREAD, BRIDGE, PLACES };

static const char *const places[PLACES] = {"of the program", "of the control thread", "of the bridge's process"};

static struct {
    int call, n, error, where; /* the n-th call of this place */
    int *fired;
} plan;
static pid_t home;                 /* the process that is no bridge's */
static volatile int armed;         /* calls are counted, and fail */
static __thread int is_program;    /* this is the program's thread */
static volatile int no_slabs;      /* no memory for blocks */
static fs_word32 (*calls_made)[CALLS]; /* of each place */
static fs_word32 allocations, slabs;

static int fails(enum call call) {
    int where = getpid() != home ? BRIDGE : is_program ? PROGRAM : CONNECTION_THREAD;
    if (!armed) return 0;
#ifdef FS_AT
    if (sweep) return fails_here(plan.fired);
#endif
    uint32_t n = fs_add_sc(&calls_made[where][call], 1) + 1;
    if ((int)call != plan.call || where != plan.where || (int)n != plan.n) return 0;
    *plan.fired = 1;
    errno = plan.error;
    return 1;
}

static void cannot_fail(void) {
#ifdef FS_AT
    if (armed) spare_here();
#endif
}

static struct fs_system real;

#define CALL(type, name, failure, parameters, arguments) \
    static type may_fail_##name parameters { return fails(CALL_##name) ? (type)(failure) : real.name arguments; }
FS_SYSTEM_CALLS(CALL, CALL)
#undef CALL

/* ---- those that differ */

/* An option that is a number cannot fail on an open socket. What a sandbox may refuse is the rest. */
static int some_getsockopt(int fd, int level, int option, void *value, socklen_t *size) {
    if (level == SOL_SOCKET) cannot_fail();
    return (level == SOL_SOCKET ? real.getsockopt : may_fail_getsockopt)(fd, level, option, value, size);
}

static int some_setsockopt(int fd, int level, int option, const void *value, socklen_t size) {
    if (option == SO_OOBINLINE) cannot_fail();
    return (option == SO_OOBINLINE ? real.setsockopt : may_fail_setsockopt)(fd, level, option, value, size);
}

/* Of all that fcntl does only a new number may be wanting. */
static int some_fcntl(int fd, int what, long argument) {
    if (what != F_DUPFD_CLOEXEC) cannot_fail();
    return (what == F_DUPFD_CLOEXEC ? may_fail_fcntl : real.fcntl)(fd, what, argument);
}

/* What is there can be changed, and taken out of an epoll: only a new registration needs memory. */
static int some_epoll_ctl(int epoll, int what, int fd, struct epoll_event *event) {
    if (what != EPOLL_CTL_ADD) cannot_fail();
    return (what != EPOLL_CTL_ADD ? real.epoll_ctl : may_fail_epoll_ctl)(epoll, what, fd, event);
}

/* An eventfd that has just been polled takes a ring, or is full and has rung. */
static ssize_t some_write(int fd, const void *data, size_t length) {
    int rings = length == sizeof(uint64_t) && *(const uint64_t *)data == 1;
    if (rings) cannot_fail();
    return (rings ? real.write : may_fail_write)(fd, data, length);
}

static int close_and_fail(int fd) {
    int result = real.close(fd);
    return fails(CALL_close) ? -1 : result;
}

static int unmap_and_fail(void *at, size_t length) {
    int result = real.munmap(at, length);
    return fails(CALL_munmap) ? -1 : result;
}

static void *counted_mmap(void *at, size_t length, int access, int flags, int fd, off_t from) {
    if (no_slabs) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    void *memory = may_fail_mmap(at, length, access, flags, fd, from);
    if (memory != MAP_FAILED && flags == (MAP_SHARED | MAP_ANONYMOUS)) fs_add_sc(&slabs, 1);
    return memory;
}

static void *counted_malloc(size_t size) {
    void *memory = may_fail_malloc(size);
    if (memory) fs_add_sc(&allocations, 1);
    return memory;
}

static void *counted_calloc(size_t count, size_t size) {
    void *memory = may_fail_calloc(count, size);
    if (memory) fs_add_sc(&allocations, 1);
    return memory;
}

static void *counted_realloc(void *before, size_t size) {
    void *memory = may_fail_realloc(before, size);
    if (memory && !before) fs_add_sc(&allocations, 1);
    return memory;
}

static void counted_free(void *memory) {
    if (memory) fs_add_sc(&allocations, (uint32_t)-1);
    real.free(memory);
}

/* From now on the core's calls come here. */
static void take_the_calls(void) {
    real = fs_system;
#define CALL(type, name, failure, parameters, arguments) fs_system.name = may_fail_##name;
    FS_SYSTEM_CALLS(CALL, CALL)
#undef CALL
    fs_system.getsockopt = some_getsockopt;
    fs_system.setsockopt = some_setsockopt;
    fs_system.fcntl = some_fcntl;
    fs_system.epoll_ctl = some_epoll_ctl;
    fs_system.write = some_write;
    fs_system.close = close_and_fail;
    fs_system.mmap = counted_mmap;
    fs_system.munmap = unmap_and_fail;
    fs_system.malloc = counted_malloc;
    fs_system.calloc = counted_calloc;
    fs_system.realloc = counted_realloc;
    fs_system.free = counted_free;
}

/* ---- by place (sweep.h) */
#ifdef FS_AT
static int call_at(int site) {
    int call = 0;
    while (strcmp(call_names[call], __start_fs_sites[site].name) != 0) call++;
    return call;
}

/* Makes all runs of a program: `run` makes the one of `sweep->chain` (of no failure, if that has no links), and tells whether it was
 * judged well. How many were not. At the end each place's fate is said. */
static int sweep_all(int variants, int (*run)(int variant)) {
    static struct chain queue[MOST_RUNS];
    static uint32_t passed_by[MOST_SITES]; /* a bit for each variant */
    int sites = (int)(__stop_fs_sites - __start_fs_sites), count = 0, done = 0, bad = 0, fired = 0;
    check(sites > 0 && sites <= MOST_SITES, "%d places", sites);
    sweep = mmap(NULL, sizeof *sweep, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(sweep != MAP_FAILED, "mmap: %m");
    for (int v = 0; v < variants; v++) queue[count++] = (struct chain){.variant = v};
    for (; done < count; done++) {
        struct chain made = sweep->chain = queue[done];
        fs_store_sc(&sweep->fired, 0);
        fs_store_sc(&sweep->armed, 1);
        for (int at = 0; at < sites; at++) fs_and_sc(&sweep->fates[at], ~(uint32_t)PASSED);
        if (!run(made.variant)) {
            bad++;
            for (int i = 0; i < made.links; i++)
                fprintf(stderr, "    %s:%ld %s: %s\n", __start_fs_sites[made.sites[i]].file, __start_fs_sites[made.sites[i]].line,
                        __start_fs_sites[made.sites[i]].name, strerror(made.errors[i]));
        }
        fired += (int)fs_load_sc(&sweep->fired) > 0;
        /* (What one variant passes in some runs only, another one may pass in all.) */
        for (int v = made.variant + 1; made.links == 1 && !fs_load_sc(&sweep->fired) && v < variants; v++) {
            if (!(passed_by[made.sites[0]] >> v & 1) || count == MOST_RUNS) continue;
            queue[count] = made;
            queue[count++].variant = v;
            break;
        }
        for (int at = 0; at < sites; at++) {
            if (!(fs_load_sc(&sweep->fates[at]) & PASSED)) continue;
            int known = passed_by[at] != 0;
            passed_by[at] |= 1u << made.variant;
            if (known || made.links == LINKS) continue;
            for (int e = 0; error_of(call_at(at), e) && count < MOST_RUNS; e++) {
                queue[count] = made;
                queue[count].sites[made.links] = at;
                queue[count].errors[made.links] = error_of(call_at(at), e);
                queue[count++].links++;
                if (made.links) break;
            }
        }
    }
    for (int at = 0; at < sites; at++) {
        const struct fs_site *site = &__start_fs_sites[at];
        uint32_t fate = fs_load_sc(&sweep->fates[at]);
        printf("site %s %ld %s %s\n", site->file, site->line, site->name,
               fate & FAILED                                                   ? "failed"
               : fate & SPARED || (passed_by[at] && !error_of(call_at(at), 0)) ? "spared"
               : passed_by[at]                                                 ? "passed"
                                                                               : "missed");
    }
    printf("%d runs, %d failures came, %d problems\n", done, fired, bad);
    return bad;
}
#endif

#endif
