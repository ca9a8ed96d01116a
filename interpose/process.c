/* Beginning and end of the process, forks, threads, and programs that it becomes or starts.
 *
 * Responsible for: that a connection is let go of once by each process that has it. Never: other numbers. */
#include "handed_over.h"
#include "interpose.h"
#include "own_numbers.h"
#include "pairs.h"
#include "process.h"
#include "report.h"

#include <limits.h>
#include <paths.h>
#include <stdlib.h>

/* ---- forks ---------------------------------------------------------------------------------------------------------- */

static int IP_EACH_FORK forks; /* that have begun, and of which at most one is under way (fs_fork_prepare). With the lock */
static int IP_EACH_FORK prepared; /* the core knows of the one whose thread has the lock */
enum { BARE_NAPS = 10 }; /* of 100 us, for the core's thread to be gone */
static int copied_with_threads; /* the same of one without handlers: other threads of the program are copied in the midst of what they do */
static fs_word32 becoming; /* a thread calls execve: the first one alone says so of what that closes */

int ip_fork_is_under_way(void) { return forks > 0; }

static void prepare(struct ip_socket *s, void *with) {
    (void)with;
    ip_share_services(); /* (it may be a listener, which the child has too) */
    ip_share_pair(s);
    if (!ip_hand_over(s)) ip_prepare_to_share(s);
}

void ip_prepare_fork(void) {
    uint32_t seen;
    ip_judge_pairs();
    do { /* until no other thread has made a socket meanwhile */
        seen = ip_times_let_go;
        ip_begin_hand_over();
        ip_each_socket(prepare, NULL);
    } while (ip_times_let_go != seen);
}

/* From its end to the end of the fork the thread has the lock, which the child has to find free. (A handler of another library's that forks
 * in between makes a child of its own.) */
static void before(int bare) {
    if (ip_thread.forking) ip_thread.forking++;
    if (ip_thread.forking || !ip_is_own_process()) return;
    ip_lock();
    int served = ip_is_active();
    if (served) {
        forks++;
        fs_fork_prepare(bare);
        copied_with_threads = bare && !ip_has_one_thread(BARE_NAPS);
    }
    prepared = served;
    ip_thread.forking = 1;
}

static void before_fork(void) { before(0); }

/* (Parent and child come to the same bit: both have the list of instances as it was at the fork.) */
static struct fs_poller *shared_poller(struct ip_epoll *e) {
    static uint32_t families;
    struct fs_poller *p = ip_load_relaxed(&e->poller);
    if (!ip_load_relaxed(&e->family)) ip_store_relaxed(&e->family, UINT64_C(1) << families++ % 64);
    if (p) fs_poller_share(p, ip_load_relaxed(&e->family));
    return p;
}

/* The child may take a wakeup that was meant for a thread of this process. */
static void share_instance(struct ip_epoll *e, void *with) {
    (void)with;
    struct fs_poller *p = shared_poller(e);
    if (p) fs_poller_forked(p);
}

/* (For a word that does not change no page of the record's is copied.) */
static void set_word(fs_word32 *word, uint32_t value) {
    if (ip_load_relaxed(word) != value) ip_store_relaxed(word, value);
}

/* From here on another process may set what belongs to the socket. */
static void ask_for_flags(struct ip_socket *s, void *with) {
    (void)with;
    set_word(&s->nonblocking, IP_ASK);
    set_word(&s->unset, 0);
}

static void in_parent(int bare) {
    int error = errno;
    if (!ip_thread.forking || --ip_thread.forking) return;
    if (prepared) {
        int starts = ip_may_use_libc();
        if (!starts) ip_store_relaxed(&ip_thread_due, 1);
        fs_fork_in_parent(bare, starts && !ip_thread.forks_quietly);
        ip_each_socket(ask_for_flags, NULL);
        ip_hand_over_in_parent();
        ip_each_epoll(share_instance, NULL);
        forks--;
        ip_end_if_unneeded(); /* (it waited for the end of the fork) */
    }
    ip_unlock();
    errno = error;
}

static void start_over(struct ip_socket *s, void *with) {
    (void)with;
    struct fs_call call;
    set_word(&s->inside, 0); /* those of threads that are not here */
    ask_for_flags(s, NULL);
    if (!s->opened) return;
    if (ip_hold(s, &call)) ip_end(s, &call); /* one that waited for calls of other threads to be closed ends with this */
    if (s->opened) fs_fork_restart(ip_conn(s));
}

