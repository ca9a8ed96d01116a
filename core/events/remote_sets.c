/* The event sets of other processes, as this process notifies them: their pages and eventfds, in one table.
 *
 * Any thread that posts may read it, with locks of its connection or without, even while another thread forks. So there is no lock. An
 * entry counts its users, threads that are notifying just now. It is written only by a thread that swapped the count from 0 to TAKEN. A
 * forked child goes on with its copy of the table, its memory and descriptors.
 *
 * Not here: if an offer is valid (control/page_offers.c). */
#include "os/syscalls.h"
#include "events/event_set.h"
#include "wire/control_msg.h"

enum {
    KEPT = 1024,     /* entries, at most, and at most half of the reserved range, for each has an eventfd */
    OF_PROCESS = 64, /* entries of one process */
    FEW = 16,        /* entries below which nobody asks if the owners still run */
};
#define TAKEN UINT32_MAX
#define SWEEP_NS ((int64_t)1000000000) /* between two searches for an entry unused since the last one */

struct kept_set {
    fs_word32 users;
    fs_word32 used; /* since the last sweep; relaxed, a hint */
    fs_word32 lost; /* the eventfd is lost or the page is over: not used any more */
    /* written with the entry TAKEN */
    fs_word64 token; /* 0: an empty entry */
    fs_word32 id;
    int fd;
    struct fs_event_page *page;
};

static struct kept_set kept[KEPT];
static fs_word32 top; /* entries ever used; relaxed, since each entry identifies itself */

/* Returns true if the entry is this set's; then the caller is one of its users. */
static int use_entry(struct kept_set *at, uint64_t token, uint32_t id) {
    uint32_t users = fs_load_relaxed(&at->users);
    if (fs_load_relaxed(&at->token) != token || fs_load_relaxed(&at->id) != id || fs_load_relaxed(&at->lost)) return 0;
    do {
        users = fs_load_relaxed(&at->users);
        if (users == TAKEN) return 0;
        /* SYNC: kept set - pairs with the end of fs_remote_set_add, by the same word. */
    } while (!fs_cas32(&at->users, users, users + 1));
    if (fs_load_relaxed(&at->token) == token && fs_load_relaxed(&at->id) == id && !fs_load_relaxed(&at->lost)) return 1;
    fs_add_sc(&at->users, (uint32_t)-1);
    return 0;
}

static struct kept_set *find(uint64_t token, uint32_t id, fs_word32 *seen) {
    uint32_t at = fs_load_relaxed(seen);
    if (at && at <= KEPT && use_entry(&kept[at - 1], token, id)) return &kept[at - 1];
    for (at = 0; at < fs_load_relaxed(&top); at++)
        if (use_entry(&kept[at], token, id)) {
            fs_store_relaxed(seen, at + 1);
            return &kept[at];
        }
    return NULL;
}

int fs_remote_set_notify(uint64_t token, uint64_t name, fs_word32 *seen) {
    struct kept_set *at = token ? find(token, fs_slot_set(name), seen) : NULL;
    if (!at) return -1;
    struct fs_event_page *page = at->page;
    int calls = fs_mark_ready(page, fs_slot_index(name), at->fd);
    if (calls < 0) fs_store_sc(&page->known, 0); /* the program reuses the number: the owner may offer the set again */
    /* SYNC: page over - pairs with fs_retire_page. */
    if (fs_load_sc(&page->over)) calls = -1;
    if (calls < 0) fs_store_relaxed(&at->lost, 1);
    if (!fs_load_relaxed(&at->used)) fs_store_relaxed(&at->used, 1);
    fs_add_sc(&at->users, (uint32_t)-1);
    return calls;
}

/* Takes an entry and empties it. Returns 0 if it has users. */
static int take_entry(struct kept_set *at) {
    if (!fs_cas32(&at->users, 0, TAKEN)) return 0;
    if (fs_load_relaxed(&at->token)) {
        fs_store_relaxed(&at->page->known, 0);
        fs_system.munmap(at->page, FS_PAGE_SIZE);
        fs_close_eventfd(at->fd);
    }
    fs_store_relaxed(&at->token, 0);
    return 1;
}

