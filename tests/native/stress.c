/* Stress of the ring by threads, for ThreadSanitizer and AddressSanitizer: `stress [seconds [round]]`.
 *
 * In each round two sides share one region, with one to three sending and receiving threads each, which poll or sleep
 * on a futex at every step of the ring's protocol. Every byte is verified, both streams come to an end, and a sleep
 * that nothing ends is a failure. What connections do around the ring (locks, doorbell bytes, the kernel) is tested on
 * the shipped code by connection.c. */
#include "harness.h"

#include "events/futex.h"

enum { MAX_THREADS = 3 };

enum { POLLS, SLEEPS, ANY_WAY }; /* how a side waits */

/* One direction: what its two ends verify against. */
struct lane {
    uint64_t target;     /* bytes to send before the end */
    uint64_t kind;       /* of the end */
    uint64_t sent;       /* under the sender's lock */
    fs_word64 received;  /* under the receiver's lock; the sender looks at it */
    uint32_t largest;    /* bytes of one send, at most */
    uint32_t lead;       /* bytes that may be sent beyond what was received, 0: any number. With a lead of a few
                          * bytes nothing follows a message, so that nothing covers up for a wakeup it lost. */
};

struct side {
    struct fs_ring_pair ring;
    struct fs_shared_side own;
    struct lane *out, *in;
    uint32_t way;
    fs_word32 slept;
};

struct worker {
    pthread_t thread;
    struct side *side;
    uint64_t random;
};

static struct {
    uint64_t bytes, combined, alone, piggybacked, doorbells, slept;
} totals;

static const uint32_t edges[] = {1, 47, 48, 49, 2048, 32768}; /* sizes at which something changes */

static uint32_t pick_size(uint64_t *random, uint32_t largest) {
    uint32_t size = one_in(random, 3) ? 1 + below(random, largest) : edges[below(random, 6)];
    return size < largest ? size : largest;
}

/* What a stuck round looks like, for reports: the words of both sides, unsynchronised. */
static struct side *shown;

__attribute__((noreturn, no_sanitize("thread"))) static void lose(const struct side *side, const char *who) {
    for (int s = 0; s < 2; s++) {
        const struct side *it = &shown[s];
        const struct fs_shared_side *own = &it->own;
        const struct fs_direction *tx = it->ring.tx, *rx = it->ring.rx;
        fprintf(stderr, "side %d: window %u, chunk %u, t %u, way %u\n", s, it->ring.window, it->ring.chunk,
                it->ring.ack_threshold, it->way);
        fprintf(stderr, "  sends: %" PRIu64 " of %" PRIu64 " bytes, lead %u, posted %u, credited %u, acked %u,"
                " ack_seen %u, arena %" PRIu64 ", credit_wait %u, futex %u\n", it->out->sent,
                it->out->target, it->out->lead, own->sender.posted, own->sender.credited, fs_load_relaxed(&tx->acked),
                fs_load_relaxed(&own->receiver.ack_seen), own->sender.head - own->sender.tail, fs_load_relaxed(&tx->credit_wait),
                fs_load_relaxed(&tx->credit_futex));
        fprintf(stderr, "  receives: consumed %u, acknowledged %u, doorbell %u, end %d, futex %u\n",
                fs_load_relaxed(&own->receiver.consumed), fs_load_relaxed(&own->receiver.acknowledged), fs_load_relaxed(&rx->doorbell),
                own->receiver.fin_taken != 0, fs_load_relaxed(&rx->futex));
    }
    fail("a %s of side %d was never woken", who, side->ring.side);
}

/* ---- doorbell -------------------------------------------------------------------------------------- */

/* After a post, with the send lock. */
static void ring(struct side *side) {
    uint32_t doorbell = fs_peer_doorbell(&side->ring);
    if (doorbell & FS_ASLEEP && fs_claim_receiver_wakeups(&side->ring, &side->own.sender)) {
        fs_futex_wake(&side->ring.tx->futex);
        side->ring.count.doorbells_rung++;
    }
}

/* The peer waits for credits. With the receive lock. */
static void serve_sender(struct side *side) {
    fs_send_ack(&side->ring, &side->own.receiver);
    if (fs_claim_sender_wakeups(&side->ring, &side->own.receiver) & FS_WAKE_SENDERS) fs_futex_wake(&side->ring.rx->credit_futex);
}

