/* Control requests between the processes of a connection, received on the control thread's datagram socket (docs/protocol.md): to
 * look at a connection, to fall back to the kernel, and to resend unread data.
 *
 * A request names the region and the side that is asked. Unread data comes with it as a descriptor: a memfd of bytes that the
 * requester's side had received but its program had not read.
 *
 * The socket's name is visible to everybody on the host, and everybody may write there. So a request is checked by its length, magic and
 * version, by the user that the kernel vouches for, and by the region's id, which only the two sides know. */
#pragma once

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* struct ucred */
#endif
#include "os/syscalls.h"
#include "control/descriptors.h"
#include "control/fd_reaper.h"
#include "control/introspection.h"
#include "wire/control_msg.h"

/* Prepares a datagram socket for requests: the kernel adds the sender's credentials. Returns 0 or -1. */
static inline int fs_enable_credentials(int fd) {
    int one = 1;
    return fs_system.setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &one, sizeof one);
}

/* Gets the subject of a datagram: region id and side. `came`: the part that a request and an offer share; `size`: the datagram's,
 * `whole`: the required one. Returns 0 if it is not such a datagram. */
static inline int fs_parse_control_msg(const struct fs_control_msg *came, uint64_t magic, ssize_t size, size_t whole,
                                       unsigned char request[FS_CONTROL_KEY_SIZE]) {
    if (size != (ssize_t)whole || came->magic != magic || came->version != FS_VERSION || came->side > 1) return 0;
    memcpy(request, came->id, sizeof came->id);
    request[16] = (unsigned char)came->side;
    return 1;
}
_Static_assert(offsetof(struct fs_page_offer, version) == offsetof(struct fs_control_msg, version) &&
               offsetof(struct fs_page_offer, side) == offsetof(struct fs_control_msg, side) &&
               offsetof(struct fs_page_offer, id) == offsetof(struct fs_control_msg, id), "one function reads both");

/* The next datagram, still in the queue. */
struct fs_control_peek {
    int is_request, has_fds, named;            /* it is a request or an offer; it has descriptors; the kernel named its user: */
    uint32_t user;
    unsigned char request[FS_CONTROL_KEY_SIZE]; /* if `is_request` */
};

/* Looks at the next datagram without receiving it: the sender must be known before its descriptors become ours, as closing them can
 * block. Returns 0 if there is none. */
static inline int fs_peek_control(int fd, struct fs_control_peek *seen) {
    union {
        struct fs_control_msg request;
        struct fs_page_offer offer;
    } said;
    union {
        char space[CMSG_SPACE(sizeof(struct ucred))]; /* no room for descriptors, so none is created */
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
    seen->is_request = fs_parse_control_msg(&said.request, FS_CONTROL_MAGIC, size, sizeof said.request, seen->request) ||
                 fs_parse_control_msg(&said.request, FS_WAY_MAGIC, size, sizeof said.request, seen->request) ||
                 fs_parse_control_msg(&said.request, FS_PAGE_OFFER_MAGIC, size, sizeof said.offer, seen->request);
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS && c->cmsg_len == CMSG_LEN(sizeof(struct ucred))) {
        struct ucred who;
        memcpy(&who, CMSG_DATA(c), sizeof who);
        seen->user = who.uid;
        seen->named = 1;
    }
    seen->has_fds = (message.msg_flags & MSG_CTRUNC) != 0;
    return 1;
}

enum fs_control_kind { FS_CONTROL_NONE, FS_CONTROL_REQUEST, FS_CONTROL_INVALID, FS_CONTROL_QUERY, FS_CONTROL_PAGE_OFFER, FS_CONTROL_WAY,
                       FS_CONTROL_TAP };

/* Receives the next datagram and returns its kind. FS_CONTROL_REQUEST: `request` and `*user`, its sender, are set, and `brought[0]` is
 * its descriptor or -1. FS_CONTROL_QUERY: a query (introspection.h); `*user` and `*requester` are set. FS_CONTROL_PAGE_OFFER: the page
 * of an event set is offered (page_offers.h); those are set, and both of `brought` are descriptors. FS_CONTROL_WAY: another holder of the
 * peer's side is asked from now on; `request` and `*user` are set, and `brought[0]` is the way there (far_peer.h). FS_CONTROL_TAP: an
 * observer offers its page (wire/tap_page.h); `*user` is set, and `brought[0]` is the memfd. Otherwise nothing is left of the datagram:
 * `request` is zeroed, `brought` is -1, and its descriptors are dropped (fd_reaper.h). The buffer has room for all that can come, as the
 * kernel would close the rest itself.
 *
 * If unread data could not be received for want of a descriptor number, the request is dropped: its sender gets no answer and uses a
 * bridge. */
static inline enum fs_control_kind fs_recv_control(int fd, unsigned char request[FS_CONTROL_KEY_SIZE], uint32_t *user, int brought[2],
                                          struct fs_requester *requester) {
    union {
        struct fs_control_msg request;
        struct fs_query query;
        struct fs_page_offer offer;
    } came_in;
    union {
        char space[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(FS_CONTROL_FDS_MAX * sizeof(int))];
        struct cmsghdr aligned;
    } control;
    struct iovec iov = {&came_in, sizeof came_in};
    struct msghdr message = {
        .msg_name = &requester->address, .msg_namelen = sizeof requester->address,
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control.space};
    int sound = 0, named = 0, count = 0;
    memset(request, 0, FS_CONTROL_KEY_SIZE);
    brought[0] = brought[1] = -1;
    *user = (uint32_t)-1;
    ssize_t got = fs_system.recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0) return errno == EINTR ? FS_CONTROL_INVALID : FS_CONTROL_NONE;
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
            else fs_reap_fd(one, 0);
        }
    }
    sound = named && !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC));
    if (sound && count < 2 && fs_parse_control_msg(&came_in.request, FS_CONTROL_MAGIC, got, sizeof came_in.request, request))
        return FS_CONTROL_REQUEST;
    if (sound && count == 1 && fs_parse_control_msg(&came_in.request, FS_WAY_MAGIC, got, sizeof came_in.request, request))
        return FS_CONTROL_WAY;
    if (sound && count == 1 && fs_parse_control_msg(&came_in.request, FS_TAP_MAGIC, got, sizeof came_in.request, request))
        return FS_CONTROL_TAP;
    if (sound && got == sizeof requester->query && !count) {
        requester->query = came_in.query;
        requester->size = message.msg_namelen;
        if (requester->query.magic == FS_QUERY_MAGIC) return FS_CONTROL_QUERY;
    }
    if (sound && count == 2 && fs_parse_control_msg(&came_in.request, FS_PAGE_OFFER_MAGIC, got, sizeof came_in.offer, request)) {
        requester->offer = came_in.offer;
        requester->size = message.msg_namelen;
        return FS_CONTROL_PAGE_OFFER;
    }
    for (int i = 0; i < 2; i++)
        if (brought[i] >= 0) fs_reap_fd(brought[i], 0);
    brought[0] = brought[1] = -1;
    memset(request, 0, FS_CONTROL_KEY_SIZE);
    return FS_CONTROL_INVALID;
}
