/* Introspection: queries to a process (`fastsock ss`), answered on its control thread's datagram socket.
 *
 * A client sends a `fs_query` from a socket with an abstract name, and gets at most one `fs_query_reply`, followed by as many records as
 * fit. It asks again, from `next` on, until that is FS_QUERY_END. Only the same user and root get an answer, whatever the setting
 * `trust` is. All integers have the host's byte order; fastsock/tools/introspection.py gets the layouts from here.
 *
 * Nobody waits to send an answer: a client that does not read loses it. `fs_reply_allowed` bounds their number. */
#pragma once

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stddef.h>
#include <sys/un.h>

#include "os/syscalls.h"
#include "ring/recv_ring.h"
#include "wire/event_page.h"
#include "wire/tap_page.h"

#define FS_QUERY_MAGIC UINT64_C(0x316b6f6f6c2d7366) /* "fs-look1", little endian */
#define FS_REPLY_MAGIC UINT64_C(0x316e6565732d7366) /* "fs-seen1" */
#define FS_QUERY_END 0xffffffffu

enum fs_query_kind { FS_QUERY_PROCESS = 0, FS_QUERY_TABLE = 1, FS_QUERY_RING = 2, FS_QUERY_LINKS = 3 };

struct fs_query {
    uint64_t magic;
    uint64_t tag; /* copied to the answer */
    uint32_t kind, from;
};

struct fs_query_reply {
    uint64_t magic, tag;
    uint32_t kind, next, count, protocol; /* `count` records follow; protocol: FS_VERSION */
};

/* FS_QUERY_PROCESS: one record. */
struct fs_process_info {
    struct fs_counters gone; /* counters of ended connections and of kernel TCP */
    uint32_t on_ring, names, queued, window;
};

/* FS_QUERY_RING: an end with a region. FS_QUERY_TABLE: 64-bit words (process/conn_table.h). */
struct fs_connection_info {
    uint64_t inode;
    uint32_t flags, window; /* enum fs_info_flags */
    uint32_t unconsumed;    /* descriptors that the peer has not consumed yet */
    uint32_t credits;       /* descriptors that may be posted before the next ACK */
    uint64_t unread;        /* unread bytes here, or a lower bound if there are very many descriptors */
    struct fs_counters count;
};

enum fs_info_flags {
    FS_INFO_SENDS = 1, /* this direction is on the ring */
    FS_INFO_RECEIVES = 2,
    FS_INFO_LOOP_DRIVEN = 4, /* an event loop's transport drives it */
    FS_INFO_ASLEEP = 8, /* threads or an event set wait for data */
    FS_INFO_WAITS = 16, /* waits for credits */
    FS_INFO_FELL_BACK = 32, /* has fallen back to the kernel */
};

/* FS_QUERY_LINKS: a link (link.h). */
struct fs_link_info {
    uint64_t counted;     /* bytes that count against memory_cap */
    uint64_t connections; /* made over it */
    uint32_t peer, user;  /* the other process's; 0: in another PID namespace, and UINT32_MAX: unknown */
    uint32_t in_use, parked; /* regions */
};

#define FS_REPLY_ROOM 7168 /* bytes of records in an answer */
#define FS_REPLY_CONNECTIONS 32   /* of FS_QUERY_RING: the table lock is held for so many */
#define FS_REPLY_SCAN 64   /* descriptors examined for `unread` */

_Static_assert(sizeof(struct fs_query) == 24 && sizeof(struct fs_query_reply) == 32, "no padding on the wire");
_Static_assert(sizeof(struct fs_connection_info) == 32 + sizeof(struct fs_counters), "no padding on the wire");
_Static_assert(sizeof(struct fs_link_info) == 32, "no padding on the wire");
_Static_assert(FS_REPLY_CONNECTIONS * sizeof(struct fs_connection_info) <= FS_REPLY_ROOM, "one answer holds them");

struct fs_requester {
    struct sockaddr_un address;
    socklen_t size;
    union { /* the datagram */
        struct fs_query query;
        struct fs_page_offer offer;
    };
};

/* Returns true if another answer may be sent at `now` (monotonic ns): 256 at once, and 256 a second. So a client that asks without end
 * costs this process less than one percent of a CPU, besides receiving the queries. */
static inline int fs_reply_allowed(int64_t now) {
    enum { MOST = 256 };
    static int64_t tokens = MOST, then;
    int64_t earned = (now - then) / (1000000000 / MOST);
    if (earned > 0) {
        tokens = tokens + earned > MOST ? MOST : tokens + earned;
        then = now;
    }
    if (!tokens) return 0;
    tokens--;
    return 1;
}

/* Sends an answer. Never blocks: an address in the file system, whose look-up can take any time, gets none. */
static inline void fs_send_reply(int fd, const struct fs_requester *requester, const void *answer, size_t size) {
    if (requester->size <= offsetof(struct sockaddr_un, sun_path) + 1 || requester->address.sun_path[0]) return;
    fs_system.sendto(fd, answer, size, MSG_DONTWAIT | MSG_NOSIGNAL, (const struct sockaddr *)&requester->address,
                     requester->size);
}

/* Fills `seen` for an attached end. The caller keeps the region mapped. */
static inline void fs_fill_connection_info(struct fs_ring_pair *ring, struct fs_shared_side *own, uint64_t inode, uint32_t flags,
                              struct fs_connection_info *seen) {
    uint32_t moved = fs_load_relaxed(&own->moved), acked = fs_load_relaxed(&ring->tx->acked), taken = fs_load_relaxed(&ring->tx->seen);
    uint32_t posted = taken, used;
    /* (The sender's count needs its lock. The descriptors themselves tell.) */
    while (posted - taken < ring->window && FS_COMMIT_SEQ(fs_load_relaxed(&fs_descriptor_at(ring, ring->tx, posted)->commit)) == posted + 1)
        posted++;
    used = posted - acked;
    if ((moved & (FS_SENDING_MOVED | FS_SENDING_BACK)) == FS_SENDING_MOVED) flags |= FS_INFO_SENDS;
    if ((moved & (FS_RECEIVING_MOVED | FS_RECEIVING_BACK)) == FS_RECEIVING_MOVED) flags |= FS_INFO_RECEIVES;
    if (moved & (FS_SENDING_BACK | FS_RECEIVING_BACK)) flags |= FS_INFO_FELL_BACK;
    if (fs_load_relaxed(&ring->rx->doorbell) & (FS_ASLEEP | FS_SET_ASLEEP)) flags |= FS_INFO_ASLEEP;
    if (fs_load_relaxed(&ring->tx->credit_wait) & (FS_WAITS | FS_SET_WAITS)) flags |= FS_INFO_WAITS;
    seen->inode = inode;
    seen->flags = flags;
    seen->window = ring->window;
    seen->unconsumed = posted - taken;
    seen->credits = used > ring->window ? 0 : ring->window - used; /* a peer can write anything there */
    seen->unread = fs_unread_bytes(ring, SIZE_MAX, FS_REPLY_SCAN);
    memset(&seen->count, 0, sizeof seen->count);
    fs_add_counters(&seen->count, &ring->count, 0);
}

/* The counters of ended connections and of kernel TCP, kept by the front end; NULL: none. Set before the control thread starts. */
extern struct fs_counters *fs_ended_counters;

/* Answers a query on the control socket. For the control thread alone. */
void fs_answer_query(int fd, const struct fs_requester *requester);
