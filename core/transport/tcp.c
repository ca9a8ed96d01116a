/* TCP connections, as stream.h asks for them. */
#include "transport/stream.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <stdio.h>

#include "transport/options.h"

#ifndef SO_ZEROCOPY
#define SO_ZEROCOPY 60
#endif

enum { /* the states used here (include/net/tcp_states.h) */
    ESTABLISHED = 1, TIME_WAIT = 6, CLOSE = 7, CLOSE_WAIT = 8, LAST_ACK = 9, CLOSING = 11,
};

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

/* ---- positions, and the end ----------------------------------------------------------------------------------------- */

/* Sets the payload bytes that entered and left the kernel's stream since the connection began, and the TCP state. Returns 0 if the kernel
 * does not know (before Linux 4.19) or `fd` is no TCP socket. */
static int count_bytes(int fd, char *state, uint64_t *sent, uint64_t *received) {
    char info[TCPI_NEEDED]; /* (the kernel writes as much as there is room for) */
    socklen_t length = sizeof info;
    if (fs_system.getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &length) < 0 || length < TCPI_NEEDED) return 0;
    *state = info[0];
    *sent = long_at(info, TCPI_BYTES_SENT) - long_at(info, TCPI_BYTES_RETRANS) + word_at(info, TCPI_NOTSENT_BYTES);
    *received = long_at(info, TCPI_BYTES_RECEIVED);
    return 1;
}

static int count_taken(int fd, uint64_t *taken) {
    for (;;) {
        uint64_t sent, before, after;
        int waiting;
        char state;
        if (!count_bytes(fd, &state, &sent, &before) || fs_system.ioctl(fd, FIONREAD, &waiting) < 0) return 0;
        /* Nothing waits, and the caller sees to it that nobody takes bytes: everything received by now was received, and taken, before. */
        if (!waiting && state == ESTABLISHED) {
            *taken = before;
            return 1;
        }
        if (!count_bytes(fd, &state, &sent, &after) || state != ESTABLISHED) return 0;
        if (before == after) { /* nothing came between the two counts */
            *taken = after - (uint64_t)waiting;
            return 1;
        }
    }
}

/* Returns true if the peer's FIN has come, of a connection that is not over. */
static int has_fin_come(char state) { return state == CLOSE_WAIT || state == LAST_ACK || state == CLOSING || state == TIME_WAIT; }

static enum fs_liveness liveness(int fd, int shut) {
    uint64_t sent, received;
    char state;
    if (!count_bytes(fd, &state, &sent, &received) || state == CLOSE) return FS_OVER;
    return has_fin_come(state) ? FS_STREAM_ENDED : FS_ALIVE;
}

/* The kernel counts the peer's FIN as a byte received. It no longer says how a connection ended that is over: without a reset a FIN has
 * come, unless the reset was reported already, and the bytes not waiting are just those that this side has taken. */
static int find_position(int fd, uint64_t noted, uint64_t *taken) {
    uint64_t sent, before, after;
    int waiting;
    char state;
    do {
        if (!count_bytes(fd, &state, &sent, &before) || fs_system.ioctl(fd, FIONREAD, &waiting) < 0) return 0;
        if (!count_bytes(fd, &state, &sent, &after)) return 0;
    } while (before != after); /* until nothing came between the two counts */
    *taken = after - (uint64_t)waiting;
    if (state == CLOSE && fs_poll_events_now(fd, 0) & POLLERR) return 0;
    if (has_fin_come(state) || (state == CLOSE && *taken > noted)) *taken -= 1;
    return 1;
}

/* (Behind our own end: a FIN counts as a byte sent.) */
static int count_sent(int fd, uint64_t *sent) {
    uint64_t received;
    char state;
    return count_bytes(fd, &state, sent, &received) && (state == ESTABLISHED || state == CLOSE_WAIT);
}

static int has_received(int fd, uint64_t position) {
    uint64_t sent, received;
    char state;
    return count_bytes(fd, &state, &sent, &received) && received >= position;
}

static int has_sent_behind(int fd, uint64_t position) {
    uint64_t sent, received;
    char state;
    return !count_bytes(fd, &state, &sent, &received) || sent > position;
}

