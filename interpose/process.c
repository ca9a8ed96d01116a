/* Beginning and end of the process, forks, threads, and programs that it becomes or starts.
 *
 * Responsible for: that a connection is let go of once by each process that has it. Never: other numbers. */
#include "interpose.h"

#include <limits.h>
#include <linux/seccomp.h>
#include <paths.h>
#include <stdlib.h>

/* ---- forks ---------------------------------------------------------------------------------------------------------- */

static int counted_by, counted;

static void count(struct ip_socket *s) {
    if (!s->opened || fs_has_ended(&s->c)) return;
    fs_count_child(fs_own(&s->c), counted_by);
    counted++;
    if (counted_by > 0 && (fs_load_sc(&s->c.recv_sleepers) || fs_load_sc(&s->c.send_sleepers)))
        fs_wake_local(&s->c); /* who sleeps looks now and then from here on: the child may be killed with a lock held */
}

static int count_child(int by) {
    counted_by = by;
    counted = 0;
    ip_each_socket(count);
    return counted;
}

static int attaching;

static void look_for_thread(struct ip_socket *s) {
    attaching |= s->opened && s->path.attaching && s->path.attaching != (unsigned long)pthread_self();
}

static void await_thread(struct ip_socket *s) {
    if (s->opened && !fs_has_ended(&s->c)) fs_path_await_thread(&s->path, &s->c);
}

static void before_fork(void) {
    if (!ip_is_active()) return;
    ip_lock();
    fs_control_thread_stop();
    ip_each_socket(await_thread);
    for (;;) { /* the child would believe itself on kernel TCP, and its parent and the peer be on the ring */
        attaching = 0;
        ip_each_socket(look_for_thread);
        if (!attaching) break;
        fs_short_sleep_unlocked();
    }
    fs_expect_fork(1);
}

/* The child may take a wakeup that was meant for a thread of this process. */
static void share_instance(struct ip_epoll *e) {
    struct fs_poller *p = fs_load_relaxed(&e->poller);
    if (p) fs_poller_forked(p);
}

static void after_fork_in_parent(void) {
    if (!ip_is_active()) return;
    int error = errno;
    fs_expect_fork(0);
    fs_control_thread_after_fork();
    fs_control_thread_restart();
    ip_each_epoll(share_instance);
    ip_unlock();
    errno = error;
}

static void inherit(struct ip_socket *s) {
    if (!s->opened) return;
    s->path.attaching = 0;
    fs_conn_inherit(&s->c);
}

static void start_over(struct ip_socket *s) {
    struct fs_call call;
    if (!s->opened) return;
    if (ip_hold(s, &call)) ip_end(s, &call); /* one that waited for calls of other threads to be closed ends with this */
    if (s->opened) fs_path_restart(&s->path, &s->c);
}

static void leave_shared_instance(struct ip_epoll *e) {
    struct fs_poller *p = fs_load_relaxed(&e->poller);
    if (p) fs_poller_after_fork(p);
}

static void after_fork_in_child(void) {
    if (!ip_is_active()) return;
    fs_own_pid = (uint32_t)getpid();
    fs_own_pid_ns = fs_pid_ns();
    ip_threaded = 0;
    fs_expect_fork(0);
    fs_slab_forget();
    fs_fd_change_forget();
    ip_each_socket(inherit);
    ip_each_epoll(leave_shared_instance);
    fs_regions_forget();
    ip_each_socket(start_over);
    ip_unlock();
}

/* ---- forks that run no handlers: _Fork, clone, and those by number ---------------------------------------------------- */

static void before_bare_fork(void) {
    before_fork();
    fs_before_fork();
}

static void after_bare_fork_in_parent(void) {
    fs_after_fork_in_parent();
    after_fork_in_parent();
}

static void after_bare_fork_in_child(void) {
    fs_after_fork_in_child();
    after_fork_in_child();
}

long ip_fork_by_number(long number, const long a[6]) {
    before_bare_fork();
    long got = fs_call_kernel(number, a);
    if (got < 0) errno = (int)-got;
    if (got == 0) after_bare_fork_in_child();
    else after_bare_fork_in_parent();
    return got < 0 ? -1 : got;
}

pid_t _Fork(void) {
    if (!ip_is_active() || !ip_is_own_process()) return real._Fork();
    before_bare_fork();
    pid_t child = real._Fork();
    if (child == 0) after_bare_fork_in_child();
    else after_bare_fork_in_parent();
    return child;
}

struct body {
    int (*function)(void *argument);
    void *argument;
};

static int run_in_child(void *given) {
    struct body *body = given; /* on the child's copy of its parent's stack */
    after_bare_fork_in_child();
    return body->function(body->argument);
}

int clone(int (*function)(void *), void *stack, int flags, void *argument, ...) {
    va_list more;
    va_start(more, argument);
    void *parent_tid = va_arg(more, void *), *tls = va_arg(more, void *), *child_tid = va_arg(more, void *);
    va_end(more);
    struct body body = {function, argument};
    if (!function || !ip_makes_process((unsigned long)flags) || !ip_is_own_process())
        return real.clone(function, stack, flags, argument, parent_tid, tls, child_tid);
    before_bare_fork();
    int child = real.clone(run_in_child, stack, flags, &body, parent_tid, tls, child_tid);
    after_bare_fork_in_parent();
    return child;
}

/* ---- threads --------------------------------------------------------------------------------------------------------- */

int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*body)(void *), void *argument) {
    ip_threaded = 1;
    return real.pthread_create(thread, how, body, argument);
}

int pthread_cancel(pthread_t thread) {
    ip_cancels = 1;
    return real.pthread_cancel(thread);
}

/* ---- other programs ----------------------------------------------------------------------------------------------------- */

