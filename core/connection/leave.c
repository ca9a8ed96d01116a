/* The way out: a moved connection goes back to the kernel, because somebody else is about to read its descriptor
 * raw.
 *
 * One side is the *leaver*, the other one its peer. What the leaver sent lies in the ring, with BACK behind it, and
 * what follows goes through the kernel: nothing more to do. What the leaver has not read must come out of the
 * kernel's queue instead, and only the peer can put it there. So
 *
 *   1. the leaver withdraws consent (LEFT) and asks the peer's connection thread, which posts BACK behind what it
 *      posted and sends nothing more until it is settled (HELD);
 *   2. the leaver takes everything up to BACK, the kernel's part of the stream included, into a memfd, the *parcel*,
 *      and the doorbell bytes out of the kernel's queue, which is empty now;
 *   3. the peer's connection thread sends the parcel through the kernel, and the peer goes on there.
 *
 * This file has the leaver; its peer is in leavers_peer.c. A peer that cannot take part (closed, shut down, dead,
 * stopped, no room in the kernel) leaves a bridge as the only way (bridge.c). docs/leaving.md argues why nothing is
 * lost or doubled.
 *
 * Responsible for: that the kernel's stream is the whole stream when somebody else gets the descriptor, or the word
 * that it cannot be. Never: what is done then (a bridge, a reset, the parcel for a loop's transport), which its
 * caller decides. */
#include "connection/leave.h"

#include "connection/hear.h"
#include "connection/leavers_peer.h"
#include "connection/lifeline.h"
#include "connection/mend.h"
#include "connection/receive.h"
#include "connection/ringing.h"
#include "connection/seat.h"
#include "connection/state.h"
#include "connection/turns.h"
#include "transport/tcp.h"

#ifndef MFD_CLOEXEC
#define MFD_CLOEXEC 1
#endif

enum { PIECE = 16384 }; /* bytes collected at a time: on the stack, as there may be no memory */

#define ASK_INTERVAL ((int64_t)50000000) /* ns between two requests for the same */

/* Memory for so many bytes, all of it there already: no write of them fails. -1: there is none. */
static int new_parcel(uint64_t size) {
    int fd = fs_system.memfd_create("fastsock-parcel", MFD_CLOEXEC);
    if (fd >= 0 && fs_system.fallocate(fd, 0, 0, (off_t)size) < 0) {
        fs_system.close(fd);
        return -1;
    }
    return fd;
}

/* ---- reading up to BACK ------------------------------------------------------------------------------------ */

/* fs_hear_all, until nothing is owed. 0 if some bytes have not come by the deadline. Without the lock between two
 * looks: whoever receives then takes what is owed before anything else (fs_take_stream). */
static int take_doorbells(struct fs_connection *c, int64_t deadline) {
    for (;;) {
        struct fs_receiver *receiver = fs_lock_receiving(c);
        fs_hear_all(c, receiver);
        int owed = receiver->doorbell_debt != 0;
        fs_unlock_receiving(receiver);
        if (!owed) return 1;
        if (fs_now() > deadline) return 0;
        fs_nap();
    }
}

/* It is settled: wakes who waits for that at the peer that was held. One that polls sleeps on the kernel's
 * descriptor, and only its own side can make an edge there: its connection thread is asked to. 0 if there is no room
 * for the request now. */
static int let_go_on(struct fs_connection *c) {
    fs_tell_peer(c);
    return !(fs_peer_doorbell(&c->vi) & FS_EXPOSED) || fs_ask_peer(c, -1) != -EAGAIN;
}

void fs_press(struct fs_connection *c) {
    int64_t deadline = fs_now() + FS_ANSWER_TIME;
    while (!let_go_on(c) && fs_now() < deadline) /* more requests than the thread's queue takes */
        fs_nap_aside();
}

/* Tells a peer that is held that it may go on. 0 if it still has to be asked (fs_press). */
static int settle(struct fs_connection *c) {
    if (fs_load_sc(&c->vi.rx->ready) == FS_LEFT) {
        fs_say_go_on(c);
        return let_go_on(c);
    }
    return 1;
}

