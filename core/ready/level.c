/* What a connection is ready for now, in memory and in the kernel.
 *
 * Responsible for: one answer of both. Never: says who is told it, or has a lock of a poller. */
#include "ready/level.h"

#include "connection/drive.h"
#include "connection/lifeline.h"
#include "connection/ready.h"
#include "connection/leave.h"
#include "ready/poller.h"

/* poll's names are epoll's, but for the types. */
static uint32_t ask_kernel(struct fs_connection *c) {
    return (unsigned short)fs_events_now(fs_fd(c), POLLIN | POLLOUT | POLLPRI | POLLRDHUP | POLLRDBAND);
}

/* A FIN in the ring is what the kernel's FIN says behind it: one event, as in the kernel. */
static int stream_ends(struct fs_connection *c) { return (fs_load_sc(&c->vi.rx->fin) & FS_FIN_KIND) == FS_FIN; }

/* A peer that was killed with bytes of ours unread: they lay in the ring, where its kernel did not see them, which would have reset the connection. */
static int died_unread(struct fs_connection *c) { return fs_is_lost(c) && !fs_load_sc(&c->vi.rx->fin) && fs_left_unread(&c->vi); }

void fs_look_at_level(struct fs_level *l) {
    struct fs_connection *c = l->c;
    int attached = fs_is_attached(c), hides = fs_hides_room(c), asks = l->asks || !attached, in = 0, out = 0;
    uint32_t kernel = 0;
    l->found = 0;
    l->asks = l->no_room = 0;
    if (fs_has_ended(c)) return;
    if (l->told) kernel = l->kernel;
    else if (asks || (l->wanted & FS_OUT_ROOM && !hides)) kernel = ask_kernel(c);
    if (kernel & FS_ENDINGS && attached && fs_peer_lost(c) && died_unread(c)) {
        kernel |= EPOLLHUP;
        if (!fs_load_relaxed(&c->is.death_told)) kernel |= EPOLLERR;
    }
    int broken = (kernel & (EPOLLHUP | EPOLLERR)) != 0;
    if (l->wanted & FS_IN) {
        in = broken || (attached ? fs_has_bytes(c) : (kernel & EPOLLIN) != 0);
        if (!in && kernel & EPOLLIN) in = fs_has_bytes_after_all(c);
    }
    if (l->wanted & FS_OUT_ROOM) out = broken || (hides ? fs_has_room(c) : (kernel & EPOLLOUT) != 0);
    l->no_room = l->wanted & FS_OUT_ROOM && !hides && !out;
    if (in) l->found |= l->wanted & FS_IN;
    if (out) l->found |= l->wanted & FS_OUT_ROOM;
    if (attached && stream_ends(c)) l->found |= l->wanted & EPOLLRDHUP;
    l->found |= kernel & (l->wanted | EPOLLHUP | EPOLLERR) & ~(uint32_t)(FS_IN | FS_OUT_ROOM);
    /* (Doorbell bytes were taken by the look. What of the kernel's part is there stays until the program reads it.) */
    l->asks = !attached || kernel & (FS_ENDINGS | EPOLLPRI) || (kernel & EPOLLIN && !fs_receives_on_ring(c));
}

int fs_glance(struct fs_connection *c, uint32_t wanted) {
    if (wanted & ~(uint32_t)(FS_IN | EPOLLPRI | EPOLLHUP | EPOLLERR) || !fs_receives_on_ring(c)) return 0;
    if (fs_load_relaxed(&c->is.pending_error) || fs_load_relaxed(&c->vi.rx->urgent)) return 0;
    if (wanted & FS_IN && fs_waiting(&c->vi)) return 1;
    if (fs_load_relaxed(&fs_own(c)->receiver.fin_taken) || fs_load_sc(&c->vi.rx->fin)) return 0;
    return -1;
}

int fs_arm_level(struct fs_level *l, int *late) {
    struct fs_connection *c = l->c;
    if (!fs_is_attached(c)) return 0; /* the kernel tells of changes */
    int receives = (l->wanted & (FS_IN | EPOLLRDHUP)) != 0;
    int sends = l->wanted & FS_OUT_ROOM && fs_hides_room(c) && !fs_has_room(c);
    int there = fs_arm_for_loop(c, receives, sends);
    if (sends && !there && fs_hides_death(c)) {
        *late = FS_MAY_DIE;
        there = fs_probe_driven_peer(c);
    }
    return there;
}
