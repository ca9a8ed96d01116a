/* The links of this process.
 *
 * Responsible for: each region is released once; mapped memory stays below the cap; what is parked is bounded, and becomes less. Never:
 * which connection gets a region (rendezvous/connector.c), or its contents (region_mmap.c).
 *
 * Each part of a region is forgotten before it is released: a thread without the host lock may fork between two parts, and a
 * released number may be another file's by the time the child releases the rest. */
#include "control/link.h"

#include "os/host.h"
#include "control/control_state.h"
#include "control/region_mmap.h"

enum {
    CHECKS_LEAST = 2, CHECKS_MOST = 64, /* regions checked for a new one, if all mappings together would be too much */
    CHAINS = 61,
    POOLED_MOST = FS_PARKED_BY_SEEKER + FS_PARKED_BY_PUBLISHER + 1,
    SHRINKS_FROM = 4, /* looks at an idle link that take no region */
};
#define IDLE_NS ((int64_t)2000000000) /* until the first look at an idle link; the next follows when it has been idle for twice as long */

static const int parked_most[2] = {FS_PARKED_BY_SEEKER, FS_PARKED_BY_PUBLISHER};

static int64_t cap = INT64_MAX;

/* With the table lock, as all below; these are read without it, as hints. */
static fs_word64 mapped, used; /* bytes of the regions without their overflow buffers; and those of them that count against the cap */
static fs_word64 parked_by[2]; /* regions, by side */

static struct fs_region_ref *all;            /* counted regions; the one to check next. NULL: none */
static struct fs_link *table[CHAINS];
static struct fs_link *pooled[POOLED_MOST];  /* those with parked regions; the one that was used last is the last */
static int pooled_count;
static struct fs_region_ref *warm[2]; /* by side: of the parked regions, the one that keeps its pages; NULL: none */

/* ---- the cap ---------------------------------------------------------------------------------------------- */

void fs_set_memory_cap(int64_t bytes) { cap = bytes; }

size_t fs_memory_used(void) { return fs_load_relaxed(&used); }

/* Returns the bytes of a region that are in memory, in whichever process they were touched; the whole size if the kernel cannot say. */
static size_t committed(const struct fs_region_ref *region_ref) {
    unsigned char pages[256];
    size_t found = 0, page = (size_t)fs_system.sysconf(_SC_PAGESIZE), step = sizeof pages * page;
    for (size_t at = 0; at < region_ref->size; at += step) {
        size_t length = FS_MIN(region_ref->size - at, step), count = (length + page - 1) / page;
        if (fs_system.mincore((char *)region_ref->memory + at, length, pages) < 0) return region_ref->size;
        for (size_t i = 0; i < count; i++) found += pages[i] & 1;
    }
    return FS_MIN(found * page, region_ref->size);
}

static void set_counted(struct fs_region_ref *region_ref, size_t bytes) {
    fs_count(&used, bytes - region_ref->counted);
    region_ref->link->counted += bytes - region_ref->counted;
    region_ref->counted = bytes;
}

/* A region counts whole, without its overflow buffers, until it is checked. Checks happen only if the sum of all mappings would be too
 * much: in turn, as many as it takes to make room, and a few in any case, since checked regions may have grown. */
static int exceeds_cap(size_t size) {
    if ((int64_t)(fs_load_relaxed(&mapped) + size) <= cap) return 0;
    struct fs_region_ref *first = all;
    for (int checks = 0; all && checks < CHECKS_MOST; checks++) {
        if (checks >= CHECKS_LEAST && (int64_t)(fs_memory_used() + size) <= cap) break;
        if (all->memory) set_counted(all, committed(all));
        all = all->next;
        if (all == first) break;
    }
    return (int64_t)(fs_memory_used() + size) > cap;
}

/* ---- regions of a link ------------------------------------------------------------------------------------ */

static struct fs_link **chain_of(uint64_t key) { return &table[key % CHAINS]; }

/* Returns the link with a process, NULL: none. */
static struct fs_link *find(uint64_t key) {
    struct fs_link *link = key ? *chain_of(key) : NULL;
    while (link && link->peer.key != key) link = link->next;
    return link;
}

static struct fs_link *find_or_make(const struct fs_peer_process *peer) {
    struct fs_link *link = find(peer->key);
    if (!link) link = fs_system.calloc(1, sizeof *link);
    if (!link) return NULL;
    if (!link->regions) {
        link->next = *chain_of(peer->key);
        *chain_of(peer->key) = link;
    }
    link->peer = *peer;
    link->is_of_own_user = peer->user == geteuid();
    return link;
}

