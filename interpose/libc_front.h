/* The front end at the C library's calls, as the Python package sees it: both are on one core, in one library. */
#ifndef FASTSOCK_LIBC_FRONT_H
#define FASTSOCK_LIBC_FRONT_H

#include "fastsock.h"

/* The headers of the core that the library was compiled with. A package of another build cannot use it. */
extern const char fs_build[];

/* 1: every connection of this process is served at the C library's calls, and the core's host lock is that front end's. */
int fs_libc_serves(void);

/* Puts the front end in place in this process, in all loaded objects and in those that are loaded later. `settings` are as `fastsock run` hands
 * them over. The core's front end before has no connection. Returns NULL, or why that is not possible. */
const char *fs_libc_install(const char *settings);

/* From now on new connections are not served. The functions go when the last one that is served has ended. */
void fs_libc_uninstall(void);

struct fs_libc_path {
    int sends, receives, attached; /* on the ring */
    int reason;                    /* enum fs_reason: why on kernel TCP */
};

/* The path of the connection behind a number. 0: the number means none. */
int fs_libc_path(int fd, struct fs_libc_path *path);

/* Sets `sum` to the counters of all connections that this front end serves or has served. */
void fs_libc_sum_counters(struct fs_counters *sum);

#endif
