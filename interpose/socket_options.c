/* Options of a socket, and what is asked of it by ioctl.
 *
 * Responsible for: that an option means on the ring what it means to the kernel. (The program reads it from the kernel.) Never: which
 * options keep a connection with the kernel from the start (core/transport/). */
#include "interpose.h"
#include "pairs.h"

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
#ifndef TCP_INQ
#define TCP_INQ 36
#endif
#ifndef SO_PASSPIDFD
#define SO_PASSPIDFD 76
#endif
#ifndef SO_TIMESTAMPNS
#define SO_TIMESTAMPNS 35
#endif
#ifndef SO_TIMESTAMPING
#define SO_TIMESTAMPING 37
#endif

/* What only the kernel's stream can do: the fallback, and then the kernel's call. */
static int needs_kernel(const struct ip_socket *s, int level, int option, int value) {
    if (level == SOL_SOCKET && s->is_unix && value && (option == SO_PASSCRED || option == SO_PASSSEC || option == SO_PASSPIDFD)) return 1;
    if (level == SOL_SOCKET)
        return option == SO_ZEROCOPY || option == SO_ATTACH_FILTER || option == SO_ATTACH_BPF || option == SO_TIMESTAMP ||
               option == SO_TIMESTAMPNS || option == SO_TIMESTAMPING || (option == SO_RCVLOWAT && value > 1) ||
               (option == SO_PEEK_OFF && value >= 0);
    return level == IPPROTO_TCP && (option == TCP_ULP || option == TCP_REPAIR);
}

/* What the core knows an option as (enum fs_options); 0: it does not act on it. */
static uint32_t class_of(int level, int option) {
    if (level == IPPROTO_IP || level == IPPROTO_IPV6) return 0;
    if (level == IPPROTO_TCP) {
        int harmless = option == TCP_KEEPIDLE || option == TCP_KEEPINTVL || option == TCP_KEEPCNT || option == TCP_USER_TIMEOUT ||
                       option == TCP_QUICKACK || option == TCP_DEFER_ACCEPT || option == TCP_FASTOPEN || option == TCP_CONGESTION;
        return option == TCP_NODELAY ? FS_OPTION_NODELAY : harmless ? 0 : FS_OPTION_OTHER;
    }
    if (level != SOL_SOCKET) return FS_OPTION_OTHER;
    switch (option) {
    case SO_SNDBUF:
    case SO_RCVBUF:
    case SO_SNDBUFFORCE:
    case SO_RCVBUFFORCE: return FS_OPTION_BUFFERS;
    case SO_RCVTIMEO:
    case SO_SNDTIMEO: return FS_OPTION_TIMEOUTS;
    case SO_LINGER: return FS_OPTION_LINGER;
    case SO_REUSEADDR:
    case SO_REUSEPORT:
    case SO_KEEPALIVE: return 0;
    default: return FS_OPTION_OTHER;
    }
}

/* The program sets an option now. With the lock: who opens the connection after this asks the kernel, and who opens it before this is seen.
 * */
static void note_option(struct ip_socket *s, int level, int option) {
    uint32_t class = class_of(level, option), unset = ip_load_relaxed(&s->unset);
    if (!(unset & class)) return;
    int locks = ip_is_own_process();
    if (locks) ip_lock();
    ip_store_relaxed(&s->unset, ip_load_relaxed(&s->unset) & ~class);
    if (locks) ip_unlock();
}

