/* Waiting on a connection: spinning for the budget, and sleeping on a futex or on the kernel connection.
 *
 * Bytes in the ring and credits are waited for on a futex of the region (events/futex.h). The control thread wakes it too, if
 * something happens to the kernel connection meanwhile (events/liveness_watch.h). Bytes that go through the kernel alone are waited for on
 * its descriptor.
 *
 * Responsible for: no wakeup is lost; the results of a wait reach the spin statistics. Never: receives or sends the program's bytes, or
 * sleeps with a lock held. */
#include "conn/wait.h"

#include <netinet/in.h>

#include "conn/peer_status.h"
#include "conn/receive.h"
#include "conn/send.h"
#include "conn/side_lock.h"
#include "conn/state.h"
#include "conn/wake.h"
#include "events/futex.h"

/* Intervals in nanoseconds: */
#define PROBE_INTERVAL ((int64_t)500000000)      /* probes of a half-closed peer that does not read */
/* checks of a sleeper whose side is several processes, one of which may be killed and need recovery; or whose peer is untrusted and may
 * keep wakeups away */
#define HOLDERS_INTERVAL ((int64_t)500000000)
#define COLLECTING_INTERVAL ((int64_t)100000000) /* checks that the holder that collects the unread bytes is alive */
#define UNWATCHED_INTERVAL ((int64_t)20000000)   /* checks of a sleeper whose kernel connection nobody watches */
#define UNNOTIFIED_INTERVAL ((int64_t)2000000)   /* checks of a sleeper that nothing wakes */
#define OVERFLOW_AFTER ((int64_t)50000000)       /* wait of a sender for credits before it uses the overflow buffer */

/* ---- spin statistics and budget ----------------------------------------------------------------------------- */

struct fs_spin_stats *fs_spin_stats_of(struct fs_connection *c) { return fs_is_attached(c) ? &c->stats : &fs_kernel_spin_stats; }

int64_t fs_wait_budget(struct fs_connection *c, int64_t now) {
    if (!fs_is_attached(c) && !(fs_peer_is_local(c) && !fs_cpus_are_busy(now))) return 0;
    return fs_spin_budget(fs_spin_stats_of(c), now, fs_is_attached(c) ? fs_load_relaxed(&c->ring.rx->processor) : 0);
}

void fs_note_wait(struct fs_connection *c, int64_t began, int spun, int paid) {
    fs_spin_stats_update(fs_spin_stats_of(c), &c->ring.count, began, spun, paid);
}

int fs_peer_is_local(struct fs_connection *c) {
    unsigned char here[16], there[16];
    int port;
    uint32_t where = fs_load_relaxed(&c->locality); /* two threads that ask get the same answer */
    if (where == FS_LOCALITY_UNKNOWN) {
        int length = fs_endpoint_address(fs_fd(c), 1, there, &port);
        where = !length || (length == 4 && there[0] == 127) || (length > 0 && fs_endpoint_address(fs_fd(c), 0, here, &port) == length &&
                                                     memcmp(here, there, (size_t)length) == 0)
                    ? FS_HERE
                    : FS_ELSEWHERE;
        fs_store_relaxed(&c->locality, where);
    }
    return where == FS_HERE;
}

/* ---- spinning ----------------------------------------------------------------------------------------------- */

