/* The handlers of pthread_atfork(3): they count the child of an announced fork before it exists, and undo that if the fork fails.
 * `count_child` knows the connections; forks that nobody announced are ignored. */
#include "process/atfork.h"

#include "os/host.h"
#include "os/syscalls.h"

/* Per thread: a fork for the front end is announced; it has been counted; its pipe. */
static __thread int fork_announced, fork_counted;
static __thread int fork_pipe[2];
static int (*count_child)(int by);

void FS_AT_FORK fs_expect_fork(int comes) { fork_announced = comes; }

/* Ignores forks unknown to the front end (by C code, without the host lock): exec or _exit follows them. */
void fs_before_fork(void) {
    if (!fork_announced) return;
    fork_announced = 0;
    if (!count_child(1)) return;
    fork_counted = 1;
    if (fs_system.pipe2(fork_pipe, O_CLOEXEC) < 0) fork_pipe[0] = fork_pipe[1] = -1;
    errno = 0;
}

void FS_AT_FORK fs_after_fork_in_child(void) {
    if (!fork_counted) return;
    fork_counted = 0;
    if (fork_pipe[0] < 0) return;
    ssize_t told = fs_system.write(fork_pipe[1], "", 1);
    (void)told;
    fs_system.close(fork_pipe[0]);
    fs_system.close(fork_pipe[1]);
}

/* The handlers also run after a failed fork, and get no result. A failed fork sets errno, but so may anything else that runs in a fork.
 * So a child writes into a pipe; without a child nobody has its other end. If the result stays unknown (no descriptors; a stopped child;
 * another process has the end of the pipe) the child counts: a connection that sends no FIN is better than a FIN on a connection in use. */
void fs_after_fork_in_parent(void) {
    int error = errno;
    struct pollfd end = {fork_pipe[0], POLLIN, 0};
    if (!fork_counted) return;
    fork_counted = 0;
    if (end.fd >= 0) {
        fs_system.close(fork_pipe[1]);
        if (error) {
            while (fs_system.poll(&end, 1, 1000) < 0 && errno == EINTR) {}
            if ((end.revents & (POLLIN | POLLHUP)) == POLLHUP) count_child(-1);
        }
        fs_system.close(end.fd);
    }
    errno = error;
}

int fs_atfork_install(int (*count)(int by)) {
    static int installed;
    count_child = count;
    if (installed) return 0;
    int failed = fs_system.pthread_atfork(fs_before_fork, fs_after_fork_in_parent, fs_after_fork_in_child);
    installed = !failed;
    return failed;
}