static void leave_shared_instance(struct ip_epoll *e, void *with) {
    (void)with;
    struct fs_poller *p = shared_poller(e);
    if (p) fs_poller_after_fork(p);
}

static void in_child(int bare) {
    if (!ip_thread.forking) return;
    ip_thread.forking = forks = 0;
    set_word(&becoming, 0);
    if (prepared) {
        ip_claim_memory();
        ip_numbers_after_fork();
        if (bare && copied_with_threads) ip_store_relaxed(&ip_copied_past, 1);
        set_word(&ip_thread_due, 0);
        fs_fork_in_child(bare);
        ip_each_epoll(leave_shared_instance, NULL);
        ip_poller_after_fork();
        ip_each_socket(start_over, NULL);
        ip_hand_over_in_child();
        ip_end_if_unneeded();
    }
    ip_unlock();
}

static void after_fork_in_parent(void) { in_parent(0); }
static void after_fork_in_child(void) { in_child(0); }

#ifdef __GLIBC__
/* (As the C library's, which is in each object that calls it; there the function after it has to be.) */
extern int __register_atfork(void (*before)(void), void (*parent)(void), void (*child)(void), void *object);
#pragma weak __register_atfork
extern void *__dso_handle __attribute__((visibility("hidden")));
int pthread_atfork(void (*before)(void), void (*parent)(void), void (*child)(void)) {
    return __register_atfork(before, parent, child, __dso_handle);
}
#endif

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

int pthread_cancel(pthread_t thread) {
    ip_store_relaxed(&ip_cancels, 1);
    return real.pthread_cancel(thread);
}

/* ---- other programs ----------------------------------------------------------------------------------------------------- */

/* A program that this process becomes gets what it inherits from the kernel. All else is let go of by the kernel, once it has done
 * so: it can refuse to for many reasons, and then this process goes on. (A child of vfork has the parent's connections in its memory:
 * they stay.) */
static int before_exec(void) {
    if (!ip_is_active()) return 0;
    ip_leave_inherited();
    if (!ip_is_own_process() || ip_exchange(&becoming, 1)) return 0;
    ip_lock();
    fs_expect_exec(1);
    ip_unlock();
    return 1;
}

static int after_exec(int expected, int failed) {
    if (!expected) return failed;
    fs_expect_exec(0);
    ip_store_relaxed(&becoming, 0);
    return failed;
}

int execve(const char *path, char *const *arguments, char *const *environment) {
    struct ip_own_environment own;
    int expected = before_exec();
    int failed = after_exec(expected, real.execve(path, arguments, ip_environment_for(path, environment, &own)));
    ip_forget_environment(&own);
    return failed;
}

int execv(const char *path, char *const *arguments) { return execve(path, arguments, environ); }

int execvpe(const char *file, char *const *arguments, char *const *environment) {
    struct ip_own_environment own;
    int expected = before_exec();
    int failed = after_exec(expected, real.execvpe(file, arguments, ip_environment_for(file, environment, &own)));
    ip_forget_environment(&own);
    return failed;
}

int execvp(const char *file, char *const *arguments) { return execvpe(file, arguments, environ); }

int fexecve(int fd, char *const *arguments, char *const *environment) {
    int expected = before_exec();
    return after_exec(expected, real.fexecve(fd, arguments, environment));
}

int execveat(int folder, const char *path, char *const *arguments, char *const *environment, int flags) {
    int expected = before_exec();
    return after_exec(expected, real.execveat(folder, path, arguments, environment, flags));
}

