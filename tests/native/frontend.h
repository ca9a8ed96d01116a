/* A front end in C, for tests: what a program owes the core (core/include/fastsock.h), and no more. Its lock is a mutex
 * that stands for CPython's GIL. The two ends of a connection may be in one process, where ThreadSanitizer sees both:
 * each end then has a lock of its own, so that nothing orders the two but the ring. */
#ifndef FASTSOCK_FRONTEND_H
#define FASTSOCK_FRONTEND_H

#include "harness.h"

#include "internals.h"

#include <sched.h>
#include <sys/wait.h>

#include "control/control_requests.h"
#include "control/page_offers.h"
#include "control/control_thread.h"
#include "conn/side_lock.h"
#include "events/spin_budget.h"
#include "process/atfork.h"
#include "process/conn_table.h"
#include "process/holder_count.h"

struct end {
    struct fs_connection c;
    struct fs_counters totals;
    pthread_mutex_t *lock; /* the front end's */
    void *memory;
    size_t size;
    int side;
    struct fs_poller *loop;     /* that drives it; NULL: none does */
    struct fs_member *member;   /* there; NULL: it has not attached */
    int asked;                  /* the control thread answers its peer */
    fs_word32 open;
    int bridged;
    int number; /* the descriptor as the program knows it */
};

/* ---- the front end's lock ---------------------------------------------------------------------------- */

static __thread pthread_mutex_t *lock_of_thread; /* that this thread has now */

static void *let_go(void) {
    pthread_mutex_t *had = lock_of_thread;
    lock_of_thread = NULL;
    if (had) pthread_mutex_unlock(had);
    return had;
}

static void take_again(void *given) {
    pthread_mutex_lock(given);
    lock_of_thread = given;
}

static inline void enter(struct end *e) { take_again(e->lock); }
static inline void leave(void) { let_go(); }

static void become_front_end(void) {
    fs_host.unlock = let_go;
    fs_host.lock = take_again;
    fs_become_process();
}

/* ---- calls ------------------------------------------------------------------------------------------- */

static inline int begin_call(struct end *e, struct fs_call *call) {
    int begun = !fs_is_closed(&e->c) && fs_call_enter(&e->c, call);
    return begun;
}

static void conclude(struct end *e, struct fs_call *call);

/* With the lock if that keeps threads apart. */
static void after_call(struct end *e, struct fs_call *call) {
    enum fs_exit_action after = fs_call_exit(&e->c, call);
    if (after == FS_EXIT_CLOSE) {
        int fd = fs_fd(&e->c);
        conclude(e, call);
        close(fd);
    }
    if (after != FS_EXIT_RELEASE) return;
    enter(e); /* the free blocks are the process's */
    fs_release_side(&e->c);
    fs_note_detached(&e->c);
    leave();
}

static inline void end_call(struct end *e, struct fs_call *call) {
    after_call(e, call);
}

/* Polls, and sleeps until something may have happened. As fs_sleep. `alone`: no other thread changes numbers here. */
static inline int wait_for(struct end *e, int what, int64_t deadline, int alone) {
    struct fs_fd_change *fd_change = NULL;
    if (fs_spin(&e->c, what)) return 1;
    if (!alone) {
        enter(e);
        fd_change = fs_fd_change_subscribe();
        leave();
    }
    int woken = fs_sleep(&e->c, what, deadline, fd_change);
    if (fd_change) {
        enter(e);
        fs_fd_change_unsubscribe(fd_change);
        leave();
    }
    return woken;
}

/* ---- how a connection begins, moves, leaves and ends --------------------------------------------------- */

/* `fd` is the end's from here on. 0 or -errno, and it is closed then. */
static int open_end(struct end *e, int fd) {
    enter(e);
    int failed = fs_conn_open(&e->c, fd, fs_inode(fd), fs_table_add(fs_inode(fd), fd, 0));
    if (failed) {
        fs_conn_discard(&e->c, &e->totals);
        close(fd);
    }
    leave();
    e->number = fd;
    fs_store_sc(&e->open, !failed);
    return failed;
}

static void leave_loop(struct end *e) {
    if (e->member) fs_loop_drop(e->member);
    e->member = NULL;
}

