/* What the C library's calls do on a TCP connection: each case prints what it got, on plain kernel TCP and under the library the same.
 *
 *     conformance [CASE ...]        all of them without a name. A connection is used for a while first, so that it moves where it can.
 *
 * A case has the two ends of a connection of this process. tests/interpose/test_interpose.py compares. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

#define SAY(call) say(#call, (long)(call))
static void say(const char *what, long got) {
    int error = errno;
    printf("    %s = %ld", what, got);
    if (got < 0) printf(" %s", strerrorname_np(error));
    printf("\n");
    fflush(stdout);
}
static void show(const char *data, long length) { printf("    \"%.*s\"\n", (int)(length < 0 ? 0 : length), data); }

static void nap(int milliseconds) {
    struct timespec rest = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    while (nanosleep(&rest, &rest) < 0) {}
}

/* ---- a connection --------------------------------------------------------------------------------------------------- */

static void connect_pair(int *a, int *b) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, (struct sockaddr *)&at, size) || listen(listener, 8) || getsockname(listener, (struct sockaddr *)&at, &size)) abort();
    *a = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(*a, (struct sockaddr *)&at, size)) abort();
    *b = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (*b < 0) abort();
    close(listener);
}

/* Both ends are used until they have had the time to move. */
static void use(int a, int b) {
    char byte;
    for (int i = 0; i < 60; i++) {
        if (write(a, "x", 1) != 1 || read(b, &byte, 1) != 1 || write(b, "y", 1) != 1 || read(a, &byte, 1) != 1) abort();
        if (i < 30) nap(1);
    }
}

/* What arrives takes its time on kernel TCP. */
static void arrive(int fd, int bytes) {
    int there = 0;
    for (int i = 0; i < 2000 && there < bytes; i++) {
        if (ioctl(fd, FIONREAD, &there) < 0) return;
        if (there < bytes) nap(1);
    }
}

/* ---- cases: data ------------------------------------------------------------------------------------------------------ */

static void data(int a, int b) {
    char into[64] = "";
    struct iovec out[3] = {{"one ", 4}, {"", 0}, {"two", 3}}, in[2] = {{into, 3}, {into + 3, 61}};
    SAY(write(a, "hello", 5));
    SAY(read(b, into, 64));
    show(into, 5);
    SAY(read(b, into, 0));
    SAY(writev(a, out, 3));
    arrive(b, 7);
    SAY(readv(b, in, 2));
    show(into, 7);
    SAY(send(a, "peek", 4, MSG_NOSIGNAL));
    SAY(recv(b, into, 2, MSG_PEEK));
    SAY(recv(b, into, 64, 0));
    SAY(recv(b, into, 64, MSG_DONTWAIT));
    SAY(pwritev2(a, out, 1, -1, 0));
    SAY(preadv2(b, in, 1, -1, 0));
    SAY(read(b, into, 64));
    SAY(pwritev2(a, out, 1, 5, 0));
    SAY(syscall(SYS_write, a, "raw", 3));
    SAY(syscall(SYS_read, b, into, 64));
    show(into, 3);
    SAY(readv(b, in, IOV_MAX + 1));
    SAY(writev(a, out, 0));
}

static void *finish(void *fd) {
    nap(30);
    SAY(write((int)(long)fd, "ing", 3));
    return NULL;
}

static void whole(int a, int b) {
    char into[64] = "";
    pthread_t thread;
    SAY(write(a, "wait", 4));
    pthread_create(&thread, NULL, finish, (void *)(long)a);
    long got = recv(b, into, 7, MSG_WAITALL);
    pthread_join(thread, NULL);
    say("recv(b, into, 7, MSG_WAITALL)", got);
    show(into, 7);
    SAY(write(a, "gone", 4));
    arrive(b, 4);
    SAY(recv(b, NULL, 3, MSG_TRUNC));
    SAY(recv(b, into, 64, 0));
}

