/* The begin and the end of a call on a connection, and what a call does on its way: an early connection is opened, an undecided one takes
 * its next step.
 *
 * Responsible for: that a call which has begun is on what the number means, and that the end of the last one does what it has to. Never:
 * the program's arguments (io_calls.c), how a connection comes and goes (connection_lifecycle.c). */
#include "handed_over.h"
#include "interpose.h"
#include "report.h"
#include "signals.h"

/* ---- early connections ------------------------------------------------------------------------------------------------ */

void ip_settle(struct ip_socket *s) {
    struct fs_connection *c = ip_conn(s);
    int served = s->opened && !s->driven && !fs_is(c, FS_IS_CLOSED) && !fs_is(c, FS_IS_OUT) &&
                 (fs_path_is_undecided(c) || fs_is(c, FS_IS_ATTACHED) || s->owes_error);
    /* SYNC: early - pairs with ip_begins_early. */
    if (ip_load_relaxed(&s->thing.kind) != IP_NOTHING) ip_store_sc(&s->thing.kind, served ? IP_CONNECTION : IP_SOCKET);
}

/* Tells the core, and the poller of the instance in which it is, what the program did with the connection while it was early. */
static void catch_up(struct ip_socket *s) {
    struct fs_call call;
    int failed = ip_register(s);
    if (failed && failed != -ENOENT) fs_stay_on_tcp(ip_conn(s), FS_REASON_RESOURCES, 0); /* (ENOENT: it was taken out past us) */
    if (s->shut && ip_hold(s, &call)) {
        fs_conn_shutdown(ip_conn(s), s->shut & 1, s->shut & 2); /* (its lock is nobody's yet) */
        ip_end(s, &call);
    }
}

void ip_open(struct ip_socket *s) {
    if (!ip_is(&s->thing, IP_EARLY)) return;
    ip_prepare(s);
    int is_shared = ip_is_held_elsewhere(s);
    if (!ip_load_relaxed(&s->under_way)) fs_early_connected(&s->early);
    s->opened = fs_conn_begin(ip_conn(s), ip_early_fd(s), ip_load_relaxed(&s->unset), &s->early, ip_made_early(s)) == 0;
    if (s->opened && is_shared) fs_stay_on_tcp(ip_conn(s), FS_REASON_FORKED, 0);
    if (s->opened) catch_up(s);
    ip_settle(s);
}

/* True if it stays early for some operations more. */
static int stays_early(struct ip_socket *s) {
    if (!ip_load_relaxed(&s->left) && fs_early_waits(&s->early, !s->is_unix)) ip_store_relaxed(&s->left, 1);
    return ip_load_relaxed(&s->left) != 0;
}

static void open_number(int fd, int may_wait) {
    struct ip_socket *s = ip_socket_at(fd);
    if (!s || !ip_is(&s->thing, IP_EARLY) || !ip_is_own_process()) return;
    ip_lock();
    if (ip_socket_at(fd) == s && ip_is(&s->thing, IP_EARLY) && !(may_wait && stays_early(s))) ip_open(s);
    ip_unlock();
}

void ip_open_number(int fd) { open_number(fd, 0); }

/* ---- steps ---------------------------------------------------------------------------------------------------------- */

void ip_step_once(struct ip_socket *s, const struct fs_attach_hooks *hooks, struct fs_step_result *result) {
    fs_step(ip_conn(s), hooks, result);
    if (result->what != FS_STEP_PENDING) ip_report_path(s);
    if (result->what == FS_STEP_BROKEN) ip_report_broken(s);
    if (result->failed) ip_report_error(s, "fastsock.rendezvous_failed", result->failed);
    if (result->no_thread) ip_report_error(s, "fastsock.no_connection_thread", result->no_thread);
}

