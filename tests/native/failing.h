/* What failures.c and search.c share, and runs.h uses: the core is told that the n-th call of one kind has failed, of the program's thread,
 * of the control thread or of the process of a bridge. A run is a process. It does a scenario with the failure, and then once more without:
 * this must succeed, and afterwards no descriptor, no allocation and no block of shared memory is missing. A round number names the run, so
 * that it can be made again; 0 seconds: all of them. The core asks the system by a table, and calls.h puts functions of its own there. */
#ifndef FASTSOCK_FAILING_H
#define FASTSOCK_FAILING_H

#pragma GCC diagnostic ignored "-Wunused-function" /* of frontend.h, which has more than this needs */
#include "frontend.h"

#include <signal.h>

#include "calls.h"

enum { MOST_SECONDS = 30 /* of a run */, MOST_VARIANTS = 12 };

struct counts { /* of what a process has after its runs */
    int descriptors, allocations, mappings, slabs, side_blocks, ends_blocks;
};

static struct shared {
    struct counts counts;
    fs_word32 calls[2][PLACES][CALLS]; /* of what is done with the failure, and once more */
    int fired, told; /* the failure has come; how many calls told the program of an error */
    char step[64];
} *shared;

__attribute__((unused)) static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct end ends[2];
static int strict, problems;

#define step(...) snprintf(shared->step, sizeof shared->step, __VA_ARGS__)

/* Of the program: its scenarios, how its ends stand, what a run has left (NULL: it was none with a failure), how many allocations more
 * than without a failure may stay, and which calls of the scenario cannot fail so. */
static void run_scenario(int variant);
static void describe(void);
static void take_stock(struct counts *counts, const struct counts *wanted);
static int may_keep(int variant);
static int is_spared(int variant, int where, int call, int error);
static const char *const *variants;

__attribute__((noreturn, format(printf, 1, 2))) static void violate(const char *format, ...) {
    va_list arguments;
    armed = 0;
    va_start(arguments, format);
    fprintf(stderr, "%s, at \"%s\": ", strict ? "without a failure" : "after the failure", shared->step);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    describe();
    _exit(2);
}

static void on_alarm(int number) {
    (void)number;
    violate("it hangs");
}

/* A run of its own: the scenario with the failure that is planned, or with none if `wanted` is NULL, and once more without one. Its
 * status. */
static int run_apart(int variant, const struct counts *wanted) {
    int status;
    if (shared) munmap(shared, sizeof *shared); /* an old bridge's process may still write to it */
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(shared != MAP_FAILED, "mmap: %m");
    fflush(stdout);
    pid_t process = fork();
    check(process >= 0, "fork: %m");
    if (process == 0) {
        signal(SIGALRM, on_alarm);
        alarm(MOST_SECONDS);
        become_front_end();
        is_program = 1;
        home = getpid();
        fs_store_sc(&allocations, 0);
        plan.fired = &shared->fired;
        for (int again = 0; again < 2; again++) {
            calls_made = &shared->calls[again][0];
            strict = again || !wanted;
            if (again) plan.n = -1;
#ifdef FS_AT
            if (again && sweep) fs_store_sc(&sweep->armed, 0);
#endif
            run_scenario(variant);
        }
        take_stock(&shared->counts, wanted);
        _exit(0);
    }
    check(waitpid(process, &status, 0) == process, "waitpid: %m");
    return status;
}

/* NULL: all is well. */
static const char *judge(int status, const struct counts *wanted) {
    const struct counts *left = &shared->counts;
    const char *wrong = status ? "it ended badly"
                        : left->descriptors > wanted->descriptors ? "a descriptor is left"
                        : left->allocations > wanted->allocations ? "an allocation is left"
                        : left->mappings > wanted->mappings ? "a mapping is left"
                        : left->slabs != wanted->slabs || left->side_blocks != wanted->side_blocks ||
                                  left->ends_blocks != wanted->ends_blocks ? "a block is missing" : NULL;
    if (wrong)
        fprintf(stderr,
                "FAILED: %s (status %#x; descriptors %d of %d, allocations %d of %d, mappings %d of %d, slabs %d of %d, blocks"
                " %d of %d and %d of %d)\n",
                wrong, (unsigned)status, left->descriptors, wanted->descriptors, left->allocations, wanted->allocations, left->mappings,
                wanted->mappings, left->slabs, wanted->slabs, left->side_blocks, wanted->side_blocks, left->ends_blocks,
                wanted->ends_blocks);
    return wrong;
}

