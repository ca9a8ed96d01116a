/* A message's life: claiming a block, publishing it, taking it, giving it back. Theory: arena.h.
 *
 * Responsible for: no block is written while a member holds it; each reader sees each message once, whole, in order, or knows that it has
 * lost it. Never: waits; wakes somebody it has no news for.
 *
 * All loads and stores of shared words that decide something are sequentially consistent. The handshake of `holders` and `tail` needs that,
 * and the bells do; the rest is no dearer for it. The bytes of a message are ordered by its slot: the writer's swap comes after its writes,
 * and a reader that has loaded the slot sees them. */
#include "messages/group.h"

#include "os/copy.h"
#include "os/memfd.h"

enum {
    LOOKS = 16, /* blocks of a class that are looked at before the oldest of them has to give way */
    LARGE = 32768,
    NEAR_BLOCKS = 4,
    SWEEPS = 2,
    TRIES = 1 << 14, /* at a place in the order: each failure is another writer's success, unless somebody writes nonsense */
};

/* ---- room ----------------------------------------------------------------------------------------------------- */

/* Claims the block if its message is before `tail`, or it has none, and nobody holds it. */
static int claim(struct fs_group *g, struct fs_block *b, uint64_t state) {
    uint64_t mine = fs_block_state(FS_BLOCK_CLAIMED, g->hands);
    if ((state & 3) != FS_BLOCK_FREE && (state & 3) != FS_BLOCK_MESSAGE) return 0;
    if ((state & 3) == FS_BLOCK_MESSAGE && state >> 2 >= fs_load_sc(&g->table->tail)) return 0;
    return fs_load_sc(&b->holders) == 0 && fs_cas64(&b->state, state, mine);
}

/* Returns one of the first blocks of a class of large ones, or -1. If the readers keep up, the same few are used over and over, and stay in
 * the caches of the processors. (What all readers have taken nobody needs: who joins later begins later.) */
static int64_t claim_near(struct fs_group *g, const struct fs_block_class *of) {
    for (int looks = 0; looks < 2; looks++) {
        for (uint32_t i = 0; i < NEAR_BLOCKS; i++) {
            struct fs_block *b = &fs_group_blocks(g)[of->first + i];
            if (claim(g, b, fs_load_sc(&b->state))) return (int64_t)of->first + i;
        }
        if (!looks) fs_advance_tail(g);
    }
    return -1;
}

/* Returns a block of a class, or -1. A group that drops gives up the oldest message among those that were looked at, with all before it. */
static int64_t claim_of(struct fs_group *g, uint32_t which) {
    const struct fs_block_class *of = &g->geometry.of[which];
    struct fs_block *blocks = fs_group_blocks(g) + of->first;
    int64_t near = of->block_size >= LARGE ? claim_near(g, of) : -1;
    if (near >= 0) return near;
    uint32_t start = fs_add_sc(&g->table->next[which], 1) % of->count;
    uint64_t oldest = UINT64_MAX;
    uint32_t at = 0;
    if (g->geometry.blocking && fs_load_sc(&blocks[start].state) >> 2 >= fs_load_sc(&g->table->tail)) fs_advance_tail(g);
    for (uint32_t i = 0; i < of->count; i++) {
        uint32_t here = start + i < of->count ? start + i : start + i - of->count;
        uint64_t state = fs_load_sc(&blocks[here].state);
        if (claim(g, &blocks[here], state)) return of->first + here;
        if ((state & 3) == FS_BLOCK_MESSAGE && state >> 2 < oldest && !fs_load_sc(&blocks[here].holders)) {
            oldest = state >> 2;
            at = here;
        }
        if (i >= LOOKS && oldest != UINT64_MAX && !g->geometry.blocking) break;
    }
    if (oldest == UINT64_MAX) return -1;
    fs_help_head(g->table, oldest);
    if (g->geometry.blocking) fs_advance_tail(g);
    else if (oldest < fs_load_sc(&g->table->head)) fs_raise_tail(g->table, oldest + 1);
    return claim(g, &blocks[at], fs_block_state(FS_BLOCK_MESSAGE, oldest)) ? (int64_t)of->first + at : -1;
}

