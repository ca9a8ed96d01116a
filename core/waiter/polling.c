/* Whether polling pays: what every wait of this process goes by, of a thread or of a loop.
 *
 * Responsible for: habits, which learn from finished waits, and what is known of the processors. Never: polls, sleeps,
 * or takes a lock. */
#include "waiter/polling.h"

#include <stdio.h>

#include "base/system.h"

/* In nanoseconds. */
#define AFFINITY_INTERVAL ((int64_t)50000000) /* that a count of usable processors is believed, and whether
                                               * there is a crowd */
#define WAKE_COST ((int64_t)60000)            /* that a sleep adds to a wait, generously (docs/waiting.md) */

enum {
    PENALTY_MAX = 255, /* waits without polling after polls that held the peer up */
};

int64_t fs_poll_ns = 50000;
struct fs_habit fs_kernel_habit = {.score = FS_SCORE_MAX / 2}; /* as fs_take_up_polling */

/* Relaxed: who sees the time and not yet the number goes without polling, or with the old number, once. */
static fs_word32 processors;       /* that this process may use */
static fs_word64 processors_known; /* since when, monotonic ns */
static fs_word32 crowd;            /* whether more wants to run than there are processors */
static fs_word64 crowd_known;      /* since when, monotonic ns */

void fs_take_up_polling(struct fs_habit *habit) {
    fs_store_relaxed(&habit->score, FS_SCORE_MAX / 2);
    fs_store_relaxed(&habit->skip, 0);
    fs_store_relaxed(&habit->penalty, 0);
}

/* Processors that this process may use. */
static int usable_processors(void) {
    cpu_set_t set;
    return fs_system.sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

int64_t fs_may_poll(struct fs_habit *habit, int64_t now, uint32_t peer_processor) {
    uint32_t skip = fs_load_relaxed(&habit->skip);
    if (fs_poll_ns == 0 || fs_load_relaxed(&habit->score) < FS_SCORE_POLLS) return 0;
    if (skip > 0) {
        fs_store_relaxed(&habit->skip, skip - 1);
        return 0;
    }
    if (now - (int64_t)fs_load_relaxed(&processors_known) > AFFINITY_INTERVAL) {
        fs_store_relaxed(&processors, (uint32_t)usable_processors());
        fs_store_relaxed(&processors_known, (uint64_t)now);
    }
    if (fs_load_relaxed(&processors) > 1 || (peer_processor && !fs_shares_processor(peer_processor))) return fs_poll_ns;
    return 0;
}

/* Whether more threads of the host want to run than it has processors. Where nobody tells: no. */
static int is_host_crowded(void) {
    static fs_word32 known; /* the host's processors; relaxed: two threads that ask get the same answer */
    char text[64];
    int64_t length;
    unsigned running, online = fs_load_relaxed(&known);
    int fd = fs_system.open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    length = fs_system.read(fd, text, sizeof text - 1);
    fs_system.close(fd);
    if (length <= 0) return 0;
    text[length] = 0;
    if (sscanf(text, "%*s %*s %*s %u/", &running) != 1) return 0;
    if (online == 0) fs_store_relaxed(&known, online = (unsigned)fs_system.sysconf(_SC_NPROCESSORS_ONLN));
    return running > online;
}

int fs_crowded(int64_t now) {
    if (now - (int64_t)fs_load_relaxed(&crowd_known) > AFFINITY_INTERVAL) {
        fs_store_relaxed(&crowd_known, (uint64_t)now);
        fs_store_relaxed(&crowd, (uint32_t)is_host_crowded());
    }
    return fs_load_relaxed(&crowd) != 0;
}

int fs_shares_processor(uint32_t peer_processor) { return peer_processor == (uint32_t)sched_getcpu() + 1; }

/* Waits for longer each time before it polls again. */
static void back_off(struct fs_habit *habit) {
    uint32_t longer = 2 * fs_load_relaxed(&habit->penalty) + 1;
    uint32_t penalty = FS_MIN(longer, (uint32_t)PENALTY_MAX);
    fs_store_relaxed(&habit->penalty, penalty);
    fs_store_relaxed(&habit->skip, penalty);
}

void fs_learn(struct fs_habit *habit, struct fs_counters *count, int64_t began, int polled, int paid) {
    uint32_t score = fs_load_relaxed(&habit->score);
    if (paid) {
        fs_count(&count->polls_paid, 1);
        fs_store_relaxed(&habit->penalty, fs_load_relaxed(&habit->penalty) / 2);
        if (score < FS_SCORE_MAX) fs_store_relaxed(&habit->score, score + 1);
        return;
    }
    int soon = fs_now() - began <= WAKE_COST;
    if (polled) {
        fs_count(&count->polls_unpaid, 1);
        if (soon)
            back_off(habit); /* it came as soon as we slept: the peer needed our processor */
        else if (score > 0)
            fs_store_relaxed(&habit->score, score - 1);
    } else if (soon && score < FS_SCORE_MAX) {
        fs_store_relaxed(&habit->score, score + 1); /* polling would have caught it */
    }
}
