/* The state of one end of a connection: its queries, and the only functions that change it. state.c has the table.
 *
 * The path of each direction is in the side's memory (`own->moved`), shared by all its processes and descriptors. State of this process
 * alone is in `struct fs_conn_flags`. State that the two ends agree on is in the region. Only state.c writes any of it; the ends of the
 * two streams are written by ring/stream_end.h. */
#pragma once

#include "conn/connection.h"

/* ---- lifetime, and which calls may touch the connection ----------------------------------------------------------
 *
 * One word holds all of it, and each change is one atomic step. So whatever threads do at once, a call that is inside finds the
 * connection's memory there, one caller closes the connection, and one caller frees the memory. */

/* Bits of `is.life`, beside FS_ENDED and FS_CLOSING. The rest is the number of calls inside, of all threads of this process. */
enum fs_life {
    FS_PINNED = 1 << 28, /* by a loop's transport, which reads the region outside of calls */
    FS_CALLS = FS_PINNED - 1,
};

/* Mark memory of a connection that is not open (no call begins there), and open it. A front end that looks connections up without a lock
 * keeps free ones this way: a thread that has found one too late begins no call, or a call of the next connection. */
void fs_note_not_open(struct fs_connection *c);
void fs_note_open(struct fs_connection *c);

/* The program closes the connection. Called from inside, as fs_note_ended. The first one returns true if the connection has ended by this
 * call, as no other is inside: the caller calls fs_conn_close then. */
int fs_note_ended_alone(struct fs_connection *c);
/* Ends with the last call inside, which may be the caller's: see fs_call_exit. Returns 0 if it had ended. */
int fs_note_closing(struct fs_connection *c);

/* Returns true if the connection has ended: a hint, if threads run in parallel. */
static inline int fs_has_ended(const struct fs_connection *c) { return (fs_load_own32(&c->is.life) & FS_ENDED) != 0; }

/* Returns true if the program has closed the connection, perhaps with calls inside. */
static inline int fs_is_closed(const struct fs_connection *c) {
    return (fs_load_own32(&c->is.life) & (FS_ENDED | FS_CLOSING)) != 0;
}

static inline uint32_t fs_calls_inside(const struct fs_connection *c) { return fs_load_own32(&c->is.life) & FS_CALLS; }

/* Returns true if the caller, who is inside, is not the only user: another call or a loop's transport uses the connection. */
static inline int fs_has_other_users(const struct fs_connection *c) {
    return (fs_load_own32(&c->is.life) & (FS_CALLS | FS_PINNED)) > 1;
}

/* Begins a step that may move the connection, and ends it. With the front end's lock. Returns 0 if a call is in the kernel's own blocking
 * call, which would not hear of what comes by the ring: then there is no step. */
int fs_begin_step(struct fs_connection *c);
void fs_end_step(struct fs_connection *c);

/* Counts calls that are in the kernel's own, for who knows that nothing moves or finds out afterwards. */
void fs_count_in_kernel(struct fs_connection *c, int calls);

/* Returns true if a call is in the kernel's own blocking call. A hint: fs_begin_step decides. */
static inline int fs_is_in_kernel(const struct fs_connection *c) { return fs_load_own32(&c->is.in_kernel) != 0; }

/* ---- queries --------------------------------------------------------------------------------------------- */

/* Returns true if there is a region: from then on `ring` does not change. */
static inline int fs_is_attached(const struct fs_connection *c) {
    /* SYNC: attached - pairs with fs_note_attached. */
    return fs_load_acquire((fs_word32 *)&c->is.attached) != 0;
}

/* Returns true for a loop-driven connection: nobody else reads, writes or polls the descriptor. */
static inline int fs_is_loop_driven(const struct fs_connection *c) { return fs_load_own32(&c->is.driven) != 0; }

/* What is out of the usual for sends and receives. */
enum fs_marks { FS_BROKEN = 1, FS_TAPPED = 2 };

/* Returns true if there is any such mark. */
static inline int fs_is_marked(const struct fs_connection *c) { return fs_load_own32(&c->is.marks) != 0; }

/* Returns true if the peer has broken the protocol. */
static inline int fs_is_broken(const struct fs_connection *c) { return (fs_load_own32(&c->is.marks) & FS_BROKEN) != 0; }

/* Returns true if an observer may want the connection's bytes (tap.h). */
static inline int fs_is_tapped(const struct fs_connection *c) { return (fs_load_own32(&c->is.marks) & FS_TAPPED) != 0; }

static inline int fs_is_nodelay(const struct fs_connection *c) { return fs_load_own32(&c->nodelay) != 0; }

