/* Connections of the core as it ships, without Python, for ThreadSanitizer and AddressSanitizer:
 * `connection [seconds [round]]`.
 *
 * Each round is a process, and in it one connection over loopback TCP, or several in turn. Its two ends are in this
 * process, where the sanitizers see both, or in two. Each end has sending and receiving threads, which poll, sleep,
 * or wait in the kernel's own calls before the move; or it has one thread that drives it as an event loop
 * does (loop.h). At places of the streams that chance has chosen an end moves, sends an urgent byte, goes back to
 * the kernel (while both send, and perhaps both leave), gets a forked holder that is killed with a lock held,
 * closes with calls inside, or is killed. Every byte is verified. A wait that nothing ends is a failure, and shows how
 * the ends stand; so is a step (streams.h) that no round has come to.
 *
 * The calls that ThreadSanitizer takes for synchronisation are made past it (harness.h says why). */
#include "loop.h"

enum {
    MOST_MORE = 40,     /* seconds */
    ENOUGH = 200,       /* rounds */
    BLOCKED_US = 50000, /* that a call sleeps in the kernel, at most, so that the end can move */
};

/* ---- what happens on the way ---------------------------------------------------------------------------------- */

static int count_child(int by) {
    for (int s = 0; s < 2; s++)
        if (fs_load_sc(&ends[s].open)) fs_add_sc(&fs_own(&ends[s].c)->holders, (uint32_t)by);
    if (by > 0) fs_fd_change_notify(); /* as atfork.h wants it */
    return 2;
}

/* A forked holder looks, waits and peeks. So it may be killed at any moment, and no byte is missing. */
__attribute__((noreturn)) static void be_holder(struct end *e, uint64_t random) {
    char byte[64];
    struct fs_call call;
    mind_the_end();
    while (!fs_load_sc(&the->tells_holder) && begin_call(e, &call)) {
        uint32_t what = below(&random, 4);
        int64_t soon = fs_now() + 1000 * (int64_t)below(&random, 20000);
        if (what == 0) fs_try_recv(&e->c, byte, sizeof byte, MSG_PEEK, 1);
        if (what == 1) wait_for(e, FS_RECEIVE, soon, 1);
        if (what == 2) wait_for(e, FS_SEND, soon, 1);
        if (what == 3 && fs_is_attached(&e->c)) fs_handle_request(&e->c, -1);
        end_call(e, &call);
    }
    close_end(e, 1);
    end_at_once(0);
}

static void hold(struct end *e, uint64_t random) {
    enter(e);
    holder = fork_holder();
    if (holder == 0) {
        fs_conn_inherit(&e->c);
        e->asked = 0;
        leave();
        be_holder(e, random);
    }
    leave();
}

static void end_process(pid_t *process, int kills) {
    int status = 0;
    if (*process <= 0) return;
    if (kills) kill(*process, SIGKILL);
    check(waitpid(*process, &status, 0) == *process, "waitpid: %m");
    *process = 0;
    if (!kills && status) lose("another process has failed with status %#x", (unsigned)status);
}

static void happen(const struct event *event, uint64_t *random) {
    struct end *e = &ends[event->side];
    int result = 0;
    fs_add_sc(&the->done[event->what], 1);
    switch (event->what) {
    case ATTACH:
        if (the->driven[event->side]) {
            fs_cas32(&the->wants_attach[event->side], NOT_WANTED, WANTED);
            while (fs_load_sc(&the->wants_attach[event->side]) == WANTED) usleep(200); /* one at a time, as with one lock */
            break;
        }
        enter(e);
        fs_store_sc(&moving[event->side], 1);
        leave();
        while (fs_is_in_kernel(&e->c)) usleep(200); /* their timeout is BLOCKED_US */
        result = attach_end(e, &the->flow);
        check(result == 0 || result == -ENOTCONN, "attaching: %s", strerror(-result));
        break;
    case LEAVE:
        result = (int)leave_end(e, MAY_BRIDGE);
        the->outcomes[event->side] = e->bridged ? 10 + result : result;
        if (result == FS_FALLBACK_FAILED) {
            if (MAY_BRIDGE && !the->excused) lose("side %d had to give up the connection", event->side);
            fs_store_sc(&the->dissolved, 1);
        }
        if (e->bridged) fs_add_sc(&the->bridges, 1);
        break;
    case HOLD: hold(e, next_random(random)); break;
    case UNHOLD: {
        int kills = !one_in(random, 3);
        if (!kills) fs_store_sc(&the->tells_holder, 1);
        end_process(&holder, kills);
        break;
    }
    case CLOSE:
        fs_store_sc(&the->failed_calls, 1); /* nobody waits for answers from here on */
        fs_store_sc(&the->wants_close[event->side], 1); /* the loop does so */
        if (!the->driven[event->side]) close_end(e, 1);
        break;
    default:
        fs_store_sc(&the->failed_calls, 1);
        end_process(&other, 1);
    }
}

