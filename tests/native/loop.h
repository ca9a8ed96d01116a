/* An end that a loop drives (core/include/fastsock_loop.h), as an event loop's transport does it: one thread reads and writes the kernel
 * connection itself, polls the ring, and sleeps beside its poller and the descriptor. It is both the sender and the receiver of its
 * side's lanes. What happens to the end while it is driven is done in that thread too. */
#ifndef FASTSOCK_LOOP_H
#define FASTSOCK_LOOP_H

#include "streams.h"

#include "include/fastsock_loop.h"

enum { KEPT = 1 << 22 }; /* bytes of a peer that went back, at most, that wait for what is in the ring */

struct loop {
    struct worker *me;
    struct lane *out, *in;
    uint64_t sent;      /* bytes that the ring or the kernel has, */
    uint64_t backlog;   /* and those behind them that have been written, and have not found room yet: */
    int on_ring;        /* in the ring, else in the kernel */
    int said_end, lower_ended, ended, over;
    char *late;
    uint64_t late_size;
};

static void count_step(enum step step) { fs_add_sc(&the->steps[step], 1); }

/* ---- receiving ------------------------------------------------------------------------------------------------- */

static void deliver(struct loop *l, const char *bytes, uint64_t count) {
    uint64_t position = fs_load_relaxed(&l->in->received);
    if (memcmp(bytes, pattern_at(position), count) != 0)
        lose("the loop of side %d: wrong bytes among the %" PRIu64 " at %" PRIu64, l->me->end->side, count, position);
    fs_add_sc(&l->in->sum_received, sum_of(bytes, (int64_t)count));
    fs_add_sc(&l->in->received, count);
}

static void fail_loop(struct loop *l, const char *what, int64_t result) {
    note_failure(l->me, what, result);
    l->over = 1;
}

/* One delivery from the ring. Whether there was news. */
static int take_from_ring(struct loop *l) {
    struct fs_connection *c = &l->me->end->c;
    size_t room = pick_size(&l->me->random, 40000);
    char *into = l->me->buffer + LARGEST - room;
    int64_t got = fs_try_recv(c, into, room, 0, l->lower_ended);
    if (got == -EAGAIN) return 0;
    if (got < 0) {
        fail_loop(l, "receives in a loop", got);
    } else if (got == 0) {
        if (fs_ends_with_reset(c)) fail_loop(l, "is told of a reset", -ECONNRESET);
        else if (fs_load_relaxed(&l->in->received) != l->in->target) fail_loop(l, "finds the end too early", -ENODATA);
        l->ended = 1;
    } else {
        deliver(l, into, (uint64_t)got);
        count_step(FROM_RING);
    }
    return 1;
}

/* Bytes of a peer that has gone back come after what is in the ring. */
static void deliver_late(struct loop *l, const char *bytes, uint64_t count) {
    struct fs_connection *c = &l->me->end->c;
    char nothing;
    memcpy(l->late, bytes, count);
    l->late_size = count;
    count_step(LATE);
    while (!l->over && fs_has_descriptor(&c->ring))
        if (!take_from_ring(l)) break;
    fs_try_recv(c, &nothing, 1, MSG_PEEK, 0); /* sees that the peer is back, if that was not seen yet */
    if (!l->over) deliver(l, l->late, l->late_size);
}

