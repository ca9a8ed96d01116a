/* poll, select and epoll, as the program calls them: arguments, and who is asked (core/ready).
 *
 * Responsible for: that a wait which a connection on the ring could end asks for it there. Never: what is ready. */
#include "interpose.h"
#include "own_numbers.h"

enum { FEW = 2 }; /* descriptors of a call that need no memory beyond the stack: a handler may have little of it */

static pthread_key_t poller_key; /* a thread's poller, for poll and select */
static int has_key;

static void end_call(struct fs_connection *c, struct fs_call *call) {
    ip_enter(); /* (ip_end leaves once) */
    ip_end(ip_socket_of(c), call);
}

static void operate(struct fs_connection *c) { ip_operate(ip_socket_of(c)); }
static int leave(struct fs_connection *c) { return ip_leave_ring(ip_socket_of(c)); }

static int before_sleep(void) {
    if (ip_unlikely(ip_load_relaxed(&ip_thread_due))) ip_start_due_thread();
    ip_thread.may_sleep = 1;
    return 0;
}
static void after_sleep(void) { ip_thread.may_sleep = 0; }
static int is_interrupted(void) { return ip_thread.pending; }
static void end_poller(void *poller) { fs_poller_end(poller); }

void ip_begin_readiness(struct fs_front_end *front) {
    front->polls = 1;
    front->end_call = end_call;
    front->operate = operate;
    front->leave = leave;
    front->before_sleep = before_sleep;
    front->after_sleep = after_sleep;
    front->is_interrupted = is_interrupted;
    has_key = pthread_key_create(&poller_key, end_poller) == 0;
}

static int result_of(int64_t done) {
    if (done >= 0) return (int)done;
    errno = (int)-done;
    return -1;
}

static int64_t nanoseconds(int milliseconds) { return milliseconds < 0 ? -1 : (int64_t)milliseconds * 1000000; }

/* -2: no time. */
static int64_t time_of(const struct timespec *time) {
    if (!time) return -1;
    if (time->tv_sec < 0 || time->tv_nsec < 0 || time->tv_nsec > 999999999) return -2;
    return time->tv_sec > INT64_MAX / 2000000000 ? -1 : (int64_t)time->tv_sec * 1000000000 + time->tv_nsec;
}

/* ---- epoll ---------------------------------------------------------------------------------------------------------- */

static int made(int fd) {
    if (fd < 0 || !ip_is_claiming() || fd >= IP_NUMBERS || !ip_is_own_process()) return fd;
    ip_lock();
    if (ip_thing_at(fd)) ip_forget_number(fd);
    struct ip_epoll *e = ip_new_epoll();
    if (e) {
        e->number = fd;
        e->exposed = 0;
        ip_store_relaxed(&e->family, 0);
        ip_set_number(fd, &e->thing);
    }
    ip_unlock();
    return fd;
}

int epoll_create1(int flags) {
    uint32_t since = ip_between_moments();
    return made(ip_lowest(real.epoll_create1(flags), 0, since));
}

int epoll_create(int size) {
    if (size > 0) return epoll_create1(0);
    errno = EINVAL;
    return -1;
}

static __attribute__((noinline)) struct fs_poller *new_poller(struct ip_epoll *e, int epoll) {
    int failed;
    ip_enter();
    struct fs_poller *p = ip_poller_for(e, epoll, &failed); /* (without memory for it there is none for a connection either) */
    ip_leave();
    return p;
}

/* The poller of an instance that this thread is about to wait on, or NULL: the kernel's wait will do. While it sleeps another thread may
 * add the instance's first connection. So a program with threads never waits past its poller. */
static inline struct fs_poller *poller_to_wait_on(int epoll) {
    struct ip_epoll *e = ip_epoll_at(epoll);
    struct fs_poller *p = e ? ip_poller_of(e) : NULL;
    return ip_likely(p || !e || !ip_has_threads()) ? p : new_poller(e, epoll);
}