/* settle, of a leaver. With no lock. */
static void settle_with_peer(struct fs_connection *c) {
    if (!settle(c)) fs_press(c);
}

void fs_settle_in_turn(struct fs_connection *c, struct fs_receiver *receiver) {
    if (!settle(c)) c->late |= FS_LATE_REQUEST;
}

void fs_go_back_receiving(struct fs_connection *c, struct fs_receiver *receiver) {
    fs_change_receiving(c, receiver, FS_EV_RECEIVE_BACK);
    fs_free_receive_buffer(c);
    fs_hear_all(c, receiver); /* what is owed then is taken before the next receive */
    fs_settle_in_turn(c, receiver);
}

/* ---- leaving ----------------------------------------------------------------------------------------------- */

/* Until it is known where the ring's stream ends: at BACK, FIN or with the peer's death. 0 if the peer does not
 * say so in time. */
static int await_end_of_ring(struct fs_connection *c) {
    int64_t now = fs_now(), deadline = now + FS_ANSWER_TIME, ask_next = now;
    int looks = 0;
    /* SYNC: end of stream - pairs with fs_post_fin. */
    while (!fs_load_sc(&c->vi.rx->fin)) {
        looks += 1;
        if (looks > 200) {
            if (fs_peer_ended(c)) return 1;
            fs_nap();
        }
        now = fs_now();
        if (now > deadline) return 0;
        if (now >= ask_next) {
            ask_next = now + ASK_INTERVAL;
            fs_ask_peer(c, -1);
        }
        fs_pause();
    }
    return 1;
}

/* Bytes that lie unread, or are on their way through the kernel, once it is known where the ring's stream ends. */
static uint64_t unread_by(struct fs_connection *c, struct fs_receiver *receiver) {
    uint64_t switch_at = fs_load_sc(&c->vi.rx->switch_at);
    uint64_t count = fs_available(&c->vi, FS_PARCEL_MAX);
    if (switch_at && !(fs_moved(c) & FS_RECEIVING_MOVED)) count += switch_at - 1 - fs_load_relaxed(&receiver->kernel_taken);
    return count;
}

/* Before anything is taken, since what is taken must be kept: a descriptor and memory for all that lies unread. */
static void prepare_parcel(struct fs_connection *c, struct fs_parcel *parcel) {
    struct fs_receiver *receiver = fs_lock_receiving(c);
    uint64_t room = unread_by(c, receiver);
    fs_unlock_receiving(receiver);
    if (0 < room && room <= FS_PARCEL_MAX) {
        parcel->fd = new_parcel(room);
        parcel->room = parcel->fd >= 0 ? room : 0;
    }
}

static enum fs_outcome too_much(struct fs_connection *c) {
    c->vi.violation = "more of the stream than it told of";
    return FS_DISSOLVED;
}

/* Puts `count` bytes behind what is in the parcel. 0 if it does not take them. */
static int keep(struct fs_parcel *parcel, const char *bytes, int64_t count) {
    int64_t done = 0;
    while (done < count) {
        int64_t part = fs_system.write(parcel->fd, bytes + done, (size_t)(count - done));
        if (part <= 0) return 0;
        done += part;
    }
    parcel->size += (uint64_t)count;
    return 1;
}

/* The parcel's memory becomes as long as what is in it: shorter. */
static void trim(struct fs_parcel *parcel) {
    while (parcel->fd >= 0 && fs_system.ftruncate(parcel->fd, (off_t)parcel->size) < 0 && errno == EINTR) {}
}

/* Takes everything that is unread, in the kernel's queue and in the ring, and the doorbell bytes. FS_IN_KERNEL if
 * nothing is left but what the kernel's queue holds. While FS_COLLECTING is set. */
