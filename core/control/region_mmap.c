/* Creates, maps and recycles the shared memory of a connection. Frees none: see link.c. */
#include "control/region_mmap.h"

#include "ring/ring.h"

enum { KEPT_WARM = 16384 }; /* bytes at the start of the arenas that a parked region keeps */

int fs_create_region(int window, int chunk, const unsigned char id[16], void **memory) {
    size_t size = fs_region_size(window, chunk);
    int memfd = fs_memfd_sealed("fastsock", size);
    if (memfd < 0) return memfd;
    *memory = fs_map_memfd(memfd, size);
    if (!*memory) {
        fs_system.close(memfd);
        return -ENOMEM;
    }
    fs_region_format(*memory, window, chunk, id);
    return memfd;
}

static void give_back(void *memory, size_t size, int window) {
    size_t start = (fs_directions_end(fs_slots(window)) + KEPT_WARM + 4095) & ~(size_t)4095;
    if (start < size) fs_system.madvise((char *)memory + start, size - start, MADV_REMOVE);
}

int fs_mark_done(void *memory, size_t size, int side, int window) {
    struct fs_region *region = memory;
    /* SYNC: region free - pairs with fs_is_region_free. Sequentially consistent: this side marks and looks, and so does fs_cool. One of
     * the two sees the other's mark. */
    fs_store_sc(&region->done[side], FS_DONE);
    if (fs_load_sc(&region->done[1 - side]) != FS_COLD) return 1;
    give_back(memory, size, window);
    return 0;
}

/* The seeker may ready the region at any time for another connection, and then the publisher must not write the mark. Nor does the
 * connection use the arenas yet: the publisher has to take the region first. (So it has where the region is offered by its cell.) Where
 * both sides cool at once, the publisher gives back. */
void fs_cool(void *memory, size_t size, int side, int window) {
    struct fs_region *region = memory;
    int reused = !fs_cas32(&region->done[side], FS_DONE, FS_COLD);
    uint32_t other = fs_load_sc(&region->done[1 - side]);
    if (reused || other == FS_DONE || (other == FS_COLD && side == 1)) give_back(memory, size, window);
}

int fs_is_region_free(void *memory) {
    struct fs_region *region = memory;
    /* SYNC: region free - pairs with fs_mark_done. */
    return fs_load_acquire(&region->done[0]) && fs_load_acquire(&region->done[1]);
}

int fs_wakeup_seen(void *memory) {
    /* SYNC: taken - pairs with judge and fs_cell_take. */
    return fs_load_acquire(&((struct fs_region *)memory)->wakeup) == FS_TAKEN;
}
