/* How one end of a connection stands: what may be asked of it, and the only functions that change it. state.c has the table.
 *
 * Where the bytes of a direction are is memory of the side (`own->moved`): all its processes and descriptors find it there. What
 * concerns this process alone is in `struct fs_conn_flags`. What the two ends have to agree on is in the region. Nobody but state.c
 * writes any of it; the ends of the two streams are ring/stream_end.h's. */
#ifndef FASTSOCK_STATE_H
#define FASTSOCK_STATE_H

#include "conn/connection.h"

/* ---- how long it lives, and which calls may touch it --------------------------------------------------------
 *
 * One word has all of it, and each change of it is one step. So whatever threads do at once, a call that is inside finds the
 * connection's memory there, one caller says the goodbye, and one caller gives the memory back. */

enum fs_life {                /* bits of `is.life`; the rest is the number of calls inside, of all threads of this process */
    FS_ENDED = 1 << 30,  /* it has ended in this process: no call begins any more */
    FS_CLOSING = 1 << 29, /* closed by the program, with calls inside: the connection ends with the last of them */
    FS_PINNED = 1 << 28,      /* by a loop's transport, which looks at the region outside of calls */
    FS_CALLS = FS_PINNED - 1,
};

/* Whether a call may touch this connection: it has not ended. Its memory stays then until fs_call_exit, with the same `call`, which stays
 * where it is meanwhile. The one place that says so. */
int fs_call_enter(struct fs_connection *c, struct fs_call *call);

/* What whoever has changed the word has to do: */
enum fs_exit_action {
    FS_EXIT_NOTHING,
    FS_EXIT_RELEASE,       /* the connection has ended, and nobody has it any more: its memory is to be given back */
    FS_EXIT_CLOSE, /* the program has closed it, and this was the last call inside. It has ended by that. The caller is inside
                         still, says its goodbye (fs_conn_close), and ends the call once more */
};

/* The call is over. */
enum fs_exit_action fs_call_exit(struct fs_connection *c, struct fs_call *call);

/* Memory of a connection that is not open yet, or not any more: no call begins there. And it is open from now on. A front end that looks
 * connections up without a lock has its free ones so: whoever has found one too late begins no call, or one of the next connection. */
void fs_note_not_open(struct fs_connection *c);
void fs_note_open(struct fs_connection *c);

/* The program closes the connection. All three from inside. Of the first two: whether the connection has ended by this. Then the
 * caller says its goodbye (fs_conn_close). */
int fs_note_ended(struct fs_connection *c);       /* in any case. 0: it had ended */
int fs_note_ended_alone(struct fs_connection *c); /* if no other call is inside. 0: one is, or it had ended */
int fs_note_closing(struct fs_connection *c);      /* with the last call inside, be it the caller's: fs_call_exit tells. 0: it had ended */

/* A loop's transport keeps the memory outside of calls. 0: it may be given back already. */
int fs_pin(struct fs_connection *c);
enum fs_exit_action fs_unpin(struct fs_connection *c); /* not any more. FS_EXIT_RELEASE, or nothing */

/* How it stands: a hint, where threads are not kept apart. */
static inline int fs_has_ended(const struct fs_connection *c) { return (fs_load_own32(&c->is.life) & FS_ENDED) != 0; }

/* Whether the program has closed it, perhaps with calls inside. */
static inline int fs_is_closed(const struct fs_connection *c) {
    return (fs_load_own32(&c->is.life) & (FS_ENDED | FS_CLOSING)) != 0;
}

static inline uint32_t fs_calls_inside(const struct fs_connection *c) { return fs_load_own32(&c->is.life) & FS_CALLS; }

/* Whether anybody but the caller, who is inside, has it: another call, or a loop's transport. */
static inline int fs_has_other_users(const struct fs_connection *c) {
    return (fs_load_own32(&c->is.life) & (FS_CALLS | FS_PINNED)) > 1;
}

/* Whether a call is in the kernel's own blocking call. */
static inline int fs_is_in_kernel(const struct fs_connection *c) { return fs_load_own32(&c->is.in_kernel) != 0; }

/* ---- what is asked --------------------------------------------------------------------------------------- */

/* Whether there is a region: from then on `vi` is what it stays. */
static inline int fs_is_attached(const struct fs_connection *c) {
    /* SYNC: attached - pairs with fs_note_attached. */
    return fs_load_acquire((fs_word32 *)&c->is.attached) != 0;
}

/* Whether somebody may poll the descriptor. */
static inline int fs_is_exposed(const struct fs_connection *c) { return fs_load_own32(&c->is.exposed) != 0; }

