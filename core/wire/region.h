/* The region of one connection: the memory that both processes map, byte for byte.
 *
 *   0        +-----------------------------+
 *            | header (one line, constant) |  magic, version, geometry, id
 *   64       +-----------------------------+
 *            | rendezvous line             |  answer of the publisher, "done" marks for recycling
 *   128      +-----------------------------+
 *            | cell                        |  the next connection, offered by the seeker while the publisher has the region parked
 *   256      +-----------------------------+
 *            | direction 0: seeker ->      |
 *            | publisher                   |
 *            |   sender's line             |  FIN, switch offset, credit wait
 *            |   receiver's line           |  ACK, doorbell state, consent
 *            |   receiver's own line       |  exact progress, read by the sender only when the receiver has died
 *            |   w descriptors, a line each|  commit word, ACK, payload offset, inline payload
 *            +-----------------------------+
 *            | direction 1: the reverse    |
 *            +-----------------------------+
 *            | near part of arena 0        |  payload, packed: the rest of the page in which direction 1 ends,
 *            | near part of arena 1        |  divided in two
 *            +-----------------------------+
 *            | far part of arena 0         |  w * chunk bytes more
 *            +-----------------------------+
 *            | far part of arena 1         |
 *            +-----------------------------+
 *            | overflow buffers of arena 0 |  2 * FS_OVERFLOW_SIZE bytes, for a peer that does not read
 *            +-----------------------------+
 *            | overflow buffers of arena 1 |
 *            +-----------------------------+
 *
 * Payload is packed into the direction's arena; a descriptor owns no fixed chunk. So a connection with only small messages touches a
 * page or two instead of w pages (measured in docs/decisions.md). Both directions and the beginnings of both arenas are adjacent, so
 * such a connection keeps two pages in all. Arena positions continue from the near part to the far part; no payload spans both.
 *
 * Kernel TCP accepts some 4 MiB at once for a peer that does not read, and delivers them however the program ends. So does the ring:
 * when the window or the arena is used up, one more descriptor takes all that is sent, in an overflow buffer, until the receiver comes
 * to it. There are two, since the receiver may stop inside one. Memory that nobody has touched does not exist.
 *
 * The peer can write everything here at any time. Each value is read once, checked and only then used. */
#pragma once

#include <stddef.h>

#include "os/atomics.h"
#include "wire/version.h"

#define FS_MAGIC UINT64_C(0x6b636f7374736166) /* "fastsock", little endian: another byte order never matches */
#define FS_LINE 64

