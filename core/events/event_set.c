/* Event sets: tell one thread that waits for many connections which of them have something.
 *
 * A poller has one set, with one eventfd. Each connection has a slot in the set. For each peer process there is a page, shared with that
 * process alone: a bit for each slot, and a word that says if the set sleeps. A poster sets the bit, and writes to the eventfd if the
 * set sleeps. Usually only one poster per sleep writes. So an awake set costs nobody a system call, and one peer process cannot destroy
 * the hints of another. This side's own threads and forked processes have a page too, `home`.
 *
 * The eventfds are edge-triggered members of an epoll, on which the loop waits. Nobody ever reads an eventfd: a program may close our
 * descriptors and reuse their numbers, and bytes read from a file of the program would be lost. (Waiting on the epoll takes nothing from
 * a file.)
 *
 * Not here: sockets, who may have a page (control/page_offers.c), and the meaning of a hint (the loop). */
#include "events/event_set.h"

#include "os/host.h"
#include "os/memfd.h"
#include "os/syscalls.h"

enum {
    INDEX = FS_SETS - 1, /* the bits of an id that are its index; the others count the index's uses */
    BEGUN = 1,           /* the id while a thread makes a set here */
};

static fs_atomic_ptr(struct fs_event_set) sets[FS_SETS]; /* entries are never removed */

/* ---- one page ----------------------------------------------------------------------------------------------- */

static int is_hinted(struct fs_event_page *page) {
    uint64_t any = 0;
    /* SYNC: set asleep - pairs with fs_mark_ready. */
    for (int i = 0; i < FS_SET_WORDS / 64; i++) any |= fs_load_sc(&page->summary[i]);
    return any != 0;
}

/* Takes the hints of one page. (The summary first: a bit set in between is found the next time.) */
static int take_hints(struct fs_event_page *page, uint32_t *places, int room) {
    int count = 0;
    for (uint32_t i = 0; i < FS_SET_WORDS / 64; i++) {
        /* SYNC: page over - this look follows the store of fs_retire_page; a poster looks for `over` after its hint. */
        uint64_t words = fs_load_sc(&page->summary[i]) ? fs_exchange_sc(&page->summary[i], 0) : 0;
        while (words) {
            uint32_t word = i * 64 + (uint32_t)__builtin_ctzll(words);
            if (count + 64 > room) { /* the rest comes with the next call */
                fs_or_sc(&page->summary[i], words);
                return count;
            }
            words &= words - 1;
            uint64_t bits = fs_exchange_sc(&page->ready[word], 0);
            for (; bits; bits &= bits - 1) places[count++] = word * 64 + (uint32_t)__builtin_ctzll(bits);
        }
    }
    return count;
}

/* Maps the page for this side's own processes, in the place of the last set's, if there is one. (That page may be a forked child's too,
 * which would say there that it has woken the set, by an eventfd that the set has no more.) Returns NULL without memory. */
static struct fs_event_page *map_home(struct fs_event_page *last) {
    void *memory = fs_system.mmap(last, FS_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | (last ? MAP_FIXED : 0), -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* ---- the eventfd -------------------------------------------------------------------------------------------- */

/* Returns an eventfd in the set's epoll, or -errno. */
static int new_eventfd(struct fs_event_set *set, unsigned start) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = set->data};
    int fd = fs_reserve_fd(fs_system.eventfd(start, EFD_CLOEXEC | EFD_NONBLOCK), 0);
    if (fd < 0) return fd;
    /* (Relaxed: it may be another number by now, see fs_poller_set_number.) */
    if (fs_system.epoll_ctl(fs_load_relaxed(&set->epoll), EPOLL_CTL_ADD, fd, &event) == 0) return fd;
    int failed = -errno;
    fs_system.close(fd);
    return failed;
}

/* (Leaves the epoll first: a peer may keep the eventfd open.) */
static void close_eventfd(struct fs_event_set *set, int fd) {
    struct epoll_event event = {0};
    if (!set->has_epoll && fs_is_own_eventfd(fd)) fs_system.epoll_ctl(set->epoll, EPOLL_CTL_DEL, fd, &event);
    fs_close_eventfd(fd);
}

/* Replaces the set's eventfd, whose number the program has closed or reused, by a new one that is readable. Any thread may find that
 * out. */
