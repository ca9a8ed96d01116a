/* The result of a published name. */
#pragma once

#include "process/far_peer.h"

struct fs_region_ref; /* link.h */

enum fs_listing_state {
    FS_LISTING_FREE = 0,
    FS_LISTING_WAITING = 1, /* nothing has come yet; a connection's operations check for this */
    FS_LISTING_ACCEPTED = 2,
    FS_LISTING_FAILED = 3,
    FS_LISTING_EXPIRED = 4,          /* nobody came */
    FS_LISTING_NO_DESCRIPTORS = 5,   /* a peer came, and no descriptors were free for its hello */
    FS_LISTING_OTHER_VERSION = 6, /* the peer came with another protocol version */
    FS_LISTING_OTHER_USER = 7,    /* nobody came, but for processes of other users: perhaps the peer, which one of the two does not trust */
    FS_LISTING_UNPROVEN = 8,      /* a process came that has not proven its address */
};

/* A region that came through a name. It belongs to the caller. */
struct fs_accepted_region {
    struct fs_region_ref *region_ref; /* FS_LISTING_ACCEPTED: of no link yet, unless it was parked here */
    struct fs_peer_process peer;         /* who sent it */
    int is_far;                       /* it is in another network namespace: */
    int way;                          /* which it has sent; -1: none */
    const char *failure;              /* FS_LISTING_FAILED: the reason */
};
