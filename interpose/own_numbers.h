/* Descriptors that are the core's: how it makes and closes them (own_numbers.c), and what else it calls (core_calls.c). */
#pragma once

#include "interpose.h"

#pragma GCC visibility push(hidden)

/* What the core calls to make and close its own numbers: they are known from their making on, and closed by nobody else, while this front
 * end is active. */
int ip_make_own(int fd, int what, long argument);
int ip_close_own(int fd);
void ip_forget_own_number(int fd);
void ip_forget_own_numbers(void);

/* What the core calls to make a number that it has for a moment (own_numbers.c). Both return -errno if they fail. */
long ip_make_passing(long number, const long a[6]);
long ip_receive_passing(int fd, struct msghdr *message, int flags);

/* Before and after a call by which the program makes a descriptor: it gets the lowest number, also if the core has had that for a
 * moment meanwhile. The first returns what the second needs. The second returns the number that `fd` has from then on, of those from
 * `least` on. */
extern struct ip_moments {
    fs_word32 making; /* core calls that make or close a passing number just now */
    fs_word32 passes; /* numbers that are the core's for a moment now */
    fs_word32 begun;  /* moments so far */
} ip_moments;
void ip_await_moments(void) __attribute__((cold));
int ip_lower(int fd, int least) __attribute__((cold));

/* (In the one order of all these accesses: who has made a number before the program's call has said so before this looks.) */
static inline int ip_is_moment(void) { return ip_load_sc(&ip_moments.making) || ip_load_sc(&ip_moments.passes); }

static inline uint32_t ip_between_moments(void) {
    if (ip_unlikely(ip_is_moment())) ip_await_moments();
    return ip_load_sc(&ip_moments.begun);
}

static inline int ip_lowest(int fd, int least, uint32_t since) {
    return ip_likely(since == ip_load_sc(&ip_moments.begun)) || fd < 0 ? fd : ip_lower(fd, least);
}

/* As dup3(2), for the program: not onto a number that the core has for a moment. */
int ip_place(int from, int to, int flags);
void ip_numbers_after_fork(void); /* in the child */

extern struct fs_calls ip_calls; /* what the core calls: no cancellation points */
void ip_tell_core(void);

#pragma GCC visibility pop
