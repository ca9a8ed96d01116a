/* How a socket becomes a connection, takes its steps, and ends.
 *
 * Responsible for: what the core and the pollers are told, in which order. Never: the program's calls. */
#include "handed_over.h"
#include "interpose.h"
#include "own_numbers.h"
#include "pairs.h"
#include "report.h"

/* ---- the beginning ------------------------------------------------------------------------------------------------ */

/* So that the other end's first operation finds the name: for tests. */
static void begin_at_once(struct ip_socket *s) {
    struct fs_step_result result;
    struct fs_call call;
    if (!ip_may_use_libc() || !ip_hold(s, &call)) return;
    ip_step_once(s, NULL, &result);
    ip_end(s, &call);
}

fs_word32 ip_loops_drive;

void ip_connected_again(struct ip_socket *s) {
    if (s->opened) fs_path_connected(ip_conn(s));
    else fs_early_connected(&s->early);
}

int ip_begins_sooner(struct ip_socket *s, int fd, int under_way) {
    if (fd <= 2) { /* the C library reads, writes, replaces and closes the standard streams itself */
        ip_leave_ring(s);
    } else if (!ip_settings.move_after) {
        ip_open(s);
        if (ip_settings.meeting_ns && !under_way) begin_at_once(s);
        ip_settle(s);
    } else if (s->early.meets && !ip_load_relaxed(&ip_loops_drive) && !(~ip_load_relaxed(&s->unset) & (FS_KNOWN_TCP | FS_OPTION_OTHER))) {
        /* (With an option set it may not be connected yet: TCP_FASTOPEN_CONNECT.) */
        ip_open(s);
        return s->opened;
    }
    return 0;
}

/* ---- want of descriptors -------------------------------------------------------------------------------------------- */

static void stop_searching(struct ip_socket *s, void *gave) {
    if (!s->opened || !fs_stay_on_tcp(ip_conn(s), FS_REASON_RESOURCES, 1)) return;
    *(int *)gave = 1;
    ip_settle(s);
    ip_report_path(s);
}

int ip_give_back(void) {
    int error = errno, any = 0;
    if ((error == EMFILE || error == ENFILE) && ip_is_active() && ip_is_own_process()) {
        ip_lock();
        ip_each_socket(stop_searching, &any);
        ip_unlock();
    }
    errno = error;
    return any;
}

/* ---- numbers that come and go --------------------------------------------------------------------------------------- */

/* The same for `lose_number`: of an open connection. */
static __attribute__((noinline)) void lose_number_of_open(struct ip_socket *s, int fd, int last, int is_closed) {
    struct fs_call call;
    int other;
    if (!last) {
        if (fs_fd(ip_conn(s)) != fd || !fs_call_enter(ip_conn(s), &call)) return;
        fs_conn_identify(ip_conn(s));
        if (ip_numbers_of(&s->thing, &other, 1)) fs_set_fd(ip_conn(s), other);
    } else {
        if (is_closed) fs_set_fd(ip_conn(s), fd = -1); /* what has the number now is not the connection's */
        if (!fs_call_enter(ip_conn(s), &call)) return;
        if (fs_close_last_fd(ip_conn(s), fd)) {
            fs_finish(ip_conn(s));
            fs_lose_fd(ip_conn(s));
        }
    }
    ip_after_exit(s, &call, fs_call_exit(ip_conn(s), &call));
}

/* The end of a connection that is early to its end. */
static inline void end_early(struct ip_socket *s) {
    if (ip_unlikely(!s->early.counted) && !ip_load_relaxed(&s->under_way)) fs_early_connected(&s->early);
    if (ip_unlikely(s->handed)) ip_end_handed_over(s);
    fs_early_end(&s->early, ip_made_early(s));
}

/* The last number of a connection, or another one while it has more, is about to be closed; or it was, past us. With the lock. */
static void lose_number(struct ip_socket *s, int fd, int is_closed) {
    int last = s->thing.numbers == 1;
    if (last && ip_unlikely(ip_load_relaxed(&s->pair) || s->shared_with)) ip_end_of_pair(s);
    if (last && ip_unlikely(s->handed == IP_WATCHED)) ip_end_handed_over(s);
    if (ip_is(&s->thing, IP_EARLY)) end_early(s);
    if (ip_unlikely(s->prepared)) fs_poller_close_number(fs_pollable_of(ip_conn(s)), fd, last);
    ip_set_number(fd, NULL);
    if (ip_unlikely(s->opened)) {
        lose_number_of_open(s, fd, last, is_closed);
        return;
    }
    if (ip_is(&s->thing, IP_SOCKET)) ip_forget_listener(fd);
    if (last) ip_free_socket(s);
    ip_end_if_unneeded();
}

/* The same of an epoll instance. */
static void lose_number_of_epoll(struct ip_epoll *e, int fd) {
    struct fs_poller *p = ip_load_relaxed(&e->poller);
    ip_set_number(fd, NULL);
    if (!e->thing.numbers) {
        if (p) fs_poller_end(p);
        ip_free_epoll(e);
        ip_end_if_unneeded();
    } else if (e->number == fd) {
        ip_numbers_of(&e->thing, &e->number, 1);
        if (p) fs_poller_set_number(p, e->number);
    }
}

/* The same of whatever it means. */
static __attribute__((noinline)) void lose_any_number(int fd, int is_closed) {
    struct ip_thing *thing = ip_thing_at(fd);
    int error = errno;
    if (thing && ip_is(thing, IP_EPOLL)) lose_number_of_epoll((struct ip_epoll *)thing, fd);
    else if (thing && !ip_is(thing, IP_OURS)) lose_number((struct ip_socket *)thing, fd, is_closed);
    else if (thing && is_closed) ip_forget_own_number(fd);
    errno = error;
}

void ip_forget_closed(int fd) {
    if (!ip_thing_at(fd) || !ip_is_own_process()) return;
    ip_lock();
    lose_any_number(fd, 1);
    ip_unlock();
}

void ip_forget_number(int fd) {
    if (!ip_thing_at(fd) || !ip_is_own_process()) return; /* what a child of vfork closes is its own */
    ip_lock();
    struct ip_socket *s = (struct ip_socket *)ip_thing_at(fd);
    if (ip_likely(s && ip_is(&s->thing, IP_EARLY) && !s->prepared && !ip_load_relaxed(&s->pair))) { /* most are closed early */
        end_early(s);
        ip_end_number(fd, s);
        ip_end_if_unneeded();
    } else {
        lose_any_number(fd, 0);
    }
    ip_unlock();
}

void ip_prepare_to_share(struct ip_socket *s) {
    ip_open(s);
    ip_register(s);
}

void ip_also_means(int fd, int made) {
    if (made < 0 || (!ip_thing_at(fd) && !ip_thing_at(made)) || !ip_is_own_process()) return;
    int error = errno;
    ip_lock();
    struct ip_thing *thing = ip_is_ours(fd) ? NULL : ip_thing_at(fd); /* a copy of one of the core's is the program's */
    if (thing && !ip_is(thing, IP_EPOLL)) {
        ip_prepare_to_share((struct ip_socket *)thing);
        if (((struct ip_socket *)thing)->opened) fs_conn_identify(ip_conn((struct ip_socket *)thing));
    }
    if (thing || ip_is_ours(made)) ip_set_number(made, thing);
    ip_unlock();
    errno = error;
}