int fs_spin(struct fs_connection *c, int what) {
    int64_t began = fs_now(), until, now = began;
    int ready = 0;
    /* If another thread's wait overlaps with this one, `spun` may mislead its statistics once. */
    if (what == FS_SEND ? fs_waits_for_fallback(c) : fs_is_collecting(c)) {
        fs_store_relaxed(&c->spun, 0);
        return 0;
    }
    until = began + fs_wait_budget(c, began);
    fs_store_relaxed(&c->spun, until != began);
    if (until == began) return 0;
    /* Without `attached`: a moved bit is only ever set with the locks that fs_attach held, and loaded with acquire. */
    if (what == FS_SEND && fs_sends_on_ring(c)) {
        struct fs_sender *sender = fs_lock_send_within(c, FS_PATIENCE);
        if (!sender) return 0;
        /* This may take in an ACK that came with DATA, which the checks below would not find. For a lost peer the kernel answers. */
        fs_arm_sender(&c->ring, sender, FS_ACK_NOW);
        ready = fs_has_credit(&c->ring, sender) && !fs_peer_is_lost(c) && !fs_peer_is_gone(c);
        int awaits_reset = fs_awaits_reset(c, sender);
        fs_unlock_send(sender);
        if (awaits_reset) return 0;
    }
    while (!ready) {
        now = fs_now();
        if (now >= until) break;
        if (!(what == FS_RECEIVE ? fs_receives_on_ring(c) : fs_sends_on_ring(c) && !fs_peer_is_gone(c))) {
            /* With a lock, so that the descriptor is not closed meanwhile. */
            struct fs_receiver *receiver = fs_lock_recv_within(c, FS_PATIENCE);
            if (!receiver) break;
            ready = fs_poll_events_now(fs_fd(c), what == FS_RECEIVE ? POLLIN : POLLOUT) != 0;
            if (!ready && what == FS_RECEIVE && fs_peer_may_switch(c)) ready = fs_switch_reached(c);
            fs_unlock_recv(receiver);
            if (!ready) sched_yield(); /* the peer may be waiting for this very processor */
            continue;
        }
        int rounds = fs_shares_cpu(fs_load_relaxed(&c->ring.rx->processor)) ? 1 : FS_SPIN_ROUNDS;
        for (int i = 0; i < rounds; i++) {
            if (what == FS_RECEIVE)
                ready = fs_ring_readable(&c->ring);
            else /* An ACK that came with DATA may be newer than the one alone. */
                /* SYNC: payload free - pairs with fs_send_ack. Only a hint here. */
                ready = (int32_t)(fs_load_acquire(&c->ring.tx->acked) - fs_load_relaxed(&fs_own(c)->sender.credited)) > 0 ||
                        fs_peer_is_gone(c);
            if (ready) break;
            fs_cpu_relax();
        }
        if (!ready && rounds == 1 && !fs_yield_to_peer(now)) break;
    }
    if (fs_is_attached(c)) fs_publish_cpu(c);
    fs_count(&c->ring.count.poll_ns, (uint64_t)(FS_MIN(now, until) - began));
    if (ready)
        fs_note_wait(c, began, 1, 1);
    else
        fs_count(&c->ring.count.poll_unpaid_ns, (uint64_t)(FS_MIN(now, until) - began));
    return ready;
}

/* ---- sleeping ----------------------------------------------------------------------------------------------- */

/* One sleep. */
struct sleep {
    int64_t began, rest; /* ns, negative: no end */
    int checks;          /* there is something to check after it that wakes nobody. (Also after a short one: its caller may make many) */
    int rechecks;        /* and it ends before its time is over for that */
    int ready;           /* something is there already */
};

static struct sleep begin_sleep(int64_t deadline) {
    int64_t now = fs_now();
    return (struct sleep){.began = now, .rest = deadline < 0 ? -1 : FS_MAX(deadline - now, 0)};
}

/* Limits the sleep to `interval`. */
static void limit_sleep(struct sleep *s, int64_t interval) {
    s->checks = 1;
    if (0 <= s->rest && s->rest <= interval) return;
    s->rest = interval;
    s->rechecks = 1;
}

/* Returns the result of fs_sleep. `woken`: 1, 0 if the time has passed, or -errno. */
static int end_sleep(struct fs_connection *c, const struct sleep *s, int woken) {
    if (woken == 0) woken = s->rechecks;
    if (woken > 0) fs_note_wait(c, s->began, (int)fs_load_relaxed(&c->spun), 0);
    return woken > 0 ? 1 : woken == -EINTR ? woken : 0;
}

/* Sleeps on the kernel's descriptor. Returns as fs_futex_wait. */
static int sleep_in_kernel(struct fs_connection *c, struct sleep *s, int fd, short events, struct fs_fd_change *fd_change) {
    struct pollfd fds[2] = {{fd, events, 0}, {fd_change ? fd_change->fd : -1, POLLIN, 0}};
    /* A descriptor that was given up has woken the threads that were registered by then. This check is for threads registered since. */
    if (fs_load_relaxed(&c->number) == (uint32_t)-1) limit_sleep(s, UNNOTIFIED_INTERVAL);
    int woken = fs_poll2(fds, s->rest);
    if (woken < 0) return -errno;
    if (fds[1].revents)
        fs_store_relaxed(&fd_change->over, 1); /* notified, or closed by somebody who closes descriptors of others */
    return woken > 0;
}

/* Sleeps on a futex. `seen` is its value before anything was checked. Returns as fs_futex_wait. */
static int sleep_on_futex(struct fs_connection *c, const struct sleep *s, fs_word32 *futex, uint32_t seen) {
    if (s->ready) return 1;
    int woken = fs_futex_wait(futex, seen, s->rest);
    fs_count(&c->ring.count.sleeps, 1);
    fs_count(&c->ring.count.system_calls, 1);
    return woken;
}

/* Returns true if the control thread reports what happens to the kernel connection. Called with a lock, which keeps the descriptor. */
static int is_watched(struct fs_connection *c) {
    return fs_watch_kernel(c, fs_moved(c) & FS_RECEIVING_BACK ? FS_HANGUP_EVENTS : FS_HANGUP_AND_IN);
}

/* Takes the locks of holders that were killed, and so recovers their state (recovery.c). The peer may wait for this thread to do so,
 * while it sleeps for the other direction. */
