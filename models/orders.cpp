/* Memory orders of the handshakes that end a sleep, under C11's weak memory: every execution, by Relacy.
 *
 * The models in Promela are sequentially consistent. Here the same few steps use the memory orders of the core, and a load gives any
 * value that C11 permits, with two exceptions: no load sees a store that its own thread has yet to enable (load buffering), and a
 * sequentially consistent load sees all that was sequentially consistent and earlier in the execution. So this shows nothing about
 * weaker orders of the futex word itself. The kernel's work on a futex's queue, an eventfd and a socket happens under a lock of its own,
 * as in the kernel.
 *
 *     sleeper  a sleeper and a poster: core/ring/doorbell.h, core/events/futex.c. (The same for credits: acked, credit_wait, credit_futex.)
 *     told     a sleeper and the control thread: core/events/liveness_watch.c, core/conn/wait.c
 *     watched  a sleeper and the end of the watch: fs_watch_stop, fs_is_watched
 *     set      the owner of an event set and a posting process: core/events/event_set.c, fs_mark_ready in event_set.h
 *     over     the owner gives up a page, and a process posts there: fs_retire_page, fs_remote_set_notify
 *     hold     a reader holds a message of a group, and a writer wants its block: core/messages/order.c
 *     bell     a member of a group sleeps, and a writer publishes: core/messages/bells.c
 *
 * Built by models/run, with -DTEST=sleeper. Negative controls (-D), each a step that is weaker, or at another place, than in the core:
 *     sleeper  COMMIT=release, LOOK=acquire, ARM=acq_rel, READY=acquire: any of the two writes and two looks;
 *              READ_LATE: the word is read after the look
 *     told     TOLD_BEHIND: the wakeup before the count; COUNTED_BEHIND: the sleeper counts itself after its look; SLEEPERS=acquire
 *     watched  PRESENT_BEHIND: the wakeups before the word; COUNTED_BEHIND, SLEEPERS=acquire
 *     set      SUMMARY=acq_rel, LOOK=acquire at the poster; ASLEEP=release, READY=acquire at the owner; SUMMARY_FIRST
 *     over     SUMMARY=acq_rel, LOOK=acquire, OVER=release, READY=relaxed
 *     hold     HOLD=acq_rel, LOOK=acquire at the reader; RAISE=acq_rel, READY=acquire at the writer; LOOK_FIRST
 *     bell     COMMIT=acq_rel, LOOK=acquire, ARM=acq_rel, READY=acquire; READ_LATE; TOLD_NEWEST: a waker says that it has woken
 *              who came since
 */
#include <relacy/relacy.hpp>

#ifndef COMMIT
#define COMMIT seq_cst /* fs_post: the commit word; fs_group_publish: the slot */
#endif
#ifndef LOOK
#define LOOK seq_cst /* fs_peer_doorbell; fs_mark_ready: asleep; fs_remote_set_notify: over; take: tail; is_armed */
#endif
#ifndef ARM
#define ARM seq_cst /* fs_arm_receiver: ASLEEP; fs_group_wait: armed */
#endif
#ifndef READY
#define READY seq_cst /* fs_has_descriptor; is_hinted, take_hints; claim: holders; fs_group_pending */
#endif
#ifndef READ
#define READ seq_cst /* fs_futex_load */
#endif
#ifndef RING
#define RING seq_cst /* fs_futex_wake */
#endif
#ifndef SLEEPERS
#define SLEEPERS seq_cst /* wake, of tcp_watch.c */
#endif
#ifndef SUMMARY
#define SUMMARY seq_cst /* fs_mark_ready: the last bit */
#endif
#ifndef ASLEEP
#define ASLEEP seq_cst /* fs_prepare_sleep */
#endif
#ifndef OVER
#define OVER seq_cst /* fs_retire_page */
#endif
#ifndef HOLD
#define HOLD seq_cst /* take: the bit */
#endif
#ifndef RAISE
#define RAISE seq_cst /* raise_tail */
#endif
#define ORDER(name) ORDER_(name)
#define ORDER_(name) rl::mo_##name

typedef rl::atomic<unsigned> word;

/* A word that one thread sleeps on, and the kernel's queue of it. */
struct futex {
    word value;
    rl::mutex queue;
    bool sleeps;
    void begin() {
        value.store(0, rl::mo_relaxed, $);
        sleeps = false;
    }
    unsigned read() { return value.load(ORDER(READ), $); }
    bool sleep_on(unsigned heard) { /* FUTEX_WAIT. Returns true if it would sleep */
        queue.lock($);
        bool same = value.load(rl::mo_relaxed, $) == heard;
        if (same) sleeps = true;
        queue.unlock($);
        return same;
    }
    void ring() {
        value.fetch_add(1, ORDER(RING), $);
        queue.lock($); /* FUTEX_WAKE */
        sleeps = false;
        queue.unlock($);
    }
};