/* ---- memory ---------------------------------------------------------------------------------------------------- */

/* Gives the memory of blocks back that no message needs, from the largest on, until the group has at most its limit. */
static void trim(struct fs_group *g, uint64_t more) {
    struct fs_block *blocks = fs_group_blocks(g);
    uint64_t all = more;
    for (uint32_t i = 0; i < g->geometry.blocks; i++) all += fs_load_relaxed(&blocks[i].touched);
    for (uint32_t i = g->geometry.blocks; i-- > 0 && all > g->geometry.limit;) {
        uint64_t touched = fs_load_relaxed(&blocks[i].touched), state = fs_load_sc(&blocks[i].state);
        if (!touched) continue;
        if ((state & 3) == FS_BLOCK_MESSAGE && !g->geometry.blocking && !fs_load_sc(&blocks[i].holders)) {
            fs_help_head(g->table, state >> 2);
            if (state >> 2 < fs_load_sc(&g->table->head)) fs_raise_tail(g->table, (state >> 2) + 1);
        }
        if (!claim(g, &blocks[i], state)) continue;
        uint32_t which = fs_class_of_block(&g->geometry, i);
        const struct fs_block_class *of = &g->geometry.of[which];
        if (fs_system.fallocate(g->arena_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)fs_offset_of(&g->geometry, which, i),
                                (off_t)of->block_size) == 0) {
            fs_store_relaxed(&blocks[i].touched, 0);
            all -= touched;
        }
        fs_store_sc(&blocks[i].state, fs_block_state(FS_BLOCK_FREE, 0));
    }
    fs_store_relaxed(&g->table->touched, all - more);
}

/* The block will have so many bytes. Counted in whole pages; blocks of less are few and small. */
static void touch(struct fs_group *g, struct fs_block *b, uint32_t which, uint64_t length) {
    uint64_t touched = fs_load_relaxed(&b->touched);
    if (g->geometry.of[which].block_size < FS_PAGE || length <= touched) return;
    length = FS_MIN((length + FS_PAGE - 1) & ~(uint64_t)(FS_PAGE - 1), g->geometry.of[which].block_size);
    uint64_t more = length - touched;
    if (fs_load_relaxed(&g->table->touched) + more > g->geometry.limit) trim(g, more);
    fs_store_relaxed(&b->touched, length);
    fs_add_sc(&g->table->touched, more);
}

/* Maps the arena for a member that writes. Two threads may do it at once: then one unmaps its own. */
static unsigned char *writable(struct fs_group *g) {
    uint64_t at = fs_load_sc(&g->writable);
    if (at) return (unsigned char *)(uintptr_t)at;
    void *made = fs_map_memfd(g->arena_fd, g->geometry.arena_size);
    if (!made) return NULL;
    if (!fs_cas64(&g->writable, 0, (uint64_t)(uintptr_t)made)) fs_system.munmap(made, g->geometry.arena_size);
    return (unsigned char *)(uintptr_t)fs_load_sc(&g->writable);
}

/* ---- writing --------------------------------------------------------------------------------------------------- */

static void is_back(struct fs_group *g) {
    if (fs_add_sc(&g->lent, UINT32_MAX) == 1 && fs_load_sc(&g->leaving)) fs_group_leave(g);
}

/* Begins a call that uses the descriptors of the membership. Returns false if another thread leaves: it counts `lent`, and then looks at
 * `leaving`, which whoever leaves writes before it looks at `lent`; both are sequentially consistent, so one sees the other. */
static int begin_lending(struct fs_group *g) {
    fs_add_sc(&g->lent, 1);
    if (__builtin_expect(!fs_load_sc(&g->leaving), 1)) return 1;
    is_back(g);
    return 0;
}

