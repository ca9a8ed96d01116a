/* Cases of processes: programs that they start, what they give up, and what they may not have. */
#include "conformance.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

/* What a process can do with the connection that it has got, and with new ones. */
static int converses(int a, int b) {
    char into[64];
    if (write(a, "there", 5) != 5 || recv(b, into, 5, MSG_WAITALL) != 5) return 0;
    return write(b, "back", 4) == 4 && recv(a, into, 4, MSG_WAITALL) == 4;
}

static int goes_on(int a, int b) {
    struct epoll_event e = {EPOLLIN, {.u64 = 7}}, told;
    char into[64];
    int c, d, epoll, right;
    if (!converses(a, b)) return 10;
    connect_pair(&c, &d);
    use(c, d);
    if (!converses(c, d)) return 20;
    epoll = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, d, &e) || epoll_wait(epoll, &told, 1, 10) != 0 || write(c, "told", 4) != 4) return 30;
    right = epoll_wait(epoll, &told, 1, 5000) == 1 && read(d, into, 64) == 4;
    struct pollfd p[2] = {{d, POLLIN, 0}, {b, POLLIN, 0}};
    right = right && poll(p, 2, 5) == 0 && shutdown(c, SHUT_WR) == 0 && poll(p, 2, 5000) == 1 && read(d, into, 64) == 0;
    close(epoll), close(c), close(d);
    return right ? 0 : 40;
}

static int status_of(pid_t child) {
    int status = -1;
    waitpid(child, &status, 0);
    return status;
}

/* ---- other programs ------------------------------------------------------------------------------------------------- */

static pid_t becomes(int number, const char *command) { /* by vfork, as libraries that start programs do */
    pid_t child = vfork();
    if (child == 0) {
        if (number >= 0) fcntl(number, F_SETFD, 0);
        execl("/bin/sh", "sh", "-c", command, NULL);
        _exit(1);
    }
    return child;
}

void spawns(int a, int b) {
    char into[64] = "", command[64];
    posix_spawn_file_actions_t actions;
    pid_t child;
    SAY(status_of(becomes(-1, "exit 3")));
    SAY(converses(a, b)); /* (it has FD_CLOEXEC, so it has stayed where it was) */
    child = vfork();
    if (child == 0) {
        dup2(a, 0), close(a), close(b);
        execl("/nonexistent", "nonexistent", NULL);
        _exit(4);
    }
    SAY(status_of(child));
    SAY(converses(a, b));
    int copy = dup(b);
    snprintf(command, sizeof command, "echo by vfork >&%d", copy);
    SAY(status_of(becomes(-1, command)));
    SAY(read(a, into, 64));
    show(into, 8);
    close(copy);
    SAY(converses(a, b));
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, b, 9); /* b has FD_CLOEXEC, its copy in the child has not */
    posix_spawn_file_actions_addclose(&actions, a);
    SAY(posix_spawnp(&child, "sh", &actions, NULL, (char *[]){"sh", "-c", "echo by action >&9", NULL}, environ));
    SAY(status_of(child));
    SAY(read(a, into, 64));
    show(into, 10);
    posix_spawn_file_actions_destroy(&actions);
    SAY(converses(a, b));
}

void daemons(int a, int b) {
    char into[64] = "";
    pid_t child = fork();
    if (child == 0) {
        close(a);
        if (daemon(0, 0)) _exit(1);
        long got;
        while ((got = read(b, into, sizeof into)) > 0) write(b, into, (size_t)got);
        _exit(0);
    }
    SAY(status_of(child));
    SAY(close(b));
    for (int i = 0; i < 50; i++)
        if (write(a, "to a daemon", 11) != 11 || recv(a, into, 11, MSG_WAITALL) != 11) SAY(i);
    show(into, 11);
    SAY(shutdown(a, SHUT_WR));
    SAY(read(a, into, 64));
}

/* ---- what a process gives up ------------------------------------------------------------------------------------------ */

