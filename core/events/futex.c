/* Sleeping on a word, and waking all who do.
 *
 * Responsible for: the futex calls. Never: knows what is waited for. */
#include "events/futex.h"

#include <limits.h>
#include <linux/futex.h>

#include "os/syscalls.h"

enum { WAKE_TRIES = 20 }; /* of a wakeup for which the system has no memory */

fs_word32 fs_untrusted_wakeups;

/* (Not the private kind of futex: other processes sleep on the word and ring it. A relative time goes by the monotonic clock.) */
int fs_futex_wait(fs_word32 *futex, uint32_t heard, int64_t nanoseconds) {
    struct timespec time = {nanoseconds / 1000000000, nanoseconds % 1000000000};
    if (fs_system.futex(futex, FUTEX_WAIT, heard, nanoseconds < 0 ? NULL : &time) == 0 || errno == EAGAIN) return 1;
    if (errno == ETIMEDOUT) return 0;
    if (errno == EINTR) return -EINTR;
    fs_short_sleep(); /* no memory for it now */
    return 1;
}

void fs_futex_wake(fs_word32 *futex) {
    /* SYNC: bell - pairs with fs_futex_load: what was changed before it is found by who heard this one. */
    fs_add_sc(futex, 1);
    for (int tries = 0; fs_system.futex(futex, FUTEX_WAKE, INT_MAX, NULL) < 0 && tries < WAKE_TRIES; tries++) sched_yield();
}
