/* The program's calls that make sockets and connections, copy and close numbers.
 *
 * Responsible for: that each number of a stream socket leads to its record from its beginning to its end. Never: bytes, options. */
#include "interpose.h"
#include "kernel_numbers.h"
#include "own_numbers.h"
#include "pairs.h"
#include "process.h"

#include <limits.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/un.h>

/* ---- beginning ---------------------------------------------------------------------------------------------------- */

/* Whether connections of such sockets are served. */
static int is_served(int family, int type, int protocol) {
    if ((type & 0xf) != SOCK_STREAM) return 0;
    if (family == AF_UNIX) return ip_settings.unix_streams;
    return (family == AF_INET || family == AF_INET6) && (!protocol || protocol == IPPROTO_TCP);
}

/* The number is that of such a socket, of which nobody has set the options `unset`, or that is known (enum fs_options). Its record, or
 * NULL. With the lock. */
static inline struct ip_socket *adopt(int fd, int family, int nonblocking, uint32_t unset) {
    int is_unix = family == AF_UNIX;
    if ((unsigned)fd >= IP_NUMBERS) return NULL;
    return ip_new_socket(ip_new_number(fd), nonblocking, is_unix, is_unix ? unset & FS_OPTIONS : unset | FS_KNOWN_TCP);
}

int socket(int family, int type, int protocol) {
    uint32_t since = ip_between_moments();
    int fd = real.socket(family, type, protocol);
    if (ip_unlikely(fd < 0) && ip_give_back()) fd = real.socket(family, type, protocol);
    fd = ip_new_number(ip_lowest(fd, 0, since));
    if (fd < 0 || !ip_is_taking() || !is_served(family, type, protocol) || !ip_is_own_process()) return fd;
    ip_lock();
    adopt(fd, family, (type & SOCK_NONBLOCK) != 0, FS_OPTIONS | FS_KNOWN_FRESH);
    ip_unlock();
    return fd;
}

/* (An end that does not wait is an event loop's: ip_forget_pair.) */
int socketpair(int family, int type, int protocol, int made[2]) {
    uint32_t since = ip_between_moments();
    int failed = real.socketpair(family, type, protocol, made);
    if (ip_unlikely(failed) && ip_give_back()) failed = real.socketpair(family, type, protocol, made);
    if (failed) return failed;
    for (int i = 0; i < 2; i++) made[i] = ip_new_number(ip_lowest(made[i], 0, since));
    if (type & SOCK_NONBLOCK || !ip_is_taking() || !is_served(family, type, protocol) || !ip_is_own_process()) return 0;
    ip_lock();
    struct ip_socket *one = adopt(made[0], family, 0, FS_OPTIONS), *other = one ? adopt(made[1], family, 0, FS_OPTIONS) : NULL;
    if (other) ip_begin_pair(one, made[0], other, made[1]);
    else if (one) ip_forget_number(made[0]);
    ip_unlock();
    return 0;
}

static int option_of(int fd, int option) {
    int value = -1;
    return real.getsockopt(fd, SOL_SOCKET, option, &value, &(socklen_t){sizeof value}) ? -1 : value;
}

/* The family of a socket whose connections are served, else AF_UNSPEC. */
static int served_family(int fd) {
    if (option_of(fd, SO_PROTOCOL) == IPPROTO_TCP) return AF_INET;
    return ip_settings.unix_streams && option_of(fd, SO_DOMAIN) == AF_UNIX && option_of(fd, SO_TYPE) == SOCK_STREAM ? AF_UNIX : AF_UNSPEC;
}

/* Any such socket that the program has made, or has been given, and that is no connection. (Others may use a connection which this process
 * was given.) */
static int may_be_claimed(int fd) {
    unsigned char address[128];
    return served_family(fd) != AF_UNSPEC && getpeername(fd, (struct sockaddr *)address, &(socklen_t){sizeof address}) < 0;
}

