/* Event sets: tell one thread that waits for many connections which of them have something (event_set.c).
 *
 * The lost-wakeup argument, for the set as a whole. The owner writes "I sleep" into each of its pages and then looks at the hints. A
 * posting process writes a hint and then looks for "I sleep". All four are sequentially consistent, so in their single total order at
 * least one look comes after the other's write: either the owner sees the hint and does not sleep, or the poster sees the sleeper and
 * writes to the eventfd. (Before that, FS_SET_ASLEEP and FS_SET_WAITS of the connection decide in the same way which connection needs a
 * hint: ring/doorbell.h.)
 *
 * The same holds for a page that is given up: the owner writes `over` and then takes the hints; the poster writes the hint and then
 * looks for `over`, and notifies the owner in another way if it is set. */
#pragma once

#include <stddef.h>

#include "os/fd_reserve.h"
#include "wire/event_page.h"

enum {
    FS_SETS = 4096,      /* of one process at a time */
    FS_HINTS = 64,       /* room that fs_take_hints needs at least */
    FS_PAGE_OFFERS = 8,       /* offers of a page to one process, before it is always notified in another way */
    FS_IDLE_PAGES = 16,  /* kept for processes that have no connection in the set now and may come again */
};

/* The page that one process posts to. Only the owner's thread uses it. */
struct fs_page_ref {
    struct fs_event_page *memory; /* NULL: none yet */
    uint64_t token;             /* of the posting process (fs_peer_token) */
    int fd;                     /* the page's own eventfd; -1: it uses the set's */
    int offers;
    int64_t next_offer;         /* monotonic ns */
    uint32_t members;           /* connections in the set with this peer */
    unsigned char region[16];   /* region id of one that the peer process knows, */
    uint32_t side;              /* and that process's side of it */
    struct fs_far_peer *far;    /* it is in another network namespace */
    struct fs_page_ref *next;
};

struct fs_set_slot {
    void *member;         /* the connection; NULL: none, or not set yet */
    struct fs_page_ref *page; /* of the peer process; NULL: unknown */
    uint32_t next_free;
};

/* Other threads and forked processes touch only `id`, `home` and `fd`, and the memory of a set is never freed. */
struct fs_event_set {
    fs_word32 id;             /* 0: not in use */
    fs_word32 fd;             /* the eventfd; -1: lost */
    struct fs_event_page *home; /* for the processes of this side */
    fs_word32 asked;          /* this side had to be notified in another way since the last fs_reoffer_pages; relaxed, a hint */
    /* the owner's fields */
    fs_word32 epoll;     /* the owner waits on it; the set's eventfds are its edge-triggered members */
    int has_epoll;       /* the epoll belongs to the set and has no other members */
    uint64_t data;       /* identifies the eventfds in the epoll */
    uint32_t process;    /* in a forked child, the parent */
    uint32_t sleep;      /* number of the sleep stored in the pages; 0: awake */
    uint32_t sleeps;     /* sleeps so far */
    struct fs_set_slot *places;
    uint32_t room, used, first_free;
    struct fs_page_ref *pages;
};

/* ---- the owner: one thread at a time ------------------------------------------------------------------------- */

/* Returns an empty, awake set, or NULL with -errno in `*failed`. */
struct fs_event_set *fs_event_set_new(int *failed);

/* fs_event_set_new for an owner that shows nobody the set's epoll: its number is none of the program's. */
struct fs_event_set *fs_event_set_new_reserved(int *failed);

/* fs_event_set_new within an epoll that the owner has and waits on. The epoll reports `data`, once for each wakeup. It must stay open
 * until fs_event_set_end. */
struct fs_event_set *fs_event_set_new_in(int epoll, uint64_t data, int *failed);

/* Ends an empty set. Later hints are lost. */
void fs_event_set_end(struct fs_event_set *set);

int fs_event_set_is_own(const struct fs_event_set *set); /* 0 in a forked child */

/* Returns a slot for a connection, -ENOSPC, -ENOMEM, or -EBADF if the set belongs to another process. */
int fs_set_slot_alloc(struct fs_event_set *set);

