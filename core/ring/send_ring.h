/* The sending half of a ring pair: credits, arena space, and posted descriptors. Theory: ring.h. */
#pragma once

#include "os/pieces.h"
#include "ring/stream_end.h"
#include "ring/ring.h"

/* Returns the unread bytes that TCP would hold with these socket buffer sizes; 0 if neither is set. */
static inline uint32_t fs_unread_limit(uint32_t send_buffer, uint32_t receive_buffer) {
    const uint32_t unset = 196608; /* what the kernel adds with tcp_rmem's usual default */
    if (!send_buffer && !receive_buffer) return 0;
    uint64_t sum = (uint64_t)(send_buffer ? send_buffer : unset) + (receive_buffer ? receive_buffer : unset);
    return sum < UINT32_MAX ? (uint32_t)sum : UINT32_MAX;
}

/* Processes the peer's ACKs, alone or carried by DATA. Returns 0, or FS_VIOLATION. */
static inline int fs_update_credits(struct fs_ring_pair *ring, struct fs_sender *sender) {
    /* SYNC: payload free - pairs with fs_send_ack and with the ACK in fs_post. */
    uint32_t alone = fs_load_sc(&ring->tx->acked);
    /* SYNC: ack seen - pairs with fs_ring_recv. */
    uint32_t carried = fs_load_acquire(&ring->own->receiver.ack_seen);
    sender->limit = fs_unread_limit(sender->send_limit, fs_load_relaxed(&ring->tx->limit));
    uint32_t acked = (int32_t)(carried - alone) > 0 ? carried : alone;
    if ((int32_t)(alone - carried) > 1 << 20)
        /* Numbers wrap: the older one must not fall far behind. */
        fs_cas32(&ring->own->receiver.ack_seen, carried, alone);
    uint32_t in_flight = fs_in_flight(sender), fresh = acked - (fs_load_own32(&sender->posted) - in_flight);
    if (fresh == 0) return 0;
    if (fresh > in_flight) { /* also an ACK that runs backwards */
        ring->violation = "ACK of a descriptor never posted";
        return FS_VIOLATION;
    }
    if (sender->overflow_use == FS_OVERFLOW_NOW) sender->overflow_use = FS_OVERFLOW_LATER;
    fs_store_relaxed(&sender->credited, acked); /* lock-free readers look again with the lock held */
    if (acked == fs_load_own32(&sender->posted)) {
        sender->head = sender->tail = sender->limited_from = 0; /* all read: start again where the cache is warm */
        sender->is_open = 0;
    } else {
        sender->tail = sender->ends[(acked - 1) & ring->mask];
    }
    return 0;
}

/* Returns the payload bytes that the sender may still add: the arena's, or less if a socket buffer size was set. */
static inline uint64_t fs_arena_room(const struct fs_ring_pair *ring, const struct fs_sender *sender) {
    uint64_t used = sender->head - sender->tail, space = used < ring->arena ? ring->arena - used : 0;
    if (!sender->limit || sender->limit >= ring->arena) return space;
    /* Earlier payload may be read and wait for a delayed ACK: see fs_set_send_limit. */
    if (sender->limited_from > sender->tail) used = sender->head - sender->limited_from;
    uint64_t rest = used < sender->limit ? sender->limit - used : 0;
    return rest < space ? rest : space;
}

/* SO_SNDBUF was set. A sender without a limit waits for credits or for the arena, and delayed ACKs never stop it. They may stop one with
 * a limit, so the receiver acknowledges each descriptor posted from here on. */
static inline void fs_set_send_limit(struct fs_ring_pair *ring, struct fs_sender *sender, uint32_t send_buffer) {
    sender->send_limit = send_buffer;
    sender->limited_from = sender->head;
    if (send_buffer) fs_store_relaxed(&ring->tx->limited, 1); /* ordered by the post's commit word */
}

/* Returns true if a position is in an overflow buffer. Those positions follow the arena's. */
static inline int fs_in_overflow(const struct fs_ring_pair *ring, uint32_t at) { return at >= ring->arena; }

