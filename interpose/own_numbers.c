/* Numbers of the core's.
 *
 * A descriptor that the core keeps lies in the reserved range (core/os/fd_reserve.h), and its number is marked in the table (fd_table.c).
 * A program that closes all numbers that it does not know would take it away, and a file of its own might get the number next.
 *
 * The kernel gives the lowest free number to whoever makes a descriptor. So the core has such a number for a moment, until it has made a
 * copy in the reserved range or has done with it. A program may put a file on that very number, which it knows to be free (dup2). This
 * waits until the moment is over: else the core would close the program's file, or the kernel would refuse the number (EBUSY). And a
 * program that makes a descriptor gets the lowest number, as it expects, and not the one after the core's: it makes it between two such
 * moments, or the descriptor gets the lower number afterwards.
 *
 * Responsible for: that a number is the core's or the program's, and never both. Never: what the core makes. */
#include "interpose.h"
#include "kernel_numbers.h"
#include "own_numbers.h"

#include <sys/stat.h>

static struct ip_thing ours = {.kind = IP_OURS};
static struct ip_thing passing = {.kind = IP_OURS}; /* the core's for a moment */

/* Core calls that make or close a passing number just now, and calls of the program's that put a file on a number. Each writes its own word
 * and then reads the other one. In the one order of all these accesses, the later of the two finds the earlier one and waits. */
static fs_word32 placing;
struct ip_moments IP_EACH_CALL ip_moments;

enum { NAP_NS = 20000, NAPS = 5000 }; /* a tenth of a second and no longer: the core may be in a call that blocks */

static void nap(void) {
    struct timespec time = {0, NAP_NS};
    fs_call_kernel(SYS_nanosleep, (long[6]){(long)&time, 0});
}

static void begin_making(void) {
    ip_add(&ip_moments.begun, 1);
    for (int naps = 0;; naps++) {
        ip_add(&ip_moments.making, 1);
        if (ip_likely(!ip_load_sc(&placing)) || naps == NAPS) return;
        ip_add(&ip_moments.making, (uint32_t)-1);
        nap();
    }
}

static void end_making(void) { ip_add(&ip_moments.making, (uint32_t)-1); }

static void mark(int fd, struct ip_thing *as) {
    if ((unsigned)fd >= IP_NUMBERS || !ip_is_active() || ip_load_relaxed(&ip_things[fd])) return;
    if (as == &passing) ip_add(&ip_moments.passes, 1);
    ip_store_relaxed(&ip_things[fd], as); /* (nothing is read after it) */
    ip_raise_highest(fd);
}

/* (It may count no more: ip_between_moments.) */
static void has_passed(void) {
    uint32_t now = ip_load_relaxed(&ip_moments.passes);
    while (now && !ip_replace(&ip_moments.passes, now, now - 1)) now = ip_load_relaxed(&ip_moments.passes);
}

static void unmark(int fd) {
    struct ip_thing *was = ip_load_relaxed(&ip_things[fd]);
    if ((was == &ours || was == &passing) && ip_replace(&ip_things[fd], was, NULL) && was == &passing) has_passed();
}

static int is_marked(int fd, const struct ip_thing *as) { return (unsigned)fd < IP_NUMBERS && ip_load_relaxed(&ip_things[fd]) == as; }

long ip_make_passing(long number, const long a[6]) {
    begin_making();
    long made = fs_call_kernel(number, a);
    if (made >= 0) mark((int)made, &passing);
    end_making();
    return made;
}

/* (What comes in a message are numbers too.) */
long ip_receive_passing(int fd, struct msghdr *message, int flags) {
    int takes = message->msg_control && !(flags & MSG_PEEK);
    if (takes) begin_making();
    long got = fs_call_kernel(SYS_recvmsg, (long[6]){fd, (long)message, flags});
    for (struct cmsghdr *c = takes && got >= 0 ? CMSG_FIRSTHDR(message) : NULL; c; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
            int came;
            memcpy(&came, CMSG_DATA(c) + i * sizeof came, sizeof came);
            mark(came, &passing);
        }
    }
    if (takes) end_making();
    return got;
}

int ip_make_own(int fd, int what, long argument) {
    int made = real.fcntl(fd, what, (void *)argument);
    if (what == F_DUPFD_CLOEXEC) mark(made, &ours);
    return made;
}

/* (The mark goes first: after the close the number is anybody's.) */
int ip_close_own(int fd) {
    int is_passing = is_marked(fd, &passing);
    if (is_passing) begin_making();
    if (is_passing || is_marked(fd, &ours)) unmark(fd);
    long got = fs_call_kernel(SYS_close, (long[6]){fd});
    if (is_passing) end_making();
    if (got < 0) errno = (int)-got;
    return got < 0 ? -1 : 0;
}

int ip_place(int from, int to, int flags) {
    if (!ip_is_active() || !ip_is_own_process()) return real.dup3(from, to, flags);
    int error = errno;
    ip_enter(); /* a handler that makes something would wait for this call */
    for (int naps = 0;; naps++) {
        ip_add(&placing, 1);
        if (ip_likely(!ip_load_sc(&ip_moments.making) && !is_marked(to, &passing)) || naps == NAPS) break;
        ip_add(&placing, (uint32_t)-1);
        nap();
    }
    errno = error;
    int made = real.dup3(from, to, flags);
    ip_add(&placing, (uint32_t)-1);
    error = errno;
    ip_leave();
    errno = error;
    return made;
}

/* ---- the lowest number ------------------------------------------------------------------------------------------------- */

enum { YIELDS = 20, MOMENT_NAPS = 250 }; /* then 5 ms: the kernel has put off who is in such a moment */

void ip_await_moments(void) {
    for (int waits = 0; ip_unlikely(ip_is_moment()) && waits < YIELDS + MOMENT_NAPS; waits++) {
        if (waits < YIELDS) fs_call_kernel(SYS_sched_yield, (long[6]){0});
        else nap();
        /* (A number that the core keeps: it is waited for once.) */
        if (waits == YIELDS + MOMENT_NAPS - 1) ip_store_relaxed(&ip_moments.passes, 0);
    }
}

int ip_lower(int fd, int least) {
    struct stat it;
    if (!ip_is_own_process()) return fd;
    int error = errno, flags = real.fcntl(fd, F_GETFD, NULL);
    /* (A close gives up the process's record locks on a file, whichever of its descriptors it closes.) */
    if (flags >= 0 && fstat(fd, &it) == 0 && !S_ISREG(it.st_mode)) {
        ip_between_moments();
        int lower = real.fcntl(fd, flags & FD_CLOEXEC ? F_DUPFD_CLOEXEC : F_DUPFD, (void *)(long)least), other = lower < fd ? fd : lower;
        if (lower >= 0) fs_call_kernel(SYS_close, (long[6]){other});
        if (lower >= 0 && lower < fd) fd = lower;
    }
    errno = error;
    return fd;
}

void ip_numbers_after_fork(void) {
    if (ip_load_relaxed(&ip_moments.making)) ip_store_relaxed(&ip_moments.making, 0);
    if (ip_load_relaxed(&placing)) ip_store_relaxed(&placing, 0);
}

void ip_forget_own_number(int fd) {
    if ((unsigned)fd < IP_NUMBERS) unmark(fd);
}

void ip_forget_own_numbers(void) {
    for (int fd = 0; fd <= ip_highest(); fd++) ip_forget_own_number(fd);
}
