/* Queries and calls on the kernel connection under an endpoint. Nothing here blocks. */
#ifndef FASTSOCK_TCP_H
#define FASTSOCK_TCP_H

#include <netinet/in.h>

#include "os/syscalls.h"

enum { /* the TCP states used here (include/net/tcp_states.h) */
    FS_TCP_ESTABLISHED = 1, FS_TCP_TIME_WAIT = 6, FS_TCP_CLOSE = 7, FS_TCP_CLOSE_WAIT = 8, FS_TCP_LAST_ACK = 9, FS_TCP_CLOSING = 11,
};

enum fs_peer_state { FS_PEER_UNKNOWN = 0, FS_PEER_OPEN = 1, FS_PEER_CLOSED = 2 };

/* Sets the payload bytes that entered and left the kernel's stream since the connection began, exactly, and the TCP state. Returns 0 if
 * the kernel does not know (before Linux 4.19) or `fd` is no TCP socket. */
int fs_tcp_bytes(int fd, char *state, uint64_t *sent, uint64_t *received);

/* Returns the state of the other end's socket. sock_diag(7) reports a socket that a process holds with its inode, and others without. */
enum fs_peer_state fs_peer_socket_state(int fd);

/* The other end's socket. */
struct fs_peer_socket {
    uint32_t user;   /* its owner */
    uint64_t cookie; /* its SO_COOKIE */
};

/* Returns a socket of sock_diag(7), or -1. */
int fs_open_diag(void);

/* Sets `*peer`, for an established connection in this network namespace. `diag`: asks there; -1: on a socket of its own, which costs the
 * double. Returns 0 if the kernel does not know. */
int fs_find_peer_socket(int fd, int diag, struct fs_peer_socket *peer);

/* Returns the socket's number in this network namespace, which no other one ever has; 0 if the kernel does not say. */
uint64_t fs_cookie(int fd);

/* Resets the connection: dissolves the association, with a RST (tcp(7)). */
int fs_reset_connection(int fd);

int fs_set_linger_zero(int fd);        /* a close resets the connection */
int fs_has_linger_zero(int fd);       /* true if a close would */

int fs_option(int fd, int level, int option); /* 0 if the kernel does not say */
void fs_set_option(int fd, int level, int option, int value);
int64_t fs_option_ns(int fd, int option);     /* timeout option in nanoseconds; -1: not set */

/* Returns true if an option asks for something that only the kernel's stream can do. */
int fs_needs_kernel(int fd);

/* Returns true while TCP_CORK is set: the kernel may keep bytes back. */
int fs_is_corked(int fd);

/* Stores address (4 or 16 bytes) and port of one end. Returns the number of address bytes, or -1. */
int fs_endpoint_address(int fd, int remote, unsigned char address[16], int *port);

#endif
