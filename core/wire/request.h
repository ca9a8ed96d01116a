/* A request to the other process of a connection, as it is sent: channel/asking.h says what it is about, and receives it. */
#ifndef FASTSOCK_REQUEST_H
#define FASTSOCK_REQUEST_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* struct ucred */
#endif
#include <stddef.h>
#include <stdio.h>
#include <sys/un.h>

#include "base/system.h"

#define FS_ASK_SIZE 17
#define FS_ASK_NAME "fastsock/2/ask/%016llx"

static inline struct cmsghdr *fs_put_control(struct msghdr *message, struct cmsghdr *c, int type, const void *data, size_t n) {
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = type;
    c->cmsg_len = CMSG_LEN(n);
    memcpy(CMSG_DATA(c), data, n);
    message->msg_controllen += CMSG_SPACE(n);
    return (struct cmsghdr *)((char *)c + CMSG_SPACE(n));
}

/* Sends a request, with a parcel if `parcel` is not negative. 0 or -errno. Never blocks. */
static inline int fs_ask(uint64_t token, const unsigned char id[16], int side, int parcel) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    unsigned char request[FS_ASK_SIZE];
    union {
        char space[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(sizeof(int))];
        struct cmsghdr aligned;
    } control;
    if (!token) return -ENOENT; /* the other side has not attached yet, or has no such socket */
    int length = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, FS_ASK_NAME, (unsigned long long)token);
    memcpy(request, id, 16);
    request[16] = (unsigned char)side;
    struct iovec iov = {request, sizeof request};
    struct msghdr message = {.msg_name = &address, .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space};
    message.msg_namelen = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    /* The effective user, by which the meeting judged this process. Left alone, the kernel would name the real one. */
    struct ucred who = {getpid(), geteuid(), getegid()};
    struct cmsghdr *next = fs_put_control(&message, &control.aligned, SCM_CREDENTIALS, &who, sizeof who);
    if (parcel >= 0) fs_put_control(&message, next, SCM_RIGHTS, &parcel, sizeof parcel);
    int fd = fs_system.socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -errno;
    int failed = fs_system.sendmsg(fd, &message, MSG_NOSIGNAL) < 0 ? -errno : 0;
    fs_system.close(fd);
    return failed;
}

#endif