static enum fs_outcome collect(struct fs_connection *c, struct fs_parcel *parcel, char *piece, int64_t deadline) {
    int64_t got;
    int more = 1;
    struct fs_receiver *receiver;
    while (fs_load_sc(&c->vi.rx->switch_at) && !(fs_moved(c) & FS_RECEIVING_MOVED)) {
        receiver = fs_lock_receiving(c);
        got = fs_take_kernel(c, receiver, piece, PIECE, 0);
        fs_unlock_receiving(receiver);
        if (got == FS_VIOLATED) return FS_DISSOLVED;
        if (got > 0) {
            if (!keep(parcel, piece, got)) return too_much(c);
        } else if (got == -EAGAIN && fs_now() <= deadline) {
            fs_nap();
        } else if (got != FS_MOVED_ON) {
            return FS_NEEDS_BRIDGE;
        }
    }
    while (more && fs_moved(c) & FS_RECEIVING_MOVED) {
        receiver = fs_lock_receiving(c);
        more = fs_waiting(&c->vi) || fs_load_relaxed(&receiver->taken);
        got = more ? fs_take(&c->vi, receiver, piece, PIECE, FS_CONSUME) : 0;
        fs_unlock_receiving(receiver);
        if (got < 0) return FS_DISSOLVED;
        if (got > 0 && !keep(parcel, piece, got)) return too_much(c);
    }
    receiver = fs_lock_receiving(c);
    more = fs_end(&c->vi, receiver) != 1;
    if (more) fs_change_receiving(c, receiver, FS_EV_RECEIVE_BACK);
    fs_unlock_receiving(receiver);
    if (!more) return FS_DISSOLVED;
    return take_doorbells(c, deadline) ? FS_IN_KERNEL : FS_NEEDS_BRIDGE;
}

/* Has the peer send the parcel again, and learns how much of it the kernel took. */
static enum fs_outcome give_back(struct fs_connection *c, struct fs_parcel *parcel) {
    int64_t now = fs_now(), deadline = now + FS_ANSWER_TIME;
    uint32_t told = 0;
    int asked = 0;
    for (;;) {
        /* SYNC: returned - pairs with fs_say_returned. */
        told = fs_load_sc(&c->vi.rx->returned);
        if (told) break;
        if (!asked) asked = fs_ask_peer(c, parcel->fd) == 0;
        now = fs_now();
        int ended = fs_peer_ended(c);
        if (now > deadline || ended || fs_load_sc(&c->vi.rx->settled) == FS_REFUSED) {
            /* SYNC: settled - pairs with fs_say_returning: fs_put_back has begun, or will not. */
            if (fs_say_go_on(c) || fs_load_sc(&c->vi.rx->settled) != FS_RETURNING) {
                let_go_on(c);
                return FS_NEEDS_BRIDGE;
            }
            told = fs_load_sc(&c->vi.rx->returned);
            if (told) break;
            parcel->unknown = 1; /* killed or stopped within the one system call */
            return FS_NEEDS_BRIDGE;
        }
        fs_nap();
    }
    parcel->returned = told - 1;
    if (parcel->returned > parcel->size) return too_much(c);
    return parcel->returned == parcel->size ? FS_IN_KERNEL : FS_NEEDS_BRIDGE;
}

/* The peer may be leaving as well, and want bytes of ours again: before anybody else writes to the descriptor, it
 * gets them, or is told that it is too late. */
static void let_peer_leave(struct fs_connection *c) {
    if (!fs_say_too_late(c, 1)) return; /* (It may have been told before: by a sender that went on in the kernel.) */
    int64_t deadline = fs_now() + FS_ANSWER_TIME;
    while (fs_load_sc(&c->vi.tx->settled) == FS_UNSETTLED && !fs_leaver_ended(c) && fs_now() <= deadline) fs_nap();
    /* Whatever has ended the wait: a parcel that comes from here on is not sent any more, as it would come behind
     * what is written to the descriptor. One that is being sent is sent in a turn to send. */
    fs_say_refused(c);
    struct fs_sender *sender = fs_lock_sending(c);
    fs_end_turn_to_send(c, sender);
}

