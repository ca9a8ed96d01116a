/* Event sets: how one thread that waits for many connections is told which of them have something (event_set.c).
 *
 * The lost-wakeup argument, for the set as a whole. The owner writes "I sleep" into each of its pages and then looks at the hints.
 * A process that posts writes a hint and then looks for "I sleep". All four are sequentially consistent, so in their single total
 * order at least one of the two looks comes after the other's write: either the owner sees the hint and does not sleep, or the
 * other one sees the sleeper and writes to the eventfd. (Which connection is to be hinted at is settled before, in the same way, by
 * FS_SET_ASLEEP and FS_SET_WAITS of the connection: ring/doorbell.h.)
 *
 * A page that is given up is the same once more: the owner writes `over` and then takes the hints; who posts writes the hint and
 * then looks for `over`, and tells the owner in another way if it finds that. */
#ifndef FASTSOCK_EVENT_SET_H
#define FASTSOCK_EVENT_SET_H

#include <stddef.h>

#include "os/fd_reserve.h"
#include "wire/event_page.h"

enum {
    FS_SETS = 4096,      /* of one process, at a time */
    FS_HINTS = 64,       /* that fs_take_hints needs room for, at least */
    FS_PAGE_OFFERS = 8,       /* of a page to one process, before it is told in another way for good */
    FS_IDLE_PAGES = 16,  /* of processes that have no connection in the set any more, and may come again */
};

/* The page that one process posts to. The owner's thread alone has it. */
struct fs_page_ref {
    struct fs_event_page *memory; /* NULL: none yet */
    uint64_t token;             /* of the process */
    int fd;                     /* an eventfd of its own; -1: the set's */
    int offers;
    int64_t next_offer;         /* monotonic ns */
    uint32_t members;           /* connections in the set whose peer it is */
    unsigned char region[16];   /* one of them, which it knows: the region's id, */
    uint32_t side;              /* and its side there */
    struct fs_page_ref *next;
};

struct fs_set_slot {
    void *member;         /* whose it is; NULL: nobody's, or not said yet */
    struct fs_page_ref *page; /* of the process at the other end; NULL: unknown */
    uint32_t next_free;
};

/* What other threads and forked processes touch are `id`, `home` and `fd`, and the memory of a set is never given back. */
struct fs_event_set {
    fs_word32 id;             /* 0: not in use */
    fs_word32 fd;             /* the eventfd; -1: lost */
    struct fs_event_page *home; /* for the processes of this side */
    fs_word32 asked;          /* somebody had to tell this side in another way, since fs_reoffer_pages last looked; relaxed, a hint */
    /* the owner's */
    int epoll;           /* what the owner waits on: the set's eventfds are members, edge-triggered */
    int has_epoll;       /* it is the set's own, and has no others */
    uint64_t data;       /* by which the epoll tells of the eventfds */
    uint32_t process;    /* in a forked child it is the parent's */
    uint32_t sleep;      /* the number of the sleep that stands in the pages; 0: it is awake */
    uint32_t sleeps;     /* how many there were */
    struct fs_set_slot *places;
    uint32_t room, used, first_free;
    struct fs_page_ref *pages;
};

/* ---- the owner: one thread at a time ------------------------------------------------------------------------- */

/* A set of which nobody is a member, or NULL and `*failed`: -errno. It is awake. */
struct fs_event_set *fs_event_set_new(int *failed);

/* The same, of which an epoll tells that the owner has and waits on: by `data`, and once for each time that it is woken. It
 * stays open until fs_event_set_end. */
struct fs_event_set *fs_event_set_new_in(int epoll, uint64_t data, int *failed);

/* Nobody is a member any more. Hints that still come are lost. */
void fs_event_set_end(struct fs_event_set *set);

int fs_event_set_is_own(const struct fs_event_set *set); /* 0 in a forked child */

/* A place for a connection. -ENOSPC, -ENOMEM, or -EBADF if it is not this process's set. */
int fs_set_slot_alloc(struct fs_event_set *set);

