/* Holders that are killed with a lock held: at every store under a lock in its own process, the next holder mends what
 * it finds and goes on. Nothing that was sent is lost or doubled, and the arena's accounts are right.
 *
 *   crashes SECONDS [ROUND]
 *
 * The atomic stores and swaps of the headers count down to a SIGKILL. The dead process stays a zombie while the next holder
 * works, as a child that nobody waits for does. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/atomics.h"

static int stores_left; /* 0: nobody is killed */

static inline void count_down(void) {
    if (stores_left && --stores_left == 0) kill(getpid(), SIGKILL);
}

/* Before and after: between two stores there are two places to die. */
#define AROUND(action) (count_down(), (action), count_down())
static inline int swap_counted32(fs_word32 *p, uint32_t expected, uint32_t desired) {
    count_down();
    int done = fs_cas32(p, expected, desired);
    count_down();
    return done;
}
static inline int swap_counted64(fs_word64 *p, uint64_t expected, uint64_t desired) {
    count_down();
    int done = fs_cas64(p, expected, desired);
    count_down();
    return done;
}
static inline void *copy_counted(void *to, const void *from, size_t size) {
    count_down();
    memcpy(to, from, size / 2);
    count_down();
    memcpy((char *)to + size / 2, (const char *)from + size / 2, size - size / 2);
    count_down();
    return to;
}
static inline void in_order_counted(void) {
    fs_compiler_barrier();
    count_down();
}
#undef fs_store_relaxed
#undef fs_store_release
#undef fs_store_sc
#define fs_store_relaxed(p, v) AROUND(atomic_store_explicit((p), (v), memory_order_relaxed))
#define fs_store_release(p, v) AROUND(atomic_store_explicit((p), (v), memory_order_release))
#define fs_store_sc(p, v) AROUND(atomic_store_explicit((p), (v), memory_order_seq_cst))
#define fs_cas32 swap_counted32
#define fs_cas64 swap_counted64
#define fs_compiler_barrier in_order_counted
#define memcpy copy_counted
#include "ring/ring_recovery.h"
#undef memcpy
#include "harness.h"

#define WINDOW 4
#define CHUNK 1024

struct shared {
    struct fs_shared_side own[2];
    uint64_t ends[2][64];
    uint64_t sent, read; /* bytes of the pattern, by those who lived to say so */
};

static struct fs_ring_pair views[2];
static struct shared *shared;

static void begin(struct mapping *map) {
    memset(map->memory, 0, map->size);
    memset(shared, 0, sizeof *shared);
    format_region(map, WINDOW, CHUNK);
    for (int s = 0; s < 2; s++) {
        const char *wrong = fs_ring_pair_attach(&views[s], map->memory, map->size, s);
        check(!wrong, "%s", wrong);
        views[s].own = &shared->own[s];
        views[s].own->sender.ends = shared->ends[s];
        views[s].ack_threshold = 1;
    }
}

static void lock(int side, int sends) {
    struct fs_shared_side *own = &shared->own[side];
    if (fs_robust_lock(sends ? &own->sender.lock : &own->receiver.lock, (uint32_t)getpid()) != FS_LOCK_OWNER_DIED) return;
    if (sends) check(fs_recover_sender(&views[side], &shared->own[side].sender) == 0, "%s", views[side].violation);
    else fs_recover_receiver(&views[side], &shared->own[side].receiver);
}

static void unlock(int side, int sends) {
    fs_robust_unlock(sends ? &shared->own[side].sender.lock : &shared->own[side].receiver.lock);
}

/* What one process does with the lock: posts bytes of the pattern from where the stream stands. */
static int64_t post(uint64_t position, uint32_t length, int combine) {
    return fs_post(&views[0], &shared->own[0].sender, (const char *)pattern_at(position), length, combine);
}

/* Bytes of the stream that were posted, told from the ring alone: what lies there, behind what was read. */
static uint64_t posted_bytes(void) { return shared->read + fs_available(&views[1], SIZE_MAX); }

static void read_some(uint32_t room, int kill_at) {
    char bytes[LARGEST];
    lock(1, 0);
    stores_left = kill_at;
    int64_t got = fs_ring_recv(&views[1], &shared->own[1].receiver, bytes, room, FS_CONSUME);
    stores_left = 0;
    check(got >= 0, "%s", views[1].violation);
    check(memcmp(bytes, pattern_at(shared->read), (size_t)got) == 0, "other bytes at %" PRIu64, shared->read);
    shared->read += (uint64_t)got;
    unlock(1, 0);
}