static void reset(int fd) {
    struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
    fs_system.connect(fd, &nowhere, sizeof nowhere); /* tcp(7): dissolves the association, with a RST */
}

/* ---- the two ends ---------------------------------------------------------------------------------------------------- */

static int find_end(int fd, int remote, struct fs_stream_endpoint *end) {
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

static int identify(int fd, struct fs_stream_identity *ends) {
    ends->network = 0;
    ends->kind = &fs_tcp_stream;
    if (!find_end(fd, 0, &ends->here) || !find_end(fd, 1, &ends->there)) return 0;
    ends->services[0] = ends->there;
    ends->services[1] = ends->here;
    return 1;
}

/* (UDP sockets have two names, too.) */
static int find_network(int fd, struct fs_stream_identity *ends) {
    int protocol = 0;
    socklen_t n = sizeof protocol;
    if (fs_system.getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &n) < 0 || protocol != IPPROTO_TCP) return 0;
    ends->network = fs_netns_cookie(fd);
    return 1;
}

/* A network namespace has one connected TCP socket with given names at each end, and nobody can make a second one while it lives. So a
 * match means this very socket. */
static int is_other_end(const struct fs_stream_identity *own, int fd) {
    struct fs_stream_identity other;
    return identify(fd, &other) && find_network(fd, &other) && own->network == other.network &&
           memcmp(&own->here, &other.there, sizeof own->here) == 0 &&
           memcmp(&own->there, &other.here, sizeof own->there) == 0;
}

static void write_end(const struct fs_stream_endpoint *end, char text[FS_END_TEXT]) {
    int four = fs_is_mapped(end->address);
    inet_ntop(four ? AF_INET : AF_INET6, end->address + (four ? 12 : 0), text, FS_END_TEXT);
    size_t length = strlen(text);
    snprintf(text + length, FS_END_TEXT - length, ":%d", ntohs(end->port));
}

/* ---- the socket at the other end --------------------------------------------------------------------------------------- */

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

/* Stores an end in sock_diag's format. */
static void fill_end(const struct fs_stream_endpoint *end, __be32 address[4], __be16 *port) {
    int four = fs_is_mapped(end->address);
    memcpy(address, end->address + (four ? 12 : 0), four ? 4 : 16);
    *port = end->port;
}

