/* A front end in C, for tests: what a program owes the core (core/include/fastsock.h), and no more. Its lock is a mutex
 * that stands for CPython's GIL. The two ends of a connection may be in one process, where ThreadSanitizer sees both:
 * each end then has a lock of its own, so that nothing orders the two but the ring. */
#ifndef FASTSOCK_TESTS_FRONTEND_H
#define FASTSOCK_TESTS_FRONTEND_H

#include "harness.h"

#include "include/fastsock.h"

#include <sched.h>
#include <sys/wait.h>

#include "channel/requests.h"
#include "channel/sets.h"
#include "channel/thread.h"
#include "connection/turns.h"
#include "registry/forks.h"
#include "registry/holders.h"

struct end {
    struct fs_connection c;
    struct fs_counters totals;
    pthread_mutex_t *lock; /* the front end's */
    void *memory;
    size_t size;
    int side;
    struct fs_set *set;         /* of the loop that drives it; NULL: none does */
    int asked;                  /* the connection thread answers its peer */
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

/* The same where the life of a connection changes, if the lock is what keeps threads apart there. Else the core does. */
static inline void enter_life(struct end *e) {
    if (fs_front.keeps_apart) enter(e);
}
static inline void leave_life(void) {
    if (fs_front.keeps_apart) leave();
}

static void become_front_end(void) {
    fs_front.let_go = let_go;
    fs_front.take_again = take_again;
    fs_own_pid = (uint32_t)getpid();
    fs_own_pid_space = fs_pid_space();
}

/* ---- calls ------------------------------------------------------------------------------------------- */

static inline int begin_call(struct end *e, struct fs_call *call) {
    enter_life(e);
    int begun = !fs_is_closed(&e->c) && fs_begin(&e->c, call);
    leave_life();
    return begun;
}

static void conclude(struct end *e, struct fs_call *call);

/* With the lock if that keeps threads apart. */
static void after_call(struct end *e, struct fs_call *call) {
    enum fs_after after = fs_end_call(&e->c, call);
    if (after == FS_END_LAST_CALL) {
        int fd = fs_fd(&e->c);
        conclude(e, call);
        close(fd);
    }
    if (after != FS_RELEASE) return;
    if (!fs_front.keeps_apart) enter(e); /* the free blocks are the process's */
    fs_free_own(&e->c);
    fs_note_detached(&e->c);
    if (!fs_front.keeps_apart) leave();
}

static inline void end_call(struct end *e, struct fs_call *call) {
    enter_life(e);
    after_call(e, call);
    leave_life();
}

/* Polls, and sleeps until something may have happened. As fs_sleep. `alone`: no other thread changes numbers here. */
static inline int wait_for(struct end *e, int what, int64_t deadline, int alone) {
    struct fs_news *news = NULL;
    if (fs_spin(&e->c, what)) return 1;
    if (!alone) {
        enter(e);
        news = fs_join_news();
        leave();
    }
    int woken = fs_sleep(&e->c, what, deadline, news);
    if (news) {
        enter(e);
        fs_leave_news(news);
        leave();
    }
    return woken;
}

/* ---- how a connection begins, moves, leaves and ends --------------------------------------------------- */

/* `fd` is the end's from here on. 0 or -errno, and it is closed then. */
static int open_end(struct end *e, int fd) {
    enter(e);
    int failed = fs_open_connection(&e->c, fd, fs_inode(fd));
    if (failed) {
        fs_discard(&e->c, &e->totals);
        close(fd);
    }
    leave();
    e->number = fd;
    fs_store_sc(&e->open, !failed);
    return failed;
}

/* 0 or -errno. */
static int attach_end(struct end *e, const struct fs_manner *manner) {
    const char *wrong = NULL;
    enter(e);
    int failed = e->asked ? 0 : fs_expect_asks(&e->c, e->side, ((struct fs_region *)e->memory)->id);
    e->asked |= !failed;
    if (!failed && e->set) failed = FS_MIN(fs_take_seat(&e->c, e->set), 0);
    if (!failed) failed = fs_attach(&e->c, e->memory, e->size, e->side, manner, &wrong);
    if (!failed) fs_answer_asks(e->memory, e->side);
    if (e->set && failed) fs_leave_seat(&e->c, e->set);
    if (e->set && !failed) fs_put_member(e->set, fs_seat_of(&e->c), e);
    leave();
    check(failed != -EINVAL || !wrong, "attaching: %s", wrong);
    return failed;
}

/* The descriptor's number is handed out to whoever polls it. */
static inline void expose_end(struct end *e) {
    struct fs_call call;
    if (!begin_call(e, &call)) return;
    enter(e);
    int lacks;
    while ((lacks = fs_expose(&e->c)) == -EINTR) {}
    leave();
    if (lacks) {
        fs_ask_for_byte(e->memory, e->side, e->c.region_id);
        fs_await_doorbell_byte(&e->c);
    }
    end_call(e, &call);
}

static void dissolve_end(struct end *e) {
    fs_note_broken(&e->c);
    fs_reset_connection(fs_fd(&e->c));
    fs_wake_own(&e->c);
}

/* A bridge takes the place of the connection's descriptor. With the lock. FS_IN_KERNEL; FS_NEEDS_BRIDGE: there is none; or
 * FS_DISSOLVED. */
static enum fs_outcome bridge_end(struct end *e, struct fs_leaver *leaver, struct fs_parcel *parcel) {
    int near, number = fs_fd(&e->c);
    struct fs_side *side = fs_new_side();
    if (!side) return FS_NEEDS_BRIDGE;
    if (fs_start_bridge(&e->c, leaver, parcel, &near) < 0) {
        fs_free_block(side, sizeof *side);
        return FS_NEEDS_BRIDGE;
    }
    int changed;
    while (!(changed = fs_change_over(&e->c, near, side, &number, 1))) fs_await_both(&e->c);
    close(near);
    if (changed < 0) {
        fs_free_block(side, sizeof *side);
        return FS_DISSOLVED;
    }
    fs_ignore_asks(&e->c);
    e->asked = 0;
    e->bridged = 1;
    return FS_IN_KERNEL;
}

/* Takes the connection back to the kernel, if that can be done. `may_bridge`: by a process, where the peer cannot help.
 * FS_IN_KERNEL: the kernel's stream is the whole stream. FS_NEEDS_BRIDGE: it stays as it is. */
static inline enum fs_outcome leave_end(struct end *e, int may_bridge) {
    struct fs_parcel parcel = FS_NO_PARCEL;
    struct fs_call call;
    enum fs_outcome outcome = FS_IN_KERNEL;
    if (!begin_call(e, &call)) return outcome;
    if (fs_is_attached(&e->c) && !fs_is_broken(&e->c) && !fs_is_out(&e->c)) {
        struct fs_leaver *leaver;
        while (!(leaver = fs_begin_leaving(&e->c))) {}
        outcome = fs_leave_ring(&e->c, leaver, &parcel);
        if (outcome == FS_NEEDS_BRIDGE) {
            enter(e);
            if (may_bridge) outcome = bridge_end(e, leaver, &parcel);
            if (outcome == FS_NEEDS_BRIDGE && parcel.size) outcome = FS_DISSOLVED; /* without the parcel the stream would have a hole */
            leave();
        }
        if (outcome == FS_DISSOLVED) dissolve_end(e);
        fs_end_leaving(&e->c, leaver, outcome != FS_DISSOLVED);
        if (parcel.fd >= 0) close(parcel.fd);
    }
    end_call(e, &call);
    return outcome;
}

/* The connection has ended by `call`, which is inside. As after_call. */
static void conclude(struct end *e, struct fs_call *call) {
    if (!fs_front.keeps_apart) enter(e); /* the list of those that are asked, the roll and the news need it still */
    if (e->asked) fs_ignore_asks(&e->c);
    e->asked = 0;
    fs_let_go_of(&e->c, &e->totals);
    if (fs_others_have(&e->c)) fs_abandon_number(&e->c);
    if (!fs_front.keeps_apart) leave();
    after_call(e, call);
}

/* The program closes the connection. Like the kernel, which keeps it open while somebody is inside a call on it.
 * `spares`: there is a descriptor for that. */
static void close_end(struct end *e, int spares) {
    struct fs_call call;
    if (!fs_swap_if32(&e->open, 1, 0)) return;
    enter_life(e);
    if (!fs_begin(&e->c, &call)) {
        leave_life();
        return;
    }
    int fd = fs_fd(&e->c), alone = fs_note_finished_alone(&e->c);
    int spare = spares && !alone ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (spare >= 0) {
        if (!fs_front.keeps_apart) enter(e); /* the news */
        fs_point_to(&e->c, spare);
        if (!fs_front.keeps_apart) leave();
        if (!fs_note_finishing(&e->c)) close(spare); /* (nobody else ends it here) */
        close(fd);
        after_call(e, &call); /* this one may be the last */
    } else if (alone || fs_note_finished(&e->c)) {
        conclude(e, &call);
        close(fd);
    } else {
        after_call(e, &call);
    }
    leave_life();
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
    const struct fs_side *own = fs_own(c);
    fprintf(stderr, "end %d in process %d: fd %d, attached %u, exposed %u, broken %u, lost %u, error %u, shut %u %u,"
            " finished %d, calls %u, violation %s\n", e->side, getpid(), fs_fd(c), fs_own32(&c->is.attached),
            fs_own32(&c->is.exposed), fs_own32(&c->is.broken), fs_own32(&c->is.lost), fs_own32(&c->is.pending_error),
            fs_own32(&c->is.shut_receiving), fs_own32(&c->is.shut_sending), fs_has_ended(c), fs_calls_inside(c),
            c->vi.violation ? c->vi.violation : "none");
    if (!own || !fs_own32(&c->is.attached)) return;
    const struct fs_half *tx = c->vi.tx, *rx = c->vi.rx;
    fprintf(stderr, "  moved %#x, holders %u, turns %#x %#x %#x, late %d %d, sleepers %u %u, bells %u %u\n",
            fs_own32(&own->moved), fs_own32(&own->holders), fs_own32(&own->sender.lock.word),
            fs_own32(&own->receiver.lock.word), fs_own32(&own->leaver.lock.word), c->late, c->late_sending,
            fs_own32(&c->recv_sleepers), fs_own32(&c->send_sleepers), fs_own32(&c->vi.rx->bell), fs_own32(&c->vi.tx->credit_bell));
    fprintf(stderr, "  sends: switch_at %" PRIu64 ", fin %#" PRIx64 ", posted %u, credited %u, acked %u, seen %u,"
            " credit_wait %u, rung %u, heard %u, unsent %u, doorbell %u, ringing %u, ready %u, settled %u, returned %u,"
            " plugs %d\n", fs_load_relaxed((fs_word64 *)&tx->switch_at), fs_load_relaxed((fs_word64 *)&tx->fin),
            own->sender.posted, fs_own32(&own->sender.credited), fs_own32(&tx->acked), fs_own32(&tx->seen), fs_own32(&tx->credit_wait),
            fs_own32(&tx->rung), fs_own32(&tx->heard), own->sender.bytes_unsent, fs_own32(&tx->doorbell), fs_own32(&tx->ringing),
            fs_own32(&tx->ready), fs_own32(&tx->settled), fs_own32(&tx->returned), own->sender.plugs);
    fprintf(stderr, "  receives: consumed %u, acknowledged %u, kernel_taken %" PRIu64 ", debt %u, doorbell %u, ready %u,"
            " settled %u, fin_taken %u\n", fs_own32(&own->receiver.consumed), fs_own32(&own->receiver.acknowledged), own->receiver.kernel_taken,
            own->receiver.doorbell_debt, fs_own32(&rx->doorbell), fs_own32(&rx->ready), fs_own32(&rx->settled),
            fs_own32(&own->receiver.fin_taken));
}

/* Forks: the child holds what this process holds, once it has inherited it (fs_inherit). 0 in the child. */
static inline pid_t fork_holder(void) {
    fs_stop_thread();
    fs_announce_fork(1);
    pid_t child = fork();
    fs_announce_fork(0);
    check(child >= 0, "fork: %m");
    if (child == 0) {
        forget_threads();
        fs_own_pid = (uint32_t)getpid();
        fs_forget_blocks_after_fork();
        fs_forget_news();
        fs_leave_channel_to_parent();
    } else {
        fs_fork_is_over();
        fs_start_thread_again();
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
}

#endif