/* Somebody else waits on an instance's number. */
static void expose(struct ip_epoll *e) {
    ip_lock();
    e->exposed = 1;
    struct fs_poller *p = ip_poller_of(e);
    if (p) fs_poller_expose(p);
    ip_unlock();
}

static void expose_epoll(int fd) {
    struct ip_epoll *e = ip_epoll_at(fd);
    if (e && !e->exposed) expose(e);
}

/* True if the kernel can have the registration as the program makes it. (Of a single shot nobody would know whether it was told, when the
 * socket becomes a connection.) With the lock. */
static int is_plain(const struct ip_socket *s, const struct epoll_event *event) {
    return event && !(event->events & EPOLLONESHOT) && (!(event->events & EPOLLEXCLUSIVE) || ip_is(&s->thing, IP_SOCKET)) &&
           !fs_is_poller_data(event->data.u64);
}

/* As long as a socket is no connection of the core's, one registration of it is the kernel's alone: most connections of some services end
 * before it has to be more. Returns true with the result in `*done`; or false: it is not for this one. */
static int control_in_kernel(struct ip_epoll *e, struct ip_socket *s, int epoll, int what, int fd, struct epoll_event *event, int *done) {
    if (s->opened) return 0;
    ip_lock();
    struct ip_epoll *in = ip_where_registered(s);
    int is_alone = !s->opened && ip_thing_at(fd) == &s->thing && s->thing.numbers == 1;
    int plain = is_alone && in == (what == EPOLL_CTL_ADD ? NULL : e) && (what == EPOLL_CTL_DEL || is_plain(s, event));
    if (ip_likely(plain)) {
        *done = real.epoll_ctl(epoll, what, fd, event);
        if (*done == 0 && what == EPOLL_CTL_DEL) s->registered.in = NULL;
        else if (*done == 0) s->registered = (struct ip_registration){e, event->data.u64, e->version, event->events, fd};
    } else if (!s->opened) {
        ip_prepare(s);
        if (is_alone && in == e && what == EPOLL_CTL_MOD) ip_register(s); /* it has to be a member */
    }
    ip_unlock();
    return plain;
}

/* An instance that we do not know: the kernel alone reports it. */
static __attribute__((noinline)) int control_unknown(int epoll, int what, int fd, struct epoll_event *event) {
    struct ip_socket *past = ip_socket_at(fd);
    if (what == EPOLL_CTL_ADD) expose_epoll(fd);
    if (past && past->driven) past->waited_past = 1;
    ip_leave_number(fd);
    return real.epoll_ctl(epoll, what, fd, event);
}

/* What is more than the kernel's. */
static __attribute__((noinline)) int control_by_poller(struct ip_epoll *e, struct ip_socket *s, int epoll, int what, int fd,
                                                       struct epoll_event *event) {
    struct fs_poller *p = ip_poller_of(e);
    int failed = -ENOMEM;
    ip_enter();
    if (!p) p = ip_poller_for(e, epoll, &failed);
    int done = p ? fs_poller_ctl(p, what, fd, s ? fs_pollable_of(ip_conn(s)) : NULL, event) : failed;
    ip_leave();
    return result_of(done);
}

int epoll_ctl(int epoll, int what, int fd, struct epoll_event *event) {
    struct ip_epoll *e = ip_epoll_at(epoll);
    int done;
    if (!e) return control_unknown(epoll, what, fd, event);
    struct ip_socket *s = ip_socket_at(fd);
    if (s && control_in_kernel(e, s, epoll, what, fd, event, &done)) return done;
    if (!s && what == EPOLL_CTL_ADD) expose_epoll(fd);
    if (!s && !ip_poller_of(e) && !(what != EPOLL_CTL_DEL && event && fs_is_poller_data(event->data.u64)))
        return real.epoll_ctl(epoll, what, fd, event);
    return control_by_poller(e, s, epoll, what, fd, event);
}

