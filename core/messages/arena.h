/* The memory of a group: layout, and what each word means. Two sealed memfds, which all members map.
 *
 *     table   struct fs_group_head | slots: a word each | blocks: struct fs_block each
 *     arena   the blocks' bytes, class by class. Members that only read map it read-only
 *
 * Messages have numbers, from 0 on: their places in the one order that all members see. Slot `n % slots` names the block of message n. A
 * block is of one of a few sizes, four times as large from class to class.
 *
 * How a message comes into being. A writer claims a block, fills it, and swaps the number `head` and the block into the slot of that
 * number, by one compare-and-swap. With this swap the message exists, has its place in the order, and the writer is done. Anybody may then
 * count `head` up. So no writer ever has a place in the order that it has still to fill: one that is killed or stopped anywhere costs no
 * more than the block that it had claimed, until somebody sees that it is dead.
 *
 * How it ends. Messages before `tail` are no more. In a group that drops, a writer that needs room counts `tail` up; in one that blocks
 * only past what all readers have taken. A block is free when its message is before `tail` and nobody holds it: nobody has to set it free.
 *
 * How a reader holds a message. It sets its bit in the block's `holders`, and then looks at `tail`. A writer counts `tail` up, and then
 * looks at `holders`. All four are sequentially consistent, so at least one of the two sees the other: the reader finds that it was too
 * late and clears its bit, or the writer leaves the block alone.
 *
 * Who is alive. A member has a lock of the kernel's on one byte of the table's file (F_OFD_SETLK), with a description of its own that
 * forked children share. The kernel gives it up when the last of them has ended. Whoever gets such a lock cleans up for the dead member. A
 * forked child that uses the membership has a second place, with a lock that is the child's alone, for what it claims and holds: so that is
 * given back when the child dies. (If there is no place left, it does with its parent's.)
 *
 * Each word is read once, checked, and then used: a member that writes nonsense ends the group, and nobody reads or writes beside it. */
#pragma once

#include <stddef.h>

#include "include/fastsock_messages.h"
#include "os/atomics.h"
#include "ring/robust_lock.h"

#define FS_GROUP_MAGIC UINT64_C(0x3170756f72677366) /* "fsgroup1" */

enum {
    FS_GROUP_VERSION = 1,
    FS_CLASSES = 13,          /* 256 bytes to 4 GiB */
    FS_SMALLEST_BLOCK = 256,
    FS_FEWEST_BLOCKS = 8,     /* of the larger classes */
    FS_PAGE = 4096,
};

/* A number and a block in a slot: the number's lower 40 bits. (A writer that was stopped between two of its instructions while exactly so
 * many messages passed would be deceived: twelve days at a million a second.) */
#define FS_BLOCK_BITS 24
#define FS_NO_BLOCK ((UINT64_C(1) << FS_BLOCK_BITS) - 1)
#define FS_NUMBER_MASK ((UINT64_C(1) << 40) - 1)
static inline uint64_t fs_slot_word(uint64_t number, uint64_t block) { return (number & FS_NUMBER_MASK) << FS_BLOCK_BITS | block; }
static inline int fs_slot_has(uint64_t word, uint64_t number) { return word >> FS_BLOCK_BITS == (number & FS_NUMBER_MASK); }

/* The state of a block: free, claimed by a member, or of a message. */
enum fs_block_kind { FS_BLOCK_FREE, FS_BLOCK_CLAIMED, FS_BLOCK_MESSAGE };
static inline uint64_t fs_block_state(enum fs_block_kind kind, uint64_t of) { return of << 2 | (uint64_t)kind; }

struct fs_block {
    fs_word64 state;
    fs_word64 holders; /* a bit for each member */
    fs_word64 number;  /* the number with which its writer tries to publish it */
    fs_word64 length;
    fs_word32 kind, sender;
    fs_word64 touched; /* bytes of it that have memory, at most */
    uint64_t unused[2];
};

