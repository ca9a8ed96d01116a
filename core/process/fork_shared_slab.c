/* Memory shared with forked children and with nobody else: two blocks for each connection (struct fs_shared_side and its `ends`).
 *
 * Blocks come from slabs and return to them when the last process that holds the connection has released it. A child never allocates or
 * frees inherited blocks: the parent frees them, when the holder count permits.
 *
 * The free lists are in this process's own memory, not in the blocks: a child that has released a connection may have a thread still
 * inside, and a fresh slab costs no page before its blocks are used. Slabs are never freed. Everything here needs the host lock. */
#include "process/fork_shared_slab.h"

#include "os/host.h"
#include "os/syscalls.h"
#include "process/holder_count.h"

enum {
    SLAB = 65536,
    BLOCK = FS_LINE, /* sizes are rounded up to this: no line is in two blocks */
    LARGEST = FS_WINDOW_MAX * sizeof(uint64_t), /* bytes: the `ends` of the widest window */
    SIZES = LARGEST / BLOCK + 1,
};
_Static_assert((FS_WINDOW_MAX & (FS_WINDOW_MAX - 1)) == 0, "fs_ends_size rounds windows up to a power of two");
_Static_assert(sizeof(struct fs_shared_side) <= LARGEST, "a side is a block too");

struct fs_shared_side fs_ended_side;

/* Free blocks of one size, a stack. It has room for all blocks that this process made, so none is lost when memory is short. */
struct free_blocks {
    char **blocks;
    size_t count, made, room;
};

/* Released here, still held by a forked process. */
struct held {
    struct fs_shared_side *side;
    size_t ends_size;
};

static struct free_blocks free_blocks[SIZES]; /* by size, in BLOCKs */
static int FS_EACH_FORK inherited; /* the free blocks and what follows are as the parent had them: none of it is this process's */
static struct held *held_elsewhere;
static size_t held_count, held_room;

static size_t rounded_to_block(size_t size) { return (size + BLOCK - 1) / BLOCK * BLOCK; }

/* Returns `array`, grown so that `*room` is at least `needed`; NULL without memory, and `array` is unchanged. */
static void *with_room(void *array, size_t size, size_t *room, size_t needed) {
    if (needed <= *room) return array;
    size_t wider = FS_MAX(needed, 2 * *room);
    void *grown = fs_system.realloc(array, wider * size);
    if (grown) *room = wider;
    return grown;
}

/* Adds a slab of free blocks of `block` bytes. Returns 0 without memory or address space. */
static int add_slab(struct free_blocks *to, size_t block) {
    size_t length = SLAB / block;
    char **blocks = with_room(to->blocks, sizeof *blocks, &to->room, to->made + length);
    if (!blocks) return 0;
    to->blocks = blocks;
    char *slab = fs_system.mmap(NULL, SLAB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (slab == MAP_FAILED) return 0;
    to->made += length;
    while (length) to->blocks[to->count++] = slab + --length * block;
    return 1;
}

/* Tries again to free the blocks that were held elsewhere. */
static void reclaim(void) {
    size_t count = held_count;
    held_count = 0;
    /* (A block that is still held is noted again, at most at the index it was read from.) */
    for (size_t i = 0; i < count; i++) {
        struct held waiting = held_elsewhere[i];
        fs_side_free(waiting.side, waiting.ends_size);
    }
}

/* (Not as soon as the fork: most children need no block, and each would get the pages of all this.) */
static void forget(void) {
    for (int i = 0; i < SIZES; i++) free_blocks[i].count = free_blocks[i].made = 0;
    held_count = 0;
    inherited = 0;
}

void *fs_slab_alloc(size_t size) {
    size_t block = rounded_to_block(size);
    if (block > LARGEST) return NULL;
    if (inherited) forget();
    struct free_blocks *from = &free_blocks[block / BLOCK];
    if (!from->count && held_count) reclaim();
    if (!from->count && !add_slab(from, block)) return NULL;
    void *memory = from->blocks[--from->count];
    memset(memory, 0, block);
    return memory;
}

void fs_slab_free(void *memory, size_t size) {
    struct free_blocks *to = &free_blocks[rounded_to_block(size) / BLOCK];
    if (to->count < to->room) to->blocks[to->count++] = memory; /* always true: add_slab has made room */
}

struct fs_shared_side *fs_side_new(void) {
    struct fs_shared_side *side = fs_slab_alloc(sizeof *side);
    if (!side) return NULL;
    fs_store_sc(&side->holders, 1);
    side->pid_space = fs_own_pid_ns();
    return side;
}

void fs_side_free(struct fs_shared_side *side, size_t ends_size) {
    if (fs_count_holders(side)) {
        struct held *wider = with_room(held_elsewhere, sizeof *wider, &held_room, held_count + 1);
        if (!wider) return; /* no memory to note it: the block is never reused */
        held_elsewhere = wider;
        held_elsewhere[held_count++] = (struct held){side, ends_size};
        return;
    }
    if (side->sender.ends) fs_slab_free(side->sender.ends, ends_size);
    fs_slab_free(side, sizeof(struct fs_shared_side));
}

void FS_AT_FORK fs_slab_forget(void) { inherited = 1; }