/* Whether a loop's transport drives it, so that nobody else reads, writes or polls the descriptor. */
static inline int fs_is_loop_driven(const struct fs_connection *c) { return fs_load_own32(&c->is.driven) != 0; }

/* Whether the peer has broken the protocol. */
static inline int fs_is_broken(const struct fs_connection *c) { return fs_load_own32(&c->is.broken) != 0; }

static inline int fs_is_nodelay(const struct fs_connection *c) { return fs_load_own32(&c->nodelay) != 0; }

/* Whether the peer was seen to be gone (fs_check_peer_lost looks). */
static inline int fs_peer_is_lost(const struct fs_connection *c) { return fs_load_own32(&c->is.lost) != 0; }

/* Where the directions are, as a hint or under the lock that orders it: bits of enum fs_moved. */
static inline uint32_t fs_moved(const struct fs_connection *c) { return fs_load_relaxed(&fs_own(c)->moved); }

/* Whether what comes is read from the ring now. */
static inline int fs_receives_on_ring(const struct fs_connection *c) {
    /* SYNC: moved - pairs with change: what a direction was counted by stands before it has moved. */
    return (fs_load_acquire(&fs_own(c)->moved) & (FS_RECEIVING_MOVED | FS_RECEIVING_BACK)) == FS_RECEIVING_MOVED;
}

/* Whether what is sent goes into the ring now. */
static inline int fs_sends_on_ring(const struct fs_connection *c) {
    /* SYNC: moved - pairs with change. */
    return (fs_load_acquire(&fs_own(c)->moved) & (FS_SENDING_MOVED | FS_SENDING_BACK)) == FS_SENDING_MOVED;
}

/* Whether the peer may still turn to the ring. */
static inline int fs_peer_may_switch(const struct fs_connection *c) {
    return fs_is_attached(c) && !(fs_moved(c) & (FS_RECEIVING_MOVED | FS_RECEIVING_BACK));
}

/* Whether the end of the kernel's stream from the peer would be no news: it has ended in the ring, or is not read here. The death of a
 * peer that credits are awaited from is no event of the kernel connection then. */
static inline int fs_eof_inconclusive(const struct fs_connection *c) {
    return fs_load_sc((fs_word64 *)&c->ring.rx->fin) != 0 || fs_load_relaxed((fs_word32 *)&c->is.shut_receiving) != 0;
}

/* Whether the peer waits for credits. */
static inline int fs_peer_waits_for_credit(struct fs_connection *c) { return fs_is_attached(c) && fs_peer_credit_wait(&c->ring); }

/* Whether nobody reads our half any more, as far as was seen (fs_check_peer_lost looks): what is sent gets the kernel's answer. */
static inline int fs_peer_is_gone(const struct fs_connection *c) {
    return fs_peer_is_lost(c) || fs_load_sc(&c->ring.tx->doorbell) & FS_GONE;
}

/* Whether somebody else reads and writes the descriptor by now. */
static inline int fs_has_fallen_back(const struct fs_connection *c) { return (fs_moved(c) & FS_OUT) != 0; }

/* Whether a leaver of this side takes what lies unread, so that nobody else may receive. (A collector asks itself with
 * fs_recv_locked only, behind what it has taken from the kernel.) */
static inline int fs_is_collecting(const struct fs_connection *c) {
    /* SYNC: moved - pairs with change. */
    return fs_is_attached(c) && (fs_load_acquire(&fs_own(c)->moved) & FS_COLLECTING) != 0;
}

/* Whether this side's senders wait until the peer that left is settled. */
static inline int fs_waits_for_fallback(const struct fs_connection *c) {
    return fs_is_attached(c) && fs_moved(c) & FS_SENDING_HELD && fs_load_sc(&c->ring.tx->settled) == FS_UNSETTLED;
}

/* Whether another process holds the connection as well, and perhaps sleeps on it. */
static inline int fs_is_shared(const struct fs_connection *c) { return fs_load_relaxed(&fs_own(c)->holders) > 1; }

/* ---- what changes it: where the directions are ------------------------------------------------------------ */