void fs_libc_claim(int fd, int made) {
    int error = errno;
    if (ip_load_relaxed(&ip_activity) == IP_CLAIMING && (made || !ip_thing_at(fd)) && ip_is_own_process() && may_be_claimed(fd)) {
        ip_lock();
        adopt(fd, served_family(fd), (real.fcntl(fd, F_GETFL, NULL) & O_NONBLOCK) != 0, made ? FS_OPTIONS | FS_KNOWN_FRESH : 0);
        ip_unlock();
    }
    errno = error;
}

/* A number by which a path or a name is known as a service; it is no port. */
static int number_of(const struct sockaddr_un *address, size_t size) {
    uint32_t number = 2166136261u; /* (FNV) */
    for (size_t i = offsetof(struct sockaddr_un, sun_path); i < size; i++)
        number = (number ^ ((const unsigned char *)address)[i]) * 16777619u;
    return (int)(number >> 1 | 0x10000);
}

/* The port of an address; 0: of none that has any. */
static int port_of(const struct sockaddr *address, size_t size) {
    if (address->sa_family == AF_UNIX) return number_of((const struct sockaddr_un *)(const void *)address, size);
    if (address->sa_family == AF_INET) return ntohs(((const struct sockaddr_in *)(const void *)address)->sin_port);
    return address->sa_family == AF_INET6 ? ntohs(((const struct sockaddr_in6 *)(const void *)address)->sin6_port) : 0;
}

/* Ends the lock. The connection takes its first step before it has served anything. */
static void unlock_and_meet(struct ip_socket *s) {
    struct fs_call call;
    int error = errno, inside = ip_hold(s, &call);
    ip_unlock();
    if (inside) {
        ip_step_on(s);
        ip_end(s, &call);
    }
    errno = error;
}

/* A connect has come that far, or is `under_way`. */
static void begin_connection(struct ip_socket *s, int fd, const struct sockaddr *to, socklen_t size, int under_way) {
    if (!to || to->sa_family == AF_UNSPEC || (to->sa_family == AF_UNIX) != s->is_unix || !ip_is_own_process()) return;
    ip_lock();
    int is_it = ip_socket_at(fd) == s, is_new = is_it && !s->opened && !ip_is(&s->thing, IP_EARLY);
    if (is_it && !is_new && !under_way) ip_connected_again(s); /* (one more call says whether the first one is over) */
    if (is_new && ip_unlikely(ip_connected(s, fd, under_way, ip_service_at(port_of(to, size))))) unlock_and_meet(s);
    else ip_unlock();
}

int connect(int fd, const struct sockaddr *to, socklen_t size) {
    struct ip_socket *s = ip_socket_at(fd);
    if (!s) return real.connect(fd, to, size);
    if (ip_unlikely(to && size >= sizeof to->sa_family && to->sa_family == AF_UNSPEC)) ip_leave_ring(s); /* dissolves the connection */
    int failed = real.connect(fd, to, size), error = failed ? errno : 0;
    if (!failed || error == EINPROGRESS || error == EINTR) begin_connection(s, fd, to, size, failed != 0);
    if (ip_unlikely(failed)) errno = error;
    return failed;
}

/* (A function of its own keeps what most connections need together.) */
static void accepted(int fd, int made, int flags, int family, uint32_t unset) {
    ip_lock();
    struct ip_socket *s = adopt(made, family, (flags & SOCK_NONBLOCK) != 0, unset | FS_KNOWN_FRESH);
    if (ip_unlikely(s && ip_connected(s, made, 0, ip_service_of(fd)))) unlock_and_meet(s);
    else ip_unlock();
}

/* By a listener that came from another program, or was passed on. */
static __attribute__((noinline)) int accepted_unknown(int fd, int made, int flags) {
    int error = errno, family = served_family(fd);
    if (family != AF_UNSPEC) {
        ip_lock();
        if (!ip_thing_at(fd)) adopt(fd, family, 0, 0);
        ip_unlock();
        accepted(fd, made, flags, family, 0);
    }
    errno = error;
    return made;
}

