/* What is asked of a stream whatever its kind is: options, numbers, addresses. */
#include "transport/stream.h"

#include <linux/netlink.h>

#ifndef SO_COOKIE
#define SO_COOKIE 57 /* Linux 4.12 */
#endif
#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71 /* Linux 5.14 */
#endif

int fs_open_diag(void) {
    return fs_system.socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG);
}

static uint64_t ask_cookie(int fd, int option) {
    uint64_t cookie;
    socklen_t n = sizeof cookie;
    return fs_system.getsockopt(fd, SOL_SOCKET, option, &cookie, &n) == 0 ? cookie : 0;
}

uint64_t fs_cookie(int fd) { return ask_cookie(fd, SO_COOKIE); }

uint64_t fs_netns_cookie(int fd) { return ask_cookie(fd, SO_NETNS_COOKIE); }

int fs_set_linger_zero(int fd) {
    struct linger l = {1, 0};
    return fs_system.setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
}

int fs_has_linger_zero(int fd) {
    struct linger l = {0, 0};
    socklen_t n = sizeof l;
    return fs_system.getsockopt(fd, SOL_SOCKET, SO_LINGER, &l, &n) == 0 && l.l_onoff && l.l_linger == 0;
}

int fs_option(int fd, int level, int option) {
    int value = 0;
    socklen_t n = sizeof value;
    return fs_system.getsockopt(fd, level, option, &value, &n) == 0 ? value : 0;
}

void fs_set_option(int fd, int level, int option, int value) {
    fs_system.setsockopt(fd, level, option, &value, sizeof value);
}

int64_t fs_option_ns(int fd, int option) {
    struct timeval t = {0, 0};
    socklen_t n = sizeof t;
    if (fs_system.getsockopt(fd, SOL_SOCKET, option, &t, &n) < 0 || (t.tv_sec == 0 && t.tv_usec == 0)) return -1;
    return (int64_t)t.tv_sec * 1000000000 + (int64_t)t.tv_usec * 1000;
}

void fs_copy_options(int from, int to) {
    static const int options[] = {SO_KEEPALIVE, SO_OOBINLINE}, blobs[] = {SO_LINGER, SO_RCVTIMEO, SO_SNDTIMEO};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        fs_set_option(to, SOL_SOCKET, options[i], fs_option(from, SOL_SOCKET, options[i]));
    for (size_t i = 0; i < sizeof blobs / sizeof *blobs; i++) {
        char value[32];
        socklen_t n = sizeof value;
        if (fs_system.getsockopt(from, SOL_SOCKET, blobs[i], value, &n) == 0) fs_system.setsockopt(to, SOL_SOCKET, blobs[i], value, n);
    }
    fs_system.fcntl(to, F_SETFL, fs_system.fcntl(from, F_GETFL, 0));
    struct f_owner_ex owner; /* who gets SIGURG and SIGIO */
    if (fs_system.fcntl(from, F_GETOWN_EX, (long)&owner) == 0) fs_system.fcntl(to, F_SETOWN_EX, (long)&owner);
    fs_system.fcntl(to, F_SETSIG, fs_system.fcntl(from, F_GETSIG, 0));
}

int fs_endpoint_address(int fd, int remote, unsigned char address[16], int *port) {
    struct sockaddr_storage s;
    socklen_t n = sizeof s;
    if ((remote ? fs_system.getpeername : fs_system.getsockname)(fd, (struct sockaddr *)&s, &n) < 0) return -1;
    if (s.ss_family == AF_INET) {
        memcpy(address, &((struct sockaddr_in *)&s)->sin_addr, 4);
        *port = ntohs(((struct sockaddr_in *)&s)->sin_port);
        return 4;
    }
    if (s.ss_family != AF_INET6) return 0;
    memcpy(address, &((struct sockaddr_in6 *)&s)->sin6_addr, 16);
    *port = ntohs(((struct sockaddr_in6 *)&s)->sin6_port);
    return 16;
}
