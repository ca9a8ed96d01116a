/* The virtual interface: posting to and consuming from the two halves of a region.
 *
 * Theory of operation
 *   1. One half has one sender side and one receiver side. A side may be several threads and several forked
 *      processes; they take turns under the side's lock (`struct fs_side`, memory shared with forked children
 *      but never with the peer).
 *   2. The sender owns a descriptor from the moment its credit returned until it stores the commit word; the
 *      receiver owns it from then until its ACK. An OPEN descriptor is owned by whoever next swaps its commit
 *      word: the sender appends (combining), the receiver claims it, so combining never delays a byte.
 *   3. At most w descriptors are posted and not acknowledged. The receiver acknowledges after t consumed
 *      descriptors, before it sleeps, when the sender waits, and with every DATA packet going the other way.
 *   4. Nothing read from the region is trusted: it is read once into a local, checked, then used. A value that
 *      cannot be is a violation: the function returns FS_VIOLATION and vi->violation names it.
 *
 * No function here blocks, allocates or calls into Python.
 */
#ifndef FASTSOCK_RING_H
#define FASTSOCK_RING_H

#include <string.h>

#include "layout.h"
#include "turns.h"

#define FS_VIOLATION (-1)

/* One side's own state of one connection. */
struct fs_side {
    fs_word32 holders;     /* processes that have this connection open */
    fs_word32 children[4]; /* process ids of holders that came by a fork, as many as fit: a killed one is missed */
    struct fs_lock send_lock, recv_lock;
    fs_word32 moved; /* enum fs_moved */
    fs_word32 sleeps; /* FS_SLEEPS_*: some process has gone to sleep since wakeups of that kind were last passed on */
    /* sender */
    uint32_t posted;   /* descriptors posted, ever */
    uint32_t credited; /* of those, acknowledged */
    uint64_t head, tail; /* arena positions: next free byte, oldest byte not acknowledged */
    uint32_t is_open, open_offset, open_length; /* the open descriptor, number posted - 1 */
    uint32_t send_limit; /* SO_SNDBUF, bytes, 0: not set */
    uint64_t limited_from; /* arena position from which on it counts */
    uint32_t limit;      /* bytes that may lie unread at the peer, 0: the arena */
    fs_word32 ack_seen; /* newest piggybacked ACK, stored by the receiving half */
    /* receiver */
    fs_word32 consumed; /* descriptors consumed, ever */
    fs_word32 acknowledged; /* of those, told to the sender */
    fs_word32 taken;     /* bytes taken of descriptor number `consumed`, and its length once it is begun */
    uint32_t begun_length, begun; /* of the descriptor that `taken` is a part of: its length and its number */
    uint32_t oob_waiting;
    unsigned char oob_byte;
    uint32_t doorbell_debt; /* doorbell bytes accounted as heard that had not arrived yet */
    uint64_t kernel_taken;  /* bytes of the kernel's stream consumed so far */
    uint32_t fin_sent;
    fs_word32 fin_taken; /* 1: told as the end, 2: a reset, which the kernel tells */
    uint32_t sending_step, receiving_step; /* 1: in the middle of what cannot be mended, should its process die (mending.pxi) */
    uint64_t *ends; /* by slot: arena position behind the payload of each posted descriptor (a block of its own) */
};

enum fs_sleeps { FS_SLEEPS_RECEIVING = 1, FS_SLEEPS_SENDING = 2 };

enum fs_moved {
    FS_SENDING_MOVED = 1,
    FS_RECEIVING_MOVED = 2,
    FS_SENDING_BACK = 4, /* what is sent goes through the kernel again */
    FS_RECEIVING_BACK = 8,
    FS_SENDING_HELD = 16, /* not yet: the peer that left must first get what it had not read */
    FS_OUT = 32,          /* somebody else reads and writes the descriptor: nothing more is said in the region */
};

struct fs_counters {
    uint64_t bytes_sent, bytes_received, messages_sent, messages_received;
    uint64_t acks_alone, acks_piggybacked, sends_combined, doorbells_rung, polls_paid, polls_unpaid;
};