struct fs_region_ref *fs_region_of(void *memory, size_t size, int side, const unsigned char id[16]) {
    struct fs_region_ref *region_ref = fs_system.malloc(sizeof *region_ref);
    if (!region_ref) return NULL;
    *region_ref = (struct fs_region_ref){.memory = memory, .size = size, .side = side};
    memcpy(region_ref->id, id, sizeof region_ref->id);
    return region_ref;
}

static int join(struct fs_region_ref *region_ref, const struct fs_peer_process *peer) {
    size_t size = fs_size_without_overflows(region_ref->size);
    if (exceeds_cap(size)) return FS_CAP_REACHED;
    struct fs_link *link = find_or_make(peer);
    if (!link) return -ENOMEM;
    link->regions++;
    region_ref->link = link;
    fs_count(&mapped, size);
    set_counted(region_ref, size);
    region_ref->next = all ? all : region_ref; /* the last one to be checked */
    region_ref->previous = all ? all->previous : region_ref;
    region_ref->next->previous = region_ref->previous->next = region_ref;
    if (!all) all = region_ref;
    return 0;
}

int fs_link_join(struct fs_region_ref *region_ref, const struct fs_peer_process *peer) {
    fs_control_lock_hosted();
    int failed = join(region_ref, peer);
    fs_control_unlock();
    return failed;
}

/* The region, which is not parked, leaves its link and counts no more. With its last one the link ends. */
static void leave(struct fs_region_ref *region_ref) {
    struct fs_link *link = region_ref->link, **at;
    if (!link) return;
    if (all == region_ref) all = region_ref->next == region_ref ? NULL : region_ref->next;
    region_ref->next->previous = region_ref->previous;
    region_ref->previous->next = region_ref->next;
    region_ref->next = region_ref->previous = NULL;
    set_counted(region_ref, 0);
    fs_count(&mapped, -(uint64_t)fs_size_without_overflows(region_ref->size));
    region_ref->link = NULL;
    if (--link->regions) return;
    for (at = chain_of(link->peer.key); *at != link; at = &(*at)->next) {}
    *at = link->next;
    fs_system.free(link);
}

void fs_region_free(struct fs_region_ref *region_ref) {
    void *memory = region_ref->memory;
    struct fs_far_peer *far = region_ref->far;
    region_ref->memory = NULL;
    region_ref->far = NULL;
    if (far) fs_far_peer_leave(far);
    if (memory) fs_system.munmap(memory, region_ref->size);
    fs_system.free(region_ref);
}

void fs_region_discard(struct fs_region_ref *region_ref) {
    fs_control_lock_hosted();
    leave(region_ref);
    fs_control_unlock();
    fs_region_free(region_ref);
}

/* ---- parked regions --------------------------------------------------------------------------------------- */

int fs_regions_parked(int side) { return (int)fs_load_relaxed(&parked_by[side]); }

static void unpool(const struct fs_link *link) {
    int position = pooled_count - 1;
    while (position >= 0 && pooled[position] != link) position--;
    if (position < 0) return;
    pooled_count--;
    memmove(pooled + position, pooled + position + 1, (size_t)(pooled_count - position) * sizeof *pooled);
}

/* Puts a link where it is used first, or last. */
static void pool(struct fs_link *link, int first) {
    if (first && pooled_count && pooled[pooled_count - 1] == link) return;
    unpool(link);
    if (!first) memmove(pooled + 1, pooled, (size_t)pooled_count * sizeof *pooled);
    pooled[first ? pooled_count : 0] = link;
    pooled_count++;
}

static struct fs_region_ref *unpark_at(struct fs_link *link, int side, int position) {
    struct fs_region_ref **parked = link->parked[side], *region_ref = parked[position];
    if (region_ref == warm[side]) warm[side] = NULL;
    int after = --link->parked_count[side] - position;
    memmove(parked + position, parked + position + 1, (size_t)after * sizeof *parked);
    fs_count(&parked_by[side], -UINT64_C(1));
    if (!link->parked_count[0] && !link->parked_count[1]) unpool(link);
    return region_ref;
}

void fs_region_unpark(struct fs_region_ref *region_ref) {
    struct fs_link *link = region_ref->link;
    int position = 0;
    while (link->parked[region_ref->side][position] != region_ref) position++;
    unpark_at(link, region_ref->side, position);
}

/* The one that is warm gives its pages back. (With the table lock nobody takes it meanwhile.) */
static void cool(int side) {
    struct fs_region_ref *region_ref = warm[side];
    if (!region_ref) return;
    fs_cool(region_ref->memory, region_ref->size, side, (int)region_ref->window);
    region_ref->is_warm = 0;
    warm[side] = NULL;
}

