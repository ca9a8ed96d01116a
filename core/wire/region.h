/* The region of one connection: what both processes map, byte for byte.
 *
 *   0        +-----------------------------+
 *            | header (one line, constant) |  magic, version, geometry, id
 *   64       +-----------------------------+
 *            | meeting line                |  answer of the publisher, "done" marks for recycling
 *   128      +-----------------------------+
 *            | half 0: seeker -> publisher |
 *            |   sender's line             |  FIN, switch offset, credit wait, doorbell bytes rung
 *            |   receiver's line           |  ACK, doorbell state, doorbell bytes heard, consent
 *            |   receiver's own line       |  exact progress, read by the sender only when the receiver has died
 *            |   w descriptors, a line each|  commit word, ACK, payload offset, inline payload
 *            +-----------------------------+
 *            | half 1: publisher -> seeker |  the same the other way
 *            +-----------------------------+
 *            | near part of arena 0        |  payload, packed: what is left of the page in which half 1 ends,
 *            | near part of arena 1        |  divided in two
 *            +-----------------------------+
 *            | far part of arena 0         |  w * chunk bytes more
 *            +-----------------------------+
 *            | far part of arena 1         |
 *            +-----------------------------+
 *            | spare parts of arena 0      |  2 * FS_OVERFLOW_SIZE bytes: what is sent to a peer that does not read
 *            +-----------------------------+
 *            | spare parts of arena 1      |
 *            +-----------------------------+
 *
 * A descriptor's payload is packed into the half's arena instead of owning a fixed chunk: a connection that
 * only ever sends small messages then touches a page or two instead of w pages (docs/decisions.md has the
 * measurement). The two halves stand next to each other, and behind them where both arenas begin, so that a connection
 * of small messages keeps two pages, both directions together. An arena's positions go on from its near part to its far
 * part; no payload lies in both.
 *
 * Kernel TCP takes some 4 MiB for a peer that does not read, at once, and delivers them however the program ends. So does the ring:
 * where the window or the rest of the arena is used up, one more descriptor takes all that is sent, into a spare part, until the
 * receiver comes to it. There are two of them, since the receiver may stop within one. Nobody touches them otherwise, and memory
 * that nobody has touched does not exist.
 *
 * Everything here can be written by the peer at any time. It is read once, checked and only then used.
 */
#ifndef FASTSOCK_REGION_H
#define FASTSOCK_REGION_H

#include <stddef.h>

#include "os/atomics.h"

#define FS_MAGIC UINT64_C(0x6b636f7374736166) /* "fastsock", little endian: another byte order never matches */
#ifndef FS_VERSION /* (A test builds a program of another version.) */
#define FS_VERSION 5
#endif
#define FS_LINE 64

/* Says where a field stands. Another program reads it there: a change needs another FS_VERSION. */
#define FS_ASSERT_OFFSET(type, field, at)                                                                          \
    _Static_assert(offsetof(struct type, field) == (at), #type "." #field " is part of the protocol")

#define FS_INLINE 48 /* payload bytes that ride in the descriptor's own line */

#define FS_WINDOW_MIN 1
#define FS_WINDOW_MAX 1024
#define FS_CHUNK_MIN 1024
#define FS_CHUNK_MAX 32768 /* SOVIA's message chunk */
#define FS_OVERFLOW_SIZE 4718592   /* bytes of a spare part: the usual limit of tcp_wmem, a receive buffer, and some more */
#define FS_OVERFLOWS 2

/* A descriptor's commit word: sequence (32) | length (24) | type (4) | state (4). Stored last.
 * The sequence is the descriptor's number plus one, so that a zeroed descriptor is never valid. */
enum fs_type { FS_DATA = 1, FS_OOB = 2 };
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
    uint32_t ack;    /* piggybacked ACK: descriptors consumed of the other half */
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
    FS_ASLEEP = 1,  /* threads of the receiving side sleep on `futex` */
    FS_EXPOSED = 2, /* somebody may poll the receiver's descriptor: keep a doorbell byte in its queue */
    FS_GONE = 4,    /* the receiver has closed: nothing will be read any more */
    FS_SHUT = 8,    /* it has shut both directions: it reads what is there, and more draws a reset */
    FS_SET_ASLEEP = 16, /* an event set of the receiving side is to be told */
};

/* Sender's credit wait, read by the receiver after each ACK. */
enum fs_credit_wait {
    FS_WAITS = 1,   /* threads of the sending side sleep on `credit_futex` */
    FS_PLUGGED = 2, /* the sender filled the kernel's send buffer to keep POLLOUT away: drain it */
    FS_ACK_NOW = 4,   /* the sender polls for credits: acknowledge without delay */
    FS_SET_WAITS = 8, /* an event set of the sending side is to be told */
};

/* Packet FIN: type | position. Needs no credit, so that close never waits for a reader. */
#define FS_FIN (UINT64_C(1) << 32)
#define FS_BACK (UINT64_C(3) << 32)  /* the way out: the stream goes on in the kernel's */
#define FS_FIN_KIND (~(uint64_t)0xffffffff) /* of a FIN: the rest is its place */
#define FS_RESET (UINT64_C(2) << 32) /* FIN of a socket closed with data unread: the reader gets ECONNRESET */

