/* Decides how long a wait may spin before it sleeps, for threads and loops. */
#pragma once

#include "ring/ring.h"

/* Statistics of waits: a score, waits left without spinning, and their number the last time. Relaxed: threads that wait at the same time
 * share it, and an update may be lost. */
struct fs_spin_stats {
    fs_word32 score, skip, penalty;
    fs_word32 lost; /* spins within which another thread had this CPU: each adds FS_LOST_SHARE, one that kept it takes 1 away */
};

enum {
    FS_SCORE_MAX = 16,
    FS_SCORE_SPINS = 4,     /* waits spin from this score on; a new score is in the middle */
    FS_SPIN_ROUNDS = 64,          /* looks at the ring between two looks at the clock */
    FS_LOST_CPU = 5000,     /* ns between two looks at the clock: another thread had this CPU meanwhile */
    FS_LOST_SHARE = 8,      /* with one lost spin among so many that kept the CPU `lost` stays as it is */
    FS_LOST_MOST = 16,      /* beyond it a spin counts as unpaid */
};

extern int64_t fs_spin_ns;            /* longest spin before a sleep, ns; 0: never spin */
extern struct fs_spin_stats fs_kernel_spin_stats; /* shared by all connections on kernel TCP */

/* 1 + the CPU of the peer with which this thread exchanged bytes last; 0: unknown. A thread that waits for several connections most likely
 *   waits
 * for that peer: a proxy for the server that it has asked, and not for the client that has asked it. */
extern __thread uint32_t fs_last_peer_cpu FS_TLS_MODEL;

/* Sets the score to the middle. */
void fs_spin_stats_init(struct fs_spin_stats *stats);

/* Returns the nanoseconds that a wait may spin: 0 if spinning has not paid, or if the peer needs this CPU. With several CPUs the
 * scheduler moves one of the two (`fs_shares_cpu`). With one, nobody is moved: then the wait spins only for a peer known to be
 * elsewhere. */
int64_t fs_spin_budget(struct fs_spin_stats *stats, int64_t now, uint32_t peer_processor);

/* Returns true if others wait for a CPU. A look at the kernel's stream is a system call, and a yield after it runs any waiting thread,
 * perhaps not the peer's: such a spin costs many times the price of a sleep, and gains nothing. */
int fs_cpus_are_busy(int64_t now);

/* Returns true if the peer last ran on this CPU (`peer_processor`: its number + 1, 0: unknown). Then a yield must follow each look: the
 * peer gets the CPU at once, and since both stay runnable the scheduler moves one of them to an idle CPU within a tick. Two that sleep
 * and wake each other would stay together forever. */
int fs_shares_cpu(uint32_t peer_processor);

/* Counts the host's CPUs: when the process begins, since the C library takes much of the stack for it. */
void fs_count_processors(void);

/* Yields to a peer on this CPU, at about `now`. Returns false without a yield if an earlier one took long: then a busy program has the CPU
 * for a whole slice, and not the peer. The caller sleeps instead, since the scheduler runs who is woken before a busy program. */
int fs_yield_to_peer(int64_t now);

/* A spin for several connections is over, within which another thread had this CPU (FS_LOST_CPU), or not. */
void fs_spin_note_cpu(struct fs_spin_stats *stats, int lost);

/* Updates the statistics with a finished wait that began at `began` (monotonic ns). `paid`: the spin found what the wait was for. */
void fs_spin_stats_update(struct fs_spin_stats *stats, struct fs_counters *count, int64_t began, int polled, int paid);