static void recover_dead_holders(struct fs_connection *c) {
    struct fs_sender *sender = NULL;
    struct fs_receiver *receiver = NULL;
    if (fs_load_relaxed(&fs_own(c)->sender.lock.word) & FUTEX_OWNER_DIED) sender = fs_lock_send_within(c, 0);
    if (sender) fs_unlock_send(sender);
    if (fs_load_relaxed(&fs_own(c)->receiver.lock.word) & FUTEX_OWNER_DIED) receiver = fs_lock_recv_within(c, 0);
    if (receiver) fs_unlock_recv(receiver);
}

/* Sleeps until something comes by the ring, or by the kernel as the control thread reports. Releases the lock. */
static int sleep_for_bytes(struct fs_connection *c, struct fs_receiver *receiver, struct sleep *s, uint32_t seen) {
    if (fs_is_collecting(c)) {
        limit_sleep(s, COLLECTING_INTERVAL); /* a holder that has collected all wakes us; one that was killed does not */
    } else {
        fs_answer_credit_wait(c, receiver); /* the acknowledgements delayed so far, before we sleep on them */
        int moved = fs_receives_on_ring(c);
        s->ready = fs_arm_receiver(&c->ring, FS_ASLEEP);
        if (s->ready && !moved) s->ready = fs_switch_reached(c);
        if (fs_load_relaxed(&receiver->fin_taken) == FS_END_REPORTED) s->ready = 1; /* by another thread: nobody wakes us for it again */
        if (!s->ready) {
            int watched = is_watched(c);
            uint32_t events = fs_load_sc(&c->watch.told);
            s->ready = watched && events != fs_load_relaxed(&c->receive_checked);
            if (!watched) limit_sleep(s, UNWATCHED_INTERVAL);
        }
        /* Each thread that arms has counted itself before, with the receive lock. */
        if (s->ready && fs_load_sc(&c->recv_sleepers) == 1 && !fs_is_shared(c)) fs_disarm_receiver(&c->ring, FS_ASLEEP);
    }
    fs_unlock_recv(receiver);
    int woken = sleep_on_futex(c, s, &c->ring.rx->futex, seen);
    if (!woken && s->checks && (receiver = fs_lock_recv_within(c, FS_PATIENCE)) != NULL) {
        fs_store_relaxed(&c->receive_checked, fs_load_sc(&c->watch.told) - 1); /* the next attempt asks the kernel */
        fs_unlock_recv(receiver);
    }
    return woken;
}

/* `looked`: the futex before the caller's own look, for one who sleeps on the ring or not at all. NULL: there was none. */
static int sleep_to_receive(struct fs_connection *c, struct sleep *s, struct fs_fd_change *fd_change, const uint32_t *looked) {
    struct fs_receiver *receiver = fs_lock_recv_within(c, FS_PATIENCE);
    int woken;
    if (!receiver) return 1; /* a stopped process has the lock: the caller checks for signals and its timeout */
    int attached = fs_is_attached(c);
    uint32_t seen = looked ? *looked : attached ? fs_futex_load(&c->ring.rx->futex) : 0;
    /* SYNC: sleeper - pairs with wake, of liveness_watch.c. */
    fs_add_sc(&c->recv_sleepers, 1);
    if (attached && (fs_is_collecting(c) || !(fs_moved(c) & FS_RECEIVING_BACK))) {
        if (fs_is_shared(c) || fs_load_relaxed(&fs_untrusted_wakeups)) limit_sleep(s, HOLDERS_INTERVAL);
        woken = sleep_for_bytes(c, receiver, s, seen);
    } else if (looked) {
        fs_unlock_recv(receiver);
        woken = 1;
    } else {
        int fd = fs_fd(c);
        fs_unlock_recv(receiver);
        if (!attached && !fd_change) limit_sleep(s, UNWATCHED_INTERVAL); /* nobody could report a region: see fs_attach */
        woken = sleep_in_kernel(c, s, fd, POLLRDHUP | POLLIN, fd_change);
    }
    fs_add_sc(&c->recv_sleepers, (uint32_t)-1);
    return end_sleep(c, s, woken);
}

/* Checks the kernel connection of a sender that waits for credits. Returns true if it waits for nothing any more. */
static int check_peer(struct fs_connection *c, struct fs_sender *sender, int half_closed) {
    if (half_closed) {
        return fs_probe_peer(c, sender);
    } else if (!fs_check_peer_lost(c) && fs_poll_events_now(fs_fd(c), POLLRDHUP) & (POLLERR | POLLHUP | POLLRDHUP) &&
               fs_liveness(c) == FS_ALIVE) {
        fs_note_shut(c, 1, 0); /* by somebody who knows the number */
    }
    return fs_peer_is_gone(c);
}