static void messages(int a, int b) {
    char into[64] = "", more[64] = "", control[64];
    struct sockaddr_storage from;
    socklen_t size = sizeof from;
    struct iovec out[2] = {{"a message", 9}, {" of two", 7}}, in = {into, sizeof into}, second = {more, sizeof more};
    struct msghdr m = {.msg_iov = out, .msg_iovlen = 2};
    SAY(sendmsg(a, &m, 0));
    arrive(b, 16);
    m = (struct msghdr){.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &in, .msg_iovlen = 1, .msg_control = control, .msg_controllen = 64};
    SAY(recvmsg(b, &m, 0));
    printf("    name %u control %zu flags %d\n", (unsigned)m.msg_namelen, (size_t)m.msg_controllen, m.msg_flags);
    show(into, 16);
    SAY(sendto(a, "to", 2, 0, (struct sockaddr *)&from, sizeof from));
    SAY(recvfrom(b, into, 64, 0, (struct sockaddr *)&from, &size));
    SAY(size);
    struct mmsghdr many[2] = {{.msg_hdr = {.msg_iov = out, .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = out + 1, .msg_iovlen = 1}}};
    SAY(sendmmsg(a, many, 2, 0));
    printf("    %u %u\n", many[0].msg_len, many[1].msg_len);
    arrive(b, 16);
    struct mmsghdr back[2] = {{.msg_hdr = {.msg_iov = &in, .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = &second, .msg_iovlen = 1}}};
    in.iov_len = 9;
    SAY(recvmmsg(b, back, 2, 0, NULL));
    printf("    %u %u\n", back[0].msg_len, back[1].msg_len);
    SAY(recvmmsg(b, back, 2, MSG_DONTWAIT, NULL));
}

static void files(int a, int b) {
    char into[64] = "", path[] = "/tmp/conformanceXXXXXX";
    int file = mkstemp(path);
    off_t at = 3;
    unlink(path);
    if (write(file, "0123456789", 10) != 10) abort();
    lseek(file, 0, SEEK_SET);
    SAY(sendfile(a, file, NULL, 4));
    SAY(lseek(file, 0, SEEK_CUR));
    SAY(sendfile(a, file, &at, 100));
    SAY(at);
    SAY(sendfile(a, file, &at, 100));
    arrive(b, 11);
    SAY(read(b, into, 64));
    show(into, 11);
    SAY(sendfile(a, b, NULL, 4));
    close(file);
}

static void urgent(int a, int b) {
    char into[64] = "";
    SAY(send(a, "before", 6, 0));
    arrive(b, 6);
    SAY(send(a, "!", 1, MSG_OOB));
    struct pollfd p = {b, POLLPRI, 0};
    SAY(poll(&p, 1, 2000));
    SAY(p.revents);
    SAY(recv(b, into, 1, MSG_OOB));
    show(into, 1);
    SAY(read(b, into, 64));
    SAY(recv(b, into, 1, MSG_DONTWAIT));
}

/* ---- cases: options ---------------------------------------------------------------------------------------------------- */

static void options(int a, int b) {
    char into[64];
    int there, one = 1, zero = 0, value = -1;
    socklen_t size = sizeof value;
    struct timeval soon = {0, 30000};
    SAY(write(a, "five!", 5));
    arrive(b, 5);
    SAY(ioctl(b, FIONREAD, &there));
    SAY(there);
    SAY(read(b, into, 64));
    SAY(ioctl(b, FIONBIO, &one));
    SAY(read(b, into, 64));
    SAY(fcntl(b, F_GETFL) & O_NONBLOCK);
    SAY(fcntl(b, F_SETFL, 0));
    SAY(setsockopt(b, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon));
    SAY(read(b, into, 64));
    SAY(fcntl(b, F_SETFL, O_NONBLOCK));
    SAY(recv(b, into, 64, 0));
    SAY(getsockopt(a, IPPROTO_TCP, TCP_NODELAY, &value, &size));
    SAY(value);
    SAY(setsockopt(a, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one));
    SAY(getsockopt(a, IPPROTO_TCP, TCP_NODELAY, &value, &size));
    SAY(value);
    SAY(setsockopt(a, IPPROTO_TCP, TCP_NODELAY, &zero, sizeof zero));
    SAY(getsockopt(a, IPPROTO_TCP, TCP_NODELAY, &value, &size));
    SAY(value);
    SAY(setsockopt(a, SOL_SOCKET, 12345, &one, sizeof one));
    SAY(getsockopt(a, SOL_SOCKET, SO_ERROR, &value, &size));
    SAY(value);
    SAY(setsockopt(a, SOL_SOCKET, SO_OOBINLINE, &one, sizeof one));
    SAY(setsockopt(a, IPPROTO_TCP, TCP_CORK, &one, sizeof one));
    SAY(setsockopt(a, IPPROTO_TCP, TCP_CORK, &zero, sizeof zero));
}

static void fills(int a, int b) {
    static char block[65536];
    long sent = 0, got = 0, part;
    fcntl(a, F_SETFL, O_NONBLOCK);
    while ((part = write(a, block, sizeof block)) > 0) sent += part;
    say("write(a, full)", part);
    struct pollfd p = {a, POLLOUT, 0};
    SAY(poll(&p, 1, 0));
    fcntl(b, F_SETFL, O_NONBLOCK);
    while (got < sent) {
        part = read(b, block, sizeof block);
        if (part > 0) got += part;
        else nap(1);
    }
    SAY(got == sent);
    SAY(poll(&p, 1, 2000));
    SAY(p.revents);
    SAY(write(a, block, 10));
}

