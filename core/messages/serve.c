/* The memberships of this process: how others find them, and their end.
 *
 * Each member listens on an abstract socket, which is named after the group and the member's place; or, so that other network namespaces
 * find it, on a path socket in a folder (rendezvous_dir.h), as all members of such a group do. Whoever comes there, and is trusted, is
 * handed the group's two memfds. So a group can be joined as long as any member answers, and nobody has to take over for one that has died.
 * A thread of the process answers for all its memberships. It has nothing else to do.
 *
 * Who comes asks at all 64 names. If nobody is there, it makes the group, and listens at the first name, which only one process can have.
 * Then it asks at the others twice: a member that got the memfds from one that has died since may have come to listen after the first
 * look. (A new member, when it listens, looks if the one is still there that it had the memfds from; if not, it begins again. So the second
 * look sees it.)
 *
 * A forked child shares its parent's membership, but not its thread. If the child uses the group, it has a thread of its own, which tries
 * to get the name from time to time: it succeeds if the parent has ended.
 *
 * Responsible for: only trusted users get memory, and only theirs is taken; the list of this process's memberships. Never: touches
 * messages. */
#include "messages/group.h"

#include "control/named_socket.h"
#include "control/background_thread.h"
#include "control/fd_reaper.h"
#include "control/trust.h"
#include "messages/handing.h"

enum { RETRY_MS = 500 }; /* between two tries to get a name */

static struct {
    pthread_mutex_t lock;
    struct fs_group *first;
    int epoll; /* of the thread; -1: there is no thread in this process */
    int installed;
} served = {.lock = PTHREAD_MUTEX_INITIALIZER, .epoll = -1};

fs_word32 fs_messages_pid;

/* ---- the thread ---------------------------------------------------------------------------------------------- */

