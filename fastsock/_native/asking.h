/* Requests to the other process of a connection, on its connection thread's datagram socket
 * (docs/protocol.md): for a doorbell byte, to go back to the kernel, and to send a parcel again.
 *
 * A request is the region's id and the side that is asked. A parcel comes as a descriptor with it: a memfd of
 * bytes that the sender of the request had received but its program had not read. */
#ifndef FASTSOCK_ASKING_H
#define FASTSOCK_ASKING_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define FS_ASK_SIZE 17
#define FS_ASK_NAME "fastsock/1/ask/%016llx"

/* Sends a request, with a parcel if `parcel` is not negative. 0 or -errno. Never blocks. */
static inline int fs_ask(uint64_t token, const unsigned char id[16], int side, int parcel) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    unsigned char request[FS_ASK_SIZE];
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr aligned;
    } control;
    if (!token) return -ENOENT; /* the other side has not attached yet, or has no such socket */
    int length = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, FS_ASK_NAME, (unsigned long long)token);
    memcpy(request, id, 16);
    request[16] = (unsigned char)side;
    struct iovec iov = {request, sizeof request};
    struct msghdr message = {.msg_name = &address, .msg_iov = &iov, .msg_iovlen = 1};
    message.msg_namelen = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    if (parcel >= 0) {
        message.msg_control = control.space;
        message.msg_controllen = sizeof control.space;
        struct cmsghdr *c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &parcel, sizeof(int));
    }
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -errno;
    int failed = sendmsg(fd, &message, MSG_NOSIGNAL) < 0 ? -errno : 0;
    close(fd);
    return failed;
}

/* Takes the next request: true if there was one of the right size. `*parcel`: the descriptor that came, or -1. */
static inline int fs_take_request(int fd, unsigned char request[FS_ASK_SIZE], int *parcel) {
    union {
        char space[CMSG_SPACE(8 * sizeof(int))];
        struct cmsghdr aligned;
    } control;
    struct iovec iov = {request, FS_ASK_SIZE};
    struct msghdr message = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control.space};
    ssize_t got = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    *parcel = -1;
    if (got < 0) return 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int came;
            memcpy(&came, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
            if (*parcel < 0) *parcel = came;
            else close(came);
        }
    }
    return 1;
}

#endif
