/* Options of a socket, and what is asked of it by ioctl.
 *
 * Responsible for: that an option means on the ring what it means on kernel TCP, and that the program reads what it has set. Never: which
 * options keep a connection on kernel TCP from the start (core/transport/tcp.c). */
#include "interpose.h"

#include <linux/sockios.h>
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
    if (!fs_is_attached(&s->c) || fs_has_fallen_back(&s->c) || !whole) return 1;
    if (level == SOL_SOCKET && option == SO_OOBINLINE) {
        while (done == -EINTR) done = fs_set_oob_inline(&s->c, value != 0);
        return done;
    }
    return !(level == IPPROTO_TCP && option == TCP_CORK); /* it holds nothing back on the ring, and must hold back no doorbell byte */
}

/* The kernel has set it. */
static void note_option(struct ip_socket *s, int fd, int level, int option) {
    int done = -EINTR;
    if (level == SOL_SOCKET && (option == SO_RCVTIMEO || option == SO_SNDTIMEO)) {
        s->c.receive_timeout = s->c.send_timeout = FS_NOT_ASKED;
    } else if (level == SOL_SOCKET && (option == SO_RCVBUF || option == SO_SNDBUF) && fs_is_searching(&s->path) + fs_is_attached(&s->c)) {
        uint32_t now = (uint32_t)fs_option(fd, SOL_SOCKET, option);
        while (done == -EINTR)
            done = fs_set_buffer_limits(&s->c, option == SO_RCVBUF ? now : s->c.receive_limit, option == SO_SNDBUF ? now : s->c.send_limit);
    } else if (level == IPPROTO_TCP && option == TCP_NODELAY) {
        fs_store_relaxed(&s->c.nodelay, fs_option(fd, level, option) != 0);
        if (fs_is_attached(&s->c) && !fs_has_fallen_back(&s->c)) fs_set_option(fd, level, option, 1); /* a doorbell byte waits for no ACK */
    }
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
        if (!done) note_option(s, fd, level, option);
    }
    return (int)ip_end_with(s, &call, done);
}

int getsockopt(int fd, int level, int option, void *value, socklen_t *size) {
    struct fs_call call;
    struct ip_socket *s = ip_begin(fd, &call);
    int failed = real.getsockopt(fd, level, option, value, size), error = errno;
    if (!s) return failed;
    if (!failed && fs_is_attached(&s->c) && !fs_has_fallen_back(&s->c) && *size >= sizeof(int)) {
        /* The kernel's value serves the doorbell by now. */
        int shown = -1;
        if (level == IPPROTO_TCP && option == TCP_NODELAY) shown = fs_is_nodelay(&s->c);
        if (level == SOL_SOCKET && option == SO_SNDBUF) shown = (int)fs_load_relaxed(&fs_own(&s->c)->send_buffer_before);
        if (shown > 0 || (shown == 0 && option == TCP_NODELAY && level == IPPROTO_TCP)) memcpy(value, &shown, sizeof shown);
    }
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
        int on_ring = fs_is_attached(&served->c), done = 0;
        if (on_ring && what == FIONREAD && fs_receives_on_ring(&served->c)) {
            *(int *)argument = (int)fs_available(&served->c.ring, INT32_MAX);
            done = 1;
        } else if (on_ring && what == SIOCOUTQ && fs_sends_on_ring(&served->c)) {
            *(int *)argument = 0; /* what the ring has is the peer's to read already */
            done = 1;
        }
        ip_end(served, &call);
        if (done) return 0;
    }
    int got = real.ioctl(fd, what, argument);
    if (s && what == FIONBIO && got >= 0) fs_store_relaxed(&s->nonblocking, *(int *)argument != 0);
    return got;
}
