/* The places of a group's blocks. Theory: arena.h. */
#include "messages/arena.h"

#include "os/syscalls.h"

int fs_geometry_of(struct fs_geometry *geometry, uint32_t slots, uint64_t size, uint64_t largest) {
    memset(geometry, 0, sizeof *geometry);
    if (slots < 2 || slots > FS_GROUP_SLOTS_MAX || !largest || largest > UINT64_C(1) << 32 || size > UINT64_C(1) << 40) return -EINVAL;
    struct fs_geometry *g = geometry;
    g->slots = slots;
    g->largest = largest;
    for (uint64_t block = FS_SMALLEST_BLOCK;; block *= 4) {
        struct fs_block_class *of = &g->of[g->classes++];
        of->block_size = block >= largest && block > FS_PAGE ? (largest + FS_PAGE - 1) & ~(uint64_t)(FS_PAGE - 1) : block;
        of->count = (uint32_t)FS_MAX(FS_MIN(size / block, (uint64_t)slots), (uint64_t)FS_FEWEST_BLOCKS);
        of->first = g->blocks;
        of->offset = g->arena_size;
        g->blocks += of->count;
        g->arena_size += ((uint64_t)of->count * of->block_size + FS_PAGE - 1) & ~(uint64_t)(FS_PAGE - 1);
        if (block >= largest) break;
    }
    g->limit = FS_MAX(size, FS_FEWEST_BLOCKS * g->of[g->classes - 1].block_size);
    g->table_size = sizeof(struct fs_group_head) + slots * sizeof(fs_word64) + g->blocks * sizeof(struct fs_block);
    g->table_size = (g->table_size + FS_PAGE - 1) & ~(uint64_t)(FS_PAGE - 1);
    return 0;
}