/* Returns the end of the part that contains this position: no payload spans two parts. */
static inline uint32_t fs_segment_end(const struct fs_ring_pair *ring, uint32_t at) {
    if (fs_in_overflow(ring, at)) return at - (at - ring->arena) % FS_OVERFLOW_SIZE + FS_OVERFLOW_SIZE;
    return at < ring->near ? ring->near : ring->arena;
}

/* Returns a descriptor's `offset` for an arena position: the bytes from the arena's beginning. */
static inline uint32_t fs_payload_offset(const struct fs_ring_pair *ring, uint32_t at) {
    if (fs_in_overflow(ring, at)) return at - ring->arena + ring->tx_overflow;
    return at < ring->near ? at : at + ring->tx_gap;
}

/* Returns the bytes that an overflow buffer takes: all, or less where SO_SNDBUF, which the kernel does not exceed either, says so. */
static inline uint32_t fs_overflow_room(const struct fs_ring_pair *ring, const struct fs_sender *sender) {
    if (!sender->send_limit) return FS_OVERFLOW_SIZE;
    uint32_t beyond = sender->limit > ring->arena ? sender->limit - ring->arena : 0;
    return beyond < FS_OVERFLOW_SIZE ? beyond : FS_OVERFLOW_SIZE;
}

/* Returns the number of overflow buffers usable now, and sets `*at` to the position of one. None is used where the last quarter of the
 * window combines nothing (for measurements). */
static inline uint32_t fs_free_overflows(const struct fs_ring_pair *ring, const struct fs_sender *sender, uint32_t *at) {
    uint32_t count = 0;
    if (ring->combine_from > ring->window || !fs_in_flight(sender) || !fs_overflow_room(ring, sender)) return 0;
    for (uint32_t i = 0; i < FS_OVERFLOWS; i++) {
        if (sender->overflows[i] - 1 - fs_load_own32(&sender->credited) < fs_in_flight(sender)) continue;
        *at = ring->arena + i * FS_OVERFLOW_SIZE;
        count += 1;
    }
    return count;
}

/* Reserves up to `want` contiguous arena bytes at the head. Sets `*at` to their position. Returns the number granted, 0 without room. */
static inline uint32_t fs_arena_reserve(struct fs_ring_pair *ring, struct fs_sender *sender, uint32_t want, uint32_t *at) {
    uint64_t space = fs_arena_room(ring, sender);
    *at = (uint32_t)(sender->head % ring->arena);
    uint32_t run = fs_segment_end(ring, *at) - *at;
    /* A payload that does not fit skips a short rest before the far part or the wrap, and uses a long one. (There may be two: the rest
     * of the far part, then a near part that is too small.) */
    while (run < want && run < 4096) {
        if (space <= run) return 0;
        sender->head += run;
        space -= run;
        *at = *at < ring->near ? ring->near : 0;
        run = fs_segment_end(ring, *at) - *at;
    }
    uint32_t granted = want < run ? want : run;
    if (granted > space) {
        if (space < 4096 && space < ring->chunk / 2 && fs_in_flight(sender)) return 0; /* no tiny payloads */
        granted = (uint32_t)space;
    }
    return granted;
}

static inline uint64_t fs_round_to_line(uint64_t bytes) { return (bytes + FS_LINE - 1) & ~(uint64_t)(FS_LINE - 1); }

/* Returns the total bytes that the open descriptor can hold. */
static inline uint64_t fs_open_capacity(const struct fs_ring_pair *ring, const struct fs_sender *sender) {
    if (fs_in_overflow(ring, sender->open_at)) return fs_overflow_room(ring, sender);
    uint64_t cap = ring->chunk, room = fs_arena_room(ring, sender) + fs_round_to_line(sender->open_length);
    uint32_t end = fs_segment_end(ring, sender->open_at);
    if (cap > end - sender->open_at) cap = end - sender->open_at;
    return cap < room ? cap : room;
}

/* Returns true if an open overflow buffer takes more. (If the receiver has claimed it, the next post finds out.) */
static inline int fs_overflow_is_open(const struct fs_ring_pair *ring, const struct fs_sender *sender) {
    return sender->is_open && fs_in_overflow(ring, sender->open_at) && sender->open_length < fs_open_capacity(ring, sender);
}

