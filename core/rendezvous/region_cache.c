/* Regions of this process. A connection's region is freed here and nowhere else; control/listener.c frees those that no connection has:
 * the parked ones, and those that came for nobody.
 *
 * Responsible for: each region is released once; mapped memory stays below the cap. Never: which connection gets one (connector.c), or
 * its contents (control/region_mmap.c).
 *
 * Each part of a region reference is forgotten before it is released: a thread without the host lock may fork between two parts, and a
 * released number may be another file's by the time the child releases the rest. */
#include "rendezvous/region_cache.h"

#include "control/region_mmap.h"
#include "control/control_requests.h"
#include "control/control_thread.h"
#include "conn/event_slot.h"

static int64_t cap = INT64_MAX;
static struct fs_region_ref *all; /* a circular list; the one to check next. NULL: none */

enum { IN_VAIN_MOST = 32 }; /* posts in vain before a region is dropped: the process that has it may be one of several workers, or dead */

enum { CHECKS_LEAST = 2, CHECKS_MOST = 64 }; /* regions checked for a new one, if all mappings together would be too much */

static struct fs_region_ref *cached[FS_CACHED_BY_SEEKER + 1]; /* the oldest first */
static int cached_count;
static struct fs_region_ref *warm; /* the cached one that keeps its pages; NULL: none */

/* ---- the cap ---------------------------------------------------------------------------------------------- */

void fs_set_memory_cap(int64_t bytes) { cap = bytes; }

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
    fs_count_memory(0, (int64_t)bytes - (int64_t)region_ref->counted);
    region_ref->counted = bytes;
}

/* A region counts whole, without its overflow buffers, until it is checked. Checks happen only if the sum of all mappings would be too
 * much: in turn, as many as it takes to make room, and a few in any case, since checked regions may have grown. */
static int exceeds_cap(size_t size) {
    if ((int64_t)(fs_mapped_memory() + size) <= cap) return 0;
    struct fs_region_ref *first = all;
    for (int checks = 0; all && checks < CHECKS_MOST; checks++) {
        if (checks >= CHECKS_LEAST && (int64_t)(fs_memory_used() + size) <= cap) break;
        if (all->memory) set_counted(all, committed(all));
        all = all->next;
        if (all == first) break;
    }
    return (int64_t)(fs_memory_used() + size) > cap;
}

/* Counts a region, which joins the list. Returns 0, or FS_CAP_REACHED. */
static int count_region(struct fs_region_ref *region_ref) {
    size_t size = fs_size_without_overflows(region_ref->size);
    if (exceeds_cap(size)) return FS_CAP_REACHED;
    fs_count_memory((int64_t)size, 0);
    set_counted(region_ref, size);
    region_ref->next = all ? all : region_ref; /* the last one to be checked */
    region_ref->previous = all ? all->previous : region_ref;
    region_ref->next->previous = region_ref->previous->next = region_ref;
    if (!all) all = region_ref;
    return 0;
}

/* The region counts no more. */
static void uncount_region(struct fs_region_ref *region_ref) {
    if (!region_ref->next) return;
    if (all == region_ref) all = region_ref->next == region_ref ? NULL : region_ref->next;
    region_ref->next->previous = region_ref->previous;
    region_ref->previous->next = region_ref->next;
    region_ref->next = region_ref->previous = NULL;
    set_counted(region_ref, 0);
    fs_count_memory(-(int64_t)fs_size_without_overflows(region_ref->size), 0);
}

/* ---- one region ------------------------------------------------------------------------------------------- */

static void leave_far_peer(struct fs_region_ref *region_ref) {
    struct fs_far_peer *far = region_ref->far;
    region_ref->far = NULL;
    if (far) fs_far_peer_leave(far);
}

static void unmap(struct fs_region_ref *region_ref) {
    void *memory = region_ref->memory;
    region_ref->memory = NULL;
    leave_far_peer(region_ref);
    if (memory) fs_system.munmap(memory, region_ref->size);
}

void fs_region_discard(struct fs_region_ref *region_ref) {
    uncount_region(region_ref);
    unmap(region_ref);
    fs_system.free(region_ref);
}

/* Does the part of fs_region_new after the memory is counted. */
static int create_memory(struct fs_region_ref *region_ref, int window, int chunk, int *memfd) {
    int failed = fs_random_bytes(region_ref->id, sizeof region_ref->id);
    if (failed) return failed;
    *memfd = fs_create_region(window, chunk, region_ref->id, &region_ref->memory);
    return FS_MIN(*memfd, 0);
}

