/* Each system call and each allocation of the core fails once: `failures [seconds [round]]`; 0 seconds: all of them,
 * in some minutes.
 *
 * A run is a process. Two ends of a connection open, carry bytes on the kernel, move, are exposed, plugged, carry
 * urgent bytes, leave, half-close and end. At the n-th call of one kind, of this thread, of the connection thread or of
 * the process of a bridge, the core is told that it failed. What has to hold then: nothing crashes or hangs; each byte arrives in its place, or
 * an end is told of an error; nobody sees an end of the stream too early of which nobody was told. Then all of it is
 * done once more in the same process without a failure: this must succeed, and afterwards no descriptor, no allocation
 * and no block of shared memory is missing. A round number names the run, so that it can be made again.
 *
 * The core asks the system by a table, and this program puts its own functions there (calls.h). */
#include "frontend.h"

#include <dirent.h>
#include <signal.h>

#include "calls.h"

enum variant { GOES_ON, LEAVES, BRIDGES, TALKS, STOPPED, VARIANTS };

static const char *const variants[VARIANTS] = {"goes on", "leaves", "leaves by a bridge", "talks across a bridge",
                                             "leaves beside a peer that is stopped as it sends again"};

enum { MOST_SECONDS = 30 /* of a run */, MOST_BLOCKS = 4096, SLAB = 65536, BLOCK = 64 /* as in registry/memory.c */ };

struct counts { /* of what a process has after its runs */
    int descriptors, allocations, slabs, side_blocks, ends_blocks;
};

static struct shared {
    struct counts counts;
    fs_word32 calls[2][PLACES][CALLS]; /* of what is done with the failure, and once more */
    int fired, told;     /* the failure has come; how many calls told the program of an error */
    char step[64];
} *shared;

static struct end ends[2];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct stream {
    uint64_t sent, received;
} streams[2]; /* by the end that sends */
static int failed[2], strict;
static char buffer[LARGEST];

#define step(...) snprintf(shared->step, sizeof shared->step, __VA_ARGS__)

__attribute__((noreturn, format(printf, 1, 2))) static void violate(const char *format, ...) {
    va_list arguments;
    armed = 0;
    va_start(arguments, format);
    fprintf(stderr, "%s, at \"%s\": ", strict ? "without a failure" : "after the failure", shared->step);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "; sent %" PRIu64 " %" PRIu64 ", received %" PRIu64 " %" PRIu64 ", failed %d %d\n", streams[0].sent,
            streams[1].sent, streams[0].received, streams[1].received, failed[0], failed[1]);
    for (int s = 0; s < 2; s++)
        if (fs_own(&ends[s].c)) show_end(&ends[s]);
    _exit(2);
}

static void on_alarm(int number) {
    (void)number;
    violate("it hangs");
}

/* ---- the program ----------------------------------------------------------------------------------------------- */

static int alive(int s) { return fs_load_relaxed(&ends[s].open) && !failed[s]; }

/* A call has told the program of an error. One that passes is no end; behind any other one the program closes. */
static void tell(int s, int64_t error) {
    const char *name = error == FS_VIOLATED ? ends[s].c.vi.violation : strerror((int)-error);
    if (strict) violate("end %d is told of error %" PRId64 " (%s)", s, error, name);
    shared->told++;
    if (error == -EINTR || error == -ENOMEM || error == -ENOBUFS) return;
    failed[s] = 1;
    if (error == FS_VIOLATED) dissolve_end(&ends[s]);
    close_end(&ends[s], 1);
}

/* One receive call of end `s`. Whether something came. */
static int take(int s, size_t room, int flags) {
    struct stream *from = &streams[!s];
    struct fs_call call;
    if (!alive(s) || !begin_call(&ends[s], &call)) return 0;
    int64_t got = fs_try_receive(&ends[s].c, buffer, room, flags, 1);
    end_call(&ends[s], &call);
    if (got == -EAGAIN) return 0;
    if (got < 0) {
        tell(s, got);
        return 0;
    }
    if (got > 0 && memcmp(buffer, pattern_at(from->received), (size_t)got) != 0) violate("end %d gets wrong bytes", s);
    if (!(flags & MSG_PEEK)) from->received += (uint64_t)got;
    if (from->received > from->sent) violate("end %d gets more than was sent", s);
    if (got == 0 && from->received < from->sent) {
        if (!failed[0] && !failed[1]) violate("the stream ends too early for end %d", s);
        failed[s] = 1;
        close_end(&ends[s], 1);
    }
    return got > 0;
}

