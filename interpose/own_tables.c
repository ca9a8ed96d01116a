/* Calls that part the threads of a process: unshare, setns, and those that give a thread a table of descriptors of its own.
 *
 * The kernel refuses some of them to a process of several threads, and the control thread is one. So it ends before such a call and starts
 * again after it. A number means one thing here: a process whose threads are about to have several tables goes on without us, and what is
 * on the ring goes back to the kernel first.
 *
 * Responsible for: that such a call finds the program's own threads. Never: forks, whose child is a process of its own (process.c). */
#include "interpose.h"
#include "kernel_numbers.h"
#include "process.h"

enum {
    NEEDS_ONE_THREAD = CLONE_NEWUSER | CLONE_THREAD | CLONE_SIGHAND | CLONE_VM,
    NAPS = 1000, /* of 100 us */
};

/* (With this flag the call changes nothing, and a process of several threads is refused. The kernel still counts a thread that was joined a
 * moment ago.) */
int ip_has_one_thread(int naps) {
    for (;; naps--) {
        if (fs_call_kernel(SYS_unshare, (long[6]){CLONE_THREAD}) == 0) return 1;
        if (naps <= 0) return 0;
        struct timespec nap = {0, 100000};
        fs_call_kernel(SYS_nanosleep, (long[6]){(long)&nap, 0});
    }
}

/* Ends the core's threads, until resume. Returns true if the process has one thread then. With the lock. */
static int pause_core(void) {
    fs_control_thread_stop();
    return ip_has_one_thread(NAPS);
}

static void resume_core(int renamed) {
    fs_control_thread_resume(renamed);
    ip_unlock();
}

static int begin(void) {
    if (!ip_is_active() || !ip_is_own_process()) return 0;
    ip_lock();
    return 1;
}

int unshare(int flags) {
    if (!(flags & (NEEDS_ONE_THREAD | CLONE_FILES)) || !begin()) return real.unshare(flags);
    int error = errno, alone = pause_core();
    if (flags & CLONE_FILES && !alone) {
        fs_control_thread_resume(0);
        ip_go_without();
        fs_control_thread_stop();
    }
    errno = error;
    int failed = real.unshare(flags);
    error = errno;
    resume_core(!failed && flags & CLONE_NEWUSER);
    errno = error;
    return failed;
}

/* (Which kind of namespace it is, the kernel knows.) */
int setns(int fd, int kind) {
    if (!begin()) return real.setns(fd, kind);
    pause_core();
    int failed = real.setns(fd, kind), error = errno;
    resume_core(!failed);
    errno = error;
    return failed;
}

int ip_before_own_table(void) {
    if (!begin()) return 0;
    int error = errno, alone = pause_core();
    if (!alone) {
        fs_control_thread_resume(0);
        ip_go_without();
        ip_unlock();
    }
    errno = error;
    return alone;
}

void ip_after_own_table(void) {
    int error = errno;
    resume_core(0);
    errno = error;
}

void ip_before_thread_with_table(void) {
    if (!begin()) return;
    int error = errno;
    ip_go_without();
    ip_unlock();
    errno = error;
}
