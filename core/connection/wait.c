/* Waiting on a connection: polling for the budget, and sleeping on the eventfd and the kernel connection.
 *
 * Responsible for: that no wakeup is lost, and that what a wait has learned is kept. Never: receives or sends the
 * program's bytes, or sleeps with a turn. */
#include "connection/wait.h"

#include "connection/hear.h"
#include "connection/lifeline.h"
#include "connection/ringing.h"
#include "connection/state.h"
#include "connection/turns.h"
#include "transport/tcp.h"

/* Nanoseconds between */
#define PROBE_INTERVAL ((int64_t)500000000)    /* probes of a half-closed peer that does not read */
#define SHARED_INTERVAL ((int64_t)100000000)   /* looks of a sleeper whose side is several processes */
#define COLLECTING_INTERVAL ((int64_t)2000000) /* looks of a receiver while another holder takes what lies unread */
#define DEAF_INTERVAL ((int64_t)2000000)       /* looks of a sleeper that nothing wakes */

/* ---- what waits go by --------------------------------------------------------------------------------------- */

struct fs_habit *fs_habits(struct fs_connection *c) { return fs_is_attached(c) ? &c->habit : &fs_kernel_habit; }

int fs_polls(struct fs_connection *c) {
    return fs_poll_ns != 0 && fs_load_relaxed(&fs_habits(c)->score) >= FS_SCORE_POLLS &&
           fs_may_look_in_kernel(c, fs_now());
}

int fs_may_look_in_kernel(struct fs_connection *c, int64_t now) {
    return (c->listens || fs_on_this_host(c)) && !fs_crowded(now);
}

int64_t fs_budget(struct fs_connection *c, int64_t now) {
    if (!fs_is_attached(c) && !fs_may_look_in_kernel(c, now)) return 0;
    return fs_may_poll(fs_habits(c), now, fs_is_attached(c) ? fs_load_relaxed(&c->vi.rx->processor) : 0);
}

void fs_settle_wait(struct fs_connection *c, int64_t began, int polled, int paid) {
    fs_learn(fs_habits(c), &c->vi.count, began, polled, paid);
}

int64_t fs_timeout_option(struct fs_connection *c, int what) {
    if (what == FS_RECEIVE) {
        if (c->receive_timeout == FS_NOT_ASKED) c->receive_timeout = fs_option_ns(c->fd, SO_RCVTIMEO);
        return c->receive_timeout;
    }
    if (c->send_timeout == FS_NOT_ASKED) c->send_timeout = fs_option_ns(c->fd, SO_SNDTIMEO);
    return c->send_timeout;
}

/* Somebody who knows the descriptor's number may have set O_NONBLOCK behind the socket object's back. */
static int nonblocking_by_flag(struct fs_connection *c) {
    return fs_is_exposed(c) && fs_system.fcntl(c->fd, F_GETFL, 0) & O_NONBLOCK;
}

int64_t fs_call_timeout(struct fs_connection *c, int what, int64_t timeout, int *quiet) {
    *quiet = 0;
    if (timeout >= 0) return timeout;
    if (nonblocking_by_flag(c)) return 0;
    *quiet = fs_timeout_option(c, what) >= 0;
    return *quiet ? fs_timeout_option(c, what) : timeout;
}

int fs_on_this_host(struct fs_connection *c) {
    unsigned char here[16], there[16];
    int port;
    uint32_t where = fs_load_relaxed(&c->locality); /* (two threads that ask get the same answer) */
    if (where == FS_LOCALITY_UNKNOWN) {
        int length = fs_end_of(c->fd, 1, there, &port);
        where = (length == 4 && there[0] == 127) || (length > 0 && fs_end_of(c->fd, 0, here, &port) == length &&
                                                     memcmp(here, there, (size_t)length) == 0)
                    ? FS_HERE
                    : FS_ELSEWHERE;
        fs_store_relaxed(&c->locality, where);
    }
    return where == FS_HERE;
}

void fs_note_processor(struct fs_connection *c) {
    uint32_t here = (uint32_t)sched_getcpu() + 1;
    if (fs_load_relaxed(&c->vi.tx->processor) != here) fs_store_relaxed(&c->vi.tx->processor, here);
}

/* ---- polling ------------------------------------------------------------------------------------------------ */

