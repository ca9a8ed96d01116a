/* System calls that a program makes by number, past the C library's functions.
 *
 * libuv closes by number, and others read. io_uring would work on descriptors past all of this: its set-up is refused, as on a kernel that
 * has none, and programs do without. What calls the kernel without syscall(2) is not seen (docs/interpose.md).
 *
 * Responsible for: that these numbers do what the functions of their names do. Never: other system calls. */
#include "interpose.h"
#include "kernel_numbers.h"
#include "process.h"
#include "signals.h"

#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <unistd.h>

int close_range(unsigned first, unsigned last, int flags); /* glibc declares these from 2.34 on */
int execveat(int folder, const char *path, char *const *arguments, char *const *environment, int flags);

enum { IO_URING_SETUP = 425, SYS_CLONE3 = 435 /* on every architecture */ };

/* (On a stack of its own the child does not come back to the caller of syscall(2).) */
static int forks(long number, const long a[6], uint64_t flags, uint64_t stack, long *got) {
    ip_before_clone(flags);
    if (stack || !ip_makes_process(flags) || !ip_is_own_process()) return 0;
    *got = ip_fork_by_number(number, a);
    return 1;
}

/* Calls by number that are ours where the first argument is a number of ours. */
static int serve(long number, const long a[6], long *got) {
    const struct clone_args *how = (const struct clone_args *)a[0];
    switch (number) {
    case SYS_close: *got = close((int)a[0]); return 1;
    case SYS_read: *got = read((int)a[0], (void *)a[1], (size_t)a[2]); return 1;
    case SYS_write: *got = write((int)a[0], (const void *)a[1], (size_t)a[2]); return 1;
    case SYS_readv: *got = readv((int)a[0], (const struct iovec *)a[1], (int)a[2]); return 1;
    case SYS_writev: *got = writev((int)a[0], (const struct iovec *)a[1], (int)a[2]); return 1;
    case SYS_preadv2: *got = preadv2((int)a[0], (const struct iovec *)a[1], (int)a[2], a[3], (int)a[5]); return 1;
    case SYS_pwritev2: *got = pwritev2((int)a[0], (const struct iovec *)a[1], (int)a[2], a[3], (int)a[5]); return 1;
    case SYS_recvfrom:
        *got = recvfrom((int)a[0], (void *)a[1], (size_t)a[2], (int)a[3], (struct sockaddr *)a[4], (socklen_t *)a[5]);
        return 1;
    case SYS_sendto:
        *got = sendto((int)a[0], (const void *)a[1], (size_t)a[2], (int)a[3], (const struct sockaddr *)a[4], (socklen_t)a[5]);
        return 1;
    case SYS_recvmsg: *got = recvmsg((int)a[0], (struct msghdr *)a[1], (int)a[2]); return 1;
    case SYS_sendmsg: *got = sendmsg((int)a[0], (const struct msghdr *)a[1], (int)a[2]); return 1;
    case SYS_sendmmsg: *got = sendmmsg((int)a[0], (struct mmsghdr *)a[1], (unsigned)a[2], (int)a[3]); return 1;
    case SYS_recvmmsg: *got = recvmmsg((int)a[0], (struct mmsghdr *)a[1], (unsigned)a[2], (int)a[3], (struct timespec *)a[4]); return 1;
    case SYS_shutdown: *got = shutdown((int)a[0], (int)a[1]); return 1;
    case SYS_getsockopt: *got = getsockopt((int)a[0], (int)a[1], (int)a[2], (void *)a[3], (socklen_t *)a[4]); return 1;
    case SYS_setsockopt: *got = setsockopt((int)a[0], (int)a[1], (int)a[2], (const void *)a[3], (socklen_t)a[4]); return 1;
    case SYS_ioctl: *got = ioctl((int)a[0], (unsigned long)a[1], (void *)a[2]); return 1;
    case SYS_fcntl: *got = fcntl((int)a[0], (int)a[1], (void *)a[2]); return 1;
    case SYS_dup: *got = dup((int)a[0]); return 1;
    case SYS_dup3: *got = dup3((int)a[0], (int)a[1], (int)a[2]); return 1;
    case SYS_socket: *got = socket((int)a[0], (int)a[1], (int)a[2]); return 1;
    case SYS_socketpair: *got = socketpair((int)a[0], (int)a[1], (int)a[2], (int *)a[3]); return 1;
    case SYS_connect: *got = connect((int)a[0], (const struct sockaddr *)a[1], (socklen_t)a[2]); return 1;
    case SYS_accept4: *got = accept4((int)a[0], (struct sockaddr *)a[1], (socklen_t *)a[2], (int)a[3]); return 1;
    case SYS_accept: *got = accept4((int)a[0], (struct sockaddr *)a[1], (socklen_t *)a[2], 0); return 1;
    case SYS_epoll_ctl: *got = epoll_ctl((int)a[0], (int)a[1], (int)a[2], (struct epoll_event *)a[3]); return 1;
    case SYS_epoll_create1: *got = epoll_create1((int)a[0]); return 1;
    case SYS_epoll_pwait: *got = epoll_pwait((int)a[0], (struct epoll_event *)a[1], (int)a[2], (int)a[3], (const sigset_t *)a[4]); return 1;
    case SYS_epoll_pwait2:
        *got = epoll_pwait2((int)a[0], (struct epoll_event *)a[1], (int)a[2], (const struct timespec *)a[3], (const sigset_t *)a[4]);
        return 1;
#ifdef SYS_dup2
    case SYS_dup2: *got = dup2((int)a[0], (int)a[1]); return 1;
    case SYS_poll: *got = poll((struct pollfd *)a[0], (nfds_t)a[1], (int)a[2]); return 1;
    case SYS_epoll_wait: *got = epoll_wait((int)a[0], (struct epoll_event *)a[1], (int)a[2], (int)a[3]); return 1;
#endif
    case SYS_rt_sigaction: return ip_sigaction_by_number(a, got);
    case SYS_close_range: *got = close_range((unsigned)a[0], (unsigned)a[1], (int)a[2]); return 1;
#ifdef SYS_fork
    case SYS_fork: return forks(number, a, 0, 0, got);
#endif
    case SYS_clone: return forks(number, a, (uint64_t)a[0], (uint64_t)a[1], got);
    case SYS_CLONE3: return how && forks(number, a, how->flags, how->stack, got);
    case SYS_execve: *got = execve((const char *)a[0], (char *const *)a[1], (char *const *)a[2]); return 1;
    case SYS_execveat: *got = execveat((int)a[0], (const char *)a[1], (char *const *)a[2], (char *const *)a[3], (int)a[4]); return 1;
    case SYS_exit_group: _exit((int)a[0]);
    case SYS_unshare: *got = unshare((int)a[0]); return 1;
    case SYS_setns: *got = setns((int)a[0], (int)a[1]); return 1;
    case SYS_prctl: *got = prctl((int)a[0], a[1], a[2], a[3], a[4]); return 1;
    case SYS_prlimit64: *got = prlimit((pid_t)a[0], (fs_limit_kind)a[1], (const struct rlimit *)a[2], (struct rlimit *)a[3]); return 1;
    case SYS_seccomp:
        if (a[0] == SECCOMP_SET_MODE_STRICT || (a[0] == SECCOMP_SET_MODE_FILTER && a[2])) ip_before_sandbox();
        return 0;
    case IO_URING_SETUP: errno = ENOSYS; *got = -1; return 1;
    default: return 0;
    }
}

long syscall(long number, ...) {
    long a[6], got;
    va_list more;
    va_start(more, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(more, long);
    va_end(more);
    if (ip_is_active() && serve(number, a, &got)) return got;
    got = fs_call_kernel(number, a);
    if (got < 0 && got > -4096) {
        errno = (int)-got;
        return -1;
    }
    return got;
}
