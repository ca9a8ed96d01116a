/* What the programs share whose scenarios fail by place: waiting.c and others.c. A run is a process, and does its scenario with the
 * failure and once more without. Nothing hangs; a byte that was sent comes, or somebody is told of an error; and afterwards no
 * descriptor, no allocation and no mapping is missing.
 *
 * Built with sites.h, for tests/test_sites.py, each place where the scenarios ask the system fails once (sweep.h). Built without, each
 * scenario is done once and nothing fails. */
#ifndef FASTSOCK_TESTS_RUNS_H
#define FASTSOCK_TESTS_RUNS_H

#pragma GCC diagnostic ignored "-Wunused-function" /* of frontend.h, which has more than a program needs */
#include "frontend.h"

#include <signal.h>

#include "calls.h"

enum { MOST_SECONDS = 30 /* of a run */, MOST_SCENARIOS = 16 };

struct scenario {
    const char *name;
    void (*run)(void);
};
static const struct scenario *scenarios; /* of the program */

static struct counts {
    int descriptors, allocations, mappings;
} *counts;
static struct end ends[2];
static pthread_mutex_t locks[2] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static struct fs_set *set;
static int strict, fell, lost; /* the failure came; an end was told of an error */
static const char *at = "";

__attribute__((noreturn)) static void violate(const char *what) {
    fprintf(stderr, "%s, at \"%s\": %s\n", strict ? "without a failure" : "after the failure", at, what);
    end_at_once(2);
}

static void on_alarm(int number) {
    (void)number;
    violate("it hangs");
}

/* What a call of the front end was told. Whether it goes on. */
static int goes_on(int64_t result) {
    if (result >= 0) return 1;
    if (strict) {
        fprintf(stderr, "error %" PRId64 "\n", -result);
        violate("an error");
    }
    lost = 1;
    return 0;
}

static int open_two(int moves) {
    static const struct fs_manner manner = {4, 0, 0};
    int fds[2], was = armed;
    size_t size;
    lost = 0;
    armed = 0;
    connect_pair(fds);
    void *memory = make_region(8, 1024, &size);
    armed = was;
    for (int s = 0; s < 2; s++) {
        ends[s] = (struct end){.lock = &locks[s], .memory = memory, .size = size, .side = s, .set = s == 1 ? set : NULL};
        goes_on(open_end(&ends[s], fds[s]));
    }
    for (int s = 0; moves && !lost && s < 2; s++) goes_on(attach_end(&ends[s], &manner));
    return !lost;
}

static void close_two(void) {
    for (int s = 0; s < 2; s++) {
        if (set && ends[s].set && fs_load_relaxed(&ends[s].open)) fs_leave_seat(&ends[s].c, set);
        close_end(&ends[s], 1);
    }
    munmap(ends[0].memory, ends[0].size);
}

/* One byte, from one end to the other. */
static void put(int s) {
    struct fs_call call;
    int64_t sent = -EAGAIN;
    for (double until = seconds_now() + PATIENCE; !lost && (sent == -EAGAIN || sent == -EINTR || sent == -ENOBUFS || sent == -ENOMEM);) {
        if (!begin_call(&ends[s], &call)) return;
        sent = fs_try_send(&ends[s].c, "x", 1, MSG_NOSIGNAL);
        end_call(&ends[s], &call);
        if (seconds_now() > until) violate("nothing can be sent");
    }
    if (!lost) goes_on(sent);
}

static void get(int s) {
    struct fs_call call;
    char byte;
    int64_t got = -EAGAIN;
    for (double until = seconds_now() + PATIENCE; !lost && (got == -EAGAIN || got == -EINTR || got == -ENOMEM);) {
        if (!begin_call(&ends[s], &call)) return;
        got = fs_try_receive(&ends[s].c, &byte, 1, 0, 1);
        if (got == -EAGAIN) wait_for(&ends[s], FS_RECEIVE, fs_now() + 5000000, 0);
        end_call(&ends[s], &call);
        if (seconds_now() > until) violate("the byte is lost");
    }
    if (!lost) goes_on(got);
    if (!lost && got != 1) violate("the stream has ended");
}

/* To the end of the stream, or to an error of the connection, which is its end too. */
static void read_end(int s) {
    struct fs_call call;
    char bytes[1024];
    int64_t got = -EAGAIN;
    for (double until = seconds_now() + PATIENCE; got > 0 || got == -EAGAIN || got == -EINTR || got == -ENOMEM;) {
        if (!begin_call(&ends[s], &call)) return;
        got = fs_try_receive(&ends[s].c, bytes, sizeof bytes, 0, 1);
        if (got == -EAGAIN) wait_for(&ends[s], FS_RECEIVE, fs_now() + 5000000, 0);
        end_call(&ends[s], &call);
        if (seconds_now() > until) violate("the stream has no end");
    }
    if (strict && got && got != -ECONNRESET) violate("an error");
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

/* Regions and pages of sets: what is left of those is never given back. */
static int count_mappings(void) {
    char line[512];
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) count += strstr(line, "memfd:") != NULL;
    fclose(maps);
    return count;
}

static void take_stock(const struct counts *wanted) {
    double until = seconds_now() + 3; /* (what is dropped is dropped by a thread) */
    do counts->descriptors = open_descriptors();
    while (wanted && counts->descriptors > wanted->descriptors && seconds_now() < until && usleep(1000) == 0);
    counts->allocations = (int)fs_load_sc(&allocations);
    counts->mappings = count_mappings();
}

static int run_apart(int which, int fails) {
    static struct counts all[MOST_SCENARIOS];
    const struct counts *wanted = &all[which];
    int status;
    pid_t process = fork();
    check(process >= 0, "fork: %m");
    if (process == 0) {
        static fs_word32 ignored[PLACES][CALLS];
        signal(SIGALRM, on_alarm);
        alarm(MOST_SECONDS);
        become_front_end();
        is_program = 1;
        home = getpid();
        calls_made = ignored;
        plan.fired = &fell;
        for (int again = 0; again < 2; again++) {
            strict = again || !fails;
#ifdef FS_AT
            if (again) fs_store_sc(&sweep->armed, 0);
#endif
            armed = 1;
            scenarios[which].run();
            armed = 0;
        }
        take_stock(fails ? wanted : NULL);
        end_at_once(0);
    }
    check(waitpid(process, &status, 0) == process, "waitpid: %m");
    if (!fails) all[which] = *counts;
    int well = !status && counts->descriptors <= wanted->descriptors && counts->allocations <= wanted->allocations &&
               counts->mappings <= wanted->mappings;
    if (!well)
        fprintf(stderr, "FAILED: %s: status %#x, descriptors %d of %d, allocations %d of %d, mappings %d of %d\n", scenarios[which].name, (unsigned)status, counts->descriptors, wanted->descriptors, counts->allocations, wanted->allocations,
                counts->mappings, wanted->mappings);
    return well;
}

#ifdef FS_AT
static int run_swept(int which) { return run_apart(which, sweep->chain.links > 0); }
#endif

/* All runs of `count` scenarios. The program's status. */
static int run_all(const struct scenario *all, int count) {
    check(count <= MOST_SCENARIOS, "%d scenarios", count);
    scenarios = all;
    signal(SIGPIPE, SIG_IGN);
    fill_pattern();
    counts = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(counts != MAP_FAILED, "mmap: %m");
    have_processors_to_spare();
    take_the_calls();
#ifdef FS_AT
    return sweep_all(count, run_swept) != 0;
#endif
    for (int which = 0; which < count; which++) check(run_apart(which, 0), "the scenario itself fails: %s", all[which].name);
    return 0;
}

#endif