struct sleeper : rl::test_suite<sleeper, 2> {
    futex f;
    word commit, doorbell;
    rl::var<unsigned> payload;
    void before() {
        f.begin();
        commit.store(0, rl::mo_relaxed, $);
        doorbell.store(0, rl::mo_relaxed, $);
        payload($) = 0;
    }
    void thread(unsigned me) {
        if (me == 0) { /* fs_post, fs_claim_receiver_wakeups */
            payload($) = 1;
            commit.store(1, ORDER(COMMIT), $);
            if (doorbell.load(ORDER(LOOK), $) & 1)
                if (doorbell.fetch_and(~1u, rl::mo_seq_cst, $) & 1) f.ring();
            return;
        }
#ifndef READ_LATE
        unsigned heard = f.read();
#endif
        doorbell.fetch_or(1, ORDER(ARM), $);
        unsigned there = commit.load(ORDER(READY), $);
#ifdef READ_LATE
        unsigned heard = f.read();
#endif
        if (there) RL_ASSERT(payload($) == 1);
        else f.sleep_on(heard);
    }
    void after() { RL_ASSERT(!f.sleeps); } /* the poster has ended: a sleeper sleeps forever */
};

struct told : rl::test_suite<told, 2> {
    futex f;
    word count, sleepers;
    rl::mutex kernel;
    bool over;
    void before() {
        f.begin();
        count.store(0, rl::mo_relaxed, $);
        sleepers.store(0, rl::mo_relaxed, $);
        over = false;
    }
    void thread(unsigned me) {
        if (me == 0) { /* the kernel connection ends; fs_watch_event: notify */
            kernel.lock($);
            over = true;
            kernel.unlock($);
#ifndef TOLD_BEHIND
            count.fetch_add(1, rl::mo_seq_cst, $);
#endif
            if (sleepers.load(ORDER(SLEEPERS), $)) f.ring();
#ifdef TOLD_BEHIND
            count.fetch_add(1, rl::mo_seq_cst, $);
#endif
            return;
        }
        unsigned looked = count.load(rl::mo_seq_cst, $); /* fs_recv_locked */
        kernel.lock($);
        bool ended = over;
        kernel.unlock($);
        if (ended) return;
        unsigned heard = f.read();
#ifdef COUNTED_BEHIND
        unsigned seen = count.load(rl::mo_seq_cst, $);
        sleepers.fetch_add(1, rl::mo_seq_cst, $);
#else
        sleepers.fetch_add(1, rl::mo_seq_cst, $); /* sleep_to_receive */
        unsigned seen = count.load(rl::mo_seq_cst, $);
#endif
        if (seen == looked) f.sleep_on(heard);
    }
    void after() { RL_ASSERT(!f.sleeps); }
};

struct watched : rl::test_suite<watched, 2> {
    futex f;
    word present, sleepers;
    void before() {
        f.begin();
        present.store(1, rl::mo_relaxed, $);
        sleepers.store(0, rl::mo_relaxed, $);
    }
    void thread(unsigned me) {
        if (me == 0) { /* fs_watch_stop */
#ifndef PRESENT_BEHIND
            present.store(0, rl::mo_seq_cst, $);
#endif
            if (sleepers.load(ORDER(SLEEPERS), $)) f.ring();
#ifdef PRESENT_BEHIND
            present.store(0, rl::mo_seq_cst, $);
#endif
            return;
        }
        unsigned heard = f.read();
#ifdef COUNTED_BEHIND
        unsigned watches = present.load(rl::mo_seq_cst, $);
        sleepers.fetch_add(1, rl::mo_seq_cst, $);
#else
        sleepers.fetch_add(1, rl::mo_seq_cst, $); /* sleep_to_receive */
        unsigned watches = present.load(rl::mo_seq_cst, $);
#endif
        if (watches) f.sleep_on(heard); /* else it looks by itself */
    }
    void after() { RL_ASSERT(!f.sleeps); }
};

