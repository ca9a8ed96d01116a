/* The kernel connections and processes that the control thread watches for sleepers. A thread that sleeps on the ring is woken here when
 * its peer dies, closes or resets the connection.
 *
 * A handle is a slot and its use count, so that a late event of a removed connection is not taken for the next one's. A slot's pointer
 * is used only with the lock held, and a connection is removed with that lock. So its memory and region may be freed afterwards.
 *
 * The lock is held for some loads, a system call for each futex with sleepers, and on adding for a few calls that end at once
 * (epoll_ctl, pidfd_open, fstat of a socket) and an allocation. Nobody waits for it with the host lock held.
 *
 * Not here: the state of a connection and the meaning of an event. */
#include "events/liveness_watch.h"

#include <pthread.h>

#include "os/host.h"
#include "os/fd_reserve.h"
#include "os/syscalls.h"
#include "events/event_set.h"
#include "events/futex.h"

enum {
    FIRST = 64,     /* slots of the first block; each later one is twice as large */
    BLOCKS = 20,    /* maximum number of blocks */
    PROCESSES = 32, /* processes watched at a time, a descriptor each; others must be asked about */
};
#define NO_ROOM_INTERVAL ((int64_t)1000000000) /* ns between two attempts to add to a full epoll */

struct slot {
    struct fs_tcp_watch *whose; /* NULL: free */
    uint32_t uses, next;    /* the next free slot, plus one */
};

struct process {
    pid_t number; /* 0: free */
    int fd;       /* its pidfd; 0: none yet */
    uint32_t users, uses;
    int ended;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct slot *blocks[BLOCKS]; /* never freed, so a slot never moves */
static uint32_t slots, first_free;  /* slots ever used; the first free one, plus one */
static struct process processes[PROCESSES];
static int epoll = -1;      /* of the present watcher; -1: none */
static fs_word32 present;   /* the present watcher's number; 0: none */
static uint32_t last_watcher;
static int64_t no_room_until;

/* For a thread that may have the host lock. */
static void take_lock(void) {
    while (pthread_mutex_trylock(&lock)) {
        void *given = fs_host_unlock();
        pthread_mutex_lock(&lock);
        pthread_mutex_unlock(&lock);
        fs_host_lock(given);
    }
}

/* ---- slots -------------------------------------------------------------------------------------------------- */

static struct slot *slot_at(uint32_t n) {
    int block = 0;
    for (uint32_t size = FIRST; n >= size; size *= 2) {
        n -= size;
        block++;
    }
    return blocks[block] + n;
}

/* Returns a free slot, plus one. 0: no memory. */
static uint32_t take_slot(struct fs_tcp_watch *w) {
    uint32_t n = first_free;
    if (!n) {
        uint32_t size = FIRST, begins = 0;
        int block = 0;
        while (block < BLOCKS && slots >= begins + size) {
            begins += size;
            size *= 2;
            block++;
        }
        if (block == BLOCKS) return 0;
        if (!blocks[block]) blocks[block] = fs_system.calloc(size, sizeof(struct slot));
        if (!blocks[block]) return 0;
        n = ++slots;
    } else {
        first_free = slot_at(n - 1)->next;
    }
    slot_at(n - 1)->whose = w;
    return n;
}

static void free_slot(uint32_t n) {
    struct slot *slot = slot_at(n - 1);
    slot->whose = NULL;
    slot->uses++;
    slot->next = first_free;
    first_free = n;
}

static uint64_t handle_of(uint32_t kind, uint32_t uses, uint32_t n) { return (uint64_t)uses << 32 | kind | n; }

/* Stops watching the number. Returns true if it was watched, and so still the same file. */
static int stop_watching(int fd) { return epoll >= 0 && fs_system.epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL) == 0; }

/* ---- processes ---------------------------------------------------------------------------------------------- */

/* (If the program reuses the number, its file is not in the epoll.) */
static void forget_process(struct process *process) {
    if (process->number && stop_watching(process->fd)) fs_system.close(process->fd);
    *process = (struct process){.uses = process->uses + 1};
}

static void release_process(struct fs_tcp_watch *w) {
    if (!w->process) return;
    struct process *process = &processes[w->process - 1];
    w->process = 0;
    if (--process->users) return;
    forget_process(process);
}

/* Adds a process by its pidfd. Returns its index, or -1. */
static int add_process(pid_t number) {
    int at = 0;
    while (at < PROCESSES && processes[at].number) at++;
    if (at == PROCESSES) return -1;
    struct process *process = processes + at;
    struct epoll_event event = {.events = EPOLLIN | EPOLLET,
                                .data = {.u64 = handle_of(FS_OF_PROCESS, process->uses, (uint32_t)at)}};
    int fd = fs_reserve_fd(fs_system.pidfd_open(number, 0), 0);
    if (fd < 0) return -1;
    if (fs_system.epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) < 0) {
        fs_system.close(fd);
        return -1;
    }
    *process = (struct process){.number = number, .fd = fd, .uses = process->uses};
    return at;
}