/* Parks a region as the one that is used first, or last. Of all parked regions of a side, the one that was parked last alone keeps its
 * pages. Returns one that there is no room for, which has left its link; NULL: none. */
static struct fs_region_ref *park(struct fs_region_ref *region_ref, int first) {
    struct fs_link *link = region_ref->link;
    int side = region_ref->side, of = 0, count = link->parked_count[side]++; /* (there is room for one more than are kept) */
    struct fs_region_ref **parked = link->parked[side];
    cool(side);
    if (region_ref->is_warm) warm[side] = region_ref;
    if (!first) memmove(parked + 1, parked, (size_t)count * sizeof *parked);
    parked[first ? count : 0] = region_ref;
    fs_count(&parked_by[side], 1);
    pool(link, first);
    if (link->parked_count[side] <= FS_PARKED_PER_LINK) {
        if (fs_regions_parked(side) <= parked_most[side]) return NULL;
        while (!pooled[of]->parked_count[side]) of++;
        link = pooled[of];
    }
    region_ref = unpark_at(link, side, 0);
    leave(region_ref);
    return region_ref;
}

void fs_region_park(struct fs_region_ref *region_ref) {
    struct fs_link *link = region_ref->link;
    struct fs_far_peer *far = region_ref->far; /* (each hello brings another way) */
    int64_t now = fs_now();
    /* (Relaxed: a hint, for the looks at an idle link.) */
    uint64_t token = fs_load_relaxed(&((struct fs_region *)region_ref->memory)->asks[1 - region_ref->side]);
    fs_control_lock_hosted();
    region_ref->far = NULL;
    link->is_far = far != NULL;
    if (token && !link->is_far) link->token = token;
    link->used = now;
    link->looks = 0;
    struct fs_region_ref *over = park(region_ref, 1);
    int kick = fs_control_state.wakes_at > now + IDLE_NS;
    fs_control_unlock();
    if (kick && fs_request_socket() >= 0) fs_control_thread_kick(); /* (if the numbers are still ours) */
    if (far) fs_far_peer_leave(far);
    if (over) fs_region_free(over);
}

void fs_region_park_last(struct fs_region_ref *region_ref) {
    fs_control_lock_hosted();
    struct fs_region_ref *over = park(region_ref, 0);
    fs_control_unlock();
    if (over) fs_region_free(over);
}

static int has_in_common(const struct fs_region_ref *region_ref, const struct fs_stream_endpoint *services) {
    return memcmp(&region_ref->services[0], &services[0], sizeof *services) == 0 ||
           memcmp(&region_ref->services[1], &services[1], sizeof *services) == 0;
}

/* Takes the newest parked region that suits a connection, whatever its services if they are NULL, with which both sides have finished;
 * without such a one that of these `services` with which this side has. */
static struct fs_region_ref *take_of(struct fs_link *link, const struct fs_stream_endpoint *services, int window, int chunk) {
    size_t size = fs_region_size((uint32_t)window, (uint32_t)chunk);
    int best = -1;
    for (int position = link->parked_count[0] - 1; position >= 0; position--) {
        struct fs_region_ref *region_ref = link->parked[0][position];
        if (region_ref->window != (uint32_t)window || region_ref->size != size) continue;
        if (services && !has_in_common(region_ref, services)) continue;
        if (fs_is_region_free(region_ref->memory)) return unpark_at(link, 0, position);
        if (best < 0) best = position;
    }
    return services && best >= 0 ? unpark_at(link, 0, best) : NULL;
}

struct fs_region_ref *fs_region_take(uint64_t key, int window, int chunk) {
    fs_control_lock_hosted();
    struct fs_link *link = find(key);
    struct fs_region_ref *region_ref = link ? take_of(link, NULL, window, chunk) : NULL;
    if (region_ref) fs_recycle_region(region_ref->memory, window);
    fs_control_unlock();
    return region_ref;
}

int fs_regions_take_to(const struct fs_stream_endpoint *services, int window, int chunk, struct fs_region_ref **into, int room) {
    int count = 0;
    if (!fs_regions_parked(0)) return 0;
    fs_control_lock_hosted();
    for (int i = pooled_count - 1; i >= 0 && count < room; i--) {
        into[count] = pooled[i]->is_of_own_user ? take_of(pooled[i], services, window, chunk) : NULL;
        count += into[count] != NULL;
    }
    fs_control_unlock();
    return count;
}

