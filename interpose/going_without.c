/* The end of this front end in a process that goes on: before the program puts itself into a sandbox, or its threads part.
 *
 * Responsible for: that what is on the ring goes back to the kernel first. Never: the end that was asked for (install.c). */
#include "interpose.h"
#include "process.h"

#include <linux/seccomp.h>
#include <sys/resource.h>

static void leave_for_good(struct ip_socket *s, void *with) {
    (void)with;
    struct fs_call call;
    if (ip_is(&s->thing, IP_SOCKET) || !ip_leave_ring(s)) return;
    if (s->opened && ip_hold(s, &call)) {
        if (fs_note_ended(ip_conn(s))) fs_finish(ip_conn(s));
        ip_end(s, &call);
    }
    ip_settle(s);
}

void ip_go_without(void) {
    ip_each_socket(leave_for_good, NULL);
    fs_control_thread_stop();
    ip_write_statistics();
    ip_store_relaxed(&ip_activity, IP_INACTIVE);
}

void ip_before_sandbox(void) {
    if (!ip_is_active() || !ip_is_own_process()) return;
    int error = errno;
    ip_lock();
    ip_go_without();
    ip_store_relaxed(&ip_sandboxed, 1);
    ip_unlock();
    errno = error;
}

int prctl(int what, ...) {
    va_list more;
    va_start(more, what);
    unsigned long a = va_arg(more, unsigned long), b = va_arg(more, unsigned long), c = va_arg(more, unsigned long);
    unsigned long d = va_arg(more, unsigned long);
    va_end(more);
    if (what == PR_SET_SECCOMP && (a == SECCOMP_MODE_STRICT || (a == SECCOMP_MODE_FILTER && b))) ip_before_sandbox();
    return real.prctl(what, a, b, c, d);
}

/* Returns true if this process could open nothing more under the limit, nor raise it again. */
static int leaves_no_number(const struct rlimit *limit) {
    int lowest = real.epoll_create1(O_CLOEXEC);
    if (lowest >= 0) real.close(lowest);
    return lowest >= 0 && limit->rlim_max <= (rlim_t)lowest;
}

/* (Of another process, by its id, it is not noticed.) */
int prlimit(pid_t process, fs_limit_kind kind, const struct rlimit *limit, struct rlimit *before) {
    int own = !process || process == getpid();
    if (limit && kind == RLIMIT_NOFILE && own && ip_is_active() && leaves_no_number(limit)) ip_before_sandbox();
    return real.prlimit(process, kind, limit, before);
}

int setrlimit(fs_limit_kind kind, const struct rlimit *limit) { return prlimit(0, kind, limit, NULL); }
