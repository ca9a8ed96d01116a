/* Receiving and sending on a connection, as a call of the program does: on the ring, or in the kernel while the path is undecided.
 *
 * Responsible for: which path, how a call waits, and what a call returns that stops with a part done. Never: descriptors. */
#include "interpose.h"
#include "signals.h"

int ip_is_nonblocking(struct ip_socket *s) {
    uint32_t flag = ip_load_relaxed(&s->nonblocking);
    return ip_unlikely(flag == IP_ASK) ? (int)fs_wait_setting(ip_conn(s), FS_MODE) : (int)flag;
}

void ip_note_nonblocking(struct ip_socket *s, int flag) {
    uint32_t known = ip_load_relaxed(&s->nonblocking);
    while (known != IP_ASK && !ip_replace(&s->nonblocking, known, (uint32_t)flag)) known = ip_load_relaxed(&s->nonblocking);
}

struct ip_socket *ip_begin_change(int fd, struct fs_call *call) {
    struct ip_socket *s = ip_socket_at(fd);
    if (!s || !ip_is(&s->thing, IP_CONNECTION) || !ip_hold(s, call)) return NULL; /* (it is no operation on the stream) */
    fs_option_set(ip_conn(s), FS_FLAGS_LEVEL, 0, 0);
    return s;
}

void ip_end_change(struct ip_socket *s, struct fs_call *call) {
    int error = errno;
    if (!s) return;
    fs_option_set(ip_conn(s), FS_FLAGS_LEVEL, 0, 1);
    ip_end(s, call);
    errno = error;
}

static int sleeps_in_kernel(struct ip_socket *s) { return fs_may_sleep_in_kernel(ip_conn(s), !ip_has_threads()); }

/* Begins a call that sleeps in the kernel, and ends it. `*counted`: other threads know of it. Returns 0 if it may not. */
static int enter_kernel(struct ip_socket *s, int *counted) {
    *counted = ip_has_threads();
    if (*counted && !fs_note_in_kernel(ip_conn(s), 1)) return 0;
    if (fs_may_sleep_in_kernel(ip_conn(s), !*counted)) return 1;
    if (*counted) fs_note_in_kernel(ip_conn(s), -1);
    return 0;
}

static void leave_kernel(struct ip_socket *s, int counted) {
    if (counted) fs_note_in_kernel(ip_conn(s), -1);
}

/* A wait of a call. `what`: FS_RECEIVE or FS_SEND. */
struct wait {
    struct fs_wait_limit patience;
    uint32_t ran, ended; /* handlers, when the call began */
    int what;
};

static struct wait begin_wait(int what, int blocks) {
    return (struct wait){fs_wait_limit_of(blocks), ip_thread.ran, ip_thread.ended, what};
}

static int is_interrupted(struct ip_socket *s, const struct wait *w) {
    return ip_unlikely(ip_thread.ran != w->ran || ip_thread.cancelled) && ip_is_ended_by_signal(s, w->what, w->ran, w->ended);
}

/* Polls, then sleeps. 1: look again; else why the call stops: -EAGAIN when its time is over, -EINTR. */
static int64_t wait_for(struct ip_socket *s, struct wait *w) {
    struct fs_fd_change *fd_change = NULL;
    if (ip_unlikely(ip_load_relaxed(&ip_thread_due))) ip_start_due_thread();
    if (!fs_may_wait(ip_conn(s), w->what, &w->patience)) return -EAGAIN;
    int64_t until = fs_wait_deadline(&w->patience);
    if (0 <= until && until <= fs_now()) return -EAGAIN;
    if (fs_spin(ip_conn(s), w->what)) {
        fs_wait_spent(&w->patience, until);
        return 1;
    }
    if (ip_has_threads() && !fs_is(ip_conn(s), w->what == FS_RECEIVE ? FS_IS_RECEIVING_RING : FS_IS_SENDING_RING))
        fd_change = fs_fd_change_subscribe(); /* it sleeps on the number */
    ip_thread.may_sleep = 1;
    int woken = fs_sleep(ip_conn(s), w->what, until, fd_change);
    ip_thread.may_sleep = 0;
    if (fd_change) fs_fd_change_unsubscribe(fd_change);
    fs_wait_spent(&w->patience, until);
    if (is_interrupted(s, w)) return -EINTR;
    return woken == 0 ? -EAGAIN : 1;
}