int fs_spin(struct fs_connection *c, int what) {
    int64_t began = fs_now(), until, now = began;
    int ready = 0;
    /* (What `spun` says of another thread's wait that overlaps with this one teaches that wait wrong once.) */
    if (what == FS_SEND ? fs_waits_for_leaver(c) : fs_is_collecting(c)) {
        fs_store_relaxed(&c->spun, 0);
        return 0;
    }
    until = began + fs_budget(c, began);
    fs_store_relaxed(&c->spun, until != began);
    if (until == began) return 0;
    /* (Without `attached`: a moved bit is only ever set under the locks that fs_attach held, and read with acquire.) */
    if (what == FS_SEND && fs_sends_on_ring(c)) {
        struct fs_sender *sender = fs_take_turn_to_send(c, FS_PATIENCE);
        if (!sender) return 0;
        /* (It may take in an ACK that came with DATA: the looks below would not find that. Of a lost peer the kernel answers.) */
        ready = fs_arm_sender(&c->vi, sender, FS_HURRY) && !fs_is_lost(c) && !fs_is_gone(c);
        fs_end_turn_to_send(c, sender);
    }
    while (!ready) {
        now = fs_now();
        if (now >= until) break;
        if (!(what == FS_RECEIVE ? fs_receives_on_ring(c) : fs_sends_on_ring(c) && !fs_is_gone(c))) {
            /* Under a lock, so that the descriptor is not closed meanwhile. */
            struct fs_receiver *receiver = fs_take_turn_to_receive(c, FS_PATIENCE);
            if (!receiver) break;
            ready = fs_events_now(c->fd, what == FS_RECEIVE ? POLLIN : POLLOUT) != 0;
            if (!ready && what == FS_RECEIVE && fs_peer_may_switch(c)) ready = fs_load_sc(&c->vi.rx->switch_at) != 0;
            fs_unlock_receiving(receiver);
            if (!ready) sched_yield(); /* we cannot tell whether the peer waits for this very processor */
            continue;
        }
        int turns = fs_shares_processor(fs_load_relaxed(&c->vi.rx->processor)) ? 1 : FS_LOOKS;
        for (int turn = 0; turn < turns; turn++) {
            if (what == FS_RECEIVE)
                ready = fs_readable(&c->vi);
            else /* (An ACK that came with DATA may be newer than the one alone.) */
                ready = (int32_t)(fs_load_acquire(&c->vi.tx->acked) - fs_load_relaxed(&c->own->sender.credited)) > 0 ||
                        fs_is_gone(c);
            if (ready) break;
            fs_pause();
        }
        if (!ready && turns == 1) sched_yield();
    }
    if (fs_is_attached(c)) fs_note_processor(c);
    fs_count(&c->vi.count.poll_ns, (uint64_t)(FS_MIN(now, until) - began));
    if (ready)
        fs_settle_wait(c, began, 1, 1);
    else
        fs_count(&c->vi.count.poll_unpaid_ns, (uint64_t)(FS_MIN(now, until) - began));
    return ready;
}

/* ---- sleeping ----------------------------------------------------------------------------------------------- */

/* The number on which this side sleeps is not ours any more. In both turns, like every change of what waits go by. (While a
 * stopped process has one of them the next look finds the same.) */
static void lose_eventfd(struct fs_connection *c) {
    struct fs_both both;
    if (!fs_take_both(c, 1, &both)) return;
    if (!fs_is_our_eventfd(c->wake_fd)) c->wake_fd = -1;
    fs_end_both(c, both);
}

/* As fs_sleep, while another holder takes the connection back to the kernel: that is soon over, and no event tells of
 * its end to everybody who waits for it. `rest`: nanoseconds, negative: no end. */
static int doze(int64_t rest) {
    struct pollfd none[3] = {{-1, 0, 0}, {-1, 0, 0}, {-1, 0, 0}};
    int until_then = 0 <= rest && rest < COLLECTING_INTERVAL;
    int events = fs_poll3(none, until_then ? rest : COLLECTING_INTERVAL);
    if (events < 0) return -errno;
    return until_then ? 0 : 1;
}

/* Gives a sleeper of another process the time to take the wakeup, which we would take ourselves with our next sleep.
 * (If it comes too late, it looks by itself after SHARED_INTERVAL.) */