/* One process's view of one connection. Geometry is copied at attach: the region's own may be mutated. */
struct fs_vi {
    struct fs_region *region;
    size_t size;
    struct fs_side *own;
    struct fs_half *tx, *rx;
    unsigned char *tx_arena, *rx_arena;
    uint32_t window, mask, chunk, arena;
    uint32_t ack_threshold; /* t; 1 acknowledges every descriptor */
    uint32_t combine_limit; /* largest send that is combined, bytes; 0: combining off */
    int oob_inline;
    int side;
    const char *violation;
    struct fs_counters count;
};

static inline struct fs_descriptor *fs_descriptor_at(const struct fs_vi *vi, struct fs_half *half, uint32_t n) {
    return (struct fs_descriptor *)(half + 1) + (n & vi->mask);
}

static inline size_t fs_ends_size(uint32_t window) { return fs_slots(window) * sizeof(uint64_t); }

/* Writes the header into zeroed memory of fs_region_size(window, chunk) bytes. */
static inline void fs_region_format(void *memory, uint32_t window, uint32_t chunk, const unsigned char id[16]) {
    struct fs_region *region = memory;
    region->version = FS_VERSION;
    region->window = window;
    region->slots = fs_slots(window);
    region->chunk = chunk;
    region->arena = window * chunk;
    memcpy(region->id, id, 16);
    region->magic = FS_MAGIC;
}

/* Readies a used region for its next connection: side states back to zero, arenas left as they are. */
static inline void fs_region_recycle(struct fs_region *region, uint32_t window) {
    memset((char *)region + FS_LINE, 0, fs_arena_offset(fs_slots(window), 0, 0) - FS_LINE);
}

/* Fills `vi` for side 0 (seeker) or 1 (publisher). NULL, or what is wrong with the region. */
static inline const char *fs_vi_attach(struct fs_vi *vi, void *memory, size_t size, int side) {
    struct fs_region *region = memory;
    if (size < sizeof(struct fs_region)) return "region shorter than its header";
    uint64_t magic = *(volatile uint64_t *)&region->magic;
    uint32_t version = *(volatile uint32_t *)&region->version;
    uint32_t window = *(volatile uint32_t *)&region->window;
    uint32_t chunk = *(volatile uint32_t *)&region->chunk;
    if (magic != FS_MAGIC) return "region without the magic number";
    if (version != FS_VERSION) return "region of another version";
    if (window < FS_WINDOW_MIN || window > FS_WINDOW_MAX) return "window out of range";
    if (chunk < FS_CHUNK_MIN || chunk > FS_CHUNK_MAX || chunk % FS_LINE) return "chunk size out of range";
    if (size != fs_region_size(window, chunk)) return "region of the wrong size";
    uint32_t slots = fs_slots(window);
    char *halves = (char *)memory + sizeof(struct fs_region);
    struct fs_half *half[2] = {(struct fs_half *)halves, (struct fs_half *)(halves + fs_half_size(slots))};
    memset(vi, 0, sizeof *vi);
    vi->region = region;
    vi->size = size;
    vi->side = side;
    vi->window = window;
    vi->mask = slots - 1;
    vi->chunk = chunk;
    vi->arena = window * chunk;
    vi->tx = half[side];
    vi->rx = half[!side];
    vi->tx_arena = (unsigned char *)memory + fs_arena_offset(slots, vi->arena, side);
    vi->rx_arena = (unsigned char *)memory + fs_arena_offset(slots, vi->arena, !side);
    return NULL;
}

/* ---- sender ---------------------------------------------------------------------------------------- */

/* Unread bytes that TCP would hold with these socket buffer sizes, 0: nobody set any. */
static inline uint32_t fs_limit(uint32_t send_buffer, uint32_t receive_buffer) {
    const uint32_t unset = 131072; /* tcp_rmem's usual default */
    if (!send_buffer && !receive_buffer) return 0;
    uint64_t sum = (uint64_t)(send_buffer ? send_buffer : unset) + (receive_buffer ? receive_buffer : unset);
    return sum < UINT32_MAX ? (uint32_t)sum : UINT32_MAX;
}

