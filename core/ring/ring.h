/* A ring pair: the two directions of a region, one to post to (send_ring.h) and one to consume from (recv_ring.h).
 *
 * Theory of operation
 *   1. A direction has one sending side and one receiving side. A side may be several threads and several forked processes. They
 *      share a lock for sending (`struct fs_sender`) and one for receiving (`struct fs_receiver`), in memory that is shared with
 *      forked children but never with the peer.
 *   2. The sender owns a descriptor from the return of its credit until it stores the commit word. The receiver owns it from then
 *      until its ACK. An OPEN descriptor belongs to the next one that swaps its commit word: the sender appends (combining), the
 *      receiver claims it, so combining never delays a byte.
 *   3. At most w descriptors are posted and not acknowledged. The receiver acknowledges after t consumed descriptors, before it
 *      sleeps, when the sender waits, and with every DATA packet in the other direction.
 *   4. Nothing read from the region is trusted: it is read once into a local, checked, then used. On an impossible value the
 *      function returns FS_VIOLATION and ring->violation names the error.
 *
 * Functions with a sender or a receiver parameter need that lock. Others need none, and return hints. No function here blocks, allocates
 * or calls into Python. */
#pragma once

#include <string.h>

#include "wire/region.h"
#include "ring/robust_lock.h"

#define FS_VIOLATION (-1)

/* One end's own state of one connection is three structures, each with its own lock. A pointer to one of the first two proves that the
 * caller holds its lock: conn/side_lock.h gives it to the lock holder alone. So posting needs a sender, receiving needs a receiver, and
 * a call with the wrong one does not compile. A field that the other direction reads without the lock is an atomic word, and its comment
 * says so. The two lie on cache lines of their own, so a sending and a receiving thread do not slow each other down. */

/* A sender that waits in its call does not use the overflow buffers at first: data far from the present place is cold for the receiver. It
 * uses them after it has slept for a while and no credit has come. */
enum fs_overflow_use { FS_OVERFLOW_USE = 0, FS_OVERFLOW_LATER = 1, FS_OVERFLOW_NOW = 2 /* until credits come, then FS_OVERFLOW_LATER
                                                                                        * again */ };

/* Needs the send lock. */
struct fs_sender {
    _Alignas(FS_LINE) struct fs_robust_lock lock;
    fs_word32 posted;    /* descriptors posted, in total; a receiver reads it to learn the data that a dead peer left unread */
    fs_word32 credited;  /* of those, acknowledged; spinning for credits reads it without the lock */
    uint64_t head, tail; /* arena positions: next free byte, oldest unacknowledged byte */
    uint32_t open_at, open_length; /* payload start and length of the open descriptor, number posted - 1 */
    uint32_t overflows[FS_OVERFLOWS];             /* for each overflow buffer, the number of the last descriptor that used it, plus one */
    uint32_t limit;        /* bytes that may lie unread at the peer, 0: the arena */
    uint32_t send_limit;   /* SO_SNDBUF, bytes; 0: not set */
    uint64_t limited_from; /* arena position from which the limit counts */
    uint64_t *ends; /* by slot: arena position after the payload of each posted descriptor (a block of its own) */
    unsigned char is_open;
    unsigned char overflow_use; /* enum fs_overflow_use: permits an overflow buffer when credit or room is short */
    unsigned char fin_sent;
    unsigned char reset_drawn;  /* fs_draw_reset */
    unsigned char sending_step; /* 1: inside a step that nobody can recover if the process dies (conn/recovery.c) */
};

/* What a receiver has made of the end of the stream. A reset is reported by the kernel first. */
enum fs_fin_taken { FS_END_UNREAD = 0, FS_END_REPORTED = 1, FS_RESET_FOUND = 2 };

/* Needs the receive lock. */
struct fs_receiver {
    _Alignas(FS_LINE) struct fs_robust_lock lock;
    fs_word32 consumed;     /* descriptors consumed, in total; the sender reads it for piggybacked ACKs */
    fs_word32 acknowledged; /* of those, acknowledged to the peer, alone or by the sender with a post. Both write it */
    fs_word32 ack_seen;     /* newest ACK that came with DATA. The sender reads it, and raises it when the numbers wrap */
    fs_word32 taken;        /* bytes consumed of descriptor number `consumed`; read without the lock as a hint */
    uint32_t begun_length, begun; /* length and number of the descriptor that `taken` belongs to */
    fs_word32 fin_taken;    /* enum fs_fin_taken; a bridge reads it without the lock */
    fs_word64 kernel_taken; /* bytes of the kernel's stream consumed so far; read without the lock as a hint */
};
_Static_assert(sizeof(struct fs_sender) == 2 * FS_LINE && sizeof(struct fs_receiver) == 2 * FS_LINE, "two lines each");