/* The wait by the program's own call, where the kernel alone has something to tell. Returns true with the result in `*done`; or false: the
 * wait is still to be made, for the rest of `*patience`. */
static int wait_in_kernel(struct fs_poller *p, int epoll, struct epoll_event *events, int most, int64_t *patience, const sigset_t *mask,
                          int *done) {
    int sleeps = *patience != 0, milliseconds = *patience < 0 ? -1 : (int)(*patience / 1000000);
    ip_enter();
    int whole_ms = *patience % 1000000 <= 0 && *patience / 1000000 < INT32_MAX;
    int begun = most > 0 && whole_ms && fs_poller_begin_kernel_wait(p, sleeps);
    ip_leave();
    if (!begun) return 0;
    int64_t began = *patience > 0 ? fs_now() : 0;
    int got = mask ? real.epoll_pwait(epoll, events, most, milliseconds, mask) : real.epoll_wait(epoll, events, most, milliseconds);
    int error = errno;
    ip_enter();
    *done = fs_poller_end_kernel_wait(p, sleeps, events, got);
    ip_leave();
    errno = error;
    if (*done || !got) return 1;
    if (*patience > 0) *patience = IP_MAX(*patience - (fs_now() - began), 0);
    return 0;
}

static int wait_on(struct fs_poller *p, int epoll, struct epoll_event *events, int most, int64_t patience, const sigset_t *mask) {
    int done;
    if (wait_in_kernel(p, epoll, events, most, &patience, mask, &done)) return done;
    ip_cancellation_point();
    ip_enter();
    done = fs_poller_wait(p, epoll, events, most, patience, mask);
    ip_leave();
    return result_of(done);
}

int epoll_wait(int epoll, struct epoll_event *events, int most, int milliseconds) {
    struct fs_poller *p = poller_to_wait_on(epoll);
    return p ? wait_on(p, epoll, events, most, nanoseconds(milliseconds), NULL) : real.epoll_wait(epoll, events, most, milliseconds);
}

int epoll_pwait(int epoll, struct epoll_event *events, int most, int milliseconds, const sigset_t *mask) {
    struct fs_poller *p = poller_to_wait_on(epoll);
    return p ? wait_on(p, epoll, events, most, nanoseconds(milliseconds), mask) : real.epoll_pwait(epoll, events, most, milliseconds, mask);
}

int epoll_pwait2(int epoll, struct epoll_event *events, int most, const struct timespec *time, const sigset_t *mask) {
    struct fs_poller *p = poller_to_wait_on(epoll);
    int64_t patience = time_of(time);
    if (!p) return real.epoll_pwait2(epoll, events, most, time, mask);
    return patience == -2 ? result_of(-EINVAL) : wait_on(p, epoll, events, most, patience, mask);
}

/* ---- poll ------------------------------------------------------------------------------------------------------------ */

static struct fs_poller *poller_of_thread(int *failed) {
    struct fs_poller *p = has_key ? pthread_getspecific(poller_key) : NULL;
    *failed = -ENOMEM;
    if (p || !has_key) return p;
    p = fs_poller_new(-1, failed);
    if (p) pthread_setspecific(poller_key, p);
    return p;
}

void ip_poller_after_fork(void) {
    struct fs_poller *p = has_key ? pthread_getspecific(poller_key) : NULL;
    if (p) fs_poller_after_fork(p);
}

/* The calls of a poll that are inside the connections that it names. */
struct named {
    struct fs_pollable **its;
    struct fs_call *calls;
    struct ip_socket **sockets;
};

static int ask_kernel(struct pollfd *fds, nfds_t count, int64_t patience, const sigset_t *mask) {
    struct timespec time = {patience / 1000000000, patience % 1000000000};
    ip_thread.may_sleep = 1;
    int done = ip_calls.ppoll(fds, count, patience < 0 ? NULL : &time, mask);
    ip_thread.may_sleep = 0;
    return done < 0 ? -errno : done;
}