int accept4(int fd, struct sockaddr *peer, socklen_t *size, int flags) {
    struct ip_socket *listener = ip_socket_at(fd);
    uint32_t since = ip_between_moments();
    int made = real.accept4(fd, peer, size, flags);
    if (ip_unlikely(made < 0) && ip_give_back()) made = real.accept4(fd, peer, size, flags);
    made = ip_new_number(ip_lowest(made, 0, since));
    if (made < 0 || !ip_is_claiming() || (!listener && !ip_is_taking()) || !ip_is_own_process()) return made;
    if (ip_unlikely(!listener)) return accepted_unknown(fd, made, flags);
    accepted(fd, made, flags, listener->is_unix ? AF_UNIX : AF_INET, ip_load_relaxed(&listener->unset));
    return made;
}

struct ip_socket *ip_adopt_connected(int fd) {
    int family = ip_is_own_process() ? served_family(fd) : AF_UNSPEC;
    if (family == AF_UNSPEC) return NULL;
    struct ip_socket *s = adopt(fd, family, 1, 0);
    if (s) ip_connected(s, fd, 0, NULL); /* (whose service it is cannot be told from this) */
    return s;
}

int accept(int fd, struct sockaddr *peer, socklen_t *size) { return accept4(fd, peer, size, 0); }

/* ---- end ------------------------------------------------------------------------------------------------------------ */

int close(int fd) {
    struct ip_thing *thing = ip_thing_at(fd);
    if (ip_unlikely(thing != NULL)) {
        if (ip_unlikely(ip_is(thing, IP_OURS))) {
            errno = EBADF;
            return -1;
        }
        ip_forget_number(fd);
    }
    return real.close(fd);
}

static void forget_from(unsigned first, unsigned last) {
    for (int fd = first > INT_MAX ? INT_MAX : (int)first; fd <= ip_highest() && (unsigned)fd <= last; fd++)
        if (ip_thing_at(fd)) ip_forget_number(fd);
}

int close_range(unsigned first, unsigned last, int flags) {
    if (!ip_is_active() || first > last) return real.close_range(first, last, flags);
    /* An empty range: the kernel says whether it has the call, and takes the flags. */
    if (real.close_range(UINT_MAX, UINT_MAX, flags & ~CLOSE_RANGE_UNSHARE) < 0) return -1;
    if (!(flags & CLOSE_RANGE_CLOEXEC)) forget_from(first, last);
    int paused = flags & CLOSE_RANGE_UNSHARE && ip_before_own_table();
    /* Around numbers of the core's. */
    int failed = 0;
    for (unsigned fd = first; first <= last && fd <= last && (int)fd <= ip_highest() && fd <= INT_MAX; fd++)
        if (ip_is_ours((int)fd)) {
            if (fd > first) failed |= real.close_range(first, fd - 1, flags);
            first = fd + 1;
        }
    if (first <= last) failed |= real.close_range(first, last, flags);
    if (paused) ip_after_own_table();
    return failed;
}

void closefrom(int first) {
    if (ip_is_active()) close_range(first < 0 ? 0 : (unsigned)first, UINT_MAX, 0);
    else real.closefrom(first);
}

/* Notes it for the time when the connection is not early any more, and returns true; false: it is not early. */
static int shut_early(int fd, int how) {
    struct ip_socket *s = ip_socket_at(fd);
    if (!s || !ip_is(&s->thing, IP_EARLY) || how < SHUT_RD || how > SHUT_RDWR || !ip_is_own_process()) return 0;
    ip_lock();
    int is_early = ip_socket_at(fd) == s && ip_is(&s->thing, IP_EARLY);
    if (is_early) s->shut |= how == SHUT_RDWR ? 3 : how == SHUT_RD ? 1 : 2;
    ip_unlock();
    return is_early;
}