/* Consent of the receiver. */
enum fs_consent {
    FS_NOT_YET = 0,
    FS_READY = 1,
    FS_LEFT = 2,   /* withdrawn: post BACK, and use the kernel again once it is settled */
    FS_TOO_LATE = 3, /* said by a sender that has left: it takes nothing back any more */
};

/* How a receiver that left got the bytes that it had not read. Decided once, by whoever swaps it from 0. */
enum fs_settled {
    FS_UNSETTLED = 0,
    FS_GO_ON = 1,     /* the receiver: nothing needs to be sent again */
    FS_RESENDING = 2, /* the sender: it is sending the parcel again; `returned` says how much */
    FS_REFUSED = 3,   /* the sender: it has left and waits no longer */
};

struct fs_direction {
    /* sender's line */
    _Alignas(FS_LINE) fs_word64 fin; /* 0, or FS_FIN / FS_RESET with the descriptor number it stands before */
    fs_word64 switch_at;             /* 0, or 1 + bytes sent through the kernel before the ring took over */
    fs_word32 credit_wait;           /* enum fs_credit_wait; set by the sender, cleared by the receiver */
    fs_word32 rung;                  /* doorbell bytes sent on the kernel connection, ever */
    fs_word32 processor;             /* 1 + the processor the sender's side last ran on, as a hint for polling */
    fs_word32 returned;              /* 0, or 1 + bytes of the parcel that were sent again (the way out) */
    fs_word32 ringing;               /* 1: in a post or a plug that a doorbell byte may follow */
    fs_word32 limited;               /* 1: the sender has set SO_SNDBUF, and waits where credits are left */
    fs_word64 urgent;                /* the last urgent byte: its descriptor + 1, and below 32 bits `rung` with it; 0: none */
    fs_word32 credit_futex;           /* counts wakeups: threads of the sending side sleep on this word */
    /* receiver's line */
    _Alignas(FS_LINE) fs_word32 acked; /* packet ACK: descriptors consumed, ever */
    fs_word32 doorbell;                /* enum fs_doorbell; ASLEEP and SET_ASLEEP are cleared by the sender that rings */
    fs_word32 heard;                   /* doorbell bytes the receiver accounts as taken, ever */
    fs_word32 ready;                   /* enum fs_consent: the receiver reads the ring after switch_at */
    fs_word32 finack;                  /* packet FINACK: the FIN was consumed */
    fs_word32 limit;                   /* bytes the receiver lets lie unread (SO_RCVBUF), 0: not set */
    fs_word32 settled;                 /* enum fs_settled: after LEFT, whether the sender may go on in the kernel */
    fs_word32 futex;                    /* counts wakeups: threads of the receiving side sleep on this word */
    /* receiver's own line: written with every descriptor, so that it must not be one the sender looks at */
    _Alignas(FS_LINE) fs_word32 seen; /* descriptors consumed, ever, without the delay of the ACK */
};
_Static_assert(sizeof(struct fs_direction) == 3 * FS_LINE, "three lines, each with one usual writer");
FS_ASSERT_OFFSET(fs_direction, fin, 0);
FS_ASSERT_OFFSET(fs_direction, switch_at, 8);
FS_ASSERT_OFFSET(fs_direction, credit_wait, 16);
FS_ASSERT_OFFSET(fs_direction, rung, 20);
FS_ASSERT_OFFSET(fs_direction, processor, 24);
FS_ASSERT_OFFSET(fs_direction, returned, 28);
FS_ASSERT_OFFSET(fs_direction, ringing, 32);
FS_ASSERT_OFFSET(fs_direction, limited, 36);
FS_ASSERT_OFFSET(fs_direction, urgent, 40);
FS_ASSERT_OFFSET(fs_direction, credit_futex, 48);
FS_ASSERT_OFFSET(fs_direction, acked, 64);
FS_ASSERT_OFFSET(fs_direction, doorbell, 68);
FS_ASSERT_OFFSET(fs_direction, heard, 72);
FS_ASSERT_OFFSET(fs_direction, ready, 76);
FS_ASSERT_OFFSET(fs_direction, finack, 80);
FS_ASSERT_OFFSET(fs_direction, limit, 84);
FS_ASSERT_OFFSET(fs_direction, settled, 88);
FS_ASSERT_OFFSET(fs_direction, futex, 92);
FS_ASSERT_OFFSET(fs_direction, seen, 128);

/* Packet WAKEUP: the publisher's answer in the meeting line. (A refusal is said on the meeting's socket.) */
enum fs_wakeup { FS_UNANSWERED = 0, FS_TAKEN = 1 };

/* What the seeker says when it has found the publisher's name; the descriptor of the memfd comes with it,
 * unless the region is one that both still have mapped, and that of its end of the TCP connection. */
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

