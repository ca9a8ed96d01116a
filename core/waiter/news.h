/* What a thread that sleeps on a descriptor's number is told when the number means something else from now on (news.c). */
#ifndef FASTSOCK_NEWS_H
#define FASTSOCK_NEWS_H

#include "base/atomics.h"

struct fs_news {
    int fd;
    uint64_t inode;
    int sleepers;
    fs_word32 over; /* nobody joins it any more; relaxed, since who reads it has the front end's lock */
    struct fs_news *next;
};

/* This thread is about to sleep, beside other threads. NULL: there is no descriptor for that, and it may be deaf. */
struct fs_news *fs_join_news(void);

/* The sleeper is awake, and looks at the number if it goes on. */
void fs_leave_news(struct fs_news *joined);

/* A connection's number is another one, or means something else, and calls are inside that may sleep on it. */
void fs_tell_of_number(void);

/* This process is a forked child: what its parent tells is nothing to it, and the threads that slept are not here. */
void fs_forget_news(void);

#endif
