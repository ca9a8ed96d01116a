/* What glibc declares and musl has not: glibc_only.c. Each case is compiled with it (-include). */
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

ssize_t preadv2(int fd, const struct iovec *v, int count, off_t at, int flags);
ssize_t pwritev2(int fd, const struct iovec *v, int count, off_t at, int flags);
int close_range(unsigned first, unsigned last, int flags);
void closefrom(int first);
int execveat(int folder, const char *path, char *const arguments[], char *const environment[], int flags);
int epoll_pwait2(int epoll, struct epoll_event *events, int most, const struct timespec *time, const sigset_t *mask);
void (*sysv_signal(int number, void (*handler)(int)))(int);
void (*ssignal(int number, void (*handler)(int)))(int);
int pthread_sigqueue(pthread_t thread, int number, const union sigval value);
int on_exit(void (*body)(int, void *), void *with);
const char *strerrorname_np(int number);
