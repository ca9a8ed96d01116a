/* Stream sockets of AF_UNIX, as stream.h asks for them.
 *
 * An end is named by the number of its socket (its inode), which the kernel tells this process, and of the other end by sock_diag(7).
 *
 * The kernel does not count the bytes of such a stream. But it knows how many lie unread at the other end, and none is on its way: what has
 * left one socket is in the queue of the other. So a side switches at a moment when the other end has read everything, and positions are
 * counted from there: they are 0 at both ends. Nothing is lost or doubled by this. Who switches has the send lock, so between the kernel's
 * answer and the switch nothing of this side enters the queue, and none of it does so behind the switch. What was sent before has been
 * read, by receives which had the receive lock of the other end; so whoever goes on in the ring there goes on behind them. */
#include "transport/stream.h"

#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/sockios.h>
#include <linux/unix_diag.h>
#include <stdio.h>
#include <sys/un.h>

#include "os/fd_reserve.h"

#ifndef SO_PASSPIDFD
#define SO_PASSPIDFD 76 /* Linux 6.5 */
#endif

enum { ESTABLISHED = 1 }; /* include/net/tcp_states.h, whose states these sockets have too */

/* ---- sock_diag(7) --------------------------------------------------------------------------------------------------------- */

/* What the kernel tells of a socket. */
struct told {
    uint32_t peer;   /* the number of the other end's socket; 0: no process has it yet, or any more */
    uint32_t user;
    uint64_t cookie;
    int state, shut; /* shut: bits of FS_SHUT_*, as this end feels both ends' */
    int has_peer, has_user;
};

/* (The attributes behind a message are aligned to 4 bytes.) */
static void read_attributes(const char *at, const char *end, struct told *told) {
    struct nlattr head;
    for (; end - at >= (long)sizeof head; at += NLA_ALIGN(head.nla_len)) {
        memcpy(&head, at, sizeof head);
        if (head.nla_len < sizeof head || head.nla_len > end - at) return;
        const char *value = at + NLA_HDRLEN;
        size_t length = head.nla_len - NLA_HDRLEN;
        if (head.nla_type == UNIX_DIAG_PEER && length >= sizeof told->peer) {
            memcpy(&told->peer, value, sizeof told->peer);
            told->has_peer = 1;
        } else if (head.nla_type == UNIX_DIAG_UID && length >= sizeof told->user) {
            memcpy(&told->user, value, sizeof told->user);
            told->has_user = 1;
        } else if (head.nla_type == UNIX_DIAG_SHUTDOWN && length >= 1) {
            told->shut = *value; /* (RCV_SHUTDOWN and SEND_SHUTDOWN are the same bits) */
        }
    }
}

/* Asks for the socket with a number. Returns 0 if the kernel does not know. */
static int ask(int diag, uint64_t inode, struct told *told) {
    struct {
        struct nlmsghdr header;
        struct unix_diag_req body;
    } request = {
        .header = {.nlmsg_len = sizeof request, .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_REQUEST},
        .body = {.sdiag_family = AF_UNIX, .udiag_states = ~0u, .udiag_ino = (uint32_t)inode, .udiag_show = UDIAG_SHOW_PEER | UDIAG_SHOW_UID,
                 .udiag_cookie = {~0u, ~0u}},
    };
    union {
        struct nlmsghdr header;
        char space[256];
    } answer;
    struct unix_diag_msg message;
    int own = diag < 0 ? fs_open_diag() : -1, at = diag < 0 ? own : diag;
    if (at < 0) return 0;
    ssize_t got = fs_system.send(at, &request, sizeof request, 0);
    if (got >= 0) got = fs_system.recv(at, &answer, sizeof answer, 0);
    if (own >= 0) fs_system.close(own);
    if (got < (ssize_t)NLMSG_LENGTH(sizeof message) || answer.header.nlmsg_type != SOCK_DIAG_BY_FAMILY) return 0;
    memcpy(&message, NLMSG_DATA(&answer.header), sizeof message);
    *told = (struct told){.state = message.udiag_state, .cookie = (uint64_t)message.udiag_cookie[1] << 32 | message.udiag_cookie[0]};
    read_attributes(answer.space + NLMSG_LENGTH(sizeof message), answer.space + FS_MIN((size_t)got, sizeof answer), told);
    return message.udiag_ino == (uint32_t)inode;
}

static int ask_of(int fd, int diag, struct told *told) {
    uint64_t inode = fs_socket_inode(fd);
    return inode && ask(diag, inode, told);
}

/* ---- the two ends --------------------------------------------------------------------------------------------------------- */

/* (Of two ends the smaller one publishes. That is to be the younger socket, which was mostly accepted: as with TCP, its process has the
 * names, and the other one makes the regions.) */
static void name_end(struct fs_stream_endpoint *end, uint64_t inode) {
    *end = (struct fs_stream_endpoint){.port = 0}; /* (no end of a TCP connection has this port) */
    for (int i = 0; i < 8; i++) end->address[15 - i] = (unsigned char)(~inode >> 8 * i);
}

static uint64_t inode_of(const struct fs_stream_endpoint *end) {
    uint64_t inode = 0;
    for (int i = 8; i < 16; i++) inode = inode << 8 | end->address[i];
    return ~inode;
}

/* Of the process that has connected, or that listened. */
static struct ucred credentials_of(int fd) {
    struct ucred who = {.uid = (uid_t)-1};
    socklen_t size = sizeof who;
    fs_system.getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size);
    return who;
}

