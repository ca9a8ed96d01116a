/* Regions in the hands of this process.
 *
 * Responsible for: that each region and each eventfd is given back once, and that what is mapped stays below the cap.
 * Never: who gets one (search.c), nor what is in it (channel/regions.c).
 *
 * Each part of a kit is forgotten before it is given back: a thread without the front end's lock may fork between two
 * parts, and what was given back may be a stranger's by the time the child gives back the rest. */
#include "meeting/kits.h"

#include "channel/regions.h"
#include "channel/requests.h"
#include "channel/thread.h"

static size_t used;
static int64_t cap = INT64_MAX;

static struct fs_kit *parked[FS_PARKED_BY_SEEKER + 1]; /* the oldest first */
static int parked_count;

/* ---- the cap ---------------------------------------------------------------------------------------------- */

size_t fs_memory_used(void) { return used; }

void fs_set_memory_cap(int64_t bytes) { cap = bytes; }

static int take_memory(size_t size) {
    if ((int64_t)(used + size) > cap) return FS_CAP_REACHED;
    used += size;
    return 0;
}

static void give_back_memory(size_t size) { used -= FS_MIN(size, used); }

/* ---- one kit ---------------------------------------------------------------------------------------------- */

/* Whether the program has closed our descriptors since: the numbers of the eventfds are somebody else's. */
static int is_lost(const struct fs_kit *kit) { return kit->turn != fs_descriptor_turn(); }

static void unmap(struct fs_kit *kit) {
    int lost = is_lost(kit); /* may let go of the front end's lock, so it comes before anything is given back */
    void *memory = kit->memory;
    int wake_fd = kit->wake_fd, peer_fd = kit->peer_fd;
    kit->memory = NULL;
    if (memory) fs_system.munmap(memory, kit->size);
    kit->wake_fd = -1;
    if (wake_fd >= 0 && !lost) fs_close_eventfd(wake_fd);
    kit->peer_fd = -1;
    if (peer_fd >= 0 && !lost) fs_close_eventfd(peer_fd);
}

void fs_discard_kit(struct fs_kit *kit) {
    unmap(kit);
    size_t size = kit->size;
    kit->size = 0;
    give_back_memory(size);
    fs_system.free(kit);
}

static int new_eventfd(void) { return fs_keep_number(fs_system.eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), 0); }

/* Parked regions give way to it. */
static int make_eventfd(void) {
    int fd = new_eventfd();
    return fd < 0 && fs_drop_kits() ? new_eventfd() : fd;
}

/* What fs_new_kit makes after the memory is counted. */
static int fill(struct fs_kit *kit, int window, int chunk, int *memfd) {
    int failed = fs_draw(kit->id, sizeof kit->id);
    if (failed) return failed;
    kit->wake_fd = make_eventfd();
    if (kit->wake_fd < 0) return kit->wake_fd;
    kit->peer_fd = make_eventfd();
    if (kit->peer_fd < 0) return kit->peer_fd;
    *memfd = fs_create_region(window, chunk, kit->id, &kit->memory);
    return FS_MIN(*memfd, 0);
}

int fs_new_kit(pid_t peer, int window, int chunk, struct fs_kit **made, int *memfd) {
    size_t size = fs_region_size((uint32_t)window, (uint32_t)chunk);
    struct fs_kit *kit = fs_system.malloc(sizeof *kit);
    if (!kit) return -ENOMEM;
    *kit = (struct fs_kit){.size = size, .peer = peer, .wake_fd = -1, .peer_fd = -1, .turn = fs_descriptor_turn()};
    int failed = take_memory(size);
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
    *first = (struct fs_kit){.memory = came->memory, .size = came->size, .side = 1, .wake_fd = came->wake_fd,
                             .peer_fd = came->peer_fd, .turn = fs_descriptor_turn()};
    memcpy(first->id, came->id, sizeof first->id);
    int failed = kit ? 0 : -ENOMEM;
    if (came->reused && !kit) give_back_memory(came->size); /* one that was parked is counted already */
    if (!failed && !came->reused) failed = take_memory(came->size);
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
    if (watcher) failed = watcher->watch(watcher->whose, kit->wake_fd);
    if (!failed) failed = fs_attach(c, kit->memory, kit->size, kit->side, kit->wake_fd, kit->peer_fd, manner, wrong);
    if (failed) {
        fs_end_answers(kit);
        if (watcher) watcher->ignore(watcher->whose, kit->wake_fd);
        return failed;
    }
    kit->window = c->vi.window;
    fs_answer_asks(kit->memory, kit->side);
    return 0;
}

int fs_answer_in_child(struct fs_kit *kit, struct fs_connection *c) {
    int failed = fs_expect_asks(c, kit->side, kit->id);
    if (failed) return failed;
    kit->asked = c;
    fs_answer_asks(kit->memory, kit->side);
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
    if (!recyclable || is_lost(kit)) {
        fs_discard_kit(kit);
        return;
    }
    fs_mark_done(kit->memory, kit->size, kit->side, (int)kit->window);
    if (kit->side == 0) {
        park(kit);
        return;
    }
    give_back_memory(fs_park(kit->memory, kit->size, kit->wake_fd, kit->peer_fd, kit->turn, kit->id));
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
        if (is_lost(kit)) fs_discard_kit(kit);
        else if (fs_recycle_region(kit->memory, window)) return kit;
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
    size_t freed = fs_drop_parked();
    give_back_memory(freed);
    return drop_parked_by_seeker() || freed;
}

void fs_leave_kits_to_parent(void) {
    give_back_memory(fs_leave_channel_to_parent());
    drop_parked_by_seeker();
}

void fs_withdraw_name(uint64_t handle, fs_word32 **arrival) { give_back_memory(fs_withdraw(handle, arrival)); }