static void pause_for(int s, int what) {
    struct fs_call call;
    if (!alive(s) || !begin_call(&ends[s], &call)) return;
    wait_for(&ends[s], what, fs_now() + 20000000, 0);
    end_call(&ends[s], &call);
}

/* Reads what the other end has sent. */
static void drain_stream(int s) {
    double until = seconds_now() + PATIENCE;
    while (alive(s) && streams[!s].received < streams[!s].sent) {
        if (!take(s, 1 + streams[!s].received % 9000, 0)) pause_for(s, FS_RECEIVE);
        if (seconds_now() > until) violate("end %d gets nothing more", s);
    }
}

/* `length` bytes from end `s`; the other one reads when there is no room. `urgent`: the last one is. */
static void send_bytes(int s, uint64_t length, int urgent) {
    double until = seconds_now() + PATIENCE;
    uint64_t end = streams[s].sent + length;
    struct fs_call call;
    while (alive(s) && streams[s].sent < end) {
        const char *data = (const char *)pattern_at(streams[s].sent);
        size_t part = (size_t)(end - streams[s].sent < 40000 ? end - streams[s].sent : 40000);
        if (!begin_call(&ends[s], &call)) return;
        int rings = urgent && fs_is_attached(&ends[s].c);
        int64_t sent = rings ? fs_try_send_urgent(&ends[s].c, data, part, MSG_NOSIGNAL)
                             : fs_try_send(&ends[s].c, data, part, MSG_NOSIGNAL);
        end_call(&ends[s], &call);
        if (sent > 0) streams[s].sent += (uint64_t)sent;
        else if (sent != -EAGAIN) tell(s, sent);
        else if (!take(!s, 20000, 0)) pause_for(s, FS_SEND);
        if (seconds_now() > until) violate("end %d can send nothing more", s);
    }
}

static int is_polled(int s, short events) {
    struct pollfd polled = {ends[s].number, events, 0};
    struct timespec nothing = {0, 0};
    return syscall(SYS_ppoll, &polled, 1, &nothing, NULL, 0) > 0;
}

/* Until the descriptor of end `s` is called what it has to be, or an end is told of something. */
static void await_poll(int s, short events, const char *what) {
    double until = seconds_now() + PATIENCE;
    int told = shared->told;
    while (alive(0) && alive(1) && shared->told == told && !is_polled(s, events)) {
        if (seconds_now() > until) violate("end %d is never called %s", s, what);
        usleep(200);
    }
}

/* ---- what happens ------------------------------------------------------------------------------------------------ */

static void attach(int s) {
    static const struct fs_manner manner = {4, 8192, 1};
    if (!alive(s)) return;
    int result = attach_end(&ends[s], &manner);
    if (result && strict) violate("attaching: %s", strerror(-result));
}

/* Full of bytes, until POLLOUT is false; and true again once they are read. */
static void fill_and_plug(int s) {
    struct fs_call call;
    int full = 0;
    for (int tries = 0; alive(s) && alive(!s) && !full && tries < 10000; tries++) {
        if (!begin_call(&ends[s], &call)) return;
        int64_t sent = fs_try_send(&ends[s].c, (const char *)pattern_at(streams[s].sent), 3000, MSG_NOSIGNAL);
        if (sent == -EAGAIN) full = fs_plug_if_full(&ends[s].c);
        end_call(&ends[s], &call);
        if (sent > 0) streams[s].sent += (uint64_t)sent;
        else if (sent != -EAGAIN) tell(s, sent);
    }
    if (strict && full && is_polled(s, POLLOUT)) violate("end %d is called writable and is not", s);
    drain_stream(!s);
    await_poll(s, POLLOUT, "writable");
}

