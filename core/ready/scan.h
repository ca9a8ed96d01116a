/* One look at the members that may be ready. */
#pragma once

#include "ready/poller.h"

/* Events that a wait gives to the program. */
struct fs_told {
    struct epoll_event *events;
    int count, max;
    int changed; /* the kernel has reported a member that is to be looked at */
    int adds;    /* a further look only adds to what is reported already */
    uint64_t wait; /* whose events they are: fs_member.told_by */
    int64_t now;   /* about when, monotonic ns; 0: a look asks for the time */
};

enum fs_purpose {
    FS_TELL,       /* what is ready is told */
    FS_TELL_SLEEP, /* the same, and what is not ready is armed: an event set gets its hint */
    FS_ARM,        /* nothing is told: what is ready stays in the list */
};

/* Looks at each member of the list once, or at as many as there is room for. With the poller's lock, which it lets go of. A member that
 * stays in the list after FS_TELL_SLEEP has something that a look does not find yet. */
void fs_members_check(struct fs_poller *p, struct fs_told *told, enum fs_purpose purpose);

/* Members have changed, and other threads sleep or poll the instance's number: looks in their place, and wakes one of them if there is
 * something to tell, or if it may not sleep for as long as it believes (`longest`: fs_longest_sleep before the change). So a program whose
 * threads change members while another one sleeps wakes it for something only. With the lock, which it lets go of: the caller counts as one
 * of the waiters. */
void fs_pass_to_sleepers(struct fs_poller *p, int64_t longest);

/* What the kernel has told, `count` events at the end of those told: sorted into the program's, which stay, and ours. With the lock. */
void fs_sort_events(struct fs_poller *p, struct fs_told *told, int count);
