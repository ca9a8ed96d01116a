/* The peer of the side that falls back (fallback.c). It posts BACK, waits until the fallback is settled, sends the unread data again,
 * and goes on in the kernel. A byte that the program sends meanwhile is refused with EAGAIN, or waits (HELD), and then goes through the
 * kernel.
 *
 * Responsible for: bytes sent through the kernel come after the posted ones, and after those that are sent again. Never: asks the peer
 * for anything, or receives. */
#include "conn/fallback_peer.h"

#include "conn/peer_status.h"
#include "conn/side_lock.h"
#include "conn/state.h"
#include "conn/wake.h"

#define HELD_TIME ((int64_t)5000000000) /* ns that a sender waits for the peer's fallback to be settled */

/* Waits of about 10 ms for the lock before unread data is given up. The other side waits a second (FS_ANSWER_TIME), and so does a fork
 * for this thread. */
enum { RESEND_PATIENCE = 50 };

/* Returns the bytes of unread data; -1 if they are not in memory, where a read might block. */
static int64_t unread_size(int fd) {
    struct stat st;
    return fs_system.fcntl(fd, F_GET_SEALS, 0) >= 0 && fs_system.fstat(fd, &st) == 0 ? (int64_t)st.st_size : -1;
}

void fs_send_fall_back(struct fs_connection *c, struct fs_sender *sender, int held) {
    if (fs_moved(c) & FS_SENDING_BACK) return;
    fs_begin_sending_step(sender);
    fs_change_sending(c, sender, held && !sender->fin_sent ? FS_EV_SEND_BACK_HELD : FS_EV_SEND_BACK);
    if (!sender->fin_sent) {
        /* SYNC: end of stream - by fs_post_fin. */
        fs_post_fin(&c->ring, sender, FS_BACK);
        fs_notify_receiver(c, sender, fs_peer_doorbell(&c->ring) & (FS_ASLEEP | FS_SET_ASLEEP));
    }
    fs_end_sending_step(sender);
    fs_wake_local(c); /* senders of this side that sleep until credits come */
}

void fs_answer_fallback(struct fs_connection *c, struct fs_sender *sender) {
    /* SYNC: left - pairs with fs_revoke_consent. */
    if (fs_is_attached(c) && fs_load_sc(&c->ring.tx->ready) == FS_LEFT) fs_send_fall_back(c, sender, 1);
}

/* Not while the peer's fallback is unsettled, because the bytes that it wants again come first. A peer that falls back from here on gets
 * nothing again. */
int fs_send_resumes_in_kernel(struct fs_connection *c, struct fs_sender *sender) {
    if (!fs_refuse_revocation(c, 0)) return 1;
    /* Not fin_sent, which BACK has set. After a FIN nothing more is sent. */
    if (fs_load_sc(&c->ring.tx->settled) == FS_UNSETTLED && (fs_load_sc(&c->ring.tx->fin) & FS_FIN_KIND) != FS_FIN)
        fs_change_sending(c, sender, FS_EV_HOLD);
    return !fs_send_is_held(c, sender);
}

/* After a half-close the end of the peer's stream says nothing. */
int fs_fallback_peer_ended(struct fs_connection *c) {
    enum fs_liveness liveness = fs_liveness(c);
    return liveness == FS_OVER || (liveness == FS_STREAM_ENDED && (fs_load_sc(&c->ring.rx->fin) & FS_FIN_KIND) != FS_FIN);
}

int fs_send_is_held(struct fs_connection *c, struct fs_sender *sender) {
    if (!(fs_moved(c) & FS_SENDING_HELD)) return 0;
    /* SYNC: settled - pairs with fs_settle_go_on. */
    if (fs_load_sc(&c->ring.tx->settled) == FS_UNSETTLED) {
        if (!c->held_since) c->held_since = fs_now();
        if (!fs_fallback_peer_ended(c) && fs_now() - c->held_since < HELD_TIME) return 1;
        fs_settle_refused(c);
    }
    fs_change_sending(c, sender, FS_EV_RELEASE);
    return 0;
}

void fs_resend_unread(struct fs_connection *c, int unread_data) {
    int64_t size = unread_size(unread_data);
    if (!(0 < size && size <= FS_UNREAD_DATA_MAX)) return;
    char *bytes = fs_system.malloc((size_t)size);
    if (!bytes) return;
    int read = fs_system.pread(unread_data, bytes, (size_t)size, 0) == size;
    struct fs_sender *sender = read ? fs_lock_send_within(c, RESEND_PATIENCE) : NULL;
    if (sender) {
        fs_answer_fallback(c, sender);
        fs_begin_sending_step(sender);
        /* give_back may have stopped waiting. */
        if (fs_is_attached(c) && fs_moved(c) & FS_SENDING_BACK && fs_load_sc(&c->ring.tx->ready) == FS_LEFT &&
            fs_settle_resending(c)) {
            int64_t sent = fs_send_kernel(c, bytes, (size_t)size, MSG_NOSIGNAL);
            fs_settle_resent(c, (uint32_t)(sent > 0 ? sent : 0));
            fs_change_sending(c, sender, FS_EV_RELEASE);
        }
        fs_end_sending_step(sender);
        fs_unlock_send(sender);
        fs_wake_local(c);
        fs_wake_peer_all(c);
    }
    fs_system.free(bytes);
}