/* Waits a little for more than a look has seen. Returns false if there will be no more, or the call's time is over. (A stream of AF_UNIX
 * shows what there is, MSG_WAITALL or not.) */
static int look_again(struct ip_socket *s, struct wait *w) {
    if (s->is_unix || !fs_may_wait(ip_conn(s), w->what, &w->patience)) return 0;
    int64_t until = fs_wait_deadline(&w->patience);
    ip_thread.may_sleep = 1;
    int more = fs_wait_for_more(ip_conn(s));
    ip_thread.may_sleep = 0;
    fs_wait_spent(&w->patience, until);
    return more && w->patience.rest != 0 && !is_interrupted(s, w);
}

/* What a call in the kernel has returned. -EINPROGRESS: a handler has run before it, which does not end it. */
static int64_t again(struct ip_socket *s, const struct wait *w, int64_t got) {
    return got == -EINTR && ip_thread.ran != w->ran && !is_interrupted(s, w) ? -EINPROGRESS : got;
}

/* Polls, then makes the kernel's own blocking call, in which handlers run. `whole`: MSG_WAITALL; cleared when the kernel's call has
 * returned data, as it has decided how much. Returns -EINPROGRESS if nothing was done and the path may have changed. */
static int64_t receive_asleep(struct ip_socket *s, const struct wait *w, void *into, size_t room, int flags, int *whole) {
    int polled = 0, counted;
    int64_t got = fs_receive_polling(ip_conn(s), into, room, flags & ~MSG_WAITALL, &polled);
    if (got != -EAGAIN) return got;
    if (!enter_kernel(s, &counted)) return -EINPROGRESS;
    ip_thread.may_sleep = 1;
    got = again(s, w, fs_receive_asleep(ip_conn(s), into, room, flags, polled));
    ip_thread.may_sleep = 0;
    leave_kernel(s, counted);
    if (got > 0) *whole = 0;
    return got;
}

/* What a call returns that stops with a part done. The core keeps an error for the next call, which has to come to it, also where the
 * connection is decided for kernel TCP before that. */
static int64_t end_partial(struct ip_socket *s, size_t done, int64_t why) {
    int64_t result = fs_end_partial(ip_conn(s), (int64_t)done, why);
    if (result > 0 && why < 0 && why != -EAGAIN && why != -EINTR) {
        ip_lock();
        s->owes_error = 1;
        ip_settle(s);
        ip_unlock();
    }
    return result;
}

/* ---- receiving --------------------------------------------------------------------------------------------------- */

