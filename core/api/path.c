/* A front end's connection on its way to the ring, and back.
 *
 * Responsible for: which part takes the next step. Never: how. */
#include "api/whole.h"

#include <netinet/tcp.h>

#include "conn/open_close.h"
#include "conn/receive.h"
#include "conn/send.h"
#include "conn/side_lock.h"
#include "conn/state.h"
#include "control/accepted_region.h"
#include "control/cell.h"
#include "rendezvous/eligibility.h"
#include "ring/doorbell.h"
#include "include/fastsock_loop.h"

#ifndef SO_BUF_LOCK
#define SO_BUF_LOCK 72 /* Linux 5.14 */
#endif

/* ---- steps -------------------------------------------------------------------------------------------------- */

int fs_path_is_undecided(const struct fs_connection *c) { return fs_is_undecided(&fs_whole_of(c)->path); }

/* (A fork unsettles it: fs_fork_prepare, fs_fork_restart. Relaxed: a later operation finds it.) */
static void settle(struct fs_whole *w) { fs_store_relaxed(&w->c.settled, fs_is_attached(&w->c) && !fs_has_step(&w->path)); }

int fs_count_operation(struct fs_connection *c) {
    struct fs_path *path = &fs_whole_of(c)->path;
    fs_count(&path->operations, 1);
    if (!fs_has_step(path) || fs_is_in_kernel(c)) return 0;
    fs_word32 *listing = fs_load_relaxed(&path->listing_state);
    return listing ? fs_load_relaxed(listing) != FS_LISTING_WAITING : fs_operations(path) >= fs_next_step(path);
}

/* What the program has set before: the core asks the kernel for the rest. */
static void take_over_options(const struct fs_path *path, struct fs_connection *c) {
    int fd = fs_fd(c), locked = fs_is_unset(path, FS_OPTION_BUFFERS) ? 0 : fs_option(fd, SOL_SOCKET, SO_BUF_LOCK);
    if (locked & 1) c->send_limit = (uint32_t)fs_option(fd, SOL_SOCKET, SO_SNDBUF);
    if (locked & 2 && c->stream->has_receive_buffer) c->receive_limit = (uint32_t)fs_option(fd, SOL_SOCKET, SO_RCVBUF);
    fs_store_relaxed(&c->nodelay, !fs_is_unset(path, FS_OPTION_NODELAY) && c->stream->is_nodelay(fd));
}

static int tell_pollers(void *whose, struct fs_connection *c) {
    (void)c;
    return fs_poller_before_attach(whose);
}

static void untell_pollers(void *whose, struct fs_connection *c) {
    (void)c;
    fs_poller_after_attach(whose, 0);
}

static void take_step(struct fs_connection *c, const struct fs_attach_hooks *hooks, struct fs_step_result *result) {
    struct fs_whole *w = fs_whole_of(c);
    struct fs_attach_hooks of_pollers = {tell_pollers, untell_pollers, &w->pollable};
    int tells = !hooks && fs_front.polls;
    if (w->path.state == FS_CONNECTING) {
        unsigned char address[16];
        int port;
        if (fs_endpoint_address(fs_fd(c), 1, address, &port) >= 0) fs_path_connected(c); /* else not yet, or never */
        return;
    }
    if (hooks) w->c.counted = 0; /* the loop reads the kernel's stream itself */
    if (!w->c.counted && !fs_conn_identify(c)) return; /* (of what the front end has had from its first byte on the number is known) */
    if (w->path.state == FS_FEW_OPERATIONS) {
        if (!fs_is_unset(&w->path, FS_KNOWN_TCP)) fs_find_stream_kind(c);
        take_over_options(&w->path, c);
        result->what = fs_connector_start(&w->path, c, &result->failed);
        if (result->what == FS_STEP_TCP) return;
    }
    fs_connector_step(&w->path, c, tells ? &of_pollers : hooks, result);
    if (result->what == FS_STEP_MOVED && tells) fs_poller_after_attach(&w->pollable, 1);
    if (result->what == FS_STEP_MOVED && w->service) fs_note_move(w->service);
    settle(w);
}

void fs_step(struct fs_connection *c, const struct fs_attach_hooks *hooks, struct fs_step_result *result) {
    *result = (struct fs_step_result){.what = FS_STEP_PENDING};
    if (!fs_begin_step(c)) return; /* (a later operation takes it) */
    take_step(c, hooks, result);
    fs_end_step(c);
}

static void join(struct fs_connection *one, struct fs_connection *other) {
    struct fs_connection *ends[2] = {one, other};
    struct fs_path *paths[2] = {&fs_whole_of(one)->path, &fs_whole_of(other)->path};
    struct fs_attach_hooks of_pollers[2];
    struct fs_step_result results[2];
    for (int i = 0; i < 2; i++) {
        if (!fs_conn_identify(ends[i])) return;
        fs_find_stream_kind(ends[i]);
        if (!fs_permits_pair(ends[i])) return;
        take_over_options(paths[i], ends[i]);
        of_pollers[i] = (struct fs_attach_hooks){tell_pollers, untell_pollers, fs_pollable_of(ends[i])};
    }
    fs_connector_join(paths, ends, fs_front.polls ? of_pollers : NULL, results);
    for (int i = 0; i < 2 && fs_front.polls; i++)
        if (results[i].what == FS_STEP_MOVED) fs_poller_after_attach(fs_pollable_of(ends[i]), 1);
}

void fs_join_pair(struct fs_connection *one, struct fs_connection *other) {
    if (!fs_begin_step(one)) return;
    if (fs_begin_step(other)) {
        join(one, other);
        fs_end_step(other);
    }
    fs_end_step(one);
}