static void sleep_unless(int ready, struct side *side, fs_word32 *futex, uint32_t heard, const char *who) {
    if (ready) return;
    if (!fs_futex_wait(futex, heard, (int64_t)(PATIENCE * 1e9))) lose(side, who);
    fs_add_sc(&side->slept, 1);
}

/* ---- sending --------------------------------------------------------------------------------------- */

static void await_credit(struct worker *me) {
    struct side *side = me->side;
    int spins = one_in(&me->random, 2), ready;
    fs_robust_lock(&side->own.sender.lock, (uint32_t)getpid());
    uint32_t heard = fs_futex_load(&side->ring.tx->credit_futex);
    uint32_t credited = side->own.sender.credited;
    ready = fs_arm_sender(&side->ring, &side->own.sender, spins ? FS_ACK_NOW : FS_WAITS);
    fs_robust_unlock(&side->own.sender.lock);
    if (!spins) {
        sleep_unless(ready, side, &side->ring.tx->credit_futex, heard, "sender");
        return;
    }
    for (int looks = 0; looks < 200 && fs_load_acquire(&side->ring.tx->acked) == credited; looks++) fs_cpu_relax();
    sched_yield();
}

/* Bytes of the stream that may have been sent by now. */
static uint64_t allowed(const struct side *side) {
    uint64_t came_back = fs_load_relaxed(&side->in->received);
    if (!side->out->lead || came_back == side->in->target) return side->out->target;
    came_back += side->out->lead;
    return came_back < side->out->target ? came_back : side->out->target;
}

static void await_allowance(const struct side *side, uint64_t sent) {
    for (double until = seconds_now() + 2 * PATIENCE; allowed(side) == sent; sched_yield())
        if (seconds_now() > until) lose(side, "sender that waits for an answer");
}

static void *send_stream(void *argument) {
    struct worker *me = argument;
    struct side *side = me->side;
    struct lane *out = side->out;
    uint64_t sent;
    do {
        uint32_t length = pick_size(&me->random, out->largest), done = 0;
        int combine = one_in(&me->random, 2);
        fs_robust_lock(&side->own.sender.lock, (uint32_t)getpid());
        if (length > allowed(side) - out->sent) length = (uint32_t)(allowed(side) - out->sent);
        while (done < length) {
            int64_t part = fs_post(&side->ring, &side->own.sender, (const char *)pattern_at(out->sent), length - done, combine);
            check(part >= 0, "posting: %s", side->ring.violation);
            if (part == 0) break;
            out->sent += (uint64_t)part;
            done += (uint32_t)part;
            ring(side);
        }
        sent = out->sent;
        if (sent == out->target && !side->own.sender.fin_sent) {
            fs_post_fin(&side->ring, &side->own.sender, out->kind);
            ring(side);
        }
        fs_robust_unlock(&side->own.sender.lock);
        if (done < length) await_credit(me);
        else if (sent < out->target) await_allowance(side, sent);
        if (one_in(&me->random, 16)) sched_yield(); /* starves the receivers: they claim what is open */
    } while (sent < out->target);
    return NULL;
}

/* ---- receiving ------------------------------------------------------------------------------------- */

static void await_data(struct worker *me) {
    struct side *side = me->side;
    switch (side->way == ANY_WAY ? below(&me->random, 2) : side->way) {
    case POLLS:
        for (int looks = 0; looks < 200 && !fs_ring_readable(&side->ring); looks++) fs_cpu_relax();
        sched_yield();
        break;
    default:
        fs_robust_lock(&side->own.receiver.lock, (uint32_t)getpid());
        uint32_t heard = fs_futex_load(&side->ring.rx->futex);
        serve_sender(side);
        int ready = fs_arm_receiver(&side->ring, FS_ASLEEP) || side->own.receiver.fin_taken;
        fs_robust_unlock(&side->own.receiver.lock);
        sleep_unless(ready, side, &side->ring.rx->futex, heard, "receiver");
        break;
    }
}

