/* Cases of numbers: copies, ends, and others who use them. */
#include "conformance.h"

#include <linux/sched.h>
#include <sched.h>
#include <setjmp.h>

void copies(int a, int b) {
    char into[64] = "";
    int copy = dup(a), far = fcntl(a, F_DUPFD_CLOEXEC, 200), onto = dup2(b, 210);
    SAY(far >= 200);
    SAY(close(a));
    SAY(write(a, "x", 1));
    SAY(write(copy, "copy", 4));
    SAY(read(onto, into, 64));
    show(into, 4);
    SAY(close(copy));
    SAY(write(far, "far", 3));
    SAY(read(b, into, 64));
    SAY(close(b));
    SAY(dup2(far, 211));
    SAY(close_range(far, far, 0));
    SAY(syscall(SYS_close, 211));
    SAY(read(210, into, 64));
    SAY(close(210));
    SAY(close(210));
}

/* A program closes all numbers that it does not know, and goes on. */
void greedy(int a, int b) {
    char into[64];
    for (int fd = 3; fd < 5000; fd++)
        if (fd != a && fd != b) close(fd);
    if (a < b) SAY(close_range((unsigned)b + 1, 5000, 0));
    int mine = dup(1), c, d;
    SAY(write(a, "still", 5));
    SAY(read(b, into, 64));
    connect_pair(&c, &d);
    use(c, d);
    SAY(write(c, "new", 3));
    struct pollfd p[2] = {{d, POLLIN, 0}, {b, POLLIN, 0}};
    SAY(poll(p, 2, 2000));
    SAY(read(d, into, 64));
    SAY(close(mine));
    close(c);
    close(d);
}

void ends(int a, int b) {
    char into[64];
    signal(SIGPIPE, SIG_IGN);
    SAY(write(a, "last", 4));
    SAY(shutdown(a, SHUT_WR));
    SAY(write(a, "more", 4));
    SAY(read(b, into, 64));
    SAY(read(b, into, 64));
    SAY(read(b, into, 64));
    SAY(write(b, "back", 4));
    SAY(read(a, into, 64));
    SAY(shutdown(b, SHUT_RDWR));
    SAY(read(a, into, 64));
    SAY(close(b));
    struct pollfd p = {a, POLLIN | POLLOUT, 0};
    SAY(poll(&p, 1, 1000));
    SAY(p.revents);
}

void resets(int a, int b) {
    char into[64];
    SAY(write(a, "unread", 6));
    arrive(b, 6);
    SAY(close(b));
    nap(20);
    SAY(read(a, into, 64));
    SAY(read(a, into, 64));
    SAY(send(a, "x", 1, MSG_NOSIGNAL));
}

/* ---- others use the number ------------------------------------------------------------------------------------------ */

void streams(int a, int b) {
    char into[64] = "";
    SAY(write(a, "before ", 7));
    FILE *stream = fdopen(dup(b), "r+");
    SAY(fgets(into, 8, stream) != NULL);
    show(into, 7);
    fputs("from a stream", stream);
    fclose(stream);
    SAY(read(a, into, 64));
    show(into, 13);
    SAY(dprintf(a, "%d", 42));
    SAY(read(b, into, 64));
    SAY(write(a, "after", 5));
    SAY(read(b, into, 64));
}

/* A listener that this process did not make. */
void inherits(int a, int b) {
    char into[64];
    int c, d;
    connect_by(&c, &d, 1);
    use(c, d);
    SAY(write(c, "by another listener", 19));
    SAY(read(d, into, 64));
    show(into, 19);
    SAY(close(c));
    SAY(read(d, into, 64));
    SAY(close(d));
    (void)a, (void)b;
}

/* The peer has gone, and what it sent lies unread: nobody can send it again. */
void orphan(int a, int b) {
    char into[64] = "", *line;
    SAY(write(a, "left\n", 5));
    arrive(b, 5);
    SAY(close(a));
    nap(20);
    FILE *stream = fdopen(dup(b), "r");
    line = fgets(into, sizeof into, stream);
    show(line ? line : "nothing", 4);
    SAY(fgetc(stream) == EOF);
    SAY(fclose(stream));
    SAY(read(b, into, 64));
}