/* The rest of a receive that has found nothing, or wants more than that. `filled`: what it has. */
static int64_t receive_on(struct ip_socket *s, char *into, size_t room, int flags, size_t filled) {
    struct wait w = begin_wait(FS_RECEIVE, 1);
    int whole = flags & MSG_WAITALL, look = FS_IF_TOLD;
    int64_t got;
    for (;;) {
        int asleep = room && sleeps_in_kernel(s);
        if (asleep) {
            got = receive_asleep(s, &w, into + filled, room - filled, flags, &whole);
            if (got == -EINPROGRESS) continue;
        } else {
            got = fs_try_recv(ip_conn(s), into + filled, room - filled, flags & ~MSG_WAITALL, look);
        }
        if (got > 0 && flags & MSG_PEEK) {
            if (!whole || (size_t)got == room || !look_again(s, &w)) return got;
            continue;
        }
        if (got > 0) {
            filled += (size_t)got;
            if (!whole || filled == room) return (int64_t)filled;
            continue;
        }
        if (got == 0) return (int64_t)filled;
        if (got == -EAGAIN && !(asleep && fs_wait_setting(ip_conn(s), FS_RECEIVE) >= 0)) {
            got = wait_for(s, &w);
            if (got > 0) continue;
        }
        if (got == -EINTR && !is_interrupted(s, &w) && !asleep) continue;
        if (!room && (got == -EAGAIN || got == -EINTR)) return fs_end_partial(ip_conn(s), -1, got);
        if (got == -EAGAIN) { /* its time is over: what came just now counts, and a lost peer does */
            int64_t last = fs_try_recv(ip_conn(s), into + filled, room - filled, flags & ~MSG_WAITALL, FS_FINAL);
            if (last >= 0) return (int64_t)filled + last;
            got = last;
        }
        return end_partial(s, filled, got);
    }
}

int64_t ip_receive(struct ip_socket *s, void *into, size_t room, int flags) {
    int waits = !(flags & MSG_DONTWAIT) && !ip_is_nonblocking(s);
    if (waits && !fs_is(ip_conn(s), FS_IS_ATTACHED)) return receive_on(s, into, room, flags, 0);
    int64_t got = fs_try_recv(ip_conn(s), into, room, flags & ~MSG_WAITALL, waits ? FS_NOT_FINAL : FS_FINAL);
    if (!waits) return got;
    int more = got > 0 && flags & MSG_WAITALL && (size_t)got < room;
    if (got != -EAGAIN && !more) return got;
    return receive_on(s, into, room, flags, more && !(flags & MSG_PEEK) ? (size_t)got : 0);
}

/* ---- sending ------------------------------------------------------------------------------------------------------ */

struct pieces {
    const struct iovec *v;
    size_t length; /* of all of them */
};

static int64_t send_asleep(struct ip_socket *s, const struct wait *w, const struct pieces *p, size_t skip, size_t length, int flags) {
    ip_thread.may_sleep = 1;
    int64_t sent = again(s, w, fs_send_asleep(ip_conn(s), p->v, skip, length, flags));
    ip_thread.may_sleep = 0;
    return sent;
}

static int64_t post(struct ip_socket *s, const struct wait *w, const struct pieces *p, size_t skip, size_t length, int flags, int *asleep) {
    int counted;
    *asleep = !(flags & MSG_OOB) && sleeps_in_kernel(s) && enter_kernel(s, &counted);
    if (!*asleep) return fs_try_send_pieces(ip_conn(s), p->v, skip, length, flags | FS_POLLS_FIRST);
    int64_t sent = send_asleep(s, w, p, skip, length, flags & ~FS_TRIES_AGAIN);
    leave_kernel(s, counted);
    return sent;
}

/* The bytes that the next call of the core's gets: the kernel takes a long send in strides, between which the connection may move. */
static size_t stride_of(struct ip_socket *s, const struct pieces *p, size_t sent, int flags) {
    size_t rest = p->length - sent;
    if (fs_is(ip_conn(s), FS_IS_SENDING_RING) || flags & MSG_OOB) return rest;
    if (rest > IP_STRIDE && (fs_is(ip_conn(s), FS_IS_ATTACHED) || fs_wait_setting(ip_conn(s), FS_SEND) < 0)) rest = IP_STRIDE;
    return fs_kernel_part(p->v, sent, rest);
}

/* (A send in a stream of AF_UNIX that waits in the kernel takes the error along when the peer closes; one that begins then does not.) */
static int64_t error_after_wait(struct ip_socket *s) {
    int error = 0;
    if (s->is_unix && !fs_is(ip_conn(s), FS_IS_ATTACHED))
        real.getsockopt(fs_fd(ip_conn(s)), SOL_SOCKET, SO_ERROR, &error, &(socklen_t){sizeof error});
    return -error;
}

