/* What glibc has and musl has not, for the cases of this folder: by the system calls of the same names, which the library serves too. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

ssize_t preadv2(int fd, const struct iovec *v, int count, off_t at, int flags) { return syscall(SYS_preadv2, fd, v, count, at, 0L, flags); }
ssize_t pwritev2(int fd, const struct iovec *v, int count, off_t at, int flags) {
    return syscall(SYS_pwritev2, fd, v, count, at, 0L, flags);
}
int close_range(unsigned first, unsigned last, int flags) { return (int)syscall(436, first, last, flags); }
void closefrom(int first) { close_range(first < 0 ? 0 : (unsigned)first, ~0u, 0); }
int execveat(int folder, const char *path, char *const arguments[], char *const environment[], int flags) {
    return (int)syscall(SYS_execveat, folder, path, arguments, environment, flags);
}
int epoll_pwait2(int epoll, struct epoll_event *events, int most, const struct timespec *time, const sigset_t *mask) {
    return (int)syscall(441, epoll, events, most, time, mask, 8L);
}

void (*sysv_signal(int number, void (*handler)(int)))(int) {
    struct sigaction how = {.sa_handler = handler, .sa_flags = SA_RESETHAND | SA_NODEFER}, before;
    return sigaction(number, &how, &before) ? SIG_ERR : before.sa_handler;
}
void (*ssignal(int number, void (*handler)(int)))(int) { return signal(number, handler); }

int pthread_sigqueue(pthread_t thread, int number, const union sigval value) {
    siginfo_t info = {.si_signo = number, .si_code = SI_QUEUE, .si_pid = getpid(), .si_uid = getuid(), .si_value = value};
    int id;
    memcpy(&id, (const char *)thread + 48, sizeof id); /* (musl's struct pthread, on a 64-bit machine) */
    return syscall(SYS_rt_tgsigqueueinfo, getpid(), id, number, &info) ? errno : 0;
}

static struct { void (*body)(int, void *); void *with; } last[8];
static int lasts;
static void call_last(void) { lasts--, last[lasts].body(0, last[lasts].with); }
int on_exit(void (*body)(int, void *), void *with) {
    last[lasts].body = body, last[lasts++].with = with;
    return atexit(call_last);
}

const char *strerrorname_np(int number) {
#define NAME(error) if (number == error) return #error;
    NAME(EAGAIN) NAME(EBADF) NAME(EBUSY) NAME(ECONNABORTED) NAME(ECONNREFUSED) NAME(ECONNRESET) NAME(EDESTADDRREQ) NAME(EDOM) NAME(EEXIST)
    NAME(EFAULT) NAME(EINPROGRESS) NAME(EINTR) NAME(EINVAL) NAME(EIO) NAME(EISCONN) NAME(EMFILE) NAME(EMSGSIZE) NAME(ENFILE) NAME(ENOENT)
    NAME(EACCES)
    NAME(ENOEXEC) NAME(ENOMEM) NAME(ENOSYS) NAME(ENOTCONN) NAME(ENOTSOCK) NAME(ENOTSUP) NAME(ENOTTY) NAME(EPERM) NAME(EPIPE) NAME(ESPIPE)
    NAME(ETIMEDOUT) NAME(ENOPROTOOPT) NAME(ENOTDIR) NAME(EADDRINUSE) NAME(EALREADY) NAME(ECHILD) NAME(ESRCH) NAME(ENODEV) NAME(ENXIO)
    NAME(ELOOP)
    return number ? "E?" : "0";
}