/* One receive call. Bytes, or 0 with *over telling whether that is the end of the stream. */
static int64_t take(struct side *side, char *into, size_t room, int how, uint64_t *position, int *over) {
    fs_robust_lock(&side->own.receiver.lock, (uint32_t)getpid());
    *position = fs_load_relaxed(&side->in->received);
    int64_t got = fs_ring_recv(&side->ring, &side->own.receiver, into, room, how);
    check(got >= 0, "taking: %s", side->ring.violation);
    if (got > 0 && how == FS_CONSUME) {
        fs_store_relaxed(&side->in->received, *position + (uint64_t)got);
        if (fs_peer_credit_wait(&side->ring)) serve_sender(side);
    } else if (got == 0) {
        uint64_t end = side->own.receiver.fin_taken ? 0 : fs_stream_end(&side->ring, &side->own.receiver);
        check(end != 1, "ending: %s", side->ring.violation);
        if (end) {
            check(end == side->in->kind, "FIN of the wrong kind");
            side->own.receiver.fin_taken = 1;
        }
        *over = side->own.receiver.fin_taken != 0;
    }
    fs_robust_unlock(&side->own.receiver.lock);
    return got;
}

static void *receive_stream(void *argument) {
    struct worker *me = argument;
    struct side *side = me->side;
    char *buffer = malloc(LARGEST);
    int over = 0;
    while (!over) {
        size_t room = pick_size(&me->random, 40000);
        int how = one_in(&me->random, 8) ? FS_PEEK : FS_CONSUME, discards = one_in(&me->random, 8);
        if (one_in(&me->random, 4)) {
            size_t waiting = fs_available(&side->ring, room);
            check(waiting <= room, "%zu bytes available of %zu asked for", waiting, room);
            if (waiting) room = waiting;
        }
        char *into = buffer + LARGEST - room; /* so that a byte too many is out of bounds */
        uint64_t position;
        int64_t got = take(side, discards ? NULL : into, room, how, &position, &over);
        check((size_t)got <= room, "%" PRId64 " bytes into room for %zu", got, room);
        if (!discards && memcmp(into, pattern_at(position), (size_t)got) != 0)
            fail("wrong bytes among the %" PRId64 " at %" PRIu64, got, position);
        if (got == 0 && !over) await_data(me);
    }
    free(buffer);
    return NULL;
}

/* ---- one round ------------------------------------------------------------------------------------- */

/* Lets the counts of one direction start at `base`, as if so many descriptors had gone before. */
static void start_at(struct side *from, struct side *to, uint32_t base) {
    from->own.sender.posted = from->own.sender.credited = base;
    fs_store_relaxed(&from->own.receiver.ack_seen, base);
    fs_store_relaxed(&from->ring.tx->acked, base);
    fs_store_relaxed(&from->ring.tx->seen, base);
    fs_store_relaxed(&to->own.receiver.consumed, base);
    fs_store_relaxed(&to->own.receiver.acknowledged, base);
    for (uint32_t number = base - from->ring.mask - 1; base && number != base; number++)
        fs_store_relaxed(&fs_descriptor_at(&from->ring, from->ring.tx, number)->commit,
                         FS_COMMIT(number + 1, 1, FS_DATA, FS_INLINED));
}

static void settle(struct side *from, struct side *to) {
    uint64_t received = fs_load_relaxed(&from->out->received);
    check(received == from->out->target, "%" PRIu64 " of %" PRIu64 " bytes arrived", received, from->out->target);
    check(from->ring.count.bytes_sent == to->ring.count.bytes_received, "bytes counted differently at the two ends");
    check(from->ring.count.messages_sent == to->ring.count.messages_received, "messages counted differently");
    fs_send_ack(&to->ring, &to->own.receiver);
    check(fs_update_credits(&from->ring, &from->own.sender) == 0, "last credits: %s", from->ring.violation);
    check(from->own.sender.credited == from->own.sender.posted && from->own.sender.head == from->own.sender.tail,
          "credits or arena bytes leaked");
}

static void plan(struct lane *lane, uint32_t lead, uint64_t *random) {
    static const uint32_t largests[] = {1, 49, 300, 4096, 40000};
    lane->lead = lead;
    lane->largest = lead ? lead : largests[below(random, 5)];
    lane->target = one_in(random, 8) ? 0 : (1 + below(random, 1500)) * (uint64_t)(lane->largest / 3 + 1);
    lane->kind = (1 + (uint64_t)below(random, 3)) << 32; /* FS_FIN, FS_RESET or FS_BACK */
}