/* What is left of a send. It has been tried once, and `sent` bytes are out. */
static int64_t send_on(struct ip_socket *s, const struct pieces *p, int flags, size_t sent) {
    struct wait w = begin_wait(FS_SEND, 1);
    int asleep;
    for (;;) {
        size_t piece = stride_of(s, p, sent, flags);
        int64_t part = post(s, &w, p, sent, piece, flags, &asleep);
        if (part == -EINPROGRESS) continue;
        flags |= FS_TRIES_AGAIN;
        if (part > 0) {
            sent += (size_t)part;
            if (sent == p->length || (asleep && (size_t)part < piece)) return (int64_t)sent;
            ip_operate(s); /* a long send moves on its way */
            continue;
        }
        if (part == 0) part = -EAGAIN;
        if (part == -EAGAIN && !(asleep && fs_wait_setting(ip_conn(s), FS_SEND) >= 0)) {
            part = wait_for(s, &w);
            if (part > 0 && (part = error_after_wait(s)) == 0) continue;
        }
        if (part == -EINTR && !is_interrupted(s, &w) && !asleep) continue;
        return end_partial(s, sent, part);
    }
}

/* A send that does not wait: what there is room for. The first try has brought `part`. */
static int64_t send_at_once(struct ip_socket *s, const struct pieces *p, int flags, int64_t part) {
    size_t sent = part > 0 ? (size_t)part : 0;
    while (part > 0 && sent < p->length) {
        part = fs_try_send_pieces(ip_conn(s), p->v, sent, p->length - sent, flags);
        if (part > 0) sent += (size_t)part;
    }
    if (sent < p->length && (part == -EAGAIN || part == 0)) {
        fs_poller_sent_part(fs_pollable_of(ip_conn(s)));
        part = -EAGAIN;
    }
    return sent || !p->length ? end_partial(s, sent, part) : part;
}

/* (One buffer becomes a piece where its send is not over at once.) */
static __attribute__((noinline)) int64_t send_rest(struct ip_socket *s, const void *data, size_t length, int flags, int waits,
                                                   int64_t part) {
    struct iovec one = {(void *)data, length};
    struct pieces p = {&one, length};
    return waits ? send_on(s, &p, flags, part > 0 ? (size_t)part : 0) : send_at_once(s, &p, flags, part);
}

int64_t ip_send(struct ip_socket *s, const void *data, size_t length, int flags) {
    int waits = !(flags & MSG_DONTWAIT) && !ip_is_nonblocking(s);
    int64_t part = -EAGAIN;
    if (!waits || !length || (fs_is(ip_conn(s), FS_IS_SENDING_RING) && !(flags & MSG_OOB))) {
        part = fs_try_send(ip_conn(s), data, length, waits && length ? flags | FS_POLLS_FIRST : flags);
        if (part == (int64_t)length || (part < 0 && part != -EAGAIN) || !length) return part;
        flags |= FS_TRIES_AGAIN;
    }
    return send_rest(s, data, length, flags, waits, part);
}

int64_t ip_send_pieces(struct ip_socket *s, const struct iovec *v, size_t length, int flags) {
    struct pieces p = {v, length};
    int waits = !(flags & MSG_DONTWAIT) && !ip_is_nonblocking(s);
    int64_t part = -EAGAIN;
    if (!waits || (fs_is(ip_conn(s), FS_IS_SENDING_RING) && !(flags & MSG_OOB))) {
        part = fs_try_send_pieces(ip_conn(s), v, 0, length, waits ? flags | FS_POLLS_FIRST : flags);
        if (part == (int64_t)length || (part < 0 && part != -EAGAIN)) return part;
        flags |= FS_TRIES_AGAIN;
    }
    return waits ? send_on(s, &p, flags, part > 0 ? (size_t)part : 0) : send_at_once(s, &p, flags, part);
}
