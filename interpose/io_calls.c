/* The program's calls that receive and send.
 *
 * Responsible for: arguments, vectors and messages. Never: how bytes travel (send_recv.c). */
#include "interpose.h"
#include "kernel_numbers.h"
#include "own_numbers.h"

#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <sys/ioctl.h>

#ifndef TCP_CM_INQ
#define TCP_CM_INQ 36
#endif

enum {
    THEIRS = MSG_OOB | MSG_ERRQUEUE, /* with one of these a receive is the kernel's; others than FS_RECEIVE_FLAGS mean nothing to TCP */
};

/* Most descriptors are none of ours: what they cost stands in a function of its own, which needs no frame. */

static int64_t received(struct ip_socket *s, void *into, size_t room, int flags) {
    return ip_receive(s, into, IP_MIN(room, (size_t)SSIZE_MAX), flags & FS_RECEIVE_FLAGS);
}

static int64_t sent(struct ip_socket *s, const void *data, size_t length, int flags) {
    return ip_send(s, data, IP_MIN(length, (size_t)SSIZE_MAX), flags);
}

/* Of an early connection: a long send moves on its way, and the core has to know of an urgent byte, whose mark is the kernel's. */
static inline int opens_early(size_t length, int flags) { return ip_unlikely(length > IP_STRIDE || flags & MSG_OOB); }

static struct ip_socket *begin_sending(int fd, struct fs_call *call, size_t length, int flags) {
    if (opens_early(length, flags)) ip_open_number(fd);
    return ip_begin(fd, call);
}

static __attribute__((noinline)) ssize_t read_on(int fd, struct ip_thing *thing, void *into, size_t room) {
    struct fs_call call;
    if (ip_begins_early(fd, thing)) return ip_end_early((struct ip_socket *)thing, real.read(fd, into, room));
    struct ip_socket *s = ip_begin(fd, &call);
    if (!s) return ip_end_kernel(&call, real.read(fd, into, room));
    return ip_end_with(s, &call, room ? received(s, into, room, 0) : 0); /* (recv of no bytes waits for some, read does not) */
}

ssize_t read(int fd, void *into, size_t room) {
    struct ip_thing *thing = ip_thing_at(fd);
    return ip_unlikely(thing != NULL) ? read_on(fd, thing, into, room) : real.read(fd, into, room);
}

static __attribute__((noinline)) ssize_t recv_on(int fd, struct ip_thing *thing, void *into, size_t room, int flags) {
    struct fs_call call = {0};
    if (!(flags & THEIRS) && ip_begins_early(fd, thing)) return ip_end_early((struct ip_socket *)thing, real.recv(fd, into, room, flags));
    struct ip_socket *s = flags & THEIRS ? NULL : ip_begin(fd, &call);
    return s ? ip_end_with(s, &call, received(s, into, room, flags)) : ip_end_kernel(&call, real.recv(fd, into, room, flags));
}

ssize_t recv(int fd, void *into, size_t room, int flags) {
    struct ip_thing *thing = ip_thing_at(fd);
    return ip_unlikely(thing != NULL) ? recv_on(fd, thing, into, room, flags) : real.recv(fd, into, room, flags);
}

/* The name of who has sent: TCP names nobody, a unix stream the other end if that has a name. */
static void name_sender(struct ip_socket *s, int64_t got, void *name, socklen_t *size) {
    socklen_t room = *size, whole = room;
    *size = 0;
    if (!s->is_unix || got <= 0 || !name) return;
    if (getpeername(fs_fd(ip_conn(s)), name, &whole) == 0 && whole > sizeof(sa_family_t)) *size = whole;
}

/* True if a message of a unix stream may have descriptors or credentials with it, or an address: the kernel's stream carries them. What the
 * ring has comes first. */
static int leave_for_ancillary(int fd, const struct msghdr *m) {
    struct ip_socket *s = ip_socket_at(fd);
    if (!s || !s->is_unix || !m || !m->msg_controllen) return 0;
    if (!ip_is(&s->thing, IP_SOCKET)) ip_leave_ring_for(s, FS_REASON_OPTION, NULL);
    return 1;
}

/* The kernel refuses an address of a unix stream that is connected, and TCP does not look at it. */
static int is_refused_address(int fd, socklen_t size) {
    struct ip_socket *s = size ? ip_socket_at(fd) : NULL;
    return s && s->is_unix;
}