/* The ends of this process, from their threads' start to their end. */
static void run_ends(int first, int last, uint64_t random) {
    struct worker workers[4 * MAX_THREADS] = {0};
    int count = 0, of_side[2] = {0, 0}, failed = 0;
    for (int s = first; s <= last; s++) {
        struct end *e = &ends[s];
        *e = (struct end){.lock = &locks[the->one_lock ? 0 : s], .memory = the->memory, .size = the->size, .side = s};
        if (the->driven[s]) e->loop = fs_loop_new(&failed);
        check(!failed, "no poller: %s", strerror(-failed));
        fs_store_sc(&moving[s], 0);
        check(open_end(e, the->lines[s]) == 0, "opening");
        for (int task = 0; task < 2; task++)
            for (int n = 0; n < (the->driven[s] ? task : the->threads[2 * s + task]); n++) {
                struct worker *me = &workers[count++];
                *me = (struct worker){.end = e, .lane = &the->lanes[task ? s : !s], .random = next_random(&random)};
                fs_add_sc(&working, 1);
                pthread_create(&me->thread, NULL, the->driven[s] ? drive_end : task ? send_stream : receive_stream, me);
            }
        of_side[s] = count;
    }
    for (int i = 0; i < the->event_count; i++) {
        const struct event *event = &the->events[i];
        int here = event->what == KILL ? first == 0 : event->side >= first && event->side <= last;
        if (!here) continue;
        while (received_so_far() < event->at && fs_load_sc(&working)) usleep(200);
        if (event->what == UNHOLD || event->what == KILL || fs_load_sc(&working)) happen(event, &random);
    }
    for (int s = first, n = 0; s <= last; s++) {
        for (; n < of_side[s]; n++) pthread_join(workers[n].thread, NULL);
        close_end(&ends[s], 1);
        if (holder > 0) { /* it outlives the end that it was forked from, and says goodbye */
            fs_store_sc(&the->tells_holder, 1);
            end_process(&holder, 0);
        }
        fs_add_counters(&the->counters, &ends[s].totals, 0);
        if (ends[s].loop) fs_loop_end(ends[s].loop);
    }
}

/* ---- one round ------------------------------------------------------------------------------------------------- */

static void add_event(uint64_t *random, enum what what, int side, uint64_t earliest, uint64_t latest) {
    struct event *event = &the->events[the->event_count++];
    uint64_t at = earliest + (latest > earliest ? next_random(random) % (latest - earliest) : 0);
    *event = (struct event){at, what, side};
    for (; event > the->events && event[-1].at > event->at; event--) {
        struct event later = event[-1];
        event[-1] = *event;
        *event = later;
    }
}

static void make_lane(struct lane *lane, uint32_t lead, uint64_t *random) {
    static const uint32_t largests[] = {1, 49, 300, 4096, 40000};
    pthread_mutexattr_t shared;
    *lane = (struct lane){.lead = lead, .ordered = !one_in(random, 3)};
    lane->largest = lead ? lead : largests[below(random, 5)];
    lane->target = one_in(random, 8) ? 0 : (1 + below(random, 1000)) * (uint64_t)(lane->largest / 3 + 1);
    pthread_mutexattr_init(&shared);
    pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&lane->sending, &shared);
    pthread_mutex_init(&lane->receiving, &shared);
}