/* One read of the kernel's stream, past the core. Whether there was news. */
static int read_kernel(struct loop *l) {
    struct end *e = l->me->end;
    uint64_t behind = 0;
    if (l->lower_ended || l->ended) return 0;
    size_t room = pick_size(&l->me->random, 40000);
    char *into = l->me->buffer + LARGEST - room;
    int64_t got = unseen_recv(e->number, into, room, MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) return 0;
    if (got < 0) {
        int error = errno;
        l->lower_ended = 1;
        while (fs_is_attached(&e->c) && !l->ended && !l->over && take_from_ring(l)) {}
        if (!l->over) fail_loop(l, "reads in a loop", -error);
        return 1;
    }
    if (got == 0) {
        l->lower_ended = 1;
        l->ended = !fs_is_attached(&e->c);
        if (l->ended && fs_load_relaxed(&l->in->received) != l->in->target) fail_loop(l, "finds the end too early", -ENODATA);
        return 1;
    }
    if (!fs_is_attached(&e->c)) {
        deliver(l, into, (uint64_t)got);
        return 1;
    }
    int64_t mine = fs_account_read(&e->c, (uint64_t)got, &behind);
    if (mine < 0) {
        fail_loop(l, "accounts", mine);
        return 1;
    }
    check(mine <= got && behind <= (uint64_t)(got - mine), "%" PRId64 " and %" PRIu64 " bytes of %" PRId64, mine, behind, got);
    if (mine) count_step(OWN_BYTES);
    deliver(l, into, (uint64_t)mine);
    if (behind) deliver_late(l, into + got - behind, behind);
    return 1;
}

/* ---- sending ------------------------------------------------------------------------------------------------------ */

static void note_sent(struct loop *l, int64_t part) {
    fs_add_sc(&l->out->sum_sent, sum_of(pattern_at(l->sent), part));
    l->sent += (uint64_t)part;
    l->backlog -= (uint64_t)part;
    fs_add_sc(&l->out->accepted, (uint64_t)part);
}

