/* What comes of a published name. */
#ifndef FASTSOCK_ARRIVAL_H
#define FASTSOCK_ARRIVAL_H

#include <stddef.h>
#include <sys/types.h>

enum fs_meeting_state {
    FS_MEETING_FREE = 0,
    FS_MEETING_WAITING = 1, /* nothing has come of it yet: what a connection's operations look for */
    FS_MEETING_ARRIVED = 2,
    FS_MEETING_FAILED = 3,
    FS_MEETING_EXPIRED = 4,
    FS_MEETING_SHORT = 5,   /* somebody came, and there were no descriptors to be had for it */
    FS_MEETING_OTHER_VERSION = 6, /* the peer came, and speaks another version */
};

/* The VI that came through a name, and is the caller's from then on. */
struct fs_arrival {
    void *memory; /* FS_MEETING_ARRIVED: the region, mapped */
    size_t size;
    int reused;   /* its region was parked here */
    pid_t peer;   /* the process that came; 0: of another PID namespace */
    unsigned char id[16];
    const char *failure; /* FS_MEETING_FAILED: what was wrong */
};

#endif