/* Returns true if the peer was seen to be gone. (fs_check_peer_lost checks.) */
static inline int fs_peer_is_lost(const struct fs_connection *c) { return fs_load_own32(&c->is.lost) != 0; }

/* Returns the path of both directions, bits of enum fs_moved: a hint, or exact with the lock that orders it. */
static inline uint32_t fs_moved(const struct fs_connection *c) { return fs_load_relaxed(&fs_own(c)->moved); }

/* Returns true if this side receives from the ring now. */
static inline int fs_receives_on_ring(const struct fs_connection *c) {
    /* SYNC: moved - pairs with change: the counts of a direction are stored before it has moved. */
    return (fs_load_acquire(&fs_own(c)->moved) & (FS_RECEIVING_MOVED | FS_RECEIVING_BACK)) == FS_RECEIVING_MOVED;
}

/* Returns true if this side sends into the ring now. */
static inline int fs_sends_on_ring(const struct fs_connection *c) {
    /* SYNC: moved - pairs with change. */
    return (fs_load_acquire(&fs_own(c)->moved) & (FS_SENDING_MOVED | FS_SENDING_BACK)) == FS_SENDING_MOVED;
}

/* Returns true if the peer may still switch to the ring. */
static inline int fs_peer_may_switch(const struct fs_connection *c) {
    return fs_is_attached(c) && !(fs_moved(c) & (FS_RECEIVING_MOVED | FS_RECEIVING_BACK));
}

/* Returns true if the end of the kernel's stream from the peer would show nothing new: the stream has ended in the ring, or is not read
 * here. Then the death of a peer from which credits are awaited is no event of the kernel connection. */
static inline int fs_eof_inconclusive(const struct fs_connection *c) {
    return fs_load_sc((fs_word64 *)&c->ring.rx->fin) != 0 || fs_load_relaxed((fs_word32 *)&c->is.shut_receiving) != 0;
}

/* Returns true if the peer waits for credits. */
static inline int fs_peer_waits_for_credit(struct fs_connection *c) { return fs_is_attached(c) && fs_peer_credit_wait(&c->ring); }

/* Returns true if nobody reads our half any more, as far as known (fs_check_peer_lost checks): a send gets the kernel's answer. */
static inline int fs_peer_is_gone(const struct fs_connection *c) {
    return fs_peer_is_lost(c) || fs_load_sc(&c->ring.tx->doorbell) & FS_GONE;
}

/* Returns true if somebody else reads and writes the descriptor by now. */
static inline int fs_has_fallen_back(const struct fs_connection *c) { return (fs_moved(c) & FS_OUT) != 0; }

/* Returns true if a holder in a fallback collects the unread bytes, so that nobody else may receive. (That holder uses fs_recv_locked
 * itself only after the bytes that it has taken from the kernel.) */
static inline int fs_is_collecting(const struct fs_connection *c) {
    /* SYNC: moved - pairs with change. */
    return fs_is_attached(c) && (fs_load_acquire(&fs_own(c)->moved) & FS_COLLECTING) != 0;
}

/* Returns true if this side's senders wait until the peer's fallback is settled. */
static inline int fs_waits_for_fallback(const struct fs_connection *c) {
    return fs_is_attached(c) && fs_moved(c) & FS_SENDING_HELD && fs_load_sc(&c->ring.tx->settled) == FS_UNSETTLED;
}

/* Counts what a call in the kernel has taken or sent. (Threads may be in the kernel at once.) */
static inline void fs_count_kernel(fs_word64 *bytes, int64_t part) {
    if (part > 0) fs_add_sc(bytes, (uint64_t)part);
}

/* Returns true if another process holds the connection as well, and may sleep on it. */
static inline int fs_is_shared(const struct fs_connection *c) { return fs_load_relaxed(&fs_own(c)->holders) > 1; }

/* Returns true if a forked child has not said yet that the peer is to ask it: it may have no descriptors for its control thread. */
static inline int fs_is_unannounced(const struct fs_connection *c) {
    return c->is.own_inherited && !fs_load_relaxed(&c->asked_here);
}

/* Returns true if no step of the path is due: one may start this process's control thread after a fork, or have the peer ask this
 * process. */
static inline int fs_is_settled(const struct fs_connection *c) { return fs_load_own32(&c->settled) != 0; }

/* Returns true if hints for event sets of this process may go to another one. */
static inline int fs_may_miss_hints(const struct fs_connection *c) { return fs_is_shared(c) || fs_is_unannounced(c); }

/* ---- changes: the path of the directions ----------------------------------------------------------------- */

