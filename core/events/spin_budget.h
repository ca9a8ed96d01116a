/* Whether polling pays: what every wait of this process goes by, of a thread or of a loop. */
#ifndef FASTSOCK_SPIN_BUDGET_H
#define FASTSOCK_SPIN_BUDGET_H

#include "ring/ring.h"

/* Whether polling pays: score, waits still to go without it, and how many that were the last time. Relaxed: threads that
 * wait at once share it, and what one of them learns may be lost to another. */
struct fs_spin_stats {
    fs_word32 score, skip, penalty;
};

enum {
    FS_SCORE_MAX = 16,
    FS_SCORE_SPINS = 4,     /* polls from this score on; a habit starts in the middle */
    FS_SPIN_ROUNDS = 64,          /* at the ring between two looks at the clock */
};

extern int64_t fs_spin_ns;            /* how long a wait may poll before it sleeps, ns; 0: never */
extern struct fs_spin_stats fs_kernel_spin_stats; /* of all connections on kernel TCP */

/* A habit that has yet to be learned: in the middle. */
void fs_spin_stats_init(struct fs_spin_stats *stats);

/* Nanoseconds that a wait may poll: nothing when it has not been paying, or where the peer needs the processor that
 * polls. With a choice of processors the scheduler moves one of the two (`fs_shares_cpu`). With one, nobody moves us:
 * then only a peer that is known to be elsewhere is polled for. */
int64_t fs_spin_budget(struct fs_spin_stats *stats, int64_t now, uint32_t peer_processor);

/* Whether others wait for a processor. A look at the kernel's stream is a system call, and a yield after it runs whoever
 * waits, who need not be the peer: such a wait then costs many times what the sleep costs, and wins nothing. */
int fs_cpus_are_busy(int64_t now);

/* Whether the peer last ran on the processor that we are on (`peer_processor`: its number + 1, 0: unknown). Then a look
 * must be followed by a yield: the peer gets the processor at once, and as both stay runnable, the scheduler moves one of
 * them to an idle processor within a tick. Two that sleep and wake each other would stay together for ever. */
int fs_shares_cpu(uint32_t peer_processor);

/* Learns from a finished wait that began at `began` (monotonic ns) whether polling pays. */
void fs_spin_stats_update(struct fs_spin_stats *stats, struct fs_counters *count, int64_t began, int polled, int paid);

#endif
