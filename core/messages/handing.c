/* Handing a group's memory to who joins: one datagram with two descriptors, over a socket of a member. */
#include "messages/handing.h"

#include "control/descriptors.h"
#include "control/fd_reaper.h"

#ifdef __GLIBC__
#pragma weak __cmsg_nxthdr /* (a program of musl has none, and gets no further than the constructor: interpose/install.c) */
#endif

void fs_hand_over(int peer, int table, int arena) {
    struct fs_welcome welcome = {FS_GROUP_MAGIC, FS_GROUP_VERSION, 0};
    fs_send_descriptors(peer, &welcome, sizeof welcome, (int[]){table, arena}, 2); /* if it fails, who joins asks another member */
}

int fs_take_over(int holder, int fds[2], int milliseconds) {
    struct fs_welcome welcome = {0};
    union {
        char space[CMSG_SPACE(2 * sizeof(int))];
        struct cmsghdr aligned;
    } control;
    struct iovec iov = {&welcome, sizeof welcome};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control.space};
    int has_fds = 0;
    if (!fs_poll_events(holder, POLLIN, milliseconds)) return -ETIMEDOUT;
    ssize_t got = fs_system.recvmsg(holder, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got <= 0) return -ECONNRESET; /* it has ended, or does not trust this process */
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        has_fds = c->cmsg_len == CMSG_LEN(2 * sizeof(int));
        if (has_fds) memcpy(fds, CMSG_DATA(c), 2 * sizeof(int));
        else fs_reap_fd(*(int *)(void *)CMSG_DATA(c), 0);
    }
    int knows = got == sizeof welcome && welcome.magic == FS_GROUP_MAGIC;
    if (knows && welcome.version == FS_GROUP_VERSION && has_fds) return 0;
    for (int i = 0; i < 2 * has_fds; i++) fs_reap_fd(fds[i], 0);
    return knows && welcome.version != FS_GROUP_VERSION ? -EPROTONOSUPPORT : -EPROTO;
}
