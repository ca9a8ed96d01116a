/* The identity of the TCP connection behind a descriptor, the same for both ends. */
#ifndef FASTSOCK_TCP_IDENTITY_H
#define FASTSOCK_TCP_IDENTITY_H

#include <netinet/in.h>
#include <unistd.h>

#include "os/syscalls.h"

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71 /* Linux 5.14 */
#endif

/* One end as an IPv6 address (IPv4 as ::ffff:...) and a port. */
struct fs_tcp_endpoint {
    unsigned char address[16];
    uint16_t port;
};

struct fs_tcp_identity {
    struct fs_tcp_endpoint here, there;
    uint64_t network; /* cookie of the network namespace, 0 if unknown */
};

/* Returns true for an IPv4 address. */
static inline int fs_is_mapped(const unsigned char address[16]) {
    static const unsigned char prefix[12] = {[10] = 0xff, [11] = 0xff};
    return memcmp(address, prefix, sizeof prefix) == 0;
}

static inline int fs_tcp_address(int fd, int remote, struct fs_tcp_endpoint *end) {
    struct sockaddr_storage s;
    socklen_t n = sizeof s;
    memset(end, 0, sizeof *end);
    if ((remote ? fs_system.getpeername : fs_system.getsockname)(fd, (struct sockaddr *)&s, &n) < 0) return 0;
    if (s.ss_family == AF_INET) {
        end->address[10] = end->address[11] = 0xff;
        memcpy(end->address + 12, &((struct sockaddr_in *)&s)->sin_addr, 4);
        end->port = ((struct sockaddr_in *)&s)->sin_port;
        return 1;
    }
    if (s.ss_family != AF_INET6) return 0;
    memcpy(end->address, &((struct sockaddr_in6 *)&s)->sin6_addr, 16);
    end->port = ((struct sockaddr_in6 *)&s)->sin6_port;
    return 1;
}

/* Returns true if a socket is connected, and sets the ends of `*identity`, not its network. */
static inline int fs_tcp_addresses(int fd, struct fs_tcp_identity *identity) {
    identity->network = 0;
    return fs_tcp_address(fd, 0, &identity->here) && fs_tcp_address(fd, 1, &identity->there);
}

/* Returns the cookie of a socket's network namespace, 0 if the kernel does not say. (An accepted unix socket has that of the one which
 * connected.) */
static inline uint64_t fs_netns_cookie(int fd) {
    uint64_t cookie;
    socklen_t n = sizeof cookie;
    return fs_system.getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &n) < 0 ? 0 : cookie;
}

/* Returns true if `fd` is a TCP socket, and sets the network of `*identity`. */
static inline int fs_tcp_netns(int fd, struct fs_tcp_identity *identity) {
    int protocol = 0;
    socklen_t n = sizeof protocol;
    if (fs_system.getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &n) < 0 || protocol != IPPROTO_TCP) return 0;
    identity->network = fs_netns_cookie(fd);
    return 1;
}

/* Returns true if `fd` is a connected TCP socket, and sets `*identity`. (UDP sockets have two names, too.) */
static inline int fs_identify_tcp(int fd, struct fs_tcp_identity *identity) {
    return fs_tcp_addresses(fd, identity) && fs_tcp_netns(fd, identity);
}

/* Returns true if `fd` is the other end of a connection. A network namespace has one connected TCP socket with given names at each end,
 * and nobody can make a second one while it lives. So a match means this very socket. */
static inline int fs_is_other_end(const struct fs_tcp_identity *own, int fd) {
    struct fs_tcp_identity other;
    return fs_identify_tcp(fd, &other) && own->network == other.network &&
           memcmp(&own->here, &other.there, sizeof own->here) == 0 &&
           memcmp(&own->there, &other.here, sizeof own->there) == 0;
}

#endif
