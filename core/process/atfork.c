/* The handlers of pthread_atfork(3): the child of an announced fork is counted before it exists, and not if it comes
 * to nothing.
 *
 * Responsible for: whether there is a child. Never: connections, which `count_child` knows; forks that nobody
 * announced. */
#include "process/atfork.h"

#include "os/syscalls.h"

/* Of this thread: it is about to fork for the front end; its fork has been counted; the pipe of that fork. */
static __thread int fork_announced, fork_counted;
static __thread int fork_pipe[2];
static int (*count_child_by)(int by);

void fs_expect_fork(int comes) { fork_announced = comes; }

/* Forks that the front end knows nothing of (by C code, without its lock) are not for us: exec or _exit follows
 * them. */
static void in_fork(void) {
    if (!fork_announced) return;
    fork_announced = 0;
    if (!count_child_by(1)) return;
    fork_counted = 1;
    if (fs_system.pipe2(fork_pipe, O_CLOEXEC) < 0) fork_pipe[0] = fork_pipe[1] = -1;
    errno = 0;
}

static void in_forked_child(void) {
    if (!fork_counted) return;
    fork_counted = 0;
    if (fork_pipe[0] < 0) return;
    ssize_t told = fs_system.write(fork_pipe[1], "", 1);
    (void)told;
    fs_system.close(fork_pipe[0]);
    fs_system.close(fork_pipe[1]);
}

/* The handlers run whether or not there is a child, and are not told. A fork that fails sets errno, and so may whatever
 * else runs in a fork. So a child that there is says so in a pipe; without one nobody has the other end of it. If that
 * cannot be told (no descriptors; a stopped child; another process has got the end of the pipe) the child counts: a
 * connection that is not said goodbye to is better than one that is, and in use. */
static void after_fork(void) {
    int error = errno;
    struct pollfd end = {fork_pipe[0], POLLIN, 0};
    if (!fork_counted) return;
    fork_counted = 0;
    if (end.fd >= 0) {
        fs_system.close(fork_pipe[1]);
        if (error) {
            while (fs_system.poll(&end, 1, 1000) < 0 && errno == EINTR) {}
            if ((end.revents & (POLLIN | POLLHUP)) == POLLHUP) count_child_by(-1);
        }
        fs_system.close(end.fd);
    }
    errno = error;
}

int fs_atfork_install(int (*count_child)(int by)) {
    count_child_by = count_child;
    return fs_system.pthread_atfork(in_fork, after_fork, in_forked_child);
}
