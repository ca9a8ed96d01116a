/* The page by which a process shows an observer the bytes of its moved connections (`fastsock tcpdump`), and how both use it.
 *
 *   0     +-----------------------------+
 *         | observer's line             |  what it asks for, how far it has read, when it looked last
 *   64    +-----------------------------+
 *         | process's line              |  answer, how far it has written, what found no room
 *   4096  +-----------------------------+
 *         | records                     |  FS_TAP_ROOM bytes, in a circle
 *         +-----------------------------+
 *
 * The observer makes the page, a sealed memfd, and offers it to the control socket: a `struct fs_control_msg` with FS_TAP_MAGIC, whose id
 * and side are 0. All processes and threads of the observed side may write. Each reserves its record by a swap of `head`, and stores the
 * record's size last. The observer zeroes what it has read, so a size that is not 0 is a record that is complete.
 *
 * Nobody waits for the observer: what finds no room is counted and dropped. Both may write any byte at any time, so each value is read once
 * and checked: a wrong one costs records, and no memory outside of the page. */
#pragma once

#include <string.h>

#include "wire/region.h"

#define FS_TAP_MAGIC UINT64_C(0x312d7061742d7366) /* "fs-tap-1", little endian */

enum {
    FS_TAP_HEAD = 4096,
    FS_TAP_ROOM = 1 << 22,                 /* a power of two */
    FS_TAP_SIZE = FS_TAP_HEAD + FS_TAP_ROOM, /* of the memfd. (No multiple of a huge page, so it is no file of huge pages that may lack.) */
    FS_TAP_PIECE = 32768,                  /* bytes of a stream in one record, at most */
};

#define FS_TAP_LEASE ((int64_t)5000000000) /* ns after which an observer that has not looked is gone */

enum fs_tap_answer { FS_TAP_UNANSWERED = 0, FS_TAP_SHOWS = 1, FS_TAP_BUSY = 2 /* another observer looks */, FS_TAP_REFUSED = 3 };

struct fs_tap {
    _Alignas(FS_LINE) fs_word64 taken; /* position up to which records were read */
    fs_word64 looked;                  /* monotonic ns */
    uint32_t snaplen;                  /* bytes of a record's data that are kept, at most */
    uint32_t port;                     /* of the connections that are shown; 0: all */
    _Alignas(FS_LINE) fs_word32 answer; /* enum fs_tap_answer */
    fs_word64 head;                     /* position up to which records were reserved */
    fs_word64 dropped;                  /* records that found no room */
};
_Static_assert(sizeof(struct fs_tap) == 2 * FS_LINE, "two lines, each with one usual writer");

enum fs_tap_kind {
    FS_TAP_PAD = 0,      /* nothing: up to the end of the circle */
    FS_TAP_START = 1,    /* data: struct fs_tap_start. May come twice */
    FS_TAP_SENT = 2,     /* data: bytes that this side has sent on the ring */
    FS_TAP_RECEIVED = 3, /* data: bytes that it has received */
    FS_TAP_FIN_SENT = 4, FS_TAP_FIN_RECEIVED = 5,
    FS_TAP_CLOSED = 6, FS_TAP_RESET = 7, /* the last holder has closed; with a reset */
    FS_TAP_LEFT = 8,     /* the same, after the connection had gone back to the kernel */
};

struct fs_tap_record {
    fs_word32 size;    /* of the record with its data, a multiple of 8; stored last */
    uint32_t kind;     /* enum fs_tap_kind */
    int64_t when;      /* monotonic ns */
    uint64_t inode;    /* of the connection's socket */
    uint64_t position; /* in the stream, of the first byte; or of its end */
    uint32_t length;   /* bytes of the stream */
    uint32_t kept;     /* bytes of data that follow */
};
_Static_assert(sizeof(struct fs_tap_record) == 40, "no padding on the wire");