static void be_killed(void (*work)(uint64_t, int), uint64_t what, int kill_at, int *died) {
    pid_t child = fork();
    check(child >= 0, "fork: %m");
    if (child == 0) {
        work(what, kill_at);
        _exit(0);
    }
    siginfo_t info;
    check(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT) == 0, "waitid: %m"); /* it stays a zombie */
    *died = info.si_code == CLD_KILLED;
    check(*died ? info.si_status == SIGKILL : info.si_status == 0, "the child failed");
}

/* Killed within fs_ring_writable, between its two stores of `head`. */
static void killed_asking(uint64_t seed, int kill_at) {
    uint32_t offset;
    (void)seed, (void)kill_at;
    lock(0, 1);
    check(fs_update_credits(&views[0], &shared->own[0].sender) == 0, "%s", views[0].violation);
    if (!fs_in_flight(&shared->own[0].sender) || fs_in_flight(&shared->own[0].sender) >= WINDOW) _exit(0);
    fs_arena_reserve(&views[0], &shared->own[0].sender, CHUNK, &offset);
    kill(getpid(), SIGKILL);
}

static void reap(void) {
    while (waitpid(-1, NULL, 0) > 0) {}
}

static void killed_sending(uint64_t seed, int kill_at) {
    uint64_t random = seed;
    lock(0, 1);
    stores_left = kill_at;
    post(shared->sent, 1 + below(&random, 200), one_in(&random, 2));
    fs_update_credits(&views[0], &shared->own[0].sender);
    if (one_in(&random, 8)) fs_seal(&views[0], &shared->own[0].sender);
    unlock(0, 1);
}

static void killed_reading(uint64_t seed, int kill_at) {
    uint64_t random = seed;
    read_some(1 + below(&random, 400), kill_at);
}

/* Everything is read, and everything that was sent has come. */
static void drain_all(void) {
    for (uint64_t before = UINT64_MAX; before != shared->read;) {
        before = shared->read;
        read_some(LARGEST, 0);
    }
    lock(1, 0);
    fs_send_ack(&views[1], &shared->own[1].receiver); /* what a reader does before it sleeps */
    unlock(1, 0);
    lock(0, 1);
    check(fs_update_credits(&views[0], &shared->own[0].sender) == 0, "%s", views[0].violation);
    check(shared->own[0].sender.posted == shared->own[0].sender.credited, "descriptors posted that nobody read");
    check(shared->own[0].sender.head == shared->own[0].sender.tail, "arena bytes are missing");
    check(fs_ring_writable(&views[0], &shared->own[0].sender), "the arena is empty, and nothing may be sent");
    check(post(shared->read, 100, 0) == 100, "the arena is empty, and nothing is sent");
    unlock(0, 1);
    read_some(100, 0);
}

static void run_round(uint64_t *random, struct mapping *map, uint32_t *deaths) {
    static const uint32_t limits[] = {0, 500, 2000};
    begin(map);
    if (one_in(random, 2)) fs_store_sc(&views[0].tx->limit, 1000); /* of the reader; the arena has four times as much */
    for (int times = 0; times < 30; times++) {
        int died, kill_at = 1 + (int)below(random, 24);
        uint64_t seed = next_random(random);
        uint32_t who = below(random, 5);
        if (one_in(random, 10)) {
            lock(0, 1);
            fs_set_send_limit(&views[0], &shared->own[0].sender, limits[below(random, 3)]);
            unlock(0, 1);
        }
        if (who == 0) {
            be_killed(killed_asking, seed, kill_at, &died);
        } else if (who < 3) {
            shared->sent = posted_bytes();
            be_killed(killed_sending, seed, kill_at, &died);
        } else {
            /* A dead reader has taken what it had consumed: the pattern goes on behind that. */
            uint32_t consumed = fs_load_relaxed(&shared->own[1].receiver.consumed), taken = fs_load_relaxed(&shared->own[1].receiver.taken);
            uint64_t waiting = fs_available(&views[1], SIZE_MAX), before = shared->read;
            be_killed(killed_reading, seed, kill_at, &died);
            if (died) {
                lock(1, 0);
                uint64_t left = fs_available(&views[1], SIZE_MAX);
                check(left <= waiting, "bytes came twice: %" PRIu64 " after %" PRIu64, left, waiting);
                check(shared->read == before || shared->read == before + waiting - left, "a reader's count is wrong");
                shared->read = before + waiting - left;
                check(consumed != fs_load_relaxed(&shared->own[1].receiver.consumed) ||
                          taken <= fs_load_relaxed(&shared->own[1].receiver.taken),
                      "a part of a descriptor that was read came back");
                unlock(1, 0);
            }
        }
        *deaths += (uint32_t)died;
        lock(0, 1);
        unlock(0, 1);
        if (one_in(random, 2)) {
            lock(0, 1);
            int64_t part = post(posted_bytes(), 1 + below(random, 1500), one_in(random, 2));
            check(part >= 0, "%s", views[0].violation);
            unlock(0, 1);
        }
        if (one_in(random, 3)) read_some(1 + below(random, 2000), 0);
        if (one_in(random, 6)) drain_all();
        reap();
    }
    drain_all();
}