int fs_leave_loop(struct fs_connection *c, const struct fs_attach_hooks *loop) {
    struct fs_whole *w = fs_whole_of(c);
    if (!fs_is_attached(c)) return 0;
    loop->ignore(loop->whose, c); /* a connection has one slot */
    int failed = fs_poller_before_attach(&w->pollable);
    if (failed) return loop->watch(loop->whose, c) ? -ENOTCONN : failed;
    fs_note_loop_driven(c, 0);
    fs_store_relaxed(&c->nodelay, c->stream->is_nodelay(fs_fd(c)));
    fs_poller_after_attach(&w->pollable, 1);
    settle(w);
    return 0;
}

enum fs_reason fs_reason_of(const struct fs_connection *c) { return fs_whole_of(c)->path.reason; }

const char *fs_violation_of(const struct fs_connection *c, int *own) {
    *own = c->own_fault;
    return c->ring.violation ? c->ring.violation : "";
}

int fs_stay_on_tcp(struct fs_connection *c, enum fs_reason reason, int searching) {
    struct fs_whole *w = fs_whole_of(c);
    if (searching && (!fs_is_searching(&w->path) || fs_is_attached(c))) return 0;
    return fs_path_decide_tcp(&w->path, c, reason);
}

int fs_await_peer(struct fs_connection *c, int64_t longest) {
    struct fs_path *path = &fs_whole_of(c)->path;
    if (!fs_is_searching(path) && !fs_is_attached(c)) return 0;
    if (!fs_operations(path) || path->waited >= longest || fs_is_closed(c)) return 0;
    if (fs_is_attached(c) && fs_load_sc(&c->ring.tx->ready)) return 0;
    if (fs_poll_events_now(fs_fd(c), POLLRDHUP) & (POLLRDHUP | POLLHUP | POLLERR)) return 0; /* most likely it has closed */
    int64_t before = fs_now();
    fs_short_sleep_unlocked();
    path->waited += fs_now() - before;
    return 1;
}

int fs_may_sleep_in_kernel(struct fs_connection *c, int alone) {
    struct fs_path *path = &fs_whole_of(c)->path;
    if (fs_is_attached(c) || fs_load_relaxed(&c->is.pending_error)) return 0;
    /* (While regions are offered alone, the other end sends through the kernel until an operation of this one has attached.) */
    return alone || !fs_is_undecided(path) || fs_operations(path) < (fs_is_searching(path) ? path->first_contact : fs_next_step(path));
}

int fs_fall_back(struct fs_connection *c, const struct fs_fallback_hooks *hooks, int64_t *bridge) {
    struct fs_whole *w = fs_whole_of(c);
    int done = fs_path_fall_back(&w->path, c, hooks, bridge);
    if (fs_front.polls && done != -EINTR && done != FS_CANNOT_FALL_BACK) fs_poller_after_leave(&w->pollable);
    return done;
}

/* ---- options ------------------------------------------------------------------------------------------------ */

/* (What TCP has delivered it does not count.) */
static int64_t unread_at_peer(struct fs_connection *c) {
    if (!fs_is_attached(c) || !fs_sends_on_ring(c)) return -1;
    return c->stream->counts_bytes ? 0 : fs_peer_unread(&c->ring);
}

int64_t fs_unread(struct fs_connection *c, int what) {
    if (what == FS_SEND) return unread_at_peer(c);
    return fs_is_attached(c) && fs_receives_on_ring(c) ? (int64_t)fs_available(&c->ring, INT32_MAX) : -1;
}

/* SYNC: changes - pairs with fs_wait_setting: a change has begun before the kernel's call, and ended after it. */
static void count_change(struct fs_connection *c, int done) { fs_add_sc(&fs_own(c)->changes, done ? ((uint64_t)1 << 32) - 1 : 1); }

int fs_option_set(struct fs_connection *c, int level, int option, int done) {
    int fd = fs_fd(c);
    if (level != FS_FLAGS_LEVEL) fs_store_relaxed(&fs_whole_of(c)->path.unset, 0); /* (what else is known has served by then) */
    if (level == FS_FLAGS_LEVEL || (level == SOL_SOCKET && (option == SO_RCVTIMEO || option == SO_SNDTIMEO))) count_change(c, done);
    if (!done || level == FS_FLAGS_LEVEL) return 0;
    if (level == IPPROTO_TCP && option == TCP_NODELAY && !fs_is_attached(c) && !fs_is_searching(&fs_whole_of(c)->path))
        return 0; /* a search asks when it begins, and many connections end before */
    if (level == SOL_SOCKET && (option == SO_RCVTIMEO || option == SO_SNDTIMEO)) {
        fs_forget_timeouts(c);
    } else if (level == SOL_SOCKET && (option == SO_SNDBUF || (option == SO_RCVBUF && c->stream->has_receive_buffer)) &&
               (fs_is_searching(&fs_whole_of(c)->path) || fs_is_attached(c))) {
        uint32_t now = (uint32_t)fs_option(fd, SOL_SOCKET, option);
        return fs_set_buffer_limits(c, option == SO_RCVBUF ? now : c->receive_limit, option == SO_SNDBUF ? now : c->send_limit);
    } else if (level == IPPROTO_TCP && option == TCP_CORK) {
        struct fs_path *path = &fs_whole_of(c)->path;
        if (fs_is_searching(path) && path->reason == FS_REASON_OPTION && !c->stream->is_corked(fd)) path->next = fs_operations(path) + 1;
    } else if (level == IPPROTO_TCP && option == TCP_NODELAY) {
        fs_store_relaxed(&c->nodelay, c->stream->is_nodelay(fd));
    }
    return 0;
}