void passed(int a, int b) {
    char into[64] = "";
    SAY(write(a, "unread ", 7));
    int got = pass_on(dup(b));
    SAY(write(a, "later", 5));
    arrive(got, 12);
    SAY(read(got, into, 64));
    show(into, 12);
    close(got);
}

void spliced(int a, int b) {
    char into[64] = "";
    int pipes[2];
    if (pipe2(pipes, O_CLOEXEC)) abort();
    SAY(write(a, "through a pipe", 14));
    arrive(b, 14);
    SAY(splice(b, NULL, pipes[1], NULL, 64, 0));
    SAY(read(pipes[0], into, 64));
    show(into, 14);
    close(pipes[0]), close(pipes[1]);
}

static pid_t by_number(void) { return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); }

static pid_t by_number_again(void) {
    struct clone_args how = {.exit_signal = SIGCHLD};
    return (pid_t)syscall(SYS_clone3, &how, sizeof how);
}

static int go_on(void *where) { longjmp(*(jmp_buf *)where, 1); }

static pid_t by_clone(void) {
    static char stack[65536] __attribute__((aligned(16)));
    jmp_buf here; /* the child has a copy of this stack, and goes on there */
    if (setjmp(here)) return 0;
    return clone(go_on, stack + sizeof stack, SIGCHLD, &here);
}

static pid_t (*const FORKS[])(void) = {fork, _Fork, by_number, by_number_again, by_clone};

static int closes_both(void *numbers) { return close(((int *)numbers)[0]) | close(((int *)numbers)[1]); }

/* The child of each kind of fork has the connection as its parent has, and holds it. */
void forks(int a, int b) {
    static char stack[65536] __attribute__((aligned(16)));
    char into[64] = "";
    int status, c, d;
    pid_t child;
    for (size_t i = 0; i < sizeof FORKS / sizeof *FORKS; i++) {
        connect_pair(&c, &d);
        use(c, d);
        child = FORKS[i]();
        if (child == 0) {
            close(d);
            if (write(c, "child", 5) != 5 || read(c, into, 4) != 4) _exit(1);
            nap(50); /* the parent has closed it */
            if (write(c, "last", 4) != 4) _exit(2);
            connect_pair(&c, &d);
            use(c, d);
            _exit(0);
        }
        SAY(read(d, into, 64));
        show(into, 5);
        SAY(close(c));
        SAY(write(d, "back", 4));
        SAY(read(d, into, 64));
        SAY(read(d, into, 64));
        SAY(waitpid(child, &status, 0) == child);
        SAY(status);
        close(d);
    }
    child = vfork();
    if (child == 0) {
        close(a);
        close(b);
        _exit(0);
    }
    waitpid(child, &status, 0);
    SAY(write(a, "still", 5));
    SAY(read(b, into, 64));
    child = clone(closes_both, stack + sizeof stack, CLONE_VM | SIGCHLD, (int[2]){a, b});
    waitpid(child, &status, 0);
    SAY(write(a, "still", 5));
    SAY(read(b, into, 64));
}

void programs(int a, int b) {
    char into[64] = "", command[64];
    int status, copy = dup(b); /* a copy is inherited */
    posix_spawn_file_actions_t actions;
    pid_t child;
    SAY(write(a, "for cat\n", 8));
    snprintf(command, sizeof command, "head -n1 <&%d >&%d", copy, copy);
    SAY(system(command));
    SAY(read(a, into, 64));
    show(into, 7);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, copy, 1);
    SAY(posix_spawnp(&child, "echo", &actions, NULL, (char *[]){"echo", "spawned", NULL}, environ));
    waitpid(child, &status, 0);
    SAY(read(a, into, 64));
    child = fork();
    if (child == 0) {
        dup2(b, 1);
        execlp("echo", "echo", "executed", NULL);
        _exit(1);
    }
    waitpid(child, &status, 0);
    SAY(read(a, into, 64));
    show(into, 8);
    SAY(write(b, "and on", 6));
    SAY(read(a, into, 64));
}
