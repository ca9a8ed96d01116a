/* Requests to the other process of a connection, on its connection thread's datagram socket
 * (docs/protocol.md): for a doorbell byte, to go back to the kernel, and to send a parcel again.
 *
 * A request is the region's id and the side that is asked. A parcel comes as a descriptor with it: a memfd of
 * bytes that the sender of the request had received but its program had not read.
 *
 * The socket's name can be seen by everybody on the host, and everybody may write there. So a request is judged by its length,
 * by the user that the kernel vouches for, and by the region's id, which only the two sides know. */
#ifndef FASTSOCK_ASKING_H
#define FASTSOCK_ASKING_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* struct ucred */
#endif
#include "base/system.h"
#include "channel/seen.h"
#include "wire/request.h"

/* Readies a datagram socket for requests: the kernel names the sender of each. 0 or -1. */
static inline int fs_name_senders(int fd) {
    int one = 1;
    return fs_system.setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &one, sizeof one);
}

enum fs_took { FS_NO_REQUEST, FS_REQUEST, FS_NOT_A_REQUEST, FS_LOOK };

/* Takes the next datagram. FS_REQUEST: `request` and `*user`, who sent it, are whole, and `*parcel` is the descriptor that came
 * with it, or -1. FS_LOOK: somebody wants to look inside (seen.h): `*user` and `*asker` are whole. Otherwise nothing is left of it:
 * `request` is zeroed, `*parcel` is -1, and what came is closed.
 *
 * A parcel that did not come for want of a descriptor number makes the request none: its sender waits for an answer in vain and
 * uses a bridge. */
static inline enum fs_took fs_take_request(int fd, unsigned char request[FS_ASK_SIZE], uint32_t *user, int *parcel,
                                          struct fs_asker *asker) {
    unsigned char came_in[sizeof(struct fs_look)];
    union {
        char space[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(2 * sizeof(int))];
        struct cmsghdr aligned;
    } control;
    struct iovec iov = {came_in, sizeof came_in};
    struct msghdr message = {
        .msg_name = &asker->address, .msg_namelen = sizeof asker->address,
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control.space};
    int sound = 0, named = 0, count = 0;
    memset(request, 0, FS_ASK_SIZE);
    *parcel = -1;
    *user = (uint32_t)-1;
    ssize_t got = fs_system.recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0) return errno == EINTR ? FS_NOT_A_REQUEST : FS_NO_REQUEST;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level != SOL_SOCKET) continue;
        if (c->cmsg_type == SCM_CREDENTIALS && c->cmsg_len == CMSG_LEN(sizeof(struct ucred))) {
            struct ucred who;
            memcpy(&who, CMSG_DATA(c), sizeof who);
            *user = who.uid;
            named = 1;
        }
        if (c->cmsg_type != SCM_RIGHTS) continue;
        size_t came = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < came; i++) {
            int one;
            memcpy(&one, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
            if (count++ == 0) *parcel = one;
            else fs_system.close(one);
        }
    }
    sound = named && count < 2 && !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC));
    if (sound && got == FS_ASK_SIZE) {
        memcpy(request, came_in, FS_ASK_SIZE);
        return FS_REQUEST;
    }
    if (sound && got == sizeof asker->look && !count) {
        memcpy(&asker->look, came_in, sizeof asker->look);
        asker->size = message.msg_namelen;
        if (asker->look.magic == FS_LOOK_MAGIC) return FS_LOOK;
    }
    if (*parcel >= 0) fs_system.close(*parcel);
    *parcel = -1;
    memset(request, 0, FS_ASK_SIZE);
    return FS_NOT_A_REQUEST;
}

#endif
