/* The table of states of a connection's directions, and every write of how a connection stands.
 *
 * Responsible for: what follows what. Never: locks, system calls, the region.
 *
 * A direction of one side is somewhere in each of two rows, and the states are bits of `own->moved`:
 *
 *     sending      KERNEL --SEND_SWITCHED--> RING --SEND_BACK--> BACK
 *                  KERNEL ----------------------- SEND_BACK ---> BACK          (left before it moved)
 *                  KERNEL, RING ------------ SEND_BACK_HELD ---> HELD --RELEASE--> BACK
 *                                                                BACK --HOLD--> HELD
 *     receiving    KERNEL --RECEIVE_SWITCHED--> RING --RECEIVE_BACK--> BACK
 *                  KERNEL -------------------------- RECEIVE_BACK ---> BACK     (nothing came, or will come, by the ring)
 *     COLLECT and COLLECTED mark a leaver's time between, OUT its end.
 *
 * `from` names the bits that have to be there, `never` those that cannot be. An event that finds what it brings is no change: two
 * processes of a side may have seen the same thing. Debug builds (FS_DEBUG) assert the rest. */
#include "connection/state.h"

#include <assert.h>

struct fs_transition {
    uint32_t from, never, brings, takes;
};

static const struct fs_transition table[FS_EVENTS] = {
    /*                            has to be there       cannot be there                           brings                               takes */
    [FS_EV_SEND_SWITCHED] =     {0,                     FS_OUT | FS_SENDING_BACK,                 FS_SENDING_MOVED,                    0},
    [FS_EV_SEND_BACK] =         {0,                     FS_OUT,                                   FS_SENDING_BACK,                     0},
    [FS_EV_SEND_BACK_HELD] =    {0,                     FS_OUT | FS_SENDING_BACK,                 FS_SENDING_BACK | FS_SENDING_HELD,   0},
    [FS_EV_HOLD] =              {FS_SENDING_BACK,       0,                                        FS_SENDING_HELD,                     0},
    [FS_EV_RELEASE] =           {FS_SENDING_BACK,       0,                                        0,                                   FS_SENDING_HELD},
    [FS_EV_RECEIVE_SWITCHED] =  {0,                     FS_OUT | FS_RECEIVING_BACK,               FS_RECEIVING_MOVED,                  0},
    [FS_EV_RECEIVE_BACK] =      {0,                     FS_OUT,                                   FS_RECEIVING_BACK,                   0},
    [FS_EV_COLLECT] =           {0,                     0,                                        FS_COLLECTING,                       0},
    [FS_EV_COLLECTED] =         {FS_COLLECTING,         0,                                        0,                                   FS_COLLECTING},
    [FS_EV_OUT] =               {0,                     0,                                        FS_OUT,                              0},
};

static void change(struct fs_side *own, unsigned int event) {
    const struct fs_transition *t = &table[event];
#ifdef FS_DEBUG
    uint32_t before = fs_load_sc(&own->moved);
    if ((before & t->brings) != t->brings || before & t->takes) { /* else: no change */
        assert((before & t->from) == t->from);
        assert(!(before & t->never));
    }
#endif
    if (t->takes) fs_and_sc(&own->moved, ~t->takes);
    if (t->brings) fs_or_sc(&own->moved, t->brings);
}

void fs_change_sending(struct fs_sender *sender, enum fs_sending_event event) { change(fs_side_of_sender(sender), event); }

void fs_change_receiving(struct fs_receiver *receiver, enum fs_receiving_event event) {
    change(fs_side_of_receiver(receiver), event);
}

void fs_change_leaving(struct fs_leaver *leaver, enum fs_leaving_event event) { change(fs_side_of_leaver(leaver), event); }

/* ---- this process's end ----------------------------------------------------------------------------------- */

void fs_note_attached(struct fs_connection *c) {
    /* SYNC: attached - pairs with fs_is_attached: finds `vi`, the eventfds. (Sequentially consistent for fs_expose.) */
    fs_store_sc(&c->is.attached, 1);
}

void fs_note_detached(struct fs_connection *c) { fs_store_relaxed(&c->is.attached, 0); }

void fs_note_exposed(struct fs_connection *c) {
    /* SYNC: exposed - pairs with fs_attach, which writes `attached` and then looks here: one sees the other. */
    fs_store_sc(&c->is.exposed, 1);
}

void fs_note_driven(struct fs_connection *c) {
    c->is.driven = 1;
    fs_store_relaxed(&c->is.exposed, 0);
}

void fs_note_broken(struct fs_connection *c) {
    fs_store_relaxed(&c->is.broken, 1);
    fs_store_relaxed(&c->is.lost, 1);
}

void fs_note_lost(struct fs_connection *c) { fs_store_relaxed(&c->is.lost, 1); }

void fs_note_death_told(struct fs_connection *c) { fs_store_relaxed(&c->is.death_told, 1); }

void fs_note_error(struct fs_connection *c, uint32_t error) { fs_store_relaxed(&c->is.pending_error, error); }

void fs_note_shut(struct fs_connection *c, int receiving, int sending) {
    if (receiving) fs_store_relaxed(&c->is.shut_receiving, 1);
    if (sending) fs_store_relaxed(&c->is.shut_sending, 1);
}

void fs_note_finishing(struct fs_connection *c) { c->is.finishing = 1; }

void fs_note_finished(struct fs_connection *c) { c->is.finished = 1; }

void fs_note_kept(struct fs_connection *c, int kept) { c->is.kept = kept; }

void fs_note_bridged(struct fs_connection *c) {
    fs_note_detached(c);
    c->is.bridged = 1;
    c->is.bridged_inherited = c->is.own_inherited;
    c->is.own_inherited = 0;
}

void fs_note_inherited(struct fs_connection *c) { c->is.own_inherited = c->is.bridged_inherited = 1; }

void fs_note_fin_taken(struct fs_receiver *receiver, uint32_t how) { fs_store_relaxed(&receiver->fin_taken, how); }
