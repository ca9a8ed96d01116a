/* What the programs share whose scenarios fail by place: waiting.c, others.c, polling.c and messages.c. A run is a process, and does its
 * scenario with the failure and once more without. Nothing hangs; a byte that was sent comes, or somebody is told of an error; and
 * afterwards no descriptor, no allocation and no mapping is missing.
 *
 * Built with sites.h, for tests/native/test_syscall_failures.py, each place where the scenarios ask the system fails once (sweep.h). Built
 * without, each scenario is done once and nothing fails. */
#ifndef FASTSOCK_RUNS_H
#define FASTSOCK_RUNS_H

#include "failing.h"

#include "process/fork_shared_slab.h"

struct scenario {
    const char *name;
    void (*run)(void);
};
static const struct scenario *scenarios; /* of the program */
static pthread_mutex_t locks[2] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static struct fs_poller *loop; /* of the second end */
static int lost; /* an end was told of an error */

static void describe(void) { fputc('\n', stderr); }

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
    static const struct fs_flow_options flow = {4, 0, 0};
    int fds[2], was = armed;
    size_t size;
    lost = 0;
    armed = 0;
    connect_pair(fds);
    void *memory = make_region(8, 1024, &size);
    armed = was;
    for (int s = 0; s < 2; s++) {
        ends[s] = (struct end){.lock = &locks[s], .memory = memory, .size = size, .side = s, .loop = s == 1 ? loop : NULL};
        goes_on(open_end(&ends[s], fds[s]));
    }
    for (int s = 0; moves && !lost && s < 2; s++) goes_on(attach_end(&ends[s], &flow));
    return !lost;
}

static void close_two(void) {
    for (int s = 0; s < 2; s++) {
        leave_loop(&ends[s]);
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
        got = fs_try_recv(&ends[s].c, &byte, 1, 0, 1);
        if (got == -EAGAIN) wait_for(&ends[s], FS_RECEIVE, fs_now() + 5000000, 0);
        end_call(&ends[s], &call);
        if (seconds_now() > until) violate("the byte is lost");
    }
    if (!lost) goes_on(got);
    if (!lost && got != 1) violate("the stream has ended");
}

/* To the end of the stream, or to an error of the connection, which is its end too: a reset, or `error`. */
static void read_end(int s, int64_t error) {
    struct fs_call call;
    char bytes[1024];
    int64_t got = -EAGAIN;
    for (double until = seconds_now() + PATIENCE; got > 0 || got == -EAGAIN || got == -EINTR || got == -ENOMEM;) {
        if (!begin_call(&ends[s], &call)) return;
        got = fs_try_recv(&ends[s].c, bytes, sizeof bytes, 0, 1);
        if (got == -EAGAIN) wait_for(&ends[s], FS_RECEIVE, fs_now() + 5000000, 0);
        end_call(&ends[s], &call);
        if (seconds_now() > until) violate("the stream has no end");
    }
    if (strict && got && got != -ECONNRESET && got != error) violate("an error");
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

/* What a process makes once and keeps is there: for the first call that sleeps, and for the first connection that another process holds
 * still. Whether a call has slept or found in time what it waits for, and whether a killed holder was struck out by then, is chance. */
static void make_what_stays(void) {
    struct fs_call call;
    if (open_two(1) && begin_call(&ends[1], &call)) {
        enter(&ends[1]);
        struct fs_fd_change *fd_change = fs_fd_change_subscribe();
        leave();
        fs_sleep(&ends[1].c, FS_RECEIVE, fs_now() + 1000000, fd_change);
        enter(&ends[1]);
        if (fd_change) fs_fd_change_unsubscribe(fd_change);
        struct fs_shared_side *held = fs_side_new();
        if (held) fs_side_free(held, 0);
        if (held) fs_store_sc(&held->holders, 0);
        leave();
        end_call(&ends[1], &call);
    }
    close_two();
}

static void take_stock(struct counts *counts, const struct counts *wanted) {
    double until = seconds_now() + 3; /* (what is dropped is dropped by a thread) */
    make_what_stays();
    do counts->descriptors = open_descriptors();
    while (wanted && counts->descriptors > wanted->descriptors && seconds_now() < until && usleep(1000) == 0);
    counts->allocations = (int)fs_load_sc(&allocations);
    counts->mappings = count_mappings();
}

static int may_keep(int variant) {
    (void)variant;
    return 0;
}

static int is_spared(int variant, int where, int call, int error) {
    (void)variant, (void)where, (void)call, (void)error;
    return 0;
}

static void run_scenario(int which) {
    lost = 0;
    armed = 1;
    scenarios[which].run();
    armed = 0;
}

/* All runs of `count` scenarios. The program's status. */
static int run_all(const struct scenario *all, int count) {
    static const char *names[MOST_VARIANTS];
    check(count <= MOST_VARIANTS, "%d scenarios", count);
    scenarios = all;
    for (int which = 0; which < count; which++) names[which] = all[which].name;
    have_processors_to_spare();
    prepare(names);
#ifdef FS_AT
    return sweep_all(count, run_swept) != 0;
#endif
    for (int which = 0; which < count; which++) check(run_apart(which, NULL) == 0, "the scenario itself fails: %s", names[which]);
    return 0;
}

#endif
