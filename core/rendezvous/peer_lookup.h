/* Looking up the name that the peer may have published. For a peer without fastsock, a seeker's operations do only this until the path
 * is decided. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The look-ups of one peer, which become less and less frequent. One thread at a time. */
struct fs_peer_lookup {
    const char *name; /* of `length` bytes; the caller's, valid during the look-up */
    size_t length;
    int64_t patience; /* ns */
    int fd;           /* -1: not open */
    int found;        /* somebody listens there, and `fd` is connected */
    int over;         /* tried often enough, and for `patience` */
    int tries;
    int64_t began, last; /* monotonic ns */
    int64_t operations;  /* of the connection, at the last look-up */
};

void fs_lookup_begin(struct fs_peer_lookup *lookup, const char *name, size_t length, int64_t patience);

/* Looks the name up once, at the connection's operation number `operations`. Does not block. Returns 1 if found; 0 if not, with the
 * operation number of the next attempt in `*next`; -errno if there is no descriptor, as fs_reserve_fd. */
int fs_lookup_try(struct fs_peer_lookup *lookup, int64_t operations, int64_t *next);

/* Returns the number of operations until the next look-up, after one in vain at `now` (monotonic ns). This is the time spent on the
 * search so far, converted by the connection's pace: the longer the peer has not been found, the less a server with many foreign clients
 * pays for each. */
int64_t fs_lookup_pause(struct fs_peer_lookup *lookup, int64_t now, int64_t operations);

/* Returns the socket that is connected to the peer's control thread; the caller owns it. The next look-up starts over. */
int fs_lookup_take(struct fs_peer_lookup *lookup);

/* Ends the look-up; the next one starts over. */
void fs_lookup_end(struct fs_peer_lookup *lookup);
