/* Words that threads sleep on (futexes), in memory that both processes of a connection map.
 *
 * Who sleeps reads the bell first, then says that it sleeps (ring/doorbell.h), then looks for what it waits for, and sleeps as
 * long as the bell has the value that it read. Who wakes it has changed something, finds that it sleeps, rings the bell, which
 * changes it, and wakes all that sleep there. So whatever comes between the sleeper's look and its sleep keeps it awake. And as
 * all wake, nobody takes a wakeup that was for another one: each looks for itself.
 *
 * The peer can write the word, and wake who sleeps there: then somebody looks once more than needed. It can also have the kernel
 * move who sleeps there to a word of its own (FUTEX_REQUEUE), where nobody of ours rings. So if the peer may be a stranger, no sleep is
 * long (fs_untrusted_wakeups). */
#ifndef FASTSOCK_FUTEX_H
#define FASTSOCK_FUTEX_H

#include "os/atomics.h"

/* Whether peers of other users are let in. Relaxed: it is said before any of them comes. */
extern fs_word32 fs_untrusted_wakeups;

/* Sleeps until the bell is rung that was `heard` before, for at most `nanoseconds` (negative: for ever). 1: look again, 0: the time
 * has passed, -EINTR: a signal came. One system call. */
int fs_futex_wait(fs_word32 *futex, uint32_t heard, int64_t nanoseconds);

/* Wakes all that sleep on it, in whichever process. One system call. */
void fs_futex_wake(fs_word32 *futex);

/* What a sleeper has to read before it looks for what it waits for. */
static inline uint32_t fs_futex_load(fs_word32 *futex) {
    /* SYNC: bell - pairs with fs_futex_wake. Sequentially consistent, as all that follows it: see ring/doorbell.h. */
    return fs_load_sc(futex);
}

#endif
