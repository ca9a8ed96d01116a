/* Every place of the core that asks the system fails once, by place: for programs that are built with sites.h.
 *
 * A run without a failure shows which places a scenario passes. Each of those fails then in a run of its own, with each error that its
 * call can have. What such a run passes for the first time lies on the way out of that error: it fails in another run, behind
 * the first failure. So a run has a chain of failures, of LINKS at most. */
#ifndef FASTSOCK_SWEEP_H
#define FASTSOCK_SWEEP_H

#include "harness.h"

#include "os/atomics.h"

#ifdef FS_AT
enum { MOST_SITES = 1024, LINKS = 3, MOST_RUNS = 4096 };

enum fate { PASSED = 1, FAILED = 2, SPARED = 4 }; /* spared: called with arguments with which it cannot fail */

struct chain {
    int variant, links, sites[LINKS], errors[LINKS];
};

__thread struct fs_site *fs_site_now;
extern struct fs_site __start_fs_sites[], __stop_fs_sites[];

static struct sweep {
    fs_word32 fates[MOST_SITES];
    fs_word32 fired; /* links of this run's chain that came */
    fs_word32 armed; /* the chain is to come */
    struct chain chain;
} *sweep;

static inline int site_now(void) {
    return fs_site_now ? (int)(fs_site_now - __start_fs_sites) : -1;
}

/* Whether the call at the present place fails, and how. */
static inline int fails_here(int *fired) {
    int at = site_now();
    if (!sweep || at < 0) return 0;
    fs_or_sc(&sweep->fates[at], PASSED);
    uint32_t link = fs_load_sc(&sweep->fired);
    if (!fs_load_sc(&sweep->armed) || (int)link >= sweep->chain.links || sweep->chain.sites[link] != at) return 0;
    if (!fs_cas32(&sweep->fired, link, link + 1)) return 0;
    fs_or_sc(&sweep->fates[at], FAILED);
    errno = sweep->chain.errors[link];
    if (fired) *fired = 1;
    return 1;
}

static inline void spare_here(void) {
    if (sweep && site_now() >= 0) fs_or_sc(&sweep->fates[site_now()], SPARED);
}
#endif
#endif
