/* Edges (edge.h).
 *
 * Responsible for: what counts as an arrival, in the ring and in the kernel. Never: who is told (scan.c). */
#include "ready/edge.h"

#include "conn/state.h"

/* (What is read meanwhile moves the mark on, and is no arrival. An open descriptor grows with what is combined.) */
int fs_advance_mark(struct fs_connection *c, struct fs_mark *mark) {
    struct fs_mark now = {.number = mark->number};
    if (!fs_is_attached(c)) return 0;
    uint32_t consumed = fs_load_relaxed(&fs_own(c)->receiver.consumed);
    if ((int32_t)(consumed - now.number) > 0) now.number = consumed;
    for (uint32_t left = c->ring.window; left; left--) {
        uint64_t commit = fs_load_sc(&fs_descriptor_at(&c->ring, c->ring.rx, now.number)->commit);
        if (FS_COMMIT_SEQ(commit) != now.number + 1) break;
        now.number++;
    }
    if (now.number != consumed) now.length = FS_COMMIT_LEN(fs_load_sc(&fs_descriptor_at(&c->ring, c->ring.rx, now.number - 1)->commit));
    uint64_t fin = fs_load_sc(&c->ring.rx->fin);
    now.fin = (fin & FS_FIN_KIND) == FS_RESET ? 0 : fin; /* (the kernel's RST is the event) */
    int more = now.number != mark->number || now.fin != mark->fin || (now.length && mark->length && now.length != mark->length);
    *mark = now;
    return more;
}

int fs_is_kernel_edge(const struct fs_member *m, uint32_t events) {
    struct fs_connection *c = fs_load_relaxed(&m->it->c);
    uint32_t news = ((EPOLLPRI | FS_ENDINGS) & ~m->endings) | (m->kernel_room ? (uint32_t)EPOLLOUT : 0);
    if (!c || !fs_is_attached(c) || !fs_receives_on_ring(c)) news |= FS_IN;
    return (events & news) != 0;
}
