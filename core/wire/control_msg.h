/* The wire format of a control request to the peer process. control/control_recv.h describes the requests and receives them. */
#pragma once

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* struct ucred */
#endif
#include <stddef.h>
#include <stdio.h>
#include <sys/un.h>

#include "os/fd_reserve.h"
#include "os/syscalls.h"
#include "wire/region.h"

#define FS_CONTROL_KEY_SIZE 17 /* the subject of a request: the region's id, and one byte with the side asked */
#define FS_CONTROL_NAME "fastsock/ask/%016llx"
#define FS_CONTROL_MAGIC UINT64_C(0x312d6b73612d7366) /* "fs-ask-1", little endian */
#define FS_WAY_MAGIC UINT64_C(0x312d7961772d7366)     /* "fs-way-1": a way to the sender comes with it (process/far_peer.h) */

/* The datagram. All datagrams to this socket begin with a magic. Those with another magic or version are ignored. */
struct fs_control_msg {
    uint64_t magic;
    uint32_t version;
    uint32_t side;
    unsigned char id[16];
};
_Static_assert(sizeof(struct fs_control_msg) == 32, "no padding on the wire");
FS_ASSERT_OFFSET(fs_control_msg, magic, 0);
FS_ASSERT_OFFSET(fs_control_msg, version, 8);
FS_ASSERT_OFFSET(fs_control_msg, side, 12);
FS_ASSERT_OFFSET(fs_control_msg, id, 16);

enum { FS_CONTROL_NAME_SIZE = 13 + 16 };

/* Writes FS_CONTROL_NAME_SIZE bytes, as FS_CONTROL_NAME has them. (A send may come here, and snprintf takes much of its thread's stack.) */
static inline void fs_control_name(char *name, uint64_t token) {
    memcpy(name, "fastsock/ask/", 13);
    for (int i = 0; i < 16; i++) name[13 + i] = "0123456789abcdef"[token >> (60 - 4 * i) & 15];
}

/* Fills in the address of the control socket with this token. Returns its size. */
static inline socklen_t fs_control_address(struct sockaddr_un *address, uint64_t token) {
    address->sun_family = AF_UNIX;
    address->sun_path[0] = 0;
    fs_control_name(address->sun_path + 1, token);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + FS_CONTROL_NAME_SIZE);
}

static inline struct cmsghdr *fs_put_cmsg(struct msghdr *message, struct cmsghdr *c, int type, const void *data, size_t n) {
    *c = (struct cmsghdr){.cmsg_len = CMSG_LEN(n), .cmsg_level = SOL_SOCKET, .cmsg_type = type};
    memcpy(CMSG_DATA(c), data, n);
    message->msg_controllen += CMSG_SPACE(n);
    return (struct cmsghdr *)((char *)c + CMSG_SPACE(n));
}

/* Adds the sender's credentials: the effective user, by which the rendezvous judged this process. By default the kernel would give the
 * real user. Returns as fs_put_cmsg. */
static inline struct cmsghdr *fs_put_credentials(struct msghdr *message, struct cmsghdr *c) {
    struct ucred who = {getpid(), geteuid(), getegid()};
    return fs_put_cmsg(message, c, SCM_CREDENTIALS, &who, sizeof who);
}

/* A request as it is sent, with room for its address and what comes with it. */
struct fs_control_parcel {
    struct sockaddr_un address;
    struct fs_control_msg request;
    struct iovec iov;
    struct msghdr message;
    union {
        char space[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(sizeof(int))];
        struct cmsghdr aligned;
    } control;
};

/* Fills in a request, with a descriptor if `with` is not negative. It has no address yet. */
static inline void fs_fill_parcel(struct fs_control_parcel *p, uint64_t magic, const unsigned char id[16], int side, int with) {
    p->request = (struct fs_control_msg){.magic = magic, .version = FS_VERSION, .side = (uint32_t)side};
    memcpy(p->request.id, id, 16);
    p->iov = (struct iovec){&p->request, sizeof p->request};
    p->message = (struct msghdr){.msg_iov = &p->iov, .msg_iovlen = 1, .msg_control = p->control.space};
    struct cmsghdr *next = fs_put_credentials(&p->message, &p->control.aligned);
    if (with >= 0) fs_put_cmsg(&p->message, next, SCM_RIGHTS, &with, sizeof with);
}

/* Sends a request, with unread data if `unread_data` is not negative. Returns 0 or -errno. Never blocks. */
static inline int fs_send_control(uint64_t token, const unsigned char id[16], int side, int unread_data) {
    struct fs_control_parcel p;
    if (!token) return -ENOENT; /* the peer has not attached yet, or has no control socket */
    fs_fill_parcel(&p, FS_CONTROL_MAGIC, id, side, unread_data);
    p.message.msg_name = &p.address;
    p.message.msg_namelen = fs_control_address(&p.address, token);
    int fd = fs_system.socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int own = fd < 0 && (errno == EMFILE || errno == ENFILE) ? fs_valid_control_fd() : -1;
    if (fd < 0 && own < 0) return -errno;
    int failed = fs_system.sendmsg(fd < 0 ? own : fd, &p.message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
    if (fd >= 0) fs_system.close(fd);
    return failed;
}

/* Sends a request to one side of a region: to the process announced there, or, if the kernel says that it has ended, to another holder.
 * Returns as fs_send_control. */
static inline int fs_send_control_to_side(struct fs_region *region, const unsigned char id[16], int side, int unread_data) {
    /* SYNC: token - pairs with fs_requests_announce. */
    int failed = fs_send_control(fs_load_acquire(&region->asks[side]), id, side, unread_data);
    return failed == -ECONNREFUSED ? fs_send_control(fs_load_acquire(&region->asks_else[side]), id, side, unread_data) : failed;
}

/* Returns true if the socket exists, and also if no descriptor is free to test it. */
static inline int fs_control_is_open(uint64_t token) {
    struct sockaddr_un address;
    socklen_t length = fs_control_address(&address, token);
    int fd = fs_system.socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int listens = fd < 0 || fs_system.connect(fd, (struct sockaddr *)&address, length) == 0 || errno != ECONNREFUSED;
    if (fd >= 0) fs_system.close(fd);
    return listens;
}