/* Held while the connection falls back to the kernel (conn/fallback.c). Nobody else waits for this lock. */
struct fs_fallback_lock {
    struct fs_robust_lock lock;
    fs_word32 bridge; /* process id of the bridge that the holder of the lock starts, or -errno */
};

struct fs_shared_side {
    struct fs_sender sender;
    struct fs_receiver receiver;
    /* The rest needs no lock. */
    fs_word32 moved;       /* enum fs_moved */
    fs_word32 holders;     /* processes that have this connection open */
    fs_word64 changes; /* that holders have made of settings which the others may know: how many, in the upper half; and are making, in the
                            * lower. (One that is killed there leaves its own: then the kernel is asked each time.) */
    /* Forked holders, as many as fit, so that one is noticed that was killed. Each word is a process id. One that is about to become
     * another program has it on its list of robust futexes, and the kernel marks it if it does. */
    struct fs_robust_lock children[4];
    /* Epoll instances that a fork has shared, a bit for each (ready/inherited.c): whose registrations the kernel has as the program has
     * made them; whose single shot was told. And the first process that has waited on one. */
    fs_word64 handed_over, shots;
    fs_word32 waiter;
    uint32_t pid_space;    /* the PID namespace in which `children` is valid (fs_own_pid_ns); never changes */
    struct fs_fallback_lock fallback;
};

/* Return the side whose lock the caller holds. */
static inline struct fs_shared_side *fs_side_of_sender(struct fs_sender *sender) {
    return (struct fs_shared_side *)(void *)((char *)sender - offsetof(struct fs_shared_side, sender));
}
static inline struct fs_shared_side *fs_side_of_receiver(struct fs_receiver *receiver) {
    return (struct fs_shared_side *)(void *)((char *)receiver - offsetof(struct fs_shared_side, receiver));
}
static inline struct fs_shared_side *fs_side_of_fallback(struct fs_fallback_lock *fallback) {
    return (struct fs_shared_side *)(void *)((char *)fallback - offsetof(struct fs_shared_side, fallback));
}

enum fs_moved { /* bits of `moved`, beside those of the public header */
    FS_SENDING_HELD = 16, /* SENDING_BACK, but not yet: the peer that fell back must first get its unread data */
    FS_COLLECTING = 64,   /* a fallback collects the unread data: nobody else may receive */
};

/* Adds the counters of `from` to `into`. If `taking`, also sets those of `from` to 0. */
static inline void fs_add_counters(struct fs_counters *into, struct fs_counters *from, int taking) {
    fs_word64 *to = &into->bytes_sent, *source = &from->bytes_sent;
    for (size_t i = 0; i < sizeof *into / sizeof *to; i++) {
        uint64_t n = fs_load_relaxed(source + i);
        fs_count(to + i, n);
        if (taking) fs_store_relaxed(source + i, 0);
    }
}

/* One process's view of one connection. The geometry is copied at attach, since the region's own may change. */
struct fs_ring_pair {
    struct fs_region *region;
    size_t size;
    struct fs_shared_side *own;
    struct fs_direction *tx, *rx;
    unsigned char *tx_arena, *rx_arena;
    uint32_t window, mask, chunk;
    uint32_t arena, near; /* payload bytes of a direction, and those in the arena's near part */
    uint32_t tx_gap;      /* bytes between the two parts of the sending arena */
    uint32_t tx_overflow;    /* bytes from the start of the sending arena to its overflow buffers */
    uint32_t rx_overflow;    /* bytes from the start of the receiving arena to its overflow buffers */
    uint32_t rx_span;     /* and to their end */
    uint32_t ack_threshold; /* t; 1 acknowledges every descriptor */
    uint32_t combine_limit; /* largest send that is combined, bytes; 0: combining off */
    uint32_t combine_from;  /* number of descriptors in flight from which every send is combined; above w: never */
    int side;
    const char *violation;
    struct fs_counters count; /* last: see fs_ring_pair_adopt */
};