/* Two versions meet under the same name. What both have to know of each other to stay on kernel TCP in peace is the same in every
 * version (docs/protocol.md, "Versions"): the first bytes of a hello, and so many descriptors at most, of which the last is the
 * seeker's end of the TCP connection; and the first byte of a refusal. */
#define FS_HELLO_HEAD offsetof(struct fs_hello, reuse)
#define FS_HELLO_DESCRIPTORS 4
_Static_assert(FS_HELLO_HEAD == 12 && FS_HELLO_DESCRIPTORS == 4, "the same in every version");

enum fs_refusal_reason {
    FS_WHY_UNTRUSTED = 'u',     /* another user's, or not the other end of this connection */
    FS_WHY_VIOLATION = 'v',     /* the protocol is broken */
    FS_WHY_DESCRIPTORS = '!',   /* there are no numbers to be had */
    FS_WHY_AGAIN = '?',         /* come again with a fresh region */
    FS_WHY_OTHER_VERSION = 'o', /* a whole fs_refusal says which one this is */
};

/* A refusal is its first byte alone, but for another version. More may follow in a later one. */
struct fs_refusal {
    unsigned char why; /* enum fs_refusal_reason */
    unsigned char zero[3];
    uint32_t version;  /* of who refuses */
};
_Static_assert(sizeof(struct fs_refusal) == 8, "no padding on the wire");
FS_ASSERT_OFFSET(fs_refusal, why, 0);
FS_ASSERT_OFFSET(fs_refusal, version, 4);

struct fs_region {
    _Alignas(FS_LINE) uint64_t magic;
    uint32_t version;
    uint32_t window; /* w: descriptors, and so credits, per half */
    uint32_t slots;  /* w rounded up to a power of two */
    uint32_t chunk;  /* largest payload of one descriptor, bytes */
    uint32_t arena;  /* payload bytes per half, both parts */
    uint32_t kind;   /* of socket: 0, TCP. Others are reserved */
    unsigned char id[16];
    _Alignas(FS_LINE) fs_word32 wakeup; /* enum fs_wakeup */
    fs_word32 done[2];                  /* side 0 / 1 will never touch the region again */
    fs_word64 asks[2];                  /* where side 0 / 1 listens for requests for a doorbell byte */
    fs_word64 set[2];                   /* the event set of side 0 / 1: 0 none, else its id << 32 | slot + 1 */
    fs_word64 asks_else[2];             /* where another holder of side 0 / 1 listens: asked if the first one has ended */
    /* followed by half 0, its descriptors, half 1, its descriptors, and the parts of the arenas */
};
_Static_assert(sizeof(struct fs_region) == 2 * FS_LINE, "header and meeting line");
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

static inline uint32_t fs_slots(uint32_t window) {
    uint32_t slots = 1;
    while (slots < window) slots *= 2;
    return slots;
}

static inline size_t fs_direction_size(uint32_t slots) {
    return sizeof(struct fs_direction) + (size_t)slots * sizeof(struct fs_descriptor);
}

/* Where the halves end and the near parts of the arenas begin. */
static inline size_t fs_directions_end(uint32_t slots) { return sizeof(struct fs_region) + 2 * fs_direction_size(slots); }

/* Bytes of a near part, a whole number of lines: 768 to 1792. */
static inline uint32_t fs_near_size(uint32_t slots) { return (uint32_t)(-fs_directions_end(slots) & 4095) / 2; }

/* Payload bytes of a half, without its spare parts. */
static inline uint32_t fs_arena(uint32_t window, uint32_t chunk) { return fs_near_size(fs_slots(window)) + window * chunk; }

/* Where an arena begins. */
static inline size_t fs_arena_offset(uint32_t slots, int half) {
    return fs_directions_end(slots) + (size_t)half * fs_near_size(slots);
}

/* Bytes between an arena's near part and its far part. */
static inline uint32_t fs_arena_gap(uint32_t window, uint32_t chunk, int half) {
    return half ? window * chunk : fs_near_size(fs_slots(window));
}

/* Bytes between an arena's beginning and its spare parts. */
static inline uint32_t fs_overflow_offset(uint32_t window, uint32_t chunk, int half) {
    uint32_t parts = fs_arena(window, chunk) + fs_arena_gap(window, chunk, 1); /* from arena 1 to the end of its far part */
    return half ? parts + FS_OVERFLOWS * FS_OVERFLOW_SIZE : parts + fs_near_size(fs_slots(window));
}

/* Bytes of a region, a whole number of 4 KiB pages. */
static inline size_t fs_region_size(uint32_t window, uint32_t chunk) {
    size_t size = fs_directions_end(fs_slots(window)) + 2 * ((size_t)fs_arena(window, chunk) + FS_OVERFLOWS * FS_OVERFLOW_SIZE);
    return (size + 4095) & ~(size_t)4095;
}

/* Of these, those that count against the cap before anybody has looked: spare parts are touched by few. */
static inline size_t fs_size_without_overflows(size_t region_size) { return region_size - 2 * FS_OVERFLOWS * FS_OVERFLOW_SIZE; }

#endif
