/* How long a connection lives, among threads that nothing keeps apart: `life [seconds [round]]`, for ThreadSanitizer above all.
 *
 * In each round threads begin and end calls on one connection. Others close it, at once or with the last call, and one keeps it and
 * lets it loose. No lock is taken. Who has the connection writes plain memory, and so do the goodbye and the release. So a goodbye
 * beside a call of a connection that waits for the last one, or a release beside anything, is a data race, and the sanitizer tells
 * of it even if the two do not meet in this run. Counted are goodbyes and releases: one of each.
 *
 * With plain_swap.h it is the negative control, which has to fail: by the sanitizer's report, or by what is counted.
 *
 * (What is counted is relaxed: nothing here may order what the core has to order.) */
#include "harness.h"

#include "internals.h"

#include <sys/wait.h>

enum { CALLERS = 3, CLOSERS = 2, CALLS = CALLERS + CLOSERS, ACTORS = CALLS + 1, MOST = 60 };

static struct shared {
    struct fs_connection c;
    pthread_barrier_t start;
    fs_word32 inside, keeping, goodbyes, releases, begun;
    fs_word32 ended;                   /* said after that, so that it orders nothing before */
    fs_word32 closes_late;             /* a closer waits for the last call */
    uint32_t touched[ACTORS], number;  /* plain: by who has the connection; by who closes it late, and who ends it then */
    int only_late;                     /* nobody ends it with calls inside */
} *the;

struct actor {
    pthread_t thread;
    uint32_t place, times;
    int closes, late;
    uint64_t random;
};

static uint32_t add(fs_word32 *count, int by) {
    return atomic_fetch_add_explicit(count, (uint32_t)by, memory_order_relaxed);
}

/* What nobody does beside those who wrote there. */
static void touch_all(uint32_t of) {
    for (uint32_t i = 0; i < of; i++) the->touched[i]++;
}

static void touch(const struct actor *me) {
    the->touched[me->place]++;
    add(&the->begun, 1);
}

static void release(void) {
    check(add(&the->releases, 1) == 0, "released twice");
    check(fs_load_relaxed(&the->goodbyes) == 1, "released before the goodbye");
    check(!fs_load_relaxed(&the->inside) && !fs_load_relaxed(&the->keeping), "released with somebody inside");
    touch_all(ACTORS);
    fs_release_side(&the->c);
    fs_note_detached(&the->c);
}

static int begin(struct fs_call *call) {
    int ended = fs_load_sc(&the->ended) != 0;
    if (!fs_call_enter(&the->c, call)) return 0;
    check(!ended, "a call has begun after the end");
    add(&the->inside, 1);
    return 1;
}

static void end(struct fs_call *call);

/* `call` has ended the connection, and is inside. */
static void say_goodbye(struct fs_call *call) {
    struct fs_counters totals = {0};
    check(add(&the->goodbyes, 1) == 0, "said goodbye twice");
    fs_store_sc(&the->ended, 1);
    fs_conn_close(&the->c, 1, &totals);
    end(call);
}

static void end(struct fs_call *call) {
    add(&the->inside, -1);
    enum fs_exit_action after = fs_call_exit(&the->c, call);
    if (after == FS_EXIT_CLOSE) {
        check(add(&the->inside, 1) == 0, "the last call was not the last");
        check(the->number == 1, "the number is another one");
        touch_all(CALLS);
        say_goodbye(call);
    }
    if (after == FS_EXIT_RELEASE) release();
}

static void *make_calls(void *argument) {
    struct actor *me = argument;
    struct fs_call call, inner;
    pthread_barrier_wait(&the->start);
    for (uint32_t i = 0; i < me->times && begin(&call); i++) {
        touch(me);
        if (one_in(&me->random, 4) && begin(&inner)) { /* as a signal handler would */
            touch(me);
            end(&inner);
        }
        if (one_in(&me->random, 8)) sched_yield();
        end(&call);
    }
    return NULL;
}

static void *close_once(void *argument) {
    struct actor *me = argument;
    struct fs_call call;
    pthread_barrier_wait(&the->start);
    for (uint32_t i = below(&me->random, 40 * MOST); i; i--) fs_cpu_relax();
    if (!me->closes || !begin(&call)) return NULL;
    touch(me);
    if (!me->late) {
        if (fs_note_ended(&the->c)) say_goodbye(&call);
        else end(&call);
    } else if (fs_note_ended_alone(&the->c)) {
        touch_all(CALLS);
        say_goodbye(&call);
    } else {
        if (fs_cas32(&the->closes_late, 0, 1)) { /* else the other one is at it */
            the->number = 1;
            check(fs_note_closing(&the->c) || !the->only_late, "it has ended with a call inside");
        }
        end(&call);
    }
    return NULL;
}