static void attach(struct side *side, int number, struct mapping *map, uint64_t *random) {
    const char *wrong = fs_ring_pair_attach(&side->ring, map->memory, map->size, number);
    check(!wrong, "%s", wrong);
    side->ring.own = &side->own;
    side->ring.ack_threshold = side->ring.window == 1 ? 1 : 1 + below(random, side->ring.window - 1);
    side->own.sender.ends = calloc(1, fs_ends_size(side->ring.window));
    side->way = one_in(random, 2) ? ANY_WAY : below(random, 2);
    if (one_in(random, 8)) side->own.sender.send_limit = 1 + below(random, 100000);
}

static void tally(struct side *side) {
    totals.bytes += side->ring.count.bytes_sent;
    totals.combined += side->ring.count.sends_combined;
    totals.alone += side->ring.count.acks_alone;
    totals.piggybacked += side->ring.count.acks_piggybacked;
    totals.doorbells += side->ring.count.doorbells_rung;
    totals.slept += fs_load_relaxed(&side->slept);
}

static void run_round(uint64_t *random) {
    static const uint32_t windows[] = {2, 3, 5, 32, 8, 64, 1}, chunks[] = {1024, 2048, 8192, FS_CHUNK_MAX};
    static const uint32_t bases[] = {0, 0, INT32_MAX - 40, UINT32_MAX - 200};
    uint32_t window = windows[below(random, 7)], chunk = chunks[below(random, 4)];
    uint32_t lead = one_in(random, 3) ? 1 + below(random, 64) : 0;
    struct mapping map = map_guarded(window, chunk);
    struct lane lanes[2] = {0};
    struct side *sides = shown = aligned_alloc(FS_LINE, 2 * sizeof *sides);
    memset(sides, 0, 2 * sizeof *sides);
    struct worker workers[4 * MAX_THREADS];
    int threads = 0;
    fs_long_copies = one_in(random, 2) && fs_read_cpu_info().vectors;
    format_region(&map, window, chunk);
    for (int s = 0; s < 2; s++) {
        plan(&lanes[s], lead, random);
        attach(&sides[s], s, &map, random);
        sides[s].out = &lanes[s];
        sides[s].in = &lanes[!s];
    }
    for (int s = 0; s < 2; s++) {
        if (sides[s].own.sender.send_limit) sides[!s].ring.ack_threshold = 1; /* a small buffer waits for no others */
        start_at(&sides[s], &sides[!s], bases[below(random, 4)]);
    }
    for (int task = 0; task < 4; task++)
        for (int n = 1 + (int)below(random, MAX_THREADS); n > 0; n--, threads++) {
            workers[threads] = (struct worker){.side = &sides[task / 2], .random = next_random(random)};
            pthread_create(&workers[threads].thread, NULL, task % 2 ? send_stream : receive_stream, &workers[threads]);
        }
    while (threads) pthread_join(workers[--threads].thread, NULL);
    for (int s = 0; s < 2; s++) settle(&sides[s], &sides[!s]);
    for (int s = 0; s < 2; s++) {
        tally(&sides[s]);
        free(sides[s].own.sender.ends);
    }
    free(sides);
    munmap(map.start, map.length);
}

int main(int count, char **arguments) {
    struct rounds rounds = begin_rounds(count, arguments);
    fill_pattern();
    for (uint64_t random; next_round(&rounds, &random);) run_round(&random);
    printf("%u rounds, %" PRIu64 " bytes; %" PRIu64 " sends combined, ACKs %" PRIu64 " alone and %" PRIu64
           " piggybacked, %" PRIu64 " doorbells, %" PRIu64 " sleeps\n", rounds.done, totals.bytes, totals.combined,
           totals.alone, totals.piggybacked, totals.doorbells, totals.slept);
    if (rounds.only) return 0;
    check(totals.combined && totals.alone && totals.piggybacked && totals.doorbells && totals.slept,
          "something above was never exercised");
    return 0;
}