static int drops_user(void) { return setgid(65534) || setuid(65534) ? 50 : 0; }
static int drops_root(void) { return chroot("/usr") || chdir("/") ? 50 : 0; }
/* (What the process has above them is closed: this program has few numbers.) */
static int closes_range(void) { return close_range(250, ~0u, 0) ? 50 : 0; }
static int closes_each(void) {
    for (int fd = 250; fd < 1100; fd++) close(fd);
    return 0;
}
static int closes_from(void) {
    closefrom(250);
    return 0;
}
static int limits(int what, rlim_t room) {
    struct rlimit limit;
    if (getrlimit(what, &limit)) return 50;
    limit.rlim_cur = room;
    return setrlimit(what, &limit) ? 50 : 0;
}
static int few_numbers(void) { return limits(RLIMIT_NOFILE, 64); }
static int hardly_a_number(void) { return limits(RLIMIT_NOFILE, 12); }
static int little_memory(void) {
    char line[256], *at = "";
    FILE *f = fopen("/proc/self/statm", "r");
    if (f) at = fgets(line, sizeof line, f), fclose(f);
    return limits(RLIMIT_AS, ((rlim_t)strtol(at, NULL, 10) << 12) + (1 << 20));
}
static int no_locked_memory(void) { return limits(RLIMIT_MEMLOCK, 0); }
static int no_processes(void) { return drops_user() + limits(RLIMIT_NPROC, 0); }
static int small_files(void) {
    signal(SIGXFSZ, SIG_IGN);
    return limits(RLIMIT_FSIZE, 4096);
}

