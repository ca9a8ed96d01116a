/* The futex calls: sleep on a word, wake all sleepers. */
#include "events/futex.h"

#include <limits.h>
#include <linux/futex.h>

#include "os/syscalls.h"

enum { WAKE_TRIES = 20 }; /* attempts, if the system has no memory for a wakeup */

fs_word32 fs_untrusted_wakeups;

/* (Not a private futex: other processes sleep on the word and wake it. A relative time uses the monotonic clock.) */
int fs_futex_wait(fs_word32 *futex, uint32_t value, int64_t nanoseconds) {
    struct timespec time = {nanoseconds / 1000000000, nanoseconds % 1000000000};
    if (fs_system.futex(futex, FUTEX_WAIT, value, nanoseconds < 0 ? NULL : &time) == 0 || errno == EAGAIN) return 1;
    if (errno == ETIMEDOUT) return 0;
    if (errno == EINTR) return -EINTR;
    fs_short_sleep(); /* no memory for the futex now */
    return 1;
}

void fs_futex_wake(fs_word32 *futex) {
    /* SYNC: futex - pairs with fs_futex_load: a thread that read the new value finds all that was changed before. */
    fs_add_sc(futex, 1);
    for (int tries = 0; fs_system.futex(futex, FUTEX_WAKE, INT_MAX, NULL) < 0 && tries < WAKE_TRIES; tries++) sched_yield();
}
