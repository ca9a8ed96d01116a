/* The fallback: whoever is about to use a connection's number past us finds the kernel's whole stream there.
 *
 * Responsible for: who these are, and that the connection has left before. Never: how it leaves (core/rendezvous/path_end.c). */
#include "interpose.h"
#include "report.h"

struct leaving { struct ip_socket *s; int *unread; };

static int list_numbers(void *whose, int *numbers, int room) { return ip_numbers_of(&((struct leaving *)whose)->s->thing, numbers, room); }

static int keep(void *whose, int unread, uint64_t size) {
    (void)size;
    return (*((struct leaving *)whose)->unread = real.fcntl(unread, F_DUPFD_CLOEXEC, NULL)) >= 0;
}

int ip_leave_ring(struct ip_socket *s) { return ip_leave_ring_for(s, FS_REASON_DETACHED, NULL); }

int ip_leave_ring_for(struct ip_socket *s, enum fs_reason why, int *unread) {
    struct leaving leaving = {s, unread};
    struct fs_fallback_hooks hooks = {list_numbers, unread ? keep : NULL, &leaving};
    struct fs_call call;
    int64_t bridge = 0;
    int error = errno, left = -EINTR;
    ip_lock();
    ip_open(s);
    int inside = s->opened && ip_hold(s, &call), undecided = inside && fs_path_is_undecided(ip_conn(s));
    if (undecided && fs_stay_on_tcp(ip_conn(s), why, 0)) left = FS_NOW_IN_KERNEL;
    while (inside && left == -EINTR) left = fs_fall_back(ip_conn(s), &hooks, &bridge);
    if (inside && left != FS_CANNOT_FALL_BACK) ip_settle(s);
    if (undecided && !fs_path_is_undecided(ip_conn(s))) ip_report_path(s);
    if (inside) ip_report_fallback(s, left, bridge);
    ip_unlock();
    if (inside) ip_end(s, &call);
    errno = error;
    return !inside || left != FS_CANNOT_FALL_BACK;
}

void ip_leave_number(int fd) {
    struct ip_socket *s = ip_socket_at(fd);
    if (s && !ip_is(&s->thing, IP_SOCKET)) ip_leave_ring(s);
}

void ip_leave_inherited(void) {
    for (int fd = 0; fd <= ip_highest(); fd++) {
        struct ip_socket *s = ip_socket_at(fd);
        if (!s || ip_is(&s->thing, IP_SOCKET)) continue;
        int flags = real.fcntl(fd, F_GETFD, NULL);
        if (flags >= 0 && !(flags & FD_CLOEXEC)) ip_leave_ring(s);
    }
}

/* ---- the C library's streams: their calls are inside of it ------------------------------------------------------------ */

FILE *fdopen(int fd, const char *mode) {
    ip_leave_number(fd);
    return real.fdopen(fd, mode);
}

int vdprintf(int fd, const char *format, va_list more) {
    ip_leave_number(fd);
    return real.vdprintf(fd, format, more);
}

int dprintf(int fd, const char *format, ...) {
    va_list more;
    va_start(more, format);
    int done = vdprintf(fd, format, more);
    va_end(more);
    return done;
}

int __vdprintf_chk(int fd, int flag, const char *format, va_list more) {
    (void)flag;
    return vdprintf(fd, format, more);
}

int __dprintf_chk(int fd, int flag, const char *format, ...) {
    va_list more;
    (void)flag;
    va_start(more, format);
    int done = vdprintf(fd, format, more);
    va_end(more);
    return done;
}

/* ---- bytes that the kernel moves by itself ------------------------------------------------------------------------------ */

ssize_t splice(int from, off64_t *at, int to, off64_t *to_at, size_t count, unsigned flags) {
    ip_leave_number(from);
    ip_leave_number(to);
    return real.splice(from, at, to, to_at, count, flags);
}

/* ---- requests that threads of the C library's carry out: their calls are inside of it ----------------------------------- */

int aio_read(struct aiocb *request) {
    ip_leave_number(request->aio_fildes);
    return real.aio_read(request);
}

int aio_write(struct aiocb *request) {
    ip_leave_number(request->aio_fildes);
    return real.aio_write(request);
}

int lio_listio(int mode, fs_aio_list requests, int count, struct sigevent *event) {
    for (int i = 0; i < count; i++)
        if (requests[i] && requests[i]->aio_lio_opcode != LIO_NOP) ip_leave_number(requests[i]->aio_fildes);
    return real.lio_listio(mode, requests, count, event);
}
