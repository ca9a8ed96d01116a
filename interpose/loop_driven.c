/* Connections that the transport of an event loop drives: the asyncio layer of the Python package takes over the record that this front end
 * has opened for the number. From then on calls by the number are the kernel's: the loop's own transport makes them, and reads what is no
 * byte of the ring. When the program asks for the number, the front end gets the record back, and serves the loop's own transport as well.
 *
 * Responsible for: that such a connection has one record, and the lock in the loop's place. Never: runs code of the loop's with the lock,
 * since that may wait for Python's own lock, whose holder may wait for this one. */
#include "interpose.h"
#include "report.h"
#include "fastsock_loop.h"

/* (A loop reads and writes more often than its transport counts.) */
enum { UNCOUNTED = 2 };

/* (The first one is driven at once: from then on connections are left to loops. Without the lock: a hint.) */
uint32_t fs_libc_left(int fd, int *reason) {
    struct ip_socket *s = ip_socket_at(fd);
    if (!s || !ip_is(&s->thing, IP_EARLY) || ip_load_relaxed(&s->under_way) || !ip_load_relaxed(&ip_loops_drive)) return 0;
    uint32_t left = ip_load_relaxed(&s->left);
    *reason = (int)ip_load_relaxed(&s->early.reason);
    return left > UNCOUNTED ? left - UNCOUNTED : 0;
}

struct fs_connection *fs_libc_drive(int fd) {
    struct fs_connection *driven = NULL;
    ip_lock();
    ip_store_relaxed(&ip_loops_drive, 1);
    struct ip_socket *s = ip_socket_at(fd);
    if (!s && ip_load_relaxed(&ip_activity) == IP_CLAIMING) s = ip_adopt_connected(fd);
    if (s) ip_open(s);
    if (s && s->opened && ip_load_relaxed(&s->under_way)) { /* the loop knows that it is not any more */
        ip_store_relaxed(&s->under_way, 0);
        fs_path_connected(ip_conn(s));
    }
    /* (One that was used as a socket and has moved goes on being one: the calls of the loop's own transport are served.) */
    if (s && s->opened && s->thing.numbers == 1 && !fs_is(ip_conn(s), FS_IS_ATTACHED) &&
        fs_path_is_undecided(ip_conn(s)) && fs_pin(ip_conn(s))) {
        s->driven = 1;
        ip_settle(s);
        driven = ip_conn(s);
    }
    ip_unlock();
    return driven;
}

void fs_libc_step(struct fs_connection *c, const struct fs_attach_hooks *hooks, struct fs_step_result *result) {
    ip_take_step(ip_socket_of(c), hooks, result);
}

void fs_libc_exit(struct fs_connection *c, struct fs_call *call) {
    ip_enter(); /* (ip_end leaves once) */
    ip_end(ip_socket_of(c), call);
}

void fs_libc_end(struct fs_connection *c) {
    struct ip_socket *s = ip_socket_of(c);
    struct fs_call call;
    ip_lock();
    if (ip_hold(s, &call)) {
        if (fs_note_ended(c)) {
            fs_finish(c);
            fs_lose_fd(c);
        }
        ip_end(s, &call);
    }
    ip_after_exit(s, &call, fs_unpin(c));
    ip_unlock();
}

void fs_libc_decide(struct fs_connection *c, int reason) {
    struct fs_call call;
    ip_lock();
    int inside = ip_hold(ip_socket_of(c), &call);
    if (inside && fs_stay_on_tcp(c, (enum fs_reason)reason, 0)) ip_report_path(ip_socket_of(c));
    ip_unlock();
    if (inside) ip_end(ip_socket_of(c), &call);
}

int fs_libc_hand_over(struct fs_connection *c, const struct fs_attach_hooks *hooks) {
    struct ip_socket *s = ip_socket_of(c);
    struct fs_call call;
    int failed = -EBADF;
    ip_lock();
    if (ip_hold(s, &call)) {
        failed = s->waited_past ? -EBADF : fs_leave_loop(c, hooks);
        if (!failed) {
            s->driven = 0;
            ip_settle(s);
            ip_after_exit(s, &call, fs_unpin(c));
        }
        ip_end(s, &call);
    }
    ip_unlock();
    return failed;
}

void fs_libc_reset(struct fs_connection *c) {
    struct fs_call call;
    if (!ip_hold(ip_socket_of(c), &call)) return;
    fs_conn_reset(c);
    ip_report_broken(ip_socket_of(c));
    ip_end(ip_socket_of(c), &call);
}

struct fs_connection *fs_libc_look(int fd) {
    ip_lock();
    struct ip_socket *s = ip_socket_at(fd);
    if (s) ip_open(s);
    struct fs_connection *c = s && s->opened ? ip_conn(s) : NULL;
    ip_unlock();
    return c;
}

/* ---- the fallback ------------------------------------------------------------------------------------------------------- */

int fs_libc_leave(struct fs_connection *c, int *unread) {
    *unread = -1;
    return ip_leave_ring_for(ip_socket_of(c), FS_REASON_DETACHED, unread);
}
