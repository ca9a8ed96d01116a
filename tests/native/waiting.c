/* What waits: event sets and their offers, threads that the connection thread watches for, calls in the kernel's own recv and send,
 * forks, looks at the peer, and what is asked in single calls. Built with sites.h, for tests/test_sites.py, each place where these ask
 * the system fails once (sweep.h). Built without, each scenario is done once and nothing fails.
 *
 * A run is a process, and does its scenario with the failure and once more without. Nothing hangs; a byte that was sent comes, or
 * somebody is told of an error; and afterwards no descriptor, no allocation and no mapping is missing. */
#pragma GCC diagnostic ignored "-Wunused-function" /* of frontend.h, which has more than this needs */
#include "frontend.h"

#include <dirent.h>
#include <signal.h>

#include "calls.h"
#include "channel/dropping.h"
#include "channel/seen.h"
#include "connection/blocking.h"
#include "connection/drive.h"
#include "connection/lifeline.h"
#include "transport/tcp.h"

enum variant { SET, SLEEPERS, BLOCKING, FORK, PEER, SINGLE, VARIANTS };
enum { MOST_SECONDS = 30 };

static const char *const variants[VARIANTS] = {"a set", "sleepers", "blocking", "a fork", "looks at the peer",
                                             "single calls"};
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

/* ---- scenarios ------------------------------------------------------------------------------------------------- */

static void sleep_in_set(void) {
    struct pollfd waits = {.fd = set->epoll, .events = POLLIN};
    uint32_t hints[FS_HINTS];
    struct fs_connection *c = &ends[1].c;
    enter(&ends[1]);
    fs_rise(set);
    fs_clear_set(set);
    while (fs_take_hints(set, hints, FS_HINTS)) {}
    fs_seat(set, c);
    fs_tend(set);
    leave();
    usleep(3000); /* the offer is taken */
    int there = fs_arm_for_loop(c, 1, 0);
    there |= fs_fall_asleep(set);
    put(0);
    if (!lost && !there && poll(&waits, 1, (int)(PATIENCE * 1000)) != 1) violate("the set sleeps on");
    fs_rise(set);
    fs_disarm_receiver(&c->vi, FS_SET_ASLEEP);
    get(1);
}

static void run_set(void) {
    int failed;
    at = "a set";
    set = fs_new_set(&failed);
    if (!set) {
        goes_on(failed);
        return;
    }
    if (open_two(1)) {
        put(0);
        get(1);
        if (!lost) fs_drive_by_loop(&ends[1].c);
        at = "told by the connection thread, or by the page";
        for (int i = 0; !lost && i < 3; i++) sleep_in_set();
        at = "its eventfd was closed by the program";
        if (!lost) close((int)fs_load_relaxed(&set->fd));
        if (!lost) sleep_in_set();
        fs_rouse(set);
        fs_clear_set(set);
    }
    at = "the end of a set";
    close_two();
    fs_end_set(set);
    set = NULL;
}

static void *get_on_thread(void *nothing) {
    is_program = 1;
    get(1);
    return nothing;
}

static void run_sleepers(void) {
    pthread_t thread;
    at = "a thread sleeps";
    if (open_two(1)) {
        for (int i = 0; !lost && i < 2; i++) {
            check(pthread_create(&thread, NULL, get_on_thread, NULL) == 0, "no thread");
            usleep(12000);
            put(0);
            pthread_join(thread, NULL);
        }
        at = "a sender sleeps";
        struct fs_call call;
        int64_t sent = 1;
        while (!lost && sent > 0 && begin_call(&ends[0], &call)) {
            sent = fs_try_send(&ends[0].c, (const char *)pattern, 1024, MSG_NOSIGNAL);
            if (sent == -EAGAIN) wait_for(&ends[0], FS_SEND, fs_now() + 20000000, 0);
            end_call(&ends[0], &call);
        }
        at = "the thread ends";
        fs_stop_thread();
        fs_start_thread_again();
    }
    close_two();
}

static void run_blocking(void) {
    char byte = 0;
    int polled = 0;
    at = "blocking";
    if (open_two(0)) {
        struct fs_call call;
        for (int i = 0; i < 2 && begin_call(&ends[1], &call); i++) {
            enter(&ends[0]);
            int64_t sent = fs_send_asleep(&ends[0].c, "x", 1, MSG_NOSIGNAL);
            leave();
            enter(&ends[1]);
            int64_t got = i ? fs_receive_asleep(&ends[1].c, &byte, 1, MSG_DONTWAIT, 0)
                            : fs_receive_polling(&ends[1].c, &byte, 1, 0, &polled);
            leave();
            end_call(&ends[1], &call);
            if (strict && (sent != 1 || (got != 1 && polled))) violate("bytes are lost");
        }
    }
    close_two();
}

