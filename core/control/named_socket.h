/* Unix sockets with a name: for published names and for control requests. A name that begins with a slash is a path, of a socket in the
 * folder where other network namespaces find it (rendezvous_dir.h). All others are abstract, and of this network namespace. */
#pragma once

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stddef.h>
#include <sys/un.h>

#include "control/rendezvous_dir.h"
#include "os/fd_reserve.h"
#include "os/syscalls.h"

/* Fills in the address of a name. Returns its size, 0 if the name is too long. */
static inline socklen_t fs_name_address(struct sockaddr_un *address, const char *name, size_t length) {
    if (length > sizeof address->sun_path - 1) return 0;
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(address->sun_path + (*name != '/'), name, length); /* (after a zero, or before one) */
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

/* Gives a unix socket its name. Returns 0 or -errno. */
static inline int fs_name_bind(int fd, const char *name, size_t length) {
    struct sockaddr_un address;
    socklen_t size = fs_name_address(&address, name, length);
    if (!size) return -ENAMETOOLONG;
    if (*name == '/') return fs_dir_bind(fd, &address, size);
    return fs_system.bind(fd, (struct sockaddr *)&address, size) < 0 ? -errno : 0;
}

/* Returns a bound unix socket with a number in the reserved range, listening if it is SOCK_SEQPACKET; or -errno. */
static inline int fs_named_socket(int type, const char *name, size_t length) {
    int fd = fs_reserve_fd(fs_system.socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), type == SOCK_SEQPACKET);
    if (fd < 0) return fd;
    int failed = fs_name_bind(fd, name, length);
    if (!failed && type == SOCK_SEQPACKET && fs_system.listen(fd, 4) < 0) failed = -errno;
    if (failed) fs_system.close(fd);
    return failed ? failed : fd;
}

/* Returns the process and user at the other end of a unix socket; user -1 if the kernel does not know. */
static inline struct ucred fs_peer_credentials(int fd) {
    struct ucred cred = {0, (uid_t)-1, (gid_t)-1};
    socklen_t size = sizeof cred;
    fs_system.getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &size);
    return cred;
}

static inline uint32_t fs_peer_user(int fd) { return fs_peer_credentials(fd).uid; }
