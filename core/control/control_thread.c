/* The control thread: when it runs, around forks and when the program closes its descriptors, and the events it waits for. The thread
 * never has the host lock and touches no object of the front end. acceptor.c, control_requests.c and introspection.c have the answers. */
#include "control/control_thread.h"

#include <stdio.h>

#include "os/host.h"
#include "control/control_recv.h"
#include "control/fd_reaper.h"
#include "control/named_socket.h"
#include "control/control_requests.h"
#include "control/control_state.h"
#include "control/background_thread.h"
#include "conn/request.h"
#include "conn/event_slot.h"
#include "conn/state.h"
#include "events/liveness_watch.h"
#include "transport/stream.h"

#define KICK 0xffffffffu /* event of the thread's eventfd */
#define REQUEST 0xfffffffeu  /* event of the control socket */

enum {
    EVENTS = 16,        /* received at a time */
    ENDS_WITHIN = 1000, /* ms that a fork waits for the thread: an untrusted user may block it in a call */
    AGAIN_AFTER = 250,  /* most ms until the thread tries again to drop or answer something: from 1 on, doubled while that fails. (Many
                         * peers in other containers at once are more than the reaper has room for, and it has them dropped at once.) */
};

enum thread_state { /* changed with the host lock */
    NO_THREAD = 0,
    RUNS = 1,
    ENDS = 2, /* for a fork: a thread waits for the end */
    LATE = 3, /* it has not ended in time, and nobody waits. The next thread starts after its end */
};

static pthread_t thread;
static enum thread_state thread_state = NO_THREAD;
/* The thread must end. Relaxed: the thread looks after each wakeup, and is woken after the store; all else it sees under the table lock. */
static fs_word32 thread_stops;
static fs_word32 thread_lost; /* the last generation that found its epoll gone, plus one */
static fs_word32 watcher;  /* its number as watcher of kernel connections (events/liveness_watch.h); 0: none. Relaxed: set before the
                               * thread starts */
/* The last thread that ended for a fork left something that could not be dropped (fd_reaper.h) or answered. The kernel reports it to no
 * successor. Relaxed: the successor starts after that end. */
static fs_word32 left_behind;
static int thread_wanted;     /* it must run once no fork is under way */
static int in_use;            /* this process, or one that it was forked from, has had a thread or was about to */
static int FS_EACH_FORK forks; /* forks of this process under way: from fs_control_thread_stop to fs_control_thread_after_fork */
static uint64_t announced_token; /* the one in the regions of this process's connections */

/* ---- its descriptors ------------------------------------------------------------------------------------------ */

int fs_random_bytes(void *into, size_t size) {
    void *given = fs_host_unlock();
    ssize_t got;
    while ((got = fs_system.getrandom(into, size, 0)) < 0 && errno == EINTR) {}
    if (got != (ssize_t)size && (errno == ENOSYS || errno == EPERM)) { /* a sandbox may know the file only */
        int fd = fs_system.open("/dev/urandom", O_RDONLY | O_CLOEXEC);
        if (fd >= 0) {
            while ((got = fs_system.read(fd, into, size)) < 0 && errno == EINTR) {}
            fs_system.close(fd);
        }
    }
    int failed = got == (ssize_t)size ? 0 : got < 0 ? -errno : -EIO;
    fs_host_lock(given);
    return failed;
}

/* Makes the thread's descriptors and the control socket. Returns 0 or -errno. */
static int make_descriptors(void) {
    char name[FS_CONTROL_NAME_SIZE];
    int made[3];
    uint64_t token;
    if (fs_control_fds.epoll >= 0) return 0;
    int failed = fs_random_bytes(&token, sizeof token);
    if (failed) return failed;
    token |= 1;
    fs_control_name(name, token);
    if (fs_control_fds.epoll >= 0) return 0; /* another thread made them while the host lock was unlocked */
    made[0] = fs_reserve_fd(fs_system.epoll_create1(EPOLL_CLOEXEC), 0);
    made[1] = fs_reserve_fd(fs_system.eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), 0);
    made[2] = fs_named_socket(SOCK_DGRAM, name, sizeof name);
    failed = FS_MIN(FS_MIN(made[0], made[1]), made[2]);
    /* (epoll_ctl has a limit of its own: max_user_watches.) */
    if (failed >= 0 && (fs_enable_credentials(made[2]) < 0 || fs_control_watch(made[0], made[1], KICK) < 0 ||
                        fs_control_watch(made[0], made[2], REQUEST) < 0 || !fs_inode(made[2])))
        failed = -errno;
    if (failed < 0) {
        for (int i = 0; i < 3; i++)
            if (made[i] >= 0) fs_system.close(made[i]);
        return failed;
    }
    fs_control_fds.epoll = made[0];
    fs_control_fds.kick = made[1];
    fs_control_fds.request = made[2];
    fs_control_fds.token = token;
    fs_control_fds.inode = fs_inode(fs_control_fds.request);
    fs_control_fds.diag = fs_reserve_fd(fs_open_diag(), 0);
    fs_control_fds.diag_inode = fs_control_fds.diag < 0 ? 0 : fs_inode(fs_control_fds.diag);
    fs_store_relaxed(&fs_control_fd_inode, fs_control_fds.inode);
    fs_store_relaxed(&fs_control_fd, (uint32_t)fs_control_fds.request);
    return 0;
}