/* Each event is for whoever has the turn that it needs. One table has them all, in this order. */
enum fs_sending_event {
    FS_EV_SEND_SWITCHED,     /* the offset of the switch is stored: what is sent goes into the ring */
    FS_EV_SEND_BACK,         /* BACK is about to be posted: what is sent goes through the kernel again */
    FS_EV_SEND_BACK_HELD,    /* the same, once the peer that left has what it had not read */
    FS_EV_HOLD,              /* this side sends through the kernel again, and the peer left meanwhile */
    FS_EV_RELEASE,           /* the peer that left is settled */
    FS_SENDING_EVENTS
};
enum fs_receiving_event {
    FS_EV_RECEIVE_SWITCHED = FS_SENDING_EVENTS, /* the kernel's part of the stream is read: the ring's follows */
    FS_EV_RECEIVE_BACK,      /* the ring is read to BACK, or there will be none */
    FS_EV_COLLECT,           /* a leaver takes what lies unread */
    FS_EV_COLLECTED,         /* it has all of it */
    FS_RECEIVING_EVENTS
};
enum fs_leaving_event {
    FS_EV_OUT = FS_RECEIVING_EVENTS, /* somebody else reads and writes the descriptor */
    FS_EVENTS
};

/* An event of the directions of the side whose turn it is. One that the table forbids is a fault of ours: it changes nothing, and the
 * connection is lost (fs_note_fault). */
void fs_change_sending(struct fs_connection *c, struct fs_sender *sender, enum fs_sending_event event);
void fs_change_receiving(struct fs_connection *c, struct fs_receiver *receiver, enum fs_receiving_event event);
void fs_change_leaving(struct fs_connection *c, struct fs_fallback_lock *fallback, enum fs_leaving_event event);

/* ---- what changes it: this process's end ------------------------------------------------------------------ */

void fs_note_attached(struct fs_connection *c);  /* `vi` is there. Sequentially consistent, for fs_expose */
void fs_note_detached(struct fs_connection *c);  /* a bridge has taken the region, or its memory is given back */
void fs_note_exposed(struct fs_connection *c);   /* the descriptor's number was handed out. Sequentially consistent, for fs_attach */
void fs_note_loop_driven(struct fs_connection *c);    /* a loop's transport drives it; so nobody polls the descriptor */
void fs_note_fault(struct fs_connection *c, const char *why); /* this side has lost the stream: the next call says so (FS_VIOLATED), and
                                                               * the connection is reset, by no fault of the peer's */
void fs_note_broken(struct fs_connection *c);    /* the program has been told of a violation; so the peer is lost */
void fs_note_lost(struct fs_connection *c);      /* nobody reads any more what is sent into the ring */
void fs_note_death_told(struct fs_connection *c);
void fs_note_error(struct fs_connection *c, uint32_t error); /* for the next receive behind the bytes, or send; 0: it was told */
void fs_note_shut(struct fs_connection *c, int receiving, int sending);
void fs_note_in_kernel(struct fs_connection *c, int calls); /* a call goes into the kernel's own blocking call: 1; comes back: -1 */
void fs_note_bridged(struct fs_connection *c);   /* `own` is another side's from here on (fs_swap_to_bridge) */
void fs_note_inherited(struct fs_connection *c); /* this process is a forked child, and this thread its only one */

/* ---- what changes it: what both ends say in the region -----------------------------------------------------
 *
 * Consent (`ready`): the receiver's, which a sender that has left swaps too. */
void fs_give_consent(struct fs_connection *c);   /* 0 -> READY: doorbell state and limit are there. Sequentially consistent */
int fs_revoke_consent(struct fs_connection *c);     /* READY -> LEFT. Whether it is LEFT: not if the peer has said TOO_LATE, or there was none */
/* READY -> TOO_LATE, of the peer's consent; also 0 -> TOO_LATE, of a peer that is `unattached_too`. Whether the peer has left before. */
int fs_refuse_revocation(struct fs_connection *c, int unattached_too);

/* What a leaver gets again (`settled`), decided once. Whether this call has: */
int fs_settle_go_on(struct fs_connection *c);     /* the leaver: nothing has to be sent again */
int fs_settle_resending(struct fs_connection *c); /* its peer sends the parcel */
int fs_settle_refused(struct fs_connection *c);   /* its peer waits no longer */
void fs_settle_resent(struct fs_connection *c, uint32_t bytes); /* after RETURNING: of the parcel, in the kernel's queue */

/* What becomes of what the peer posts (bits of `doorbell`). They stay. */
void fs_publish_shut(struct fs_connection *c); /* both directions are shut: more than what is there draws a reset */
void fs_publish_gone(struct fs_connection *c); /* nobody reads any more */

/* ---- what changes it: a sender's step that nobody can mend ------------------------------------------------- */

/* Between the two a holder that is killed leaves what only it knew of: see recovery.c. */
void fs_begin_sending_step(struct fs_sender *sender);
void fs_end_sending_step(struct fs_sender *sender);

#endif