int shutdown(int fd, int how) {
    struct fs_call call;
    if (shut_early(fd, how)) return real.shutdown(fd, how);
    struct ip_socket *s = ip_begin(fd, &call);
    if (!s) return (int)ip_end_kernel(&call, real.shutdown(fd, how));
    int stood = 0;
    if (how == SHUT_RD || how == SHUT_WR || how == SHUT_RDWR)
        while ((stood = fs_conn_shutdown(ip_conn(s), how != SHUT_WR, how != SHUT_RD)) == -EINTR) {}
    int failed = real.shutdown(fd, how), error = errno;
    fs_wake_local(ip_conn(s));
    ip_end(s, &call);
    if (failed && error == ENOTCONN && stood) return 0; /* the peer has heard of it in the ring, and was faster */
    errno = error;
    return failed;
}

/* ---- copies ------------------------------------------------------------------------------------------------------------ */

int dup(int fd) {
    uint32_t since = ip_between_moments();
    int made = real.dup(fd);
    if (ip_unlikely(made < 0) && ip_give_back()) made = real.dup(fd);
    made = ip_new_number(ip_lowest(made, 0, since));
    if (made >= 0 && ip_unlikely(ip_thing_at(fd) != NULL)) {
        ip_also_means(fd, made);
        if (0 <= made && made <= 2) ip_leave_number(made); /* (a standard stream: ip_connected) */
    }
    return made;
}

/* whether dup3 succeeds: only then is what `to` meant gone */
static int dup3_will_succeed(int from, int to, int flags) {
    struct rlimit most;
    return !(flags & ~O_CLOEXEC) && real.fcntl(from, F_GETFD, NULL) >= 0 && !getrlimit(RLIMIT_NOFILE, &most) &&
           (rlim_t)to < most.rlim_cur;
}

int dup3(int from, int to, int flags) {
    if (from == to) return real.dup3(from, to, flags);
    if (ip_likely(!ip_thing_at(from) && !ip_thing_at(to))) return ip_place(from, to, flags);
    if (0 <= to && to <= 2) ip_leave_number(from);
    if (to >= 0 && !ip_thing_at(to) && ip_thing_at(from) && real.fcntl(to, F_GETFD, NULL) >= 0)
        ip_leave_number(from); /* a stream of the C library's may have the number, and go on using it */
    if (ip_thing_at(to) && dup3_will_succeed(from, to, flags)) ip_forget_number(to);
    int made = ip_place(from, to, flags);
    ip_also_means(from, made);
    return made;
}

int dup2(int from, int to) { return from == to ? real.dup2(from, to) : dup3(from, to, 0); }

int fcntl(int fd, int what, ...) {
    va_list more;
    va_start(more, what);
    void *argument = va_arg(more, void *);
    va_end(more);
    struct ip_thing *thing = ip_thing_at(fd);
    int copies = what == F_DUPFD || what == F_DUPFD_CLOEXEC;
    long flags = (long)argument;
    uint32_t since = copies ? ip_between_moments() : 0;
    if (ip_likely(!thing)) {
        int got = real.fcntl(fd, what, argument);
        return copies ? ip_new_number(ip_lowest(got, (int)flags, since)) : got;
    }
    if (!copies && what != F_SETFL && what != F_SETSIG) return real.fcntl(fd, what, argument);
    struct ip_socket *s = ip_socket_at(fd);
    if (s && ((what == F_SETFL && flags & O_ASYNC) || what == F_SETSIG)) ip_leave_ring(s); /* SIGIO is the kernel's to send */
    struct fs_call call;
    struct ip_socket *changed = what == F_SETFL ? ip_begin_change(fd, &call) : NULL;
    int got = real.fcntl(fd, what, argument);
    ip_end_change(changed, &call);
    if (ip_unlikely(got < 0) && copies && ip_give_back()) got = real.fcntl(fd, what, argument);
    if (got < 0) return got;
    if (s && what == F_SETFL) ip_note_nonblocking(s, (flags & O_NONBLOCK) != 0);
    if (s && what == F_SETFL && flags & O_NONBLOCK) ip_forget_pair(s);
    if (copies) {
        got = ip_new_number(ip_lowest(got, (int)flags, since));
        ip_also_means(fd, got);
        if (got <= 2) ip_leave_number(got);
    }
    return got;
}
