/* Abstract unix sockets: for published names and for control requests. */
#ifndef FASTSOCK_ABSTRACT_SOCKET_H
#define FASTSOCK_ABSTRACT_SOCKET_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stddef.h>
#include <sys/un.h>

#include "os/fd_reserve.h"
#include "os/syscalls.h"

/* Fills in the address of an abstract unix socket. Returns its size, 0 if the name is too long. */
static inline socklen_t fs_abstract_address(struct sockaddr_un *address, const char *name, size_t length) {
    if (length > sizeof address->sun_path - 1) return 0;
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(address->sun_path + 1, name, length);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

/* Returns a bound abstract unix socket with a number in the reserved range, listening if it is SOCK_SEQPACKET; or -errno. */
static inline int fs_abstract_socket(int type, const char *name, size_t length) {
    struct sockaddr_un address;
    socklen_t size = fs_abstract_address(&address, name, length);
    if (!size) return -ENAMETOOLONG;
    int fd = fs_reserve_fd(fs_system.socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), type == SOCK_SEQPACKET);
    if (fd < 0) return fd;
    if (fs_system.bind(fd, (struct sockaddr *)&address, size) < 0 ||
        (type == SOCK_SEQPACKET && fs_system.listen(fd, 4) < 0)) {
        int saved = errno;
        fs_system.close(fd);
        return -saved;
    }
    return fd;
}

/* Returns the process and user at the other end of a unix socket; user -1 if the kernel does not know. */
static inline struct ucred fs_peer_credentials(int fd) {
    struct ucred cred = {0, (uid_t)-1, (gid_t)-1};
    socklen_t size = sizeof cred;
    fs_system.getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &size);
    return cred;
}

static inline uint32_t fs_peer_user(int fd) { return fs_peer_credentials(fd).uid; }

#endif
