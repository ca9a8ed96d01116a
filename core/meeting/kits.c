/* Regions in the hands of this process.
 *
 * Responsible for: that each region is given back once, and that what is mapped stays below the cap.
 * Never: who gets one (search.c), nor what is in it (channel/regions.c).
 *
 * Each part of a kit is forgotten before it is given back: a thread without the front end's lock may fork between two
 * parts, and what was given back may be a stranger's by the time the child gives back the rest. */
#include "meeting/kits.h"

#include "channel/regions.h"
#include "channel/requests.h"
#include "channel/thread.h"
#include "connection/seat.h"

static int64_t cap = INT64_MAX;
static struct fs_kit *all; /* a circle; the one that is to be looked at next. NULL: there is none */

enum { LOOKS_LEAST = 2, LOOKS_MOST = 64 }; /* kits that are looked at for a new one, where all that is mapped would be too much */

static struct fs_kit *parked[FS_PARKED_BY_SEEKER + 1]; /* the oldest first */
static int parked_count;

/* ---- the cap ---------------------------------------------------------------------------------------------- */

void fs_set_memory_cap(int64_t bytes) { cap = bytes; }

/* Bytes of a region that are in memory, whoever has touched them. All of it, where the kernel does not tell. */
static size_t committed(const struct fs_kit *kit) {
    unsigned char pages[1024];
    size_t found = 0, page = (size_t)fs_system.sysconf(_SC_PAGESIZE), step = sizeof pages * page;
    for (size_t at = 0; at < kit->size; at += step) {
        size_t length = FS_MIN(kit->size - at, step), count = (length + page - 1) / page;
        if (fs_system.mincore((char *)kit->memory + at, length, pages) < 0) return kit->size;
        for (size_t i = 0; i < count; i++) found += pages[i] & 1;
    }
    return FS_MIN(found * page, kit->size);
}

static void count(struct fs_kit *kit, size_t bytes) {
    fs_count_memory(0, (int64_t)bytes - (int64_t)kit->counted);
    kit->counted = bytes;
}

/* A region counts whole, but for its spare parts, until it is looked at. That is done only where all that is mapped would be too much: the kits in turn, as
 * many as it takes to make room, and a few in any case, since what was looked at may have grown. */
static int is_too_much(size_t size) {
    if ((int64_t)(fs_memory_mapped() + size) <= cap) return 0;
    struct fs_kit *first = all;
    for (int looks = 0; all && looks < LOOKS_MOST; looks++) {
        if (looks >= LOOKS_LEAST && (int64_t)(fs_memory_used() + size) <= cap) break;
        if (all->memory) count(all, committed(all));
        all = all->next;
        if (all == first) break;
    }
    return (int64_t)(fs_memory_used() + size) > cap;
}

/* Counts a kit, which is in the circle from then on. 0, or FS_CAP_REACHED. */
static int take_memory(struct fs_kit *kit) {
    size_t size = fs_size_without_spares(kit->size);
    if (is_too_much(size)) return FS_CAP_REACHED;
    fs_count_memory((int64_t)size, 0);
    count(kit, size);
    kit->next = all ? all : kit; /* the last one that is looked at */
    kit->previous = all ? all->previous : kit;
    kit->next->previous = kit->previous->next = kit;
    if (!all) all = kit;
    return 0;
}

/* The kit counts no more. */
static void leave_memory(struct fs_kit *kit) {
    if (!kit->next) return;
    if (all == kit) all = kit->next == kit ? NULL : kit->next;
    kit->next->previous = kit->previous;
    kit->previous->next = kit->next;
    kit->next = kit->previous = NULL;
    count(kit, 0);
    fs_count_memory(-(int64_t)fs_size_without_spares(kit->size), 0);
}

/* ---- one kit ---------------------------------------------------------------------------------------------- */

static void unmap(struct fs_kit *kit) {
    void *memory = kit->memory;
    kit->memory = NULL;
    if (memory) fs_system.munmap(memory, kit->size);
}

void fs_discard_kit(struct fs_kit *kit) {
    leave_memory(kit);
    unmap(kit);
    fs_system.free(kit);
}

/* What fs_new_kit makes after the memory is counted. */
static int fill(struct fs_kit *kit, int window, int chunk, int *memfd) {
    int failed = fs_draw(kit->id, sizeof kit->id);
    if (failed) return failed;
    *memfd = fs_create_region(window, chunk, kit->id, &kit->memory);
    return FS_MIN(*memfd, 0);
}

int fs_new_kit(pid_t peer, int window, int chunk, struct fs_kit **made, int *memfd) {
    size_t size = fs_region_size((uint32_t)window, (uint32_t)chunk);
    struct fs_kit *kit = fs_system.malloc(sizeof *kit);
    if (!kit) return -ENOMEM;
    *kit = (struct fs_kit){.size = size, .peer = peer};
    int failed = take_memory(kit);
    if (failed) {
        fs_system.free(kit);
        return failed;
    }
    failed = fill(kit, window, chunk, memfd);
    if (failed) {
        fs_discard_kit(kit);
        return failed;
    }
    *made = kit;
    return 0;
}

