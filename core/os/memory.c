/* Memory for the core's records, where malloc must not be called: a signal handler of the program may call us while its thread is inside
 * malloc. And a child that was forked past pthread_atfork(3) may have a copy of malloc whose locks another thread of the parent's holds.
 *
 * A block has a size class, a power of two. Each class has one list of free blocks, and blocks never go from one class to another. The list
 * is changed by one compare-and-swap, and without a lock, so no copy of it can be held by somebody who is not there. Blocks longer than the
 * classes are mappings of their own, and go back to the system.
 *
 * Responsible for: memory that any call may take and give back. Never: memory that processes share. */
#include "os/memory.h"

#include <string.h>

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
};

/* The address of the first free block, and a count of the changes: a block that was taken and came back meanwhile is another head. */
static fs_word64 lists[CLASSES];

static struct block *first_of(uint64_t head) { return (struct block *)(uintptr_t)(head >> TAG_BITS << LINE_BITS); }

static uint64_t head_with(uint64_t before, const struct block *first) {
    return (uint64_t)(uintptr_t)first >> LINE_BITS << TAG_BITS | ((before + 1) & ((UINT64_C(1) << TAG_BITS) - 1));
}

static void put(fs_word64 *list, struct block *b) {
    uint64_t head;
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

static int class_of(size_t size) { return size <= 1u << SMALLEST ? 0 : 64 - __builtin_clzll((unsigned long long)size - 1) - SMALLEST; }

void *fs_allocate(size_t room) {
    size_t size = room + sizeof(struct block);
    if (size < room) return NULL;
    int class = class_of(size);
    if (class >= CLASSES) {
        struct block *own = (struct block *)fs_map_pages(size);
        if (own) own->size = size;
        return own ? own + 1 : NULL;
    }
    struct block *b = take(&lists[class]);
    if (!b) {
        size = (size_t)1 << (class + SMALLEST);
        size_t all = size > CHUNK ? size : CHUNK;
        char *chunk = fs_map_pages(all);
        if (!chunk) return NULL;
        for (size_t at = 0; at < all; at += size) {
            b = (struct block *)(void *)(chunk + at);
            b->size = size;
            if (at) put(&lists[class], b);
        }
        b = (struct block *)(void *)chunk;
    }
    return b + 1;
}

void fs_release(void *memory) {
    struct block *b = memory ? (struct block *)memory - 1 : NULL;
    if (!b) return;
    int class = class_of(b->size);
    if (class < CLASSES) put(&lists[class], b);
    else fs_unmap_pages(b, b->size);
}

void *fs_allocate_zeroed(size_t count, size_t size) {
    size_t room;
    if (__builtin_mul_overflow(count, size, &room)) return NULL;
    void *made = fs_allocate(room);
    return made ? memset(made, 0, room) : NULL;
}

void *fs_resize(void *before, size_t room) {
    size_t had = before ? ((struct block *)before - 1)->size - sizeof(struct block) : 0;
    if (before && room <= had) return before;
    void *made = fs_allocate(room);
    if (made && before) {
        memcpy(made, before, had);
        fs_release(before);
    }
    return made;
}