/* Takes in the peer's ACKs, those alone and those that came with DATA. 0, or FS_VIOLATION. */
static inline int fs_take_credits(struct fs_vi *vi) {
    struct fs_side *own = vi->own;
    /* SYNC: payload free - pairs with fs_acknowledge and with the ACK in fs_post. */
    uint32_t alone = fs_load_sc(&vi->tx->acked);
    uint32_t carried = fs_load_acquire(&own->ack_seen);
    own->limit = fs_limit(own->send_limit, fs_load_relaxed(&vi->tx->limit));
    uint32_t acked = (int32_t)(carried - alone) > 0 ? carried : alone;
    if ((int32_t)(alone - carried) > 1 << 20)
        fs_swap_if32(&own->ack_seen, carried, alone); /* numbers wrap: the older one must not fall far behind */
    uint32_t fresh = acked - own->credited;
    if (fresh == 0) return 0;
    if (fresh > own->posted - own->credited) { /* also an ACK that runs backwards */
        vi->violation = "ACK of a descriptor never posted";
        return FS_VIOLATION;
    }
    own->credited = acked;
    if (acked == own->posted) {
        own->head = own->tail = own->limited_from = 0; /* all read: start again where the cache is warm */
        own->is_open = 0;
    } else {
        own->tail = own->ends[(acked - 1) & vi->mask];
    }
    return 0;
}

/* Bytes of unread payload the sender may still add: the arena, or less if a socket buffer size was set. */
static inline uint64_t fs_space(const struct fs_vi *vi) {
    const struct fs_side *own = vi->own;
    uint64_t used = own->head - own->tail, space = used < vi->arena ? vi->arena - used : 0;
    if (!own->limit || own->limit >= vi->arena) return space;
    /* What was posted before may be read and wait for its ACK, which nobody hurries: see fs_limit_sends. */
    if (own->limited_from > own->tail) used = own->head - own->limited_from;
    uint64_t rest = used < own->limit ? own->limit - used : 0;
    return rest < space ? rest : space;
}

/* SO_SNDBUF was set. A sender without a limit waits for credits or for the arena, and is never stopped by ACKs that are
 * only delayed; one with a limit may be: the receiver acknowledges each descriptor that is posted from here on. Under
 * the send lock. */
static inline void fs_limit_sends(struct fs_vi *vi, uint32_t send_buffer) {
    vi->own->send_limit = send_buffer;
    vi->own->limited_from = vi->own->head;
    if (send_buffer) fs_store_relaxed(&vi->tx->limited, 1); /* the post's commit word orders it */
}

/* Reserves up to `want` contiguous arena bytes at the head. The number granted, 0 if there is no room. */
static inline uint32_t fs_reserve(struct fs_vi *vi, uint32_t want, uint32_t *offset) {
    struct fs_side *own = vi->own;
    uint64_t space = fs_space(vi);
    uint32_t at = (uint32_t)(own->head % vi->arena);
    uint32_t run = vi->arena - at;
    /* A short rest before the wrap is left out for a payload that does not fit; a long one is used. */
    if (run < want && run < 4096) {
        if (space <= run) return 0;
        own->head += run;
        space -= run;
        at = 0;
        run = vi->arena;
    }
    uint32_t granted = want < run ? want : run;
    if (granted > space) {
        if (space < 4096 && space < vi->chunk / 2 && own->posted != own->credited) return 0; /* no crumbs */
        granted = (uint32_t)space;
    }
    *offset = at;
    return granted;
}

static inline uint64_t fs_rounded(uint64_t bytes) { return (bytes + FS_LINE - 1) & ~(uint64_t)(FS_LINE - 1); }

