/* The table of states of a connection's directions, and every write of a connection's state. This file records that a direction has
 * switched; send.c and receive.c do it.
 *
 * Responsible for: the order of states. Never: locks, system calls. (The ends of the two streams are written in ring/stream_end.h, as
 * the ring needs no connection for them.)
 *
 * Each direction of a side has one of these states, stored as bits of `own->moved`:
 *
 *     sending      KERNEL --SEND_SWITCHED--> RING --SEND_BACK--> BACK
 *                  KERNEL ----------------------- SEND_BACK ---> BACK          (fell back before it moved)
 *                  KERNEL, RING ------------ SEND_BACK_HELD ---> HELD --RELEASE--> BACK
 *                                                                BACK --HOLD--> HELD
 *     receiving    KERNEL --RECEIVE_SWITCHED--> RING --RECEIVE_BACK--> BACK
 *                  KERNEL -------------------------- RECEIVE_BACK ---> BACK     (nothing came, or will come, by the ring)
 *     COLLECT and COLLECTED mark the time between in a fallback, OUT its end.
 *
 * `from` names the bits that must be set, `never` those that must not. An event whose bits are already set changes nothing: two
 * processes of a side may have seen the same event. Any other forbidden event is our fault, and ends the connection (fs_note_fault);
 * debug builds (FS_DEBUG) stop at it.
 *
 * The lifetime of this process's end is another word (enum fs_life). Its steps are below, one function each. */
#include "conn/state.h"
#include "include/fastsock_loop.h"
#include "os/host.h"

#include <assert.h>
#include <sched.h>

struct fs_transition {
    uint32_t from, never, brings, takes;
};

/* clang-format off */
static const struct fs_transition table[FS_EVENTS] = {
    /*                          must be set      must not be set             sets                               clears */
    [FS_EV_SEND_SWITCHED] =    {0,               FS_OUT | FS_SENDING_BACK,   FS_SENDING_MOVED,                  0},
    [FS_EV_SEND_BACK] =        {0,               FS_OUT,                     FS_SENDING_BACK,                   0},
    [FS_EV_SEND_BACK_HELD] =   {0,               FS_OUT | FS_SENDING_BACK,   FS_SENDING_BACK | FS_SENDING_HELD, 0},
    [FS_EV_HOLD] =             {FS_SENDING_BACK, FS_OUT,                     FS_SENDING_HELD,                   0},
    [FS_EV_RELEASE] =          {FS_SENDING_BACK, FS_OUT,                     0,                                 FS_SENDING_HELD},
    [FS_EV_RECEIVE_SWITCHED] = {0,               FS_OUT | FS_RECEIVING_BACK, FS_RECEIVING_MOVED,                0},
    [FS_EV_RECEIVE_BACK] =     {0,               FS_OUT,                     FS_RECEIVING_BACK,                 0},
    [FS_EV_COLLECT] =          {0,               FS_OUT,                     FS_COLLECTING,                     0},
    [FS_EV_COLLECTED] =        {FS_COLLECTING,   0,                          0,                                 FS_COLLECTING},
    [FS_EV_OUT] =              {FS_SENDING_BACK | FS_RECEIVING_BACK,
                                                 FS_SENDING_HELD,            FS_OUT,                            0},
};
/* clang-format on */

#define FORBIDDEN(event) [FS_EV_##event] = "internal error: event " #event " is not allowed in this state"
static const char *const forbidden[FS_EVENTS] = {
    FORBIDDEN(SEND_SWITCHED), FORBIDDEN(SEND_BACK), FORBIDDEN(SEND_BACK_HELD), FORBIDDEN(HOLD), FORBIDDEN(RELEASE),
    FORBIDDEN(RECEIVE_SWITCHED), FORBIDDEN(RECEIVE_BACK), FORBIDDEN(COLLECT), FORBIDDEN(COLLECTED), FORBIDDEN(OUT),
};