static void half_close(int s) {
    struct fs_call call;
    if (!alive(s) || !begin_call(&ends[s], &call)) return;
    while (fs_shut(&ends[s].c, 0, 1) == -EINTR) {}
    end_call(&ends[s], &call);
    syscall(SYS_shutdown, ends[s].number, SHUT_WR);
}

/* To the end of the other one's stream. */
static void read_to_end(int s) {
    double until = seconds_now() + PATIENCE;
    struct fs_call call;
    drain_stream(s);
    while (alive(s)) {
        if (!begin_call(&ends[s], &call)) return;
        int64_t got = fs_try_receive(&ends[s].c, buffer, sizeof buffer, 0, 1);
        end_call(&ends[s], &call);
        if (got == 0) return;
        if (got > 0) violate("end %d gets %" PRId64 " bytes that nobody sent", s, got);
        if (got != -EAGAIN) tell(s, got);
        else pause_for(s, FS_RECEIVE);
        if (seconds_now() > until) violate("the stream to end %d has no end", s);
    }
}

static void leave_ring(int s, int may_bridge) {
    if (!alive(s)) return;
    if (leave_end(&ends[s], may_bridge) != FS_DISSOLVED) return;
    if (strict) violate("end %d had to give up the connection", s);
    failed[s] = 1;
    close_end(&ends[s], 1);
}

static void on_the_ring(void) {
    step("both ways");
    for (int i = 0; i < 12; i++) {
        send_bytes(i % 2, (uint64_t)(1 + i * i * 37 % 3000), 0);
        if (i % 3 == 2) drain_stream(1 - i % 2);
    }
    drain_stream(0);
    drain_stream(1);
    if (strict && !(fs_sends_on_ring(&ends[0].c) && fs_sends_on_ring(&ends[1].c))) violate("it has not moved");
    step("a large send");
    send_bytes(0, 200000, 0);
    drain_stream(1);
    step("exposed with bytes unread");
    send_bytes(0, 700, 0);
    if (alive(1)) expose_end(&ends[1]);
    await_poll(1, POLLIN, "readable");
    drain_stream(1);
    if (strict && is_polled(1, POLLIN)) violate("end 1 is called readable with nothing to read");
    step("exposed");
    for (int i = 0; i < 5; i++) send_bytes(0, 100, 0);
    await_poll(1, POLLIN, "readable");
    take(1, 50, MSG_PEEK);
    drain_stream(1);
    step("urgent");
    send_bytes(0, 30, 1);
    drain_stream(1);
    step("full");
    if (alive(0)) expose_end(&ends[0]);
    fill_and_plug(0);
}

static void send_urgent(int s) {
    if (!alive(s)) return;
    if (send(ends[s].number, pattern_at(streams[s].sent), 30, MSG_OOB | MSG_NOSIGNAL) == 30) streams[s].sent += 30;
    else tell(s, -errno);
}

/* The peer's stream has ended with bytes unread here, and it reads on. */
static void talk_across(void) {
    drain_stream(1);
    step("the peer ends its stream");
    half_close(1);
    step("leaving by a bridge");
    leave_ring(0, 1);
    usleep(50000); /* the bridge has nothing to do */
    step("across the bridge");
    send_bytes(0, 3000, 0);
    send_urgent(0);
    send_bytes(0, 500, 0);
    drain_stream(1);
    half_close(0);
    read_to_end(1);
}

/* What the thread sends again stops half-way until the leaver has given it up, and a bridge reads the half. */
static fs_word32 released;

static ssize_t send_half(int fd, const void *data, size_t length, int flags) {
    if (is_program || getpid() != home || length < 1000) return may_fail_send(fd, data, length, flags);
    ssize_t sent = real.send(fd, data, length / 2, flags);
    while (!fs_load_sc(&released)) usleep(1000);
    usleep(50000);
    return sent;
}

static void leave_beside_a_stopped_peer(void) {
    step("the peer stops as it sends again");
    fs_store_sc(&released, 0);
    fs_system.send = send_half;
    leave_ring(0, 1);
    fs_store_sc(&released, 1);
    drain_stream(0);
    fs_system.send = may_fail_send;
}

