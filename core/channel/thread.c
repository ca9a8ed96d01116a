/* The connection thread. It runs without the front end's lock from birth to death and touches none of its objects.
 *
 * Responsible for: when the thread runs and when it does not, around forks and when the program closes its descriptors;
 * what it waits on. Never: what is answered (visitors.c, requests.c, seen.c). */
#include "channel/thread.h"

#include <stdio.h>

#include "base/front.h"
#include "channel/names.h"
#include "channel/requests.h"
#include "channel/table.h"
#include "connection/state.h"
#include "connection/turns.h"

#define POKE 0xffffffffu /* event of the thread's own eventfd */
#define ASK 0xfffffffeu  /* event of the socket for requests */

enum thread_state { /* changed under the front end's lock */
    NO_THREAD = 0,
    RUNS = 1,
    ENDS = 2, /* for a fork: somebody waits for its end */
};

static pthread_t thread;
static enum thread_state thread_state = NO_THREAD;
/* Which connection thread it is. One whose descriptors the program has closed is given up, ends if it ever wakes, and
 * all other descriptors of its turn are taken for lost as well. Relaxed: who reads it has nothing else to see. */
static fs_word32 thread_turn;
/* It shall end. Relaxed: the thread looks whenever it wakes, and is poked after it was set; what else it must see, it
 * sees under the table lock. */
static fs_word32 thread_stops;
static fs_word32 thread_lost; /* the last thread that found its epoll gone, plus one */
static int thread_wanted;     /* it shall run once no fork is under way */
static int forks;             /* of this process, that are under way: from fs_stop_thread to fs_fork_is_over */
/* Its descriptors: all are there, or none is. */
static int epoll = -1;
static int poke_fd = -1;
static int ask_fd = -1;
static uint64_t ask_inode;
static uint64_t ask_token;
static uint64_t told_token; /* the one that the regions of this process' connections name */

uint32_t fs_thread_turn(void) { return fs_load_relaxed(&thread_turn); }

void fs_poke_thread(void) { fs_ring_eventfd(poke_fd); }

int fs_known_eventfd(void) { return poke_fd; }

uint64_t fs_ask_token(void) { return ask_token; }

/* ---- what it waits on ------------------------------------------------------------------------------------- */

static int watch(int fd, int descriptor, uint64_t what) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data = {.u64 = what}};
    return fs_system.epoll_ctl(fd, EPOLL_CTL_ADD, descriptor, &event);
}

static int wait_events(int fd, uint64_t what[16], int milliseconds) {
    struct epoll_event events[16];
    int n = fs_system.epoll_wait(fd, events, 16, milliseconds);
    for (int i = 0; i < n; i++) what[i] = events[i].data.u64;
    return n;
}

void fs_watch_socket(int fd, uint64_t handle) { watch(epoll, fd, handle); }

int fs_draw(void *into, size_t size) {
    void *given = fs_let_go();
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
    fs_take_again(given);
    return failed;
}

/* What the connection thread waits on, and where this process is asked. 0 or -errno. */
static int make_descriptors(void) {
    char name[64];
    int made[3];
    uint64_t token;
    if (epoll >= 0) return 0;
    int failed = fs_draw(&token, sizeof token);
    if (failed) return failed;
    token |= 1;
    int length = snprintf(name, sizeof name, FS_ASK_NAME, (unsigned long long)token);
    if (epoll >= 0) return 0; /* another thread's work, while that call went without the front end's lock */
    made[0] = fs_keep_number(fs_system.epoll_create1(EPOLL_CLOEXEC), 0);
    made[1] = fs_keep_number(fs_system.eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), 0);
    made[2] = fs_abstract_socket(SOCK_DGRAM, name, (size_t)length);
    failed = FS_MIN(FS_MIN(made[0], made[1]), made[2]);
    /* (epoll_ctl has a limit of its own: max_user_watches.) */
    if (failed >= 0 && (fs_name_senders(made[2]) < 0 || watch(made[0], made[1], POKE) < 0 ||
                        watch(made[0], made[2], ASK) < 0 || !fs_inode(made[2])))
        failed = -errno;
    if (failed < 0) {
        for (int i = 0; i < 3; i++)
            if (made[i] >= 0) fs_system.close(made[i]);
        return failed;
    }
    epoll = made[0];
    poke_fd = made[1];
    ask_fd = made[2];
    ask_token = token;
    ask_inode = fs_inode(ask_fd);
    return 0;
}

/* ---- the thread itself ------------------------------------------------------------------------------------- */

