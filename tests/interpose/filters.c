/* A program that filters its system calls, and is killed for one that it does not make itself. */
#include "conformance.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#define ALLOW(name) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static struct sock_filter ALLOWED[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    ALLOW(read), ALLOW(write), ALLOW(close), ALLOW(ioctl), ALLOW(ppoll), ALLOW(socket), ALLOW(bind), ALLOW(listen), ALLOW(connect),
    ALLOW(accept4), ALLOW(getsockname), ALLOW(nanosleep), ALLOW(clock_nanosleep), ALLOW(epoll_ctl), ALLOW(epoll_pwait), ALLOW(brk),
    ALLOW(mmap), ALLOW(munmap), ALLOW(clone), ALLOW(set_robust_list), ALLOW(rt_sigprocmask), ALLOW(wait4), ALLOW(exit_group),
#ifdef SYS_poll
    ALLOW(poll), ALLOW(epoll_wait), ALLOW(accept),
#endif
#ifdef SYS_rseq
    ALLOW(rseq),
#endif
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
};
static const struct sock_fprog FILTER = {sizeof ALLOWED / sizeof *ALLOWED, ALLOWED};

static void by_prctl(void) { SAY(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &FILTER)); }
static void by_number(void) { SAY(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &FILTER)); }
static void asks_whether(void) { SAY(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL)); }

static void under_filter(void (*filter)(void)) {
    char into[64] = "";
    int c, d, e = epoll_create1(EPOLL_CLOEXEC), status;
    struct epoll_event event = {EPOLLIN, {.u64 = 42}};
    connect_pair(&c, &d);
    use(c, d);
    epoll_ctl(e, EPOLL_CTL_ADD, d, &event);
    SAY(write(c, "before", 6));
    arrive(d, 6);
    SAY(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    filter();
    SAY(epoll_wait(e, &event, 1, 2000));
    SAY((long)event.data.u64);
    SAY(read(d, into, 64));
    show(into, 6);
    SAY(epoll_wait(e, &event, 1, 1));
    SAY(write(d, "back", 4));
    SAY(read(c, into, 64));
    SAY(close(c));
    SAY(epoll_wait(e, &event, 1, 2000));
    SAY(read(d, into, 64));
    SAY(close(d));
    connect_pair(&c, &d);
    use(c, d);
    pid_t child = fork();
    if (child == 0) {
        if (write(c, "child", 5) != 5) _exit(1);
        _exit(0);
    }
    SAY(read(d, into, 64));
    SAY(waitpid(child, &status, 0) == child);
    SAY(status);
    struct pollfd p = {c, POLLIN | POLLOUT, 0};
    SAY(poll(&p, 1, 2000));
    SAY(p.revents);
    close(e);
}

void filters(int a, int b) {
    void (*const ways[])(void) = {by_prctl, by_number, asks_whether};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            under_filter(ways[i]);
            _exit(0);
        }
        SAY(waitpid(child, &status, 0) == child);
        SAY(status);
    }
    (void)a, (void)b;
}

/* A child that gives up its user and what it could open or start before it filters its system calls, as sshd's does. */
static int in_sandbox(int fd) {
    char into[64];
    struct rlimit none = {0, 0}, one = {1, 1};
    if (geteuid() == 0 && (setgid(65534) || setuid(65534))) return 1;
    if (setrlimit(RLIMIT_FSIZE, &none) || setrlimit(RLIMIT_NPROC, &none) || setrlimit(RLIMIT_NOFILE, &one)) return 2;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &FILTER)) return 3;
    for (int i = 0; i < 100; i++) {
        if (write(fd, "question", 8) != 8) return 4;
        if (read(fd, into, sizeof into) != 6) return 5;
    }
    return 0;
}

void sandboxes(int a, int b) {
    char into[64];
    int status = 0, turns = 0;
    use(a, b);
    pid_t child = fork();
    if (child == 0) {
        close(a);
        _exit(in_sandbox(b));
    }
    close(b);
    while (read(a, into, sizeof into) == 8 && write(a, "answer", 6) == 6) turns++;
    SAY(turns);
    SAY(waitpid(child, &status, 0) == child);
    SAY(status);
    SAY(read(a, into, sizeof into));
    SAY(close(a));
}
