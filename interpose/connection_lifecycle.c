/* How a socket becomes a connection, takes its steps, and ends.
 *
 * Responsible for: what the core and the pollers are told, in which order. Never: the program's calls. */
#include "interpose.h"

#include <netinet/tcp.h>

#ifndef SO_BUF_LOCK
#define SO_BUF_LOCK 72 /* Linux 5.14 */
#endif

struct fs_counters ip_totals;

/* ---- what is known of services ------------------------------------------------------------------------------------ */

enum {
    SERVICES = 256,
    NEW = 3, /* connections to a port: the first ones count as those to any new port. (FTP has another port for each file.) */
};

static struct { int port, connections; struct fs_session_stats sessions; } peers[SERVICES];
static struct fs_session_stats listeners[SERVICES], new_ports;

/* (A number that is another listener's by now goes on with what was known: it is a hint.) */
struct fs_session_stats *ip_sessions_of_listener(int fd) { return &listeners[fd % SERVICES]; }

struct fs_session_stats *ip_sessions_with(int port) {
    int place = port % SERVICES;
    if (peers[place].port != port) memset(&peers[place], 0, sizeof peers[place]);
    peers[place].port = port;
    return peers[place].connections++ < NEW ? &new_ports : &peers[place].sessions;
}

/* ---- the beginning ------------------------------------------------------------------------------------------------ */

void ip_settle(struct ip_socket *s) {
    int served = s->opened && !fs_is_closed(&s->c) && !fs_has_fallen_back(&s->c) && (fs_is_undecided(&s->path) || fs_is_attached(&s->c));
    if (fs_load_relaxed(&s->thing.kind) != IP_NOTHING) fs_store_relaxed(&s->thing.kind, served ? IP_CONNECTION : IP_SOCKET);
}

static void open_course(struct ip_socket *s) {
    int64_t after = fs_search_begins(s->service, ip_settings.move_after);
    enum fs_reason reason = fs_reason_before(after, ip_settings.move_after);
    fs_count_opened(reason);
    fs_path_open(&s->path, &s->c, after, reason);
}

static void step(struct ip_socket *s);

/* So that the other end's first operation finds the name: for tests. */
static void begin_at_once(struct ip_socket *s) {
    struct fs_call call;
    if (!ip_hold(s, &call)) return;
    if (fs_conn_identify(&s->c)) step(s);
    ip_end(s, &call);
}

void ip_connected(struct ip_socket *s, int fd, int under_way, struct fs_session_stats *service) {
    if (s->opened) {
        if (!under_way && fs_path_event(&s->path, FS_PATH_CONNECTED)) open_course(s);
        return;
    }
    s->opened = 1;
    if (fs_conn_open(&s->c, fd, 0) < 0) {
        fs_conn_discard(&s->c, &ip_totals);
        fs_note_not_open(&s->c);
        s->opened = 0;
        return;
    }
    s->service = service;
    fs_poller_connected(&s->pollable, &s->c);
    if (under_way) {
        fs_path_event(&s->path, FS_PATH_CONNECT);
        fs_note_reason(&s->path, &s->c, FS_REASON_FEW);
    } else {
        open_course(s);
        if (ip_unlikely(ip_settings.meeting_ns && !ip_settings.move_after)) begin_at_once(s);
    }
    ip_settle(s);
}

/* What the program has set before: the core asks the kernel for the rest. */
static void take_over_options(struct ip_socket *s) {
    int fd = fs_fd(&s->c), locked = fs_option(fd, SOL_SOCKET, SO_BUF_LOCK);
    if (locked & 1) s->c.send_limit = (uint32_t)fs_option(fd, SOL_SOCKET, SO_SNDBUF);
    if (locked & 2) s->c.receive_limit = (uint32_t)fs_option(fd, SOL_SOCKET, SO_RCVBUF);
    fs_store_relaxed(&s->c.nodelay, fs_option(fd, IPPROTO_TCP, TCP_NODELAY) != 0);
    if (fs_option(fd, SOL_SOCKET, SO_OOBINLINE)) fs_set_oob_inline(&s->c, 1);
}