/* A run's number: the variant, where, which call, which error, and the n-th one. */
static uint64_t number_of(int variant, int where, int call, int error, int n) {
    int kind = ((variant * PLACES + where) * CALLS + call) * MOST_ERRORS + error;
    return (uint64_t)kind << 20 | (uint64_t)n;
}

/* Makes the run of this number, and judges it. Whether the failure has come. */
static int run_number(uint64_t number, const struct counts *all) {
    uint64_t rest = number >> 20;
    plan.n = (int)(number & 0xfffff);
    plan.error = error_of((int)(rest / MOST_ERRORS % CALLS), (int)(rest % MOST_ERRORS));
    plan.call = (int)(rest / MOST_ERRORS % CALLS);
    plan.where = (int)(rest / MOST_ERRORS / CALLS % PLACES);
    int variant = (int)(rest / MOST_ERRORS / CALLS / PLACES);
    current_round = number;
    if (judge(run_apart(variant, &all[variant]), &all[variant])) {
        problems++;
        fprintf(stderr, "in round 0x%" PRIx64 ": %s, %s number %d %s: %s\n", number, variants[variant], call_names[plan.call], plan.n,
                places[plan.where], strerror(plan.error));
    }
    return shared->fired;
}

static struct kind {
    int variant, where, call, error, most; /* what fails, and how often the scenario calls it there */
} kinds[MOST_VARIANTS * PLACES * CALLS * MOST_ERRORS];
static int listed, is_made[CALLS];

/* All that a scenario can meet; it was done. */
static void list_kinds(int variant) {
    for (int where = 0; where < PLACES; where++)
        for (int call = 0; call < CALLS; call++) {
            int most = (int)fs_load_sc(&shared->calls[0][where][call]);
            is_made[call] |= most > 0;
            for (int e = 0; most && error_of(call, e); e++)
                if (!is_spared(variant, where, call, e)) kinds[listed++] = (struct kind){variant, where, call, e, most};
        }
}

#ifdef FS_AT
/* One run of the sweep by place (sweep.h). */
static int run_swept(int variant) {
    static struct counts all[MOST_VARIANTS];
    int fails = sweep->chain.links > 0, status = run_apart(variant, fails ? &all[variant] : NULL);
    if (!fails && !status) {
        all[variant] = shared->counts;
        all[variant].allocations += may_keep(variant);
    }
    int well = !judge(status, &all[variant]);
    if (!well) fprintf(stderr, "in scenario %s\n", variants[variant]);
    return well;
}
#endif

static void prepare(const char *const *names) {
    variants = names;
    signal(SIGPIPE, SIG_IGN);
    fill_pattern();
    plan.n = -1;
    take_the_calls();
}

/* Makes the runs that the arguments tell of. The program's status. */
static int run_failures(int count, char **arguments, const char *const *names, int variant_count) {
    static struct counts all[MOST_VARIANTS];
    double seconds = count > 1 ? strtod(arguments[1], NULL) : 3, until;
    uint64_t seed = (uint64_t)time(NULL) << 20 ^ (uint64_t)getpid(), runs = 0, fired = 0;
    prepare(names);
#ifdef FS_AT
    return sweep_all(variant_count, run_swept) != 0;
#endif
    for (int v = 0; v < variant_count; v++) {
        check(run_apart(v, NULL) == 0, "the scenario itself fails: %s", variants[v]);
        all[v] = shared->counts;
        all[v].allocations += may_keep(v);
        list_kinds(v);
    }
    if (count > 2) {
        printf("%s\n", run_number(strtoull(arguments[2], NULL, 0), all) ? "it came" : "it did not come");
        return problems != 0;
    }
    until = seconds_now() + seconds;
    /* By chance, until the time is over and one has come; or in turn. (A few calls more, as no two runs are the same.) */
    for (int i = 0; seconds > 0 ? !problems && (!fired || seconds_now() < until) : i < listed; i++) {
        const struct kind *k = &kinds[seconds > 0 ? below(&seed, (uint32_t)listed) : (uint32_t)i];
        int first = seconds > 0 ? 1 + (int)below(&seed, (uint32_t)k->most) : 1;
        for (int n = first; n <= (seconds > 0 ? first : k->most + 3); n++, runs++)
            fired += (uint64_t)run_number(number_of(k->variant, k->where, k->call, k->error, n), all);
    }
    printf("%" PRIu64 " runs, %" PRIu64 " failures came, %d problems\n", runs, fired, problems);
    return problems != 0;
}

#endif