/* The connection leaves. Nothing names its place any more. */
void fs_set_slot_free(struct fs_event_set *set, uint32_t place);

static inline void fs_slot_put_member(struct fs_event_set *set, uint32_t place, void *member) { set->places[place].member = member; }

/* Whose hint it is: NULL, if the place is nobody's. */
static inline void *fs_slot_member(const struct fs_event_set *set, uint32_t place) {
    return place < set->used ? set->places[place].member : NULL;
}

/* Says that the set sleeps until its epoll is readable. True if it must not: there are hints, and it is awake. */
int fs_prepare_sleep(struct fs_event_set *set);

/* It is awake: who posts makes no system call from now on. */
void fs_set_awake(struct fs_event_set *set);

/* Makes its epoll readable, whether or not it sleeps: for threads of the owner's process that wait for it. */
void fs_wake_owner(struct fs_event_set *set);

/* Makes its own epoll unreadable, until somebody writes again. Never touches a file of the program that has taken a number. */
void fs_event_set_drain(struct fs_event_set *set);

int fs_has_hints(const struct fs_event_set *set); /* no look takes anything; from any thread that keeps the owner from changing it */

/* Takes hints: the places of at most `room` connections, which is FS_HINTS or more. How many; 0: there are no more. */
int fs_take_hints(struct fs_event_set *set, uint32_t *places, int room);

/* ---- the owner's pages ------------------------------------------------------------------------------------- */

/* The page for the process with this token, and the connection at `place` is counted in it. NULL without memory. It may have to be
 * offered (fs_page_ref.memory). */
struct fs_page_ref *fs_page_of_process(struct fs_event_set *set, uint32_t place, uint64_t token);

/* Gives a page's memory up: it is `over`, and what was hinted at there stands in the set's own page. */
void fs_retire_page(struct fs_event_set *set, struct fs_page_ref *page);

/* Fresh memory for a page, and its memfd, which is the caller's; `fd_too`: and an eventfd of its own. -errno without. */
int fs_page_init(struct fs_event_set *set, struct fs_page_ref *page, int fd_too);

/* The eventfd that goes with a page: one that is still ours. -1: there is none to be had. */
int fs_page_eventfd(struct fs_event_set *set, const struct fs_page_ref *page);

/* ---- who posts: any thread ----------------------------------------------------------------------------------- */

/* A hint at a place, in a page that is mapped; `fd` is the eventfd that goes with it. Returns the system calls that it made: none if
 * the set is awake; or -1 if it has to be woken, and the number is not ours any more. */
static inline int fs_mark_ready(struct fs_event_page *page, uint32_t place, int fd) {
    fs_or_sc(&page->ready[place / 64], UINT64_C(1) << place % 64);
    fs_or_sc(&page->summary[place / 4096], UINT64_C(1) << place / 64 % 64);
    /* SYNC: set asleep - pairs with fs_prepare_sleep. */
    uint32_t sleep = fs_load_sc(&page->asleep);
    if (!sleep) return 0;
    /* The write comes first: a process that is killed before it has written leaves the sleep for the next one that posts. And the
     * sleep has a number, so that one who was stopped behind the write does not take away another sleep later. */
    if (!fs_signal_eventfd(fd)) return -1;
    fs_cas32(&page->asleep, sleep, 0);
    return 2;
}

/* Tells a set of this side, by the name of a connection in it. */
void fs_wake_local_set(uint64_t name);

/* Keeps what another process has offered: where its page is mapped, and its eventfd; both are the table's then. 0 if there is no
 * room. Of a set that was offered before the older offer is forgotten. One thread at a time. */
int fs_remote_set_add(uint64_t token, uint32_t id, struct fs_event_page *page, int fd);

/* Tells the set of a peer: `token` is its process's. `*seen`: a word in which the caller keeps where it was found. Returns the system
 * calls made, or -1: it has to be told in another way. */
int fs_remote_set_notify(uint64_t token, uint64_t name, fs_word32 *seen);

int fs_remote_set_eventfd(uint64_t token, uint64_t name, fs_word32 *seen); /* of a peer's set; -1: it is not kept */

#endif