/* ---- cases: numbers and ends -------------------------------------------------------------------------------------------- */

static void copies(int a, int b) {
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

static void ends(int a, int b) {
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

static void resets(int a, int b) {
    char into[64];
    SAY(write(a, "unread", 6));
    arrive(b, 6);
    SAY(close(b));
    nap(20);
    SAY(read(a, into, 64));
    SAY(read(a, into, 64));
    SAY(send(a, "x", 1, MSG_NOSIGNAL));
}

/* ---- cases: readiness --------------------------------------------------------------------------------------------------- */

static void polls(int a, int b) {
    char into[64];
    struct pollfd p[2] = {{a, POLLIN | POLLOUT, 0}, {b, POLLIN, 0}};
    struct timespec soon = {0, 20000000};
    struct timeval no = {0, 0};
    fd_set r, w;
    SAY(poll(p, 2, 0));
    printf("    %d %d\n", p[0].revents, p[1].revents);
    p[0].events = POLLIN;
    SAY(ppoll(p, 2, &soon, NULL));
    SAY(write(a, "abc", 3));
    SAY(poll(p, 2, 2000));
    printf("    %d %d\n", p[0].revents, p[1].revents);
    FD_ZERO(&r);
    FD_ZERO(&w);
    FD_SET(a, &r);
    FD_SET(b, &r);
    FD_SET(a, &w);
    SAY(select((a > b ? a : b) + 1, &r, &w, NULL, NULL));
    printf("    %d %d %d\n", !!FD_ISSET(a, &r), !!FD_ISSET(b, &r), !!FD_ISSET(a, &w));
    SAY(read(b, into, 64));
    FD_ZERO(&r);
    FD_SET(b, &r);
    SAY(select(b + 1, &r, NULL, NULL, &no));
    FD_SET(b, &r);
    SAY(pselect(b + 1, &r, NULL, NULL, &soon, NULL));
    SAY(shutdown(a, SHUT_WR));
    p[1].events = POLLIN | POLLRDHUP;
    SAY(poll(p + 1, 1, 2000));
    SAY(p[1].revents);
}

static void waits(const char *what, int epoll, int milliseconds) {
    struct epoll_event events[4];
    int n = epoll_wait(epoll, events, 4, milliseconds);
    printf("    %s = %d", what, n);
    for (int i = 0; i < n; i++) printf(" %#x:%ld", events[i].events, (long)events[i].data.u64);
    printf("\n");
}

static void epolls(int a, int b) {
    char into[64];
    int epoll = epoll_create1(EPOLL_CLOEXEC), outer = epoll_create1(EPOLL_CLOEXEC), pipes[2];
    struct epoll_event e = {EPOLLIN, {.u64 = 7}};
    if (pipe2(pipes, O_CLOEXEC)) abort();
    SAY(epoll_ctl(epoll, EPOLL_CTL_ADD, b, &e));
    SAY(epoll_ctl(epoll, EPOLL_CTL_ADD, b, &e));
    e.data.u64 = 8;
    SAY(epoll_ctl(epoll, EPOLL_CTL_ADD, pipes[0], &e));
    waits("nothing", epoll, 10);
    SAY(write(a, "ab", 2));
    waits("level", epoll, 2000);
    waits("level again", epoll, 0);
    SAY(write(pipes[1], "p", 1));
    struct pollfd p = {epoll, POLLIN, 0};
    SAY(poll(&p, 1, 1000));
    e.data.u64 = 9;
    SAY(epoll_ctl(outer, EPOLL_CTL_ADD, epoll, &e));
    waits("nested", outer, 1000);
    SAY(read(pipes[0], into, 64));
    SAY(read(b, into, 64));
    waits("drained", epoll, 10);
    e = (struct epoll_event){EPOLLIN | EPOLLET, {.u64 = 10}};
    SAY(epoll_ctl(epoll, EPOLL_CTL_MOD, b, &e));
    SAY(write(a, "edge", 4));
    waits("edge", epoll, 2000);
    waits("no edge", epoll, 10);
    SAY(read(b, into, 64));
    SAY(write(a, "edge", 4));
    waits("next edge", epoll, 2000);
    SAY(read(b, into, 64));
    e = (struct epoll_event){EPOLLIN | EPOLLOUT | EPOLLONESHOT, {.u64 = 11}};
    SAY(epoll_ctl(epoll, EPOLL_CTL_MOD, b, &e));
    waits("once", epoll, 1000);
    SAY(write(a, "more", 4));
    waits("not again", epoll, 10);
    SAY(epoll_ctl(epoll, EPOLL_CTL_MOD, b, &e));
    arrive(b, 4);
    waits("armed", epoll, 1000);
    SAY(epoll_ctl(epoll, EPOLL_CTL_DEL, b, NULL));
    SAY(epoll_ctl(epoll, EPOLL_CTL_DEL, b, NULL));
    waits("gone", epoll, 0);
    SAY(epoll_ctl(epoll, EPOLL_CTL_MOD, 999, &e));
    close(epoll), close(outer), close(pipes[0]), close(pipes[1]);
}

/* ---- cases: signals ------------------------------------------------------------------------------------------------------- */

static int answer_to, handled;
static void on_alarm(int number) {
    (void)number;
    handled++;
    if (answer_to >= 0 && write(answer_to, "woken", 5) != 5) abort();
}
static void *ring(void *thread) {
    nap(50);
    pthread_kill((pthread_t)thread, SIGUSR1);
    return NULL;
}
static void interrupted(int from, int restarts) {
    char into[64] = "";
    pthread_t thread;
    struct sigaction how = {.sa_handler = on_alarm, .sa_flags = restarts ? SA_RESTART : 0}, before;
    sigaction(SIGUSR1, &how, NULL);
    sigaction(SIGUSR1, NULL, &before);
    SAY(before.sa_handler == on_alarm);
    SAY(before.sa_flags & SA_RESTART);
    pthread_create(&thread, NULL, ring, (void *)pthread_self());
    SAY(read(from, into, 64));
    show(into, 5);
    pthread_join(thread, NULL);
}
static void signals(int a, int b) {
    answer_to = a; /* the handler sends, on the other end of the connection that its thread waits for */
    interrupted(b, 1);
    answer_to = -1;
    interrupted(b, 0);
    pthread_t thread;
    struct pollfd p = {b, POLLIN, 0};
    signal(SIGUSR1, on_alarm);
    pthread_create(&thread, NULL, ring, (void *)pthread_self());
    SAY(poll(&p, 1, 5000));
    pthread_join(thread, NULL);
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event e = {EPOLLIN, {.u64 = 7}}, got;
    epoll_ctl(epoll, EPOLL_CTL_ADD, b, &e);
    pthread_create(&thread, NULL, ring, (void *)pthread_self());
    SAY(epoll_wait(epoll, &got, 1, 5000));
    pthread_join(thread, NULL);
    close(epoll);
    SAY(handled);
}

/* ---- cases: others use the number ------------------------------------------------------------------------------------------ */

static void streams(int a, int b) {
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

static void passed(int a, int b) {
    char into[64] = "", byte = 0, space[CMSG_SPACE(sizeof(int))] = "";
    int pair[2], got;
    struct iovec v = {&byte, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) abort();
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    *c = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(c), &b, sizeof b);
    SAY(write(a, "unread ", 7));
    SAY(sendmsg(pair[0], &m, 0));
    SAY(recvmsg(pair[1], &m, MSG_CMSG_CLOEXEC));
    memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof got);
    SAY(write(a, "later", 5));
    arrive(got, 12);
    SAY(read(got, into, 64));
    show(into, 12);
    close(pair[0]), close(pair[1]), close(got);
}

static void spliced(int a, int b) {
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

static void forks(int a, int b) {
    char into[64] = "";
    int status;
    pid_t child = fork();
    if (child == 0) {
        if (write(a, "child", 5) != 5 || read(a, into, 4) != 4) _exit(1);
        _exit(0);
    }
    SAY(read(b, into, 64));
    show(into, 5);
    SAY(write(b, "back", 4));
    SAY(waitpid(child, &status, 0) == child);
    SAY(status);
    child = vfork();
    if (child == 0) {
        close(a);
        close(b);
        _exit(0);
    }
    waitpid(child, &status, 0);
    SAY(write(a, "still", 5));
    SAY(read(b, into, 64));
}

static void programs(int a, int b) {
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

static const struct {
    const char *name;
    void (*body)(int a, int b);
} CASES[] = {
    {"data", data}, {"whole", whole}, {"messages", messages}, {"files", files}, {"urgent", urgent}, {"options", options},
    {"fills", fills}, {"copies", copies}, {"ends", ends}, {"resets", resets}, {"polls", polls}, {"epolls", epolls},
    {"signals", signals}, {"streams", streams}, {"passed", passed}, {"spliced", spliced}, {"forks", forks}, {"programs", programs},
};

int main(int count, char **names) {
    alarm(60);
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        int chosen = count == 1, a, b;
        for (int n = 1; n < count; n++) chosen |= !strcmp(names[n], CASES[i].name);
        if (!chosen) continue;
        printf("%s\n", CASES[i].name);
        connect_pair(&a, &b);
        use(a, b);
        CASES[i].body(a, b);
        close(a);
        close(b);
    }
    return 0;
}