int fs_region_new(pid_t peer, int window, int chunk, struct fs_region_ref **made, int *memfd) {
    size_t size = fs_region_size((uint32_t)window, (uint32_t)chunk);
    struct fs_region_ref *region_ref = fs_system.malloc(sizeof *region_ref);
    if (!region_ref) return -ENOMEM;
    *region_ref = (struct fs_region_ref){.size = size, .peer = peer, .key = (uint64_t)peer};
    int failed = count_region(region_ref);
    if (failed) {
        fs_system.free(region_ref);
        return failed;
    }
    failed = create_memory(region_ref, window, chunk, memfd);
    if (failed) {
        fs_region_discard(region_ref);
        return failed;
    }
    *made = region_ref;
    return 0;
}

int fs_region_accept(const struct fs_accepted_region *accepted, struct fs_region_ref **made) {
    struct fs_region_ref *region_ref = fs_system.malloc(sizeof *region_ref), temporary;
    struct fs_region_ref *first = region_ref ? region_ref : &temporary;
    *first = (struct fs_region_ref){.memory = accepted->memory, .size = accepted->size, .side = 1, .peer = accepted->peer};
    memcpy(first->id, accepted->id, sizeof first->id);
    if (accepted->reused) fs_count_cached(accepted->size, -1); /* a cached one is counted already */
    if (accepted->is_far) first->far = fs_far_peer_join(accepted->key, accepted->way);
    int failed = !region_ref ? -ENOMEM : accepted->is_far && !first->far ? -EMFILE : count_region(region_ref);
    if (failed) {
        unmap(first);
        fs_system.free(region_ref);
        return failed;
    }
    *made = region_ref;
    return 0;
}

int fs_region_new_pair(int window, int chunk, struct fs_region_ref *ends[2]) {
    int memfd, failed = fs_region_new(0, window, chunk, &ends[0], &memfd);
    if (failed) return failed;
    struct fs_accepted_region other = {.memory = fs_map_memfd(memfd, ends[0]->size), .size = ends[0]->size};
    memcpy(other.id, ends[0]->id, sizeof other.id);
    fs_system.close(memfd);
    failed = other.memory ? fs_region_accept(&other, &ends[1]) : -ENOMEM;
    if (failed) fs_region_discard(ends[0]);
    else ends[0]->once = ends[1]->once = 1;
    return failed;
}

int fs_region_attach(struct fs_region_ref *region_ref, struct fs_connection *c, const struct fs_flow_options *flow,
                     const struct fs_attach_hooks *hooks, const char **wrong) {
    *wrong = NULL;
    int failed = fs_control_thread_start();
    if (!failed) failed = fs_requests_expect(c, region_ref->side, region_ref->id);
    if (failed) return failed;
    region_ref->asked = c;
    c->peer_process = region_ref->peer;
    fs_store_release(&c->far, region_ref->far); /* SYNC: far peer - pairs with fs_far_of */
    if (hooks) failed = hooks->watch(hooks->whose, c);
    if (!failed) failed = fs_attach(c, region_ref->memory, region_ref->size, region_ref->side, flow, wrong);
    if (failed) {
        fs_region_stop_requests(region_ref);
        if (hooks) hooks->ignore(hooks->whose, c);
        return failed;
    }
    region_ref->window = c->ring.window;
    c->asked_before = 0; /* the token there was an earlier connection's */
    fs_store_relaxed(&c->asked_here, fs_requests_announce(region_ref->memory, region_ref->side));
    return 0;
}

int fs_region_inherit(struct fs_region_ref *region_ref, struct fs_connection *c) {
    int failed = fs_control_thread_start();
    if (!failed) failed = fs_requests_expect(c, region_ref->side, region_ref->id);
    if (failed) return failed;
    region_ref->asked = c;
    fs_requests_announce_holder(c);
    fs_wake_own_set(c); /* a loop of the parent's announces its set again */
    return 0;
}

void fs_region_stop_requests(struct fs_region_ref *region_ref) {
    struct fs_connection *asked = region_ref->asked;
    region_ref->asked = NULL;
    if (asked) fs_requests_stop(asked);
}

/* ---- cached by the seeker --------------------------------------------------------------------------------- */

static struct fs_region_ref *take_cached(int position) {
    struct fs_region_ref *region_ref = cached[position];
    if (region_ref == warm) warm = NULL;
    cached_count--;
    memmove(cached + position, cached + position + 1, (size_t)(cached_count - position) * sizeof *cached);
    return region_ref;
}