struct set : rl::test_suite<set, 2> {
    word ready, summary, asleep;
    rl::mutex kernel;
    bool rung, sleeps;
    unsigned taken;
    void before() {
        ready.store(0, rl::mo_relaxed, $);
        summary.store(0, rl::mo_relaxed, $);
        asleep.store(0, rl::mo_relaxed, $);
        rung = sleeps = false;
        taken = 0;
    }
    void hint(unsigned place) { /* fs_mark_ready */
#ifndef SUMMARY_FIRST
        ready.fetch_or(1u << place, rl::mo_seq_cst, $);
#endif
        summary.fetch_or(1, ORDER(SUMMARY), $);
#ifdef SUMMARY_FIRST
        ready.fetch_or(1u << place, rl::mo_seq_cst, $);
#endif
        unsigned sleep = asleep.load(ORDER(LOOK), $);
        if (!sleep) return;
        kernel.lock($);
        rung = true;
        kernel.unlock($);
        asleep.compare_exchange_strong(sleep, 0, rl::mo_seq_cst, $);
    }
    void take() { /* take_hints */
        if (summary.load(rl::mo_seq_cst, $) && summary.exchange(0, rl::mo_seq_cst, $)) taken |= ready.exchange(0, rl::mo_seq_cst, $);
    }
    void thread(unsigned me) {
        if (me == 0) {
            hint(0);
            hint(1);
            return;
        }
        take();
        asleep.store(1, ORDER(ASLEEP), $); /* fs_prepare_sleep */
        if (summary.load(ORDER(READY), $)) {
            asleep.store(0, rl::mo_seq_cst, $);
            take();
        } else {
            sleeps = true;
        }
    }
    /* The next look finds untaken posts, and a sleeping owner must be woken for that look. */
    void after() {
        unsigned left = ready.load(rl::mo_relaxed, $);
        RL_ASSERT((taken | left) == 3);
        RL_ASSERT(!left || summary.load(rl::mo_relaxed, $));
        RL_ASSERT(!left || !sleeps || rung);
    }
};

struct over : rl::test_suite<over, 2> {
    word ready, summary, gone;
    unsigned taken;
    bool told_otherwise;
    void before() {
        ready.store(0, rl::mo_relaxed, $);
        summary.store(0, rl::mo_relaxed, $);
        gone.store(0, rl::mo_relaxed, $);
        taken = 0;
        told_otherwise = false;
    }
    void thread(unsigned me) {
        if (me == 0) { /* fs_remote_set_notify */
            ready.fetch_or(1, rl::mo_seq_cst, $);
            summary.fetch_or(1, ORDER(SUMMARY), $);
            told_otherwise = gone.load(ORDER(LOOK), $) != 0;
            return;
        }
        gone.store(1, ORDER(OVER), $); /* fs_retire_page */
        if (summary.load(ORDER(READY), $) && summary.exchange(0, rl::mo_seq_cst, $)) taken = ready.exchange(0, rl::mo_seq_cst, $);
    }
    void after() { RL_ASSERT(taken || told_otherwise); }
};

struct hold : rl::test_suite<hold, 2> {
    word holders, tail, bytes;
    void before() {
        holders.store(0, rl::mo_relaxed, $);
        tail.store(0, rl::mo_relaxed, $);
        bytes.store(0, rl::mo_relaxed, $);
    }
    void thread(unsigned me) {
        unsigned at = 0;
        if (me == 0) { /* take, fs_group_release */
#ifdef LOOK_FIRST
            unsigned gone = tail.load(rl::mo_seq_cst, $);
            holders.fetch_or(1, rl::mo_seq_cst, $);
#else
            holders.fetch_or(1, ORDER(HOLD), $);
            unsigned gone = tail.load(ORDER(LOOK), $);
#endif
            if (!gone) RL_ASSERT(bytes.load(rl::mo_relaxed, $) == 0);
            holders.fetch_and(~1u, rl::mo_seq_cst, $);
            return;
        }
        tail.compare_exchange_strong(at, 1, ORDER(RAISE), $); /* raise_tail, claim, and the next message's bytes */
        if (holders.load(ORDER(READY), $) == 0) bytes.store(1, rl::mo_relaxed, $);
    }
};

struct bell : rl::test_suite<bell, 2> {
    word head, armed, told;
    futex f;
    void before() {
        head.store(0, rl::mo_relaxed, $);
        armed.store(0, rl::mo_relaxed, $);
        told.store(0, rl::mo_relaxed, $);
        f.begin();
    }
    void ring() {
        unsigned sleepers = armed.load(ORDER(LOOK), $);
        if (sleepers == told.load(rl::mo_seq_cst, $)) return;
        f.ring();
#ifdef TOLD_NEWEST
        sleepers = armed.load(rl::mo_seq_cst, $);
#endif
        told.store(sleepers, rl::mo_seq_cst, $);
    }
    void thread(unsigned me) {
        if (me == 0) { /* fs_group_publish, fs_wake_readers */
            for (unsigned number = 0; number < 2; number++) {
                unsigned before = number;
                head.compare_exchange_strong(before, number + 1, ORDER(COMMIT), $);
                ring();
            }
            return;
        }
        armed.fetch_add(1, ORDER(ARM), $); /* fs_group_wait: once it need not sleep */
        unsigned taken = head.load(ORDER(READY), $);
#ifndef READ_LATE
        unsigned heard = f.read();
#endif
        armed.fetch_add(1, ORDER(ARM), $);
        unsigned there = head.load(ORDER(READY), $);
#ifdef READ_LATE
        unsigned heard = f.read();
#endif
        if (taken < 2 && there == taken) f.sleep_on(heard);
    }
    void after() { RL_ASSERT(!f.sleeps); }
};

int main() {
    rl::test_params how;
    how.search_type = rl::sched_full;
    how.output_history = false;
    return rl::simulate<TEST>(how) ? 0 : 1;
}