static void run_scenario(enum variant variant) {
    int fds[2], one = 1;
    size_t size;
    armed = 0;
    memset(streams, 0, sizeof streams);
    failed[0] = failed[1] = 0;
    connect_pair(fds);
    void *memory = make_region(8, 4096, &size);
    for (int s = 0; s < 2; s++) {
        setsockopt(fds[s], SOL_SOCKET, SO_OOBINLINE, &one, sizeof one);
        ends[s] = (struct end){.lock = &lock, .memory = memory, .size = size, .side = s};
    }
    armed = 1;
    step("opening");
    for (int s = 0; s < 2; s++) {
        int result = open_end(&ends[s], fds[s]);
        if (result && strict) violate("opening: %s", strerror(-result));
        failed[s] = result != 0;
    }
    step("on the kernel");
    send_bytes(0, 3000, 0);
    take(1, 1000, 0);
    step("attaching");
    pause_for(1, FS_RECEIVE);
    pause_for(0, FS_RECEIVE); /* for nothing: so that there are news (news.h) */
    attach(1);
    send_bytes(1, 10, 0);
    attach(0);
    on_the_ring();
    step("unread on both sides");
    send_bytes(0, 5000, 0);
    send_bytes(1, 6000, 0);
    take(1, 100, 0);
    if (variant == LEAVES) {
        step("leaving");
        leave_ring(1, 0);
        step("gone back");
        for (int i = 0; i < 4; i++) send_bytes(i % 2, 2000, 0);
    }
    if (variant == BRIDGES) {
        drain_stream(1);
        step("the peer closes");
        half_close(1);
        half_close(0);
        read_to_end(1);
        if (alive(1)) close_end(&ends[1], 1);
        step("leaving by a bridge");
        leave_ring(0, 1);
    }
    if (variant == TALKS) talk_across();
    if (variant == STOPPED) leave_beside_a_stopped_peer();
    step("the end");
    drain_stream(0);
    drain_stream(1);
    if (variant != BRIDGES && variant != TALKS) {
        half_close(0);
        read_to_end(1);
        send_bytes(1, 500, 0);
        if (alive(1)) close_end(&ends[1], 1);
    }
    read_to_end(0);
    step("closing");
    for (int s = 0; s < 2; s++) close_end(&ends[s], 1);
    munmap(memory, size);
    if (!failed[0] && !failed[1] && (streams[0].received != streams[0].sent || streams[1].received != streams[1].sent))
        violate("bytes are missing");
    armed = 0;
}

/* ---- what is left ------------------------------------------------------------------------------------------------ */

static int count_descriptors(void) {
    DIR *all = opendir("/proc/self/fd");
    int count = -1;
    while (readdir(all)) count++;
    closedir(all);
    return count;
}

/* Blocks of one size that are free in the slabs that there are. */
static int count_blocks(size_t size) {
    static void *taken[MOST_BLOCKS];
    int count = 0;
    no_slabs = 1;
    while (count < MOST_BLOCKS && (taken[count] = fs_new_block(size))) count++;
    for (int i = 0; i < count; i++) fs_free_block(taken[i], size);
    no_slabs = 0;
    return count;
}

/* (The process of a bridge holds the side's memory until it ends, by itself: all of the first slabs comes back.) */
static void take_stock(struct counts *counts) {
    int of_side = SLAB / (int)((sizeof(struct fs_side) + BLOCK - 1) / BLOCK * BLOCK), of_ends = SLAB / BLOCK;
    double until = seconds_now() + 3;
    do {
        counts->side_blocks = count_blocks(sizeof(struct fs_side));
        counts->ends_blocks = count_blocks(fs_ends_size(8));
    } while ((counts->side_blocks < of_side || counts->ends_blocks < of_ends) && seconds_now() < until &&
             usleep(1000) == 0);
    counts->descriptors = count_descriptors();
    counts->allocations = (int)fs_load_sc(&allocations);
    counts->slabs = (int)fs_load_sc(&slabs);
}