/* Sleepers. `armed`: counted up by each before it looks and sleeps. `told`: the value of `armed` that a waker has woken; while both are
 * equal nobody sleeps, and it costs a waker two loads. A waker stores `told` last: if it is killed before, the next one wakes once more. */
struct fs_bell {
    fs_word32 armed, told, futex, unused;
};

enum fs_joined { FS_NOBODY, FS_MEMBER, FS_HANDS }; /* FS_HANDS: of a forked child, which reads at its parent's place */

struct fs_member_place {
    _Alignas(128) fs_word32 joined; /* enum fs_joined */
    fs_word32 reads; /* its cursor holds the writers of a blocking group */
    fs_word64 cursor;        /* the next message to take */
    struct fs_bell poll;     /* it sleeps in poll, on its socket */
    fs_word64 secret;        /* what a datagram to this socket contains */
    fs_word64 sent, received, lost;
    fs_word64 unreported; /* of `lost`, those that no message has come after yet */
    fs_word32 pid, user; /* for people */
    struct fs_robust_lock taking; /* its threads and forked processes take turns */
};

struct fs_group_head {
    /* written by who makes the group */
    uint64_t magic;
    uint32_t version, slots, blocking, name_length;
    uint64_t size, largest;
    unsigned char name[FS_GROUP_NAME_MAX + 16];
    _Alignas(64) fs_word64 head;
    _Alignas(64) fs_word64 tail;
    _Alignas(64) struct fs_bell readers, pollers, writers;
    _Alignas(64) fs_word32 next[FS_CLASSES]; /* where the search for a block begins */
    fs_word32 members;                       /* a hint: how many have joined */
    fs_word32 keepers;                       /* a hint: these, and forked children */
    fs_word32 places;                        /* after the last that has ever been taken */
    fs_word64 touched;                       /* a hint: bytes with memory */
    struct fs_member_place member[FS_GROUP_MEMBERS];
};

_Static_assert(sizeof(struct fs_block) == 64 && sizeof(struct fs_member_place) % 128 == 0, "no two share a line");

static inline uint32_t fs_places_end(struct fs_group_head *table) { return FS_MIN(fs_load_sc(&table->places), (uint32_t)FS_GROUP_MEMBERS); }

/* What follows from slots, size and largest. Each process computes it for itself. */
struct fs_geometry {
    uint32_t slots, classes, blocks, blocking;
    uint64_t largest, table_size, arena_size, limit;
    struct fs_block_class {
        uint64_t block_size, offset; /* of its first block in the arena */
        uint32_t first, count;
    } of[FS_CLASSES];
};

/* Returns 0, or -EINVAL. */
int fs_geometry_of(struct fs_geometry *geometry, uint32_t slots, uint64_t size, uint64_t largest);

static inline uint32_t fs_class_for(const struct fs_geometry *geometry, uint64_t length) {
    uint32_t which = 0;
    while (geometry->of[which].block_size < length) which++;
    return which;
}

static inline uint32_t fs_class_of_block(const struct fs_geometry *geometry, uint32_t block) {
    uint32_t which = 0;
    while (block >= geometry->of[which].first + geometry->of[which].count) which++;
    return which;
}

static inline uint64_t fs_offset_of(const struct fs_geometry *geometry, uint32_t which, uint32_t block) {
    const struct fs_block_class *of = &geometry->of[which];
    return of->offset + (block - of->first) * of->block_size;
}

/* Message `number` has been published: counts `head` up, if its writer has not yet. */
static inline void fs_help_head(struct fs_group_head *table, uint64_t number) {
    if (fs_load_sc(&table->head) == number) fs_cas64(&table->head, number, number + 1);
}

static inline void fs_raise_tail(struct fs_group_head *table, uint64_t to) {
    uint64_t tail;
    while ((tail = fs_load_sc(&table->tail)) < to && !fs_cas64(&table->tail, tail, to)) {}
}