ssize_t recvfrom(int fd, void *into, size_t room, int flags, struct sockaddr *from, socklen_t *size) {
    struct fs_call call = {0};
    struct ip_socket *s = flags & THEIRS ? NULL : ip_begin(fd, &call);
    if (!s) return ip_end_kernel(&call, real.recvfrom(fd, into, room, flags, from, size));
    int64_t got = received(s, into, room, flags);
    if (got >= 0 && size) name_sender(s, got, from, size);
    return ip_end_with(s, &call, got);
}

static __attribute__((noinline)) ssize_t write_on(int fd, struct ip_thing *thing, const void *data, size_t length) {
    struct fs_call call;
    if (!opens_early(length, 0) && ip_begins_early(fd, thing)) return ip_end_early((struct ip_socket *)thing, real.write(fd, data, length));
    struct ip_socket *s = begin_sending(fd, &call, length, 0);
    return s ? ip_end_with(s, &call, sent(s, data, length, 0)) : ip_end_kernel(&call, real.write(fd, data, length));
}

ssize_t write(int fd, const void *data, size_t length) {
    struct ip_thing *thing = ip_thing_at(fd);
    return ip_unlikely(thing != NULL) ? write_on(fd, thing, data, length) : real.write(fd, data, length);
}

static __attribute__((noinline)) ssize_t send_on(int fd, struct ip_thing *thing, const void *data, size_t length, int flags) {
    struct fs_call call;
    if (!opens_early(length, flags) && ip_begins_early(fd, thing))
        return ip_end_early((struct ip_socket *)thing, real.send(fd, data, length, flags));
    struct ip_socket *s = begin_sending(fd, &call, length, flags);
    return s ? ip_end_with(s, &call, sent(s, data, length, flags)) : ip_end_kernel(&call, real.send(fd, data, length, flags));
}

ssize_t send(int fd, const void *data, size_t length, int flags) {
    struct ip_thing *thing = ip_thing_at(fd);
    return ip_unlikely(thing != NULL) ? send_on(fd, thing, data, length, flags) : real.send(fd, data, length, flags);
}

ssize_t sendto(int fd, const void *data, size_t length, int flags, const struct sockaddr *to, socklen_t size) {
    struct fs_call call = {0};
    struct ip_socket *s = flags & MSG_FASTOPEN || is_refused_address(fd, size) ? NULL : begin_sending(fd, &call, length, flags);
    return s ? ip_end_with(s, &call, sent(s, data, length, flags)) : ip_end_kernel(&call, real.sendto(fd, data, length, flags, to, size));
}

/* ---- what a function of glibc's fortified headers calls (_FORTIFY_SOURCE) ------------------------------------------- */


ssize_t __read_chk(int fd, void *into, size_t room, size_t size) {
    if (room > size) __chk_fail();
    return read(fd, into, room);
}
ssize_t __recv_chk(int fd, void *into, size_t room, size_t size, int flags) {
    if (room > size) __chk_fail();
    return recv(fd, into, room, flags);
}
ssize_t __recvfrom_chk(int fd, void *into, size_t room, size_t size, int flags, struct sockaddr *from, socklen_t *length) {
    if (room > size) __chk_fail();
    return recvfrom(fd, into, room, flags, from, length);
}

/* ---- several pieces --------------------------------------------------------------------------------------------------- */

/* The bytes of a vector, or -EINVAL as the kernel has it. */
static int64_t length_of(const struct iovec *v, size_t count) {
    size_t length = 0;
    if (count > IOV_MAX) return -EINVAL;
    for (size_t i = 0; i < count; i++) {
        if (v[i].iov_len > (size_t)SSIZE_MAX - length) return -EINVAL;
        length += v[i].iov_len;
    }
    return (int64_t)length;
}