static void leave_kernel(const struct named *of, nfds_t count) {
    while (count-- > 0)
        if (of->sockets[count]) fs_note_in_kernel(ip_conn(of->sockets[count]), -1);
}

/* No other thread moves these while this one waits in the kernel: it would not hear of what comes by the ring. Returns 0 if one moves just
 * now, or has. */
static int enter_kernel(const struct named *of, nfds_t count) {
    for (nfds_t i = 0; i < count; i++)
        if (of->sockets[i] && !fs_note_in_kernel(ip_conn(of->sockets[i]), 1)) {
            leave_kernel(of, i);
            return 0;
        }
    return 1;
}

static int is_any_attached(const struct named *of, nfds_t count) {
    for (nfds_t i = 0; i < count; i++)
        if (of->sockets[i] && fs_is(ip_conn(of->sockets[i]), FS_IS_ATTACHED)) return 1;
    return 0;
}

/* -errno, or how many. */
static int poll_named(struct pollfd *fds, nfds_t count, int64_t patience, const sigset_t *mask, const struct named *of) {
    int attached, failed, done;
    for (nfds_t i = 0; i < count; i++) {
        struct ip_socket *s = ip_begin(fds[i].fd, &of->calls[i]);
        of->sockets[i] = s;
        of->its[i] = s ? fs_pollable_of(ip_conn(s)) : NULL;
        expose_epoll(fds[i].fd);
    }
    while (!(attached = is_any_attached(of, count)) && !enter_kernel(of, count)) {}
    if (attached) {
        struct fs_poller *p = poller_of_thread(&failed);
        done = p ? fs_poller_poll(p, fds, of->its, count, patience, mask) : failed;
    } else {
        done = ask_kernel(fds, count, patience, mask);
        leave_kernel(of, count);
    }
    for (nfds_t i = count; i-- > 0;)
        if (of->sockets[i]) ip_end(of->sockets[i], &of->calls[i]);
        else ip_end_kernel(&of->calls[i], 0);
    return done;
}

/* Inside. */
static int do_poll(struct pollfd *fds, nfds_t count, int64_t patience, const sigset_t *mask) {
    size_t each = sizeof(struct fs_pollable *) + sizeof(struct fs_call) + sizeof(struct ip_socket *);
    char few[FEW * (sizeof(struct fs_pollable *) + sizeof(struct fs_call) + sizeof(struct ip_socket *))] __attribute__((aligned(16)));
    char *memory = count <= FEW ? few : fs_allocate(count * each);
    if (!memory) return -ENOMEM;
    struct named of = {.calls = (struct fs_call *)(void *)memory};
    of.its = (struct fs_pollable **)(void *)(of.calls + count);
    of.sockets = (struct ip_socket **)(void *)(of.its + count);
    int done = poll_named(fds, count, patience, mask, &of);
    if (memory != few) fs_release(memory);
    return done;
}

/* (A socket that is no connection, or stays with the kernel, is asked of the kernel alone.) */
static int may_be_ours(int fd) {
    struct ip_thing *thing = ip_thing_at(fd);
    return ip_unlikely(thing != NULL) && !ip_is(thing, IP_SOCKET);
}

static int names_ours(struct pollfd *fds, nfds_t count) {
    if (ip_likely(!ip_is_active())) return 0;
    for (nfds_t i = 0; i < count; i++)
        if (may_be_ours(fds[i].fd)) return 1;
    return 0;
}

int poll(struct pollfd *fds, nfds_t count, int milliseconds) {
    if (!names_ours(fds, count)) return real.poll(fds, count, milliseconds);
    ip_cancellation_point();
    ip_enter();
    int done = do_poll(fds, count, nanoseconds(milliseconds), NULL);
    ip_leave();
    return result_of(done);
}