/* ---- the thread itself ------------------------------------------------------------------------------------- */

static void *control_thread(void *nothing) {
    struct epoll_event events[EVENTS];
    uint32_t own = fs_control_thread_generation(), watching = fs_load_relaxed(&watcher);
    int again = 1, left = (int)fs_load_relaxed(&left_behind); /* something could not be dropped (fd_reaper.h) or answered */
    while (own == fs_control_thread_generation()) { /* (Else the number may be its successor's, whose events it would take.) */
        fs_dir_sweep();
        int wait = fs_expire_listings();
        if (left && (wait < 0 || wait > again)) wait = again;
        int n = fs_epoll_wait(fs_control_fds.epoll, events, EVENTS, wait < 0 ? -1 : (int64_t)wait * 1000000, NULL);
        if ((n < 0 && errno != EINTR) || own != fs_control_thread_generation()) break;
        again = left ? FS_MIN(2 * again, AGAIN_AFTER) : 1;
        if (left && (fs_reaper_has_room() || !n)) left = fs_handle_due_requests(fs_control_fds.request) | fs_accept_hellos();
        for (int i = 0; i < n; i++) {
            uint64_t what = events[i].data.u64;
            /* (KICK: each write is an event, and nobody has to read it.) */
            if ((uint32_t)what == REQUEST) left |= fs_handle_requests(fs_control_fds.request);
            else if (!fs_watch_event(what, events[i].events)) left |= fs_accept_hello(what);
        }
        if (fs_load_relaxed(&thread_stops)) {
            fs_store_relaxed(&left_behind, (uint32_t)left);
            return NULL;
        }
    }
    fs_store_relaxed(&thread_lost, own + 1);
    fs_watch_stop(watching);
    return NULL;
}

/* Sleepers on a futex check the kernel themselves until the next thread watches. May unlock and relock the host lock. */
static void stop_watching(void) {
    uint32_t watching = fs_load_relaxed(&watcher);
    fs_store_relaxed(&watcher, 0);
    if (watching) fs_watch_stop(watching);
}

/* (Its other descriptors stay open: the program may use the numbers.) */
static void give_up_thread(void) {
    fs_store_relaxed(&fs_control_fds.generation, fs_control_thread_generation() + 1);
    if (thread_state != NO_THREAD) pthread_detach(thread);
    thread_state = NO_THREAD;
    thread_wanted = 1;
    fs_control_fds.epoll = fs_control_fds.kick = fs_control_fds.request = fs_control_fds.diag = -1;
    fs_store_relaxed(&fs_control_fd, UINT32_MAX);
    stop_watching();
}

/* If the program has closed the thread's descriptors, nobody can wake the thread, which sleeps on an epoll without a number. The socket
 * shows that: our own next eventfds are the first to reuse the other numbers. */
static void give_up_lost_thread(void) {
    if (thread_state != ENDS && fs_control_fds.epoll >= 0 &&
        (fs_inode(fs_control_fds.request) != fs_control_fds.inode || fs_load_relaxed(&thread_lost) == fs_control_thread_generation() + 1))
        give_up_thread();
}

/* If the thread has a new socket, updates the regions of connections that were on the ring before, except those whose requests a forked
 * child has taken over. */