/* Prepares the query for the socket of the other end. */
static void name_peer(struct diag *d, const struct fs_stream_identity *ends) {
    struct inet_diag_req_v2 *body = &d->request.body;
    memset(&d->request, 0, sizeof d->request);
    /* The peer's local end is our remote one. (Port and address 0 would match any socket.) */
    fill_end(&ends->there, body->id.idiag_src, &body->id.idiag_sport);
    fill_end(&ends->here, body->id.idiag_dst, &body->id.idiag_dport);
    d->request.header.nlmsg_len = sizeof d->request;
    d->request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    d->request.header.nlmsg_flags = NLM_F_REQUEST;
    body->sdiag_family = fs_is_mapped(ends->here.address) ? AF_INET : AF_INET6;
    body->sdiag_protocol = IPPROTO_TCP;
    body->idiag_states = ~0u;
    body->id.idiag_cookie[0] = body->id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
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

static enum fs_peer_state peer_state(int fd) {
    struct diag d;
    struct inet_diag_msg told;
    struct fs_stream_identity ends;
    enum fs_peer_state peer = FS_PEER_UNKNOWN;
    int diag;
    if (!identify(fd, &ends) || (diag = fs_open_diag()) < 0) return FS_PEER_UNKNOWN;
    name_peer(&d, &ends);
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

static int find_peer(const struct fs_stream_identity *ends, int diag, struct fs_peer_socket *peer) {
    struct diag d;
    struct inet_diag_msg told;
    name_peer(&d, ends);
    int own = diag < 0 ? fs_open_diag() : -1;
    if (diag < 0 && own < 0) return 0;
    int found = ask_diag(&d, diag < 0 ? own : diag, &told);
    if (own >= 0) fs_system.close(own);
    if (found <= 0 || told.idiag_state != ESTABLISHED) return 0;
    peer->user = told.idiag_uid;
    peer->cookie = (uint64_t)told.id.idiag_cookie[1] << 32 | told.id.idiag_cookie[0];
    return 1;
}

static int find_path(int fd, int remote, char text[FS_PATH_TEXT]) { return 0; }

/* ---- options ------------------------------------------------------------------------------------------------------------ */

static int needs_kernel(int fd) { return fs_option(fd, SOL_SOCKET, SO_RCVLOWAT) > 1 || fs_option(fd, SOL_SOCKET, SO_ZEROCOPY); }

static int is_corked(int fd) { return fs_option(fd, IPPROTO_TCP, TCP_CORK) != 0; }

static int is_nodelay(int fd) { return fs_option(fd, IPPROTO_TCP, TCP_NODELAY) != 0; }

static int make_pair(int like, int ends[2]) {
    struct sockaddr_storage address;
    struct sockaddr_in6 here, there; /* (the longer address of both families) */
    socklen_t size = sizeof address, listening = sizeof address, n, m;
    int listener = -1, one = 1;
    ends[0] = ends[1] = -1;
    if (fs_system.getsockname(like, (struct sockaddr *)&address, &size) < 0) return -errno;
    if (address.ss_family == AF_INET) ((struct sockaddr_in *)&address)->sin_port = 0;
    else ((struct sockaddr_in6 *)&address)->sin6_port = 0;
    listener = fs_system.socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ends[0] = fs_system.socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || ends[0] < 0) goto failed;
    if (fs_system.bind(listener, (struct sockaddr *)&address, size) < 0) goto failed;
    if (fs_system.listen(listener, 1) < 0) goto failed;
    if (fs_system.getsockname(listener, (struct sockaddr *)&address, &listening) < 0) goto failed;
    if (fs_system.connect(ends[0], (struct sockaddr *)&address, listening) < 0) goto failed;
    do { /* until the connection is our own, not another program's */
        if (ends[1] >= 0) fs_system.close(ends[1]);
        m = n = sizeof here;
        ends[1] = fs_system.accept4(listener, (struct sockaddr *)&there, &m, SOCK_CLOEXEC);
        if (ends[1] < 0 || fs_system.getsockname(ends[0], (struct sockaddr *)&here, &n) < 0) goto failed;
    } while (n != m || memcmp(&here, &there, n) != 0);
    fs_system.close(listener);
    fs_system.setsockopt(ends[1], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fs_system.setsockopt(ends[1], SOL_SOCKET, SO_OOBINLINE, &one, sizeof one); /* for recv_to_mark */
    fs_copy_options(like, ends[0]);
    int nodelay = is_nodelay(like);
    fs_system.setsockopt(ends[0], IPPROTO_TCP, TCP_NODELAY, &nodelay, sizeof nodelay);
    return 0;
failed:;
    int saved = errno;
    if (listener >= 0) fs_system.close(listener);
    if (ends[0] >= 0) fs_system.close(ends[0]);
    if (ends[1] >= 0) fs_system.close(ends[1]);
    ends[0] = ends[1] = -1;
    return -saved;
}

const struct fs_stream_kind fs_tcp_stream = {
    .name = "tcp",
    .has_addresses = 1,
    .counts_bytes = 1,
    .resets = 1,
    .has_receive_buffer = 1,
    .shut_is_writable = 1,
    .truncates = 1,
    .waits_for_nothing = 1,
    .identify = identify,
    .find_network = find_network,
    .is_other_end = is_other_end,
    .write_end = write_end,
    .find_peer = find_peer,
    .find_path = find_path,
    .count_taken = count_taken,
    .find_position = find_position,
    .count_sent = count_sent,
    .has_received = has_received,
    .has_sent_behind = has_sent_behind,
    .liveness = liveness,
    .peer_state = peer_state,
    .reset = reset,
    .needs_kernel = needs_kernel,
    .is_corked = is_corked,
    .is_nodelay = is_nodelay,
    .make_pair = make_pair,
};