/* Each event needs the lock named by its function. One table has them all, in this order. */
enum fs_sending_event {
    FS_EV_SEND_SWITCHED,  /* the offset of the switch is stored: sends go into the ring */
    FS_EV_SEND_BACK,      /* BACK is about to be posted: sends go through the kernel again */
    FS_EV_SEND_BACK_HELD, /* the same, once the peer that fell back has the bytes that it had not read */
    FS_EV_HOLD,           /* this side sends through the kernel again, and the peer fell back meanwhile */
    FS_EV_RELEASE,        /* the peer's fallback is settled */
    FS_SENDING_EVENTS
};
enum fs_receiving_event {
    FS_EV_RECEIVE_SWITCHED = FS_SENDING_EVENTS, /* the kernel's part of the stream is read: the ring's follows */
    FS_EV_RECEIVE_BACK,                         /* the ring is read to BACK, or there will be none */
    FS_EV_COLLECT,                              /* a holder in a fallback takes the unread bytes */
    FS_EV_COLLECTED,                            /* that holder has all of them */
    FS_RECEIVING_EVENTS
};
enum fs_leaving_event {
    FS_EV_OUT = FS_RECEIVING_EVENTS, /* somebody else reads and writes the descriptor */
    FS_EVENTS
};

/* Apply an event to the side of the lock. An event that the table forbids is our fault: nothing changes, and the connection is lost
 * (fs_note_fault). */
void fs_change_sending(struct fs_connection *c, struct fs_sender *sender, enum fs_sending_event event);
void fs_change_receiving(struct fs_connection *c, struct fs_receiver *receiver, enum fs_receiving_event event);
void fs_change_leaving(struct fs_connection *c, struct fs_fallback_lock *fallback, enum fs_leaving_event event);

/* ---- changes: this process's end ------------------------------------------------------------------------- */

void fs_note_attached(struct fs_connection *c);    /* `ring` is there */
void fs_note_detached(struct fs_connection *c);    /* a bridge has taken the region, or its memory is freed */
void fs_note_loop_driven(struct fs_connection *c, int driven); /* a loop's transport drives it, so nobody polls the descriptor */
/* this side has lost the stream: the next call returns FS_VIOLATED, and the connection is reset, not by the peer's fault */
void fs_note_fault(struct fs_connection *c, const char *why);
void fs_note_tapped(struct fs_connection *c, int tapped); /* an observer may want its bytes, or none does */
void fs_note_broken(struct fs_connection *c); /* the program has got a violation; so the peer is lost */
void fs_note_lost(struct fs_connection *c);   /* nobody reads any more what is sent into the ring */
void fs_note_death_told(struct fs_connection *c);
void fs_note_error(struct fs_connection *c, uint32_t error); /* for the next receive after the bytes, or send; 0: reported */
void fs_note_shut(struct fs_connection *c, int receiving, int sending);
void fs_note_bridged(struct fs_connection *c);              /* `own` is another side from here on (fs_swap_to_bridge) */
void fs_note_inherited(struct fs_connection *c);            /* this process is a forked child, with this thread only */

/* ---- changes: words in the region -------------------------------------------------------------------------
 *
 * Consent (`ready`) is the receiver's word; a sender that has fallen back swaps it too. */
void fs_give_consent(struct fs_connection *c); /* 0 -> READY, after the limit. Sequentially consistent */
/* READY -> LEFT. Returns true if it is LEFT now: not if the peer has stored TOO_LATE, or there was no consent */
int fs_revoke_consent(struct fs_connection *c);
/* READY -> TOO_LATE, of the peer's consent; 0 -> TOO_LATE too if `unattached_too`. Returns true if the peer has fallen back before. */
int fs_refuse_revocation(struct fs_connection *c, int unattached_too);

/* What becomes of the unread data (`settled`), decided once. Return true if this call decided: */
int fs_settle_go_on(struct fs_connection *c);                   /* the side that falls back: nothing has to be sent again */
int fs_settle_resending(struct fs_connection *c);               /* its peer sends the unread data */
int fs_settle_refused(struct fs_connection *c);                 /* its peer waits no longer */
void fs_settle_resent(struct fs_connection *c, uint32_t bytes); /* after RESENDING: bytes of the unread data in the kernel's queue */

/* What becomes of bytes that the peer posts (bits of `doorbell`). Never cleared. */
void fs_publish_shut(struct fs_connection *c); /* both directions are shut: bytes beyond the present ones draw a reset */
void fs_publish_gone(struct fs_connection *c); /* nobody reads any more */

/* ---- changes: a sender's step that cannot be recovered ------------------------------------------------------ */

/* A holder that is killed between the two leaves state that only it knew: see recovery.c. */
void fs_begin_sending_step(struct fs_sender *sender);
void fs_end_sending_step(struct fs_sender *sender);