enum fs_process fs_watch_process(struct fs_tcp_watch *w, pid_t process) {
    enum fs_process stands = FS_PROCESS_UNKNOWN;
    pthread_mutex_lock(&lock);
    if (fs_is_watched(w, 0) && !w->process && process > 0) {
        int at = 0;
        /* (The process id may be reused after the end of the process, which its pidfd reports.) */
        while (at < PROCESSES && !(processes[at].number == process && !processes[at].ended)) at++;
        if (at == PROCESSES) at = add_process(process);
        if (at >= 0) {
            processes[at].users++;
            w->process = at + 1;
        }
    }
    if (w->process) stands = processes[w->process - 1].ended ? FS_PROCESS_ENDED : FS_PROCESS_LIVES;
    pthread_mutex_unlock(&lock);
    return stands;
}

/* ---- connections -------------------------------------------------------------------------------------------- */

int fs_is_watched(const struct fs_tcp_watch *w, uint32_t events) {
    /* SYNC: watched - pairs with fs_watch_stop: a thread that still finds the old watcher has read the futex before the wakeup. */
    uint32_t watcher = fs_load_sc(&present);
    return watcher && fs_load_own32(&w->watcher) == watcher && (fs_load_own32(&w->asked) & events) == events;
}

/* With the lock held, like the next ones. */
static void leave_table(struct fs_tcp_watch *w) {
    uint32_t n = fs_load_relaxed(&w->place);
    if (!n || slot_at(n - 1)->whose != w) return;
    release_process(w);
    /* (If another connection has the number by now, after a close behind our back, it stays.) */
    if (fs_inode(w->fd) == w->inode) stop_watching(w->fd);
    free_slot(n);
    fs_store_relaxed(&w->place, 0);
    fs_store_relaxed(&w->watcher, 0);
}

/* (EEXIST: an earlier connection of the same socket was not removed. ENOENT: the number went to another file and back.) */
static int set_epoll(struct fs_tcp_watch *w, uint32_t events, int what) {
    uint32_t n = fs_load_relaxed(&w->place) - 1;
    struct epoll_event event = {.events = events | EPOLLET,
                                .data = {.u64 = handle_of(FS_OF_CONNECTION, slot_at(n)->uses, n)}};
    if (fs_system.epoll_ctl(epoll, what, w->fd, &event) == 0) return 1;
    if (errno != EEXIST && errno != ENOENT) return 0;
    what = what == EPOLL_CTL_ADD ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    return fs_system.epoll_ctl(epoll, what, w->fd, &event) == 0;
}

static int join(struct fs_tcp_watch *w, int fd, uint32_t events) {
    uint32_t watcher = fs_load_relaxed(&present);
    int known = fs_load_own32(&w->watcher) == watcher && w->fd == fd;
    if (!known) {
        int64_t now = fs_now();
        leave_table(w);
        if (now < no_room_until) return 0;
        uint64_t inode = fs_inode(fd);
        uint32_t n = inode ? take_slot(w) : 0;
        if (!n) return 0;
        w->fd = fd;
        w->inode = inode;
        fs_store_relaxed(&w->place, n);
    }
    if (known) events |= fs_load_own32(&w->asked);
    if (!set_epoll(w, events, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD)) {
        leave_table(w);
        no_room_until = fs_now() + NO_ROOM_INTERVAL;
        return 0;
    }
    fs_store_relaxed(&w->asked, events);
    fs_store_relaxed(&w->watcher, watcher);
    return 1;
}

int fs_watch_add(struct fs_tcp_watch *w, int fd, uint32_t events, struct fs_sleepers receivers, struct fs_sleepers senders,
                 fs_word64 *slot) {
    int joined = 0;
    if (fd < 0 || !fs_load_relaxed(&present)) return 0;
    pthread_mutex_lock(&lock);
    if (epoll >= 0) {
        w->receivers = receivers;
        w->senders = senders;
        w->slot = slot;
        joined = join(w, fd, events);
    }
    pthread_mutex_unlock(&lock);
    return joined;
}

void fs_watch_ends_only(struct fs_tcp_watch *w) {
    pthread_mutex_lock(&lock);
    if (fs_is_watched(w, 0) && set_epoll(w, FS_HANGUP_EVENTS, EPOLL_CTL_MOD)) fs_store_relaxed(&w->asked, FS_HANGUP_EVENTS);
    pthread_mutex_unlock(&lock);
}

