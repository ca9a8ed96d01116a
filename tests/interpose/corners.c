/* Cases of arguments that few programs use: no bytes, what is left (TCP_INQ), files that sendfile reads in another way, odd times. */
#include "conformance.h"

#include <sys/mman.h>

#ifndef TCP_INQ
#define TCP_INQ 36
#endif

/* ---- no bytes ------------------------------------------------------------------------------------------------------------------ */

static long message(int fd, int flags, struct iovec *v, size_t count) {
    struct msghdr m = {.msg_iov = v, .msg_iovlen = count};
    return recvmsg(fd, &m, flags);
}

static void receive_nothing(const char *state, int fd, int flags) {
    char byte;
    struct iovec empty[2] = {{&byte, 0}, {&byte, 0}};
    printf("    receiving %s\n", state);
    SAY(recv(fd, &byte, 0, flags));
    SAY(recv(fd, NULL, 0, flags | MSG_PEEK));
    SAY(recv(fd, &byte, 0, flags | MSG_WAITALL));
    SAY(recv(fd, &byte, 0, flags | MSG_TRUNC));
    SAY(recvfrom(fd, &byte, 0, flags, NULL, NULL));
    SAY(message(fd, flags, NULL, 0));
    SAY(message(fd, flags, empty, 2));
    SAY(read(fd, &byte, 0));
    SAY(readv(fd, empty, 2));
    SAY(readv(fd, empty, 0));
    SAY(preadv2(fd, empty, 1, -1, 0));
}

static long send_message(int fd, struct iovec *v, size_t count) {
    struct msghdr m = {.msg_iov = v, .msg_iovlen = count};
    return sendmsg(fd, &m, MSG_NOSIGNAL);
}

static void send_nothing(const char *state, int fd) {
    char byte = 0;
    struct iovec empty[2] = {{&byte, 0}, {&byte, 0}};
    printf("    sending %s\n", state);
    SAY(write(fd, &byte, 0));
    SAY(writev(fd, empty, 2));
    SAY(writev(fd, empty, 0));
    SAY(send(fd, &byte, 0, MSG_NOSIGNAL));
    SAY(send(fd, NULL, 0, MSG_NOSIGNAL | MSG_DONTWAIT));
    SAY(sendto(fd, &byte, 0, MSG_NOSIGNAL, NULL, 0));
    SAY(send_message(fd, NULL, 0));
    SAY(send_message(fd, empty, 2));
}

void nothing(int a, int b) {
    char into[8];
    struct timeval soon = {0, 20000};
    struct linger hard = {1, 0};
    sighandler_t before = signal(SIGPIPE, SIG_IGN);
    receive_nothing("where nothing is", b, MSG_DONTWAIT);
    SAY(setsockopt(b, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon));
    SAY(recv(b, into, 0, 0));
    SAY(read(b, into, 0));
    SAY(write(a, "abc", 3));
    arrive(b, 3);
    receive_nothing("where bytes are", b, 0);
    SAY(recv(b, into, 8, MSG_DONTWAIT));
    send_nothing("to a peer", a);
    SAY(shutdown(a, SHUT_WR));
    SAY(poll(&(struct pollfd){b, POLLRDHUP, 0}, 1, 2000));
    receive_nothing("at the end", b, 0);
    send_nothing("behind the end", a);
    SAY(setsockopt(b, SOL_SOCKET, SO_LINGER, &hard, sizeof hard));
    SAY(close(b));
    SAY(poll(&(struct pollfd){a, POLLRDHUP, 0}, 1, 2000));
    SAY(recv(a, into, 0, MSG_DONTWAIT));
    SAY(recv(a, into, 0, MSG_DONTWAIT));
    send_nothing("behind a reset", a);
    signal(SIGPIPE, before);
}

/* ---- how much is left ------------------------------------------------------------------------------------------------------------ */

static void receive_left(int fd, size_t bytes, size_t room, int flags) {
    char into[64];
    union {
        char space[64];
        struct cmsghdr aligned;
    } control;
    struct iovec v = {into, bytes};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = room ? control.space : NULL, .msg_controllen = room};
    memset(&control, 0, sizeof control);
    long got = recvmsg(fd, &m, flags);
    int left = -1;
    if (got >= 0 && m.msg_controllen >= CMSG_LEN(sizeof left)) memcpy(&left, CMSG_DATA(&control.aligned), sizeof left);
    printf("    %zu bytes with room %zu = %ld", bytes, room, got);
    if (got >= 0)
        printf(": control %zu, length %zu, flags %#x, left %d", (size_t)m.msg_controllen, (size_t)control.aligned.cmsg_len, m.msg_flags,
               left);
    printf("\n");
}

void tells_left(int a, int b) {
    int one = 1, none = 0;
    SAY(write(a, "0123456789", 10));
    arrive(b, 10);
    receive_left(b, 1, 64, 0);
    SAY(setsockopt(b, IPPROTO_TCP, TCP_INQ, &one, sizeof one));
    receive_left(b, 2, 64, MSG_PEEK);
    receive_left(b, 2, 64, 0);
    receive_left(b, 1, 20, 0);
    receive_left(b, 1, 18, 0);
    receive_left(b, 1, 8, 0);
    receive_left(b, 1, 0, 0);
    receive_left(b, 64, 64, 0);
    receive_left(b, 64, 64, MSG_DONTWAIT);
    SAY(write(a, "z", 1));
    SAY(shutdown(a, SHUT_WR));
    SAY(poll(&(struct pollfd){b, POLLRDHUP, 0}, 1, 2000));
    arrive(b, 1);
    receive_left(b, 1, 64, 0);
    receive_left(b, 1, 64, 0);
    SAY(setsockopt(b, IPPROTO_TCP, TCP_INQ, &none, sizeof none));
    receive_left(b, 1, 64, 0);
}