void ip_take_step(struct ip_socket *s, const struct fs_attach_hooks *hooks, struct fs_step_result *result) {
    struct fs_call call;
    int error = errno;
    *result = (struct fs_step_result){.what = FS_STEP_PENDING};
    if (!ip_may_use_libc()) return; /* (a later operation takes it) */
    ip_above.look_again();
    ip_wrap_later_handlers();
    ip_lock();
    /* SYNC: early - pairs with ip_begins_early: no call is in the kernel that would not hear of what comes by the ring, or comes too late
     * for it. */
    int inside = !ip_load_sc(&s->inside) && ip_hold(s, &call);
    if (inside) {
        ip_step_once(s, hooks, result);
        if (ip_unlikely(ip_settings.meeting_ns))
            while (result->what != FS_STEP_BROKEN && fs_await_peer(ip_conn(s), ip_settings.meeting_ns)) ip_step_once(s, hooks, result);
        ip_settle(s);
    }
    ip_unlock();
    if (inside) ip_end(s, &call);
    errno = error;
}

void ip_step_on(struct ip_socket *s) {
    struct fs_step_result result;
    ip_take_step(s, NULL, &result);
}

/* ---- a call ------------------------------------------------------------------------------------------------------- */

struct ip_socket *ip_begin_on(int fd, struct ip_thing *thing, struct fs_call *call) {
    struct ip_socket *s = (struct ip_socket *)thing;
    ip_cancellation_point();
    ip_enter();
    if (fs_call_enter(ip_conn(s), call)) {
        /* Before the call began the record may have become another connection's: this is what the number means if it does so now. */
        if (ip_thing_at(fd) == thing) {
            ip_operate(s);
            if (ip_is(thing, IP_CONNECTION)) return s;
        }
        ip_end(s, call);
    } else {
        ip_leave();
    }
    call->connection = NULL;
    return NULL;
}

struct ip_socket *ip_begin_early(int fd, struct ip_thing *thing, struct fs_call *call) {
    if (ip_begins_early(fd, thing)) {
        call->connection = ip_conn((struct ip_socket *)thing);
        return NULL;
    }
    if (ip_thing_at(fd) == thing && ip_is(thing, IP_EARLY)) {
        if (!ip_is_own_process()) return NULL;
        open_number(fd, 1);
    }
    return ip_begin(fd, call);
}

void ip_after_exit(struct ip_socket *s, struct fs_call *call, enum fs_exit_action after) {
    if (!fs_after_exit(ip_conn(s), call, after)) return;
    s->opened = 0;
    if (!s->thing.numbers) ip_free_socket(s);
    ip_end_if_unneeded();
}

void ip_end(struct ip_socket *s, struct fs_call *call) {
    enum fs_exit_action after = fs_call_exit(ip_conn(s), call);
    if (ip_unlikely(after != FS_EXIT_NOTHING)) {
        int error = errno;
        ip_lock();
        ip_after_exit(s, call, after);
        ip_unlock();
        errno = error;
    }
    ip_leave();
}

/* Bytes went through, so the connect is over. */
static void end_connect(struct ip_socket *s) {
    ip_lock();
    ip_store_relaxed(&s->under_way, 0);
    fs_path_connected(ip_conn(s));
    ip_unlock();
}

ssize_t ip_end_with(struct ip_socket *s, struct fs_call *call, int64_t result) {
    if (ip_unlikely(result == FS_VIOLATED)) {
        result = fs_conn_reset(ip_conn(s));
        ip_report_broken(s);
    }
    if (ip_unlikely(ip_load_relaxed(&s->under_way)) && result > 0) end_connect(s);
    ip_end(s, call);
    if (result >= 0) return (ssize_t)result;
    errno = (int)-result;
    return -1;
}

/* ---- a wait --------------------------------------------------------------------------------------------------------- */

void ip_start_due_thread(void) {
    if (!ip_may_use_libc() || !ip_exchange(&ip_thread_due, 0)) return;
    ip_lock();
    fs_start_control_thread();
    ip_unlock();
}