/* Returns the number of posted and unacknowledged descriptors. */
static inline uint32_t fs_in_flight(const struct fs_sender *sender) {
    return fs_load_own32(&sender->posted) - fs_load_own32(&sender->credited);
}

static inline struct fs_descriptor *fs_descriptor_at(const struct fs_ring_pair *ring, struct fs_direction *half, uint32_t n) {
    return (struct fs_descriptor *)(half + 1) + (n & ring->mask);
}

static inline size_t fs_ends_size(uint32_t window) { return fs_slots(window) * sizeof(uint64_t); }

/* Writes the header into zeroed memory of fs_region_size(window, chunk) bytes. */
static inline void fs_region_format(void *memory, uint32_t window, uint32_t chunk, const unsigned char id[16]) {
    struct fs_region *region = memory;
    region->version = FS_VERSION;
    region->window = window;
    region->slots = fs_slots(window);
    region->chunk = chunk;
    region->arena = fs_arena(window, chunk);
    memcpy(region->id, id, 16);
    region->magic = FS_MAGIC;
}

/* Readies a used region for its next connection: zeroes the state of both sides, and leaves the cell and the arenas. */
static inline void fs_region_recycle(struct fs_region *region, uint32_t window) {
    size_t end = fs_directions_end(fs_slots(window));
    fs_store_relaxed(&region->wakeup, 0);
    for (int side = 0; side < 2; side++) fs_store_relaxed(&region->done[side], FS_IN_USE); /* (the publisher may look: fs_cool) */
    memset(region->asks, 0, offsetof(struct fs_region, cell) - offsetof(struct fs_region, asks));
    memset(region + 1, 0, end - sizeof *region);
}

/* Replaces `ring` by one attached elsewhere, except the counters: threads that wait on the kernel may be counting. */
static inline void fs_ring_pair_adopt(struct fs_ring_pair *ring, const struct fs_ring_pair *attached) {
    memcpy(ring, attached, offsetof(struct fs_ring_pair, count));
}

/* Fills `ring` for side 0 (seeker) or 1 (publisher). Returns NULL, or a text that says how the region is invalid. */
static inline const char *fs_ring_pair_attach(struct fs_ring_pair *ring, void *memory, size_t size, int side) {
    struct fs_region *region = memory;
    if (size < sizeof(struct fs_region)) return "region shorter than its header";
    uint64_t magic = *(volatile uint64_t *)&region->magic;
    uint32_t version = *(volatile uint32_t *)&region->version;
    uint32_t window = *(volatile uint32_t *)&region->window;
    uint32_t chunk = *(volatile uint32_t *)&region->chunk;
    if (magic != FS_MAGIC) return "region without the magic number";
    if (version != FS_VERSION) return "region of another version";
    if (*(volatile uint32_t *)&region->kind) return "region of another kind of socket";
    if (window < FS_WINDOW_MIN || window > FS_WINDOW_MAX) return "window out of range";
    if (chunk < FS_CHUNK_MIN || chunk > FS_CHUNK_MAX || chunk % FS_LINE) return "chunk size out of range";
    if (size != fs_region_size(window, chunk)) return "region of the wrong size";
    uint32_t slots = fs_slots(window);
    char *halves = (char *)memory + sizeof(struct fs_region);
    struct fs_direction *half[2] = {(struct fs_direction *)halves, (struct fs_direction *)(halves + fs_direction_size(slots))};
    memset(ring, 0, sizeof *ring);
    ring->region = region;
    ring->size = size;
    ring->side = side;
    ring->window = window;
    ring->mask = slots - 1;
    ring->chunk = chunk;
    ring->arena = fs_arena(window, chunk);
    ring->near = fs_near_size(slots);
    ring->tx_gap = fs_arena_gap(window, chunk, side);
    ring->tx_overflow = fs_overflow_offset(window, chunk, side);
    ring->rx_overflow = fs_overflow_offset(window, chunk, !side);
    ring->rx_span = ring->rx_overflow + FS_OVERFLOWS * FS_OVERFLOW_SIZE;
    ring->combine_from = window - (window / 4 ? window / 4 : 1);
    ring->tx = half[side];
    ring->rx = half[!side];
    ring->tx_arena = (unsigned char *)memory + fs_arena_offset(slots, side);
    ring->rx_arena = (unsigned char *)memory + fs_arena_offset(slots, !side);
    return NULL;
}
