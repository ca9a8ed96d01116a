/* Requests to the other process of a connection, on its connection thread's datagram socket
 * (docs/protocol.md): for a doorbell byte, to go back to the kernel, and to send a parcel again.
 *
 * A request names the region and the side that is asked. A parcel comes as a descriptor with it: a memfd of
 * bytes that the sender of the request had received but its program had not read.
 *
 * The socket's name can be seen by everybody on the host, and everybody may write there. So a request is judged by its length,
 * magic and version, by the user that the kernel vouches for, and by the region's id, which only the two sides know. */
#ifndef FASTSOCK_ASKING_H
#define FASTSOCK_ASKING_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* struct ucred */
#endif
#include "base/system.h"
#include "channel/dropping.h"
#include "channel/seen.h"
#include "wire/request.h"

/* Readies a datagram socket for requests: the kernel names the sender of each. 0 or -1. */
static inline int fs_name_senders(int fd) {
    int one = 1;
    return fs_system.setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &one, sizeof one);
}

/* What a datagram is about: the region's id and the side. `came`: its beginning, which a request and an offer have in common;
 * `size`: all of it, `whole`: what it has to be. 0: it is another one's. */
static inline int fs_read_name(const struct fs_request *came, uint64_t magic, ssize_t size, size_t whole, unsigned char request[FS_ASK_SIZE]) {
    if (size != (ssize_t)whole || came->magic != magic || came->version != FS_VERSION || came->side > 1) return 0;
    memcpy(request, came->id, sizeof came->id);
    request[16] = (unsigned char)came->side;
    return 1;
}
_Static_assert(offsetof(struct fs_set_offer, version) == offsetof(struct fs_request, version) &&
               offsetof(struct fs_set_offer, side) == offsetof(struct fs_request, side) &&
               offsetof(struct fs_set_offer, id) == offsetof(struct fs_request, id), "one function reads both");

/* The next datagram, as it lies there. */
struct fs_glimpse {
    int asks, brings, named;            /* it is a request, or an offer; descriptors come with it; the kernel has told who sent it: */
    uint32_t user;
    unsigned char request[FS_ASK_SIZE]; /* if it asks */
};

/* Looks at the next datagram without taking it: who sent it is known before anything that came with it is ours, as the
 * last close of that can block. 0: there is none. */
static inline int fs_look_at_request(int fd, struct fs_glimpse *seen) {
    union {
        struct fs_request request;
        struct fs_set_offer offer;
    } said;
    union {
        char space[CMSG_SPACE(sizeof(struct ucred))]; /* no room for descriptors, so that none is made */
        struct cmsghdr aligned;
    } control;
    struct iovec iov = {&said, sizeof said};
    struct msghdr message = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control.space};
    ssize_t size;
    memset(seen, 0, sizeof *seen);
    do size = fs_system.recvmsg(fd, &message, MSG_DONTWAIT | MSG_PEEK);
    while (size < 0 && errno == EINTR);
    if (size < 0) return 0;
    if (message.msg_flags & MSG_TRUNC) size = 0;
    seen->asks = fs_read_name(&said.request, FS_ASK_MAGIC, size, sizeof said.request, seen->request) ||
                 fs_read_name(&said.request, FS_SET_MAGIC, size, sizeof said.offer, seen->request);
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS && c->cmsg_len == CMSG_LEN(sizeof(struct ucred))) {
        struct ucred who;
        memcpy(&who, CMSG_DATA(c), sizeof who);
        seen->user = who.uid;
        seen->named = 1;
    }
    seen->brings = (message.msg_flags & MSG_CTRUNC) != 0;
    return 1;
}

enum { FS_BRINGS_MAX = 253 }; /* descriptors in a message: the kernel's SCM_MAX_FD */

enum fs_took { FS_NO_REQUEST, FS_REQUEST, FS_NOT_A_REQUEST, FS_LOOK, FS_OFFERED };

/* Takes the next datagram. FS_REQUEST: `request` and `*user`, who sent it, are whole, and `brought[0]` is the descriptor that
 * came with it, or -1. FS_LOOK: somebody wants to look inside (seen.h): `*user` and `*asker` are whole. FS_OFFERED: somebody offers the
 * page of an event set (sets.h): so they are, and both of `brought` are descriptors. Otherwise nothing is left of it:
 * `request` is zeroed, `brought` is -1, and what came is dropped (dropping.h): there is room for all that can come, as the
 * kernel closes what has none.
 *
 * A parcel that did not come for want of a descriptor number makes the request none: its sender waits for an answer in vain and
 * uses a bridge. */
static inline enum fs_took fs_take_request(int fd, unsigned char request[FS_ASK_SIZE], uint32_t *user, int brought[2],
                                          struct fs_asker *asker) {
    union {
        struct fs_request request;
        struct fs_look look;
        struct fs_set_offer offer;
    } came_in;
    union {
        char space[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(FS_BRINGS_MAX * sizeof(int))];
        struct cmsghdr aligned;
    } control;
    struct iovec iov = {&came_in, sizeof came_in};
    struct msghdr message = {
        .msg_name = &asker->address, .msg_namelen = sizeof asker->address,
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control.space};
    int sound = 0, named = 0, count = 0;
    memset(request, 0, FS_ASK_SIZE);
    brought[0] = brought[1] = -1;
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
            if (count++ < 2) brought[count - 1] = one;
            else fs_drop_descriptor(one, 0);
        }
    }
    sound = named && !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC));
    if (sound && count < 2 && fs_read_name(&came_in.request, FS_ASK_MAGIC, got, sizeof came_in.request, request)) return FS_REQUEST;
    if (sound && got == sizeof asker->look && !count) {
        asker->look = came_in.look;
        asker->size = message.msg_namelen;
        if (asker->look.magic == FS_LOOK_MAGIC) return FS_LOOK;
    }
    if (sound && count == 2 && fs_read_name(&came_in.request, FS_SET_MAGIC, got, sizeof came_in.offer, request)) {
        asker->offer = came_in.offer;
        asker->size = message.msg_namelen;
        return FS_OFFERED;
    }
    for (int i = 0; i < 2; i++)
        if (brought[i] >= 0) fs_drop_descriptor(brought[i], 0);
    brought[0] = brought[1] = -1;
    memset(request, 0, FS_ASK_SIZE);
    return FS_NOT_A_REQUEST;
}

#endif