int fs_group_reserve(struct fs_group *g, uint64_t length, struct fs_lent *lent) {
    if (length > g->geometry.largest) return -EMSGSIZE;
    fs_serve_in_child(g);
    if (!begin_lending(g)) return -EBADF;
    unsigned char *arena = writable(g);
    if (!arena) {
        is_back(g);
        return -ENOMEM;
    }
    uint32_t fits = fs_class_for(&g->geometry, length);
    for (int swept = 0; swept < SWEEPS; swept++, fs_sweep(g)) /* a larger class for want of the right one; then dead members' */
        for (uint32_t which = fits; which < g->geometry.classes; which++) {
            int64_t block = claim_of(g, which);
            if (block < 0) continue;
            touch(g, &fs_group_blocks(g)[block], which, length);
            lent->block = (uint32_t)block;
            lent->process = fs_load_relaxed(&fs_messages_pid);
            lent->at = arena + fs_offset_of(&g->geometry, which, (uint32_t)block);
            return 0;
        }
    fs_store_relaxed(&g->wanted, length);
    is_back(g);
    return -EAGAIN;
}

void fs_group_abandon(struct fs_group *g, const struct fs_lent *lent) {
    if (lent->process != fs_load_relaxed(&fs_messages_pid)) return; /* of the parent, which fills it still */
    fs_store_sc(&fs_group_blocks(g)[lent->block].state, fs_block_state(FS_BLOCK_FREE, 0));
    is_back(g);
    if (g->geometry.blocking) fs_wake_writers(g);
}

int fs_group_publish(struct fs_group *g, const struct fs_lent *lent, uint64_t length, uint32_t kind) {
    struct fs_group_head *table = g->table;
    struct fs_block *b = &fs_group_blocks(g)[lent->block];
    if (lent->process != fs_load_relaxed(&fs_messages_pid)) return -EPERM;
    if (length > g->geometry.of[fs_class_of_block(&g->geometry, lent->block)].block_size) return -EMSGSIZE;
    fs_store_relaxed(&b->length, length);
    fs_store_relaxed(&b->kind, kind);
    fs_store_relaxed(&b->sender, g->place);
    uint64_t number;
    for (int tries = 0;; tries++) {
        if (tries == TRIES) return -EPROTO;
        number = fs_load_sc(&table->head);
        fs_word64 *slot = &fs_group_slots(g)[number % g->geometry.slots];
        uint64_t there = fs_load_sc(slot);
        if (fs_slot_has(there, number)) { /* published, and `head` not yet counted up */
            fs_cas64(&table->head, number, number + 1);
            continue;
        }
        if (!fs_slot_has(there, number - g->geometry.slots)) continue; /* `head` has moved */
        if (number - fs_load_sc(&table->tail) >= g->geometry.slots) {
            if (!g->geometry.blocking) {
                fs_raise_tail(table, number - g->geometry.slots + 1);
            } else {
                fs_advance_tail(g);
                if (number - fs_load_sc(&table->tail) < g->geometry.slots) continue;
                fs_sweep(g);
                fs_advance_tail(g);
                if (number - fs_load_sc(&table->tail) >= g->geometry.slots) return -EAGAIN;
            }
        }
        /* Before the swap: who cleans up for this member looks there whether the block has become a message. */
        fs_store_sc(&b->number, number);
        if (fs_cas64(slot, there, fs_slot_word(number, lent->block))) break;
    }
    fs_cas64(&table->head, number, number + 1);
    fs_store_sc(&b->state, fs_block_state(FS_BLOCK_MESSAGE, number));
    fs_count(&fs_place(g)->sent, 1);
    is_back(g);
    fs_wake_readers(g);
    return 0;
}

int fs_group_send(struct fs_group *g, const void *data, uint64_t length, uint32_t kind) {
    struct fs_lent lent;
    int failed = fs_group_reserve(g, length, &lent);
    if (failed) return failed;
    fs_copy(lent.at, data, length);
    failed = fs_group_publish(g, &lent, length, kind);
    if (failed) fs_group_abandon(g, &lent);
    return failed;
}

/* ---- reading --------------------------------------------------------------------------------------------------- */

/* A process of this member died with the turn to take: perhaps it had set the bit of the next message, and not taken it. (The bit can be
 * no older one's: a block that has been written again was held by nobody.) */
static void recover(struct fs_group *g, uint64_t cursor) {
    uint64_t there = fs_load_sc(&fs_group_slots(g)[cursor % g->geometry.slots]);
    uint64_t block = there & FS_NO_BLOCK;
    if (fs_slot_has(there, cursor) && block < g->geometry.blocks) fs_and_sc(&fs_group_blocks(g)[block].holders, ~g->bit);
}