int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *time, const sigset_t *mask) {
    int64_t patience = time_of(time);
    if (patience == -2 || !names_ours(fds, count)) return real.ppoll(fds, count, time, mask);
    ip_cancellation_point();
    ip_enter();
    int done = do_poll(fds, count, patience, mask);
    ip_leave();
    return result_of(done);
}


int __poll_chk(struct pollfd *fds, nfds_t count, int milliseconds, size_t size) {
    if (size / sizeof *fds < count) __chk_fail();
    return poll(fds, count, milliseconds);
}
int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *time, const sigset_t *mask, size_t size) {
    if (size / sizeof *fds < count) __chk_fail();
    return ppoll(fds, count, time, mask);
}

/* ---- select ------------------------------------------------------------------------------------------------------------ */

static int selects_ours(int count, const fd_set *reads, const fd_set *writes, const fd_set *excepts) {
    if (ip_likely(!ip_is_active())) return 0;
    for (int fd = 0; fd < count && fd <= ip_highest(); fd++)
        if (may_be_ours(fd) && ((reads && FD_ISSET(fd, reads)) || (writes && FD_ISSET(fd, writes)) || (excepts && FD_ISSET(fd, excepts))))
            return 1;
    return 0;
}

/* Inside. */
static int do_select(int count, fd_set *reads, fd_set *writes, fd_set *excepts, int64_t patience, const sigset_t *mask) {
    struct pollfd few[FEW], *fds = count <= FEW ? few : fs_allocate((size_t)count * sizeof *fds);
    if (!fds) return -ENOMEM;
    int named = fs_select_to_poll(count, reads, writes, excepts, fds);
    int done = do_poll(fds, (nfds_t)named, patience, mask);
    if (done >= 0) done = fs_poll_to_select(fds, named, count, reads, writes, excepts);
    if (fds != few) fs_release(fds);
    return done;
}

/* As the C library and the kernel have it: microseconds beyond a second count as seconds, and what is left of the time is written there. */
int select(int count, fd_set *reads, fd_set *writes, fd_set *excepts, struct timeval *time) {
    if (!selects_ours(count, reads, writes, excepts)) return real.select(count, reads, writes, excepts, time);
    struct timespec left = {0};
    int64_t began = fs_now();
    if (time) {
        if (time->tv_sec < 0 || time->tv_usec < 0) return result_of(-EINVAL);
        left.tv_nsec = time->tv_usec % 1000000 * 1000;
        if (__builtin_add_overflow(time->tv_sec, time->tv_usec / 1000000, &left.tv_sec)) left.tv_sec = INT64_MAX;
        left.tv_sec = IP_MIN(left.tv_sec, INT64_MAX - began / 1000000000); /* (the last moment that has a number) */
    }
    ip_cancellation_point();
    ip_enter();
    int done = do_select(count, reads, writes, excepts, time_of(time ? &left : NULL), NULL);
    ip_leave();
#ifdef __GLIBC__ /* (musl leaves the program's time as it was) */
    if (time) {
        int64_t spent = fs_now() - began, rest = left.tv_nsec - spent % 1000000000;
        left.tv_sec -= spent / 1000000000 + (rest < 0);
        *time = left.tv_sec < 0 ? (struct timeval){0} : (struct timeval){left.tv_sec, (rest + (rest < 0) * 1000000000) / 1000};
    }
#endif
    return result_of(done);
}

int pselect(int count, fd_set *reads, fd_set *writes, fd_set *excepts, const struct timespec *time, const sigset_t *mask) {
    int64_t patience = time_of(time);
    if (patience == -2 || !selects_ours(count, reads, writes, excepts)) return real.pselect(count, reads, writes, excepts, time, mask);
    ip_cancellation_point();
    ip_enter();
    int done = do_select(count, reads, writes, excepts, patience, mask);
    ip_leave();
    return result_of(done);
}