/* ---- a step ------------------------------------------------------------------------------------------------------- */

static int before_attach(void *whose, struct fs_connection *c) {
    (void)c;
    return fs_poller_before_attach(&((struct ip_socket *)whose)->pollable);
}

static void not_attached(void *whose, struct fs_connection *c) {
    (void)c;
    fs_poller_after_attach(&((struct ip_socket *)whose)->pollable, 0);
}

static void step(struct ip_socket *s) {
    unsigned char address[16];
    int port, failed;
    struct fs_step_result step;
    if (s->path.state == FS_CONNECTING) {
        if (fs_endpoint_address(fs_fd(&s->c), 1, address, &port) < 0) return; /* not yet, or never */
        if (fs_path_event(&s->path, FS_PATH_CONNECTED)) open_course(s);
        return;
    }
    if (s->path.state == FS_FEW_OPERATIONS) {
        take_over_options(s);
        if (fs_connector_start(&s->path, &s->c, &failed) == FS_STEP_TCP) {
            ip_report_path(s);
            return;
        }
    }
    struct fs_attach_hooks hooks = {before_attach, not_attached, s};
    fs_connector_step(&s->path, &s->c, &hooks, &step);
    if (step.what == FS_STEP_MOVED) fs_poller_after_attach(&s->pollable, 1);
    if (step.what != FS_STEP_PENDING) ip_report_path(s);
    if (step.what == FS_STEP_BROKEN) ip_report(s, "fastsock.violation", "violation", step.violation);
    if (step.failed) ip_report_error(s, "fastsock.rendezvous_failed", step.failed);
    if (step.no_thread) ip_report_error(s, "fastsock.no_connection_thread", step.no_thread);
}

/* Goes on stepping while the other end may still join, and until it consents: for tests (`meeting_ms`). */
static void await_peer(struct ip_socket *s) {
    if (!fs_is_searching(&s->path) && !fs_is_attached(&s->c)) return;
    while (s->path.operations && s->path.waited < ip_settings.meeting_ns && !fs_is_closed(&s->c)) {
        if (fs_is_attached(&s->c) && fs_load_sc(&s->c.ring.tx->ready)) return;
        int64_t before = fs_now();
        fs_short_sleep_unlocked();
        s->path.waited += fs_now() - before;
        if (fs_is_searching(&s->path)) step(s);
        else if (!fs_is_attached(&s->c)) return;
    }
}

void ip_take_step(struct ip_socket *s) {
    struct fs_call call;
    int error = errno;
    ip_lock();
    int inside = ip_hold(s, &call);
    if (inside) {
        if (s->path.state == FS_CONNECTING || fs_conn_identify(&s->c)) step(s);
        if (ip_unlikely(ip_settings.meeting_ns)) await_peer(s);
        ip_settle(s);
    }
    ip_unlock();
    if (inside) ip_end(s, &call);
    errno = error;
}

/* ---- a call ------------------------------------------------------------------------------------------------------- */

struct ip_socket *ip_begin_on(int fd, struct ip_thing *thing, struct fs_call *call) {
    struct ip_socket *s = (struct ip_socket *)thing;
    ip_cancellation_point();
    ip_enter();
    if (fs_call_enter(&s->c, call)) {
        /* Before the call began the record may have become another connection's: this is what the number means if it does so now. */
        if (ip_thing_at(fd) == thing) {
            ip_operate(s);
            if (ip_is(thing, IP_CONNECTION)) return s;
        }
        ip_end(s, call);
    } else {
        ip_leave();
    }
    return NULL;
}

/* Closes the connection, from inside, with the lock. */
static void conclude(struct ip_socket *s) {
    if (s->service) fs_note_session_of(s->service, &s->path, &s->c);
    ip_say_goodbye(s);
    if (fs_has_other_users(&s->c)) fs_forget_fd(&s->c); /* it is closed now */
}

void ip_say_goodbye(struct ip_socket *s) { fs_conn_finish(&s->path, &s->c, &ip_totals); }

