/* The kernel connection under an endpoint: the system calls on the TCP socket that take more than one line. Nothing here blocks, keeps
 * state or knows the region. */
#include "transport/tcp.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>

#include "transport/options.h"

#ifndef SO_COOKIE
#define SO_COOKIE 57 /* Linux 4.12 */
#endif
#ifndef SO_ZEROCOPY
#define SO_ZEROCOPY 60
#endif

enum { /* tcp_info fields by offset (include/uapi/linux/tcp.h; the layout only ever grows) */
    TCPI_BYTES_RECEIVED = 128,
    TCPI_NOTSENT_BYTES = 144,
    TCPI_BYTES_SENT = 200,
    TCPI_BYTES_RETRANS = 208,
    TCPI_NEEDED = 216,
};

static uint64_t long_at(const char *info, int offset) {
    uint64_t value;
    memcpy(&value, info + offset, sizeof value);
    return value;
}

static uint32_t word_at(const char *info, int offset) {
    uint32_t value;
    memcpy(&value, info + offset, sizeof value);
    return value;
}

int fs_tcp_bytes(int fd, char *state, uint64_t *sent, uint64_t *received) {
    char info[TCPI_NEEDED]; /* (the kernel writes as much as there is room for) */
    socklen_t length = sizeof info;
    if (fs_system.getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &length) < 0 || length < TCPI_NEEDED) return 0;
    *state = info[0];
    *sent = long_at(info, TCPI_BYTES_SENT) - long_at(info, TCPI_BYTES_RETRANS) + word_at(info, TCPI_NOTSENT_BYTES);
    *received = long_at(info, TCPI_BYTES_RECEIVED);
    return 1;
}

/* ---- the other end ---------------------------------------------------------------------------------------------- */

/* Stores address and port of one end in sock_diag's format. Returns the address family, or 0. */
static int fill_end(int fd, int remote, __be32 address[4], __be16 *port) {
    struct sockaddr_storage s;
    socklen_t n = sizeof s;
    if ((remote ? fs_system.getpeername : fs_system.getsockname)(fd, (struct sockaddr *)&s, &n) < 0) return 0;
    if (s.ss_family == AF_INET) {
        memcpy(address, &((struct sockaddr_in *)&s)->sin_addr, 4);
        *port = ((struct sockaddr_in *)&s)->sin_port;
    } else {
        memcpy(address, &((struct sockaddr_in6 *)&s)->sin6_addr, 16);
        *port = ((struct sockaddr_in6 *)&s)->sin6_port;
    }
    return s.ss_family;
}

/* A query to sock_diag(7) and its answer. */
struct diag {
    struct {
        struct nlmsghdr header;
        struct inet_diag_req_v2 body;
    } request;
    union {
        struct nlmsghdr header;
        char space[256]; /* (of a longer one the beginning) */
    } answer;
};

/* Prepares the query for the socket of the other end. Returns 0 if there is no such address. */
static int name_peer(struct diag *d, int fd) {
    struct inet_diag_req_v2 *body = &d->request.body;
    memset(&d->request, 0, sizeof d->request);
    /* The peer's local end is our remote one. (Port and address 0 would match any socket.) */
    int family = fill_end(fd, 1, body->id.idiag_src, &body->id.idiag_sport);
    if (!family || fill_end(fd, 0, body->id.idiag_dst, &body->id.idiag_dport) != family) return 0;
    d->request.header.nlmsg_len = sizeof d->request;
    d->request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    d->request.header.nlmsg_flags = NLM_F_REQUEST;
    body->sdiag_family = (uint8_t)family;
    body->sdiag_protocol = IPPROTO_TCP;
    body->idiag_states = ~0u;
    body->id.idiag_cookie[0] = body->id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    return 1;
}