static fs_word32 children;
static void count_child(int by) { fs_add_sc(&children, (uint32_t)by); }

static void run_fork(void) {
    int status;
    at = "a fork";
    fs_store_sc(&children, 0);
    if (!goes_on(-fs_watch_forks(count_child))) return;
    fs_announce_fork(1);
    pid_t child = fork();
    if (child == 0) end_at_once(0);
    fs_announce_fork(0);
    check(child > 0 && waitpid(child, &status, 0) == child, "fork: %m");
    if (fs_load_sc(&children) != 1 && strict) violate("the child is not counted");
}

static void run_peer(void) {
    at = "looks at the peer";
    if (open_two(0)) {
        enum fs_peer stands = fs_peer_socket(fs_fd(&ends[0].c));
        if (strict && stands == FS_PEER_CLOSED) violate("it lives");
        close_end(&ends[1], 1);
        fs_reset_connection(fs_fd(&ends[0].c));
        fs_peer_socket(fs_fd(&ends[0].c));
        if (stands == FS_PEER_CLOSED) violate("it lived");
    }
    close_two();
}

static void run_single(void) {
    unsigned char address[16];
    int port, pair[2], was = armed;
    struct fs_asker nobody = {.address = {AF_UNIX, ""}, .size = sizeof(sa_family_t) + 9};
    at = "single calls";
    memcpy(nobody.address.sun_path + 1, "not here", 8);
    if (open_two(0)) {
        int fd = fs_fd(&ends[0].c);
        for (int remote = 0; remote < 2; remote++)
            if (fs_end_of(fd, remote, address, &port) != 4 && strict) violate("an address is unknown");
        if (fs_option_ns(fd, SO_RCVTIMEO) != -1) violate("a timeout that nobody set");
        if (fs_is_asked_at(1) && strict) violate("nobody listens there");
        fs_answer(fd, &nobody, "", 1);
        enter(&ends[0]);
        struct fs_news *joined = fs_join_news();
        fs_tell_of_number();
        if (joined) fs_leave_news(joined);
        else if (strict) violate("no news");
        leave();
    }
    close_two();
    at = "a message of a stranger";
    armed = 0;
    check(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) == 0 && write(pair[1], "", 1) == 1, "socketpair: %m");
    armed = was;
    if (!fs_drop_message(pair[0]) && strict) violate("it is not dropped");
    close(pair[0]);
    close(pair[1]);
    at = "a seeker that is a stranger";
    armed = 0;
    check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0, "socketpair: %m");
    armed = was;
    fs_drop_seeker(pair[0], 0);
    close(pair[1]);
}

static void (*const scenarios[VARIANTS])(void) = {run_set, run_sleepers, run_blocking, run_fork, run_peer, run_single};

/* ---- runs ------------------------------------------------------------------------------------------------------ */

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

static int run_apart(int variant, int fails) {
    static struct counts all[VARIANTS];
    const struct counts *wanted = &all[variant];
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
            scenarios[variant]();
            armed = 0;
        }
        take_stock(fails ? wanted : NULL);
        end_at_once(0);
    }
    check(waitpid(process, &status, 0) == process, "waitpid: %m");
    if (!fails) all[variant] = *counts;
    int well = !status && counts->descriptors <= wanted->descriptors && counts->allocations <= wanted->allocations &&
               counts->mappings <= wanted->mappings;
    if (!well)
        fprintf(stderr, "FAILED: %s: status %#x, descriptors %d of %d, allocations %d of %d, mappings %d of %d\n", variants[variant],
                (unsigned)status, counts->descriptors, wanted->descriptors, counts->allocations, wanted->allocations,
                counts->mappings, wanted->mappings);
    return well;
}

#ifdef FS_AT
static int run_swept(int variant) { return run_apart(variant, sweep->chain.links > 0); }
#endif

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    fill_pattern();
    counts = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(counts != MAP_FAILED, "mmap: %m");
    have_processors_to_spare();
    take_the_calls();
#ifdef FS_AT
    return sweep_all(VARIANTS, run_swept) != 0;
#endif
    for (int variant = 0; variant < VARIANTS; variant++) check(run_apart(variant, 0), "the scenario itself fails: %s", variants[variant]);
    return 0;
}