/* 0 or -errno. */
static int attach_end(struct end *e, const struct fs_flow_options *flow) {
    const char *wrong = NULL;
    enter(e);
    int failed = e->asked ? 0 : fs_control_thread_start();
    if (!failed && !e->asked) failed = fs_requests_expect(&e->c, e->side, ((struct fs_region *)e->memory)->id);
    e->asked |= !failed;
    if (!failed && e->loop) e->member = fs_loop_add(e->loop, &e->c, e, &failed);
    if (!failed) failed = fs_attach(&e->c, e->memory, e->size, e->side, flow, &wrong);
    if (!failed) fs_requests_announce(e->memory, e->side);
    if (failed) leave_loop(e);
    else if (e->member) fs_loop_enter(e->member);
    leave();
    check(failed != -EINVAL || !wrong, "attaching: %s", wrong);
    return failed;
}

static int list_number(void *whose, int *numbers, int room) {
    if (room) numbers[0] = fs_fd(&((struct end *)whose)->c);
    return 1;
}

/* The way out, by a bridge where the peer cannot help. As leave_end; inside. */
static enum fs_fallback_result leave_by_bridge(struct end *e) {
    struct fs_path path = {0};
    struct fs_fallback_hooks asks = {list_number, NULL, e};
    int64_t bridge;
    int left = -EINTR;
    while (left == -EINTR) {
        enter(e);
        left = fs_path_fall_back(&path, &e->c, &asks, &bridge);
        if (bridge) {
            fs_requests_stop(&e->c);
            e->asked = 0;
            e->bridged = 1;
        }
        leave();
    }
    return left == FS_NOW_IN_KERNEL ? FS_FELL_BACK : left == FS_CANNOT_FALL_BACK ? FS_NEEDS_BRIDGE : FS_FALLBACK_FAILED;
}

/* Takes the connection back to the kernel, if that can be done. `may_bridge`: by a process, where the peer cannot help.
 * FS_FELL_BACK: the kernel's stream is the whole stream. FS_NEEDS_BRIDGE: it stays as it is. */
static inline enum fs_fallback_result leave_end(struct end *e, int may_bridge) {
    struct fs_unread_data unread_data = FS_NO_UNREAD_DATA;
    struct fs_call call;
    enum fs_fallback_result outcome = FS_FELL_BACK;
    if (!begin_call(e, &call)) return outcome;
    int on_ring = fs_is_attached(&e->c) && !fs_is_broken(&e->c) && !fs_has_fallen_back(&e->c);
    if (on_ring && may_bridge) {
        outcome = leave_by_bridge(e);
    } else if (on_ring) {
        struct fs_fallback_lock *fallback;
        while (!(fallback = fs_fallback_begin(&e->c))) {}
        outcome = fs_fallback(&e->c, fallback, &unread_data);
        if (outcome == FS_NEEDS_BRIDGE && unread_data.size)
            outcome = FS_FALLBACK_FAILED; /* without the parcel the stream would have a hole */
        if (outcome == FS_FALLBACK_FAILED) fs_conn_reset(&e->c);
        fs_fallback_end(&e->c, fallback, outcome != FS_FALLBACK_FAILED);
        if (unread_data.fd >= 0) close(unread_data.fd);
    }
    end_call(e, &call);
    return outcome;
}

/* The connection has ended by `call`, which is inside. As after_call. */
static void conclude(struct end *e, struct fs_call *call) {
    enter(e); /* the list of those that are asked, the connection table and fd_change need it still */
    if (e->asked) fs_requests_stop(&e->c);
    e->asked = 0;
    fs_conn_close(&e->c, 1, &e->totals);
    if (fs_has_other_users(&e->c)) fs_forget_fd(&e->c);
    leave();
    after_call(e, call);
}

/* The program closes the connection. Like the kernel, which keeps it open while somebody is inside a call on it.
 * `spares`: there is a descriptor for that. */
static void close_end(struct end *e, int overflows) {
    struct fs_call call;
    if (!fs_cas32(&e->open, 1, 0)) return;
    if (!fs_call_enter(&e->c, &call)) {
        return;
    }
    int fd = fs_fd(&e->c);
    enter(e); /* the news */
    int ended = overflows ? fs_close_last_fd(&e->c, fd) : fs_note_ended(&e->c);
    leave();
    if (ended) conclude(e, &call); /* (it says its goodbye first) */
    close(fd);
    if (!ended) after_call(e, &call); /* this one may be the last */
}

/* ---- what two ends share --------------------------------------------------------------------------------- */

