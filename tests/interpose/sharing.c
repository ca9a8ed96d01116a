/* Cases of what a socket has in common with its copies: flags and timeouts that another process sets, and registrations by number. */
#include "conformance.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>

static void leave_alone(int fd) { (void)fd; }
static void no_wait(int fd) { fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK); }
static void no_wait_by_ioctl(int fd) { ioctl(fd, FIONBIO, &(int){1}); }
static void wait_again(int fd) { fcntl(fd, F_SETFL, O_RDWR); }
static void receive_shortly(int fd) { setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){0, 20000}, sizeof(struct timeval)); }
static void send_shortly(int fd) { setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &(struct timeval){0, 20000}, sizeof(struct timeval)); }
static void receive_at_leisure(int fd) { setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){0, 0}, sizeof(struct timeval)); }

/* A child does it to the number: then it ends, or stays until `*stay` is closed. */
static pid_t by_child(void (*what)(int fd), int fd, int *stay) {
    int ends[2], done[2];
    char c;
    pipe(ends), pipe(done);
    pid_t child = fork();
    if (child == 0) {
        what(fd);
        close(ends[1]), close(done[0]);
        write(done[1], "x", 1);
        if (stay) read(ends[0], &c, 1);
        _exit(0);
    }
    close(ends[0]), close(done[1]);
    read(done[0], &c, 1);
    close(done[0]);
    if (!stay) waitpid(child, NULL, 0), close(ends[1]);
    else *stay = ends[1];
    return child;
}

static long fill(int fd) {
    static char much[1 << 16];
    while (send(fd, much, sizeof much, 0) > 0) {}
    return errno;
}

/* Each is done by a child that has ended, and by one that lives; what follows is undone in the same way. */
void flags_of_others(int a, int b) {
    static const struct {
        const char *name;
        void (*set)(int fd), (*undo)(int fd);
    } ways[] = {{"fcntl", no_wait, wait_again}, {"ioctl", no_wait_by_ioctl, wait_again}, {"timeout", receive_shortly, receive_at_leisure}};
    char into[8];
    for (int lives = 0; lives < 2; lives++)
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            int stay;
            printf("%s\n", ways[i].name);
            SAY(write(a, "x", 1));
            SAY(recv(b, into, 8, 0));
            pid_t child = by_child(ways[i].set, b, lives ? &stay : NULL);
            SAY(recv(b, into, 8, 0));
            SAY(read(b, into, 8));
            if (lives) close(stay), waitpid(child, NULL, 0);
            SAY(recv(b, into, 8, 0));
            by_child(ways[i].undo, b, NULL);
            if (!fork()) nap(30), write(a, "y", 1), _exit(0);
            SAY(recv(b, into, 8, 0)); /* (it waits) */
            wait(NULL);
            by_child(leave_alone, b, NULL);
        }
    by_child(send_shortly, a, NULL);
    SAY(fill(a));
}

/* A number of an epoll's member is closed, and is one of the same socket, or of another, again. */
void numbered_again(int a, int b) {
    struct epoll_event e = {.events = EPOLLIN, .data.u64 = 1}, out[4];
    char into[8];
    int epoll = epoll_create1(0), other = open("/dev/null", O_RDONLY);
    SAY(epoll_ctl(epoll, EPOLL_CTL_ADD, b, &e));
    SAY(write(a, "x", 1));
    SAY(epoll_wait(epoll, out, 4, 1000));
    int copy = dup(b);
    close(b);
    SAY(epoll_wait(epoll, out, 4, 1000));
    SAY(dup2(copy, b) == b);
    SAY(epoll_ctl(epoll, EPOLL_CTL_ADD, b, &e));
    e.data.u64 = 2;
    SAY(epoll_ctl(epoll, EPOLL_CTL_MOD, b, &e));
    SAY(epoll_wait(epoll, out, 4, 1000));
    SAY(out[0].data.u64);
    SAY(epoll_ctl(epoll, EPOLL_CTL_DEL, b, NULL));
    SAY(epoll_ctl(epoll, EPOLL_CTL_DEL, b, NULL));
    SAY(epoll_wait(epoll, out, 4, 50));
    SAY(epoll_ctl(epoll, EPOLL_CTL_ADD, b, &e));
    close(b);
    SAY(dup2(other, b) == b); /* another file: the member stays, and no number leads to it */
    SAY(epoll_ctl(epoll, EPOLL_CTL_DEL, b, NULL));
    SAY(epoll_wait(epoll, out, 4, 1000));
    SAY(read(copy, into, 8));
    SAY(epoll_wait(epoll, out, 4, 50));
    close(b);
    SAY(dup2(copy, b) == b);
    SAY(epoll_ctl(epoll, EPOLL_CTL_DEL, b, NULL));
    SAY(write(a, "x", 1));
    SAY(epoll_wait(epoll, out, 4, 50));
    close(copy);
    close(other);
    close(epoll);
}