static void let_others_wake(struct fs_connection *c) {
    for (int tries = 0; tries < 20; tries++) {
        if (!fs_events_now(c->wake_fd, POLLIN)) break;
        sched_yield();
    }
}

/* A wakeup may have been meant for several sleepers of this side, and one has taken it: arm again for the
 * others and pass it on if there is something for them. */
static void hand_over(struct fs_connection *c) {
    uint32_t passed = 0, elsewhere = fs_is_shared(c) ? fs_load_sc(&c->own->sleeps) : 0;
    int more = 0;
    if (elsewhere & FS_SLEEPS_RECEIVING || fs_load_sc(&c->recv_watchers)) {
        if (fs_arm_receiver(&c->vi)) passed |= FS_SLEEPS_RECEIVING;
    }
    if (elsewhere & FS_SLEEPS_SENDING || fs_load_sc(&c->send_watchers)) {
        struct fs_sender *sender = fs_take_turn_to_send(c, FS_PATIENCE);
        if (!sender)
            more = 1; /* a stopped process has the turn, and we answer for no signal here: the others look themselves */
        else if (fs_moved(c) & FS_SENDING_BACK)
            more = !fs_waits_for_leaver(c);
        else if (fs_sends_on_ring(c))
            /* (Who still sends through the kernel waits for that, however empty the ring is.) */
            more = fs_arm_sender(&c->vi, sender, FS_WAITS) || sender->fin_sent || fs_is_gone(c);
        if (sender) fs_end_turn_to_send(c, sender);
        if (more) passed |= FS_SLEEPS_SENDING;
    }
    if (passed & elsewhere)
        /* Once: there may be nobody any more, and we, who sleep on the same eventfd, would wake ourselves for ever. */
        fs_and_sc(&c->own->sleeps, ~passed);
    if (passed) fs_wake_own(c);
    if (passed & elsewhere) let_others_wake(c);
}