static void change(struct fs_connection *c, struct fs_shared_side *own, unsigned int event) {
    const struct fs_transition *t = &table[event];
    uint32_t before = fs_load_sc(&own->moved);
    int changes = (before & t->brings) != t->brings || before & t->takes;
    if (changes && ((before & t->from) != t->from || before & t->never)) {
#ifdef FS_DEBUG
        assert(!"an event that the table forbids");
#endif
        fs_note_fault(c, forbidden[event]);
        return;
    }
    /* SYNC: moved - pairs with fs_receives_on_ring, fs_sends_on_ring and fs_is_collecting. */
    if (t->takes) fs_and_sc(&own->moved, ~t->takes);
    if (t->brings) fs_or_sc(&own->moved, t->brings);
}

void fs_change_sending(struct fs_connection *c, struct fs_sender *sender, enum fs_sending_event event) {
    change(c, fs_side_of_sender(sender), event);
}

void fs_change_receiving(struct fs_connection *c, struct fs_receiver *receiver, enum fs_receiving_event event) {
    change(c, fs_side_of_receiver(receiver), event);
}

void fs_change_leaving(struct fs_connection *c, struct fs_fallback_lock *fallback, enum fs_leaving_event event) {
    change(c, fs_side_of_fallback(fallback), event);
}

/* ---- the lifetime of this process's end ----------------------------------------------------------------
 *
 * Each step is a function from the old word to the new one. It reads nothing else, so each step is atomic. */

static inline uint32_t begun(uint32_t life) { return life & FS_ENDED ? life : life + 1; }

/* The caller that takes the last call out of a closing connection ends it, and stays inside to close it. */
static inline int ends_last(uint32_t life) { return (life & ~FS_PINNED) == (FS_CLOSING | 1); }
static inline uint32_t call_over(uint32_t life) { return ends_last(life) ? life | FS_ENDED : life - 1; }

static inline uint32_t finished(uint32_t life) { return life | FS_ENDED; }
static inline int is_alone(uint32_t life) { return !(life & FS_ENDED) && (life & FS_CALLS) == 1; }
static inline uint32_t finished_alone(uint32_t life) { return is_alone(life) ? life | FS_ENDED : life; }
static inline uint32_t finishing(uint32_t life) { return life | FS_CLOSING; }

/* No call begins any more, and it cannot be pinned again. So the memory becomes free once, and the caller whose step does that releases
 * it. */
static inline int is_free(uint32_t life) { return life & FS_ENDED && !(life & (FS_CALLS | FS_PINNED)); }
static inline uint32_t pinned(uint32_t life) { return is_free(life) ? life : life | FS_PINNED; }
static inline uint32_t unpinned(uint32_t life) { return life & ~FS_PINNED; }

/* Takes a step. Returns the word before.
 *
 * The swap makes the load and the store one step. It is sequentially consistent, as atomics.h has it; acquire and release would do: see
 * the labels. A begin alone would need no order. A call that is counted keeps the memory by its count, and its own end, which comes
 * after all that it did, is what the releaser sees. */
static inline __attribute__((always_inline)) uint32_t step(struct fs_connection *c, uint32_t (*next)(uint32_t)) {
    uint32_t life = fs_load_relaxed(&c->is.life);
    while (!fs_cas32(&c->is.life, life, next(life))) life = fs_load_relaxed(&c->is.life);
    return life;
}

/* The calls of this thread that are inside a connection, the innermost first. */
static __thread struct fs_call *calls_of_thread;

int fs_call_enter(struct fs_connection *c, struct fs_call *call) {
    /* SYNC: open - pairs with fs_note_open. */
    if (step(c, begun) & FS_ENDED) return 0;
    call->connection = c;
    call->outer = calls_of_thread;
    calls_of_thread = call;
    return 1;
}