int setsockopt(int fd, int level, int option, const void *value, socklen_t size) {
    struct fs_call call;
    int number = 0;
    struct ip_socket *s = ip_socket_at(fd);
    if (s) note_option(s, level, option);
    if (!s || ip_is(&s->thing, IP_SOCKET)) return real.setsockopt(fd, level, option, value, size);
    if (value && size >= sizeof number) memcpy(&number, value, sizeof number);
    if (needs_kernel(s, level, option, number)) ip_open_number(fd);
    s = ip_is(&s->thing, IP_CONNECTION) ? ip_begin(fd, &call) : NULL; /* (when an early one is opened, the core asks the kernel) */
    if (!s) return real.setsockopt(fd, level, option, value, size);
    if (needs_kernel(s, level, option, number)) ip_leave_ring_for(s, FS_REASON_OPTION, NULL);
    fs_option_set(ip_conn(s), level, option, 0);
    int done = real.setsockopt(fd, level, option, value, size) ? -errno : 0;
    /* (The ring goes on with the limit that it had if a process that is stopped has its lock: the kernel's call waits for nobody, and
     * Python makes it with the lock of its interpreter.) */
    fs_option_set(ip_conn(s), level, option, 1);
    if (level == IPPROTO_TCP && option == TCP_INQ) ip_store_relaxed(&s->tells_left, IP_LEFT_NOT_ASKED);
    return (int)ip_end_with(s, &call, done);
}

/* (Options are kept in the kernel, and so are errors, but for those that only the ring knows.) */
int getsockopt(int fd, int level, int option, void *value, socklen_t *size) {
    struct fs_call call;
    int got = real.getsockopt(fd, level, option, value, size), error = 0;
    if (ip_likely(level != SOL_SOCKET || option != SO_ERROR || got < 0)) return got;
    struct ip_socket *s = ip_socket_at(fd);
    memcpy(&error, value, IP_MIN(*size, sizeof error));
    if (error || !s || !ip_is(&s->thing, IP_CONNECTION) || !ip_hold(s, &call)) return got;
    error = fs_take_error(ip_conn(s));
    ip_end(s, &call);
    memcpy(value, &error, IP_MIN(*size, sizeof error));
    return got;
}

int ip_tells_left(struct ip_socket *s) {
    uint32_t known = ip_load_relaxed(&s->tells_left);
    if (s->is_unix) return 0;
    if (known == IP_LEFT_NOT_ASKED || fs_is(ip_conn(s), FS_IS_SHARED)) { /* (another process may have set it) */
        int set = 0;
        real.getsockopt(fs_fd(ip_conn(s)), IPPROTO_TCP, TCP_INQ, &set, &(socklen_t){sizeof set});
        known = set ? IP_LEFT_TOLD : IP_LEFT_UNTOLD;
        ip_store_relaxed(&s->tells_left, known);
    }
    return known == IP_LEFT_TOLD;
}

int ioctl(int fd, fs_ioctl_request what, ...) {
    va_list more;
    va_start(more, what);
    void *argument = va_arg(more, void *);
    va_end(more);
    if (ip_likely(!ip_thing_at(fd))) return real.ioctl(fd, what, argument);
    struct ip_socket *s = ip_socket_at(fd);
    if (s && what == FIOASYNC && argument && *(int *)argument) ip_leave_ring(s); /* SIGIO is the kernel's to send */
    struct fs_call call;
    int asks = what == FIONREAD || what == SIOCOUTQ || what == SIOCATMARK;
    struct ip_socket *served = s && asks && ip_is(&s->thing, IP_CONNECTION) ? ip_begin(fd, &call) : NULL;
    if (served) {
        int64_t unread = fs_unread(ip_conn(served), what == SIOCOUTQ ? FS_SEND : FS_RECEIVE);
        int done = what == SIOCATMARK ? unread > 0 : unread >= 0; /* (an urgent byte comes after all that is in the ring) */
        if (done) *(int *)argument = what == SIOCATMARK ? 0 : (int)unread;
        ip_end(served, &call);
        if (done) return 0;
    }
    struct ip_socket *changed = what == FIONBIO ? ip_begin_change(fd, &call) : NULL;
    int got = real.ioctl(fd, what, argument);
    ip_end_change(changed, &call);
    if (s && what == FIONBIO && got >= 0) ip_note_nonblocking(s, *(int *)argument != 0);
    if (s && what == FIONBIO && got >= 0 && *(int *)argument) ip_forget_pair(s);
    return got;
}

int sockatmark(int fd) {
    int at_mark;
    return ioctl(fd, SIOCATMARK, &at_mark) < 0 ? -1 : at_mark;
}