static void make_plan(uint64_t *random) {
    static const uint32_t windows[] = {2, 3, 5, 32, 8, 64, 1}, chunks[] = {1024, 2048, 8192, FS_CHUNK_MAX};
    uint32_t lead = one_in(random, 3) ? 1 + below(random, 64) : 0;
    uint32_t kind = below(random, 10);
    the->window = windows[below(random, 7)];
    the->chunk = chunks[below(random, 4)];
    the->flow = (struct fs_flow_options){1 + below(random, the->window), one_in(random, 3) ? 0 : 8192, one_in(random, 2)};
    the->event_count = the->leaves = the->excused = the->outcomes[0] = the->outcomes[1] = 0;
    the->one_lock = the->apart;
    the->closes = one_in(random, 2) ? 0 : -1;
    the->urgent = one_in(random, 4);
    fs_store_sc(&the->tells_holder, 0);
    fs_store_sc(&the->failed_calls, 0);
    for (int s = 0; s < 2; s++) make_lane(&the->lanes[s], lead, random);
    the->blocks = !one_in(random, 3);
    int loops = one_in(random, 2) ? 0 : 1 + (int)below(random, 3); /* 0: none, 1 or 2: that side, 3: both */
    for (int s = 0; s < 2; s++) {
        the->driven[s] = loops >> s & 1;
        fs_store_sc(&the->wants_attach[s], NOT_WANTED);
        fs_store_sc(&the->wants_close[s], 0);
    }
    if (loops) the->urgent = 0; /* (the loop's transport does not send any) */
    if (loops) the->lanes[0].ordered = the->lanes[1].ordered = 1;
    if (loops == 3 && (kind < 3 || kind > 4)) kind = 9;
    else if (loops && kind > 7) kind = 0; /* the peer leaves, more often */
    if (the->urgent) the->lanes[0].ordered = the->lanes[1].ordered = 1;
    uint64_t all = the->lanes[0].target + the->lanes[1].target;
    int early = loops && kind < 3; /* so that the peer of a loop has moved before it leaves, and sends on behind that */
    for (int i = 0; i < 4; i++) the->threads[i] = 1 + (int)(one_in(random, 2) ? 0 : below(random, MAX_THREADS));
    for (int s = 0; s < 2; s++) add_event(random, ATTACH, s, 0, one_in(random, 3) && !early ? all / 2 : all / 20);
    int side = (int)below(random, 2);
    if (kind != 3 && the->driven[side]) side = !side; /* who leaves or is held by a child is no loop */
    if (kind < 3) {
        the->leaves = 1;
        uint64_t at = all / 20 + next_random(random) % ((early ? all / 4 : all) - all / 20 + 1);
        add_event(random, LEAVE, side, at, at);
        if (one_in(random, 2) && !loops)
            add_event(random, LEAVE, !side, at, one_in(random, 2) ? at : all); /* perhaps at once */
    } else if (kind == 3) {
        the->excused = the->one_lock = 1;
        add_event(random, CLOSE, side, 0, all);
    } else if (kind == 4 && the->apart) {
        the->excused = 1;
        add_event(random, KILL, 1, 0, all);
    } else if (kind < 8 && the->apart) {
        uint64_t from = all / 10 + below(random, 100) * all / 200;
        add_event(random, HOLD, side, from, from);
        if (one_in(random, 3)) add_event(random, UNHOLD, side, from, all);
        else add_event(random, UNHOLD, side, from, from + all / 20);
    }
}