static void renew_eventfd(struct fs_event_set *set, int lost) {
    int fd = new_eventfd(set, 1);
    if (fd >= 0 && !fs_cas32(&set->fd, (uint32_t)lost, (uint32_t)fd)) fs_system.close(fd); /* another thread was first */
}

static void wake_home(struct fs_event_set *set, uint32_t place) {
    int fd = (int)fs_load_relaxed(&set->fd);
    if (fs_mark_ready(set->home, place, fd) < 0) renew_eventfd(set, fd);
    /* (It may have become the next set meanwhile, of which the page says now that it is woken.) */
    int now = (int)fs_load_relaxed(&set->fd);
    if (now != fd && now >= 0) fs_signal_eventfd(now);
}

void fs_wake_local_set(uint64_t name) {
    /* SYNC: set there - pairs with take_unused: any thread asks, without a lock. */
    struct fs_event_set *set = fs_load_acquire(&sets[fs_slot_set(name) & INDEX]);
    /* (If the set has ended meanwhile, or another loop uses it, the hint has no effect.) */
    /* SYNC: set begun - pairs with fs_event_set_new_in: its page and its eventfd are those of this use. */
    if (!name || !set || fs_load_acquire(&set->id) != fs_slot_set(name)) return;
    fs_store_relaxed(&set->asked, 1);
    wake_home(set, fs_slot_index(name));
}

/* ---- its beginning and its end --------------------------------------------------------------------------------- */

/* Allocates a set with the id BEGUN. Returns NULL without memory. */
static struct fs_event_set *new_memory(void) {
    struct fs_event_set *set = fs_system.calloc(1, sizeof *set);
    struct fs_event_page *home = set ? map_home(NULL) : NULL;
    if (!home) {
        fs_system.free(set);
        return NULL;
    }
    set->home = home;
    set->process = fs_own_pid;
    fs_store_relaxed(&set->id, BEGUN);
    return set;
}

/* Claims an unused index: its set gets the id BEGUN, so that no other thread takes it. Returns the index, or -1. */
static int take_unused(void) {
    struct fs_event_set *fresh = NULL;
    for (int i = 0; i < FS_SETS; i++) {
        /* SYNC: set there - pairs with the swap below. */
        struct fs_event_set *set = fs_load_acquire(&sets[i]), *none = NULL;
        if (set) {
            if (set->process != fs_own_pid || fs_load_relaxed(&set->id) || !fs_cas32(&set->id, 0, BEGUN)) continue;
            if (fresh) {
                fs_system.munmap(fresh->home, FS_PAGE_SIZE);
                fs_system.free(fresh);
            }
            return i;
        }
        if (!fresh && !(fresh = new_memory())) return -1;
        /* SYNC: set there - pairs with fs_wake_local_set. */
        if (fs_cas_pointer(&sets[i], none, fresh)) return i;
        i--; /* another thread was first; its set may have ended by now */
    }
    return -1;
}

static struct fs_event_set *new_with(int epoll, int *failed) {
    *failed = epoll < 0 ? epoll : 0;
    if (*failed) return NULL;
    struct fs_event_set *set = fs_event_set_new_in(epoll, 0, failed);
    if (set) set->has_epoll = 1;
    else fs_system.close(epoll);
    return set;
}

struct fs_event_set *fs_event_set_new(int *failed) {
    /* Not in the reserved range: a loop that waits with select accepts no number from FD_SETSIZE on. */
    int epoll = fs_system.epoll_create1(EPOLL_CLOEXEC);
    return new_with(epoll < 0 ? -errno : epoll, failed);
}

struct fs_event_set *fs_event_set_new_reserved(int *failed) {
    return new_with(fs_reserve_fd(fs_system.epoll_create1(EPOLL_CLOEXEC), 0), failed);
}