/* ---- what the process may have ------------------------------------------------------------------------------------------- */

static void a_connection(void) {
    char into[8];
    int c, d;
    connect_pair(&c, &d);
    use(c, d);
    SAY(write(c, "x", 1));
    SAY(read(d, into, 8));
    close(c), close(d);
}

static void small_files(void) { setrlimit(RLIMIT_FSIZE, &(struct rlimit){0, 0}); }
static void small_pages(void) { setrlimit(RLIMIT_FSIZE, &(struct rlimit){1 << 20, 1 << 20}); }
static void few_numbers(void) { setrlimit(RLIMIT_NOFILE, &(struct rlimit){40, 40}); }
static void no_lock(void) { setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){0, 0}); }
static void little_lock(void) { setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){16 << 20, 16 << 20}), mlockall(MCL_FUTURE); }
static void little_room(void) { setrlimit(RLIMIT_AS, &(struct rlimit){64 << 20, 64 << 20}); }

/* Each in a process of its own, which makes a connection under the limit. */
void limited(int a, int b) {
    void (*each[])(void) = {small_files, small_pages, few_numbers, no_lock, little_lock, little_room};
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        int status;
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            signal(SIGXFSZ, SIG_DFL);
            each[i]();
            char into[8];
            int c, d;
            connect_pair(&c, &d);
            use(c, d);
            _exit(write(c, "x", 1) == 1 && read(d, into, 8) == 1 ? 7 : 8);
        }
        waitpid(child, &status, 0);
        SAY(status);
    }
    /* The connection has moved: a limit of now is no limit of then. */
    if (!fork()) {
        char into[8];
        signal(SIGXFSZ, SIG_DFL);
        small_files();
        few_numbers();
        write(a, "unread", 6);
        FILE *stream = fdopen(b, "r");
        _exit(stream && fread(into, 1, 6, stream) == 6 ? 7 : 8);
    }
    int status;
    wait(&status);
    SAY(status);
    if (!on_unix_streams()) SAY(write(a, "after", 5)); /* (the child's bridge ends the stream for all: AF_UNIX may tell this one already) */
}

static long locked_kib(void) {
    long kib = 0;
    char line[200];
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status)) sscanf(line, "VmLck: %ld", &kib);
    fclose(status);
    return kib;
}

/* All that is mapped later is locked, and made: but not what nobody touches. */
void locked(int a, int b) {
    SAY(mlockall(MCL_FUTURE));
    long before = locked_kib();
    for (int i = 0; i < 3; i++) {
        int c, d;
        connect_pair(&c, &d);
        use(c, d);
        SAY(locked_kib() - before < 4096);
    }
    SAY(munlockall());
    SAY(write(a, "x", 1));
    (void)b;
    a_connection();
}

/* ---- threads that part --------------------------------------------------------------------------------------------------- */

