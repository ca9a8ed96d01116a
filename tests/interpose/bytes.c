/* Cases of bytes and options. */
#include "conformance.h"

void data(int a, int b) {
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

void whole(int a, int b) {
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
    SAY(recv(b, NULL, 2, 0));
    SAY(recv(b, NULL, 2, MSG_PEEK | MSG_WAITALL));
    SAY(recv(b, NULL, 3, MSG_TRUNC));
    SAY(recv(b, into, 64, 0));
}

void messages(int a, int b) {
    char into[64] = "", more[64] = "", control[64];
    struct sockaddr_storage from;
    socklen_t size = sizeof from;
    struct iovec out[2] = {{"a message", 9}, {" of two", 7}}, in = {into, sizeof into}, second = {more, sizeof more};
    struct msghdr m = {.msg_iov = out, .msg_iovlen = 2};
    SAY(sendmsg(a, &m, 0));
    arrive(b, 16);
    m = (struct msghdr){
        .msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &in, .msg_iovlen = 1, .msg_control = control, .msg_controllen = 64};
    SAY(recvmsg(b, &m, 0));
    printf("    name %u control %zu flags %d\n", (unsigned)m.msg_namelen, (size_t)m.msg_controllen, m.msg_flags);
    show(into, 16);
    if (SAY(sendto(a, "to", 2, 0, (struct sockaddr *)&from, sizeof from)) < 0) SAY(send(a, "to", 2, 0)); /* (EISCONN of AF_UNIX) */
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

void files(int a, int b) {
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
    at = -1;
    SAY(sendfile(a, file, &at, 4));
    arrive(b, 11);
    SAY(read(b, into, 64));
    show(into, 11);
    SAY(sendfile(a, b, NULL, 4));
    close(file);
}

void urgent(int a, int b) {
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

/* ---- options ---------------------------------------------------------------------------------------------------- */

void options(int a, int b) {
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

void fills(int a, int b) {
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
