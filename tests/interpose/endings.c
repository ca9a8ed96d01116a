/* Cases of how a process ends, or becomes another program: what it sends last, what it hands on, and what it keeps if it does not. */
#include "conformance.h"

#include <dlfcn.h>
#include <linux/close_range.h>
#include <sys/stat.h>

static int converses(int a, int b) {
    char into[8];
    return write(a, "there", 5) == 5 && recv(b, into, 5, MSG_WAITALL) == 5 &&
           write(b, "back", 4) == 4 && recv(a, into, 4, MSG_WAITALL) == 4;
}

static int status_of(pid_t child) {
    int status = -1;
    waitpid(child, &status, 0);
    return status;
}

/* ---- other programs ----------------------------------------------------------------------------------------------------- */

int execveat(int folder, const char *path, char *const *arguments, char *const *environment, int flags);

static char *const *words; /* of the program that comes */

static int by_execve(const char *path) { return execve(path, words, environ); }
static int by_execv(const char *path) { return execv(path, words); }
static int by_execvpe(const char *path) { return execvpe(path, words, environ); }
static int by_execveat(const char *path) { return execveat(AT_FDCWD, path, words, environ, 0); }
static int by_number(const char *path) { return (int)syscall(SYS_execve, path, words, environ); }
static int by_number_at(const char *path) { return (int)syscall(SYS_execveat, AT_FDCWD, path, words, environ, 0); }
static int by_file(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC), failed = fexecve(fd, words, environ), error = errno;
    close(fd);
    errno = error;
    return failed;
}
static int by_spawn(const char *path) {
    pid_t child;
    errno = posix_spawn(&child, path, NULL, NULL, words, environ);
    if (errno) return -1;
    return waitpid(child, NULL, 0) < 0;
}

static const struct {
    const char *name;
    int (*call)(const char *path);
    int looks_for_shell; /* what is no program is one for the shell */
    int returns;
} WAYS[] = {
    {"execve", by_execve, 0, 0}, {"execv", by_execv, 0, 0}, {"execvpe", by_execvpe, 1, 0}, {"execveat", by_execveat, 0, 0},
    {"execve by number", by_number, 0, 0}, {"execveat by number", by_number_at, 0, 0}, {"fexecve", by_file, 0, 0},
    {"posix_spawn", by_spawn, 0, 1},
};
enum { WAY = sizeof WAYS / sizeof *WAYS };