struct fs_event_set *fs_event_set_new_in(int epoll, uint64_t data, int *failed) {
    static fs_word32 uses;
    int index = take_unused();
    *failed = -ENOMEM;
    if (index < 0) return NULL;
    struct fs_event_set *set = fs_load_relaxed(&sets[index]);
    set->sleep = 0;
    set->epoll = epoll;
    set->data = data;
    set->has_epoll = 0;
    int fd = map_home(set->home) ? new_eventfd(set, 0) : -ENOMEM;
    *failed = fd < 0 ? fd : 0;
    if (*failed) {
        /* SYNC: set unused - pairs with take_unused: the next user finds the set as it was left. */
        fs_store_sc(&set->id, 0);
        return NULL;
    }
    fs_store_relaxed(&set->fd, (uint32_t)fd);
    fs_store_relaxed(&set->asked, 0);
    uint32_t use = fs_add_sc(&uses, 1) % (UINT32_MAX / FS_SETS) + 1;
    /* SYNC: set begun - pairs with fs_wake_local_set. */
    fs_store_release(&set->id, use * FS_SETS | (uint32_t)index);
    return set;
}

static void free_page(struct fs_event_set *set, struct fs_page_ref *page) {
    struct fs_page_ref **at = &set->pages;
    while (*at != page) at = &(*at)->next;
    *at = page->next;
    fs_retire_page(set, page);
    fs_system.free(page);
}

int fs_event_set_is_own(const struct fs_event_set *set) { return set->process == fs_own_pid; }

void fs_event_set_end(struct fs_event_set *set) {
    if (!fs_event_set_is_own(set)) return; /* a child's copy ends with the child */
    fs_store_relaxed(&set->id, BEGUN);
    while (set->pages) free_page(set, set->pages);
    int fd = (int)fs_exchange_sc(&set->fd, (uint32_t)-1);
    close_eventfd(set, fd);
    if (set->has_epoll) fs_system.close(set->epoll);
    set->epoll = -1;
    fs_system.free(set->places);
    set->places = NULL;
    set->room = set->used = set->first_free = 0;
    fs_store_sc(&set->id, 0); /* SYNC: set unused - pairs with take_unused. */
}

/* ---- places --------------------------------------------------------------------------------------------------- */

static int widen(struct fs_event_set *set) {
    uint32_t room = set->room ? set->room * 2 : 16;
    if (set->room == FS_SET_SLOTS) return -ENOSPC;
    struct fs_set_slot *places = fs_system.realloc(set->places, room * sizeof *places);
    if (!places) return -ENOMEM;
    set->places = places;
    set->room = room;
    return 0;
}

/* (`first_free` and `next_free` are slots plus one; 0: none.) */
int fs_set_slot_alloc(struct fs_event_set *set) {
    uint32_t place = set->first_free;
    if (!fs_event_set_is_own(set)) return -EBADF;
    if (place) {
        place -= 1;
        set->first_free = set->places[place].next_free;
    } else {
        int failed = set->used < set->room ? 0 : widen(set);
        if (failed) return failed;
        place = set->used++;
    }
    set->places[place] = (struct fs_set_slot){NULL, NULL, 0};
    return (int)place;
}

/* A connection leaves its page. An empty page stays for a while, since its process may come again and would need another offer. */
static void release_page(struct fs_event_set *set, struct fs_page_ref *page) {
    int idle = 0;
    struct fs_page_ref *oldest = NULL;
    if (!page || --page->members) return;
    for (struct fs_page_ref *p = set->pages; p; p = p->next)
        if (!p->members) {
            idle++;
            oldest = p; /* new ones are first */
        }
    if (idle > FS_IDLE_PAGES) free_page(set, oldest);
}

void fs_set_slot_free(struct fs_event_set *set, uint32_t place) {
    if (!fs_event_set_is_own(set)) return;
    struct fs_page_ref *page = set->places[place].page;
    set->places[place] = (struct fs_set_slot){NULL, NULL, set->first_free};
    set->first_free = place + 1;
    release_page(set, page);
}

/* ---- sleeping ------------------------------------------------------------------------------------------------- */

static void store_asleep(struct fs_event_set *set, uint32_t sleep) {
    fs_store_sc(&set->home->asleep, sleep);
    for (struct fs_page_ref *page = set->pages; page; page = page->next)
        if (page->memory) fs_store_sc(&page->memory->asleep, sleep);
    set->sleep = sleep;
}

/* In a forked child the words are those of the parent, which may sleep or not. */
int fs_prepare_sleep(struct fs_event_set *set) {
    if (!fs_event_set_is_own(set)) return 0;
    /* SYNC: set asleep - pairs with fs_mark_ready. */
    set->sleeps += 1 + (set->sleeps == UINT32_MAX); /* (0 is not a sleep's number) */
    store_asleep(set, set->sleeps);
    if (!fs_has_hints(set)) return 0;
    store_asleep(set, 0);
    return 1;
}