/* Frees a slot that nothing names any more. */
void fs_set_slot_free(struct fs_event_set *set, uint32_t place);

static inline void fs_slot_put_member(struct fs_event_set *set, uint32_t place, void *member) { set->places[place].member = member; }

/* Returns the connection in a slot, NULL if there is none. */
static inline void *fs_slot_member(const struct fs_event_set *set, uint32_t place) {
    return place < set->used ? set->places[place].member : NULL;
}

/* Announces that the set sleeps until its epoll is readable. Returns true if it must not: there are hints, and the set is awake. */
int fs_prepare_sleep(struct fs_event_set *set);

/* Marks the set awake: posters make no system call from now on. */
void fs_set_awake(struct fs_event_set *set);

/* Makes the epoll readable even if the set is awake. For threads of the owner's process that wait for it. */
void fs_wake_owner(struct fs_event_set *set);

/* Makes the epoll unreadable until the next write. Never touches a file of the program that reuses a number. */
void fs_event_set_drain(struct fs_event_set *set);

int fs_has_hints(const struct fs_event_set *set); /* takes nothing; for any thread that keeps the owner from changing the set */

/* Takes hints: stores the slots of at most `room` connections, `room` being FS_HINTS or more. Returns their number; 0: no more hints. */
int fs_take_hints(struct fs_event_set *set, uint32_t *places, int room);

/* ---- the owner's pages ------------------------------------------------------------------------------------- */

/* Returns the page for the process with this token, and counts the connection at `place` in it. NULL without memory. The page may still
 * have to be offered (fs_page_ref.memory). */
struct fs_page_ref *fs_page_of_process(struct fs_event_set *set, uint32_t place, uint64_t token);

/* Gives up a page's memory: sets `over` and moves its hints to the set's own page. */
void fs_retire_page(struct fs_event_set *set, struct fs_page_ref *page);

/* Makes memory for a page and, if `fd_too`, an eventfd. Returns the memfd, which the caller closes, or -errno. */
int fs_page_init(struct fs_event_set *set, struct fs_page_ref *page, int fd_too);

/* Returns the eventfd of a page if the number is still ours, or -1. */
int fs_page_eventfd(struct fs_event_set *set, const struct fs_page_ref *page);

/* ---- posting: any thread ----------------------------------------------------------------------------------------- */

/* Sets a hint in a mapped page; `fd` is the page's eventfd. Returns the number of system calls (0 if the set is awake), or -1 if the set
 * must be woken and the number is no longer ours. */
static inline int fs_mark_ready(struct fs_event_page *page, uint32_t place, int fd) {
    fs_or_sc(&page->ready[place / 64], UINT64_C(1) << place % 64);
    fs_or_sc(&page->summary[place / 4096], UINT64_C(1) << place / 64 % 64);
    /* SYNC: set asleep - pairs with fs_prepare_sleep. */
    uint32_t sleep = fs_load_sc(&page->asleep);
    if (!sleep) return 0;
    /* Write before clearing: a process that is killed before the write leaves the sleep to the next poster. The sleep's number keeps a
     * poster that was stopped after the write from clearing a later sleep. */
    if (!fs_signal_eventfd(fd)) return -1;
    fs_cas32(&page->asleep, sleep, 0);
    return 2;
}

/* Notifies a set of this side, by the region's name for set and slot. */
void fs_wake_local_set(uint64_t name);

/* Keeps the set that another process has offered, and takes over its mapped page and eventfd. Returns 0 if there is no room. Forgets an
 * older offer of the same set. One thread at a time. */
int fs_remote_set_add(uint64_t token, uint32_t id, struct fs_event_page *page, int fd);

/* Notifies a peer's set; `token` is its process's. `*seen` caches the set's position. Returns the number of system calls, or -1: notify
 * in another way. */
int fs_remote_set_notify(uint64_t token, uint64_t name, fs_word32 *seen);

int fs_remote_set_eventfd(uint64_t token, uint64_t name, fs_word32 *seen); /* returns the eventfd of a peer's set, -1 if it is not kept */
