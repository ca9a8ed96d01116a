/* The kernel connection under an endpoint: what is asked of it and told to it. Nothing here blocks. */
#ifndef FASTSOCK_TCP_H
#define FASTSOCK_TCP_H

#include <netinet/in.h>
#include <linux/sockios.h>

#include "os/syscalls.h"

#ifndef SIOCOUTQNSD
#define SIOCOUTQNSD 0x894B
#endif

enum { /* TCP_NOTSENT_LOWAT: POLLOUT is true, and a send possible, with this much unsent */
    FS_ANY_UNSENT = 0,  /* the default */
    FS_NONE_UNSENT = 1, /* byte: less than that */
};

enum { /* states of TCP that we tell apart (include/net/tcp_states.h) */
    FS_TCP_ESTABLISHED = 1, FS_TCP_TIME_WAIT = 6, FS_TCP_CLOSE = 7, FS_TCP_CLOSE_WAIT = 8, FS_TCP_LAST_ACK = 9, FS_TCP_CLOSING = 11,
};

enum fs_peer_state { FS_PEER_UNKNOWN = 0, FS_PEER_OPEN = 1, FS_PEER_CLOSED = 2 };

/* Payload bytes that entered and left the kernel's stream since the connection began, exactly; its TCP state. 0: the kernel does
 * not tell (before Linux 4.19), or it is no TCP socket. */
int fs_tcp_bytes(int fd, char *state, uint64_t *sent, uint64_t *received);

/* The same, and whether the other end's kernel has acknowledged all that was sent: nothing of it is in the send buffer then. */
int fs_tcp_progress(int fd, char *state, uint64_t *sent, uint64_t *received, int *acknowledged);

/* Bytes in the kernel's queue, and where among them an urgent byte lies that is not read with the others (-1: nowhere):
 * FIONREAD stops there, so it is asked with SO_OOBINLINE as well, unless nothing can lie there. 0: the kernel does not tell. */
int fs_kernel_queued(int fd, uint64_t *waiting, int64_t *mark);

/* The same, if it is known how many bytes were taken since the connection began (FS_NOT_COUNTED: it is not): mostly with fewer calls, as
 * FIONREAD stops in front of no urgent byte if it tells of all that has come. */
#define FS_NOT_COUNTED UINT64_MAX
int fs_kernel_queued_after(int fd, uint64_t taken, uint64_t *waiting, int64_t *mark);

/* Whether a process still has the other end of this connection open: sock_diag(7) tells of a socket with its inode, and of one
 * that nobody holds any more without. */
enum fs_peer_state fs_peer_socket_state(int fd);

/* The user whose socket the other end of this connection is, in `*user`: of a connection that stands, in this network namespace. 0: the
 * kernel does not tell. */
int fs_owner_of_peer(int fd, uint32_t *user);

/* Dissolves the connection, with a RST (tcp(7)). */
int fs_reset_connection(int fd);

int fs_set_linger_zero(int fd);        /* a close resets the connection */
int fs_has_linger_zero(int fd);       /* whether it would */

int fs_option(int fd, int level, int option); /* 0 if the kernel does not tell */
void fs_set_option(int fd, int level, int option, int value);
int64_t fs_option_ns(int fd, int option);     /* a timeout option, nanoseconds; -1: not set */

/* Whether a host, as text, is a loopback address in numbers. */
int fs_is_loopback(const char *host);

/* Whether an option asks for what only the kernel's stream can do. */
int fs_needs_kernel(int fd);

/* Address bytes (4 or 16) and port of one end. The number of address bytes, or -1. */
int fs_endpoint_address(int fd, int remote, unsigned char address[16], int *port);

#endif
