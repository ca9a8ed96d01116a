/* Words that threads sleep on (futexes), in memory that both processes of a connection map.
 *
 * A sleeper reads the word first, then announces its sleep (ring/doorbell.h), then looks for the thing it waits for, and sleeps as long
 * as the word has the value it read. A waker makes its change, finds the sleeper, increments the word, and wakes all sleepers. So
 * anything that happens between the sleeper's look and its sleep keeps it awake. All wake, so nobody takes another's wakeup: each looks
 * for itself.
 *
 * The peer can write the word and wake its sleepers: then somebody looks once too often. The peer can also have the kernel move sleepers
 * to a word of its own (FUTEX_REQUEUE), which we never wake. So if the peer may be an untrusted user, no sleep is long
 * (fs_untrusted_wakeups). */
#pragma once

#include "os/atomics.h"

/* True if peers of other users are accepted. Relaxed: set before the first of them comes. */
extern fs_word32 fs_untrusted_wakeups;

/* Sleeps while the word has the value `value`, for at most `nanoseconds` (negative: no limit). Returns 1: look again, 0: time is up,
 * -EINTR: a signal came. One system call. */
int fs_futex_wait(fs_word32 *futex, uint32_t value, int64_t nanoseconds);

/* Wakes all sleepers, in every process. One system call. */
void fs_futex_wake(fs_word32 *futex);

/* Reads the word; call before looking for the thing to wait for. */
static inline uint32_t fs_futex_load(fs_word32 *futex) {
    /* SYNC: futex - pairs with fs_futex_wake. Sequentially consistent, like all that follows: see ring/doorbell.h. */
    return fs_load_sc(futex);
}
