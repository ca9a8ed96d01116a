/* Options of a socket, and what is asked of it by ioctl.
 *
 * Responsible for: that an option means on the ring what it means on kernel TCP, and that the program reads what it has set. Never: which
 * options keep a connection on kernel TCP from the start (core/transport/tcp.c). */
#include "interpose.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>

#ifndef SO_ZEROCOPY
#define SO_ZEROCOPY 60
#endif
#ifndef TCP_ULP
#define TCP_ULP 31
#endif
#ifndef TCP_REPAIR
#define TCP_REPAIR 19
#endif
#ifndef SO_TIMESTAMPNS
#define SO_TIMESTAMPNS 35
#endif
#ifndef SO_TIMESTAMPING
#define SO_TIMESTAMPING 37
#endif

/* What only the kernel's stream can do: the fallback, and then the kernel's call. */
static int needs_kernel(int level, int option, int value) {
    if (level == SOL_SOCKET)
        return option == SO_ZEROCOPY || option == SO_ATTACH_FILTER || option == SO_ATTACH_BPF || option == SO_TIMESTAMP ||
               option == SO_TIMESTAMPNS || option == SO_TIMESTAMPING || (option == SO_RCVLOWAT && value > 1);
    return level == IPPROTO_TCP && (option == TCP_ULP || option == TCP_REPAIR);
}

/* Sets an option of a connection. 0, -errno, or 1: the kernel's call does it. */
static int set_on_ring(struct ip_socket *s, int level, int option, int value, int whole) {
    int done = -EINTR;
    if (!fs_is(ip_conn(s), FS_IS_ATTACHED) || fs_is(ip_conn(s), FS_IS_OUT) || !whole) return 1;
    if (level == SOL_SOCKET && option == SO_OOBINLINE) {
        while (done == -EINTR) done = fs_set_oob_inline(ip_conn(s), value != 0);
        return done;
    }
    return !(level == IPPROTO_TCP && option == TCP_CORK); /* it holds nothing back on the ring, and must hold back no doorbell byte */
}

int setsockopt(int fd, int level, int option, const void *value, socklen_t size) {
    struct fs_call call;
    int number = 0, whole = value && size >= sizeof number;
    struct ip_socket *s = ip_begin(fd, &call);
    if (!s) return real.setsockopt(fd, level, option, value, size);
    if (whole) memcpy(&number, value, sizeof number);
    if (needs_kernel(level, option, number)) ip_leave_ring(s);
    int done = set_on_ring(s, level, option, number, whole);
    if (done > 0) {
        done = real.setsockopt(fd, level, option, value, size) ? -errno : 0;
        while (!done && fs_option_set(ip_conn(s), level, option) == -EINTR) {}
    }
    return (int)ip_end_with(s, &call, done);
}

int getsockopt(int fd, int level, int option, void *value, socklen_t *size) {
    struct fs_call call;
    struct ip_socket *s = ip_begin(fd, &call);
    int failed = real.getsockopt(fd, level, option, value, size), error = errno;
    if (!s) return failed;
    int shown;
    if (!failed && *size >= sizeof shown && fs_option_shown(ip_conn(s), level, option, &shown)) memcpy(value, &shown, sizeof shown);
    ip_end(s, &call);
    errno = error;
    return failed;
}

int ioctl(int fd, unsigned long what, ...) {
    va_list more;
    va_start(more, what);
    void *argument = va_arg(more, void *);
    va_end(more);
    if (ip_likely(!ip_thing_at(fd))) return real.ioctl(fd, what, argument);
    struct ip_socket *s = ip_socket_at(fd);
    if (s && what == FIOASYNC && argument && *(int *)argument) ip_leave_ring(s); /* SIGIO is the kernel's to send */
    struct fs_call call;
    struct ip_socket *served = what == FIONREAD || what == SIOCOUTQ ? ip_begin(fd, &call) : NULL;
    if (served) {
        int64_t unread = what == FIONREAD ? fs_unread(ip_conn(served)) : -1;
        int done = unread >= 0 || (what == SIOCOUTQ && fs_is(ip_conn(served), FS_IS_SENDING_RING));
        if (done) *(int *)argument = unread > 0 ? (int)unread : 0; /* what the ring has of what was sent is the peer's to read already */
        ip_end(served, &call);
        if (done) return 0;
    }
    int got = real.ioctl(fd, what, argument);
    if (s && what == FIONBIO && got >= 0) ip_store_relaxed(&s->nonblocking, *(int *)argument != 0);
    return got;
}
