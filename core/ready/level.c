/* What a connection is ready for now, in memory and in the kernel.
 *
 * Responsible for: one answer of both. Never: says who is told it, or has a lock of a poller. */
#include "ready/level.h"

#include "conn/peer_status.h"
#include "conn/readiness.h"
#include "conn/receive.h"

/* poll's names are epoll's, but for the types. A kernel that resets a connection stores the error first and the end after it, and wakes
 * who sleeps after both. The ring may have shown the end before: who looks between the two asks once more. */
static uint32_t ask_kernel(struct fs_connection *c) {
    uint32_t found = 0;
    for (int asked = 0; asked < 2 && (!asked || (found & (EPOLLERR | EPOLLHUP)) == EPOLLERR); asked++)
        found = (unsigned short)fs_poll_events_now(fs_fd(c), POLLIN | POLLOUT | POLLPRI | POLLRDHUP | POLLRDBAND);
    return found;
}

/* A FIN in the ring is what the kernel's FIN says after it: one event, as in the kernel. It comes after all bytes: who is told of it, and
 * then receives less than it asked for, has all of them. (haproxy reads no more then.) */
static int stream_ends(struct fs_connection *c) {
    return (fs_load_sc(&c->ring.rx->fin) & FS_FIN_KIND) == FS_FIN && fs_kernel_part_came(c);
}

/* A peer that was killed with bytes of ours unread: they lay in the ring, where its kernel did not see them, which would have reset the
 * connection. */
static int died_unread(struct fs_connection *c) { return fs_peer_is_lost(c) && !fs_load_sc(&c->ring.rx->fin) && fs_left_unread(&c->ring); }

/* A peer that has closed with bytes of ours unread there, of which its kernel did not see one. */
static int closed_unread(struct fs_connection *c) {
    return !c->stream->resets && (fs_load_sc(&c->ring.rx->fin) & FS_FIN_KIND) == FS_RESET && !fs_load_relaxed(&c->is.death_told);
}

void fs_level_read(struct fs_level *l) {
    struct fs_connection *c = l->c;
    int attached = fs_is_attached(c), hides = fs_pollout_is_ours(c), asks = l->asks || !attached, in = 0, out = 0;
    uint32_t kernel = 0;
    l->found = 0;
    l->asks = l->no_room = 0;
    if (fs_has_ended(c)) return;
    int died = attached && fs_look_for_death(c); /* (what the kernel has said before is too old then) */
    if (l->told && !died) kernel = l->kernel;
    else if (died || asks || (l->wanted & FS_OUT_ROOM && !hides)) kernel = ask_kernel(c);
    if (!kernel && attached && fs_peer_is_gone(c)) kernel = ask_kernel(c); /* room and the error after it are one event */
    if (kernel & FS_ENDINGS && attached && fs_check_peer_lost(c) && died_unread(c)) {
        kernel |= EPOLLHUP;
        if (!fs_load_relaxed(&c->is.death_told)) kernel |= EPOLLERR;
    }
    if (kernel & EPOLLHUP && attached && closed_unread(c)) kernel |= EPOLLERR;
    int broken = (kernel & (EPOLLHUP | EPOLLERR)) != 0;
    if (l->wanted & FS_IN) {
        in = broken || (attached ? fs_recv_ready(c) : (kernel & EPOLLIN) != 0);
        if (!in && kernel & EPOLLIN) in = fs_recv_ready_after_kernel(c);
    }
    if (l->wanted & FS_OUT_ROOM) out = broken || (hides ? fs_send_ready(c) : (kernel & EPOLLOUT) != 0);
    l->no_room = l->wanted & FS_OUT_ROOM && !hides && !out;
    if (attached && stream_ends(c)) {
        l->found |= (l->wanted & EPOLLRDHUP) | (fs_load_relaxed(&c->is.shut_sending) ? (uint32_t)EPOLLHUP : 0);
        in = 1; /* (the last bytes may have come since the kernel was asked: with the end there is always something to receive) */
    }
    if (in) l->found |= l->wanted & FS_IN;
    if (out) l->found |= l->wanted & FS_OUT_ROOM;
    l->found |= kernel & (l->wanted | EPOLLHUP | EPOLLERR) & ~(uint32_t)(FS_IN | FS_OUT_ROOM);
    /* (What of the kernel's part is there stays until the program reads it.) */
    l->asks = !attached || kernel & (FS_ENDINGS | EPOLLPRI) || (kernel & EPOLLIN && !fs_receives_on_ring(c));
}

int fs_level_arm(struct fs_level *l, int *late) {
    struct fs_connection *c = l->c;
    if (!fs_is_attached(c)) return 0; /* the kernel reports changes */
    int receives = (l->wanted & (FS_IN | EPOLLRDHUP)) != 0;
    int sends = l->wanted & FS_OUT_ROOM && fs_pollout_is_ours(c) && !fs_send_ready(c);
    int there = fs_arm_for_set(c, receives, sends);
    if (sends && fs_waits_for_fallback(c)) *late = FS_MAY_DIE; /* or it settles nothing, and is waited for no longer then */
    /* (What comes in front of the end is an event for an instance, and may be none for poll: it looks again.) */
    if ((fs_eof_inconclusive(c) || !fs_receives_on_ring(c)) && fs_sends_on_ring(c) && fs_peer_has_unread(&c->ring)) {
        *late = FS_MAY_DIE;
        if (fs_eof_is_hidden(c)) there |= fs_probe_for_set(c);
    }
    return there;
}
