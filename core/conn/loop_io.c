/* Support for a loop-driven connection: the loop reads the kernel's stream, and waits.
 *
 * Responsible for: where in the stream the bytes are that the loop has read; when a direction moves under a loop. Never: reads or writes
 * the descriptor, or waits for anything but a lock. */
#include "include/fastsock_loop.h"

#include "conn/peer_status.h"
#include "conn/receive.h"
#include "conn/send.h"
#include "conn/side_lock.h"
#include "conn/state.h"
#include "conn/wake.h"

void fs_drive_by_loop(struct fs_connection *c) {
    fs_note_loop_driven(c, 1);
    fs_store_relaxed(&c->nodelay, 0); /* asyncio sets TCP_NODELAY everywhere; combining on the ring delays nothing */
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

int64_t fs_account_read(struct fs_connection *c, uint64_t count, uint64_t *behind) {
    uint64_t data = 0;
    struct fs_receiver *receiver = fs_lock_recv(c);
    /* The bytes were read before this load. Bytes after the switch only ever follow it, so without a switch all bytes are of the kernel's
     * part. (Also after a fallback that began before the peer had attached: no BACK follows there.)
     * SYNC: switch - pairs with fs_switch_sending. */
    uint64_t switch_at = fs_load_sc(&c->ring.rx->switch_at);
    if (!switch_at || !(fs_moved(c) & (FS_RECEIVING_MOVED | FS_RECEIVING_BACK))) {
        uint64_t left = switch_at - 1 - fs_load_relaxed(&receiver->kernel_taken);
        if (switch_at && left > (uint64_t)1 << 62) c->ring.violation = "switch offset in the past";
        /* (Where the kernel does not count, the switch came when nothing was unread: all of these were read before.) */
        data = switch_at && c->stream->counts_bytes ? FS_MIN(left, count) : count;
        if (c->stream->counts_bytes) fs_count(&receiver->kernel_taken, data);
    }
    *behind = count - data;
    if (*behind) {
        uint32_t words = fs_load_sc(&c->ring.rx->doorbell) | fs_load_sc(&c->ring.tx->doorbell);
        int back = fs_peer_is_back(c);
        if (!back && !(words & (FS_SHUT | FS_GONE))) c->ring.violation = "bytes were written past fastsock";
        if (!back) *behind = 0;
    }
    fs_unlock_recv(receiver);
    return c->ring.violation ? FS_VIOLATED : (int64_t)data;
}

size_t fs_bytes_on_ring(struct fs_connection *c, size_t most) { return fs_available(&c->ring, most); }

int fs_has_bytes_on_ring(struct fs_connection *c) { return fs_has_descriptor(&c->ring); }

int fs_has_stream_end(struct fs_connection *c) { return fs_load_relaxed(&c->ring.rx->fin) != 0; }

int fs_ends_with_reset(struct fs_connection *c) { return fs_load_sc(&c->ring.rx->fin) >> 32 == FS_RESET >> 32; }

int fs_peer_is_back(struct fs_connection *c) { return (fs_load_sc(&c->ring.rx->fin) & FS_FIN_KIND) == FS_BACK; }

/* ---- writing ---------------------------------------------------------------------------------------------------- */

int fs_kernel_is_next(struct fs_connection *c) { return !fs_sends_on_ring(c) && !fs_waits_for_fallback(c); }

int fs_may_switch(struct fs_connection *c) {
    /* SYNC: consent - pairs with fs_give_consent. */
    return fs_load_sc(&c->ring.tx->ready) == FS_READY && !(fs_moved(c) & (FS_SENDING_MOVED | FS_SENDING_BACK));
}

int fs_switch_if_ready(struct fs_connection *c) {
    struct fs_sender *sender = fs_lock_send(c);
    if (fs_may_switch(c) && !sender->fin_sent) fs_switch_sending(c, sender);
    fs_unlock_send(sender);
    return fs_sends_on_ring(c);
}