static void answer(const struct fs_group *g) {
    int peer = fs_system.accept4(g->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (peer < 0) return;
    uint32_t user = fs_peer_user(peer);
    if (g->folder ? fs_dir_admits(user) : fs_admits(user)) fs_hand_over(peer, g->table_fd, g->arena_fd);
    fs_reap_control(peer, !g->folder && fs_is_trusted(user));
}

/* Listens at the name of the membership, if nobody else does. Returns true if it does. */
static int listen_for(struct fs_group *g) {
    char name[FS_NAME_MAX + 1];
    if (g->listen_fd >= 0) return 1;
    int fd = fs_named_socket(SOCK_SEQPACKET, name, fs_group_name(name, g, g->place, FS_LISTENS));
    if (fd < 0) return 0;
    struct epoll_event event = {.events = EPOLLIN, .data = {.fd = fd}};
    if (fs_system.epoll_ctl(served.epoll, EPOLL_CTL_ADD, fd, &event) < 0) {
        fs_system.close(fd);
        return 0;
    }
    g->listen_fd = fd;
    return 1;
}

static void *serve(void *nothing) {
    struct epoll_event event;
    for (;;) {
        pthread_mutex_lock(&served.lock);
        int epoll = served.epoll, all = 1;
        for (struct fs_group *g = served.first; g; g = g->next)
            all &= g->listen_fd >= 0 || (fs_load_sc(&g->process) == fs_load_relaxed(&fs_messages_pid) && listen_for(g));
        pthread_mutex_unlock(&served.lock);
        int64_t nap = (int64_t)RETRY_MS * 1000000;
        int got = fs_epoll_wait(epoll, &event, 1, all ? -1 : nap, NULL);
        if (got < 0 && errno != EINTR) fs_short_sleep();
        if (got <= 0) continue;
        if (!fs_reaper_has_room()) { /* who comes waits: closing what strangers bring could block this thread */
            fs_short_sleep();
            continue;
        }
        pthread_mutex_lock(&served.lock);
        for (struct fs_group *g = served.first; g; g = g->next)
            if (g->listen_fd == event.data.fd) answer(g);
        pthread_mutex_unlock(&served.lock);
    }
    return nothing;
}

/* Starts the thread, with the lock. Returns 0 or -errno. */
static int start(void) {
    pthread_t thread;
    if (served.epoll >= 0) return 0;
    int epoll = fs_reserve_fd(fs_system.epoll_create1(EPOLL_CLOEXEC), 0);
    if (epoll < 0) return epoll;
    served.epoll = epoll;
    int failed = fs_background_thread(&thread, serve, NULL);
    if (failed) {
        fs_system.close(epoll);
        served.epoll = -1;
        return -failed;
    }
    pthread_detach(thread);
    return 0;
}

/* ---- forks ----------------------------------------------------------------------------------------------------- */

static void before_fork(void) { pthread_mutex_lock(&served.lock); }
static void in_parent(void) { pthread_mutex_unlock(&served.lock); }

/* What the parent listens on is the parent's alone: nobody would answer here. */
static void in_child(void) {
    fs_store_relaxed(&fs_messages_pid, (uint32_t)getpid());
    for (struct fs_group *g = served.first; g; g = g->next) {
        if (g->listen_fd >= 0) fs_system.close(g->listen_fd);
        g->listen_fd = -1;
        if (g->hands_fd >= 0) fs_system.close(g->hands_fd); /* a child's, which has forked */
        g->hands_fd = -1;
    }
    if (served.epoll >= 0) fs_system.close(served.epoll);
    served.epoll = -1;
    pthread_mutex_unlock(&served.lock);
}

/* ---- members ------------------------------------------------------------------------------------------------- */

int fs_serve(struct fs_group *g) {
    pthread_mutex_lock(&served.lock);
    if (!served.installed) served.installed = fs_system.pthread_atfork(before_fork, in_parent, in_child) == 0;
    fs_store_relaxed(&fs_messages_pid, (uint32_t)getpid());
    int failed = served.installed ? start() : -ENOMEM;
    if (!failed) {
        fs_store_sc(&g->process, fs_load_relaxed(&fs_messages_pid));
        listen_for(g); /* if another has the name yet: the thread tries again, when it is called next */
        g->next = served.first;
        served.first = g;
    }
    pthread_mutex_unlock(&served.lock);
    return failed;
}

void fs_serve_not(struct fs_group *g) {
    pthread_mutex_lock(&served.lock);
    for (struct fs_group **at = &served.first; *at; at = &(*at)->next)
        if (*at == g) {
            *at = g->next;
            break;
        }
    if (g->listen_fd >= 0) fs_system.close(g->listen_fd);
    g->listen_fd = -1;
    pthread_mutex_unlock(&served.lock);
}

/* A place for what this process claims and holds: if it is killed, others give it back. */
static void take_hands(struct fs_group *g) {
    int place = -1;
    g->hands_fd = fs_place_open(g);
    if (g->hands_fd >= 0 && (place = fs_place_take(g, g->hands_fd)) < 0) {
        fs_system.close(g->hands_fd);
        g->hands_fd = -1;
    }
    g->hands = place < 0 ? g->place : (uint32_t)place;
    g->bit = UINT64_C(1) << g->hands;
    if (place < 0) return;
    fs_store_sc(&g->table->member[place].joined, FS_HANDS);
    fs_count_members(g->table);
}

void fs_serve_in_child(struct fs_group *g) {
    uint32_t process = fs_load_relaxed(&fs_messages_pid);
    if (__builtin_expect(fs_load_sc(&g->process) == process, 1)) return;
    pthread_mutex_lock(&served.lock);
    if (fs_load_sc(&g->process) != process) {
        for (uint32_t i = 0; i < FS_CLASSES; i++) fs_store_relaxed(&g->kept[i], 0); /* what the parent holds is the parent's */
        fs_store_relaxed(&g->lent, 0);
        take_hands(g);
        start(); /* without a thread the group works, but nobody finds this member */
        fs_store_sc(&g->process, process); /* last: another thread may use the group then */
    }
    pthread_mutex_unlock(&served.lock);
}

/* ---- leaving ------------------------------------------------------------------------------------------------------ */

void fs_group_leave(struct fs_group *g) {
    fs_cas32(&g->leaving, 0, 1); /* (from here on nothing is lent any more) */
    if (fs_load_sc(&g->lent) && fs_load_sc(&g->process) == fs_load_relaxed(&fs_messages_pid)) return;
    if (fs_exchange_sc(&g->leaving, 2) == 2) return; /* another thread does it */
    fs_serve_not(g);
    fs_system.close(g->lock_fd); /* the lock goes, unless a forked process shares it */
    fs_system.close(g->bell_fd);
    if (g->hands_fd >= 0) fs_system.close(g->hands_fd);
    g->lock_fd = g->hands_fd = g->bell_fd = -1;
    if (g->hands != g->place) fs_place_sweep(g, g->hands);
    fs_place_sweep(g, g->place);
    fs_system.close(g->table_fd);
    fs_system.close(g->arena_fd);
    g->table_fd = g->arena_fd = -1;
    if (g->geometry.blocking) fs_wake_writers(g);
}