static int oldest_of(uint64_t key) {
    int position = 0;
    while (cached[position]->key != key) position++;
    return position;
}

static void cool_warm(void) {
    if (warm) fs_cool(warm->memory, warm->size, 0, (int)warm->window);
    warm = NULL;
}

/* Caches a region for the next connection to the same process, and drops the oldest if there are too many. `is_warm`: of all, it alone
 * keeps its pages. */
static void cache_region(struct fs_region_ref *region_ref, int is_warm) {
    int of_peer = 0;
    cool_warm();
    if (is_warm) warm = region_ref;
    cached[cached_count++] = region_ref; /* there is room for one more than are kept */
    for (int i = 0; i < cached_count; i++) of_peer += cached[i]->key == region_ref->key;
    if (of_peer > FS_CACHED_PER_PEER) fs_region_discard(take_cached(oldest_of(region_ref->key)));
    else if (cached_count > FS_CACHED_BY_SEEKER) fs_region_discard(take_cached(0));
}

void fs_region_release(struct fs_region_ref *region_ref, int recyclable) {
    fs_region_stop_requests(region_ref); /* of a connection that was closed while it attached */
    if (!recyclable || region_ref->once) {
        fs_region_discard(region_ref);
        return;
    }
    leave_far_peer(region_ref); /* (each hello brings another way) */
    int is_warm = fs_mark_done(region_ref->memory, region_ref->size, region_ref->side, (int)region_ref->window);
    if (region_ref->side == 0) {
        cache_region(region_ref, is_warm);
        return;
    }
    uncount_region(region_ref);
    struct fs_cached_region parked = {
        .memory = region_ref->memory, .size = region_ref->size, .window = (int)region_ref->window,
        .peer = region_ref->peer, .is_warm = is_warm};
    memcpy(parked.id, region_ref->id, sizeof parked.id);
    fs_cache_put(&parked);
    fs_system.free(region_ref);
}

struct fs_region_ref *fs_cached_region_for(uint64_t key, int window, int chunk) {
    size_t size = fs_region_size((uint32_t)window, (uint32_t)chunk);
    for (int position = cached_count - 1; position >= 0; position--) {
        struct fs_region_ref *region_ref = cached[position];
        if (region_ref->key != key || region_ref->window != (uint32_t)window || region_ref->size != size) continue;
        if (fs_recycle_region(region_ref->memory, window)) return take_cached(position); /* else for later */
    }
    return NULL;
}

static int is_of_one(const struct fs_region_ref *region_ref, struct fs_region_ref *const *others, int count) {
    for (int i = 0; i < count; i++)
        if (others[i]->peer == region_ref->peer) return 1;
    return 0;
}

struct fs_region_ref *fs_cached_region_to(const struct fs_stream_endpoint *service, struct fs_region_ref *const *others, int count, int window,
                                          int chunk) {
    size_t size = fs_region_size((uint32_t)window, (uint32_t)chunk);
    for (int position = cached_count - 1; position >= 0; position--) {
        struct fs_region_ref *region_ref = cached[position];
        if (!region_ref->is_of_own_user || region_ref->window != (uint32_t)window || region_ref->size != size) continue;
        if (memcmp(&region_ref->service, service, sizeof *service) != 0 || is_of_one(region_ref, others, count)) continue;
        if (fs_recycle_region(region_ref->memory, window)) return take_cached(position);
    }
    return NULL;
}

void fs_region_put_back(struct fs_region_ref *region_ref, int in_vain) {
    region_ref->in_vain += in_vain;
    if (region_ref->in_vain > IN_VAIN_MOST) {
        fs_region_discard(region_ref);
        return;
    }
    fs_unrecycle_region(region_ref->memory);
    if (!in_vain) {
        cache_region(region_ref, 0);
        return;
    }
    memmove(cached + 1, cached, (size_t)cached_count++ * sizeof *cached);
    cached[0] = region_ref;
    if (cached_count > FS_CACHED_BY_SEEKER) fs_region_discard(take_cached(0));
}

int fs_cached_region_count(void) { return cached_count; }

static int drop_cached(void) {
    int any = cached_count > 0;
    while (cached_count) fs_region_discard(take_cached(0));
    return any;
}

int fs_region_cache_clear(void) {
    cool_warm();
    return drop_cached() | fs_cache_clear();
}

void fs_regions_forget(void) {
    fs_control_forget();
    drop_cached();
}
