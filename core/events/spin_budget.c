/* Decides how long a wait may spin, for threads and loops: statistics of finished waits, and the state of the CPUs. */
#include "events/spin_budget.h"

#include <stdio.h>

#include "os/syscalls.h"

#define AFFINITY_INTERVAL ((int64_t)50000000) /* ns for which the counts of usable and of busy CPUs stay valid */
#define LONG_YIELD ((int64_t)1000000)         /* ns: somebody has run for a slice; others who poll give the CPU back sooner */
#define YIELD_PAUSE_MAX ((int64_t)64000000)   /* ns without yields after a long one */
#define WAKE_COST ((int64_t)60000)            /* ns that a sleep adds to a wait, generously (docs/waiting.md) */

enum {
    PENALTY_MAX = 255, /* waits without spinning after spins that held up the peer */
};

int64_t fs_spin_ns = 50000;
struct fs_spin_stats fs_kernel_spin_stats = {.score = FS_SCORE_MAX / 2}; /* as fs_spin_stats_init */

__thread uint32_t fs_last_peer_cpu FS_TLS_MODEL;

/* Relaxed: a thread that sees the new time and the old number does not spin, or uses the old number, once. */
static fs_word32 processors;       /* usable by this process */
static fs_word64 processors_known; /* since when, monotonic ns */
static fs_word32 busy;            /* true if more threads want to run than there are CPUs */
static fs_word64 busy_known;      /* since when, monotonic ns */
/* Concurrent updates may lose one another: it is a guess. */
static fs_word64 no_yield_until; /* monotonic ns */
static fs_word64 yield_pause;    /* ns without yields after the last long one; each long one doubles it, each short one halves it */

void fs_spin_stats_init(struct fs_spin_stats *stats) {
    fs_store_relaxed(&stats->score, FS_SCORE_MAX / 2);
    fs_store_relaxed(&stats->skip, 0);
    fs_store_relaxed(&stats->penalty, 0);
    fs_store_relaxed(&stats->lost, 0);
}

/* Returns the number of CPUs that this process may use. */
static int usable_processors(void) {
    cpu_set_t set;
    return fs_system.sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

int64_t fs_spin_budget(struct fs_spin_stats *stats, int64_t now, uint32_t peer_processor) {
    uint32_t skip = fs_load_relaxed(&stats->skip);
    if (fs_spin_ns == 0 || fs_load_relaxed(&stats->score) < FS_SCORE_SPINS) return 0;
    if (skip > 0) {
        fs_store_relaxed(&stats->skip, skip - 1);
        return 0;
    }
    if (now - (int64_t)fs_load_relaxed(&processors_known) > AFFINITY_INTERVAL) {
        fs_store_relaxed(&processors, (uint32_t)usable_processors());
        fs_store_relaxed(&processors_known, (uint64_t)now);
    }
    if (fs_load_relaxed(&processors) > 1 || (peer_processor && !fs_shares_cpu(peer_processor))) return fs_spin_ns;
    return 0;
}

static unsigned online; /* the host's CPUs; 0: unknown */

void fs_count_processors(void) { online = (unsigned)FS_MAX(fs_system.sysconf(_SC_NPROCESSORS_ONLN), 0L); }

/* Returns true if more threads of the host want to run than it has CPUs. False if unknown. */
static int is_host_busy(void) {
    char text[64], *at = text;
    int64_t length;
    unsigned running = 0;
    int fd = fs_system.open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    length = fs_system.read(fd, text, sizeof text - 1);
    fs_system.close(fd);
    if (length <= 0) return 0;
    text[length] = 0;
    for (int word = 0; word < 3 && at; word++) at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL;
    for (; at && *at >= '0' && *at <= '9'; at++) running = running * 10 + (unsigned)(*at - '0');
    return online && running > online;
}

int fs_cpus_are_busy(int64_t now) {
    if (now - (int64_t)fs_load_relaxed(&busy_known) > AFFINITY_INTERVAL) {
        fs_store_relaxed(&busy_known, (uint64_t)now);
        fs_store_relaxed(&busy, (uint32_t)is_host_busy());
    }
    return fs_load_relaxed(&busy) != 0;
}

int fs_shares_cpu(uint32_t peer_processor) { return peer_processor == (uint32_t)sched_getcpu() + 1; }

int fs_yield_to_peer(int64_t now) {
    if (now < (int64_t)fs_load_relaxed(&no_yield_until)) return 0;
    sched_yield();
    int64_t then = fs_now(), pause = (int64_t)fs_load_relaxed(&yield_pause);
    if (then - now > LONG_YIELD) {
        pause = FS_MIN(FS_MAX(2 * pause, LONG_YIELD), YIELD_PAUSE_MAX);
        fs_store_relaxed(&no_yield_until, (uint64_t)(then + pause));
        fs_store_relaxed(&yield_pause, (uint64_t)pause);
    } else if (pause) {
        fs_store_relaxed(&yield_pause, (uint64_t)pause / 2);
    }
    return 1;
}

/* Doubles the number of waits before the next spin. */
static void back_off(struct fs_spin_stats *stats) {
    uint32_t longer = 2 * fs_load_relaxed(&stats->penalty) + 1;
    uint32_t penalty = FS_MIN(longer, (uint32_t)PENALTY_MAX);
    fs_store_relaxed(&stats->penalty, penalty);
    fs_store_relaxed(&stats->skip, penalty);
}

void fs_spin_note_cpu(struct fs_spin_stats *stats, int lost) {
    uint32_t before = fs_load_relaxed(&stats->lost);
    if (lost) fs_store_relaxed(&stats->lost, FS_MIN(before + FS_LOST_SHARE, (uint32_t)(2 * FS_LOST_MOST)));
    else if (before) fs_store_relaxed(&stats->lost, before - 1);
}

void fs_spin_stats_update(struct fs_spin_stats *stats, struct fs_counters *count, int64_t began, int polled, int paid) {
    uint32_t score = fs_load_relaxed(&stats->score);
    if (polled && fs_load_relaxed(&stats->lost) > FS_LOST_MOST) {
        /* Others need this CPU again and again while it polls: libzmq's thread for its sockets takes it from the threads that answer. What
         * it finds would have come as soon without, and has cost them the time. */
        fs_store_relaxed(&stats->lost, FS_LOST_MOST / 2);
        fs_count(&count->polls_unpaid, 1);
        back_off(stats);
        return;
    }
    if (paid) {
        fs_count(&count->polls_paid, 1);
        fs_store_relaxed(&stats->penalty, fs_load_relaxed(&stats->penalty) / 2);
        if (score < FS_SCORE_MAX) fs_store_relaxed(&stats->score, score + 1);
        return;
    }
    int soon = fs_now() - began <= WAKE_COST;
    if (polled) {
        fs_count(&count->polls_unpaid, 1);
        if (soon)
            back_off(stats); /* it came as soon as this thread slept: the peer needed this CPU */
        else if (score > 0)
            fs_store_relaxed(&stats->score, score - 1);
    } else if (soon && score < FS_SCORE_MAX) {
        fs_store_relaxed(&stats->score, score + 1); /* spinning would have caught it */
    }
}
