/* The cells of regions that both processes have mapped.
 *
 * Who writes: the seeker, and only while its cell is not posted. So a publisher that finds the same state behind its reads as before them
 * (the swap) has read what was posted with it.
 *
 * Who has finished: the seeker, before it posts. The publisher takes what it has parked, so it has finished too by then, and readies the
 * region. So a client that connects again at once need not wait for its server to have seen the end of the connection before.
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

void fs_cell_post(void *memory, uint64_t cookie, const struct fs_stream_identity *ends) {
    struct fs_cell *cell = cell_of(memory);
    fs_store_relaxed(&((struct fs_region *)memory)->wakeup, FS_UNANSWERED); /* (the publisher writes it once it has taken the cell) */
    cell->cookie = cookie;
    memcpy(cell->seeker, &ends->here, sizeof cell->seeker);
    memcpy(cell->publisher, &ends->there, sizeof cell->publisher);
    /* SYNC: posted - pairs with is_for: the publisher that sees it sees which connection it is for, and that the seeker has
     * finished with the region. */
    fs_store_release(&cell->state, (fs_load_relaxed(&cell->state) | 1));
}

/* (Sequentially consistent, as all swaps: of publisher and seeker one succeeds, and it has the region.) */
static int change(struct fs_cell *cell, uint64_t posted) { return is_posted(posted) && fs_cas64(&cell->state, posted, posted + 1); }

int fs_cell_withdraw(void *memory) { return change(cell_of(memory), fs_load_relaxed(&cell_of(memory)->state)); }

/* What is looked for, and what a cell that is for it says. */
struct sought {
    const struct fs_stream_identity *ends;
    uint64_t state, cookie;
};

/* Returns true if a parked region is offered for the connection. */
static int is_for(const struct fs_region_ref *parked, void *with) {
    struct sought *sought = with;
    struct fs_cell *cell = cell_of(parked->memory);
    /* SYNC: posted - pairs with fs_cell_post. */
    sought->state = fs_load_acquire(&cell->state);
    if (!is_posted(sought->state)) return 0;
    sought->cookie = cell->cookie;
    return memcmp(cell->seeker, &sought->ends->there, sizeof cell->seeker) == 0 &&
           memcmp(cell->publisher, &sought->ends->here, sizeof cell->publisher) == 0;
}

static int is_any(const struct fs_region_ref *parked, void *with) {
    (void)with;
    return is_posted(fs_load_relaxed(&cell_of(parked->memory)->state)); /* (whoever takes it looks again) */
}

int fs_any_cell_posted(void) { return fs_region_any_parked(is_any); }

static int is_proven(const struct fs_stream_identity *ends, uint64_t cookie) {
    struct fs_peer_socket peer;
    return cookie && ends->kind->find_peer(ends, fs_diag_socket(), &peer) && peer.user == geteuid() && peer.cookie == cookie;
}

/* (While the kernel is asked the region is not parked, so nobody else here takes it or unmaps it.) */
struct fs_region_ref *fs_cell_take(const struct fs_stream_identity *ends) {
    struct sought sought = {.ends = ends};
    struct fs_region_ref *region_ref = fs_region_take_fitting(is_for, &sought);
    if (!region_ref) return NULL;
    if (!is_proven(ends, sought.cookie) || !change(cell_of(region_ref->memory), sought.state)) {
        fs_region_park(region_ref);
        return NULL;
    }
    fs_recycle_region(region_ref->memory, (int)region_ref->window);
    /* SYNC: taken - pairs with fs_wakeup_seen: the seeker that sees it sees a region that is ready. Packet WAKEUP. */
    fs_store_release(&((struct fs_region *)region_ref->memory)->wakeup, FS_TAKEN);
    return region_ref;
}