struct fs_tap_start {
    uint64_t positions[2];            /* in the stream that is sent, and in the one that is received */
    unsigned char id[16];             /* of the region */
    uint32_t side;
    uint32_t peer;                    /* the process at the other end; 0: unknown */
    uint32_t address_size;            /* bytes of an address: 4 or 16; 0: a unix stream */
    uint32_t ports[2];                /* of this end, and of the other one */
    unsigned char addresses[2][16];
    unsigned char paths[2][108];      /* of a unix stream; filled up with zeros */
    uint32_t zero;
};
_Static_assert(sizeof(struct fs_tap_start) == 304, "no padding on the wire");

static inline struct fs_tap_record *fs_tap_at(struct fs_tap *tap, uint64_t position) {
    return (struct fs_tap_record *)((char *)tap + FS_TAP_HEAD + (position & (FS_TAP_ROOM - 1)));
}

/* For the process: reserves a record with so many bytes of data. Returns NULL without room. Commit it with fs_tap_commit. */
static inline struct fs_tap_record *fs_tap_reserve(struct fs_tap *tap, uint32_t kept, uint32_t *size) {
    *size = (uint32_t)sizeof(struct fs_tap_record) + ((kept + 7) & ~7u);
    for (;;) {
        uint64_t head = fs_load_relaxed(&tap->head);
        /* SYNC: tap room - pairs with fs_tap_done: what the observer has read is zero. */
        uint64_t used = head - fs_load_acquire(&tap->taken);
        uint32_t rest = FS_TAP_ROOM - (uint32_t)(head & (FS_TAP_ROOM - 1)), pad = rest < *size ? rest : 0;
        if (head % 8 || used > FS_TAP_ROOM || FS_TAP_ROOM - used < pad + *size) {
            fs_count(&tap->dropped, 1);
            return NULL;
        }
        if (!fs_cas64(&tap->head, head, head + pad + *size)) continue;
        /* SYNC: tap record - pairs with fs_tap_next. (A pad has its size alone: the kind is 0.) */
        if (pad) fs_store_release(&fs_tap_at(tap, head)->size, pad);
        return fs_tap_at(tap, head + pad);
    }
}

static inline void fs_tap_commit(struct fs_tap_record *record, uint32_t size) {
    /* SYNC: tap record - pairs with fs_tap_next. */
    fs_store_release(&record->size, size);
}

/* For the observer: what it asks for; that it is there; what the process says. */
static inline void fs_tap_ask(struct fs_tap *tap, uint32_t snaplen, uint32_t port) {
    tap->snaplen = snaplen;
    tap->port = port;
}
static inline void fs_tap_look(struct fs_tap *tap, int64_t now) { fs_store_relaxed(&tap->looked, (uint64_t)now); }
static inline uint32_t fs_tap_answered(struct fs_tap *tap) { return fs_load_relaxed(&tap->answer); }
static inline uint64_t fs_tap_dropped(struct fs_tap *tap) { return fs_load_relaxed(&tap->dropped); }

/* For the observer: sets `*size` and returns the next complete record, NULL: there is none. It is one that fits; its fields may be any. */
static inline struct fs_tap_record *fs_tap_next(struct fs_tap *tap, uint64_t taken, uint32_t *size) {
    struct fs_tap_record *record = fs_tap_at(tap, taken);
    /* SYNC: tap record - pairs with fs_tap_reserve and fs_tap_commit. */
    *size = fs_load_acquire(&record->size);
    uint32_t rest = FS_TAP_ROOM - (uint32_t)(taken & (FS_TAP_ROOM - 1));
    return *size && *size % 8 == 0 && *size <= rest ? record : NULL;
}

/* For the observer: gives the record's room back. */
static inline void fs_tap_done(struct fs_tap *tap, struct fs_tap_record *record, uint32_t size, uint64_t *taken) {
    memset(record, 0, size);
    *taken += size;
    /* SYNC: tap room - pairs with fs_tap_reserve. */
    fs_store_release(&tap->taken, *taken);
}
