/* Beginning and end of the process, forks, threads, and programs that it becomes or starts.
 *
 * Responsible for: that a connection is let go of once by each process that has it. Never: other numbers. */
#include "interpose.h"

#include <limits.h>
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

/* ---- threads --------------------------------------------------------------------------------------------------------- */

int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*body)(void *), void *argument) {
    if (!ip_threaded) ip_threaded = 1; /* (the first thread that is made is made by the only one) */
    return real.pthread_create(thread, how, body, argument);
}

int pthread_cancel(pthread_t thread) {
    fs_store_relaxed(&ip_cancels, 1);
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
    if (!ip_active) return;
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
    if (ip_active) ip_leave_inherited();
    return real.posix_spawn(made, path, actions, how, arguments, environment);
}

int posix_spawnp(pid_t *made, const char *file, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *how,
                 char *const *arguments, char *const *environment) {
    if (ip_active) ip_leave_inherited();
    return real.posix_spawnp(made, file, actions, how, arguments, environment);
}

int system(const char *command) {
    if (ip_active && command) ip_leave_inherited();
    return real.system(command);
}

FILE *popen(const char *command, const char *mode) {
    if (ip_active) ip_leave_inherited();
    return real.popen(command, mode);
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
    ip_active = 1;
}

static void say_goodbye(struct ip_socket *s) {
    struct fs_call call;
    if (!s->opened || !fs_call_enter(&s->c, &call)) return;
    if (fs_note_ended(&s->c)) ip_say_goodbye(s);
    fs_call_exit(&s->c, &call); /* (nobody does what it says: other threads may be inside, and nothing is given back) */
}

static void finish(void) {
    if (!ip_active || ip_confined || !ip_is_own_process()) return;
    ip_write_statistics();
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