/* A program that cannot be executed leaves all as it was. */
void failing_programs(int a, int b) {
    char folder[] = "/tmp/conformance-XXXXXX", bad[64], busy[64], denied[64], *huge = malloc(200000), *few[] = {"x", NULL}, *many[64] = {0};
    if (!mkdtemp(folder)) abort();
    snprintf(bad, sizeof bad, "%s/bad", folder), snprintf(busy, sizeof busy, "%s/busy", folder);
    snprintf(denied, sizeof denied, "%s/denied", folder);
    int file = open(bad, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
    if (write(file, "\177ELFbad", 7) != 7) abort();
    close(file), close(open(denied, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    int written = open(busy, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
    memset(huge, 'x', 199999), huge[199999] = 0;
    for (int i = 0; i < 63; i++) many[i] = huge;
    for (int shared = 0; shared < 2; shared++) { /* the second time it has a number that programs inherit */
        int copy = shared ? dup(b) : -1;
        for (int way = 0; way < WAY; way++) {
            const char *failures[] = {bad, "/bin/true", "/nonexistent", denied, busy};
            for (int i = 0; i < 5; i++) {
                if (i == 0 && WAYS[way].looks_for_shell) continue;
                words = i == 1 ? many : few;
                errno = 0;
                int failed = WAYS[way].call(failures[i]);
                printf("    %s: %d %s, %d\n", WAYS[way].name, failed, strerrorname_np(errno), converses(a, b)), fflush(stdout);
            }
        }
        if (copy >= 0) close(copy);
    }
    close(written), unlink(bad), unlink(busy), unlink(denied), rmdir(folder), free(huge);
}

/* A program that is inherited a connection has it whole; and one that is not ends it. */
void becoming(int a, int b) {
    char into[64] = "", command[64];
    for (int way = 0; way < WAY; way++) {
        int c, d;
        connect_pair(&c, &d);
        use(c, d);
        snprintf(command, sizeof command, "read line <&%d; echo \"got $line\" >&%d", d, d);
        words = (char *[]){"sh", "-c", command, NULL};
        SAY(write(c, "a line\n", 7));
        pid_t child = fork();
        if (child == 0) {
            close(c);
            fcntl(d, F_SETFD, 0);
            WAYS[way].call("/bin/sh");
            _exit(WAYS[way].returns ? 0 : 1);
        }
        close(d);
        printf("    %s: %#x\n", WAYS[way].name, status_of(child)), fflush(stdout);
        SAY(recv(c, into, 11, MSG_WAITALL));
        show(into, 11);
        SAY(read(c, into, 64));
        close(c);
        if (WAYS[way].returns) continue;
        int waits[2]; /* the program reads it, and runs until it ends */
        connect_pair(&c, &d);
        use(c, d);
        if (pipe(waits)) abort();
        fcntl(waits[1], F_SETFD, FD_CLOEXEC);
        snprintf(command, sizeof command, "read line <&%d", waits[0]);
        words = (char *[]){"sh", "-c", command, NULL};
        child = fork();
        if (child == 0) {
            close(c);
            WAYS[way].call("/bin/sh");
            _exit(1);
        }
        close(waits[0]);
        SAY(converses(c, d));
        SAY(close(d));
        SAY(read(c, into, 64)); /* nobody has the other end, though the child lives */
        close(c), close(waits[1]);
        status_of(child);
    }
    SAY(converses(a, b));
}

/* True if both ends are on the ring, within some seconds. */
static int moves(int c, int d) {
    struct { int sends, receives, attached, reason; } path[2];
    int (*path_of)(int, void *) = (int (*)(int, void *))library_function("fs_libc_path");
    for (int i = 0; i < 4000; i++) {
        memset(path, 0, sizeof path);
        if (!converses(c, d)) return -1;
        if (path_of && path_of(c, &path[0]) && path_of(d, &path[1]) && path[0].sends && path[1].sends) return 1;
        if (i > 100) {
            if (!path_of) return 0;
            nap(1);
        }
    }
    return 0;
}

/* A child that has become another program holds nothing of what that does not inherit: it is no holder of a connection any more. */
void holders(int a, int b) {
    int c, d, e, f, other = moves(a, b), waits[2];
    char command[64];
    connect_pair(&c, &d), connect_pair(&e, &f);
    if (pipe(waits)) abort();
    fcntl(waits[1], F_SETFD, FD_CLOEXEC);
    snprintf(command, sizeof command, "read line <&%d", waits[0]);
    words = (char *[]){"sh", "-c", command, NULL};
    pid_t child = fork();
    if (child == 0) {
        execve("/nonexistent", words, environ); /* which is not the end of it */
        execve("/bin/sh", words, environ);
        _exit(1);
    }
    SAY(moves(c, d) == other);
    SAY(close(waits[1]));
    SAY(status_of(child) != 0);
    SAY(converses(c, d));
    SAY(close(c));
    SAY(read(d, command, 64));
    child = fork(); /* one that cannot become another program still is one */
    if (child == 0) {
        close(e);
        words = (char *[]){"x", NULL};
        if (execve("/nonexistent", words, environ) == 0) _exit(1);
        nap(300);
        _exit(write(f, "late", 4) != 4);
    }
    SAY(close(f));
    SAY(recv(e, command, 4, MSG_WAITALL));
    SAY(read(e, command, 64));
    SAY(status_of(child));
    close(d), close(e), close(waits[0]);
}

/* ---- ends ------------------------------------------------------------------------------------------------------------------ */

static int at_end;
static void says(const char *what) {
    if (send(at_end, what, strlen(what), MSG_NOSIGNAL) != (ssize_t)strlen(what)) abort();
}
static void by_atexit(void) { says("atexit "); }
static void by_quick_exit(void) { says("at_quick_exit "); }
static void by_on_exit(int status, void *nothing) {
    (void)status, (void)nothing;
    says("on_exit ");
}
static ssize_t by_stream(void *nothing, const char *text, size_t size) {
    (void)nothing;
    return send(at_end, text, size, MSG_NOSIGNAL);
}

static void *ends_late(void *nothing) {
    nap(50);
    return nothing;
}

static void by_exit(void) { exit(5); }
static void by_quick(void) { quick_exit(5); }
static void at_once(void) { _exit(5); }
static void At_once(void) { _Exit(5); }
static void exits_by_number(void) { syscall(SYS_exit_group, 5); }
static void aborts(void) { abort(); }
static void is_killed(void) { raise(SIGKILL); }
static void by_last_thread(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, ends_late, NULL);
    pthread_detach(thread);
    pthread_exit(NULL);
}
static void by_thread(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, (void *(*)(void *))by_exit, NULL);
    pause();
}

static const struct {
    const char *name;
    void (*call)(void);
} ENDS[] = {
    {"exit", by_exit}, {"quick_exit", by_quick}, {"_exit", at_once}, {"_Exit", At_once}, {"exit_group by number", exits_by_number},
    {"abort", aborts},
    {"SIGKILL", is_killed}, {"the last thread", by_last_thread}, {"another thread", by_thread},
};

/* What handlers of the end, destructors and streams send arrives. CONFORMANCE_PLUGIN: a library whose destructor sends too. */
void last_words(int a, int b) {
    const char *plugin = getenv("CONFORMANCE_PLUGIN");
    for (size_t i = 0; i < sizeof ENDS / sizeof *ENDS; i++) {
        char into[256];
        int c, d;
        connect_pair(&c, &d);
        use(c, d);
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            close(c);
            at_end = d;
            atexit(by_atexit), on_exit(by_on_exit, NULL), at_quick_exit(by_quick_exit);
            FILE *stream = fopencookie(NULL, "w", (cookie_io_functions_t){.write = by_stream});
            fputs("stream ", stream);
            if (plugin) {
                void (*has)(int) = (void (*)(int))dlsym(dlopen(plugin, RTLD_NOW), "plugin_has");
                has(d);
            }
            ENDS[i].call();
            _exit(1);
        }
        close(d);
        long got, all = 0;
        while ((got = read(c, into + all, sizeof into - (size_t)all)) > 0) all += got;
        printf("    %s: %#x %ld ", ENDS[i].name, status_of(child), got), show(into, all);
        close(c);
    }
    SAY(converses(a, b));
}

/* ---- what the kernel refuses ------------------------------------------------------------------------------------------------ */

void refusals(int a, int b) {
    SAY(close_range((unsigned)a, (unsigned)a, 1 << 20));
    SAY(close_range((unsigned)b, (unsigned)a, 0));
    SAY(converses(a, b));
    SAY(syscall(SYS_close_range, a, ~0u, 64));
    SAY(converses(a, b));
    SAY(dup3(0, a, 1));
    SAY(dup3(-1, a, O_CLOEXEC));
    SAY(dup2(1 << 30, b));
    SAY(converses(a, b));
    SAY(close_range((unsigned)a, (unsigned)a, CLOSE_RANGE_CLOEXEC));
    SAY(converses(a, b));
    SAY(close_range((unsigned)a, (unsigned)a, CLOSE_RANGE_UNSHARE));
    SAY(write(a, "x", 1));
    SAY(read(b, &(char[1]){0}, 1));
}