/* Combining: adds to the open descriptor as much as fits. Bytes added; 0 if there is none or it was claimed. */
static inline uint32_t fs_append(struct fs_vi *vi, const char *data, uint32_t length) {
    struct fs_side *own = vi->own;
    uint32_t number = own->posted - 1, old = own->open_length;
    uint64_t start = own->head - fs_rounded(old); /* of the payload: the open one is the newest */
    uint64_t cap = vi->chunk;
    if (cap > vi->arena - own->open_offset) cap = vi->arena - own->open_offset;
    uint64_t room = fs_space(vi) + fs_rounded(old);
    if (cap > room) cap = room;
    if (cap <= old) return 0;
    if (length > cap - old) length = (uint32_t)(cap - old);
    memcpy(vi->tx_arena + own->open_offset + old, data, length);
    struct fs_descriptor *d = fs_descriptor_at(vi, vi->tx, number);
    /* SYNC: payload visible - pairs with fs_look. Loses against the receiver's claim. */
    if (!fs_swap_if64(&d->commit, FS_COMMIT(number + 1, old, FS_DATA, FS_OPEN),
                      FS_COMMIT(number + 1, old + length, FS_DATA, FS_OPEN))) {
        own->is_open = 0;
        return 0;
    }
    own->open_length = old + length;
    own->head = start + fs_rounded(old + length);
    own->ends[number & vi->mask] = own->head;
    vi->count.sends_combined++;
    vi->count.bytes_sent += length;
    return length;
}

/* Ends combining: the receiver may or may not have claimed the descriptor; either way nobody appends. */
static inline void fs_seal(struct fs_vi *vi) {
    struct fs_side *own = vi->own;
    if (!own->is_open) return;
    uint32_t number = own->posted - 1;
    fs_swap_if64(&fs_descriptor_at(vi, vi->tx, number)->commit,
                 FS_COMMIT(number + 1, own->open_length, FS_DATA, FS_OPEN),
                 FS_COMMIT(number + 1, own->open_length, FS_DATA, FS_SEALED));
    own->is_open = 0;
}

/* A doorbell byte more makes a new edge for edge-triggered epoll, as new data does in TCP; up to this many. */
#define FS_EDGES 16

/* Accounts one doorbell byte, which the caller sends, unless enough of them are unheard: true if it did. Behind an urgent
 * byte there is one always: that one does not make the descriptor readable. Under the send lock. */
static inline int fs_count_ring(struct fs_vi *vi) {
    uint32_t rung = fs_load_relaxed(&vi->tx->rung);
    if (rung - fs_load_sc(&vi->tx->heard) >= FS_EDGES && (uint32_t)fs_load_relaxed(&vi->tx->urgent) != rung) return 0;
    fs_store_sc(&vi->tx->rung, rung + 1);
    return 1;
}

/* Whether all doorbell bytes are heard: after a post to an EXPOSED receiver there must be one that is not. */
static inline int fs_all_heard(const struct fs_vi *vi) {
    return fs_load_relaxed(&vi->tx->rung) == fs_load_sc(&vi->tx->heard);
}

/* Accounts the urgent byte that belongs to the next descriptor: true if there is credit for that. Under the send lock. */
static inline int fs_count_urgent(struct fs_vi *vi) {
    struct fs_side *own = vi->own;
    if (own->posted != own->credited && (fs_take_credits(vi) < 0 || own->posted - own->credited >= vi->window)) return 0;
    uint32_t rung = fs_load_relaxed(&vi->tx->rung) + 1;
    fs_store_relaxed(&vi->tx->urgent, (uint64_t)(own->posted + 1) << 32 | rung);
    fs_store_sc(&vi->tx->rung, rung); /* who sees the count sees what it is of */
    return 1;
}

/* Posts the first bytes of `data`, at most one descriptor's worth. Bytes posted, 0 without credit or room,
 * FS_VIOLATION. The caller then asks fs_peer_doorbell. `combine` says this send is small enough and allowed.
 * `counted`: set to whether a doorbell byte was accounted, which the caller sends at once, also if nothing was posted.
 * NULL: the receiver is not EXPOSED. The byte is accounted before the commit word, so a receiver that takes the
 * post knows that a byte belongs to it, and takes that too, however late it comes. */