/* A filter as sandboxes have it: `refused` fails so. */
static int set_filter(int refused, unsigned how) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)refused, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, how),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {4, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 50;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) ? 50 : 0;
}
enum { NO = SECCOMP_RET_ERRNO | EPERM, UNKNOWN = SECCOMP_RET_ERRNO | ENOSYS, DIES = (int)SECCOMP_RET_KILL_PROCESS };
#define FILTER(name, call, how) \
    static int name(void) { return set_filter(SYS_##call, (unsigned)how); }
FILTER(no_memory_files, memfd_create, NO)
FILTER(unknown_memory_files, memfd_create, UNKNOWN)
FILTER(no_messages, sendmsg, NO)
FILTER(no_message_received, recvmsg, NO)
FILTER(no_event_files, eventfd2, NO)
FILTER(no_clone, clone3, UNKNOWN)
FILTER(no_long_waits, epoll_pwait2, UNKNOWN)
FILTER(no_watch, pidfd_open, NO)
FILTER(no_lists, get_robust_list, NO)
FILTER(no_advice, madvise, NO)
FILTER(dies_of_memory_files, memfd_create, DIES)
FILTER(dies_of_messages, sendmsg, DIES)
FILTER(dies_of_futexes, futex, DIES)
FILTER(dies_of_event_files, eventfd2, DIES)

static const struct {
    const char *name;
    int (*change)(void);
} CHANGES[] = {
    {"setuid", drops_user}, {"chroot", drops_root}, {"close_range", closes_range}, {"close of each", closes_each},
    {"closefrom", closes_from},
    {"64 numbers", few_numbers}, {"12 numbers", hardly_a_number}, {"little memory", little_memory}, {"no locked memory", no_locked_memory},
    {"no processes", no_processes}, {"small files", small_files},
};
static const struct {
    const char *name;
    int (*change)(void);
} FILTERS[] = {
    {"no memfd_create", no_memory_files}, {"unknown memfd_create", unknown_memory_files}, {"no sendmsg", no_messages},
    {"no recvmsg", no_message_received}, {"no eventfd", no_event_files}, {"unknown clone3", no_clone},
    {"unknown epoll_pwait2", no_long_waits},
    {"no pidfd_open", no_watch}, {"no get_robust_list", no_lists}, {"no madvise", no_advice},
    {"dies of memfd_create", dies_of_memory_files},
    {"dies of sendmsg", dies_of_messages}, {"dies of futex", dies_of_futexes}, {"dies of eventfd", dies_of_event_files},
};

/* The change in a forked child: what it has goes on, and new connections work. */
static void change(const char *name, int (*change)(void), int a, int b) {
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        int failed = change();
        _exit(failed ? failed : goes_on(a, b));
    }
    printf("    %s: %#x\n", name, status_of(child)), fflush(stdout);
    SAY(converses(a, b));
}

void changes(int a, int b) {
    for (size_t i = 0; i < sizeof CHANGES / sizeof *CHANGES; i++) change(CHANGES[i].name, CHANGES[i].change, a, b);
}

void filtered(int a, int b) {
    for (size_t i = 0; i < sizeof FILTERS / sizeof *FILTERS; i++) change(FILTERS[i].name, FILTERS[i].change, a, b);
}

/* About as many numbers are left as there are on kernel TCP. */
void numbers_left(int a, int b) {
    pid_t child = fork();
    if (child == 0) {
        int count = 0, ends[20];
        few_numbers();
        for (int i = 0; i < 20; i += 2) connect_pair(&ends[i], &ends[i + 1]), use(ends[i], ends[i + 1]);
        while (dup(0) >= 0) count++;
        SAY(count >= 38 - 64 / 16); /* (fastsock has a sixteenth of the permitted numbers) */
        for (int i = 0; i < 20; i += 2) SAY(converses(ends[i], ends[i + 1]));
        _exit(goes_on(a, b) == 0);
    }
    SAY(status_of(child) != 0);
}

/* ---- threads at the end ------------------------------------------------------------------------------------------------- */

static void *sits(void *fd) {
    char into[64];
    struct pollfd p = {(int)(long)fd, POLLIN, 0};
    while (poll(&p, 1, -1) == 1 && read((int)(long)fd, into, 64) > 0) {}
    return NULL;
}
static void *asks(void *fd) {
    char byte;
    while (write((int)(long)fd, "x", 1) == 1 && read((int)(long)fd, &byte, 1) == 1) {}
    return NULL;
}
static void *answers(void *fd) {
    char byte;
    while (read((int)(long)fd, &byte, 1) == 1 && write((int)(long)fd, "x", 1) == 1) {}
    return NULL;
}

/* The process ends while threads of it wait, send and receive. The peer hears the end. */
void exits(int a, int b) {
    char into[64];
    for (int i = 0; i < 12; i++) {
        int c, d, e, f;
        connect_pair(&c, &d);
        use(c, d);
        pid_t child = fork();
        if (child == 0) {
            pthread_t thread;
            close(c);
            connect_pair(&e, &f);
            pthread_create(&thread, NULL, sits, (void *)(long)d);
            pthread_create(&thread, NULL, asks, (void *)(long)e);
            pthread_create(&thread, NULL, answers, (void *)(long)f);
            nap(5 + i);
            if (i % 3 == 0) exit(5);
            if (i % 3 == 1) _exit(5);
            pthread_kill(pthread_self(), SIGKILL);
        }
        close(d);
        int status = status_of(child);
        printf("    %#x %ld\n", status, (long)read(c, into, 64));
        close(c);
    }
    SAY(converses(a, b));
}

/* ---- instances ------------------------------------------------------------------------------------------------------------ */

/* Its first number is closed, and means a file. */
void renamed(int a, int b) {
    struct epoll_event e = {EPOLLIN, {.u64 = 7}}, told;
    char into[64];
    for (int early = 0; early < 2; early++) {
        int first = epoll_create1(EPOLL_CLOEXEC), c, d;
        connect_pair(&c, &d);
        if (early) SAY(epoll_ctl(first, EPOLL_CTL_ADD, d, &e));
        int copy = fcntl(first, F_DUPFD_CLOEXEC, 100);
        SAY(close(first));
        int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (!early) SAY(epoll_ctl(copy, EPOLL_CTL_ADD, d, &e));
        use(c, d);
        SAY(epoll_wait(copy, &told, 1, 10));
        SAY(write(c, "x", 1));
        SAY(epoll_wait(copy, &told, 1, 2000));
        SAY(read(d, into, 64));
        e.data.u64 = 8;
        SAY(epoll_ctl(copy, EPOLL_CTL_MOD, d, &e));
        SAY(write(c, "x", 1));
        SAY(epoll_wait(copy, &told, 1, 2000));
        SAY(told.data.u64);
        SAY(epoll_ctl(copy, EPOLL_CTL_DEL, d, NULL));
        SAY(epoll_wait(copy, &told, 1, 10));
        close(copy), close(file), close(c), close(d);
    }
    (void)a, (void)b;
}

/* Two processes have one instance: each adds its own, and what one adds is told. */
void shares(int a, int b) {
    struct epoll_event e = {EPOLLIN, {.u64 = 7}}, told;
    char into[64];
    int epoll = epoll_create1(EPOLL_CLOEXEC), go[2];
    if (pipe2(go, O_CLOEXEC)) abort();
    SAY(epoll_ctl(epoll, EPOLL_CTL_ADD, b, &e));
    SAY(epoll_wait(epoll, &told, 1, 5));
    pid_t child = fork();
    if (child == 0) {
        int c, d;
        connect_pair(&c, &d);
        use(c, d);
        e.data.u64 = 9;
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, d, &e) || write(c, "x", 1) != 1) _exit(1);
        if (epoll_wait(epoll, &told, 1, 5000) != 1 || told.data.u64 != 9 || read(d, into, 64) != 1) _exit(2);
        if (write(go[1], "", 1) != 1 || epoll_wait(epoll, &told, 1, 5000) != 1) _exit(3);
        _exit(told.data.u64 == 7 ? 0 : 4);
    }
    SAY(read(go[0], into, 1));
    SAY(write(a, "x", 1));
    SAY(status_of(child));
    SAY(epoll_wait(epoll, &told, 1, 2000));
    SAY(read(b, into, 64));
    SAY(epoll_wait(epoll, &told, 1, 10));
    close(epoll), close(go[0]), close(go[1]);
}
