/* Whose turn it is on one side of a connection: the two locks of `struct fs_side` (ring/lock.h), as connections take
 * them.
 *
 * Each of these returns the side whose lock it took, and that side's lock is the one to give back: a bridge may put
 * another side in its place meanwhile. Callers may have the front end's lock; it is let go while somebody else has the
 * turn, and no turn is held while that lock is waited for. They are inside (fs_begin) or kept, so that the connection
 * stays.
 *
 * Responsible for: that a turn is of the side that the connection has, and that what a dead holder left is mended
 * first. Never: does anything else in a turn. */
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

struct fs_side *fs_take_turn(struct fs_connection *c, int sends, int patience) {
    for (;;) {
        struct fs_side *own = c->own;
        struct fs_lock *lock = sends ? &own->send_lock : &own->recv_lock;
        int turn = fs_try_lock(lock, fs_own_pid);
        if (turn == FS_BUSY) {
            if (patience == 0) return NULL;
            patience -= 1;
            fs_give_way(lock);
        } else if (own != c->own) {
            fs_give_up(lock, turn);
        } else {
            if (turn == FS_INHERITED) {
                if (sends)
                    fs_mend_sending(c, own);
                else
                    fs_mend_receiving(c, own);
            }
            return own;
        }
    }
}

struct fs_side *fs_lock_receiving(struct fs_connection *c) { return fs_take_turn(c, 0, -1); }

struct fs_side *fs_lock_sending(struct fs_connection *c) { return fs_take_turn(c, 1, -1); }

/* ---- both ------------------------------------------------------------------------------------------------------- */

struct fs_side *fs_try_both(struct fs_connection *c) {
    struct fs_side *own = c->own;
    int receiving = fs_try_lock(&own->recv_lock, fs_own_pid);
    if (receiving == FS_BUSY) return NULL;
    fs_keep(&own->recv_lock);
    int sending = fs_try_lock(&own->send_lock, fs_own_pid);
    if (sending != FS_BUSY) {
        if (own == c->own) {
            if (receiving == FS_INHERITED) fs_mend_receiving(c, own);
            if (sending == FS_INHERITED) fs_mend_sending(c, own);
            return own;
        }
        fs_give_up(&own->send_lock, sending);
    }
    fs_unkeep(&own->recv_lock);
    fs_give_up(&own->recv_lock, receiving);
    return NULL;
}

void fs_await_both(struct fs_connection *c) {
    fs_give_way(&c->own->recv_lock);
    fs_give_way(&c->own->send_lock);
}

struct fs_side *fs_lock_both(struct fs_connection *c) {
    struct fs_side *own = fs_try_both(c);
    while (!own) {
        fs_await_both(c);
        own = fs_try_both(c);
    }
    return own;
}

void fs_unlock_both(struct fs_side *own) {
    fs_unlock(&own->send_lock);
    fs_unkeep(&own->recv_lock);
    fs_unlock(&own->recv_lock);
}

void fs_end_both(struct fs_connection *c, struct fs_side *own) {
    int late = c->late;
    int late_sending = fs_take_late(c, own);
    c->late = 0;
    fs_unlock_both(own);
    if (late) fs_await_late(c, late);
    if (late_sending) fs_await_room(c);
}
