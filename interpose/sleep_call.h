/* The system call of a sleep, which a signal ends wherever it finds the thread. */
#pragma once

#pragma GCC visibility push(hidden)

enum ip_sleeps {
    IP_AWAKE,
    IP_ASLEEP,
    IP_ASLEEP_MASKED, /* the call has a mask of signals: the kernel alone says which ones end it */
};

/* Makes the call, and returns what the kernel does; -EINTR without a call if `*ends` is true. `*sleeps` is `how` meanwhile. */
long ip_call_asleep(int *sleeps, int how, const int *ends, long number, const long a[6]);

/* What a signal has interrupted, in a thread that sleeps. */
enum ip_place {
    IP_NOT_BEGUN, /* the kernel has not begun the call, or would begin it anew after the handler (SA_RESTART) */
    IP_ENDED,     /* it has returned -EINTR: the handler runs within it */
    IP_IN_SLEEP,  /* anything else of it */
    IP_OUTSIDE,   /* another signal's handler */
};
enum ip_place ip_place_in_sleep(const void *context);

/* After the handler the call returns -EINTR, and was not begun. Of IP_NOT_BEGUN. */
void ip_end_sleep(void *context);

#pragma GCC visibility pop