int fs_try_watch_remove(struct fs_tcp_watch *w) {
    /* SYNC: place - pairs with fs_watch_stop, which has sent its last wakeups by then. */
    if (!fs_load_acquire(&w->place)) return 1;
    if (pthread_mutex_trylock(&lock)) return 0;
    leave_table(w);
    pthread_mutex_unlock(&lock);
    return 1;
}

void fs_watch_remove(struct fs_tcp_watch *w) {
    /* SYNC: place - as above. */
    if (!fs_load_acquire(&w->place)) return;
    take_lock();
    leave_table(w);
    pthread_mutex_unlock(&lock);
}

/* ---- the watcher -------------------------------------------------------------------------------------------- */

static void wake(const struct fs_sleepers *sleepers) {
    /* SYNC: sleeper - pairs with sleep_to_receive and sleep_to_send: a thread not yet counted finds the event, or that nobody watches
     * any more. */
    if (fs_load_sc(sleepers->count)) fs_futex_wake(sleepers->futex);
}

static void notify(struct fs_tcp_watch *w, uint32_t events) {
    /* Before the wakeups: a sleeper reads both in the other order. */
    fs_add_sc(&w->told, 1);
    if (events & (EPOLLIN | FS_HANGUP_EVENTS)) wake(&w->receivers);
    if (events & ~(uint32_t)EPOLLIN) wake(&w->senders);
}

uint32_t fs_watch_start(int epoll_of_thread) {
    take_lock();
    if (epoll < 0) {
        last_watcher = last_watcher == UINT32_MAX ? 1 : last_watcher + 1;
        epoll = epoll_of_thread;
        no_room_until = 0;
        fs_store_sc(&present, last_watcher);
    }
    uint32_t watcher = fs_load_relaxed(&present);
    pthread_mutex_unlock(&lock);
    return watcher;
}

void fs_watch_stop(uint32_t watcher) {
    take_lock();
    if (watcher && fs_load_relaxed(&present) == watcher) {
        /* SYNC: watched - pairs with fs_is_watched. */
        fs_store_sc(&present, 0);
        for (uint32_t n = 1; n <= slots; n++) {
            struct fs_tcp_watch *w = slot_at(n - 1)->whose;
            if (!w) continue;
            w->process = 0;
            notify(w, FS_HANGUP_EVENTS);
            free_slot(n);
            /* SYNC: place - pairs with fs_try_watch_remove: `w` is not touched any more. */
            fs_store_release(&w->place, 0);
        }
        for (int at = 0; at < PROCESSES; at++) forget_process(&processes[at]);
        epoll = -1;
    }
    pthread_mutex_unlock(&lock);
}

/* Notifies the connections with that process. Its sender checks if the peer lives: children of the process may. */
static void note_process_ended(uint32_t at) {
    processes[at].ended = 1;
    for (uint32_t n = 1; n <= slots; n++) {
        struct fs_tcp_watch *w = slot_at(n - 1)->whose;
        if (!w || w->process != (int)at + 1) continue;
        notify(w, FS_HANGUP_EVENTS);
        fs_wake_local_set(fs_load_relaxed(w->slot)); /* (what happens to the connection itself, the kernel tells its poller) */
    }
}

int fs_watch_event(uint64_t handle, uint32_t events) {
    uint32_t slot = (uint32_t)handle, uses = (uint32_t)(handle >> 32), n = slot & (FS_OF_CONNECTION - 1);
    uint32_t kind = slot - n;
    if (kind != FS_OF_CONNECTION && kind != FS_OF_PROCESS) return 0;
    pthread_mutex_lock(&lock);
    if (kind == FS_OF_PROCESS) {
        if (n < PROCESSES && processes[n].number && processes[n].uses == uses) note_process_ended(n);
    } else if (n < slots && slot_at(n)->whose && slot_at(n)->uses == uses) {
        notify(slot_at(n)->whose, events);
    }
    pthread_mutex_unlock(&lock);
    return 1;
}

void fs_watch_forget(void) {
    /* Another thread of the parent may have held the lock in the middle of anything. Blocks are never freed. */
    fs_renew_lock(&lock);
    for (int at = 0; at < PROCESSES; at++) {
        if (processes[at].number && processes[at].fd > 0) fs_system.close(processes[at].fd);
        processes[at] = (struct process){.number = 0};
    }
    for (int block = 0; block < BLOCKS; block++)
        if (blocks[block]) memset(blocks[block], 0, (size_t)FIRST * ((size_t)1 << block) * sizeof(struct slot));
    slots = first_free = 0;
    epoll = -1;
    fs_store_sc(&present, 0);
}