/* The first piece waits, the others take what is there; all of them wait with MSG_WAITALL. */
static int64_t receive_pieces(struct ip_socket *s, const struct iovec *v, size_t count, int flags) {
    int64_t sum = 0, length = length_of(v, count);
    if (length <= 0) return length;
    if (flags & MSG_PEEK && count > 1) { /* a look goes from the beginning each time: one look, and then its pieces */
        size_t at = 0, most = IP_MIN((size_t)length, (size_t)1 << 20);
        char *all = fs_allocate(most);
        if (!all) return -ENOMEM;
        sum = received(s, all, most, flags);
        for (size_t i = 0; i < count && (int64_t)at < sum; i++) {
            size_t part = IP_MIN(v[i].iov_len, (size_t)sum - at);
            memcpy(v[i].iov_base, all + at, part);
            at += part;
        }
        fs_release(all);
        return sum;
    }
    for (size_t i = 0; i < count; i++) {
        if (!v[i].iov_len) continue;
        int64_t got = received(s, v[i].iov_base, v[i].iov_len, sum && !(flags & MSG_WAITALL) ? flags | MSG_DONTWAIT : flags);
        if (got < 0) return sum ? fs_end_partial(ip_conn(s), sum, got == -EINTR ? -EAGAIN : got) : got;
        sum += got;
        if ((size_t)got < v[i].iov_len) break;
    }
    return sum;
}

/* On the ring they are one message. */
static int64_t send_pieces(struct ip_socket *s, const struct iovec *v, size_t count, int flags) {
    int64_t length = length_of(v, count);
    if (length <= 0) return length;
    return count == 1 ? sent(s, v->iov_base, v->iov_len, flags) : ip_send_pieces(s, v, (size_t)length, flags);
}

static __attribute__((noinline)) ssize_t readv_on(int fd, const struct iovec *v, int count) {
    struct fs_call call;
    struct ip_socket *s = ip_begin(fd, &call);
    return s ? ip_end_with(s, &call, receive_pieces(s, v, (size_t)count, 0)) : ip_end_kernel(&call, real.readv(fd, v, count));
}

ssize_t readv(int fd, const struct iovec *v, int count) { return ip_is_known(fd) ? readv_on(fd, v, count) : real.readv(fd, v, count); }

static __attribute__((noinline)) ssize_t writev_on(int fd, struct ip_thing *thing, const struct iovec *v, int count) {
    struct fs_call call;
    if (ip_begins_early(fd, thing)) return ip_end_early((struct ip_socket *)thing, real.writev(fd, v, count));
    struct ip_socket *s = ip_begin(fd, &call);
    return s ? ip_end_with(s, &call, send_pieces(s, v, (size_t)count, 0)) : ip_end_kernel(&call, real.writev(fd, v, count));
}

ssize_t writev(int fd, const struct iovec *v, int count) {
    struct ip_thing *thing = ip_thing_at(fd);
    return ip_unlikely(thing != NULL) ? writev_on(fd, thing, v, count) : real.writev(fd, v, count);
}

/* With the offset -1 they are readv and writev; of sockets any other one fails. */
ssize_t preadv2(int fd, const struct iovec *v, int count, off_t at, int flags) {
    struct fs_call call = {0};
    struct ip_socket *s = at == -1 && !(flags & ~RWF_NOWAIT) ? ip_begin(fd, &call) : NULL;
    if (!s) return ip_end_kernel(&call, real.preadv2(fd, v, count, at, flags));
    return ip_end_with(s, &call, receive_pieces(s, v, (size_t)count, flags & RWF_NOWAIT ? MSG_DONTWAIT : 0));
}

ssize_t pwritev2(int fd, const struct iovec *v, int count, off_t at, int flags) {
    struct fs_call call = {0};
    struct ip_socket *s = at == -1 && !(flags & ~RWF_NOWAIT) ? ip_begin(fd, &call) : NULL;
    if (!s) return ip_end_kernel(&call, real.pwritev2(fd, v, count, at, flags));
    return ip_end_with(s, &call, send_pieces(s, v, (size_t)count, flags & RWF_NOWAIT ? MSG_DONTWAIT : 0));
}

/* ---- messages ------------------------------------------------------------------------------------------------------------ */

/* (Of a vector of its own too many pieces are EINVAL.) */
static int has_too_many(const struct msghdr *m) { return m->msg_iovlen > IOV_MAX; }