/* Asserts the offset of a field that another program reads. A change needs another FS_VERSION. */
#define FS_ASSERT_OFFSET(type, field, at)                                                                          \
    _Static_assert(offsetof(struct type, field) == (at), #type "." #field " is part of the protocol")

#define FS_INLINE 48 /* payload bytes that fit into the descriptor's own line */

#define FS_WINDOW_MIN 1
#define FS_WINDOW_MAX 1024
#define FS_CHUNK_MIN 1024
#define FS_CHUNK_MAX 32768 /* SOVIA's message chunk */
#define FS_OVERFLOW_SIZE 4456448   /* bytes of an overflow buffer: the usual limit of tcp_wmem, a receive buffer, and some more */
#define FS_OVERFLOWS 2

/* A descriptor's commit word, stored last: sequence (32) | length (24) | type (4) | state (4). The sequence is the descriptor's number
 * plus one, so a zeroed descriptor is never valid. */
enum fs_type { FS_DATA = 1 };
enum fs_state {
    FS_INLINED = 1, /* payload in the line */
    FS_SEALED = 2,  /* payload in the arena, complete */
    FS_OPEN = 3,    /* payload in the arena, the sender may still append (combining) */
};
#define FS_COMMIT(seq, len, type, state)                                                                       \
    ((uint64_t)(uint32_t)(seq) | (uint64_t)(len) << 32 | (uint64_t)(type) << 56 | (uint64_t)(state) << 60)
#define FS_COMMIT_SEQ(c) ((uint32_t)(c))
#define FS_COMMIT_LEN(c) ((uint32_t)((c) >> 32) & 0xffffff)
#define FS_COMMIT_TYPE(c) ((uint32_t)((c) >> 56) & 0xf)
#define FS_COMMIT_STATE(c) ((uint32_t)((c) >> 60))

struct fs_descriptor {
    _Alignas(FS_LINE) fs_word64 commit;
    uint32_t ack;    /* piggybacked ACK: descriptors consumed of the other direction */
    uint32_t offset; /* of the payload in the arena, unless inlined */
    unsigned char inlined[FS_INLINE];
};
_Static_assert(sizeof(struct fs_descriptor) == FS_LINE, "a small message moves exactly one cache line");
FS_ASSERT_OFFSET(fs_descriptor, commit, 0);
FS_ASSERT_OFFSET(fs_descriptor, ack, 8);
FS_ASSERT_OFFSET(fs_descriptor, offset, 12);
FS_ASSERT_OFFSET(fs_descriptor, inlined, 16);

/* Receiver's doorbell state, read by the sender after each post. */
enum fs_doorbell {
    FS_ASLEEP = 1,     /* threads of the receiving side sleep on `futex` */
    FS_SET_ASLEEP = 2, /* an event set of the receiving side must be notified */
    FS_GONE = 4,       /* the receiver has closed and reads nothing any more */
    FS_SHUT = 8,       /* the receiver has shut both directions: it reads the rest, and more draws a reset */
};

/* Sender's credit wait, read by the receiver after each ACK. */
enum fs_credit_wait {
    FS_WAITS = 1,     /* threads of the sending side sleep on `credit_futex` */
    FS_SET_WAITS = 2, /* an event set of the sending side must be notified */
    FS_ACK_NOW = 4,   /* the sender spins for credits: acknowledge without delay */
};

/* Packet FIN: type | position. Needs no credit, so that close never waits for a reader. */
#define FS_FIN (UINT64_C(1) << 32)
#define FS_BACK (UINT64_C(3) << 32)  /* fallback: the stream continues through the kernel */
#define FS_FIN_KIND (~(uint64_t)0xffffffff) /* mask of the kind; the rest is the position */
#define FS_RESET (UINT64_C(2) << 32) /* FIN of a socket closed with unread data: the reader gets ECONNRESET */

/* Consent of the receiver. */
enum fs_consent {
    FS_NOT_YET = 0,
    FS_READY = 1,
    FS_LEFT = 2,   /* withdrawn: post BACK, and use the kernel again once settled */
    FS_TOO_LATE = 3, /* set by a sender that has fallen back and resends nothing any more */
};

/* How a receiver that falls back gets its unread bytes. Decided once, by the swap from 0. */
enum fs_settled {
    FS_UNSETTLED = 0,
    FS_GO_ON = 1,     /* by the receiver: nothing needs to be resent */
    FS_RESENDING = 2, /* by the sender: it is resending the unread data; `returned` has the progress */
    FS_REFUSED = 3,   /* by the sender: it has fallen back and does not wait */
};

struct fs_direction {
    /* sender's line */
    _Alignas(FS_LINE) fs_word64 fin; /* 0, or FS_FIN / FS_RESET / FS_BACK with the number of the descriptor that follows it */
    fs_word64 switch_at;             /* 0, or 1 + bytes sent through the kernel before the switch to the ring */
    fs_word32 credit_wait;           /* enum fs_credit_wait; set by the sender, cleared by the receiver */
    fs_word32 processor;             /* 1 + the CPU on which the sender's side last ran, a hint for spinning */
    fs_word32 returned;              /* 0, or 1 + bytes of unread data that were resent (fallback) */
    fs_word32 limited;               /* 1: SO_SNDBUF is set, so the sender may wait with credits left */
    fs_word32 credit_futex;          /* counts wakeups: threads of the sending side sleep on this word */
    /* receiver's line */
    _Alignas(FS_LINE) fs_word32 acked; /* packet ACK: descriptors consumed, in total */
    fs_word32 doorbell;                /* enum fs_doorbell; the notifying sender clears ASLEEP and SET_ASLEEP */
    fs_word32 ready;                   /* enum fs_consent: the receiver reads the ring after switch_at */
    fs_word32 finack;                  /* packet FINACK: the FIN was consumed */
    fs_word32 limit;                   /* bytes that may lie unread at the receiver (SO_RCVBUF), 0: not set */
    fs_word32 settled;                 /* enum fs_settled: after LEFT, permits the sender to continue in the kernel */
    fs_word32 futex;                   /* counts wakeups: threads of the receiving side sleep on this word */
    /* receiver's own line: written with every descriptor, so it must be one that the sender does not read */
    _Alignas(FS_LINE) fs_word32 seen; /* descriptors consumed, in total, without the delay of the ACK */
};
_Static_assert(sizeof(struct fs_direction) == 3 * FS_LINE, "three lines, each with one usual writer");
FS_ASSERT_OFFSET(fs_direction, fin, 0);
FS_ASSERT_OFFSET(fs_direction, switch_at, 8);
FS_ASSERT_OFFSET(fs_direction, credit_wait, 16);
FS_ASSERT_OFFSET(fs_direction, processor, 20);
FS_ASSERT_OFFSET(fs_direction, returned, 24);
FS_ASSERT_OFFSET(fs_direction, limited, 28);
FS_ASSERT_OFFSET(fs_direction, credit_futex, 32);
FS_ASSERT_OFFSET(fs_direction, acked, 64);
FS_ASSERT_OFFSET(fs_direction, doorbell, 68);
FS_ASSERT_OFFSET(fs_direction, ready, 72);
FS_ASSERT_OFFSET(fs_direction, finack, 76);
FS_ASSERT_OFFSET(fs_direction, limit, 80);
FS_ASSERT_OFFSET(fs_direction, settled, 84);
FS_ASSERT_OFFSET(fs_direction, futex, 88);
FS_ASSERT_OFFSET(fs_direction, seen, 128);

/* A side will not touch the region any more. */
enum fs_done {
    FS_IN_USE = 0,
    FS_DONE = 1, /* and keeps the pages of the arenas for its next connection */
    FS_COLD = 2, /* and does not: they are given back once both sides are done */
};

/* Packet WAKEUP: the publisher's answer in the rendezvous line. (A refusal is sent on the rendezvous socket.) */
enum fs_wakeup { FS_UNANSWERED = 0, FS_TAKEN = 1 };

/* The seeker's message to the publisher whose name it found. With it come the memfd, unless the region is one that both still have
 * mapped, and the seeker's end of the TCP connection. */
struct fs_hello {
    uint64_t magic;
    uint32_t version;
    uint32_t reuse;
    uint64_t size;
    unsigned char id[16];
};
_Static_assert(sizeof(struct fs_hello) == 40, "no padding on the wire");
FS_ASSERT_OFFSET(fs_hello, magic, 0);
FS_ASSERT_OFFSET(fs_hello, version, 8);
FS_ASSERT_OFFSET(fs_hello, reuse, 12);
FS_ASSERT_OFFSET(fs_hello, size, 16);
FS_ASSERT_OFFSET(fs_hello, id, 24);

/* Two versions meet under the same name. The parts by which both agree to stay on kernel TCP are the same in every version
 * (docs/protocol.md, "Versions"): the first bytes of a hello; the maximum number of descriptors, the last of which is the seeker's end
 * of the TCP connection; and the first byte of a refusal. */
#define FS_HELLO_HEAD offsetof(struct fs_hello, reuse)
#define FS_HELLO_DESCRIPTORS 4
_Static_assert(FS_HELLO_HEAD == 12 && FS_HELLO_DESCRIPTORS == 4, "the same in every version");

enum fs_refusal_reason {
    FS_WHY_UNTRUSTED = 'u',     /* another user, or not the other end of this connection */
    FS_WHY_VIOLATION = 'v',     /* the hello breaks the protocol */
    FS_WHY_DESCRIPTORS = '!',   /* no descriptor numbers free */
    FS_WHY_AGAIN = '?',         /* try again with a fresh region */
    FS_WHY_UNPROVEN = 'a',      /* from another network namespace, and the address is not proven (any more) */
    FS_WHY_OTHER_VERSION = 'o', /* a whole fs_refusal follows with the version */
};

/* No refusal: what comes with it is the way to the publisher (process/far_peer.h), before WAKEUP. */
#define FS_HAS_WAY 'w'

/* A refusal is its first byte alone, except FS_WHY_OTHER_VERSION. Later versions may append more. */
struct fs_refusal {
    unsigned char why; /* enum fs_refusal_reason */
    unsigned char zero[3];
    uint32_t version;  /* of the publisher */
};
_Static_assert(sizeof(struct fs_refusal) == 8, "no padding on the wire");
FS_ASSERT_OFFSET(fs_refusal, why, 0);
FS_ASSERT_OFFSET(fs_refusal, version, 4);

/* A region that both have mapped is offered for another connection without a message: the seeker writes here which one, and posts; the
 * publisher looks at its parked regions. `state` is twice a generation, plus 1 while it is posted. The swap to the next generation takes
 * the cell, or withdraws it: one of the two succeeds. */
struct fs_cell {
    _Alignas(FS_LINE) fs_word64 state;
    _Alignas(FS_LINE) uint64_t cookie; /* SO_COOKIE of the seeker's socket: a socket that has its port later has another one */
    unsigned char seeker[18], publisher[18]; /* the ends: an IPv6 address (IPv4 as ::ffff:...) and a port, both in network order */
};
_Static_assert(sizeof(struct fs_cell) == 2 * FS_LINE, "what both write, and what the seeker writes");
FS_ASSERT_OFFSET(fs_cell, state, 0);
FS_ASSERT_OFFSET(fs_cell, cookie, 64);
FS_ASSERT_OFFSET(fs_cell, seeker, 72);
FS_ASSERT_OFFSET(fs_cell, publisher, 90);

struct fs_region {
    _Alignas(FS_LINE) uint64_t magic;
    uint32_t version;
    uint32_t window; /* w: descriptors, and so credits, per direction */
    uint32_t slots;  /* w rounded up to a power of two */
    uint32_t chunk;  /* largest payload of one descriptor, bytes */
    uint32_t arena;  /* payload bytes per direction, both parts */
    uint32_t kind;   /* kind of socket: 0 is TCP, others are reserved */
    unsigned char id[16];
    _Alignas(FS_LINE) fs_word32 wakeup; /* enum fs_wakeup */
    fs_word32 done[2];                  /* enum fs_done of side 0 / 1 */
    fs_word64 asks[2];                  /* token of the control socket of side 0 / 1 */
    fs_word64 set[2];                   /* event set of side 0 / 1: 0 none, else its id << 32 | slot + 1 */
    fs_word64 asks_else[2];             /* token of another holder of side 0 / 1, used if the first one has ended */
    struct fs_cell cell;
    /* followed by direction 0, its descriptors, direction 1, its descriptors, and the parts of the arenas */
};
_Static_assert(sizeof(struct fs_region) == 4 * FS_LINE, "header, rendezvous line and cell");
FS_ASSERT_OFFSET(fs_region, magic, 0);
FS_ASSERT_OFFSET(fs_region, version, 8);
FS_ASSERT_OFFSET(fs_region, window, 12);
FS_ASSERT_OFFSET(fs_region, slots, 16);
FS_ASSERT_OFFSET(fs_region, chunk, 20);
FS_ASSERT_OFFSET(fs_region, arena, 24);
FS_ASSERT_OFFSET(fs_region, kind, 28);
FS_ASSERT_OFFSET(fs_region, id, 32);
FS_ASSERT_OFFSET(fs_region, wakeup, 64);
FS_ASSERT_OFFSET(fs_region, done, 68);
FS_ASSERT_OFFSET(fs_region, asks, 80);
FS_ASSERT_OFFSET(fs_region, set, 96);
FS_ASSERT_OFFSET(fs_region, asks_else, 112);
FS_ASSERT_OFFSET(fs_region, cell, 128);

static inline uint32_t fs_slots(uint32_t window) {
    uint32_t slots = 1;
    while (slots < window) slots *= 2;
    return slots;
}

static inline size_t fs_direction_size(uint32_t slots) {
    return sizeof(struct fs_direction) + (size_t)slots * sizeof(struct fs_descriptor);
}

/* Returns the offset at which the directions end and the near parts of the arenas begin. */
static inline size_t fs_directions_end(uint32_t slots) { return sizeof(struct fs_region) + 2 * fs_direction_size(slots); }

/* Returns the bytes of a near part, a whole number of lines: 768 to 1792. */
static inline uint32_t fs_near_size(uint32_t slots) { return (uint32_t)(-fs_directions_end(slots) & 4095) / 2; }

/* Returns the payload bytes of a direction, without its overflow buffers. */
static inline uint32_t fs_arena(uint32_t window, uint32_t chunk) { return fs_near_size(fs_slots(window)) + window * chunk; }

/* Returns the offset of an arena. */
static inline size_t fs_arena_offset(uint32_t slots, int half) {
    return fs_directions_end(slots) + (size_t)half * fs_near_size(slots);
}

/* Returns the bytes between an arena's near part and its far part. */
static inline uint32_t fs_arena_gap(uint32_t window, uint32_t chunk, int half) {
    return half ? window * chunk : fs_near_size(fs_slots(window));
}

/* Returns the bytes between an arena's beginning and its overflow buffers. */
static inline uint32_t fs_overflow_offset(uint32_t window, uint32_t chunk, int half) {
    uint32_t parts = fs_arena(window, chunk) + fs_arena_gap(window, chunk, 1); /* from arena 1 to the end of its far part */
    return half ? parts + FS_OVERFLOWS * FS_OVERFLOW_SIZE : parts + fs_near_size(fs_slots(window));
}

/* Returns the bytes of a region, a whole number of 4 KiB pages. */
static inline size_t fs_region_size(uint32_t window, uint32_t chunk) {
    size_t size = fs_directions_end(fs_slots(window)) + 2 * ((size_t)fs_arena(window, chunk) + FS_OVERFLOWS * FS_OVERFLOW_SIZE);
    return (size + 4095) & ~(size_t)4095;
}

/* Returns the bytes that count against the cap before anybody has measured: few connections touch their overflow buffers. */
static inline size_t fs_size_without_overflows(size_t region_size) { return region_size - 2 * FS_OVERFLOWS * FS_OVERFLOW_SIZE; }