int fs_sleep(struct fs_connection *c, int what, int64_t deadline, struct fs_news *news) {
    struct pollfd fds[3];
    int64_t began = fs_now(), rest;
    int ready = 0, probe = 0, looks = 0, polled = (int)fs_load_relaxed(&c->spun), waits = 0;
    uint64_t drained;
    struct fs_sender *sender = what == FS_SEND ? fs_take_turn_to_send(c, FS_PATIENCE) : NULL;
    struct fs_receiver *receiver = what == FS_RECEIVE ? fs_take_turn_to_receive(c, FS_PATIENCE) : NULL;
    fs_word32 *sleepers = what == FS_RECEIVE ? &c->recv_sleepers : &c->send_sleepers;
    fs_word32 *watchers = what == FS_RECEIVE ? &c->recv_watchers : &c->send_watchers;
    if (!sender && !receiver)
        return -EINTR; /* a stopped process has the turn: the caller looks for signals, and whether its time is up */
    rest = deadline < 0 ? -1 : deadline > began ? deadline - began : 0;

    if (receiver && fs_is_collecting(c)) {
        fs_unlock_receiving(receiver);
        return doze(rest);
    }
    int attached = fs_is_attached(c) && !(fs_moved(c) & (what == FS_RECEIVE ? FS_RECEIVING_BACK : FS_SENDING_BACK));
    int moved = what == FS_RECEIVE ? fs_receives_on_ring(c) : fs_sends_on_ring(c) && !fs_is_gone(c);
    fds[1].fd = c->fd;
    fds[1].events = moved ? POLLRDHUP : what == FS_RECEIVE ? POLLRDHUP | POLLIN : POLLOUT;
    fds[1].revents = 0;
    if (attached && receiver) {
        /* SYNC: exposed - by the turn to receive, see fs_tell_exposed. */
        if (!fs_is_exposed(c) && fs_load_relaxed(&c->vi.rx->doorbell) & FS_EXPOSED && !fs_load_sc(sleepers) &&
            !fs_is_shared(c)) {
            fs_and_sc(&c->vi.rx->doorbell, ~(uint32_t)FS_EXPOSED); /* nobody sleeps on the kernel's any more */
            fs_take_doorbell_bytes(c, receiver);
        }
        fs_answer_credit_wait(c, receiver); /* the acknowledgements delayed so far, before we sleep on them */
    }
    if (what == FS_SEND && fs_waits_for_leaver(c)) {
        /* The eventfd tells when it is settled; or it is time to look whether the peer lives. */
        waits = 1;
        probe = rest < 0 || rest > PROBE_INTERVAL;
        fds[1].events = 0;
    }
    fs_add_sc(sleepers, 1);
    /* Who waits for the kernel alone leaves the eventfd to those who wait for the ring: it would take their wakeups. */
    int watches = attached || waits;
    fds[0].fd = watches ? c->wake_fd : -1;
    fds[0].events = (short)(POLLIN | fs_other_file());
    fds[0].revents = 0;
    fds[2].fd = news ? news->fd : -1;
    fds[2].events = POLLIN;
    fds[2].revents = 0;
    if (watches) {
        fs_add_sc(watchers, 1);
        /* Before it arms: whoever takes the wakeup that comes for it knows then that it may have been for this
         * process. */
        fs_or_sc(&c->own->sleeps, what == FS_RECEIVE ? FS_SLEEPS_RECEIVING : FS_SLEEPS_SENDING);
    }
    if (attached && receiver) {
        ready = fs_arm_receiver(&c->vi);
        if (ready && !moved) ready = fs_load_sc(&c->vi.rx->switch_at) != 0;
    } else if (moved && sender) {
        ready = fs_arm_sender(&c->vi, sender, FS_WAITS) || fs_is_gone(c);
        if (fs_load_sc(&c->vi.rx->fin) || fs_load_relaxed(&c->is.shut_receiving)) {
            /* A half-closed connection: its end is no news, so ask now and then whether the peer is still there. */
            fds[1].events = 0;
            probe = rest < 0 || rest > PROBE_INTERVAL;
        }
        if (!ready) fs_leave_byte(c, sender);
    }
    /* (A number that was given up was told to who had joined the news by then. It is seen by who has joined since.) */
    int deaf = (watches && c->wake_fd < 0) || fs_load_relaxed(&c->number) == (uint32_t)-1;
    if (deaf && (rest < 0 || rest > DEAF_INTERVAL)) {
        /* Or the program has closed our eventfd: nothing but the end of the connection would wake us. */
        probe = looks = 1;
        rest = DEAF_INTERVAL;
    } else if (probe) {
        rest = PROBE_INTERVAL;
    } else if (fs_is_shared(c) && (rest < 0 || rest > SHARED_INTERVAL)) {
        /* A sleeper of another process may take the wakeup that was for us, and be killed with it. */
        probe = looks = 1;
        rest = SHARED_INTERVAL;
    }
    if (receiver)
        fs_end_turn_to_receive(c, receiver); /* (a plug may have to be taken out of the peer's way) */
    else
        fs_end_turn_to_send(c, sender);

    int events = ready ? 1 : fs_poll3(fds, rest);
    if (events < 0) events = -errno;
    if (attached && !ready) {
        fs_count(&c->vi.count.sleeps, 1);
        fs_count(&c->vi.count.system_calls, fds[0].revents & POLLIN ? 2 : 1);
    }
    fs_add_sc(sleepers, (uint32_t)-1);
    if (watches) fs_add_sc(watchers, (uint32_t)-1);
    if (!fs_is_ours(fds[0].revents))
        lose_eventfd(c);
    else if (fds[0].revents & POLLIN)
        (void)!fs_system.read(fds[0].fd, &drained, 8); /* somebody else may have taken it */
    if (fds[2].revents)
        fs_store_relaxed(&news->over, 1); /* it was told, or closed by somebody who closes what is not his */
    if (attached && what == FS_RECEIVE) {
        fs_disarm_receiver(&c->vi);
    } else if (moved && !waits) {
        if (!ready && fds[1].revents & (POLLERR | POLLHUP | POLLRDHUP) && !fs_peer_lost(c) &&
            fs_lifeline(c) == FS_ALIVE)
            fs_note_shut(c, 1, 0); /* by somebody who knows the number */
        if (probe && !looks && events == 0) {
            sender = fs_take_turn_to_send(c, FS_PATIENCE);
            if (sender) { /* (else with the next look) */
                fs_probe_peer(c, sender);
                fs_end_turn_to_send(c, sender);
            }
        }
    }
    if (probe && events == 0) events = 1;
    if (watches) hand_over(c);
    if (events > 0) {
        fs_settle_wait(c, began, polled, 0);
        return 1;
    }
    return events == -EINTR ? events : 0;
}