/* Takes the message at the cursor, with the turn. Returns 1, 0, -EAGAIN: it is lost again and again, or -EPROTO. */
static int take(struct fs_group *g, struct fs_member_place *me, uint64_t cursor, struct fs_message *m) {
    struct fs_group_head *table = g->table;
    const struct fs_geometry *geometry = &g->geometry;
    for (int tries = 0; tries < TRIES; tries++) {
        uint64_t there = fs_load_sc(&fs_group_slots(g)[cursor % geometry->slots]), tail;
        uint32_t block = (uint32_t)(there & FS_NO_BLOCK);
        struct fs_block *b = &fs_group_blocks(g)[block];
        int is_there = fs_slot_has(there, cursor);
        if (is_there) {
            if (block >= geometry->blocks) return -EPROTO;
            fs_or_sc(&b->holders, g->bit);
        }
        tail = fs_load_sc(&table->tail);
        if (tail > cursor) {
            if (is_there) fs_and_sc(&b->holders, ~g->bit);
            if (tail > fs_load_sc(&table->head)) return -EPROTO;
            m->lost += tail - cursor;
            cursor = tail;
            fs_store_sc(&me->cursor, cursor);
            continue;
        }
        if (!is_there) return 0;
        uint32_t which = fs_class_of_block(geometry, block);
        m->length = fs_load_relaxed(&b->length);
        m->kind = fs_load_relaxed(&b->kind);
        m->sender = fs_load_relaxed(&b->sender);
        if (m->length > geometry->of[which].block_size || m->sender >= FS_GROUP_MEMBERS) {
            fs_and_sc(&b->holders, ~g->bit);
            return -EPROTO;
        }
        m->data = g->arena + fs_offset_of(geometry, which, block);
        m->sequence = cursor;
        m->block = block;
        m->process = fs_load_relaxed(&fs_messages_pid);
        fs_store_sc(&me->cursor, cursor + 1);
        /* All members together keep no more than half of the blocks, so that writers find some. */
        uint32_t keepers = FS_MIN(FS_MAX(fs_load_relaxed(&table->keepers), 1u), (uint32_t)FS_GROUP_MEMBERS);
        m->keeps = fs_add_sc(&g->kept[which], 1) < geometry->of[which].count / (2 * keepers);
        return 1;
    }
    return -EAGAIN;
}

int fs_group_take(struct fs_group *g, struct fs_message *m) {
    struct fs_member_place *me = fs_place(g);
    int got;
    fs_serve_in_child(g);
    memset(m, 0, sizeof *m);
    if (!begin_lending(g)) return -EBADF;
    int taken = fs_robust_trylock(&me->taking, fs_load_relaxed(&fs_messages_pid));
    if (!taken) {
        is_back(g);
        return -EAGAIN;
    }
    uint64_t cursor = fs_load_sc(&me->cursor);
    if (taken == FS_LOCK_OWNER_DIED) recover(g, cursor);
    got = take(g, me, cursor, m);
    uint64_t lost = m->lost;
    m->lost += fs_load_relaxed(&me->unreported);
    fs_count(&me->lost, lost);
    fs_store_relaxed(&me->unreported, got > 0 ? 0 : m->lost);
    if (got > 0) fs_count(&me->received, 1);
    if (fs_load_sc(&g->polls)) fs_bell_settle(g);
    fs_robust_unlock(&me->taking);
    if (got <= 0) is_back(g);
    /* (What was lost made room too.) */
    if (g->geometry.blocking && (got > 0 || lost)) fs_wake_writers(g);
    return got;
}

void fs_group_release(struct fs_group *g, const struct fs_message *m) {
    if (m->process != fs_load_relaxed(&fs_messages_pid)) return; /* of the parent, which has it still */
    fs_and_sc(&fs_group_blocks(g)[m->block].holders, ~g->bit);
    fs_add_sc(&g->kept[fs_class_of_block(&g->geometry, m->block)], UINT32_MAX);
    is_back(g);
    if (g->geometry.blocking) fs_wake_writers(g);
}