/* The program that this process becomes has no use for what it does not inherit. */
static void let_go_of_closed(struct ip_socket *s) {
    struct fs_call call;
    if (!s->opened || !ip_hold(s, &call)) return;
    if (fs_note_ended(&s->c)) ip_say_goodbye(s);
    ip_end(s, &call);
}

/* Before this process becomes another program, if it can. (A child of vfork has the parent's connections in its memory: they stay.) */
static void before_exec(const char *path) {
    if (!ip_is_active()) return;
    ip_leave_inherited();
    if (!ip_is_own_process() || !path || access(path, X_OK) < 0) return;
    ip_lock();
    ip_each_socket(let_go_of_closed);
    ip_unlock();
}

int execve(const char *path, char *const *arguments, char *const *environment) {
    before_exec(path);
    return real.execve(path, arguments, environment);
}

int execv(const char *path, char *const *arguments) { return execve(path, arguments, environ); }

/* (Where on the PATH it lies the C library finds out: what has to be let go of is let go of by the kernel, as when a process is killed.) */
int execvpe(const char *file, char *const *arguments, char *const *environment) {
    before_exec(strchr(file, '/') ? file : NULL);
    return real.execvpe(file, arguments, environment);
}

int execvp(const char *file, char *const *arguments) { return execvpe(file, arguments, environ); }

int fexecve(int fd, char *const *arguments, char *const *environment) {
    before_exec(NULL);
    return real.fexecve(fd, arguments, environment);
}

enum { ARGUMENTS = 4096 };

/* The arguments of execl and its kin. 0: there are too many. */
static int collect(char **into, const char *first, va_list more) {
    int count = 0;
    for (char *next = (char *)first; next; next = va_arg(more, char *)) {
        if (count == ARGUMENTS - 1) return 0;
        into[count++] = next;
    }
    into[count] = NULL;
    return 1;
}

#define FS_LIST(name, call, last) \
    int name(const char *path, const char *first, ...) { \
        char *arguments[ARGUMENTS]; \
        va_list more; \
        va_start(more, first); \
        int whole = collect(arguments, first, more); \
        char *const *environment = whole && last ? va_arg(more, char *const *) : environ; \
        va_end(more); \
        if (whole) return call(path, arguments, environment); \
        errno = E2BIG; \
        return -1; \
    }
FS_LIST(execl, execve, 0)
FS_LIST(execle, execve, 1)
FS_LIST(execlp, execvpe, 0)

int posix_spawn(pid_t *made, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *how,
                char *const *arguments, char *const *environment) {
    if (ip_is_active()) ip_leave_inherited();
    return real.posix_spawn(made, path, actions, how, arguments, environment);
}

int posix_spawnp(pid_t *made, const char *file, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *how,
                 char *const *arguments, char *const *environment) {
    if (ip_is_active()) ip_leave_inherited();
    return real.posix_spawnp(made, file, actions, how, arguments, environment);
}

int system(const char *command) {
    if (ip_is_active() && command) ip_leave_inherited();
    return real.system(command);
}

FILE *popen(const char *command, const char *mode) {
    if (ip_is_active()) ip_leave_inherited();
    return real.popen(command, mode);
}

/* ---- filters of system calls ------------------------------------------------------------------------------------------------ */

static void leave_for_good(struct ip_socket *s) {
    if (!s->opened || !ip_leave_ring(s)) return;
    let_go_of_closed(s);
    ip_settle(s);
}

/* A filter knows the program's calls and not the core's, and may kill for them: from here on this process does what it does without us. */
void ip_before_filter(void) {
    if (!ip_is_active() || !ip_is_own_process()) return;
    int error = errno;
    ip_lock();
    ip_each_socket(leave_for_good);
    fs_control_thread_stop();
    ip_write_statistics();
    fs_store_relaxed(&ip_activity, 0);
    ip_unlock();
    errno = error;
}

int prctl(int what, ...) {
    va_list more;
    va_start(more, what);
    unsigned long a = va_arg(more, unsigned long), b = va_arg(more, unsigned long), c = va_arg(more, unsigned long);
    unsigned long d = va_arg(more, unsigned long);
    va_end(more);
    if (what == PR_SET_SECCOMP && (a == SECCOMP_MODE_STRICT || (a == SECCOMP_MODE_FILTER && b))) ip_before_filter();
    return real.prctl(what, a, b, c, d);
}

/* ---- beginning and end -------------------------------------------------------------------------------------------------- */

__attribute__((constructor)) static void start(void) {
    fs_set_lookup();
    ip_read_settings();
    if (!ip_settings.enabled) return;
    fs_own_pid = (uint32_t)getpid();
    fs_own_pid_ns = fs_pid_ns();
    ip_begin_lock();
    ip_begin_own_numbers();
    fs_set_backlog(SOMAXCONN);
    ip_begin_readiness();
    if (fs_atfork_install(count_child) || pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child)) return;
    fs_store_relaxed(&ip_activity, 1);
    ip_begin_report();
}

static void say_goodbye(struct ip_socket *s) {
    struct fs_call call;
    if (!s->opened || !fs_call_enter(&s->c, &call)) return;
    if (fs_note_ended(&s->c)) ip_say_goodbye(s);
    fs_call_exit(&s->c, &call); /* (nobody does what it says: other threads may be inside, and nothing is given back) */
}

static void finish(void) {
    if (!ip_is_active() || !ip_is_own_process()) return;
    ip_write_statistics();
    ip_end_report();
    ip_lock();
    ip_each_socket(say_goodbye);
    ip_unlock();
}

__attribute__((destructor)) static void end(void) { finish(); }

void _exit(int status) {
    finish();
    for (;;) real._exit(status);
}

void quick_exit(int status) {
    finish();
    for (;;) real.quick_exit(status);
}
