/* Beginning and end of the process, forks, threads, and programs that it becomes or starts.
 *
 * Responsible for: that a connection is let go of once by each process that has it. Never: other numbers. */
#include "interpose.h"

#include <limits.h>
#include <linux/seccomp.h>
#include <paths.h>
#include <stdlib.h>
#include <sys/mman.h>

/* ---- whose memory this is ------------------------------------------------------------------------------------------ */

static pid_t own_process;
static fs_word32 no_mark;
fs_word32 *ip_original_mark = &no_mark, ip_memory_shared;
fs_word32 ip_filtered;

static void make_mark(void) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *made = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) return;
    if (madvise(made, page, MADV_WIPEONFORK) == 0) ip_original_mark = made;
    else munmap(made, page);
}

/* (A word is enough: a copy of the memory has 0 there, and of memory that is shared the kernel is asked.) */
void ip_claim_memory(void) {
    if (ip_original_mark == &no_mark) make_mark();
    own_process = getpid();
    ip_store_relaxed(&ip_memory_shared, ip_original_mark == &no_mark);
    ip_store_relaxed(ip_original_mark, 1);
}

int ip_ask_process(void) { return getpid() == own_process; }

/* ---- forks ---------------------------------------------------------------------------------------------------------- */

static int forking; /* a fork of which this front end has heard. Between its handlers the lock is held */

static void before(int bare) {
    if (!ip_is_active()) return;
    ip_lock();
    forking = ip_is_active();
    if (!forking) { /* its end came first */
        ip_unlock();
        return;
    }
    ip_each_socket(ip_prepare_to_share);
    fs_fork_prepare(bare);
}

static void before_fork(void) { before(0); }

/* The child may take a wakeup that was meant for a thread of this process. */
static void share_instance(struct ip_epoll *e) {
    struct fs_poller *p = ip_load_relaxed(&e->poller);
    if (p) fs_poller_forked(p);
}

static void in_parent(int bare) {
    int error = errno;
    if (!ip_thread.has_lock || !forking) return;
    forking = 0;
    fs_fork_in_parent(bare, !ip_thread.forks_quietly);
    ip_each_epoll(share_instance);
    ip_unlock();
    errno = error;
}

static void start_over(struct ip_socket *s) {
    struct fs_call call;
    ip_store_relaxed(&s->inside, 0); /* those of threads that are not here */
    if (!s->opened) return;
    if (ip_hold(s, &call)) ip_end(s, &call); /* one that waited for calls of other threads to be closed ends with this */
    if (s->opened) fs_fork_restart(ip_conn(s));
}

static void leave_shared_instance(struct ip_epoll *e) {
    struct fs_poller *p = ip_load_relaxed(&e->poller);
    if (p) fs_poller_after_fork(p);
}

static void in_child(int bare) {
    if (!ip_thread.has_lock || !forking) return;
    forking = 0;
    ip_claim_memory();
    ip_threaded = 0;
    fs_fork_in_child(bare);
    ip_each_epoll(leave_shared_instance);
    ip_poller_after_fork();
    ip_each_socket(start_over);
    ip_unlock();
}

static void after_fork_in_parent(void) { in_parent(0); }
static void after_fork_in_child(void) { in_child(0); }

int ip_begin_forks(void) { return pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child); }

void fs_libc_fork_quietly(int quietly) {
    ip_thread.forks_quietly = quietly;
    if (quietly || !fs_libc_serves()) return;
    ip_lock();
    fs_start_control_thread();
    ip_unlock();
}

/* ---- forks that run no handlers: _Fork, clone, and those by number ---------------------------------------------------- */

long ip_fork_by_number(long number, const long a[6]) {
    before(1);
    long got = fs_call_kernel(number, a);
    if (got < 0) errno = (int)-got;
    if (got == 0) in_child(1);
    else in_parent(1);
    return got < 0 ? -1 : got;
}

pid_t _Fork(void) {
    if (!ip_is_active() || !ip_is_own_process()) return real._Fork();
    before(1);
    pid_t child = real._Fork();
    if (child == 0) in_child(1);
    else in_parent(1);
    return child;
}

struct body {
    int (*function)(void *argument);
    void *argument;
};

static int run_in_child(void *given) {
    struct body *body = given; /* on the child's copy of its parent's stack */
    in_child(1);
    return body->function(body->argument);
}

int clone(int (*function)(void *), void *stack, int flags, void *argument, ...) {
    va_list more;
    va_start(more, argument);
    void *parent_tid = va_arg(more, void *), *tls = va_arg(more, void *), *child_tid = va_arg(more, void *);
    va_end(more);
    struct body body = {function, argument};
    ip_before_clone((unsigned long)flags);
    if (!function || !ip_makes_process((unsigned long)flags) || !ip_is_own_process())
        return real.clone(function, stack, flags, argument, parent_tid, tls, child_tid);
    before(1);
    int child = real.clone(run_in_child, stack, flags, &body, parent_tid, tls, child_tid);
    in_parent(1);
    return child;
}

