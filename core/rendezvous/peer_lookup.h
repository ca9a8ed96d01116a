/* Looking up the name that the peer may have published: what a seeker's operations do, as a connection to a peer
 * without fastsock does nothing else before it is decided. */
#ifndef FASTSOCK_PEER_LOOKUP_H
#define FASTSOCK_PEER_LOOKUP_H

#include <stddef.h>
#include <stdint.h>

/* A peer that is looked for, less and less often. One thread at a time. */
struct fs_peer_lookup {
    const char *name; /* of `length` bytes; the caller's, and there as long as it is looked up */
    size_t length;
    int64_t patience; /* ns */
    int fd;           /* -1: not open */
    int found;        /* somebody listens there, and `fd` is connected */
    int over;         /* it was looked for often enough, and for `patience` */
    int tries;
    int64_t began, last; /* monotonic ns */
    int64_t operations;  /* of the connection, at the last look-up */
};

void fs_lookup_begin(struct fs_peer_lookup *lookup, const char *name, size_t length, int64_t patience);

/* One look-up, at the connection's operation number `operations`. 1: found. 0: not there, and the operation number
 * `*next` is to look again. -errno: there is no descriptor for it, as fs_reserve_fd says. Does not block. */
int fs_lookup_try(struct fs_peer_lookup *lookup, int64_t operations, int64_t *next);

/* Operations until the next look-up, after one that was in vain `now` (monotonic ns). They are as many as the
 * connection's pace makes of the time that looking has taken so far: the longer the peer has not been found, the less a
 * server with many foreign clients shall pay for each. */
int64_t fs_lookup_pause(struct fs_peer_lookup *lookup, int64_t now, int64_t operations);

/* The socket that is connected to the peer's connection thread: its descriptor, the caller's from now on. The next
 * look-up starts over. */
int fs_lookup_take(struct fs_peer_lookup *lookup);

/* Ends the look-up; the next one starts over. */
void fs_lookup_end(struct fs_peer_lookup *lookup);

#endif
