/* Whose turn it is on one side of a connection: the locks of `struct fs_side` (ring/lock.h), as connections take them.
 *
 * Responsible for: that who has a `struct fs_sender` or a `struct fs_receiver` has taken its lock (no other file makes
 * such a pointer), that a turn is of the side that the connection has, and that what a dead holder left
 * is mended first. Never: does anything else in a turn. */
#include "connection/turns.h"

#include "connection/hear.h"
#include "connection/mend.h"
#include "connection/ringing.h"

/* ---- waiting without the front end's lock --------------------------------------------------------------------- */

void fs_give_way(const struct fs_lock *lock) {
    void *given = fs_let_go();
    fs_await_turn(lock);
    fs_take_again(given);
}

void fs_await_byte(int fd) {
    void *given = fs_let_go();
    fs_events_within(fd, POLLIN, 1);
    fs_take_again(given);
}

void fs_await_post(struct fs_vi *vi, int64_t deadline) {
    void *given = fs_let_go();
    while (fs_ringing(vi) && fs_now() < deadline) sched_yield();
    fs_take_again(given);
}

void fs_nap_aside(void) {
    void *given = fs_let_go();
    fs_nap();
    fs_take_again(given);
}

/* ---- one turn --------------------------------------------------------------------------------------------------- */

void fs_give_up(struct fs_lock *lock, int turn) {
    if (turn == FS_INHERITED)
        fs_disclaim(lock);
    else
        fs_unlock(lock);
}

/* The side whose turn it is, or NULL. */
static inline struct fs_side *take_turn(struct fs_connection *c, int sends, int patience) {
    for (;;) {
        struct fs_side *own = fs_own(c);
        struct fs_lock *lock = sends ? &own->sender.lock : &own->receiver.lock;
        int turn = fs_try_lock(lock, fs_own_pid);
        if (turn == FS_BUSY) {
            if (patience == 0) return NULL;
            patience -= 1;
            fs_give_way(lock);
        } else if (own != fs_own(c)) {
            fs_give_up(lock, turn);
        } else {
            if (turn == FS_INHERITED) {
                if (sends)
                    fs_mend_sending(c, &own->sender);
                else
                    fs_mend_receiving(c, &own->receiver);
            }
            return own;
        }
    }
}

struct fs_sender *fs_take_turn_to_send(struct fs_connection *c, int patience) {
    struct fs_side *own = take_turn(c, 1, patience);
    return own ? &own->sender : NULL;
}

struct fs_receiver *fs_take_turn_to_receive(struct fs_connection *c, int patience) {
    struct fs_side *own = take_turn(c, 0, patience);
    return own ? &own->receiver : NULL;
}

struct fs_sender *fs_lock_sending(struct fs_connection *c) { return fs_take_turn_to_send(c, -1); }

struct fs_receiver *fs_lock_receiving(struct fs_connection *c) { return fs_take_turn_to_receive(c, -1); }

struct fs_receiver *fs_lock_receiving_of(struct fs_leaver *leaver, int *turn) {
    struct fs_receiver *receiver = &fs_side_of_leaver(leaver)->receiver;
    *turn = fs_lock(&receiver->lock, fs_own_pid);
    return receiver;
}

/* ---- both ------------------------------------------------------------------------------------------------------- */

int fs_try_both(struct fs_connection *c, struct fs_both *both) {
    struct fs_side *own = fs_own(c);
    *both = (struct fs_both){&own->sender, &own->receiver};
    int receiving = fs_try_lock(&both->receiver->lock, fs_own_pid);
    if (receiving == FS_BUSY) return 0;
    fs_keep(&both->receiver->lock);
    int sending = fs_try_lock(&both->sender->lock, fs_own_pid);
    if (sending != FS_BUSY) {
        if (own == fs_own(c)) {
            if (receiving == FS_INHERITED) fs_mend_receiving(c, both->receiver);
            if (sending == FS_INHERITED) fs_mend_sending(c, both->sender);
            return 1;
        }
        fs_give_up(&both->sender->lock, sending);
    }
    fs_unkeep(&both->receiver->lock);
    fs_give_up(&both->receiver->lock, receiving);
    return 0;
}

void fs_await_both(struct fs_connection *c) {
    fs_give_way(&fs_own(c)->receiver.lock);
    fs_give_way(&fs_own(c)->sender.lock);
}

int fs_take_both(struct fs_connection *c, int patience, struct fs_both *both) {
    while (!fs_try_both(c, both)) {
        if (patience == 0) return 0;
        patience -= 1;
        fs_await_both(c);
    }
    return 1;
}

struct fs_both fs_lock_both(struct fs_connection *c) {
    struct fs_both both;
    fs_take_both(c, -1, &both);
    return both;
}

void fs_unlock_both(struct fs_both both) {
    fs_unlock_sending(both.sender);
    fs_unkeep(&both.receiver->lock);
    fs_unlock_receiving(both.receiver);
}

void fs_end_both(struct fs_connection *c, struct fs_both both) {
    int late = c->late;
    int late_sending = fs_take_late(c, both.sender);
    c->late = 0;
    fs_unlock_both(both);
    if (late) fs_await_late(c, late);
    if (late_sending) fs_await_room(c);
}