static inline int64_t fs_post(struct fs_vi *vi, const char *data, size_t length, int type, int combine, int *counted) {
    struct fs_side *own = vi->own;
    /* The last quarter of the window is always combined: where TCP would buffer a burst of small sends, the ring
     * must not block after w of them. It delays nothing, since a starved receiver claims the open descriptor. */
    uint32_t reserve = vi->window / 4 ? vi->window / 4 : 1;
    if (own->posted - own->credited >= vi->window - reserve) combine = 1;
    if (type != FS_DATA) combine = 0; /* out-of-band data keeps its place */
    if (own->is_open) {
        if (combine) {
            if (counted) *counted = fs_count_ring(vi);
            uint32_t added = fs_append(vi, data, length < vi->chunk ? (uint32_t)length : vi->chunk);
            if (added) return added;
        }
        fs_seal(vi);
    }
    if (own->posted != own->credited) {
        if (fs_take_credits(vi) < 0) return FS_VIOLATION;
        if (own->posted - own->credited >= vi->window) return 0;
    }
    uint32_t number = own->posted;
    struct fs_descriptor *d = fs_descriptor_at(vi, vi->tx, number);
    uint32_t part = length < vi->chunk ? (uint32_t)length : vi->chunk;
    uint32_t state = FS_INLINED;
    int open = combine && own->posted != own->credited;
    if (part > FS_INLINE || open) {
        uint32_t offset;
        part = fs_reserve(vi, part, &offset);
        if (!part) return 0;
        memcpy(vi->tx_arena + offset, data, part);
        d->offset = offset;
        own->head += fs_rounded(part);
        state = FS_SEALED;
        if (open && part == length) {
            state = FS_OPEN;
            own->open_offset = offset;
            own->open_length = part;
        }
    } else {
        memcpy(d->inlined, data, part);
    }
    own->ends[number & vi->mask] = own->head;
    /* SYNC: consumed - the receiving threads' reads of the other arena happen before this ACK goes out. */
    uint32_t consumed = fs_load_acquire(&own->consumed);
    d->ack = consumed;
    if (consumed != fs_load_relaxed(&own->acknowledged)) {
        fs_store_relaxed(&own->acknowledged, consumed);
        vi->count.acks_piggybacked++;
    }
    own->posted = number + 1;
    if (counted && !*counted) *counted = fs_count_ring(vi);
    /* SYNC: payload visible - pairs with fs_look. Sequentially consistent because fs_peer_doorbell follows:
     * either the receiver that arms sees this descriptor or we see it armed. */
    fs_store_sc(&d->commit, FS_COMMIT(number + 1, part, type, state));
    own->is_open = state == FS_OPEN; /* after it is there: see mending.h */
    vi->count.messages_sent++;
    vi->count.bytes_sent += part;
    return part;
}

/* Packet FIN (FS_FIN, FS_RESET or FS_BACK). Needs no credit. */
static inline void fs_post_fin(struct fs_vi *vi, uint64_t kind) {
    fs_seal(vi);
    /* SYNC: end of stream - pairs with fs_end. Sequentially consistent for the doorbell, as in fs_post. */
    fs_store_sc(&vi->tx->fin, kind | vi->own->posted);
    vi->own->fin_sent = 1;
}

/* What the receiver wants after a post: 0, or a set of enum fs_doorbell. */
static inline uint32_t fs_peer_doorbell(const struct fs_vi *vi) { return fs_load_sc(&vi->tx->doorbell); }

/* After the receiver's death: whether it left bytes of ours unread. */
static inline int fs_left_unread(const struct fs_vi *vi) {
    return !fs_load_sc(&vi->rx->fin) && fs_load_relaxed(&vi->tx->seen) != vi->own->posted;
}

/* ---- receiver -------------------------------------------------------------------------------------- */

struct fs_view {
    const unsigned char *payload;
    uint32_t length, type, ack;
};

/* Looks at descriptor `number` and claims it if it is open. 1: `view` is filled and checked, 0: not there yet,
 * FS_VIOLATION. */