/* ---- runs ------------------------------------------------------------------------------------------------------ */

/* A run of its own: the scenario with the failure that is planned, and once more without. Its status. */
static int run_apart(enum variant variant, int fails) {
    int status;
    if (shared) munmap(shared, sizeof *shared); /* an old bridge's process may still write to it */
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(shared != MAP_FAILED, "mmap: %m");
    fflush(stdout);
    pid_t process = fork();
    check(process >= 0, "fork: %m");
    if (process == 0) {
        signal(SIGALRM, on_alarm);
        signal(SIGPIPE, SIG_IGN);
        alarm(MOST_SECONDS);
        become_front_end();
        is_program = 1;
        home = getpid();
        calls_made = shared->calls[0];
        fs_store_sc(&allocations, 0);
        plan.fired = &shared->fired;
        strict = !fails;
        run_scenario(variant);
        calls_made = shared->calls[1];
        strict = 1;
        plan.n = -1;
#ifdef FS_AT
        if (sweep) fs_store_sc(&sweep->armed, 0);
#endif
        run_scenario(variant);
        take_stock(&shared->counts);
        _exit(0);
    }
    check(waitpid(process, &status, 0) == process, "waitpid: %m");
    return status;
}

/* A run's number: the variant, where, which call, which error, and the n-th one. */
static uint64_t number_of(int variant, int where, int call, int error, int n) {
    int kind = ((variant * PLACES + where) * CALLS + call) * MOST_ERRORS + error;
    return (uint64_t)kind << 20 | (uint64_t)n;
}

static int problems;

/* Makes the run of this number, and judges it. Whether the failure has come. */
static int run_number(uint64_t number, const struct counts *wanted) {
    uint64_t rest = number >> 20;
    plan.n = (int)(number & 0xfffff);
    plan.error = error_of((int)(rest / MOST_ERRORS % CALLS), (int)(rest % MOST_ERRORS));
    plan.call = (int)(rest / MOST_ERRORS % CALLS);
    plan.where = (int)(rest / MOST_ERRORS / CALLS % PLACES);
    int variant = (int)(rest / MOST_ERRORS / CALLS / PLACES);
    current_round = number;
    int status = run_apart((enum variant)variant, 1);
    const struct counts *left = &shared->counts;
    const char *wrong = status ? "it ended badly"
                        : left->descriptors > wanted->descriptors ? "a descriptor is left"
                        : left->allocations > wanted->allocations ? "an allocation is left"
                        : left->slabs != wanted->slabs || left->side_blocks != wanted->side_blocks ||
                                  left->ends_blocks != wanted->ends_blocks ? "a block is missing" : NULL;
    if (wrong) {
        problems++;
        fprintf(stderr, "FAILED in round 0x%" PRIx64 ": %s, %s number %d %s: %s: %s (status %#x;"
                " descriptors %d of %d, allocations %d of %d, slabs %d of %d, blocks %d of %d and %d of %d)\n", number,
                variants[variant], call_names[plan.call], plan.n,
                places[plan.where], strerror(plan.error), wrong,
                (unsigned)status, left->descriptors, wanted->descriptors, left->allocations, wanted->allocations, left->slabs, wanted->slabs, left->side_blocks, wanted->side_blocks,
                left->ends_blocks, wanted->ends_blocks);
    }
    return shared->fired;
}

static struct kind {
    int variant, where, call, error, most; /* what fails, and how often the scenario calls it there */
} kinds[VARIANTS * PLACES * CALLS * MOST_ERRORS];