void fs_set_awake(struct fs_event_set *set) {
    if (set->sleep && fs_event_set_is_own(set)) store_asleep(set, 0);
}

void fs_wake_owner(struct fs_event_set *set) {
    int fd = (int)fs_load_relaxed(&set->fd);
    if (fs_event_set_is_own(set) && !fs_signal_eventfd(fd)) renew_eventfd(set, fd);
}

void fs_event_set_drain(struct fs_event_set *set) {
    struct epoll_event events[16];
    while (fs_epoll_wait(set->epoll, events, 16, 0, NULL) == 16) {}
}

int fs_has_hints(const struct fs_event_set *set) {
    if (is_hinted(set->home)) return 1;
    for (struct fs_page_ref *page = set->pages; page; page = page->next)
        if (page->memory && is_hinted(page->memory)) return 1;
    return 0;
}

int fs_take_hints(struct fs_event_set *set, uint32_t *places, int room) {
    if (!fs_event_set_is_own(set)) return 0;
    int count = take_hints(set->home, places, room);
    struct fs_page_ref *page = set->pages, *last = NULL;
    for (; page && count + 64 <= room; page = page->next) {
        if (page->memory) count += take_hints(page->memory, places + count, room - count);
        last = page;
    }
    if (page && last) { /* the other pages come first with the next call: one of these may be full again by then */
        struct fs_page_ref *end = page;
        while (end->next) end = end->next;
        end->next = set->pages;
        set->pages = page;
        last->next = NULL;
    }
    return count;
}

/* ---- pages ---------------------------------------------------------------------------------------------------- */

struct fs_page_ref *fs_page_of_process(struct fs_event_set *set, uint32_t place, uint64_t token) {
    struct fs_page_ref *before = set->places[place].page, *page = set->pages;
    if (before && before->token == token) return before;
    while (page && page->token != token) page = page->next;
    if (!page) {
        page = fs_system.calloc(1, sizeof *page);
        if (!page) return NULL;
        page->token = token;
        page->fd = -1;
        page->next = set->pages;
        set->pages = page;
    }
    page->members++;
    set->places[place].page = page;
    release_page(set, before);
    return page;
}

void fs_retire_page(struct fs_event_set *set, struct fs_page_ref *page) {
    struct fs_event_page *memory = page->memory;
    uint32_t places[FS_HINTS];
    int count;
    if (!memory) return;
    page->memory = NULL;
    /* SYNC: page over - pairs with fs_remote_set_notify. */
    fs_store_sc(&memory->over, 1);
    while ((count = take_hints(memory, places, FS_HINTS)))
        for (int i = 0; i < count; i++) wake_home(set, places[i]);
    fs_system.munmap(memory, FS_PAGE_SIZE);
    if (page->fd >= 0) close_eventfd(set, page->fd);
    page->fd = -1;
}

int fs_page_init(struct fs_event_set *set, struct fs_page_ref *page, int fd_too) {
    int failed = 0;
    int memfd = fs_memfd_sealed("fastsock-set", FS_PAGE_SIZE);
    if (memfd < 0) return memfd;
    if (fd_too) page->fd = new_eventfd(set, 0);
    if (fd_too && page->fd < 0) failed = page->fd;
    if (!failed && !(page->memory = fs_map_memfd(memfd, FS_PAGE_SIZE))) failed = -ENOMEM;
    if (!failed) {
        fs_store_sc(&page->memory->asleep, set->sleep);
        return memfd;
    }
    if (page->fd >= 0) close_eventfd(set, page->fd);
    page->fd = -1;
    fs_system.close(memfd);
    return failed;
}

int fs_page_eventfd(struct fs_event_set *set, const struct fs_page_ref *page) {
    if (page->fd >= 0) return page->fd;
    int fd = (int)fs_load_relaxed(&set->fd);
    if (!fs_is_own_eventfd(fd)) {
        renew_eventfd(set, fd);
        fd = (int)fs_load_relaxed(&set->fd);
    }
    return fs_is_own_eventfd(fd) ? fd : -1;
}
