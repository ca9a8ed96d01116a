/* Signals, as signals.c has them: the program's handlers, and the sleeps in which they run. */
#pragma once

#include "interpose.h"

#pragma GCC visibility push(hidden)

/* A system call in which the thread sleeps, and -errno. The program's handlers run in it if they end it with -EINTR, and only then: also
 * those that were put off, and those that come before the kernel has begun it. `masked`: the call has a mask of signals, and the kernel
 * tells which end it. A thread that is cancelled in it (pthread_cancel) ends when it is no more inside. */
long ip_sleep(long number, const long a[6], int masked);

void ip_wrap_handlers(void);   /* those that the program has set before */
void ip_wrap_later_handlers(void); /* those that it has set past us since, if nobody has looked for some time. Not with the lock */
int ip_sigaction_by_number(const long a[6], long *got); /* rt_sigaction(2). 0: it is the kernel's alone */
void ip_unwrap_handlers(void); /* the kernel gets back all of the program's */

/* A handler that ended has run since `before`, or any where a timeout option is set: a call that waits ends then (signal(7)). */
int ip_is_ended_by_signal(struct ip_socket *s, int what, uint32_t ran, uint32_t ended);

#pragma GCC visibility pop