static void announce_token(void) {
    if (announced_token == fs_control_fds.token) return;
    fs_control_lock_hosted();
    for (int i = 0; i < fs_control_state.on_ring_count; i++) {
        struct fs_connection *c = fs_control_state.on_ring[i].connection;
        /* SYNC: token - pairs with fs_send_control_to_side. */
        if (fs_is_attached(c) && !fs_cas64(&c->ring.region->asks[c->ring.side], announced_token, fs_control_fds.token))
            fs_cas64(&c->ring.region->asks_else[c->ring.side], announced_token, fs_control_fds.token);
        else if (fs_is_attached(c)) fs_send_way(c, fs_control_fds.token);
        if (fs_load_relaxed(&c->asked_here) == announced_token) fs_store_relaxed(&c->asked_here, fs_control_fds.token);
        fs_wake_own_set(c); /* (requests to the old one are lost) */
    }
    fs_control_unlock();
    announced_token = fs_control_fds.token;
}

/* Returns true if the thread ends within so many ms. (Sleeps and tries: a join with a deadline uses the time of day, which may be set
 * back, or is too new for some C libraries.) */
static int ends_within(int milliseconds) {
    int64_t until = fs_now() + milliseconds * (int64_t)1000000;
    while (pthread_tryjoin_np(thread, NULL)) {
        if (fs_now() >= until) return 0;
        fs_short_sleep();
    }
    return 1;
}

int fs_control_thread_start(void) {
    in_use = 1;
    give_up_lost_thread();
    int failed = make_descriptors();
    if (failed) return failed;
    if (thread_state == LATE && ends_within(0)) thread_state = NO_THREAD;
    if (forks || thread_state == LATE) {
        thread_wanted = 1;
        return forks ? 0 : FS_NO_THREAD;
    }
    if (thread_state == NO_THREAD && !fs_load_relaxed(&watcher)) {
        int own = fs_control_fds.epoll;
        fs_store_relaxed(&watcher, fs_watch_start(own));
        if (forks || fs_control_fds.epoll != own) { /* the host lock was unlocked meanwhile: nobody may believe that a thread runs */
            stop_watching();
            thread_wanted = 1;
            return forks ? 0 : FS_NO_THREAD;
        }
    }
    if (thread_state == NO_THREAD) {
        fs_store_relaxed(&thread_stops, 0);
        if (fs_background_thread(&thread, control_thread, NULL)) {
            stop_watching();
            return FS_NO_THREAD;
        }
        thread_state = RUNS;
        announce_token();
    }
    return 0;
}

/* ---- forks ------------------------------------------------------------------------------------------------- */

/* A thread that has not ended stays away from the table during a fork, so that the child finds it consistent. */
static void freeze_table(void) {
    if (!in_use) return;
    fs_control_lock_hosted();
    fs_control_state.frozen = forks > 0;
    fs_control_unlock();
}

void fs_control_thread_stop(void) {
    forks++;
    give_up_lost_thread();
    if (thread_state == RUNS) {
        thread_state = ENDS;
        thread_wanted = 1;
        fs_store_relaxed(&thread_stops, 1);
        if (fs_signal_eventfd(fs_control_fds.kick)) {
            void *given = fs_host_unlock();
            int ended = ends_within(ENDS_WITHIN);
            fs_host_lock(given);
            thread_state = ended ? NO_THREAD : LATE;
            stop_watching(); /* (nobody may start it again for a while) */
        } else {
            give_up_thread(); /* nobody can wake it */
        }
    }
    while (thread_state == ENDS) fs_short_sleep_unlocked(); /* another thread waits for the end */
    freeze_table();
}

void fs_control_thread_after_fork(void) {
    forks = FS_MAX(forks - 1, 0);
    freeze_table();
}

int fs_forks_under_way(void) { return forks; }

int fs_control_thread_restart(void) {
    if (!thread_wanted || forks) return 0;
    thread_wanted = 0;
    int failed = fs_control_thread_start();
    if (failed) thread_wanted = 1; /* a later call tries again */
    return failed;
}

void FS_AT_FORK fs_control_forget(void) {
    forks = 0;
    if (!in_use) return; /* (avoids copying pages) */
    thread_state = NO_THREAD;
    thread_wanted = 0;
    fs_listings_forget();
    if (fs_control_fds.epoll >= 0) fs_system.close(fs_control_fds.epoll);
    if (fs_control_fds.kick >= 0) fs_system.close(fs_control_fds.kick);
    if (fs_control_fds.request >= 0) fs_system.close(fs_control_fds.request);
    if (fs_control_fds.diag >= 0) fs_system.close(fs_control_fds.diag);
    fs_control_fds.epoll = fs_control_fds.kick = fs_control_fds.request = fs_control_fds.diag = -1;
    fs_store_relaxed(&fs_control_fd, UINT32_MAX);
    fs_control_fds.token = 0;
    fs_control_state.on_ring_count = 0;
    fs_store_relaxed(&watcher, 0);
    fs_watch_forget();
}
