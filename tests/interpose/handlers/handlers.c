/* Calls that POSIX allows in signal handlers, made in one: what they take of the stack, and whether they come to malloc.
 *
 * usage: handlers [OPERATIONS BEFORE [depths]]. It prints a line for each call, with `depths` the bytes too. On kernel TCP no call takes
 * more than on another socket. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ALLOWED: 1 KiB, and what a wait takes that sleeps. */
enum { STACK = 262144, ALLOWED = 1280, MANY = 40 };

/* ---- malloc, which no handler may come to ---------------------------------------------------------------------------------- */

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *before, size_t size);
void __libc_free(void *memory);

static __thread int forbidden;
static volatile int forbidden_calls;

static void note(void) {
    if (forbidden) forbidden_calls++;
}
void *malloc(size_t size) { return note(), __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return note(), __libc_calloc(count, size); }
void *realloc(void *before, size_t size) { return note(), __libc_realloc(before, size); }
void free(void *memory) {
    if (memory) note();
    __libc_free(memory);
}

/* ---- the calls ----------------------------------------------------------------------------------------------------------------- */

static int ends[2], file, other[2];
static char bytes[70000];
static struct iovec pieces[3] = {{bytes, 2}, {bytes, 30}, {bytes, 400}};

static void do_write(int fd) { if (write(fd, "abc", 3) != 3) abort(); }
static void do_send(int fd) { if (send(fd, bytes, 5000, MSG_DONTWAIT) <= 0) abort(); }
static void do_writev(int fd) { if (writev(fd, pieces, 3) != 432) abort(); }
static void do_sendmsg(int fd) {
    struct msghdr m = {.msg_iov = pieces, .msg_iovlen = 3};
    if (sendmsg(fd, &m, 0) != 432) abort();
}
static void do_sendfile(int fd) {
    off_t at = 0;
    if (sendfile(fd, file, &at, 3000) != 3000) abort();
}
static void do_read(int fd) { if (read(fd, bytes, 1) != 1) abort(); }
static void do_recvmsg(int fd) {
    struct iovec v[2] = {{bytes, 1}, {bytes + 1, 1}};
    struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
    if (recvmsg(fd, &m, MSG_DONTWAIT) <= 0) abort();
}
static void do_peek(int fd) {
    struct iovec v[2] = {{bytes, 1}, {bytes + 1, 1}};
    struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
    if (recvmsg(fd, &m, MSG_PEEK | MSG_DONTWAIT) <= 0) abort();
}
static void do_empty(int fd) { while (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0) {} }
static void do_poll(int fd) {
    struct pollfd p = {fd, POLLIN | POLLOUT, 0};
    if (poll(&p, 1, 10) != 1) abort();
}
static void do_poll_many(int fd) {
    static struct pollfd p[MANY];
    for (int i = 0; i < MANY; i++) p[i] = (struct pollfd){i ? other[0] : fd, POLLIN, 0};
    poll(p, MANY, 1);
}
static void do_poll_in_vain(int fd) {
    struct pollfd p = {fd, POLLPRI, 0};
    poll(&p, 1, 2);
}
static void do_select(int fd) {
    static fd_set r, w;
    struct timeval t = {0, 1000};
    FD_ZERO(&r);
    FD_ZERO(&w);
    FD_SET(fd, &r);
    FD_SET(fd, &w);
    select(fd + 1, &r, &w, NULL, &t);
}
static void do_pselect(int fd) {
    static fd_set r;
    struct timespec t = {0, 1000000};
    FD_ZERO(&r);
    FD_SET(fd, &r);
    pselect(fd + 1, &r, NULL, NULL, &t, NULL);
}
static void do_dup(int fd) {
    int copy = dup(fd);
    if (copy < 0 || close(copy)) abort();
}
static void do_dup2(int fd) { if (dup2(fd, 200) != 200 || close(200)) abort(); }
static void do_fcntl(int fd) { if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL)) < 0) abort(); }
static void do_setsockopt(int fd) {
    int one = 1;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
}
static void do_shutdown(int fd) { shutdown(fd, SHUT_WR); }
static void do_close(int fd) { if (close(fd)) abort(); }