/* execl and its kin. The array is as long as the list, as the C library's own: a child of vfork(2), or a handler, may have little stack. */
#define FS_LIST(name, call, last) \
    int name(const char *path, const char *first, ...) { \
        va_list more; \
        size_t count = 0; \
        va_start(more, first); \
        for (const char *next = first; next; next = va_arg(more, char *)) count++; \
        va_end(more); \
        char *arguments[count + 1]; \
        va_start(more, first); \
        arguments[0] = (char *)first; \
        for (size_t i = 1; i <= count; i++) arguments[i] = va_arg(more, char *); \
        char *const *environment = last ? va_arg(more, char *const *) : environ; \
        va_end(more); \
        return call(path, arguments, environment); \
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

/* ---- beginning and end -------------------------------------------------------------------------------------------------- */

struct visit {
    void (*body)(struct fs_connection *c, void *with);
    void *with;
};

static void visit(struct ip_socket *s, void *with) {
    struct visit *visit = with;
    if (s->opened) visit->body(ip_conn(s), visit->with);
}

void ip_each_connection(void (*body)(struct fs_connection *c, void *with), void *with) {
    ip_each_socket(visit, &(struct visit){body, with});
}

static void say_goodbye(struct ip_socket *s, void *with) {
    (void)with;
    struct fs_call call;
    if (!s->opened || !fs_call_enter(ip_conn(s), &call)) return;
    if (fs_note_ended(ip_conn(s))) fs_finish(ip_conn(s));
    fs_call_exit(ip_conn(s), &call); /* (nobody does what it says: other threads may be inside, and nothing is given back) */
}

void fs_libc_say_goodbye(void) {
    if (!ip_is_active() || !ip_is_own_process()) return;
    ip_lock();
    ip_each_socket(say_goodbye, NULL);
    ip_unlock();
}

static fs_word32 finished; /* the process whose end was told */

/* (The report says why a connection is where it is.) */
static void open_early(struct ip_socket *s, void *with) {
    (void)with;
    ip_open(s);
}

/* What this front end does at the end of the process, however the program ends it. (Inside the core is who ends the process in a handler of
 * its own fault there, such as that of a buffer it may not touch: it may have locks of the core's. Then the kernel ends the connections, as
 * when a process is killed.) */
static void finish(void) {
    if (!ip_is_active() || !ip_is_own_process() || ip_thread.busy) return;
    if (ip_exchange(&finished, (uint32_t)getpid()) == (uint32_t)getpid()) return;
    ip_write_statistics();
    if (ip_has_report()) {
        ip_lock();
        ip_each_socket(open_early, NULL);
        ip_unlock();
        ip_end_report();
    }
    fs_libc_say_goodbye();
}

/* exit(3) calls the handlers of atexit(3) and the destructors, the last registered first, and then writes out the streams, the last opened
 * first. All of them may send. So a stream of ours, opened before those of the program, gets its only byte from the handler that was
 * registered first. */
static FILE *last_stream;
static char last_buffer[16]; /* for that byte: malloc may have no memory at the end, and first gathers all that the process has freed */

static ssize_t write_last(void *nothing, const char *byte, size_t size) {
    (void)nothing, (void)byte;
    finish();
    return (ssize_t)size;
}

static void look_at_open(struct ip_socket *s, void *any) { *(int *)any |= s->opened; }

/* (Most children of a server that has one for each connection have nothing to tell, and no page of the C library's streams. What is opened
 * later than this the kernel ends.) */
static int has_to_tell(void) {
    int any = ip_has_report() || ip_has_statistics();
    ip_lock();
    if (!any) ip_each_socket(look_at_open, &any);
    ip_unlock();
    return any;
}

static void at_exit(void *nothing) {
    (void)nothing;
    if (!ip_is_active() || !ip_is_own_process() || ip_thread.busy || !has_to_tell()) return;
    if (last_stream) putc_unlocked(0, last_stream); /* (a thread that was in it when this process was forked may have its lock) */
    else finish();
}

/* (What the C library's atexit and at_quick_exit call, with their object: its destruction would call the handler. Ours is never
 * unloaded.) */
extern int __cxa_atexit(void (*handler)(void *), void *argument, void *object);
#ifdef __GLIBC__
extern int __cxa_at_quick_exit(void (*handler)(void), void *object);
#pragma weak __cxa_at_quick_exit /* (libc_functions.h) */
#else
#define __cxa_at_quick_exit(handler, object) at_quick_exit(handler)
#endif

void ip_begin_end(void) {
    last_stream = fopencookie(NULL, "w", (cookie_io_functions_t){.write = write_last});
    if (last_stream) setvbuf(last_stream, last_buffer, _IOFBF, sizeof last_buffer);
    __cxa_atexit(at_exit, NULL, NULL);
    __cxa_at_quick_exit(finish, NULL);
}

void _exit(int status) {
    finish();
    for (;;) real._exit(status);
}

