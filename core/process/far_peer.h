/* Processes in other network namespaces at the other ends of connections, and the way to their control sockets.
 *
 * No name leads there: an abstract one is of one namespace, and whoever may write to the folder could replace one in it. So each side hands
 * the other a datagram socket that is connected to its own control socket, over the unix connection on which both have proven what they
 * are. That is the way. What comes by it comes to the control socket as all else does.
 *
 * Needs the host lock, where nothing else is said. */
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <stdint.h>

#include "os/atomics.h"

/* One of them. It stays as it is until the connection is released. Afterwards another one may lie in its memory, which is never given back:
 * who looks later compares the key. */
struct fs_far_peer {
    uint64_t key;   /* of the process, in this one: even, where tokens are odd. Of one that has taken over: of the connection */
    fs_word32 way;  /* the descriptor */
    uint64_t inode; /* of the way, as the program may close our descriptors and use their numbers */
    fs_word32 over; /* nobody listens at its end any more; relaxed: the next connection brings another one */
    uint32_t users; /* connections */
    struct fs_far_peer *before; /* of a connection: the holder of the peer's side that was asked before this one */
    struct fs_far_peer *next;
};

/* The process at the other end of connections, wherever it is. */
struct fs_peer_process {
    uint64_t key; /* its id, or fs_process_key if that is unknown or means another one here; 0: it cannot be told from others */
    pid_t pid;    /* 0: in another PID namespace */
    uid_t user;   /* (uid_t)-1: unknown */
};

/* Returns a number of the process at the other end of a connected unix socket that no other process has had since the system began: even,
 * and larger than a process id. 0: the kernel has none (before Linux 6.9). Any thread. */
uint64_t fs_process_key(int fd);

/* Makes a way to the control socket of this process. Returns it, or -errno. Any thread. */
int fs_make_way(uint64_t token);

/* Sends it by the unix connection of a rendezvous. Returns 0 or -errno. Never blocks. Any thread. */
int fs_hand_way(int control, int way);

/* Returns true if a descriptor that came is a way, and closing it cannot block. Any thread. */
int fs_is_way(int fd);

/* Returns the peer with this key (0: one that nobody else has), with one more user, and takes over the way that it has sent (-1: none),
 * which is closed if there is one already. NULL: no way, no memory or no descriptor. */
struct fs_far_peer *fs_far_peer_join(uint64_t key, int way);

/* One user less. With the last one the way is closed: as a socket of the peer's it keeps the peer's network namespace, with its addresses,
 * also when all processes there have ended. */
void fs_far_peer_leave(struct fs_far_peer *peer);

/* Another holder of the peer's side takes over: takes its way, and makes it the connection's. Returns 0, and the way is closed, if there
 * were too many already, or without memory. For the control thread, without the host lock. */
int fs_take_way(fs_atomic_ptr(struct fs_far_peer) *far, int way);

/* The connection is released: gives back what fs_take_way has made. */
void fs_far_peer_restore(fs_atomic_ptr(struct fs_far_peer) *far);

/* Sends a message by the way. Returns 0 or -errno. Never blocks. Any thread of a connection with that peer. */
int fs_send_far(struct fs_far_peer *peer, struct msghdr *message);
