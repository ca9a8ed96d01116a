/* Messages with descriptors. A receiver takes all that can come: if it left less room, the kernel would close the rest, which may block. */
#pragma once

#include "os/syscalls.h"
#include "wire/control_msg.h"

enum { FS_CONTROL_FDS_MAX = 253 }; /* descriptors in one message: the kernel's SCM_MAX_FD */

struct fs_descriptors {
    int fds[FS_CONTROL_FDS_MAX], count;
    int flags; /* of the message: MSG_TRUNC, MSG_CTRUNC */
    union {
        char space[CMSG_SPACE(FS_CONTROL_FDS_MAX * sizeof(int))];
        struct cmsghdr aligned;
    } control;
};

/* Receives a message. Returns its bytes, or -1 as recvmsg. Never blocks. */
static inline ssize_t fs_receive_descriptors(int fd, void *into, size_t room, struct fs_descriptors *all) {
    struct iovec iov = {into, room};
    struct msghdr message = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = all->control.space, .msg_controllen = sizeof all->control.space};
    ssize_t got;
    do got = fs_system.recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    all->count = 0;
    if (got < 0) return got;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        int n = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        for (int i = 0; i < n && all->count < FS_CONTROL_FDS_MAX; i++)
            memcpy(&all->fds[all->count++], CMSG_DATA(c) + (size_t)i * sizeof(int), sizeof(int));
    }
    all->flags = message.msg_flags;
    return got;
}

/* Sends a message with `count` descriptors, at most FS_HELLO_DESCRIPTORS. Returns 0 or -errno. Never blocks. */
static inline int fs_send_descriptors(int fd, const void *data, size_t size, const int *descriptors, int count) {
    union {
        char space[CMSG_SPACE(FS_HELLO_DESCRIPTORS * sizeof(int))];
        struct cmsghdr aligned;
    } with;
    struct iovec iov = {(void *)(uintptr_t)data, size};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = with.space};
    memset(&with, 0, sizeof with);
    fs_put_cmsg(&message, &with.aligned, SCM_RIGHTS, descriptors, (size_t)count * sizeof(int));
    return fs_system.sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}
