/* How a connection gets its region, and how its descriptor is handed out.
 *
 * Responsible for: that what is received and sent meanwhile is counted on one side or the other, and that a descriptor
 * that somebody polls is readable exactly while something waits. Never: maps the region, or decides whether a
 * connection is to move. */
#include "connection/move.h"

#include "connection/hear.h"
#include "connection/leave.h"
#include "connection/ringing.h"
#include "connection/state.h"
#include "connection/turns.h"
#include "registry/memory.h"
#include "transport/options.h"
#include "transport/tcp.h"

#define EXPOSE_NS ((int64_t)20000000) /* that the peer gets to ring for a descriptor that was handed out */

int fs_attach(struct fs_connection *c, void *memory, size_t size, int side, int wake_fd, int peer_fd,
              const struct fs_manner *manner, const char **wrong) {
    struct fs_vi vi;
    *wrong = fs_vi_attach(&vi, memory, size, side);
    if (*wrong) return -EINVAL;
    uint32_t most = FS_MAX(vi.window - 1, 1u);
    /* (A small buffer waits for no others.) */
    vi.ack_threshold = c->receive_limit ? 1 : FS_MIN(manner->ack_threshold, most);
    vi.combine_limit = manner->combine_limit;
    if (!manner->combine_when_full) vi.combine_from = (uint32_t)-1;
    vi.own = c->own;
    uint64_t *ends = fs_new_block(fs_ends_size(vi.window));
    if (!ends) return -ENOMEM;
    void *given = fs_let_go();
    uint64_t taken;
    /* In both turns: what other threads receive and send meanwhile must be counted on one side or the other. */
    struct fs_both both = fs_lock_both(c);
    /* (A thread that is about to shut the sending direction found no region for its FIN: see fs_shut.) */
    int counted = fs_load_sc(&c->own->holders) == 1 && !fs_load_relaxed(&c->is.shut_sending) &&
                  fs_count_received(c, &taken);
    if (counted) {
        vi.oob_inline = fs_option(c->fd, SOL_SOCKET, SO_OOBINLINE);
        both.sender->ends = ends;
        fs_store_relaxed(&both.receiver->kernel_taken, taken);
        fs_vi_become(&c->vi, &vi);
        fs_limit_sends(&c->vi, both.sender, c->send_limit);
        memcpy(c->region_id, vi.region->id, 16);
        c->wake_fd = wake_fd;
        c->peer_fd = peer_fd;
        fs_store_relaxed(&c->nodelay, fs_option(c->fd, IPPROTO_TCP, TCP_NODELAY) != 0);
        fs_note_attached(c);
        fs_keep_receive_buffer(c, both.receiver);
        /* A thread that sleeps on the kernel's descriptor knows nothing of the eventfd: ring it there.
         * SYNC: exposed - pairs with fs_note_exposed. */
        if (fs_load_sc(&c->is.exposed) || fs_load_sc(&c->recv_sleepers)) fs_or_sc(&c->vi.rx->doorbell, FS_EXPOSED);
        fs_store_sc(&c->vi.rx->limit, c->receive_limit);
        /* SYNC: consent - pairs with fs_try_send: the peer that sees it finds our doorbell state and limit. */
        fs_store_sc(&c->vi.rx->ready, FS_READY);
    }
    fs_unlock_both(both);
    fs_take_again(given);
    if (!counted) {
        fs_free_block(ends, fs_ends_size(vi.window));
        return -ENOTCONN;
    }
    return 0;
}

int fs_count_received(struct fs_connection *c, uint64_t *taken) {
    for (;;) {
        uint64_t sent, before, after, waiting;
        int64_t mark;
        char state;
        if (!fs_tcp_bytes(c->fd, &state, &sent, &before) || !fs_kernel_waiting(c->fd, &waiting, &mark)) return 0;
        if (!fs_tcp_bytes(c->fd, &state, &sent, &after) || state != FS_TCP_ESTABLISHED) return 0;
        if (before == after) { /* nothing came between the two counts */
            *taken = after - waiting;
            return 1;
        }
    }
}

int fs_expose(struct fs_connection *c) {
    if (fs_is_driven(c) || fs_is_told_exposed(c)) return 0;
    fs_note_exposed(c);
    if (!fs_load_sc(&c->is.attached)) return 0;
    void *given = fs_let_go();
    /* What was posted before was posted without a doorbell byte. Only the peer can put one into our queue. */
    int lacks = fs_tell_exposed(c);
    if (lacks > 0) lacks = fs_lacks_doorbell_byte(c);
    fs_take_again(given);
    return lacks;
}

void fs_await_doorbell_byte(struct fs_connection *c) {
    int64_t deadline = fs_now() + EXPOSE_NS;
    while (fs_lacks_doorbell_byte(c) && fs_now() < deadline) {
        /* (The byte is an event, unless bytes of the kernel's part lie in front of it.) */
        if (fs_events_within(c->fd, POLLIN, 1)) sched_yield();
        else fs_ask_peer(c, -1); /* the request may have found no room; one too many does no harm */
    }
}

void fs_point_to(struct fs_connection *c, int fd) {
    /* While they are waited for, another thread may decide otherwise, or end the connection: the last decision counts,
     * whoever acts on it. */
    fs_store_relaxed(&c->number, (uint32_t)fd);
    void *given = fs_let_go();
    struct fs_both both = fs_lock_both(c);
    c->fd = (int)fs_load_relaxed(&c->number);
    fs_end_both(c, both);
    fs_take_again(given);
    fs_wake_own(c);
    if (fs_calls_inside(c) > 1) fs_tell_of_number();
}