/* A holder that is stopped keeps its lock, and one that ends with its lock to another's gain does not spoil it. */
static void stop_a_holder(void) {
    struct fs_robust_lock *lock = &shared->own[0].sender.lock;
    pid_t child = fork();
    check(child >= 0, "fork: %m");
    if (child == 0) {
        fs_robust_lock(lock, (uint32_t)getpid());
        raise(SIGSTOP);
        fs_robust_unlock(lock);
        raise(SIGSTOP);
        _exit(0);
    }
    int status;
    check(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status), "the child did not stop");
    for (int tries = 0; tries < 3; tries++) {
        check(fs_robust_trylock(lock, (uint32_t)getpid()) == FS_LOCK_BUSY, "the lock of a stopped holder was taken");
        fs_lock_wait(lock);
    }
    kill(child, SIGCONT);
    check(fs_robust_lock(lock, (uint32_t)getpid()) == FS_LOCK_TAKEN, "a lock that was released was inherited");
    waitpid(child, &status, WUNTRACED);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    check(fs_load_relaxed(&lock->word) == fs_robust_thread.thread, "a stranger's death took the lock");
    fs_robust_unlock(lock);
}

/* Two locks at once: both are told of their holder's death. */
static void kill_a_holder_of_both(void) {
    struct fs_robust_lock *locks[2] = {&shared->own[0].receiver.lock, &shared->own[0].sender.lock};
    pid_t child = fork();
    check(child >= 0, "fork: %m");
    if (child == 0) {
        fs_robust_lock(locks[0], (uint32_t)getpid());
        fs_lock_push(locks[0]);
        fs_robust_lock(locks[1], (uint32_t)getpid());
        fs_robust_unlock(locks[1]);
        fs_robust_lock(locks[1], (uint32_t)getpid());
        kill(getpid(), SIGKILL);
    }
    siginfo_t info;
    check(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT) == 0, "waitid: %m");
    for (int i = 0; i < 2; i++) {
        check(fs_robust_lock(locks[i], (uint32_t)getpid()) == FS_LOCK_OWNER_DIED, "lock %d was not inherited", i);
        fs_unlock_owner_died(locks[i]);
        check(fs_robust_lock(locks[i], (uint32_t)getpid()) == FS_LOCK_OWNER_DIED, "lock %d: whose holder could not mend it", i);
        fs_robust_unlock(locks[i]);
        check(fs_robust_lock(locks[i], (uint32_t)getpid()) == FS_LOCK_TAKEN, "lock %d was inherited twice", i);
        fs_robust_unlock(locks[i]);
    }
    reap();
}

int main(int count, char **arguments) {
    struct rounds rounds = begin_rounds(count, arguments);
    uint32_t deaths = 0;
    fill_pattern();
    struct mapping map = map_guarded(WINDOW, CHUNK);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(shared != MAP_FAILED, "mmap: %m");
    stop_a_holder();
    kill_a_holder_of_both();
    for (uint64_t random; next_round(&rounds, &random);) run_round(&random, &map, &deaths);
    printf("%u rounds, %u killed with a lock held\n", rounds.done, deaths);
    check(rounds.only || deaths, "nobody was killed");
    return 0;
}
