/* What comes of a published name. */
#ifndef FASTSOCK_ACCEPTED_REGION_H
#define FASTSOCK_ACCEPTED_REGION_H

#include <stddef.h>
#include <sys/types.h>

enum fs_listing_state {
    FS_LISTING_FREE = 0,
    FS_LISTING_WAITING = 1, /* nothing has come of it yet: what a connection's operations look for */
    FS_LISTING_ACCEPTED = 2,
    FS_LISTING_FAILED = 3,
    FS_LISTING_EXPIRED = 4,
    FS_LISTING_NO_DESCRIPTORS = 5,   /* somebody came, and there were no descriptors to be had for it */
    FS_LISTING_OTHER_VERSION = 6, /* the peer came, and speaks another version */
};

/* The VI that came through a name, and is the caller's from then on. */
struct fs_accepted_region {
    void *memory; /* FS_LISTING_ACCEPTED: the region, mapped */
    size_t size;
    int reused;   /* its region was parked here */
    pid_t peer;   /* the process that came; 0: of another PID namespace */
    unsigned char id[16];
    const char *failure; /* FS_LISTING_FAILED: what was wrong */
};

#endif