/* Sleeps until credits come, or the peer's fallback is settled. Releases the lock. */
static int sleep_for_credit(struct fs_connection *c, struct fs_sender *sender, struct sleep *s, uint32_t seen) {
    int waits = fs_waits_for_fallback(c), watched = is_watched(c);
    uint32_t events = fs_load_sc(&c->watch.told);
    /* After that load: the ring's FIN is there before the kernel reports its own. */
    int half_closed = fs_eof_is_hidden(c);
    int has_events = watched && events != c->send_checked;
    if (waits) {
        c->send_checked = events;
        s->ready = has_events; /* the next attempt sees if the peer has ended */
        limit_sleep(s, PROBE_INTERVAL);
    } else {
        /* An overflow buffer is cold for the receiver: one that reads on, if slowly, gives credits before. */
        int shut = (fs_peer_doorbell(&c->ring) & FS_SHUT) != 0; /* then bytes are sent only where there are credits: fs_try_send */
        int overflow_use = sender->overflow_use == FS_OVERFLOW_NOW && !shut;
        s->ready = (fs_arm_sender(&c->ring, sender, FS_WAITS) && (overflow_use || fs_has_credit(&c->ring, sender))) || fs_peer_is_gone(c);
        if (!overflow_use && !shut && fs_may_overflow(&c->ring, sender))
            limit_sleep(s, s->rest < 0 ? OVERFLOW_AFTER : FS_MIN(OVERFLOW_AFTER, s->rest / 2));
        if (!s->ready && has_events) { /* with credits nobody checks, and `events` stays to be checked */
            c->send_checked = events;
            s->ready = check_peer(c, sender, half_closed);
        }
        if (!watched) limit_sleep(s, UNWATCHED_INTERVAL);
        if (half_closed) limit_sleep(s, PROBE_INTERVAL);
        /* The peer's end is no event of the kernel connection. That of its process is one, but not if it goes on as another program, or if
         * a child of it has the connection. */
        if (!s->ready && half_closed) fs_watch_process(&c->watch, c->peer_process);
    }
    fs_unlock_send(sender);
    int woken = sleep_on_futex(c, s, &c->ring.tx->credit_futex, seen);
    if (woken || waits || !s->checks) return woken;
    sender = fs_lock_send_within(c, FS_PATIENCE);
    if (sender) { /* otherwise with the next check */
        if (s->rechecks) sender->overflow_use = FS_OVERFLOW_NOW; /* until credits come */
        s->rechecks |= check_peer(c, sender, half_closed);
        fs_unlock_send(sender);
    }
    return woken;
}

static int sleep_to_send(struct fs_connection *c, struct sleep *s, struct fs_fd_change *fd_change) {
    struct fs_sender *sender = fs_lock_send_within(c, FS_PATIENCE);
    int woken;
    if (!sender) return 1;
    uint32_t seen = fs_is_attached(c) ? fs_futex_load(&c->ring.tx->credit_futex) : 0;
    /* SYNC: sleeper - pairs with wake, of liveness_watch.c. */
    fs_add_sc(&c->send_sleepers, 1);
    if (fs_waits_for_fallback(c) || (fs_sends_on_ring(c) && !fs_peer_is_gone(c))) {
        if (fs_is_shared(c) || fs_load_relaxed(&fs_untrusted_wakeups)) limit_sleep(s, HOLDERS_INTERVAL);
        woken = sleep_for_credit(c, sender, s, seen);
    } else {
        int fd = fs_fd(c);
        short events = fs_is_attached(c) && fs_awaits_reset(c, sender) ? 0 : POLLOUT; /* (an error wakes it in any case) */
        /* Its shutdown may just begin in the kernel: see fs_wake_local. */
        if (fs_load_relaxed(&c->is.shut_sending) && !c->stream->shut_is_writable) limit_sleep(s, UNNOTIFIED_INTERVAL);
        fs_unlock_send(sender);
        woken = sleep_in_kernel(c, s, fd, events, fd_change);
    }
    fs_add_sc(&c->send_sleepers, (uint32_t)-1);
    return end_sleep(c, s, woken);
}

int fs_sleep(struct fs_connection *c, int what, int64_t deadline, struct fs_fd_change *fd_change) {
    struct sleep s = begin_sleep(deadline);
    int woken = what == FS_RECEIVE ? sleep_to_receive(c, &s, fd_change, NULL) : sleep_to_send(c, &s, fd_change);
    if (woken == 1 && fs_is_attached(c) && fs_is_shared(c)) recover_dead_holders(c);
    return woken;
}

int fs_sleep_on_ring(struct fs_connection *c, uint32_t looked, int64_t deadline) {
    struct sleep s = begin_sleep(deadline);
    return sleep_to_receive(c, &s, NULL, &looked);
}