/* Sends the query. Returns 1 with a socket in `*told`; 0 if there is none or the kernel cannot know (ENOENT); -1 on failure. */
static int ask_diag(struct diag *d, int diag, struct inet_diag_msg *told) {
    int error;
    ssize_t got = fs_system.send(diag, &d->request, sizeof d->request, 0);
    if (got >= 0) got = fs_system.recv(diag, &d->answer, sizeof d->answer, 0);
    if (got >= (ssize_t)NLMSG_LENGTH(sizeof *told) && d->answer.header.nlmsg_type == SOCK_DIAG_BY_FAMILY) {
        memcpy(told, NLMSG_DATA(&d->answer.header), sizeof *told);
        return 1;
    }
    if (got < (ssize_t)NLMSG_LENGTH(sizeof error) || d->answer.header.nlmsg_type != NLMSG_ERROR) return -1;
    memcpy(&error, NLMSG_DATA(&d->answer.header), sizeof error);
    return error == -ENOENT ? 0 : -1;
}

int fs_open_diag(void) {
    return fs_system.socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG);
}

enum fs_peer_state fs_peer_socket_state(int fd) {
    struct diag d;
    struct inet_diag_msg told;
    enum fs_peer_state peer = FS_PEER_UNKNOWN;
    if (!name_peer(&d, fd)) return FS_PEER_UNKNOWN;
    int diag = fs_open_diag();
    if (diag < 0) return FS_PEER_UNKNOWN;
    int found = ask_diag(&d, diag, &told);
    if (found > 0) {
        peer = told.idiag_inode ? FS_PEER_OPEN : FS_PEER_CLOSED;
    } else if (found == 0) {
        /* No socket, or no such kernel module: in the first case our own end is found. */
        struct inet_diag_sockid *id = &d.request.body.id, swapped = *id;
        memcpy(id->idiag_src, swapped.idiag_dst, sizeof swapped.idiag_src);
        memcpy(id->idiag_dst, swapped.idiag_src, sizeof swapped.idiag_src);
        id->idiag_sport = swapped.idiag_dport;
        id->idiag_dport = swapped.idiag_sport;
        if (ask_diag(&d, diag, &told) > 0) peer = FS_PEER_CLOSED;
    }
    fs_system.close(diag);
    return peer;
}

int fs_find_peer_socket(int fd, int diag, struct fs_peer_socket *peer) {
    struct diag d;
    struct inet_diag_msg told;
    if (!name_peer(&d, fd)) return 0;
    int own = diag < 0 ? fs_open_diag() : -1;
    if (diag < 0 && own < 0) return 0;
    int found = ask_diag(&d, diag < 0 ? own : diag, &told);
    if (own >= 0) fs_system.close(own);
    if (found <= 0 || told.idiag_state != FS_TCP_ESTABLISHED) return 0;
    peer->user = told.idiag_uid;
    peer->cookie = (uint64_t)told.id.idiag_cookie[1] << 32 | told.id.idiag_cookie[0];
    return 1;
}

uint64_t fs_cookie(int fd) {
    uint64_t cookie;
    socklen_t n = sizeof cookie;
    return fs_system.getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &n) == 0 ? cookie : 0;
}

/* ---- reset, options and addresses -------------------------------------------------------------------------------- */

int fs_reset_connection(int fd) {
    struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
    return fs_system.connect(fd, &nowhere, sizeof nowhere); /* tcp(7): dissolves the association, with a RST */
}

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

int fs_needs_kernel(int fd) { return fs_option(fd, SOL_SOCKET, SO_RCVLOWAT) > 1 || fs_option(fd, SOL_SOCKET, SO_ZEROCOPY); }

int fs_is_corked(int fd) { return fs_option(fd, IPPROTO_TCP, TCP_CORK) != 0; }

int fs_endpoint_address(int fd, int remote, unsigned char address[16], int *port) {
    struct sockaddr_storage s;
    socklen_t n = sizeof s;
    if ((remote ? fs_system.getpeername : fs_system.getsockname)(fd, (struct sockaddr *)&s, &n) < 0) return -1;
    if (s.ss_family == AF_INET) {
        memcpy(address, &((struct sockaddr_in *)&s)->sin_addr, 4);
        *port = ntohs(((struct sockaddr_in *)&s)->sin_port);
        return 4;
    }
    memcpy(address, &((struct sockaddr_in6 *)&s)->sin6_addr, 16);
    *port = ntohs(((struct sockaddr_in6 *)&s)->sin6_port);
    return 16;
}
