/* A stream of the kernel's: the connection under an endpoint, as the core sees it. There are two kinds, TCP connections and stream sockets
 * of AF_UNIX, and one interface. Who has a connection asks its kind (`struct fs_stream_kind`) and never which kind that is: where the
 * kernel treats the two in different ways, that difference has a name here. Nothing here blocks, keeps state or knows the region. */
#pragma once

#include <netinet/in.h>

#include "os/syscalls.h"

/* One end of a stream: of TCP an IPv6 address (IPv4 as ::ffff:...) and a port, in network order. */
struct fs_stream_endpoint {
    unsigned char address[16];
    uint16_t port;
};

struct fs_stream_kind;

/* Both ends of a stream, as one of them sees it. */
struct fs_stream_identity {
    struct fs_stream_endpoint here, there;
    /* Who has one of these two in common with an earlier connection had the same process at the other end, most likely: of TCP the other
     * end, to which this process connects, or its own, where it accepts. */
    struct fs_stream_endpoint services[2];
    uint64_t network; /* cookie of the network namespace, 0 if unknown */
    const struct fs_stream_kind *kind;
};

enum fs_liveness {
    FS_ALIVE = 0,
    FS_STREAM_ENDED = 1, /* the kernel's stream from the peer has ended */
    FS_OVER = 2,         /* the connection has ended */
};

enum { FS_SHUT_RECEIVING = 1, FS_SHUT_SENDING = 2 };

enum fs_peer_state { FS_PEER_UNKNOWN = 0, FS_PEER_OPEN = 1, FS_PEER_CLOSED = 2 };

/* The other end's socket. */
struct fs_peer_socket {
    uint32_t user;   /* its owner */
    uint64_t cookie; /* its SO_COOKIE */
};

enum { FS_END_TEXT = 48 }; /* bytes that the text of an end has room in, with the 0 behind it */
enum { FS_PATH_TEXT = 108 }; /* bytes that its path has room in (sun_path, unix(7)) */

struct fs_stream_kind {
    const char *name; /* the word for it in the names that are published */
    int has_addresses;  /* its ends are addresses of networks, so the peer may be on another host. Else they may have paths */
    int counts_bytes;   /* positions are counted from the beginning; else from the switch, which comes when all before it is read */
    int resets;         /* bytes for an end that reads no more are taken, and draw a reset, and SO_LINGER may ask for one. Else the kernel
                         * refuses such bytes as soon as the end reads no more, and SO_LINGER says nothing */
    int has_receive_buffer; /* SO_RCVBUF bounds what lies unread; else only the SO_SNDBUF of who has sent it */
    int shut_is_writable; /* an end that has shut sending is writable though it is full: else once there is room */
    int truncates;      /* with MSG_TRUNC a receive throws bytes away */
    int waits_for_nothing; /* a receive of no bytes returns 0 whatever ends its wait; else the wait's error */

    /* ---- the two ends. Each of these returns 0 if the kernel does not know, or `fd` is not of this kind and connected. */
    int (*identify)(int fd, struct fs_stream_identity *ends); /* sets all but `network`. -EAGAIN: no process has the other end yet */
    int (*find_network)(int fd, struct fs_stream_identity *ends); /* sets `network` */
    /* True if `fd` is the very socket at the other end. */
    int (*is_other_end)(const struct fs_stream_identity *own, int fd);
    void (*write_end)(const struct fs_stream_endpoint *end, char text[FS_END_TEXT]);
    /* Sets `*peer`, for an established connection in this network namespace. `diag`: asks there (fs_open_diag); -1: on a socket of its own,
     * which costs the double. */
    int (*find_peer)(const struct fs_stream_identity *ends, int diag, struct fs_peer_socket *peer);
    /* Sets `text` to the path that this end was bound to, or the `remote` one; to '@' and its abstract name. Returns the length; 0: it has
     * neither. */
    int (*find_path)(int fd, int remote, char text[FS_PATH_TEXT]);

    /* ---- positions: payload bytes since the connection began (or as `counts_bytes` says), exactly. 0: the kernel does not know. */
    int (*count_taken)(int fd, uint64_t *taken); /* taken out of the kernel's queue; also 0 if the stream is not open in both directions */
    /* The same also behind the end; `noted` are the bytes that this side knows to have taken. */
    int (*find_position)(int fd, uint64_t noted, uint64_t *taken);
    int (*count_sent)(int fd, uint64_t *sent); /* handed to the kernel; also 0 if more cannot be sent, or the ring cannot take over now */
    int (*has_received)(int fd, uint64_t position); /* true if bytes have come up to there; 0 also if not known */
    int (*has_sent_behind)(int fd, uint64_t position); /* true if something was sent behind that; 1 also if not known */

    /* ---- the end */
    enum fs_liveness (*liveness)(int fd, int shut); /* `shut`: what this side has shut, FS_SHUT_RECEIVING and FS_SHUT_SENDING */
    /* What the other end's socket is, which a process holds or none does. */
    enum fs_peer_state (*peer_state)(int fd);
    void (*reset)(int fd); /* ends the connection at once, for both ends */

    /* ---- options */
    int (*needs_kernel)(int fd); /* true if an option asks for something that only the kernel's stream can do */
    int (*is_corked)(int fd);    /* true while the kernel may keep bytes back */
    int (*is_nodelay)(int fd);   /* true if the program wants each message sent by itself */

    /* ---- a connection within this process, for a bridge. Its first end gets the flags and options of `like`. Returns 0 or -errno: -EPERM
     * if it would name another user than `like` does. */
    int (*make_pair)(int like, int ends[2]);
};

extern const struct fs_stream_kind fs_tcp_stream, fs_unix_stream;

/* Returns the kind of a socket's stream. */
const struct fs_stream_kind *fs_stream_kind_of(int fd);

/* ---- what every socket has -------------------------------------------------------------------------------------- */

/* Returns a socket of sock_diag(7), or -1. */
int fs_open_diag(void);

/* Returns the socket's number in this network namespace, which no other one ever has; 0 if the kernel does not say. */
uint64_t fs_cookie(int fd);

/* Returns the cookie of a socket's network namespace, 0 if the kernel does not say. (An accepted unix socket has that of the one which
 * connected.) */
uint64_t fs_netns_cookie(int fd);

int fs_set_linger_zero(int fd); /* a close resets the connection */
int fs_has_linger_zero(int fd); /* true if a close would */

int fs_option(int fd, int level, int option); /* 0 if the kernel does not say */
void fs_set_option(int fd, int level, int option, int value);
int64_t fs_option_ns(int fd, int option); /* timeout option in nanoseconds; -1: not set */

/* Gives a socket the flags and options of another one of its kind, those that every kind has. */
void fs_copy_options(int from, int to);

/* Stores address (4 or 16 bytes) and port of one end of a connection. Returns the number of address bytes, 0 if it has none, or -1 if it is
 * not connected. */
int fs_endpoint_address(int fd, int remote, unsigned char address[16], int *port);

/* Returns true for an IPv4 address. */
static inline int fs_is_mapped(const unsigned char address[16]) {
    static const unsigned char prefix[12] = {[10] = 0xff, [11] = 0xff};
    return memcmp(address, prefix, sizeof prefix) == 0;
}