static inline int fs_look(struct fs_vi *vi, uint32_t number, struct fs_view *view) {
    struct fs_descriptor *d = fs_descriptor_at(vi, vi->rx, number);
    /* SYNC: payload visible - pairs with fs_post and fs_append. */
    uint64_t commit = fs_load_acquire(&d->commit);
    uint32_t sequence = FS_COMMIT_SEQ(commit);
    if (sequence != number + 1) {
        /* What the slot may hold before it is posted: nothing, or the descriptor one turn earlier. */
        if (commit == 0 || sequence == number - vi->mask) return 0;
        vi->violation = "descriptor out of sequence";
        return FS_VIOLATION;
    }
    while (FS_COMMIT_STATE(commit) == FS_OPEN) {
        /* Starved: claim it, so that combining never delays a byte. The sender may have appended meanwhile. */
        uint64_t claimed = FS_COMMIT(sequence, FS_COMMIT_LEN(commit), FS_COMMIT_TYPE(commit), FS_SEALED);
        if (fs_swap_if64(&d->commit, commit, claimed)) {
            commit = claimed;
        } else {
            commit = fs_load_acquire(&d->commit);
            if (FS_COMMIT_SEQ(commit) != sequence) {
                vi->violation = "open descriptor changed its sequence";
                return FS_VIOLATION;
            }
        }
    }
    uint32_t offset = *(volatile uint32_t *)&d->offset;
    view->ack = *(volatile uint32_t *)&d->ack;
    view->type = FS_COMMIT_TYPE(commit);
    view->length = FS_COMMIT_LEN(commit);
    if (view->length == 0 || view->length > vi->chunk) {
        vi->violation = "descriptor with an impossible length";
        return FS_VIOLATION;
    }
    if (view->type != FS_DATA && view->type != FS_OOB) {
        vi->violation = "descriptor of an unknown type";
        return FS_VIOLATION;
    }
    if (FS_COMMIT_STATE(commit) == FS_INLINED && view->length <= FS_INLINE) {
        view->payload = d->inlined;
    } else if (FS_COMMIT_STATE(commit) == FS_SEALED && offset <= vi->arena && view->length <= vi->arena - offset) {
        view->payload = vi->rx_arena + offset;
    } else {
        vi->violation = "descriptor in an impossible state";
        return FS_VIOLATION;
    }
    return 1;
}

/* Whether a descriptor waits. Says nothing about whether it is sound. Sequentially consistent, so that it can
 * follow arming: see fs_arm_receiver. */
static inline int fs_waiting(const struct fs_vi *vi) {
    uint32_t number = fs_load_relaxed(&vi->own->consumed);
    return FS_COMMIT_SEQ(fs_load_sc(&fs_descriptor_at(vi, vi->rx, number)->commit)) == number + 1;
}

/* End of the ring's stream: 0 if there is none or data stands before it, its kind, or 1 on a violation. */
static inline uint64_t fs_end(struct fs_vi *vi) {
    /* SYNC: end of stream - pairs with fs_post_fin: what was posted before it is visible now. */
    uint64_t fin = fs_load_sc(&vi->rx->fin);
    if (!fin || fs_waiting(vi)) return 0;
    uint64_t kind = fin & ~(uint64_t)UINT32_MAX;
    if ((uint32_t)fin != fs_load_relaxed(&vi->own->consumed) ||
        (kind != FS_FIN && kind != FS_RESET && kind != FS_BACK)) {
        vi->violation = "FIN at an impossible place";
        return 1;
    }
    return kind;
}

/* Packet ACK, alone: tells the sender all that was consumed. */
static inline void fs_acknowledge(struct fs_vi *vi) {
    uint32_t consumed = fs_load_acquire(&vi->own->consumed);
    if (consumed == fs_load_relaxed(&vi->own->acknowledged) && fs_load_relaxed(&vi->rx->acked) == consumed) return;
    fs_store_relaxed(&vi->own->acknowledged, consumed);
    /* SYNC: payload free - pairs with fs_take_credits. Sequentially consistent for the credit wait:
     * either the sender that starts to wait sees this ACK or we see it wait (fs_peer_credit_wait). */
    fs_store_sc(&vi->rx->acked, consumed);
    vi->count.acks_alone++;
}