/* ---- files
 * ---------------------------------------------------------------------------------------------------------------------------- */

static void send_from(const char *what, int to, int file, off_t at, size_t count) {
    off_t position = at;
    long got = sendfile(to, file, at == -1 ? NULL : &position, count);
    int error = errno;
    printf("    %s from %ld, %zu = %ld %s", what, (long)at, count, got, got < 0 ? strerrorname_np(error) : "");
    printf(", at %ld, %ld\n", (long)position, (long)lseek(file, 0, SEEK_CUR));
}

void odd_files(int a, int b) {
    static char into[200000];
    int file = memfd_create("file", MFD_CLOEXEC), pipes[2], listener = stream_socket(0);
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    int local[2], folder = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC), null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC), writes = open("/dev/null", O_WRONLY | O_CLOEXEC);
    memset(into, 'f', sizeof into);
    if (pipe2(pipes, O_CLOEXEC) || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, local)) abort();
    SAY(write(file, into, 10000));
    SAY(write(pipes[1], "pipe", 4));
    SAY(write(local[1], "unix", 4));
    const struct {
        const char *what;
        int fd;
    } files[] = {{"memfd", file}, {"folder", folder}, {"null", null}, {"zero", zero}, {"for writing", writes},
                 {"listener", listener}, {"epoll", epoll}, {"closed", 999}};
    const off_t places[] = {-1, 0, 9990, 10000, 20000, -2, INT64_MAX, INT64_MAX - 10};
    const size_t counts[] = {0, 20, 3000};
    for (size_t f = 0; f < sizeof files / sizeof *files; f++)
        for (size_t p = 0; p < sizeof places / sizeof *places; p++)
            for (size_t c = 0; c < 3; c++) {
                if (f && (p > 1 || c != 1)) continue;
                lseek(files[f].fd, 10, SEEK_SET);
                send_from(files[f].what, a, files[f].fd, places[p], counts[c]);
                while (recv(b, into, sizeof into, MSG_DONTWAIT) > 0) {}
            }
    SAY(sendfile(a, pipes[0], NULL, 4));
    SAY(sendfile(a, local[0], NULL, 4));
    SAY(write(a, "end", 3));
    SAY(shutdown(a, SHUT_WR));
    while (recv(b, into, sizeof into, 0) > 0) {}
    close(file), close(folder), close(null), close(zero), close(writes), close(listener), close(epoll);
    close(pipes[0]), close(pipes[1]), close(local[0]), close(local[1]);
}

/* ---- times
 * ------------------------------------------------------------------------------------------------------------------------------ */

void odd_times(int a, int b) {
    const struct timeval times[] = {{0, 0},           {0, 1},        {0, 999999},  {0, 1000000}, {1, 2500000}, {0, -1},
                                    {-1, 0},          {5, -1000000}, {-1, 1500000}, {INT64_MAX, 0}, {INT64_MAX, 2000000},
                                    {1L << 40, 900000}};
    const struct timespec specs[] = {{0, 0},  {0, 1},         {0, 1000000000},        {0, -1},
                                     {-1, 0}, {INT64_MAX, 0}, {INT64_MAX, 999999999}, {1L << 40, 5}};
    struct pollfd p = {b, POLLIN, 0};
    fd_set r;
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event e = {EPOLLIN, {.u64 = 1}};
    SAY(epoll_ctl(epoll, EPOLL_CTL_ADD, b, &e));
    for (int there = 0; there < 2; there++) {
        for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
            struct timeval t = times[i];
            if (!there && t.tv_sec > 1 && t.tv_usec >= 0) continue; /* (it would wait) */
            if (!there && t.tv_sec >= 0 && t.tv_sec + t.tv_usec / 1000000 >= 1 && t.tv_usec >= 0) continue;
            FD_ZERO(&r);
            FD_SET(b, &r);
            long got = select(b + 1, &r, NULL, NULL, &t);
            int error = errno, whole = t.tv_usec < 1000000;
            /* (The kernel cuts what has no number.) */
            long left = times[i].tv_sec == INT64_MAX ? t.tv_sec > INT64_MAX - (1L << 40) : t.tv_sec;
            printf("    select %ld.%ld = %ld %s", (long)times[i].tv_sec, (long)times[i].tv_usec, got,
                   got < 0 ? strerrorname_np(error) : "");
            printf(", left %ld, %d\n", left, whole);
        }
        for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
            if (!there && specs[i].tv_sec > 1) continue;
            FD_ZERO(&r);
            FD_SET(b, &r);
            SAY(pselect(b + 1, &r, NULL, NULL, &specs[i], NULL));
            SAY(ppoll(&p, 1, &specs[i], NULL));
            SAY(epoll_pwait2(epoll, &e, 1, &specs[i], NULL));
        }
        SAY(write(a, "x", 1));
        arrive(b, 1);
    }
    close(epoll);
}