static int parted(int way) {
    switch (way) {
    case 0: return unshare(CLONE_NEWUSER);
    case 1: return unshare(CLONE_VM);
    case 2: return unshare(CLONE_FILES);
    case 3: return (int)syscall(SYS_unshare, CLONE_NEWUSER | CLONE_NEWNS);
    case 4: return (int)syscall(SYS_close_range, 4000, 4001, 2 /* CLOSE_RANGE_UNSHARE */);
    default: return unshare(CLONE_NEWUSER | CLONE_NEWPID);
    }
}

static int ends_of[2];

static void *in_thread(void *way) {
    char into[8];
    SAY(parted((int)(intptr_t)way));
    SAY(write(ends_of[0], "thread", 6));
    SAY(read(ends_of[1], into, 6));
    close(ends_of[0]); /* (in the table that is this thread's alone, if it is) */
    return NULL;
}

/* By a process of one thread, and by a thread of several. */
void parts(int a, int b) {
    for (int way = 0; way < 6; way++)
        for (int threads = 0; threads < 2; threads++) {
            char into[8];
            int status;
            pthread_t thread;
            fflush(stdout);
            if (!fork()) {
                int c, d;
                connect_pair(&c, &d);
                use(c, d);
                ends_of[0] = c, ends_of[1] = d;
                SAY(write(c, "before", 6));
                if (threads) pthread_create(&thread, NULL, in_thread, (void *)(intptr_t)way), pthread_join(thread, NULL);
                else SAY(parted(way));
                SAY(read(d, into, 6));
                SAY(write(c, "after", 5) < 0 && errno == EBADF);
                fflush(stdout);
                _exit(0);
            }
            wait(&status);
            SAY(status);
        }
    SAY(write(a, "x", 1));
    (void)b;
}

/* ---- free numbers -------------------------------------------------------------------------------------------------------- */

/* Connects, talks and closes, again and again. */
static void visit_for_ever(const struct address *there) {
    for (;;) {
        char c = 1;
        int fd = stream_socket(0);
        if (connect_to(fd, there)) _exit(1);
        for (int i = 0; i < 60 && write(fd, &c, 1) == 1 && read(fd, &c, 1) == 1; i++) {}
        close(fd);
    }
}

/* A program of one thread puts a file on a number that it knows to be free, while connections of its own move: the file stays there. */
void free_numbers(int a, int b) {
    struct address here;
    int listener = listening(&here, 1), other = open("/dev/null", O_RDWR), lost = 0, refused = 0, served = 0;
    pid_t visitors[2];
    struct stat wanted, found;
    fstat(other, &wanted);
    for (int i = 0; i < 2; i++)
        if (!(visitors[i] = fork())) close(listener), visit_for_ever(&here);
    struct pollfd p[3] = {{listener, POLLIN, 0}, {-1, POLLIN, 0}, {-1, POLLIN, 0}};
    for (time_t end = time(NULL) + 2; time(NULL) <= end;) {
        int ready = poll(p, 3, 0);
        for (int i = 0; i < 60; i++) {
            int number = dup(other);
            close(number);
            if (dup2(other, number) < 0) {
                refused++;
                continue;
            }
            for (volatile int moments = 0; moments < 2000; moments++) {}
            if (fstat(number, &found) || found.st_rdev != wanted.st_rdev) lost++;
            else close(number);
        }
        for (int i = 1; ready > 0 && i < 3; i++) {
            char c;
            if (p[i].fd < 0 || !p[i].revents) continue;
            if (read(p[i].fd, &c, 1) == 1 && write(p[i].fd, &c, 1) == 1) continue;
            close(p[i].fd);
            p[i].fd = -1;
        }
        int *place = p[1].fd < 0 ? &p[1].fd : &p[2].fd;
        if (ready > 0 && p[0].revents && *place < 0) *place = accept(listener, NULL, NULL), served++;
    }
    for (int i = 0; i < 2; i++) kill(visitors[i], SIGKILL), waitpid(visitors[i], NULL, 0);
    SAY(served > 2);
    SAY(refused);
    SAY(lost);
    SAY(write(a, "x", 1));
    for (int i = 1; i < 3; i++) close(p[i].fd);
    close(listener), close(other);
    (void)b;
}