enum fs_exit_action fs_call_exit(struct fs_connection *c, struct fs_call *call) {
    /* SYNC: inside - pairs with fs_call_exit of the last call, and fs_unpin: a call's work is done before the connection is closed, and
     * before the memory is freed. */
    uint32_t before = step(c, call_over);
#ifdef FS_DEBUG
    assert(before & FS_CALLS);
#endif
    if (ends_last(before)) return FS_EXIT_CLOSE;
    calls_of_thread = call->outer;
    return is_free(before - 1) ? FS_EXIT_RELEASE : FS_EXIT_NOTHING;
}

/* (Memory that another connection has had is so already.) */
void fs_note_not_open(struct fs_connection *c) {
    if (fs_load_relaxed(&c->is.life) != FS_ENDED) fs_store_sc(&c->is.life, FS_ENDED);
}

void fs_note_open(struct fs_connection *c) {
    /* SYNC: open - pairs with fs_call_enter: a caller that finds it open finds it complete. */
    fs_store_sc(&c->is.life, 0);
}

int fs_note_ended(struct fs_connection *c) { return !(step(c, finished) & FS_ENDED); }

int fs_note_ended_alone(struct fs_connection *c) {
    /* SYNC: inside - pairs with fs_call_exit of the calls that were inside before: the close comes after all their work. */
    return is_alone(step(c, finished_alone));
}

int fs_note_closing(struct fs_connection *c) {
    /* SYNC: inside - pairs with fs_call_exit, which ends the connection: it finds the number as it is now. */
    return !(step(c, finishing) & FS_ENDED);
}

int fs_pin(struct fs_connection *c) { return !is_free(step(c, pinned)); }

enum fs_exit_action fs_unpin(struct fs_connection *c) {
    /* SYNC: inside - pairs with fs_call_exit: the later of the two frees the memory, and the loop reads it no more. */
    uint32_t before = step(c, unpinned);
    return before & FS_PINNED && is_free(unpinned(before)) ? FS_EXIT_RELEASE : FS_EXIT_NOTHING;
}

void fs_note_inherited(struct fs_connection *c) {
    uint32_t calls = 0;
    for (struct fs_call *call = calls_of_thread; call; call = call->outer) calls += call->connection == c;
    fs_store_relaxed(&c->is.life, (fs_load_relaxed(&c->is.life) & ~(uint32_t)FS_CALLS) | calls);
    fs_store_relaxed(&c->is.in_kernel, 0);
    c->is.own_inherited = c->is.bridged_inherited = 1;
}

/* ---- this process's end ----------------------------------------------------------------------------------- */

void fs_note_attached(struct fs_connection *c) {
    /* SYNC: attached - pairs with fs_is_attached: finds `ring`. */
    fs_store_sc(&c->is.attached, 1);
}

void fs_note_detached(struct fs_connection *c) { fs_store_relaxed(&c->is.attached, 0); }

void fs_note_loop_driven(struct fs_connection *c, int driven) { fs_store_relaxed(&c->is.driven, driven != 0); }

void fs_note_broken(struct fs_connection *c) {
    fs_store_relaxed(&c->is.lost, 1); /* first: who finds it broken finds it lost */
    fs_or_sc(&c->is.marks, FS_BROKEN);
}

void fs_note_tapped(struct fs_connection *c, int tapped) {
    if (tapped && !c->inode) c->inode = fs_socket_inode(fs_fd(c)); /* an observer tells connections apart by it */
    if (tapped) fs_or_sc(&c->is.marks, FS_TAPPED);
    else fs_and_sc(&c->is.marks, ~(uint32_t)FS_TAPPED);
}

void fs_note_lost(struct fs_connection *c) { fs_store_relaxed(&c->is.lost, 1); }

void fs_note_fault(struct fs_connection *c, const char *why) {
    c->ring.violation = why;
    c->own_fault = 1;
    fs_note_lost(c);
}

void fs_note_death_told(struct fs_connection *c) { fs_store_relaxed(&c->is.death_told, 1); }

void fs_note_error(struct fs_connection *c, uint32_t error) { fs_store_relaxed(&c->is.pending_error, error); }

void fs_note_shut(struct fs_connection *c, int receiving, int sending) {
    if (receiving) fs_store_relaxed(&c->is.shut_receiving, 1);
    if (sending) fs_store_relaxed(&c->is.shut_sending, 1);
}

