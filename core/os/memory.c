/* Memory for the core's records, where malloc must not be called: a signal handler of the program may call us while its thread is inside
 * malloc. And a child that was forked past pthread_atfork(3) may have a copy of malloc whose locks another thread of the parent's holds.
 *
 * A block has a size class, a power of two. Each class has one list of free blocks, and blocks never go from one class to another. The list
 * is changed by one compare-and-swap, and without a lock, so no copy of it can be held by somebody who is not there. What the system has
 * given is on the list as one *run* of blocks, of which one after the other is taken: a page from which none has been taken yet takes no
 * memory, and no time in a fork. Blocks longer than the classes are mappings of their own, and go back to the system.
 *
 * Responsible for: memory that any call may take and give back. Never: memory that processes share. */
#include "os/memory.h"

#include <stdint.h>

#include "os/atomics.h"

enum {
    SMALLEST = 6,            /* log2 of the smallest block, bytes with its head */
    CLASSES = 12,            /* of blocks up to 128 KiB */
    CHUNK = 65536,           /* bytes that a list without blocks asks the system for, at least one block */
    LINE_BITS = 6,           /* blocks begin at multiples of 64 */
    TAG_BITS = 22,           /* (an address has at most 48 bits) */
};

struct block {
    fs_word64 next; /* address of the next free one */
    uint64_t size;  /* with this head; a power of two up to the largest class. Written once */
    uint32_t after[]; /* of a free block: [0] so many more of its run follow it, and have no head yet */
};

/* The address of the first free block, and a count of the changes: a block that was taken and came back meanwhile is another head. */
static fs_word64 lists[CLASSES];

static struct block *first_of(uint64_t head) { return (struct block *)(uintptr_t)(head >> TAG_BITS << LINE_BITS); }

static uint64_t head_with(uint64_t before, const struct block *first) {
    return (uint64_t)(uintptr_t)first >> LINE_BITS << TAG_BITS | ((before + 1) & ((UINT64_C(1) << TAG_BITS) - 1));
}

static void put(fs_word64 *list, struct block *b, uint32_t after) {
    uint64_t head;
    b->after[0] = after;
    do {
        head = fs_load_relaxed(list);
        fs_store_relaxed(&b->next, (uint64_t)(uintptr_t)first_of(head)); /* (read by who has this head, which the swap publishes) */
    } while (!fs_cas64(list, head, head_with(head, b)));
}

static struct block *take(fs_word64 *list) {
    for (;;) {
        uint64_t head = fs_load_sc(list); /* the swap that put it there comes before: `next` is its block's */
        struct block *b = first_of(head);
        if (!b) return NULL;
        /* (It may have been taken by now. Its memory stays, and the swap fails.) */
        struct block *next = (struct block *)(uintptr_t)fs_load_relaxed(&b->next);
        if (fs_cas64(list, head, head_with(head, next))) return b;
    }
}

/* Makes the first one of a run a block, and the others a run. */
static struct block *first_of_run(fs_word64 *list, struct block *b, uint64_t size, uint32_t after) {
    b->size = size;
    if (after) put(list, (struct block *)(void *)((char *)b + size), after - 1);
    return b;
}

static int class_of(size_t size) { return size <= 1u << SMALLEST ? 0 : 64 - __builtin_clzll((unsigned long long)size - 1) - SMALLEST; }

void *fs_block_take(const struct fs_page_source *pages, size_t room) {
    size_t size = room + sizeof(struct block);
    if (size < room) return NULL;
    int class = class_of(size);
    if (class >= CLASSES) {
        struct block *own = (struct block *)pages->map(size);
        if (own) own->size = size;
        return own ? own + 1 : NULL;
    }
    struct block *b = take(&lists[class]);
    uint32_t after = b ? b->after[0] : 0;
    size = (size_t)1 << (class + SMALLEST);
    if (!b) {
        size_t all = size > CHUNK ? size : CHUNK;
        b = (struct block *)pages->map(all);
        if (!b) return NULL;
        after = (uint32_t)(all / size) - 1;
    }
    return first_of_run(&lists[class], b, size, after) + 1;
}

void fs_block_give(const struct fs_page_source *pages, void *memory) {
    struct block *b = memory ? (struct block *)memory - 1 : NULL;
    if (!b) return;
    int class = class_of(b->size);
    if (class < CLASSES) put(&lists[class], b, 0);
    else pages->unmap(b, b->size);
}

size_t fs_block_room(const void *memory) { return ((const struct block *)memory - 1)->size - sizeof(struct block); }