/* The bytes that are left to receive; 1 at the end of the stream, so that who asks goes on to receive it. */
static int left(struct ip_socket *s) {
    int64_t unread = fs_unread(ip_conn(s), FS_RECEIVE);
    int queued = (int)IP_MIN(unread, (int64_t)INT_MAX);
    char byte;
    if (unread < 0) real.ioctl(fs_fd(ip_conn(s)), FIONREAD, &queued);
    return queued > 0 ? queued : fs_try_recv(ip_conn(s), &byte, 1, MSG_PEEK, FS_FINAL) == 0;
}

/* As the kernel gives it, which cuts what finds no room. */
static void put_left(struct ip_socket *s, struct msghdr *m, size_t room) {
    int bytes = left(s);
    struct cmsghdr head = {.cmsg_len = IP_MIN(CMSG_LEN(sizeof bytes), room), .cmsg_level = IPPROTO_TCP, .cmsg_type = TCP_CM_INQ};
    if (head.cmsg_len < CMSG_LEN(sizeof bytes)) m->msg_flags |= MSG_CTRUNC;
    if (!m->msg_control || room < sizeof head) return;
    memcpy(m->msg_control, &head, sizeof head);
    memcpy((char *)m->msg_control + sizeof head, &bytes, head.cmsg_len - sizeof head);
    m->msg_controllen = IP_MIN(CMSG_SPACE(sizeof bytes), room);
}

static int64_t receive_message(struct ip_socket *s, struct msghdr *m, int flags) {
    if (has_too_many(m)) return -EMSGSIZE;
    int64_t length = length_of(m->msg_iov, m->msg_iovlen), got = length;
    if (length >= 0) got = length ? receive_pieces(s, m->msg_iov, m->msg_iovlen, flags) : received(s, NULL, 0, flags);
    if (got >= 0) {
        size_t room = m->msg_controllen;
        name_sender(s, got, m->msg_name, &m->msg_namelen);
        m->msg_controllen = 0;
        m->msg_flags = flags & MSG_CMSG_CLOEXEC;
        if (ip_unlikely(ip_tells_left(s))) put_left(s, m, room);
    }
    return got;
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags) {
    struct fs_call call = {0};
    struct ip_socket *s = flags & THEIRS || leave_for_ancillary(fd, message) ? NULL : ip_begin(fd, &call);
    return s ? ip_end_with(s, &call, receive_message(s, message, flags)) : ip_end_kernel(&call, real.recvmsg(fd, message, flags));
}

/* Descriptors that a message passes on: who gets them reads them past us. */
static void leave_rights(const struct msghdr *message) {
    struct msghdr *m = (struct msghdr *)message;
    for (struct cmsghdr *c = m && m->msg_controllen ? CMSG_FIRSTHDR(m) : NULL; c; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS || c->cmsg_len < CMSG_LEN(0)) continue;
        for (size_t at = 0; at + sizeof(int) <= c->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
            int passed;
            memcpy(&passed, CMSG_DATA(c) + at, sizeof passed);
            ip_leave_number(passed);
        }
    }
}

/* The kernel says of ancillary data, with no bytes to send, whether it takes them. */
static int64_t send_message(struct ip_socket *s, const struct msghdr *m, int flags) {
    if (has_too_many(m)) return -EMSGSIZE;
    if (m->msg_controllen) {
        struct msghdr alone = {.msg_control = m->msg_control, .msg_controllen = m->msg_controllen};
        if (real.sendmsg(fs_fd(ip_conn(s)), &alone, (flags & MSG_NOSIGNAL) | MSG_DONTWAIT) < 0 && errno != EAGAIN) return -errno;
    }
    int64_t done = send_pieces(s, m->msg_iov, m->msg_iovlen, flags);
    return done ? done : sent(s, "", 0, flags); /* (it finds an end, where writev finds nothing) */
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    struct fs_call call = {0};
    int is_kernels = message && (is_refused_address(fd, message->msg_namelen) || leave_for_ancillary(fd, message));
    struct ip_socket *s = is_kernels ? NULL : begin_sending(fd, &call, 0, flags);
    if (s) return ip_end_with(s, &call, send_message(s, message, flags));
    leave_rights(message);
    return ip_end_kernel(&call, real.sendmsg(fd, message, flags));
}