static void give_entry(struct kept_set *at) {
    /* SYNC: kept set - pairs with use_entry. */
    fs_store_release(&at->users, 0);
}

static int is_over(struct kept_set *at) { return fs_load_relaxed(&at->lost) || fs_load_relaxed(&at->page->over); }

/* Frees the entries of processes that have ended, which nobody can say in time: a process may be killed. Each time after as many new
 * entries as there were left, so a new entry costs a question or two. */
static void free_orphans(void) {
    static uint32_t limit = FEW;
    uint32_t count = 0, left = 0;
    for (uint32_t i = 0; i < fs_load_relaxed(&top); i++) count += fs_load_relaxed(&kept[i].token) != 0;
    if (count < limit) return;
    for (uint32_t i = 0; i < fs_load_relaxed(&top); i++) {
        struct kept_set *at = &kept[i];
        uint64_t token = fs_load_relaxed(&at->token);
        if (!token) continue;
        if (!(token & 1)) left++; /* (a far peer's, of which nobody can tell) */
        else if (!fs_control_is_open(token) && take_entry(at)) give_entry(at);
        else left++;
    }
    limit = FS_MAX(2 * left, (uint32_t)FEW);
}

/* Returns an empty entry, taken by the caller. Without room, frees lost entries, and now and then unused ones. */
static struct kept_set *find_room(uint64_t token) {
    static int64_t swept;
    int size, of_process = 0, count = 0;
    struct kept_set *empty = NULL;
    fs_reserved_range(&size);
    free_orphans();
    for (uint32_t i = 0; i < fs_load_relaxed(&top); i++) {
        struct kept_set *at = &kept[i];
        if (fs_load_relaxed(&at->token) && is_over(at) && take_entry(at)) give_entry(at);
        if (!fs_load_relaxed(&at->token)) {
            if (!empty) empty = at;
            continue;
        }
        count++;
        of_process += fs_load_relaxed(&at->token) == token;
    }
    if (of_process >= OF_PROCESS) return NULL;
    if (count < FS_MIN(size / 2, (int)KEPT)) {
        if (!empty) {
            empty = &kept[fs_load_relaxed(&top)];
            fs_store_relaxed(&top, fs_load_relaxed(&top) + 1);
        }
        return take_entry(empty) ? empty : NULL;
    }
    if (fs_now() - swept < SWEEP_NS) return NULL;
    swept = fs_now();
    empty = NULL;
    for (uint32_t i = 0; i < fs_load_relaxed(&top); i++) {
        struct kept_set *at = &kept[i];
        if (!empty && fs_load_relaxed(&at->token) && !fs_load_relaxed(&at->used) && take_entry(at)) empty = at;
        fs_store_relaxed(&at->used, 0);
    }
    return empty;
}

int fs_remote_set_add(uint64_t token, uint32_t id, struct fs_event_page *page, int fd) {
    for (uint32_t i = 0; i < fs_load_relaxed(&top); i++)
        if (fs_load_relaxed(&kept[i].token) == token && fs_load_relaxed(&kept[i].id) == id) fs_store_relaxed(&kept[i].lost, 1);
    struct kept_set *at = find_room(token);
    if (!at) return 0;
    at->page = page;
    at->fd = fd;
    fs_store_relaxed(&at->lost, 0);
    fs_store_relaxed(&at->used, 1);
    fs_store_relaxed(&at->id, id);
    fs_store_relaxed(&at->token, token);
    give_entry(at);
    return 1;
}

int fs_remote_set_eventfd(uint64_t token, uint64_t name, fs_word32 *seen) {
    struct kept_set *at = token ? find(token, fs_slot_set(name), seen) : NULL;
    int fd = at ? at->fd : -1;
    if (at) fs_add_sc(&at->users, (uint32_t)-1);
    return fd;
}
