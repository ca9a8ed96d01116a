/* The table of the processes in other network namespaces that connections of this process lead to.
 *
 * Responsible for: one way for each. Never: believes that a peer is what it says (control/address_proof.c has seen to that). */
#include "process/far_peer.h"

#include "os/fd_reserve.h"
#include "os/syscalls.h"
#include "wire/control_msg.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif
#define PIDFS 0x50494446u /* statfs(2): the file system of pidfds, from Linux 6.9 on. Its inodes are used once */

#define KERNELS (UINT64_C(1) << 63) /* in a key that the kernel has given; others have the next bit, so that none is a process id */

enum { HOLDERS_MOST = 8 }; /* that ask in turn for one connection: each has a descriptor here */

static struct fs_far_peer *peers;

uint64_t fs_process_key(int fd) {
    struct statfs where;
    struct stat status;
    int pidfd = -1;
    socklen_t size = sizeof pidfd;
    if (fs_system.getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) < 0) return 0;
    int known = fs_system.fstatfs(pidfd, &where) == 0 && (uint32_t)where.f_type == PIDFS && fs_system.fstat(pidfd, &status) == 0;
    fs_system.close(pidfd);
    return known ? (uint64_t)status.st_ino << 1 | KERNELS : 0;
}

int fs_make_way(uint64_t token) {
    struct sockaddr_un address;
    socklen_t size = fs_control_address(&address, token);
    int fd = fs_system.socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || fs_system.connect(fd, (struct sockaddr *)&address, size) == 0) return fd < 0 ? -errno : fd;
    int failed = -errno;
    fs_system.close(fd);
    return failed;
}

int fs_hand_way(int control, int way) {
    char letter = FS_HAS_WAY;
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr aligned;
    } with;
    struct iovec iov = {&letter, 1};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = with.space};
    memset(&with, 0, sizeof with);
    fs_put_cmsg(&message, &with.aligned, SCM_RIGHTS, &way, sizeof way);
    return fs_system.sendmsg(control, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* (With a unix socket goes what lies in it unread, which may be descriptors whose close blocks. After the shutdown nothing comes any
 * more.) */
int fs_is_way(int fd) {
    int family = 0, type = 0;
    char unread;
    socklen_t size = sizeof family;
    return fs_system.getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &size) == 0 && family == AF_UNIX &&
           fs_system.getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_DGRAM &&
           fs_system.shutdown(fd, SHUT_RD) == 0 && fs_system.recv(fd, &unread, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

static struct fs_far_peer *find(uint64_t key) {
    struct fs_far_peer *peer = key ? peers : NULL;
    while (peer && !(peer->key == key && !fs_load_relaxed(&peer->over))) peer = peer->next;
    return peer;
}

static int is_ours(const struct fs_far_peer *peer, int way) { return way >= 0 && fs_socket_inode(way) == peer->inode; }

/* Nobody uses it, nor will. */
static void retire(struct fs_far_peer *peer) {
    int way = (int)fs_load_relaxed(&peer->way);
    fs_store_relaxed(&peer->over, 1);
    fs_store_relaxed(&peer->way, UINT32_MAX);
    if (is_ours(peer, way)) fs_system.close(way);
}

/* Returns memory for another one: that of one without users, if there is one. */
static struct fs_far_peer *make_room(void) {
    struct fs_far_peer *made = peers;
    while (made && made->users) made = made->next;
    if (made || !(made = fs_system.calloc(1, sizeof *made))) return made;
    fs_store_relaxed(&made->way, UINT32_MAX);
    made->next = peers;
    return peers = made;
}

/* A key that no process has had. */
static uint64_t new_key(void) {
    static fs_word64 last;
    return (fs_add_sc(&last, 2) + 2) | KERNELS >> 1;
}

struct fs_far_peer *fs_far_peer_join(uint64_t key, int way) {
    struct fs_far_peer *peer = find(key);
    if (peer) {
        if (way >= 0) fs_system.close(way);
        peer->users++;
        return peer;
    }
    int kept = way >= 0 ? fs_reserve_fd(way, 0) : -1;
    peer = kept >= 0 ? make_room() : NULL;
    if (!peer) {
        if (kept >= 0) fs_system.close(kept);
        return NULL;
    }
    peer->key = key ? key : new_key();
    peer->before = NULL;
    peer->inode = fs_socket_inode(kept);
    fs_store_relaxed(&peer->over, 0);
    peer->users = 1;
    fs_store_relaxed(&peer->way, (uint32_t)kept);
    return peer;
}

void fs_far_peer_leave(struct fs_far_peer *peer) {
    if (!--peer->users) retire(peer);
}

int fs_take_way(fs_atomic_ptr(struct fs_far_peer) *far, int way) {
    int holders = 0;
    /* SYNC: far peer - pairs with this function, in another thread that was given up. */
    struct fs_far_peer *before = fs_load_acquire(far);
    for (struct fs_far_peer *it = before; it; it = it->before) holders++;
    struct fs_far_peer *made = holders < HOLDERS_MOST ? fs_system.calloc(1, sizeof *made) : NULL;
    if (!made) {
        fs_system.close(way);
        return 0;
    }
    *made = (struct fs_far_peer){.key = new_key(), .inode = fs_socket_inode(way), .before = before};
    fs_store_relaxed(&made->way, (uint32_t)way);
    /* SYNC: far peer - pairs with fs_far_of: a peer is whole before a sender finds it. */
    fs_store_release(far, made);
    return 1;
}

void fs_far_peer_restore(fs_atomic_ptr(struct fs_far_peer) *far) {
    struct fs_far_peer *peer = fs_load_relaxed(far), *before;
    for (; peer && (before = peer->before); peer = before) {
        peer->before = NULL;
        retire(peer);
        peer->next = peers;
        peers = peer;
    }
    fs_store_relaxed(far, NULL);
}

int fs_send_far(struct fs_far_peer *peer, struct msghdr *message) {
    int way = (int)fs_load_relaxed(&peer->way);
    if (!is_ours(peer, way)) return -EBADF;
    if (fs_system.sendmsg(way, message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return 0;
    if (errno == ECONNREFUSED || errno == ECONNRESET || errno == ENOTCONN || errno == EDESTADDRREQ) fs_store_relaxed(&peer->over, 1);
    return -errno;
}