/* All that the scenario can meet. Fails if there is a call in the table that it never makes, and that is not named here. */
static int list_kinds(uint32_t (*calls)[PLACES][CALLS]) {
    static const enum call elsewhere[] = {
        CALL_sendto,                            /* to who looks from outside */
        CALL_kill, CALL_pidfd_open, CALL_stat, CALL_tgkill, /* about forked holders */
        CALL_pthread_atfork,                    /* by a front end that forks */
        CALL_madvise, CALL_munmap,              /* of a region that the core has made */
        CALL_mincore,                           /* beyond the memory cap */
        CALL_fstatfs, CALL_statx,               /* of one that came, and of an eventfd that did */
        CALL_sched_getaffinity, CALL_nanosleep, /* before polling, and instead of it: by chance */
    };
    int listed = 0, made[CALLS] = {0};
    for (int v = 0; v < VARIANTS; v++)
        for (int where = 0; where < PLACES; where++)
            for (int call = 0; call < CALLS; call++) {
                made[call] |= calls[v][where][call] > 0;
                for (int e = 0; calls[v][where][call] && error_of(call, e); e++)
                    kinds[listed++] = (struct kind){v, where, call, e, (int)calls[v][where][call]};
            }
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) made[elsewhere[i]] = 1;
    for (int call = 0; call < CALLS; call++) check(made[call], "the scenario never calls %s", call_names[call]);
    return listed;
}

#ifdef FS_AT
/* One run of the sweep by place (sweep.h). */
static int run_swept(int variant) {
    static struct counts all[VARIANTS];
    struct counts *wanted = &all[variant];
    int fails = sweep->chain.links > 0, status = run_apart((enum variant)variant, fails);
    const struct counts *left = &shared->counts;
    if (!fails && !status) {
        *wanted = *left;
        wanted->allocations += 2; /* as below */
    }
    int well = !status && left->descriptors <= wanted->descriptors && left->allocations <= wanted->allocations &&
               left->slabs == wanted->slabs && left->side_blocks == wanted->side_blocks && left->ends_blocks == wanted->ends_blocks;
    if (!well)
        fprintf(stderr, "FAILED: %s: status %#x, descriptors %d of %d, allocations %d of %d, slabs %d of %d\n", variants[variant],
                (unsigned)status, left->descriptors, wanted->descriptors, left->allocations, wanted->allocations, left->slabs,
                wanted->slabs);
    return well;
}
#endif

int main(int count, char **arguments) {
    struct counts wanted[VARIANTS];
    static uint32_t calls[VARIANTS][PLACES][CALLS];
    double seconds = count > 1 ? strtod(arguments[1], NULL) : 3, until;
    uint64_t seed = (uint64_t)time(NULL) << 20 ^ (uint64_t)getpid(), runs = 0, fired = 0;
    fill_pattern();
    plan.n = -1;
    take_the_calls();
#ifdef FS_AT
    return sweep_all(VARIANTS, run_swept) != 0;
#endif
    for (int v = 0; v < VARIANTS; v++) {
        check(run_apart((enum variant)v, 0) == 0, "the scenario itself fails: %s", variants[v]);
        wanted[v] = shared->counts;
        if (v >= BRIDGES) wanted[v].allocations += 2; /* news, and the list of what a bridge holds, if needed */
        for (int i = 0; i < PLACES * CALLS; i++)
            calls[v][i / CALLS][i % CALLS] = fs_load_sc(&shared->calls[0][i / CALLS][i % CALLS]);
    }
    if (count > 2) {
        uint64_t number = strtoull(arguments[2], NULL, 0);
        int came = run_number(number, &wanted[(number >> 20) / MOST_ERRORS / CALLS / PLACES]);
        printf("%s\n", came ? "it came" : "it did not come");
        return problems != 0;
    }
    until = seconds_now() + seconds;
    int listed = list_kinds(calls);
    /* By chance, until the time is over and one has come; or in turn. (A few calls more, as no two runs are the same.) */
    for (int i = 0; seconds > 0 ? !problems && (!fired || seconds_now() < until) : i < listed; i++) {
        const struct kind *k = &kinds[seconds > 0 ? below(&seed, (uint32_t)listed) : (uint32_t)i];
        int first = seconds > 0 ? 1 + (int)below(&seed, (uint32_t)k->most) : 1;
        for (int n = first; n <= (seconds > 0 ? first : k->most + 3); n++, runs++)
            fired += (uint64_t)run_number(number_of(k->variant, k->where, k->call, k->error, n), &wanted[k->variant]);
    }
    printf("%" PRIu64 " runs, %" PRIu64 " failures came, %d problems\n", runs, fired, problems);
    return problems != 0;
}