/* Combining: appends as much as fits to the open descriptor. Returns the bytes added; 0 if none is open or it was claimed. */
static inline __attribute__((always_inline)) uint32_t fs_append(struct fs_ring_pair *ring, struct fs_sender *sender, struct fs_source from,
                                                               uint32_t length) {
    uint32_t number = fs_load_own32(&sender->posted) - 1, old = sender->open_length;
    uint64_t cap = fs_open_capacity(ring, sender);
    if (cap <= old) return 0;
    if (length > cap - old) length = (uint32_t)(cap - old);
    fs_copy_from(ring->tx_arena + fs_payload_offset(ring, sender->open_at) + old, from, length);
    struct fs_descriptor *d = fs_descriptor_at(ring, ring->tx, number);
    /* SYNC: payload visible - pairs with fs_read_descriptor. Fails if the receiver claimed the descriptor. */
    if (!fs_cas64(&d->commit, FS_COMMIT(number + 1, old, FS_DATA, FS_OPEN),
                      FS_COMMIT(number + 1, old + length, FS_DATA, FS_OPEN))) {
        sender->is_open = 0;
        return 0;
    }
    sender->open_length = old + length;
    if (!fs_in_overflow(ring, sender->open_at)) {
        sender->head += fs_round_to_line(old + length) - fs_round_to_line(old); /* the open descriptor is the newest */
        sender->ends[number & ring->mask] = sender->head;
    }
    fs_count(&ring->count.sends_combined, 1);
    fs_count(&ring->count.bytes_sent, length);
    return length;
}

/* Ends combining. The receiver may have claimed the descriptor or not; nobody appends any more. */
static inline void fs_seal(struct fs_ring_pair *ring, struct fs_sender *sender) {
    if (!sender->is_open) return;
    uint32_t number = fs_load_own32(&sender->posted) - 1;
    fs_cas64(&fs_descriptor_at(ring, ring->tx, number)->commit,
                 FS_COMMIT(number + 1, sender->open_length, FS_DATA, FS_OPEN),
                 FS_COMMIT(number + 1, sender->open_length, FS_DATA, FS_SEALED));
    sender->is_open = 0;
}

/* Posts the first of `length` bytes, at most one descriptor's worth. Returns the bytes posted, 0 without credit or room, or FS_VIOLATION.
 * The caller then asks fs_peer_doorbell. `combine`: this send is small enough and may be combined. */