int64_t fs_beside_collector(struct fs_connection *c, struct fs_receiver *receiver) {
    if (fs_is_broken(c)) return 0;
    if (!fs_turn_free(&fs_side_of_receiver(receiver)->leaver.lock)) return -EAGAIN;
    fs_break_off(c, "what lay unread was lost with the process of this side that took it");
    return FS_VIOLATED;
}

int fs_is_leaving(const struct fs_connection *c) {
    return (fs_load_relaxed((fs_word32 *)&fs_own(c)->leaver.lock.word) & FUTEX_TID_MASK) == fs_self(fs_own_pid)->thread;
}

/* (Nobody waits for this lock but another leaver, which has no other turn, and could do nothing before the first one
 * is done.) */
struct fs_leaver *fs_begin_leaving(struct fs_connection *c) {
    struct fs_both both;
    if (!fs_take_both(c, FS_PATIENCE, &both)) return NULL; /* what follows waits for each turn until it has it */
    fs_end_both(c, both);
    for (int patience = FS_PATIENCE;;) {
        struct fs_leaver *leaver = &fs_own(c)->leaver;
        int turn = fs_try_lock(&leaver->lock, fs_own_pid);
        if (turn == FS_BUSY) {
            if (patience-- == 0) return NULL;
            fs_give_way(&leaver->lock);
        } else if (leaver != &fs_own(c)->leaver) {
            fs_give_up(&leaver->lock, turn);
        } else {
            fs_keep(&leaver->lock);
            return leaver;
        }
    }
}

void fs_end_leaving(struct fs_connection *c, struct fs_leaver *leaver, int whole) {
    if (whole && fs_load_relaxed(&fs_side_of_leaver(leaver)->moved) & FS_COLLECTING) {
        int turn;
        struct fs_receiver *receiver = fs_lock_receiving_of(leaver, &turn);
        fs_change_receiving(c, receiver, FS_EV_COLLECTED);
        fs_give_up(&receiver->lock, turn);
    }
    fs_unkeep(&leaver->lock);
    fs_unlock(&leaver->lock);
    fs_wake_own(c);
}

/* Takes both directions back to the kernel. A turn to receive is as long as a look or a copy. Between two of them
 * other holders go on: before FS_COLLECTING is set one may read as far as BACK, which is looked for then; afterwards
 * they do not receive. `piece`: PIECE bytes. */