static void *connection_thread(void *nothing) {
    uint64_t what[16];
    uint32_t turn = fs_load_relaxed(&thread_turn);
    for (;;) {
        int n = wait_events(epoll, what, fs_next_deadline());
        if ((n < 0 && errno != EINTR) || turn != fs_load_relaxed(&thread_turn)) {
            fs_store_relaxed(&thread_lost, turn + 1);
            return NULL;
        }
        for (int i = 0; i < n; i++) {
            /* (POKE: each write is an event, and nobody has to read it.) */
            if ((uint32_t)what[i] == ASK) fs_answer_requests(ask_fd);
            else fs_greet(what[i]);
        }
        if (fs_load_relaxed(&thread_stops)) return NULL;
    }
}

/* A thread with a small stack that no signal is delivered to. */
static int start_thread(pthread_t *started, void *(*body)(void *)) {
    sigset_t all, old;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 128 * 1024);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int failed = fs_system.pthread_create(started, &attributes, body, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attributes);
    return failed;
}

/* (What is left of its descriptors stays open: the numbers may be the program's.) */
static void give_up_thread(void) {
    fs_store_relaxed(&thread_turn, fs_load_relaxed(&thread_turn) + 1);
    if (thread_state != NO_THREAD) pthread_detach(thread);
    thread_state = NO_THREAD;
    thread_wanted = 1;
    epoll = poke_fd = ask_fd = -1;
}

/* If the program has closed its descriptors, nobody can wake it, and it wakes for nothing: it sleeps on an epoll that
 * has no number. It is the socket that shows it: our own next eventfds are the first to take the other numbers. */
static void give_up_lost_thread(void) {
    if (thread_state != ENDS && epoll >= 0 &&
        (fs_inode(ask_fd) != ask_inode || fs_load_relaxed(&thread_lost) == fs_load_relaxed(&thread_turn) + 1))
        give_up_thread();
}

/* If the thread has another socket, the connections that were on the ring before say so in their regions; but not those
 * of which a forked child has taken over the requests. */
static void tell_where_to_ask(void) {
    if (told_token == ask_token) return;
    fs_take_table();
    for (int i = 0; i < fs_table.on_ring_count; i++) {
        struct fs_connection *c = fs_table.on_ring[i].connection;
        /* SYNC: token - pairs with fs_ask_for_byte. */
        if (fs_is_attached(c)) fs_swap_if64(&c->vi.region->asks[c->vi.side], told_token, ask_token);
    }
    fs_unlock_table();
    told_token = ask_token;
}

int fs_ensure_thread(void) {
    give_up_lost_thread();
    int failed = make_descriptors();
    if (failed) return failed;
    if (forks) {
        thread_wanted = 1;
    } else if (thread_state == NO_THREAD) {
        fs_store_relaxed(&thread_stops, 0);
        if (start_thread(&thread, connection_thread)) return FS_NO_THREAD;
        thread_state = RUNS;
        tell_where_to_ask();
    }
    return 0;
}

uint32_t fs_descriptor_turn(void) {
    uint32_t before = fs_load_relaxed(&thread_turn);
    give_up_lost_thread();
    /* The connections that there are want their requests answered. (If that fails, the next name starts it.) */
    if (before != fs_load_relaxed(&thread_turn)) fs_start_thread_again();
    return fs_load_relaxed(&thread_turn);
}

/* ---- forks ------------------------------------------------------------------------------------------------- */

void fs_stop_thread(void) {
    forks++;
    give_up_lost_thread();
    if (thread_state == RUNS) {
        thread_state = ENDS;
        thread_wanted = 1;
        fs_store_relaxed(&thread_stops, 1);
        if (fs_ring_eventfd(poke_fd)) {
            void *given = fs_let_go();
            pthread_join(thread, NULL);
            fs_take_again(given);
            thread_state = NO_THREAD;
        } else {
            give_up_thread(); /* it cannot be woken */
        }
    }
    while (thread_state == ENDS) fs_nap_aside(); /* another thread joins it, which takes less than this */
}

void fs_fork_is_over(void) { forks = FS_MAX(forks - 1, 0); }

int fs_forks_under_way(void) { return forks; }

int fs_start_thread_again(void) {
    if (!thread_wanted || forks) return 0;
    thread_wanted = 0;
    int failed = fs_ensure_thread();
    if (failed) thread_wanted = 1; /* somebody tries again */
    return failed;
}

size_t fs_leave_channel_to_parent(void) {
    thread_state = NO_THREAD;
    thread_wanted = 0;
    forks = 0;
    size_t freed = fs_forget_names_after_fork();
    if (epoll >= 0) fs_system.close(epoll);
    if (poke_fd >= 0) fs_system.close(poke_fd);
    if (ask_fd >= 0) fs_system.close(ask_fd);
    epoll = poke_fd = ask_fd = -1;
    ask_token = 0;
    fs_table.on_ring_count = 0;
    fs_table.answering = NULL; /* of a thread that was given up, and is not here */
    return freed;
}
