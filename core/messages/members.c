/* Who is a member, and cleaning up for the dead. Theory: arena.h.
 *
 * Responsible for: a dead member's blocks and holds are given back, once, and its place is not taken before. Never: judges a member by its
 * process id, which may be another's by now, or of another namespace.
 *
 * Cleaning up takes the dead member's lock with a description of its own, so two never clean up for the same one, nor one for a member that
 * has just joined. If whoever cleans up is killed, the next one begins again: each step may be done twice. */
#include "messages/group.h"

#include <stdio.h>

#include "os/fd_reserve.h"

#define SWEEP_INTERVAL ((int64_t)20000000) /* ns between two looks for dead members */

/* F_OFD_SETLK, F_OFD_GETLK: where headers have them not. */
#ifndef F_OFD_GETLK
#define F_OFD_GETLK 36
#define F_OFD_SETLK 37
#endif

static struct flock byte_of(uint32_t place) {
    return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)place, .l_len = 1};
}

static int lock_place(int fd, uint32_t place) {
    struct flock lock = byte_of(place);
    return fs_system.fcntl(fd, F_OFD_SETLK, (long)&lock) == 0;
}

/* True if another description has the lock of a place. Unknown counts as alive. */
static int is_alive(int file, uint32_t place) {
    struct flock lock = byte_of(place);
    return fs_system.fcntl(file, F_OFD_GETLK, (long)&lock) < 0 || lock.l_type != F_UNLCK;
}

static int reopen(const struct fs_group *g) {
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", g->table_fd);
    return fs_system.open(path, O_RDWR | O_CLOEXEC);
}

int fs_place_open(struct fs_group *g) { return fs_reserve_fd(reopen(g), 0); }

void fs_count_members(struct fs_group_head *table) {
    uint32_t members = 0, keepers = 0;
    for (uint32_t i = 0, end = fs_places_end(table); i < end; i++) {
        uint32_t joined = fs_load_relaxed(&table->member[i].joined);
        members += joined == FS_MEMBER;
        keepers += joined != FS_NOBODY;
    }
    fs_store_relaxed(&table->members, members);
    fs_store_relaxed(&table->keepers, keepers);
}

/* Gives back what a place has, with its lock. */
static void clean(struct fs_group *g, uint32_t place) {
    fs_word64 *slots = fs_group_slots(g);
    struct fs_block *blocks = fs_group_blocks(g);
    uint64_t bit = UINT64_C(1) << place, claimed = fs_block_state(FS_BLOCK_CLAIMED, place);
    for (uint32_t i = 0; i < g->geometry.blocks; i++) {
        if (fs_load_sc(&blocks[i].holders) & bit) fs_and_sc(&blocks[i].holders, ~bit);
        if (fs_load_sc(&blocks[i].state) != claimed) continue;
        /* It has become a message if its writer got as far as the swap. */
        uint64_t number = fs_load_sc(&blocks[i].number);
        int published = fs_load_sc(&slots[number % g->geometry.slots]) == fs_slot_word(number, i);
        fs_cas64(&blocks[i].state, claimed, published ? fs_block_state(FS_BLOCK_MESSAGE, number) : fs_block_state(FS_BLOCK_FREE, 0));
    }
    fs_store_sc(&g->table->member[place].joined, FS_NOBODY);
    fs_count_members(g->table);
}

int fs_place_take(struct fs_group *g, int fd) {
    for (uint32_t place = 0; place < FS_GROUP_MEMBERS; place++) {
        if (!lock_place(fd, place)) continue;
        clean(g, place);
        memset(&g->table->member[place], 0, sizeof g->table->member[place]);
        for (uint32_t end; (end = fs_load_sc(&g->table->places)) <= place;) fs_cas32(&g->table->places, end, place + 1);
        return (int)place;
    }
    return -EUSERS;
}

int fs_place_sweep(struct fs_group *g, uint32_t place) {
    int own = reopen(g), dead = own >= 0 && lock_place(own, place);
    if (dead && fs_load_sc(&g->table->member[place].joined)) {
        fs_group_unname(g, place, FS_LISTENS);
        fs_group_unname(g, place, FS_BELL);
        clean(g, place);
    }
    if (own >= 0) fs_system.close(own);
    return dead;
}

void fs_sweep(struct fs_group *g) {
    int64_t now = fs_now();
    if (now < (int64_t)fs_load_relaxed(&g->next_sweep)) return;
    fs_store_relaxed(&g->next_sweep, (uint64_t)(now + SWEEP_INTERVAL));
    int swept = 0;
    for (uint32_t i = 0, end = fs_places_end(g->table); i < end; i++)
        if (i != g->place && fs_load_sc(&g->table->member[i].joined) && !is_alive(g->table_fd, i)) swept |= fs_place_sweep(g, i);
    if (swept && g->geometry.blocking) fs_wake_writers(g);
}