/* What the sender wants after descriptors were consumed: 0, or a set of enum fs_credit_wait. */
static inline uint32_t fs_peer_credit_wait(const struct fs_vi *vi) { return fs_load_sc(&vi->rx->credit_wait); }

enum fs_take { FS_CONSUME = 0, FS_PEEK = 1 };

/* Takes up to `room` bytes of the stream, from as many descriptors as are there, into `into` (NULL: discards
 * them). Bytes taken, 0 if nothing waits, FS_VIOLATION. Stops before out-of-band data, as TCP does. */
static inline int64_t fs_take(struct fs_vi *vi, char *into, size_t room, int how) {
    struct fs_side *own = vi->own;
    uint32_t number = fs_load_relaxed(&own->consumed), taken = fs_load_relaxed(&own->taken);
    size_t got = 0;
    while (got < room) {
        struct fs_view view;
        int there = fs_look(vi, number, &view);
        if (there < 0) return FS_VIOLATION;
        if (!there) break;
        int oob = view.type == FS_OOB && !vi->oob_inline;
        if (oob && got) break;
        if (taken && view.length != own->begun_length && number == fs_load_relaxed(&own->consumed)) {
            vi->violation = "descriptor changed while it was read";
            return FS_VIOLATION;
        }
        size_t part = view.length - taken;
        if (oob) {
            if (how == FS_CONSUME) {
                own->oob_byte = *(volatile const unsigned char *)view.payload;
                own->oob_waiting = 1;
            }
        } else {
            if (part > room - got) part = room - got;
            if (into) memcpy(into + got, view.payload + taken, part);
            got += part;
        }
        taken += (uint32_t)part;
        if (taken < view.length) {
            if (how == FS_CONSUME) {
                own->begun_length = view.length;
                own->begun = number;
            }
            break;
        }
        taken = 0;
        number++;
        if (how == FS_CONSUME) {
            if ((int32_t)(view.ack - fs_load_relaxed(&own->ack_seen)) > 0) fs_store_release(&own->ack_seen, view.ack);
            /* SYNC: consumed - pairs with fs_post and fs_acknowledge. */
            fs_store_release(&own->consumed, number);
            fs_in_order(); /* a process killed here has not taken a part of the next one: see mending.h */
            fs_store_relaxed(&own->taken, 0);
            fs_store_relaxed(&vi->rx->seen, number);
            vi->count.messages_received++;
            /* Also when DATA carries the ACKs: they may lie unread there while their sender runs out of credit. */
            uint32_t threshold = fs_load_relaxed(&vi->rx->limited) ? 1 : vi->ack_threshold;
            if (number - fs_load_relaxed(&own->acknowledged) >= threshold ||
                number - fs_load_relaxed(&vi->rx->acked) >= vi->window / 2 + vi->ack_threshold / 2)
                fs_acknowledge(vi);
        }
    }
    if (how == FS_CONSUME) {
        fs_in_order();
        fs_store_relaxed(&own->taken, taken);
        vi->count.bytes_received += got;
    }
    return (int64_t)got;
}

/* Bytes that fs_take would give now, at most `enough`: a hint for sizing a buffer, checked again by fs_take. */
static inline size_t fs_available(const struct fs_vi *vi, size_t enough) {
    uint32_t number = fs_load_relaxed(&vi->own->consumed), skip = fs_load_relaxed(&vi->own->taken), last = number + vi->window;
    size_t total = 0;
    for (; number != last && total < enough; number++) {
        uint64_t commit = fs_load_acquire(&fs_descriptor_at(vi, vi->rx, number)->commit);
        if (FS_COMMIT_SEQ(commit) != number + 1) break;
        uint32_t length = FS_COMMIT_LEN(commit);
        total += length > skip ? length - skip : 0;
        skip = 0;
    }
    return total < enough ? total : enough;
}

#endif