static enum fs_outcome take_back(struct fs_connection *c, struct fs_parcel *parcel, char *piece) {
    int told = 1;
    if (fs_is_out(c)) return FS_IN_KERNEL;
    if (fs_is_collecting(c)) return FS_DISSOLVED; /* an earlier leaver was killed at it */
    int returns = fs_say_left(c);
    struct fs_sender *sender = fs_lock_sending(c);
    fs_go_back_sending(c, sender, 0);
    if (sender->bytes_unsent)
        c->late_sending = 1; /* whoever waits for room already: what is written to the descriptor must not come first */
    if (!fs_end_turn_to_send(c, sender)) return FS_DISSOLVED;
    int attached = fs_load_sc(&c->vi.tx->ready) != FS_NOT_YET;
    if (attached && !(fs_moved(c) & FS_RECEIVING_BACK)) {
        told = await_end_of_ring(c);
        prepare_parcel(c, parcel);
    }
    struct fs_receiver *receiver = fs_lock_receiving(c);
    if (fs_moved(c) & FS_RECEIVING_BACK) {
        /* The peer left first, or another holder has read up to its BACK. It may still be at it, and wait for us by
         * now. */
        fs_unlock_receiving(receiver);
        settle_with_peer(c);
        return take_doorbells(c, fs_now() + FS_ANSWER_TIME) ? FS_IN_KERNEL : FS_NEEDS_BRIDGE;
    }
    if (!attached || !told) {
        /* A peer that has not attached finds LEFT when it does, and has never moved. */
        if (!attached) fs_change_receiving(c, receiver, FS_EV_RECEIVE_BACK);
        fs_unlock_receiving(receiver);
        settle_with_peer(c);
        return attached ? FS_NEEDS_BRIDGE : FS_IN_KERNEL;
    }
    uint64_t switch_at = fs_load_sc(&c->vi.rx->switch_at);
    /* (A kernel whose socket is shut in both directions answers bytes with RST, and drops what it has not sent yet.) */
    returns = returns && (fs_load_sc(&c->vi.rx->fin) & FS_FIN_KIND) == FS_BACK && !fs_peer_ended(c) &&
              !(fs_load_relaxed(&c->vi.rx->doorbell) & FS_SHUT);
    if (!returns && (fs_waiting(&c->vi) || fs_load_relaxed(&receiver->taken) ||
                     (switch_at && !fs_receives_on_ring(c) && switch_at - 1 != fs_load_relaxed(&receiver->kernel_taken)))) {
        fs_unlock_receiving(receiver);
        settle_with_peer(c);
        return FS_NEEDS_BRIDGE;
    }
    if (unread_by(c, receiver) > parcel->room) { /* no memory, or no descriptor for it: a bridge needs no parcel */
        fs_unlock_receiving(receiver);
        settle_with_peer(c);
        return FS_NEEDS_BRIDGE;
    }
    fs_change_receiving(c, receiver, FS_EV_COLLECT);
    fs_unlock_receiving(receiver);
    enum fs_outcome outcome = collect(c, parcel, piece, fs_now() + FS_ANSWER_TIME);
    trim(parcel);
    if (outcome == FS_IN_KERNEL && parcel->size) return give_back(c, parcel);
    settle_with_peer(c);
    return outcome;
}

/* A side that was held is released first: nobody holds its sends any more, and let_peer_leave has settled that with the peer. Both
 * in the turn to send, in which others look whether the side is held or out: none of them finds it between, and holds it. */
void fs_go_out(struct fs_connection *c, struct fs_leaver *leaver) {
    struct fs_sender *sender = fs_lock_sending(c);
    fs_change_sending(c, sender, FS_EV_RELEASE);
    fs_change_leaving(c, leaver, FS_EV_OUT);
    fs_end_turn_to_send(c, sender);
}

enum fs_outcome fs_leave_ring(struct fs_connection *c, struct fs_leaver *leaver, struct fs_parcel *parcel) {
    char piece[PIECE];
    enum fs_outcome outcome = take_back(c, parcel, piece);
    trim(parcel); /* also if nothing was taken: a bridge reads it to its end */
    if (outcome != FS_DISSOLVED && !fs_is_out(c)) {
        let_peer_leave(c);
        if (outcome == FS_IN_KERNEL) fs_go_out(c, leaver);
    }
    return outcome;
}

/* (Doorbell bytes that have not come are no hindrance: the transport takes them out of what it reads, and nothing
 * was returned in front of which they could come. But nobody knows what comes where the peer was stopped within its
 * one send of the parcel: that connection is given up.) */
enum fs_outcome fs_take_returned(struct fs_connection *c, struct fs_leaver *leaver, struct fs_parcel *parcel) {
    struct fs_receiver *receiver = fs_lock_receiving(c);
    int owed = receiver->doorbell_debt != 0;
    fs_unlock_receiving(receiver);
    if (parcel->unknown || (owed && parcel->returned) || !(fs_moved(c) & FS_RECEIVING_BACK))
        return FS_DISSOLVED;
    /* What was returned is in our kernel's queue, in front of all else: it is taken out again. */
    int64_t deadline = fs_now() + FS_ANSWER_TIME;
    while (parcel->returned) {
        int64_t got = fs_look_in_kernel(c, NULL, parcel->returned, MSG_TRUNC);
        if (got > 0) parcel->returned -= (uint64_t)got;
        else if (got != -EAGAIN || fs_now() > deadline) return FS_DISSOLVED;
        else fs_nap_aside();
    }
    return FS_IN_KERNEL;
}