int fs_begin_step(struct fs_connection *c) {
    /* SYNC: kernel call - pairs with fs_note_in_kernel: each side says what it does, and then looks at what the other one has said. */
    fs_add_sc(&c->is.stepping, 1);
    if (!fs_load_sc(&c->is.in_kernel)) return 1;
    fs_end_step(c);
    return 0;
}

void fs_end_step(struct fs_connection *c) { fs_add_sc(&c->is.stepping, -1u); }

void fs_count_in_kernel(struct fs_connection *c, int calls) { fs_add_sc(&c->is.in_kernel, (uint32_t)calls); }

int fs_note_in_kernel(struct fs_connection *c, int calls) {
    fs_count_in_kernel(c, calls);
    if (calls < 0) return 1;
    /* SYNC: kernel call - pairs with fs_begin_step. */
    int steps = fs_load_sc(&c->is.stepping) != 0;
    if (!steps && !fs_is_attached(c)) return 1;
    fs_count_in_kernel(c, -1);
    /* (If this thread only yielded, one of lower priority would never get to the end of its step.) */
    if (steps) fs_short_sleep_unlocked();
    return 0;
}

void fs_note_bridged(struct fs_connection *c) {
    fs_note_detached(c);
    c->is.bridged = 1;
    c->is.bridged_inherited = c->is.own_inherited;
    c->is.own_inherited = 0;
}

/* ---- words of both ends in the region ---------------------------------------------------------------------
 *
 * The peer may write these words at any time, so nothing is asserted about them. */

void fs_give_consent(struct fs_connection *c) {
    /* SYNC: consent - pairs with fs_try_send: a peer that sees it finds our limit. */
    fs_store_sc(&c->ring.rx->ready, FS_READY);
}

int fs_revoke_consent(struct fs_connection *c) {
    /* SYNC: left - pairs with fs_answer_fallback and fs_refuse_revocation. */
    return fs_cas32(&c->ring.rx->ready, FS_READY, FS_LEFT) || fs_load_sc(&c->ring.rx->ready) == FS_LEFT;
}

int fs_refuse_revocation(struct fs_connection *c, int unattached_too) {
    /* SYNC: left - pairs with fs_revoke_consent: one of the two swaps finds READY. */
    if (fs_cas32(&c->ring.tx->ready, FS_READY, FS_TOO_LATE)) return 0;
    if (unattached_too && fs_cas32(&c->ring.tx->ready, FS_NOT_YET, FS_TOO_LATE)) return 0;
    return fs_load_sc(&c->ring.tx->ready) == FS_LEFT;
}

/* SYNC: settled - the next three pair with each other: the first swap decides who takes care of the unread data. */
int fs_settle_go_on(struct fs_connection *c) { return fs_cas32(&c->ring.rx->settled, FS_UNSETTLED, FS_GO_ON); }

int fs_settle_resending(struct fs_connection *c) { return fs_cas32(&c->ring.tx->settled, FS_UNSETTLED, FS_RESENDING); }

int fs_settle_refused(struct fs_connection *c) { return fs_cas32(&c->ring.tx->settled, FS_UNSETTLED, FS_REFUSED); }

void fs_settle_resent(struct fs_connection *c, uint32_t bytes) {
    /* SYNC: returned - pairs with give_back. */
    fs_store_sc(&c->ring.tx->returned, 1 + bytes);
}

void fs_publish_shut(struct fs_connection *c) { fs_or_sc(&c->ring.rx->doorbell, FS_SHUT); }

void fs_publish_gone(struct fs_connection *c) { fs_or_sc(&c->ring.rx->doorbell, FS_GONE); }

/* ---- steps that cannot be recovered ------------------------------------------------------------------------ */

void fs_begin_sending_step(struct fs_sender *sender) { sender->sending_step = 1; }

void fs_end_sending_step(struct fs_sender *sender) { sender->sending_step = 0; }