void ip_release(struct ip_socket *s) {
    fs_conn_release(&s->path, &s->c);
    s->opened = 0;
    if (!s->thing.numbers) ip_free_socket(s);
}

void ip_end(struct ip_socket *s, struct fs_call *call) {
    enum fs_exit_action after = fs_call_exit(&s->c, call);
    if (ip_unlikely(after != FS_EXIT_NOTHING)) {
        int error = errno, spare = -1;
        ip_lock();
        if (after == FS_EXIT_CLOSE) { /* the number is the spare one, which fs_close_last_fd has made */
            spare = fs_fd(&s->c);
            conclude(s);
            after = fs_call_exit(&s->c, call);
        }
        if (after == FS_EXIT_RELEASE) ip_release(s);
        ip_unlock();
        if (spare >= 0) fs_system.close(spare);
        errno = error;
    }
    ip_leave();
}

ssize_t ip_end_with(struct ip_socket *s, struct fs_call *call, int64_t result) {
    if (ip_unlikely(result == FS_VIOLATED)) {
        const char *what = s->c.ring.violation;
        result = fs_conn_reset(&s->c);
        if (s->c.own_fault) ip_report(s, "fastsock.fault", "fault", what ? what : "");
        else ip_report(s, "fastsock.violation", "violation", what ? what : "");
    }
    ip_end(s, call);
    if (result >= 0) return (ssize_t)result;
    errno = (int)-result;
    return -1;
}

/* ---- numbers that come and go --------------------------------------------------------------------------------------- */

/* The last number of a connection, or another one while it has more, is about to be closed. With the lock. */
static void lose_number(struct ip_socket *s, int fd) {
    struct fs_call call;
    int last = s->thing.numbers == 1, other;
    fs_poller_close_number(&s->pollable, fd, last);
    ip_set_number(fd, NULL);
    if (!s->opened) {
        if (last) ip_free_socket(s);
        return;
    }
    if (!last) {
        if (fs_fd(&s->c) != fd || !fs_call_enter(&s->c, &call)) return;
        fs_conn_identify(&s->c);
        if (ip_numbers_of(&s->thing, &other, 1)) fs_set_fd(&s->c, other);
    } else {
        if (!fs_call_enter(&s->c, &call)) return;
        if (fs_close_last_fd(&s->c, fd)) conclude(s);
    }
    enum fs_exit_action after = fs_call_exit(&s->c, &call);
    if (after == FS_EXIT_CLOSE) {
        int spare = fs_fd(&s->c);
        conclude(s);
        after = fs_call_exit(&s->c, &call);
        fs_system.close(spare);
    }
    if (after == FS_EXIT_RELEASE) ip_release(s);
}

void ip_forget_number(int fd) {
    struct ip_thing *thing = ip_thing_at(fd);
    if (!thing || !ip_is_own_process()) return; /* what a child of vfork closes is its own */
    int error = errno;
    ip_lock();
    thing = ip_thing_at(fd);
    if (thing && ip_is(thing, IP_EPOLL)) {
        struct ip_epoll *e = (struct ip_epoll *)thing;
        struct fs_poller *p = fs_load_relaxed(&e->poller);
        ip_set_number(fd, NULL);
        if (!thing->numbers) {
            if (p) fs_poller_end(p);
            ip_free_epoll(e);
        } else if (e->number == fd) {
            ip_numbers_of(thing, &e->number, 1);
            if (p) fs_poller_set_number(p, e->number);
        }
    } else if (thing && !ip_is(thing, IP_OURS)) {
        lose_number((struct ip_socket *)thing, fd);
    }
    ip_unlock();
    errno = error;
}

void ip_also_means(int fd, int made) {
    if (made < 0 || !ip_thing_at(fd) || !ip_is_own_process()) return;
    int error = errno;
    ip_lock();
    struct ip_thing *thing = ip_thing_at(fd);
    if (thing) {
        if (!ip_is(thing, IP_EPOLL) && ((struct ip_socket *)thing)->opened) fs_conn_identify(&((struct ip_socket *)thing)->c);
        ip_set_number(made, thing);
    }
    ip_unlock();
    errno = error;
}