/* A formatted region that a forked child maps at the same place. */
static void *make_region(uint32_t window, uint32_t chunk, size_t *size) {
    static uint64_t number;
    unsigned char id[16];
    memcpy(id, "a native test 16", sizeof id);
    *size = fs_region_size(window, chunk);
    int fd = (int)syscall(SYS_memfd_create, "fastsock-test", 1);
    check(fd >= 0 && ftruncate(fd, (off_t)*size) == 0, "memfd: %m");
    void *memory = mmap(NULL, *size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    check(memory != MAP_FAILED, "mmap: %m");
    close(fd);
    number++;
    memcpy(id, &number, sizeof number);
    fs_region_format(memory, window, chunk, id);
    return memory;
}

/* How an end stands, for reports: unsynchronised. */
__attribute__((no_sanitize("thread"))) static inline void show_end(const struct end *e) {
    const struct fs_connection *c = &e->c;
    const struct fs_shared_side *own = fs_own(c);
    fprintf(stderr, "end %d in process %d: fd %d, attached %u, broken %u, lost %u, error %u, shut %u %u,"
            " finished %d, calls %u, violation %s\n", e->side, getpid(), fs_fd(c), fs_load_own32(&c->is.attached),
            fs_load_own32(&c->is.marks), fs_load_own32(&c->is.lost), fs_load_own32(&c->is.pending_error),
            fs_load_own32(&c->is.shut_receiving), fs_load_own32(&c->is.shut_sending), fs_has_ended(c), fs_calls_inside(c),
            c->ring.violation ? c->ring.violation : "none");
    if (!own || !fs_load_own32(&c->is.attached)) return;
    const struct fs_direction *tx = c->ring.tx, *rx = c->ring.rx;
    fprintf(stderr, "  moved %#x, holders %u, locks %#x %#x %#x, sleepers %u %u, futexes %u %u\n", fs_load_own32(&own->moved),
            fs_load_own32(&own->holders), fs_load_own32(&own->sender.lock.word), fs_load_own32(&own->receiver.lock.word),
            fs_load_own32(&own->fallback.lock.word), fs_load_own32(&c->recv_sleepers), fs_load_own32(&c->send_sleepers),
            fs_load_own32(&c->ring.rx->futex), fs_load_own32(&c->ring.tx->credit_futex));
    fprintf(stderr,
            "  sends: switch_at %" PRIu64 ", fin %#" PRIx64 ", posted %u, credited %u, acked %u, seen %u,"
            " credit_wait %u, doorbell %u, ready %u, settled %u, returned %u\n",
            fs_load_relaxed((fs_word64 *)&tx->switch_at), fs_load_relaxed((fs_word64 *)&tx->fin), own->sender.posted,
            fs_load_own32(&own->sender.credited), fs_load_own32(&tx->acked), fs_load_own32(&tx->seen), fs_load_own32(&tx->credit_wait),
            fs_load_own32(&tx->doorbell), fs_load_own32(&tx->ready), fs_load_own32(&tx->settled), fs_load_own32(&tx->returned));
    fprintf(stderr,
            "  receives: consumed %u, acknowledged %u, kernel_taken %" PRIu64 ", doorbell %u, ready %u,"
            " settled %u, fin_taken %u\n",
            fs_load_own32(&own->receiver.consumed), fs_load_own32(&own->receiver.acknowledged), own->receiver.kernel_taken,
            fs_load_own32(&rx->doorbell), fs_load_own32(&rx->ready), fs_load_own32(&rx->settled), fs_load_own32(&own->receiver.fin_taken));
}

/* Forks: the child holds what this process holds, once it has inherited it (fs_conn_inherit). 0 in the child. */
static inline pid_t fork_holder(void) {
    fs_control_thread_stop();
    fs_expect_fork(1);
    pid_t child = fork();
    fs_expect_fork(0);
    check(child >= 0, "fork: %m");
    if (child == 0) {
        forget_threads();
        fs_become_process();
        fs_slab_forget();
        fs_fd_change_forget();
        fs_control_forget();
    } else {
        fs_control_thread_after_fork();
        fs_control_thread_restart();
    }
    return child;
}

static inline int some_processors(pid_t pid, size_t size, cpu_set_t *set) {
    (void)pid;
    memset(set, 0, size);
    CPU_SET(0, set);
    CPU_SET(1, set);
    return 0;
}

static inline long many_processors(int name) { return name == _SC_NPROCESSORS_ONLN ? 4096 : sysconf(name); }

/* A host with processors to spare, whatever else runs on it: calls that wait on kernel TCP poll there first. */
static inline void have_processors_to_spare(void) {
    fs_system.sched_getaffinity = some_processors; /* of this process, */
    fs_system.sysconf = many_processors;           /* and of the host, on which fewer threads want to run */
    fs_count_processors();
}

#endif