/* Of what is written already. Whether any of it went out. */
static int send_backlog(struct loop *l) {
    struct end *e = l->me->end;
    int64_t part;
    if (!l->backlog) return 0;
    if (!l->on_ring) {
        part = unseen_send(e->number, pattern_at(l->sent), l->backlog, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (part < 0) part = -errno;
    } else {
        part = fs_try_send(&e->c, (const char *)pattern_at(l->sent), l->backlog, MSG_NOSIGNAL);
        if (part == -EAGAIN && fs_kernel_is_next(&e->c)) { /* the peer has gone back: so do the bytes */
            l->on_ring = 0;
            return 1;
        }
    }
    if (part == -EAGAIN) return 0;
    if (part < 0) fail_loop(l, "sends in a loop", part);
    else note_sent(l, part);
    return 1;
}

/* Where the next bytes go; moves there if the peer is ready. With nothing written that is not in the kernel. */
static int goes_to_ring(struct loop *l) {
    struct fs_connection *c = &l->me->end->c;
    if (!fs_is_attached(c)) return 0;
    if (!fs_kernel_is_next(c)) return 1;
    if (!fs_may_switch(c)) return 0;
    int switched = fs_switch_if_ready(c);
    if (switched) count_step(SWITCHED);
    return switched;
}

/* One write of the program. Whether there was one. */
static int write_some(struct loop *l) {
    uint64_t until = allowed(l->me), length = pick_size(&l->me->random, l->out->largest);
    if (l->backlog || l->said_end) return 0;
    if (l->sent == l->out->target) {
        l->said_end = 1;
        fs_store_sc(&l->out->ended, 1);
        end_stream(l->me);
        return 1;
    }
    if (until <= l->sent) return 0;
    l->on_ring = goes_to_ring(l);
    l->backlog = FS_MIN(length, until - l->sent);
    l->out->begun = l->sent + l->backlog;
    return send_backlog(l);
}

/* ---- the loop -------------------------------------------------------------------------------------------------------- */

/* What another thread wants to happen to the end. */
static void obey(struct loop *l) {
    struct end *e = l->me->end;
    if (fs_load_sc(&the->wants_attach[e->side]) == WANTED) {
        int failed = attach_end(e, &the->flow);
        check(!failed || failed == -ENOTCONN, "attaching in a loop: %s", strerror(-failed));
        if (!failed) fs_drive_by_loop(&e->c);
        fs_store_sc(&the->wants_attach[e->side], NOT_WANTED);
    }
    if (fs_load_sc(&the->wants_close[e->side])) l->over = 1;
}

static void look(struct end *e) {
    struct epoll_event told[2];
    for (int i = fs_loop_look(e->loop, told, 2, fs_now()); i-- > 0;)
        if (told[i].data.ptr != e) lose("told of another one's connection");
}

static void sleep_in_loop(struct loop *l) {
    struct end *e = l->me->end;
    look(e);
    if (e->member) {
        fs_loop_want(e->member, (l->ended ? 0 : FS_IN) | (l->backlog && l->on_ring ? FS_OUT_ROOM : 0), l->lower_ended);
        fs_loop_activate(e->member);
    }
    if (fs_loop_arm(e->loop)) {
        count_step(FOUND_WHEN_ARMED);
        return;
    }
    if (fs_loop_sleep(e->loop)) return;
    struct pollfd fds[2] = {{fs_loop_fd(e->loop), POLLIN, 0}, {l->lower_ended ? -1 : e->number, POLLIN, 0}};
    if (l->backlog && !l->on_ring) fds[1] = (struct pollfd){e->number, (short)(fds[1].fd < 0 ? POLLOUT : POLLIN | POLLOUT), 0};
    double until = seconds_now() + PATIENCE;
    int woken = 0;
    while (!woken && !fs_load_sc(&the->wants_close[e->side]) && fs_load_sc(&the->wants_attach[e->side]) != WANTED) {
        struct timespec nap = {0, 100000000};
        woken = syscall(SYS_ppoll, fds, 2, &nap, NULL, 0) > 0;
        if (!woken && fs_loop_late(e->loop) >= 0) {
            fs_loop_activate_late(e->loop);
            woken = fs_loop_arm(e->loop);
        }
        if (!woken && seconds_now() > until) lose("the loop of side %d was never woken", e->side);
    }
    if (e->member) count_step(fds[0].revents ? WOKEN_BY_EVENTFD : WOKEN_BY_DESCRIPTOR);
    fs_loop_wake(e->loop);
}

static int loop_once(struct loop *l) {
    struct fs_connection *c = &l->me->end->c;
    int any = read_kernel(l);
    if (!l->over && fs_is_attached(c) && !l->ended && (l->lower_ended || fs_receives_on_ring(c) || fs_switch_reached(c)))
        any |= take_from_ring(l);
    if (!l->over) any |= send_backlog(l);
    if (!l->over && !one_in(&l->me->random, 4)) any |= write_some(l);
    return any;
}

static void *drive_end(void *argument) {
    struct worker *me = argument;
    struct end *e = me->end;
    struct loop l = {.me = me, .out = &the->lanes[e->side], .in = &the->lanes[!e->side], .late = malloc(LARGEST)};
    struct fs_call call;
    double stuck = 0;
    me->buffer = malloc(LARGEST);
    if (begin_call(e, &call)) {
        fs_drive_by_loop(&e->c);
        end_call(e, &call);
    }
    while (!l.over && !(l.ended && l.said_end) && begin_call(e, &call)) {
        obey(&l);
        int any = 0;
        for (uint32_t n = 1 + below(&me->random, 8); n && !l.over; n--) any |= loop_once(&l);
        if (any) stuck = 0;
        else if (!stuck) stuck = seconds_now();
        else if (seconds_now() > stuck + PATIENCE) lose("the loop of side %d gets no further", e->side);
        int writes = !l.backlog && !l.said_end && (allowed(me) > l.sent || l.sent == l.out->target);
        if (!any && !l.over && !(l.ended && l.said_end)) {
            if (writes || (l.lower_ended && !l.ended)) sched_yield(); /* it has something to do */
            else sleep_in_loop(&l);
        }
        end_call(e, &call);
    }
    leave_loop(e);
    if (fs_load_sc(&the->wants_close[e->side])) close_end(e, 1);
    fs_store_sc(&the->wants_attach[e->side], TOO_LATE);
    free(me->buffer);
    free(l.late);
    fs_add_sc(&working, (uint32_t)-1);
    return NULL;
}

#endif
