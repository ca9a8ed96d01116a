/* How far the members have come: a group's first message, and each reader's next one. Theory: arena.h. */
#include "messages/group.h"

/* (A member that joins writes `joined` and then its cursor, from `head`. If this loop misses it, `head` was no smaller when it read it.) */
void fs_advance_tail(struct fs_group *g) {
    struct fs_group_head *table = g->table;
    uint64_t to = fs_load_sc(&table->head);
    for (uint32_t i = 0, end = fs_places_end(table); i < end; i++) {
        struct fs_member_place *member = &table->member[i];
        if (!fs_load_sc(&member->joined) || !fs_load_relaxed(&member->reads)) continue;
        uint64_t cursor = fs_load_sc(&member->cursor);
        if (cursor < to) to = cursor;
    }
    fs_raise_tail(table, to);
}

int fs_group_pending(struct fs_group *g) {
    uint64_t cursor = fs_load_sc(&fs_place(g)->cursor);
    return fs_slot_has(fs_load_sc(&fs_group_slots(g)[cursor % g->geometry.slots]), cursor) || fs_load_sc(&g->table->tail) > cursor;
}
