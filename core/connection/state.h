/* How one end of a connection stands: what may be asked of it, and the only functions that change it. state.c has the table.
 *
 * Where the bytes of a direction are is memory of the side (`own->moved`): all its processes and descriptors find it there. What
 * concerns this process alone is in `struct fs_standing`. Nobody but state.c writes either. */
#ifndef FASTSOCK_STATE_H
#define FASTSOCK_STATE_H

#include "connection/connection.h"

/* ---- what is asked --------------------------------------------------------------------------------------- */

/* Whether there is a region: from then on `vi` and the eventfds are what they stay. */
static inline int fs_is_attached(const struct fs_connection *c) {
    /* SYNC: attached - pairs with fs_note_attached. */
    return fs_load_acquire((fs_word32 *)&c->is.attached) != 0;
}

/* Whether somebody may poll the descriptor. */
static inline int fs_is_exposed(const struct fs_connection *c) { return fs_own32(&c->is.exposed) != 0; }

/* Whether the peer has broken the protocol. */
static inline int fs_is_broken(const struct fs_connection *c) { return fs_own32(&c->is.broken) != 0; }

static inline int fs_is_nodelay(const struct fs_connection *c) { return fs_own32(&c->nodelay) != 0; }

/* Whether the peer was seen to be gone (fs_peer_lost looks). */
static inline int fs_is_lost(const struct fs_connection *c) { return fs_own32(&c->is.lost) != 0; }

/* Where the directions are, as a hint or under the lock that orders it: bits of enum fs_moved. */
static inline uint32_t fs_moved(const struct fs_connection *c) { return fs_load_relaxed(&c->own->moved); }

/* Whether what comes is read from the ring now. */
static inline int fs_receives_on_ring(const struct fs_connection *c) {
    return (fs_load_acquire(&c->own->moved) & (FS_RECEIVING_MOVED | FS_RECEIVING_BACK)) == FS_RECEIVING_MOVED;
}

/* Whether what is sent goes into the ring now. */
static inline int fs_sends_on_ring(const struct fs_connection *c) {
    return (fs_load_acquire(&c->own->moved) & (FS_SENDING_MOVED | FS_SENDING_BACK)) == FS_SENDING_MOVED;
}

/* Whether the peer may still turn to the ring. */
static inline int fs_peer_may_switch(const struct fs_connection *c) {
    return fs_is_attached(c) && !(fs_moved(c) & (FS_RECEIVING_MOVED | FS_RECEIVING_BACK));
}

/* Whether the peer waits for credits. */
static inline int fs_sender_waits(struct fs_connection *c) { return fs_is_attached(c) && fs_peer_credit_wait(&c->vi); }

/* Whether nobody reads our half any more, as far as was seen (fs_peer_lost looks): what is sent gets the kernel's answer. */
static inline int fs_is_gone(const struct fs_connection *c) {
    return fs_is_lost(c) || fs_load_sc(&c->vi.tx->doorbell) & FS_GONE;
}

/* Whether somebody else reads and writes the descriptor by now. */
static inline int fs_is_out(const struct fs_connection *c) { return (fs_moved(c) & FS_OUT) != 0; }

/* Whether a leaver of this side takes what lies unread, so that nobody else may receive. (A collector asks itself with
 * fs_take_stream only, behind what it has taken from the kernel.) */
static inline int fs_is_collecting(const struct fs_connection *c) {
    return fs_is_attached(c) && (fs_load_acquire(&c->own->moved) & FS_COLLECTING) != 0;
}

/* Whether this side's senders wait until the peer that left is settled. */
static inline int fs_waits_for_leaver(const struct fs_connection *c) {
    return fs_is_attached(c) && fs_moved(c) & FS_SENDING_HELD && fs_load_sc(&c->vi.tx->settled) == FS_UNSETTLED;
}

/* Whether another process holds the connection as well, and perhaps sleeps on it. */
static inline int fs_is_shared(const struct fs_connection *c) { return fs_load_relaxed(&c->own->holders) > 1; }

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

/* An event of the directions of the side whose turn it is. */
void fs_change_sending(struct fs_sender *sender, enum fs_sending_event event);
void fs_change_receiving(struct fs_receiver *receiver, enum fs_receiving_event event);
void fs_change_leaving(struct fs_leaver *leaver, enum fs_leaving_event event);

/* ---- what changes it: this process's end ------------------------------------------------------------------ */

void fs_note_attached(struct fs_connection *c);  /* `vi` and the eventfds are there. Sequentially consistent, for fs_expose */
void fs_note_detached(struct fs_connection *c);  /* a bridge has taken the region, or its memory is given back */
void fs_note_exposed(struct fs_connection *c);   /* the descriptor's number was handed out. Sequentially consistent, for fs_attach */
void fs_note_driven(struct fs_connection *c);    /* a loop's transport drives it; so nobody polls the descriptor */
void fs_note_broken(struct fs_connection *c);    /* the program has been told of a violation; so the peer is lost */
void fs_note_lost(struct fs_connection *c);      /* nobody reads any more what is sent into the ring */
void fs_note_death_told(struct fs_connection *c);
void fs_note_error(struct fs_connection *c, uint32_t error); /* for the next receive behind the bytes; 0: it was told */
void fs_note_shut(struct fs_connection *c, int receiving, int sending);
void fs_note_finishing(struct fs_connection *c); /* closed by the program, with calls inside */
void fs_note_finished(struct fs_connection *c);
void fs_note_kept(struct fs_connection *c, int kept);
void fs_note_bridged(struct fs_connection *c);   /* `own` is another side's from here on (fs_change_over) */
void fs_note_inherited(struct fs_connection *c); /* this process is a forked child */
void fs_note_fin_taken(struct fs_receiver *receiver, uint32_t how); /* 1: told as the end, 2: a reset, which the kernel tells */

#endif
