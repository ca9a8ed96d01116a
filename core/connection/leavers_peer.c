/* The peer of a leaver (leave.c): it posts BACK, waits until the leaver is settled, sends what that had not read
 * once more, and goes on in the kernel.
 *
 * Responsible for: that what this side sends through the kernel comes behind what it posted, and behind what the
 * leaver gets again. Never: asking anybody, or receiving. */
#include "connection/leavers_peer.h"

#include "connection/lifeline.h"
#include "connection/ringing.h"
#include "connection/send.h"
#include "connection/state.h"
#include "connection/turns.h"
#include "transport/options.h"
#include "transport/tcp.h"

#define HELD_TIME ((int64_t)5000000000) /* ns that a sender waits for a leaver to be settled */

enum { RETURN_PATIENCE = 50 }; /* times some 10 ms that a parcel waits for the turn. The leaver waits a second (FS_ANSWER_TIME), and so
                                * does a fork for this thread */

/* Bytes of a parcel; -1 if it is not in memory, where no read blocks. */
static int64_t parcel_size(int fd) {
    struct stat st;
    return fs_system.fcntl(fd, F_GET_SEALS, 0) >= 0 && fs_system.fstat(fd, &st) == 0 ? (int64_t)st.st_size : -1;
}

void fs_go_back_sending(struct fs_connection *c, struct fs_sender *sender, int held) {
    if (fs_moved(c) & FS_SENDING_BACK) return;
    fs_begin_sending_step(sender);
    fs_change_sending(c, sender, held && !sender->fin_sent ? FS_EV_SEND_BACK_HELD : FS_EV_SEND_BACK);
    if (!sender->fin_sent) {
        /* A leaver puts a doorbell byte in front of what lies unread, exposed or not: a peer that exposes its
         * descriptor later finds nobody here whom it could ask for one. Before BACK: a peer that reads up to it
         * believes `rung`. */
        if (!held && fs_own32(&sender->posted) != fs_load_relaxed(&c->vi.tx->seen)) fs_ring(c, sender, FS_EXPOSED);
        /* SYNC: end of stream - by fs_post_fin. */
        fs_post_fin(&c->vi, sender, FS_BACK);
        fs_ring(c, sender, fs_peer_doorbell(&c->vi) & (FS_ASLEEP | FS_SET_ASLEEP));
    }
    if (sender->plugs) {
        fs_set_option(fs_fd(c), IPPROTO_TCP, TCP_NOTSENT_LOWAT, 0);
        fs_events_now(fs_fd(c), POLLOUT); /* see fs_tell_pollers */
        sender->plugs = 0;
    }
    uint32_t before = fs_load_relaxed(&fs_own(c)->send_buffer_before);
    if (0 < before && before < FS_WIDENED)
        fs_set_option(fs_fd(c), SOL_SOCKET, SO_SNDBUF, (int)(before / 2)); /* (the kernel doubles it) */
    fs_store_relaxed(&fs_own(c)->send_buffer_before, 0);
    fs_end_sending_step(sender);
    /* (Of a loop's connection `nodelay` is about the ring alone; the kernel has what the program has set.) */
    if (!fs_is_driven(c)) fs_set_option(fs_fd(c), IPPROTO_TCP, TCP_NODELAY, fs_is_nodelay(c));
    fs_wake_own(c); /* senders of this side that sleep until credits come */
}

void fs_answer_leaver(struct fs_connection *c, struct fs_sender *sender) {
    /* SYNC: left - pairs with fs_say_left. */
    if (fs_is_attached(c) && fs_load_sc(&c->vi.tx->ready) == FS_LEFT) fs_go_back_sending(c, sender, 1);
}

/* (Not while the peer that left is unsettled, as what that wants again comes first. A peer that leaves from here on
 * gets nothing again.) */
int fs_goes_on_in_kernel(struct fs_connection *c, struct fs_sender *sender) {
    if (!fs_say_too_late(c, 0)) return 1;
    /* (Not fin_sent, which BACK has set. After a FIN nothing more is sent.) */
    if (fs_load_sc(&c->vi.tx->settled) == FS_UNSETTLED && (fs_load_sc(&c->vi.tx->fin) & FS_FIN_KIND) != FS_FIN)
        fs_change_sending(c, sender, FS_EV_HOLD);
    return !fs_held(c, sender);
}

/* (After a half-close the end of its stream says nothing.) */
int fs_leaver_ended(struct fs_connection *c) {
    enum fs_lifeline stands = fs_lifeline(c);
    return stands == FS_OVER || (stands == FS_STREAM_ENDED && (fs_load_sc(&c->vi.rx->fin) & FS_FIN_KIND) != FS_FIN);
}

int fs_held(struct fs_connection *c, struct fs_sender *sender) {
    if (!(fs_moved(c) & FS_SENDING_HELD)) return 0;
    /* SYNC: settled - pairs with fs_say_go_on. */
    if (fs_load_sc(&c->vi.tx->settled) == FS_UNSETTLED) {
        if (!c->held_since) c->held_since = fs_now();
        if (!fs_leaver_ended(c) && fs_now() - c->held_since < HELD_TIME) return 1;
        fs_say_refused(c);
    }
    fs_change_sending(c, sender, FS_EV_RELEASE);
    return 0;
}

/* (A program that polls for POLLOUT by edge, and was refused while this side was held, has never seen it false:
 * setting the option, to what it is, makes an edge if there is room. If there is none, the kernel makes one later
 * for whoever it has told so: a look does that.) */
void fs_tell_pollers(struct fs_connection *c, struct fs_sender *sender) {
    fs_set_option(fs_fd(c), IPPROTO_TCP, TCP_NOTSENT_LOWAT, fs_option(fs_fd(c), IPPROTO_TCP, TCP_NOTSENT_LOWAT));
    fs_events_now(fs_fd(c), POLLOUT);
}

void fs_put_back(struct fs_connection *c, int parcel) {
    int64_t size = parcel_size(parcel);
    if (!(0 < size && size <= FS_PARCEL_MAX)) return;
    char *bytes = fs_system.malloc((size_t)size);
    if (!bytes) return;
    int read = fs_system.pread(parcel, bytes, (size_t)size, 0) == size;
    struct fs_sender *sender = read ? fs_take_turn_to_send(c, RETURN_PATIENCE) : NULL;
    if (sender) {
        fs_answer_leaver(c, sender);
        fs_begin_sending_step(sender);
        /* (give_back may have stopped waiting.) */
        if (fs_is_attached(c) && fs_moved(c) & FS_SENDING_BACK && fs_load_sc(&c->vi.tx->ready) == FS_LEFT &&
            fs_say_returning(c)) {
            int64_t sent = fs_send_in_kernel(c, sender, bytes, (size_t)size, MSG_NOSIGNAL);
            fs_say_returned(c, (uint32_t)(sent > 0 ? sent : 0));
            fs_change_sending(c, sender, FS_EV_RELEASE);
            fs_tell_pollers(c, sender);
        }
        fs_end_sending_step(sender);
        fs_end_turn_to_send(c, sender);
        fs_wake_own(c);
        fs_tell_peer(c);
    }
    fs_system.free(bytes);
}