/* Returns the newest parked region of the publisher's, of a link with a process of this user, that `fits`; or NULL. Sets `*at`. */
static struct fs_region_ref *find_fitting(int (*fits)(const struct fs_region_ref *, void *), void *with, int *at) {
    for (int i = pooled_count - 1; i >= 0; i--) {
        struct fs_link *link = pooled[i];
        for (*at = link->parked_count[1] - 1; link->is_of_own_user && *at >= 0; --*at)
            if (fits(link->parked[1][*at], with)) return link->parked[1][*at];
    }
    return NULL;
}

struct fs_region_ref *fs_region_take_fitting(int (*fits)(const struct fs_region_ref *, void *), void *with) {
    int at;
    if (!fs_regions_parked(1)) return NULL;
    fs_control_lock_hosted();
    struct fs_region_ref *found = find_fitting(fits, with, &at);
    if (found) unpark_at(found->link, 1, at);
    fs_control_unlock();
    return found;
}

int fs_region_any_parked(int (*fits)(const struct fs_region_ref *, void *)) {
    int at;
    if (!fs_regions_parked(1)) return 0;
    fs_control_lock_hosted();
    int any = find_fitting(fits, NULL, &at) != NULL;
    fs_control_unlock();
    return any;
}

/* (With the key 0 there may be several.) */
struct fs_region_ref *fs_region_find_parked(uint64_t key, const unsigned char id[16]) {
    for (int at = 0; at < pooled_count; at++)
        for (int i = 0; pooled[at]->peer.key == key && i < pooled[at]->parked_count[1]; i++)
            if (memcmp(pooled[at]->parked[1][i]->id, id, sizeof pooled[at]->parked[1][i]->id) == 0) return pooled[at]->parked[1][i];
    return NULL;
}

/* Unmaps the oldest regions of a link, which may end by that. */
static void drop(struct fs_link *link, int side, int count) {
    while (count--) {
        struct fs_region_ref *region_ref = unpark_at(link, side, 0);
        leave(region_ref);
        fs_region_free(region_ref);
    }
}

static int drop_all(void) {
    int any = pooled_count > 0;
    while (pooled_count) drop(pooled[0], !pooled[0]->parked_count[0], 1);
    return any;
}

int fs_links_clear(void) {
    fs_control_lock_hosted();
    cool(0);
    cool(1);
    int any = drop_all();
    fs_control_unlock();
    return any;
}

/* ---- idle links ------------------------------------------------------------------------------------------- */

/* Returns when the next look at a link with parked regions is due. (The 33rd would be after 272 years.) */
static int64_t due(const struct fs_link *link) { return link->used + (IDLE_NS << link->looks); }

/* Its pages go at the first look; its regions, if the other process has ended. Otherwise one look after the other takes the older half of
 * them, and the newest one stays. What is left counts as it is. (Of a process in another network namespace nobody can tell whether it has
 * ended.) */
static void look_at(struct fs_link *link, int64_t now) {
    int has_ended = link->token && !fs_control_is_open(link->token), drops[2];
    for (int side = 0; side < 2; side++) {
        if (warm[side] && warm[side]->link == link) cool(side);
        drops[side] = has_ended ? link->parked_count[side] : link->looks < SHRINKS_FROM ? 0 : link->parked_count[side] / 2;
    }
    do link->looks++; /* (no thread may have looked for a while) */
    while (due(link) <= now);
    for (int side = 0; side < 2; side++) {
        drop(link, side, drops[side]);
        for (int i = 0; !has_ended && i < link->parked_count[side]; i++)
            set_counted(link->parked[side][i], committed(link->parked[side][i]));
    }
}

int64_t fs_links_look(int64_t now) {
    int64_t first = INT64_MAX;
    for (int i = pooled_count - 1; i >= 0; i--) {
        struct fs_link *link = pooled[i];
        if (due(link) <= now) look_at(link, now);
        if (i < pooled_count && pooled[i] == link) first = FS_MIN(first, due(link));
    }
    return first;
}

int fs_links_each(int (*tell)(const struct fs_link *, void *), void *with) {
    for (int i = 0; i < CHAINS; i++)
        for (const struct fs_link *link = table[i]; link; link = link->next)
            if (!tell(link, with)) return 0;
    return 1;
}

/* ---- a fork ----------------------------------------------------------------------------------------------- */

void FS_AT_FORK fs_links_forget(void) {
    if (!pooled_count) return; /* (avoids copying pages) */
    warm[0] = warm[1] = NULL; /* the parent cools them */
    drop_all();
}
