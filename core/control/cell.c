/* The cells of regions that both processes have mapped.
 *
 * Who writes: the seeker, and only while its cell is not posted. So a publisher that finds the same state behind its reads as before them
 * (the swap) has read what was posted with it.
 *
 * Whom to believe: a region is known to its seeker and its publisher alone, and came in a hello that proved an earlier connection. For this
 * one the kernel is asked: the socket at the other end is this user's, and has the cookie that was posted. So what a process has posted
 * and not withdrawn (it was killed) is nobody's, even if another one has its port now.
 *
 * Responsible for: a region has one connection at a time. Never: maps or frees a region. */
#include "control/cell.h"

#include "control/control_state.h"
#include "control/region_mmap.h"
#include "transport/stream.h"

_Static_assert(sizeof(struct fs_stream_endpoint) == sizeof((struct fs_cell *)NULL)->seeker, "an end as the cell has it");

static struct fs_cell *cell_of(void *memory) { return &((struct fs_region *)memory)->cell; }

static int is_posted(uint64_t state) { return state & 1; }

int fs_cell_post(void *memory, int fd, const struct fs_stream_identity *ends) {
    struct fs_cell *cell = cell_of(memory);
    cell->cookie = fs_cookie(fd);
    if (!cell->cookie) return 0;
    memcpy(cell->seeker, &ends->here, sizeof cell->seeker);
    memcpy(cell->publisher, &ends->there, sizeof cell->publisher);
    /* SYNC: posted - pairs with is_for: the publisher that sees it sees a recycled region, and which connection it is for. */
    fs_store_release(&cell->state, (fs_load_relaxed(&cell->state) | 1));
    return 1;
}

/* (Sequentially consistent, as all swaps: of publisher and seeker one succeeds, and it has the region.) */
static int change(struct fs_cell *cell, uint64_t posted) { return is_posted(posted) && fs_cas64(&cell->state, posted, posted + 1); }

int fs_cell_withdraw(void *memory) { return change(cell_of(memory), fs_load_relaxed(&cell_of(memory)->state)); }

/* Returns true if a parked region is offered for a connection; sets the state and cookie of its cell. */
static int is_for(const struct fs_stream_identity *ends, const struct fs_cached_region *parked, uint64_t *state, uint64_t *cookie) {
    if (!parked->memory) return 0;
    struct fs_cell *cell = cell_of(parked->memory);
    /* SYNC: posted - pairs with fs_cell_post. */
    *state = fs_load_acquire(&cell->state);
    if (!is_posted(*state)) return 0;
    *cookie = cell->cookie;
    return memcmp(cell->seeker, &ends->there, sizeof cell->seeker) == 0 && memcmp(cell->publisher, &ends->here, sizeof cell->publisher) == 0;
}

static int is_proven(const struct fs_stream_identity *ends, uint64_t cookie) {
    struct fs_peer_socket peer;
    return cookie && ends->kind->find_peer(ends, fs_diag_socket(), &peer) && peer.user == geteuid() && peer.cookie == cookie;
}

/* Takes a parked region if its cell has not changed. Needs the table lock. */
static int take(struct fs_cached_region *parked, uint64_t state, struct fs_accepted_region *came) {
    if (!change(cell_of(parked->memory), state)) return 0;
    *came = (struct fs_accepted_region){.memory = parked->memory, .size = parked->size, .reused = 1, .peer = parked->peer};
    memcpy(came->id, parked->id, sizeof came->id);
    parked->memory = NULL;
    /* SYNC: taken - pairs with fs_wakeup_seen. Packet WAKEUP. */
    fs_store_release(&((struct fs_region *)came->memory)->wakeup, FS_TAKEN);
    return 1;
}

int fs_cell_take(const struct fs_stream_identity *ends, struct fs_accepted_region *came) {
    struct fs_cached_region *all = fs_control_state.parked;
    uint64_t state = 0, cookie = 0;
    int found = 0, taken;
    fs_control_lock_hosted();
    while (found < FS_CACHED_REGIONS && !is_for(ends, &all[found], &state, &cookie)) found++;
    void *memory = found < FS_CACHED_REGIONS ? all[found].memory : NULL;
    fs_control_unlock();
    if (!memory || !is_proven(ends, cookie)) return 0;
    fs_control_lock_hosted();
    taken = all[found].memory == memory && take(&all[found], state, came);
    fs_control_unlock();
    return taken;
}

int fs_cell_may_come(void) {
    int any = 0;
    fs_control_lock_hosted();
    for (int i = 0; i < FS_CACHED_REGIONS; i++) any |= fs_control_state.parked[i].memory != NULL;
    fs_control_unlock();
    return any;
}