static int identify(int fd, struct fs_stream_identity *ends) {
    struct told told;
    uint64_t inode = fs_socket_inode(fd);
    if (!inode || !ask(-1, inode, &told) || told.state != ESTABLISHED || !told.has_peer) return 0;
    if (!told.peer) return fs_poll_events_now(fd, POLLRDHUP) & (POLLHUP | POLLRDHUP) ? 0 : -EAGAIN; /* it is not accepted yet */
    name_end(&ends->here, inode);
    name_end(&ends->there, told.peer);
    name_end(&ends->services[0], (uint64_t)credentials_of(fd).pid);
    ends->services[1] = ends->services[0];
    ends->network = 0;
    ends->kind = &fs_unix_stream;
    return 1;
}

/* (Numbers of sockets mean the same in all network namespaces.) */
static int find_network(int fd, struct fs_stream_identity *ends) {
    ends->network = 0;
    return 1;
}

static int is_other_end(const struct fs_stream_identity *own, int fd) {
    return fs_option(fd, SOL_SOCKET, SO_DOMAIN) == AF_UNIX && fs_option(fd, SOL_SOCKET, SO_TYPE) == SOCK_STREAM &&
           fs_socket_inode(fd) == inode_of(&own->there);
}

static void write_end(const struct fs_stream_endpoint *end, char text[FS_END_TEXT]) {
    snprintf(text, FS_END_TEXT, "%llu", (unsigned long long)inode_of(end));
}

static int find_peer(const struct fs_stream_identity *ends, int diag, struct fs_peer_socket *peer) {
    struct told other;
    if (!ask(diag, inode_of(&ends->there), &other) || !other.has_user || other.state != ESTABLISHED) return 0;
    peer->user = other.user;
    peer->cookie = other.cookie;
    return 1;
}

static int find_path(int fd, int remote, char text[FS_PATH_TEXT]) {
    struct sockaddr_un name;
    socklen_t size = sizeof name;
    int (*ask)(int, struct sockaddr *, socklen_t *) = remote ? fs_system.getpeername : fs_system.getsockname;
    if (ask(fd, (struct sockaddr *)&name, &size) < 0 || size <= offsetof(struct sockaddr_un, sun_path)) return 0;
    int length = (int)FS_MIN(size - offsetof(struct sockaddr_un, sun_path), sizeof name.sun_path);
    memcpy(text, name.sun_path, (size_t)length);
    if (!*text) *text = '@';
    else length -= !text[length - 1]; /* (the kernel counts the 0 behind a path) */
    return length;
}

/* ---- positions ------------------------------------------------------------------------------------------------------------ */

static int count_taken(int fd, uint64_t *taken) {
    struct told told;
    *taken = 0;
    return ask_of(fd, -1, &told) && told.state == ESTABLISHED && !told.shut;
}

static int find_position(int fd, uint64_t noted, uint64_t *taken) {
    *taken = 0;
    return 1;
}

static int count_sent(int fd, uint64_t *sent) {
    int unread = 0;
    *sent = 0;
    return fs_system.ioctl(fd, SIOCOUTQ, &unread) == 0 && unread == 0;
}

static int has_received(int fd, uint64_t position) { return 1; }

static int has_sent_behind(int fd, uint64_t position) { return 1; }

/* ---- the end -------------------------------------------------------------------------------------------------------------- */

/* A socket feels what the other end has shut as if it had shut the opposite direction itself. */
static enum fs_peer_state peer_state(int fd) {
    struct told told;
    if (!(fs_poll_events_now(fd, 0) & POLLHUP)) return FS_PEER_OPEN; /* a close shuts both */
    if (!ask_of(fd, -1, &told) || !told.has_peer) return FS_PEER_UNKNOWN;
    return told.peer ? FS_PEER_OPEN : FS_PEER_CLOSED;
}

static enum fs_liveness liveness(int fd, int shut) {
    int events = fs_poll_events_now(fd, POLLRDHUP);
    if (events & POLLHUP) return shut == (FS_SHUT_RECEIVING | FS_SHUT_SENDING) && peer_state(fd) == FS_PEER_OPEN ? FS_ALIVE : FS_OVER;
    return events & POLLRDHUP && !(shut & FS_SHUT_RECEIVING) ? FS_STREAM_ENDED : FS_ALIVE;
}

static void reset(int fd) {
    fs_system.shutdown(fd, SHUT_RDWR);
}

/* ---- options -------------------------------------------------------------------------------------------------------------- */

static int needs_kernel(int fd) {
    return fs_option(fd, SOL_SOCKET, SO_RCVLOWAT) > 1 || fs_option(fd, SOL_SOCKET, SO_PASSCRED) || fs_option(fd, SOL_SOCKET, SO_PASSSEC) ||
           fs_option(fd, SOL_SOCKET, SO_PASSPIDFD) || fs_option(fd, SOL_SOCKET, SO_PEEK_OFF) >= 0;
}

static int is_corked(int fd) { return 0; }

static int is_nodelay(int fd) { return 0; }

/* ---- a pair --------------------------------------------------------------------------------------------------------------- */

/* (The new socket names this process as its peer. A program that asks it may believe what it says.) */
static int make_pair(int like, int ends[2]) {
    if (credentials_of(like).uid != geteuid()) return -EPERM;
    if (fs_system.socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0) return -errno;
    fs_copy_options(like, ends[0]);
    return 0;
}

const struct fs_stream_kind fs_unix_stream = {
    .name = "unix",
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