static inline __attribute__((always_inline)) int64_t fs_post_from(struct fs_ring_pair *ring, struct fs_sender *sender,
                                                                  struct fs_source from, size_t length, int combine) {
    /* The last quarter of the window is always combined: where TCP would buffer a burst of small sends, the ring must not block after w
     * of them. Nothing is delayed, since a starved receiver claims the open descriptor. */
    if (fs_in_flight(sender) >= ring->combine_from) combine = 1;
    if (sender->is_open) {
        if (combine || (fs_in_overflow(ring, sender->open_at) && sender->overflow_use != FS_OVERFLOW_LATER)) {
            uint32_t added = fs_append(ring, sender, from, length < ring->chunk ? (uint32_t)length : ring->chunk);
            if (added) return added;
        }
        fs_seal(ring, sender);
    }
    if (fs_in_flight(sender)) {
        if (fs_update_credits(ring, sender) < 0) return FS_VIOLATION;
        if (fs_in_flight(sender) >= ring->window) return 0;
    }
    uint32_t number = fs_load_own32(&sender->posted);
    struct fs_descriptor *d = fs_descriptor_at(ring, ring->tx, number);
    uint32_t part = length < ring->chunk ? (uint32_t)length : ring->chunk;
    uint32_t state = FS_INLINED;
    int open = combine && fs_in_flight(sender);
    if (part > FS_INLINE || open) {
        /* The last descriptors of the window are kept for the overflow buffers, as is one without room in the arena. Each takes all that
         * comes. */
        uint32_t at = 0, overflow_at = 0, overflows = fs_free_overflows(ring, sender, &overflow_at);
        uint32_t granted = fs_in_flight(sender) + overflows < ring->window ? fs_arena_reserve(ring, sender, part, &at) : 0;
        if (!granted && overflows && sender->overflow_use != FS_OVERFLOW_LATER) granted = at = overflow_at;
        if (!granted) return 0;
        int in_overflow = fs_in_overflow(ring, at);
        uint32_t most = in_overflow ? fs_overflow_room(ring, sender) : granted;
        if (part > most) part = most;
        uint32_t offset = fs_payload_offset(ring, at);
        fs_copy_from(ring->tx_arena + offset, from, part);
        d->offset = offset;
        state = FS_SEALED;
        if (in_overflow) sender->overflows[(at - ring->arena) / FS_OVERFLOW_SIZE] = number + 1;
        else sender->head += fs_round_to_line(part);
        if (in_overflow || (open && part == length)) {
            state = FS_OPEN;
            sender->open_at = at;
            sender->open_length = part;
        }
    } else {
        fs_copy_from(d->inlined, from, part);
    }
    sender->ends[number & ring->mask] = sender->head;
    /* SYNC: consumed - the receiving threads' reads of the other arena happen before this ACK is sent. */
    uint32_t consumed = fs_load_acquire(&ring->own->receiver.consumed);
    d->ack = consumed;
    if (consumed != fs_load_relaxed(&ring->own->receiver.acknowledged)) {
        fs_store_relaxed(&ring->own->receiver.acknowledged, consumed);
        fs_count(&ring->count.acks_piggybacked, 1);
    }
    fs_store_relaxed(&sender->posted, number + 1);
    /* SYNC: payload visible - pairs with fs_read_descriptor. Sequentially consistent because fs_peer_doorbell follows: either the arming
     * receiver sees this descriptor or this side sees it armed. */
    fs_store_sc(&d->commit, FS_COMMIT(number + 1, part, FS_DATA, state));
    sender->is_open = state == FS_OPEN; /* set after the commit word: see ring_recovery.h */
    fs_count(&ring->count.messages_sent, 1);
    fs_count(&ring->count.bytes_sent, part);
    return part;
}

/* The same for one buffer. */
static inline int64_t fs_post(struct fs_ring_pair *ring, struct fs_sender *sender, const char *data, size_t length, int combine) {
    return fs_post_from(ring, sender, (struct fs_source){.data = data}, length, combine);
}

/* Packet FIN (FS_FIN, FS_RESET or FS_BACK). Needs no credit. */
static inline void fs_post_fin(struct fs_ring_pair *ring, struct fs_sender *sender, uint64_t kind) {
    fs_seal(ring, sender);
    fs_set_stream_end(ring, sender, kind);
}

/* Returns the receiver's doorbell state after a post, bits of enum fs_doorbell. */
static inline uint32_t fs_peer_doorbell(const struct fs_ring_pair *ring) { return fs_load_sc(&ring->tx->doorbell); }

/* Returns true if the peer has not read all that this side has posted. Its line is the peer's own: not for the data path. */
static inline int fs_peer_has_unread(const struct fs_ring_pair *ring) {
    return fs_load_relaxed(&ring->tx->seen) != fs_load_own32(&ring->own->sender.posted);
}

/* Returns the bytes that it has not read. (A part of a descriptor that it has read counts.) */
static inline int64_t fs_peer_unread(const struct fs_ring_pair *ring) {
    uint32_t posted = fs_load_own32(&ring->own->sender.posted), number = fs_load_relaxed(&ring->tx->seen);
    int64_t bytes = 0;
    if (posted - number > ring->window) return 0; /* (a peer that lies is told nothing by it) */
    for (; number != posted; number++) bytes += FS_COMMIT_LEN(fs_load_relaxed(&fs_descriptor_at(ring, ring->tx, number)->commit));
    return bytes;
}

/* Returns true if a receiver that died left bytes of this side unread. */
static inline int fs_left_unread(const struct fs_ring_pair *ring) { return !fs_load_sc(&ring->rx->fin) && fs_peer_has_unread(ring); }
