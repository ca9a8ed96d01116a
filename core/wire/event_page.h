/* The page of an event set, by which a posting process notifies the loop of another process, and the message that offers it.
 *
 *   0     +-----------------------------+
 *         | owner's line                |  asleep, known, over
 *   64    +-----------------------------+
 *         | summary: 256 bits           |  bit i: word i of `ready` may have bits
 *   128   +-----------------------------+
 *         | ready: 16,384 bits          |  bit i: the connection in slot i of the set may have something
 *   2176  +-----------------------------+
 *
 * An event set shares one page with each process that posts to its connections. Both may write any byte of the page at any time, so a
 * bit is a hint: the owner checks the connection itself. */
#pragma once

#include "wire/region.h"

#define FS_PAGE_OFFER_MAGIC UINT64_C(0x31307465732d7366) /* "fs-set01", little endian */
#define FS_PAGE_SIZE 4096                         /* bytes of a page's memfd */

enum { FS_SET_WORDS = 256, FS_SET_SLOTS = FS_SET_WORDS * 64 };

struct fs_event_page {
    _Alignas(FS_LINE) fs_word32 asleep; /* number of the set's sleep, 0: awake; the poster swaps it for 0, then writes the eventfd */
    fs_word32 known;                    /* 1: the posting process has the page and uses it */
    fs_word32 over;                     /* 1: the owner no longer reads the page */
    _Alignas(FS_LINE) fs_word64 summary[FS_SET_WORDS / 64];
    _Alignas(FS_LINE) fs_word64 ready[FS_SET_WORDS];
};
_Static_assert(sizeof(struct fs_event_page) == 2176, "as docs/protocol.md says");
FS_ASSERT_OFFSET(fs_event_page, asleep, 0);
FS_ASSERT_OFFSET(fs_event_page, known, 4);
FS_ASSERT_OFFSET(fs_event_page, over, 8);
FS_ASSERT_OFFSET(fs_event_page, summary, 64);
FS_ASSERT_OFFSET(fs_event_page, ready, 128);
_Static_assert(sizeof(struct fs_event_page) <= FS_PAGE_SIZE, "a page is one page");

/* Offers a page. Sent to the control socket of the other process, with the page's memfd and the set's eventfd. */
struct fs_page_offer {
    uint64_t magic;
    uint32_t version;
    uint32_t side;        /* a connection of the receiving process: */
    unsigned char id[16]; /* its region's id */
    uint32_t set;         /* the set's id in the offering process */
    uint32_t pad;
};
_Static_assert(sizeof(struct fs_page_offer) == 40, "no padding on the wire, and no request is as long");
FS_ASSERT_OFFSET(fs_page_offer, magic, 0);
FS_ASSERT_OFFSET(fs_page_offer, version, 8);
FS_ASSERT_OFFSET(fs_page_offer, side, 12);
FS_ASSERT_OFFSET(fs_page_offer, id, 16);
FS_ASSERT_OFFSET(fs_page_offer, set, 32);

/* Makes the value in a region that names the event set of a side and the connection's slot in it. 0: none. */
static inline uint64_t fs_slot_name(uint32_t id, uint32_t place) { return (uint64_t)id << 32 | (place + 1); }

/* Its parts. The peer may have made up the value. */
static inline uint32_t fs_slot_set(uint64_t name) { return (uint32_t)(name >> 32); }
static inline uint32_t fs_slot_index(uint64_t name) { return ((uint32_t)name - 1) % FS_SET_SLOTS; }