static void *keep(void *argument) {
    struct actor *me = argument;
    pthread_barrier_wait(&the->start);
    for (uint32_t i = 0; i < me->times && fs_pin(&the->c); i++) {
        add(&the->keeping, 1);
        touch(me);
        if (one_in(&me->random, 4)) sched_yield();
        add(&the->keeping, -1);
        if (fs_unpin(&the->c) == FS_EXIT_RELEASE) release();
        check(fs_unpin(&the->c) == FS_EXIT_NOTHING, "let loose twice"); /* (nobody else keeps it) */
    }
    return NULL;
}

static int open_one(void) {
    int fd = eventfd(0, EFD_CLOEXEC); /* (nothing is sent on it) */
    the = calloc(1, sizeof *the);
    check(the && fd >= 0 && fs_conn_open(&the->c, fd, 1, -1) == 0, "no connection");
    return fd;
}

static void close_one(int fd) {
    check(fs_load_relaxed(&the->goodbyes) == 1, "%u goodbyes", fs_load_relaxed(&the->goodbyes));
    check(fs_load_relaxed(&the->releases) == 1, "%u releases", fs_load_relaxed(&the->releases));
    close(fd);
    free(the);
}

static uint32_t run_round(uint64_t *random) {
    struct actor actors[ACTORS] = {0};
    struct fs_call call;
    int fd = open_one();
    the->only_late = (int)below(random, 2);
    pthread_barrier_init(&the->start, NULL, ACTORS);
    for (uint32_t i = 0; i < ACTORS; i++) {
        struct actor *me = &actors[i];
        *me = (struct actor){.place = i, .times = 1 + below(random, MOST), .closes = !one_in(random, 3),
                             .late = the->only_late || one_in(random, 2), .random = next_random(random)};
        check(pthread_create(&me->thread, NULL, i < CALLERS ? make_calls : i < CALLS ? close_once : keep, me) == 0, "no thread");
    }
    for (uint32_t i = 0; i < ACTORS; i++) pthread_join(actors[i].thread, NULL);
    if (begin(&call)) { /* nobody has closed it */
        check(fs_note_ended_alone(&the->c), "%u calls are inside", fs_calls_inside(&the->c));
        say_goodbye(&call);
    }
    check(!begin(&call) && !fs_pin(&the->c), "begun after the release");
    uint32_t calls = fs_load_relaxed(&the->begun);
    pthread_barrier_destroy(&the->start);
    close_one(fd);
    return calls;
}

static void *stay_inside(void *argument) {
    struct fs_call call;
    (void)argument;
    check(begin(&call), "it has ended");
    pthread_barrier_wait(&the->start); /* inside, */
    pthread_barrier_wait(&the->start); /* until the child is done */
    end(&call);
    return NULL;
}

/* A forked child has the calls of the thread that forked, and no others. So in the child a connection that waits ends with them. */
static void run_fork(void) {
    struct fs_call call, inner;
    pthread_t thread;
    int status, fd = open_one();
    pthread_barrier_init(&the->start, NULL, 2);
    check(pthread_create(&thread, NULL, stay_inside, NULL) == 0, "no thread");
    pthread_barrier_wait(&the->start);
    check(begin(&call) && begin(&inner) && !fs_note_ended_alone(&the->c), "alone, or ended");
    the->number = 1;
    check(fs_note_closing(&the->c), "it has ended");
    pid_t child = fork();
    check(child >= 0, "fork: %m");
    if (child == 0) {
        fs_become_process();
        fs_slab_forget();
        fs_conn_inherit(&the->c);
        check(fs_calls_inside(&the->c) == 2, "%u calls are inside", fs_calls_inside(&the->c));
        check(fs_call_exit(&the->c, &inner) == FS_EXIT_NOTHING, "one call more is inside");
        check(fs_call_exit(&the->c, &call) == FS_EXIT_CLOSE, "another thread's call is inside");
        check(!fs_has_other_users(&the->c) && fs_call_exit(&the->c, &call) == FS_EXIT_RELEASE, "somebody has it");
        end_at_once(0);
    }
    check(waitpid(child, &status, 0) == child && status == 0, "the child has failed");
    end(&inner);
    end(&call);
    check(!fs_has_ended(&the->c), "it has ended with a call inside");
    pthread_barrier_wait(&the->start);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&the->start);
    close_one(fd);
}

int main(int count, char **arguments) {
    struct rounds rounds = begin_rounds(count, arguments);
    uint64_t random, calls = 0;
    fs_become_process();
    run_fork();
    while (next_round(&rounds, &random)) calls += run_round(&random);
    printf("%u rounds, %" PRIu64 " calls\n", rounds.done, calls);
    return 0;
}