/* vfork(2) returns twice, and the child overwrites the frame of who has called it: so nothing is on the stack when it is called. */
__attribute__((used)) static pid_t (*before_vfork(void))(void) {
    fs_set_lookup();
    ip_before_clone(CLONE_VM);
    return real.vfork;
}

#if defined(__x86_64__)
__asm__(".text\n.globl vfork\n.type vfork, @function\nvfork:\n"
        "    endbr64\n    sub $8, %rsp\n    call before_vfork\n    add $8, %rsp\n    jmp *%rax\n.size vfork, .-vfork");
#elif defined(__aarch64__)
__asm__(".text\n.globl vfork\n.type vfork, %function\nvfork:\n"
        "    stp x29, x30, [sp, -16]!\n    bl before_vfork\n    ldp x29, x30, [sp], 16\n    mov x16, x0\n    br x16\n.size vfork, .-vfork");
#endif

/* ---- threads --------------------------------------------------------------------------------------------------------- */

int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*body)(void *), void *argument) {
    if (!ip_threaded) ip_threaded = 1; /* (the first thread that is made is made by the only one) */
    return real.pthread_create(thread, how, body, argument);
}

int pthread_cancel(pthread_t thread) {
    ip_store_relaxed(&ip_cancels, 1);
    return real.pthread_cancel(thread);
}

/* ---- other programs ----------------------------------------------------------------------------------------------------- */

/* The program that this process becomes has no use for what it does not inherit. */
static void let_go_of_closed(struct ip_socket *s) {
    struct fs_call call;
    if (!s->opened || !ip_hold(s, &call)) return;
    if (fs_note_ended(ip_conn(s))) fs_finish(ip_conn(s));
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
    struct ip_own_environment own;
    before_exec(path);
    int failed = real.execve(path, arguments, ip_environment_for(path, environment, &own));
    ip_forget_environment(&own);
    return failed;
}

int execv(const char *path, char *const *arguments) { return execve(path, arguments, environ); }

/* (Where on the PATH it lies the C library finds out: what has to be let go of is let go of by the kernel, as when a process is killed.) */
int execvpe(const char *file, char *const *arguments, char *const *environment) {
    struct ip_own_environment own;
    before_exec(strchr(file, '/') ? file : NULL);
    int failed = real.execvpe(file, arguments, ip_environment_for(file, environment, &own));
    ip_forget_environment(&own);
    return failed;
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
    struct ip_own_environment own;
    int failed = real.posix_spawn(made, path, actions, how, arguments, ip_environment_for(path, environment, &own));
    ip_forget_environment(&own);
    return failed;
}

int posix_spawnp(pid_t *made, const char *file, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *how,
                 char *const *arguments, char *const *environment) {
    if (ip_is_active()) ip_leave_inherited();
    struct ip_own_environment own;
    int failed = real.posix_spawnp(made, file, actions, how, arguments, ip_environment_for(file, environment, &own));
    ip_forget_environment(&own);
    return failed;
}

/* The program that is started later has it, FD_CLOEXEC or not. */
int posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t *actions, int from, int to) {
    ip_leave_number(from);
    return real.posix_spawn_file_actions_adddup2(actions, from, to);
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
    if (ip_is(&s->thing, IP_SOCKET) || !ip_leave_ring(s)) return;
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
    ip_store_relaxed(&ip_filtered, 1);
    ip_store_relaxed(&ip_activity, IP_INACTIVE);
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

static void (*of_each)(struct fs_connection *c);

static void visit(struct ip_socket *s) {
    if (s->opened) of_each(ip_conn(s));
}

void ip_each_connection(void (*body)(struct fs_connection *c)) {
    of_each = body;
    ip_each_socket(visit);
}

static void say_goodbye(struct ip_socket *s) {
    struct fs_call call;
    if (!s->opened || !fs_call_enter(ip_conn(s), &call)) return;
    if (fs_note_ended(ip_conn(s))) fs_finish(ip_conn(s));
    fs_call_exit(ip_conn(s), &call); /* (nobody does what it says: other threads may be inside, and nothing is given back) */
}

void fs_libc_say_goodbye(void) {
    if (!ip_is_active() || !ip_is_own_process()) return;
    ip_lock();
    ip_each_socket(say_goodbye);
    ip_unlock();
}

/* (Inside the core is who ends the process in a handler of its own fault there, such as that of a buffer it may not touch: it may have locks of the
 * core's. Then the kernel ends the connections, as when a process is killed.) */
static void finish(void) {
    if (!ip_is_active() || !ip_is_own_process() || ip_thread.busy) return;
    ip_write_statistics();
    ip_end_report();
    fs_libc_say_goodbye();
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