int fs_arrived_kit(const struct fs_arrival *came, struct fs_kit **made) {
    struct fs_kit *kit = fs_system.malloc(sizeof *kit), lost;
    struct fs_kit *first = kit ? kit : &lost;
    *first = (struct fs_kit){.memory = came->memory, .size = came->size, .side = 1, .peer = came->peer};
    memcpy(first->id, came->id, sizeof first->id);
    if (came->reused) fs_count_parked(came->size, -1); /* one that was parked is counted already */
    int failed = kit ? take_memory(kit) : -ENOMEM;
    if (failed) {
        unmap(first);
        fs_system.free(kit);
        return failed;
    }
    *made = kit;
    return 0;
}

int fs_attach_kit(struct fs_kit *kit, struct fs_connection *c, const struct fs_manner *manner, const struct fs_watcher *watcher,
                  const char **wrong) {
    *wrong = NULL;
    int failed = fs_expect_asks(c, kit->side, kit->id);
    if (failed) return failed;
    kit->asked = c;
    c->peer_process = kit->peer;
    if (watcher) failed = watcher->watch(watcher->whose, c);
    if (!failed) failed = fs_attach(c, kit->memory, kit->size, kit->side, manner, wrong);
    if (failed) {
        fs_end_answers(kit);
        if (watcher) watcher->ignore(watcher->whose, c);
        return failed;
    }
    kit->window = c->vi.window;
    c->asked_before = 0; /* (what stood there was of an earlier connection) */
    c->asked_here = fs_ask_token();
    fs_answer_asks(kit->memory, kit->side);
    return 0;
}

int fs_answer_in_child(struct fs_kit *kit, struct fs_connection *c) {
    int failed = fs_expect_asks(c, kit->side, kit->id);
    if (failed) return failed;
    kit->asked = c;
    fs_say_where_to_ask(c);
    fs_wake_own_set(c); /* (a loop of the parent's says again that it is to be asked) */
    return 0;
}

void fs_end_answers(struct fs_kit *kit) {
    struct fs_connection *asked = kit->asked;
    kit->asked = NULL;
    if (asked) fs_ignore_asks(asked);
}

/* ---- parked by the seeker --------------------------------------------------------------------------------- */

static struct fs_kit *take_parked(int place) {
    struct fs_kit *kit = parked[place];
    parked_count--;
    memmove(parked + place, parked + place + 1, (size_t)(parked_count - place) * sizeof *parked);
    return kit;
}

static int oldest_of(pid_t peer) {
    int place = 0;
    while (parked[place]->peer != peer) place++;
    return place;
}

/* Keeps a region for the next connection to the same process, in place of the oldest. */
static void park(struct fs_kit *kit) {
    int of_peer = 0;
    parked[parked_count++] = kit; /* (There is room for one more than are kept.) */
    for (int i = 0; i < parked_count; i++) of_peer += parked[i]->peer == kit->peer;
    if (of_peer > FS_PARKED_PER_PEER) fs_discard_kit(take_parked(oldest_of(kit->peer)));
    else if (parked_count > FS_PARKED_BY_SEEKER) fs_discard_kit(take_parked(0));
}

void fs_release_kit(struct fs_kit *kit, int recyclable) {
    fs_end_answers(kit); /* (of a connection that was closed while it attached) */
    if (!recyclable) {
        fs_discard_kit(kit);
        return;
    }
    fs_mark_done(kit->memory, kit->size, kit->side, (int)kit->window);
    if (kit->side == 0) {
        park(kit);
        return;
    }
    leave_memory(kit);
    fs_park(kit->memory, kit->size, kit->id);
    fs_system.free(kit);
}

struct fs_kit *fs_parked_kit(pid_t peer, int window, int chunk) {
    size_t size = fs_region_size((uint32_t)window, (uint32_t)chunk);
    int place = 0;
    for (int left = parked_count; left && place < parked_count; left--) {
        struct fs_kit *kit = parked[place];
        if (kit->peer != peer || kit->window != (uint32_t)window || kit->size != size) {
            place++;
            continue;
        }
        take_parked(place); /* out of the list before it is looked at: from here on it is nobody else's */
        if (fs_recycle_region(kit->memory, window)) return kit;
        else park(kit); /* for later */
    }
    return NULL;
}

int fs_count_parked_kits(void) { return parked_count; }

static int drop_parked_by_seeker(void) {
    int any = parked_count > 0;
    while (parked_count) fs_discard_kit(take_parked(0));
    return any;
}

int fs_drop_kits(void) {
    return drop_parked_by_seeker() | fs_drop_parked();
}

void fs_leave_kits_to_parent(void) {
    fs_leave_channel_to_parent();
    drop_parked_by_seeker();
}