static void run_connection(uint64_t *random) {
    int one = 1;
    struct timeval blocked = {0, BLOCKED_US};
    make_plan(random);
    the->memory = make_region(the->window, the->chunk, &the->size);
    connect_pair(the->lines);
    for (int s = 0; s < 2; s++) {
        setsockopt(the->lines[s], SOL_SOCKET, SO_RCVTIMEO, &blocked, sizeof blocked);
        setsockopt(the->lines[s], SOL_SOCKET, SO_SNDTIMEO, &blocked, sizeof blocked);
        if (the->urgent) setsockopt(the->lines[s], SOL_SOCKET, SO_OOBINLINE, &one, sizeof one);
    }
    uint64_t seeds[2] = {next_random(random), next_random(random)};
    if (the->apart) other = fork();
    if (the->apart) close(the->lines[other ? 1 : 0]);
    if (the->apart && other == 0) {
        mind_the_end();
        become_front_end();
        run_ends(1, 1, seeds[1]);
        exit(0);
    }
    become_front_end();
    run_ends(0, the->apart ? 0 : 1, seeds[0]);
    end_process(&other, 0);
    if (fs_load_sc(&the->failed_calls) && !the->excused && !fs_load_sc(&the->dissolved))
        lose("a call has failed, and nobody gave up");
    for (int s = 0; s < 2; s++) {
        struct lane *lane = &the->lanes[s];
        fs_add_sc(&the->bytes, fs_load_sc(&lane->received));
        if (the->excused || fs_load_sc(&the->dissolved)) continue;
        if (fs_load_sc(&lane->received) != lane->target) lose("lane %d is not complete", s);
        if (fs_load_sc(&lane->sum_sent) != fs_load_sc(&lane->sum_received)) lose("lane %d carried other bytes", s);
    }
    munmap(the->memory, the->size);
}

static void run_round(uint64_t random) {
    int status;
    fflush(stdout);
    pid_t process = fork();
    check(process >= 0, "fork: %m");
    if (process == 0) {
        mind_the_end();
        fs_atfork_install(count_child);
        the->apart = one_in(&random, 2);
        if (one_in(&random, 2)) have_processors_to_spare();
        fs_store_sc(&the->dissolved, 0);
        for (uint32_t n = the->apart ? 1 : 1 + below(&random, 4); n && !fs_load_sc(&the->dissolved); n--)
            run_connection(&random);
        exit(0);
    }
    check(waitpid(process, &status, 0) == process, "waitpid: %m");
    check(status == 0, "the process of the round has ended with status %#x", (unsigned)status);
}

/* A step that no round has taken yet. */
static int never_done(void) {
    int step = 0;
    while (step < STEP_COUNT && fs_load_sc(&the->steps[step])) step++;
    return step;
}

int main(int count, char **arguments) {
    struct rounds rounds = begin_rounds(count, arguments);
    fill_pattern();
    make_calls_unseen();
    the = mmap(NULL, sizeof *the, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(the != MAP_FAILED, "mmap: %m");
    for (uint64_t random; next_round(&rounds, &random);) run_round(random);
    rounds.until = seconds_now() + MOST_MORE; /* a short run on a slow machine goes on until all has been seen */
    for (uint64_t random; !rounds.only && never_done() < STEP_COUNT && next_round(&rounds, &random);) run_round(random);
    /* (So many are a matter of seconds, but not under a sanitizer on one processor. Fewer prove nothing.) */
    check(rounds.done < ENOUGH || never_done() == STEP_COUNT, "no round has come to %s", step_names[never_done()]);
    struct fs_counters *counted = &the->counters;
    printf("%u rounds, %" PRIu64 " bytes, %" PRIu64 " urgent; %" PRIu64 " sends combined, %" PRIu64 " doorbells, "
           "%" PRIu64 " waits, %" PRIu64 " bridges;", rounds.done, the->bytes,
           the->urgent_bytes, counted->sends_combined, counted->doorbells_rung, the->slept, the->bridges);
    for (int i = 0; i < WHATS; i++) printf(" %s %" PRIu64, names[i], fs_load_relaxed(&the->done[i]));
    printf(";");
    for (int i = 0; i < STEP_COUNT; i++) printf(" %s %" PRIu64, step_names[i], fs_load_relaxed(&the->steps[i]));
    printf("\n");
    return 0;
}