int recvmmsg(int fd, struct mmsghdr *messages, unsigned count, fs_message_flags flags, struct timespec *time) {
    struct fs_call call = {0};
    for (unsigned i = 0; messages && i < count; i++) leave_for_ancillary(fd, &messages[i].msg_hdr);
    struct ip_socket *s = flags & THEIRS ? NULL : ip_begin(fd, &call);
    if (!s) return (int)ip_end_kernel(&call, real.recvmmsg(fd, messages, count, flags, time));
    int64_t deadline = time ? fs_now() + (int64_t)time->tv_sec * 1000000000 + time->tv_nsec : -1, got = 0;
    unsigned done = 0;
    while (done < count) {
        int one = flags & ~MSG_WAITFORONE;
        if (done && flags & MSG_WAITFORONE) one |= MSG_DONTWAIT;
        got = receive_message(s, &messages[done].msg_hdr, one);
        if (got < 0) break;
        messages[done++].msg_len = (unsigned)got;
        if (got == 0 || (deadline >= 0 && fs_now() >= deadline)) break;
    }
    return (int)ip_end_with(s, &call, done ? fs_end_partial(ip_conn(s), done, got < 0 ? got : -EAGAIN) : got);
}

int sendmmsg(int fd, struct mmsghdr *messages, unsigned count, fs_message_flags flags) {
    struct fs_call call = {0};
    int is_kernels = 0;
    for (unsigned i = 0; messages && i < count; i++)
        is_kernels |= leave_for_ancillary(fd, &messages[i].msg_hdr) | is_refused_address(fd, messages[i].msg_hdr.msg_namelen);
    struct ip_socket *s = is_kernels ? NULL : begin_sending(fd, &call, 0, flags);
    if (!s) {
        for (unsigned i = 0; i < count; i++) leave_rights(&messages[i].msg_hdr);
        return (int)ip_end_kernel(&call, real.sendmmsg(fd, messages, count, flags));
    }
    unsigned done = 0;
    int64_t part = 0;
    while (done < count) {
        part = send_message(s, &messages[done].msg_hdr, flags);
        if (part < 0) break;
        messages[done++].msg_len = (unsigned)part;
    }
    return (int)ip_end_with(s, &call, done ? fs_end_partial(ip_conn(s), done, part < 0 ? part : -EAGAIN) : part);
}

/* ---- files ------------------------------------------------------------------------------------------------------------------ */

enum { PIECE = 65536, MOST = 0x7ffff000 }; /* MOST: bytes of one call (MAX_RW_COUNT) */

/* Reads the file and sends what it has read. After a piece that was sent in part it only looks, as the kernel does: an error that has
 * ended the piece is this call's, and the next one does not hear of it. -ESPIPE, with nothing done: the kernel reads this file in another
 * way. */
static int64_t send_file(struct ip_socket *s, int from, off_t *at, size_t count) {
    int64_t sum = 0, result = 0;
    int flags = 0;
    off_t position = at ? *at : lseek(from, 0, SEEK_CUR);
    if (position < 0) return -ESPIPE;
    char *piece = count ? fs_allocate(PIECE) : NULL;
    if (!piece) return count ? -ENOMEM : -ESPIPE;
    count = IP_MIN(count, (size_t)MOST);
    while ((size_t)sum < count) {
        int64_t got = ip_calls.pread(from, piece, IP_MIN(count - (size_t)sum, (size_t)PIECE), position);
        if (got <= 0) {
            result = got < 0 ? -ESPIPE : 0;
            break;
        }
        result = sent(s, piece, (size_t)got, flags);
        if (result <= 0) break;
        sum += result;
        position += result;
        if (result < got) flags = MSG_DONTWAIT;
        ip_operate(s); /* a long send moves on its way */
    }
    fs_release(piece);
    if (!sum) return result;
    if (at) *at = position;
    else lseek(from, position, SEEK_SET);
    return sum;
}

ssize_t sendfile(int to, int from, off_t *at, size_t count) {
    struct fs_call call;
    struct ip_socket *s = begin_sending(to, &call, count, 0);
    if (!s) return ip_end_kernel(&call, real.sendfile(to, from, at, count));
    int64_t done = send_file(s, from, at, count);
    if (done != -ESPIPE) return ip_end_with(s, &call, done);
    ip_end(s, &call);
    ip_leave_number(to); /* what read(2) cannot do with the file, such as one that is open past the cache (O_DIRECT), or an error */
    return real.sendfile(to, from, at, count);
}