static const struct {
    const char *name;
    void (*call)(int fd);
    int epilogue; /* it ends the connection */
} CALLS[] = {
    {"write", do_write, 0}, {"send", do_send, 0}, {"writev", do_writev, 0}, {"sendmsg", do_sendmsg, 0}, {"sendfile", do_sendfile, 0},
    {"poll", do_poll, 0}, {"read", do_read, 0}, {"peek", do_peek, 0}, {"recvmsg", do_recvmsg, 0}, {"poll of many", do_poll_many, 0},
    {"poll in vain", do_poll_in_vain, 0}, {"select", do_select, 0}, {"pselect", do_pselect, 0}, {"setsockopt", do_setsockopt, 0},
    {"fcntl", do_fcntl, 0}, {"dup", do_dup, 0}, {"dup2", do_dup2, 0}, {"empty", do_empty, 0}, {"shutdown", do_shutdown, 1},
    {"close", do_close, 1},
};
enum { COUNT = sizeof CALLS / sizeof *CALLS };

/* ---- how deep ---------------------------------------------------------------------------------------------------------------------- */

static char *stack;
static volatile int which, fd_of_call;
static size_t depths[2][COUNT];

static void in_handler(int number) {
    (void)number;
    forbidden = 1;
    CALLS[which].call(fd_of_call);
    forbidden = 0;
}

/* The bytes of the handler's stack that a call has used. */
static size_t measure(int call, int fd) {
    which = call;
    fd_of_call = fd;
    memset(stack, 0x5a, STACK);
    raise(SIGUSR1);
    size_t unused = 0;
    while (unused < STACK && stack[unused] == 0x5a) unused++;
    return STACK - unused;
}

static void run(int tcp[2], int local[2], int last) {
    for (int i = 0; i < COUNT; i++) {
        if (CALLS[i].epilogue != last) continue;
        /* What it reads is there. */
        if (write(tcp[1], bytes, 20) != 20 || write(local[1], bytes, 20) != 20) abort();
        poll(&(struct pollfd){tcp[0], POLLIN, 0}, 1, 1000);
        size_t mine = measure(i, tcp[0]), plain = measure(i, local[0]);
        if (mine > depths[0][i]) depths[0][i] = mine;
        if (plain > depths[1][i]) depths[1][i] = plain;
        while (recv(tcp[1], bytes, sizeof bytes, MSG_DONTWAIT) > 0) {}
        while (recv(local[1], bytes, sizeof bytes, MSG_DONTWAIT) > 0) {}
    }
}

static void connect_pair(int pair[2]) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof a;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (void *)&a, size) || listen(listener, 4) || getsockname(listener, (void *)&a, &size)) abort();
    pair[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(pair[0], (void *)&a, size)) abort();
    pair[1] = accept(listener, NULL, NULL);
    close(listener);
}

static void warm(int pair[2], int operations) {
    char byte;
    for (int i = 0; i < operations; i++) {
        if (i % 50 == 20) usleep(10000); /* the other end's answer takes its time */
        if (write(pair[0], "x", 1) != 1 || read(pair[1], &byte, 1) != 1 || write(pair[1], "y", 1) != 1 || read(pair[0], &byte, 1) != 1)
            abort();
    }
}

int main(int count, char **words) {
    int operations = count > 1 ? atoi(words[1]) : 300, local[2];
    struct sigaction how = {.sa_handler = in_handler, .sa_flags = SA_ONSTACK | SA_RESTART};
    stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t alternate = {.ss_sp = stack, .ss_size = STACK};
    file = memfd_create("file", MFD_CLOEXEC);
    if (write(file, bytes, sizeof bytes) != sizeof bytes || sigaltstack(&alternate, NULL) || pipe2(other, O_CLOEXEC)) abort();
    sigaction(SIGUSR1, &how, NULL);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, local)) abort();
    connect_pair(ends);
    warm(ends, operations);
    for (int i = 0; i < 3; i++) run(ends, local, 0); /* (the first time it may find the peer, and memory) */
    run(ends, local, 1);
    for (int i = 0; i < COUNT; i++) {
        size_t more = depths[0][i] > depths[1][i] ? depths[0][i] - depths[1][i] : 0;
        if (more > ALLOWED || count > 2) printf("%s: %zu bytes of stack more than on a socket of another kind\n", CALLS[i].name, more);
        else printf("%s: little stack\n", CALLS[i].name);
    }
    printf("calls of malloc and free: %d\n", forbidden_calls);
    return 0;
}
