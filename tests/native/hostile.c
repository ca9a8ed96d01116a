/* A peer that writes anything anywhere, for AddressSanitizer: `hostile [seconds [round]]`.
 *
 * One thread scribbles over a region, mostly with values that are nearly right, while the other one uses every
 * function of the ring on it. The region lies between guard pages and what pads it to whole pages is poisoned, so
 * that a byte beside it ends the program. Each result must be within its bounds, or a violation with its text. */
#include "harness.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(start, size) ((void)(start), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(start, size) ((void)(start), (void)(size))
#endif

static const char *const violations[] = {
    "ACK of a descriptor never posted",        "descriptor out of sequence",
    "open descriptor changed its sequence",    "descriptor with an impossible length",
    "descriptor of an unknown type",           "descriptor in an impossible state",
    "descriptor changed while it was read",    "FIN at an impossible place",
    "region shorter than its header",          "region without the magic number",
    "region of another version",               "window out of range",
    "chunk size out of range",                 "region of the wrong size",
    "region of another kind of socket",
};
enum { VIOLATIONS = sizeof violations / sizeof *violations };
static uint64_t seen[VIOLATIONS], operations;

static void note_violation(const char *text) {
    for (int i = 0; i < VIOLATIONS; i++)
        if (text && strcmp(text, violations[i]) == 0) {
            seen[i]++;
            return;
        }
    fail("violation without a known text: %s", text ? text : "none");
}

/* ---- the peer -------------------------------------------------------------------------------------- */

struct peer {
    struct fs_ring_pair ring; /* of the other side, for where things are */
    uint64_t random;
    const fs_word32 *posted, *consumed; /* roughly where the victim stands */
    fs_word32 stop;
    int rewrites_header;
};

/* A number that is right, or nearly, or anything. */
static uint32_t near(struct peer *peer, uint32_t right) {
    switch (below(&peer->random, 8)) {
    case 0: return (uint32_t)next_random(&peer->random);
    case 1: return right - 1 - below(&peer->random, 40);
    case 2: return right + below(&peer->random, 40);
    default: return right + below(&peer->random, 2);
    }
}

static uint64_t some_commit(struct peer *peer, uint32_t number) {
    uint64_t *random = &peer->random;
    uint32_t usual = one_in(random, 2) ? FS_INLINE : peer->ring.chunk;
    uint32_t length = one_in(random, 16) ? below(random, 2 * FS_OVERFLOW_SIZE) : 1 + below(random, usual);
    uint32_t type = one_in(random, 32) ? below(random, 256) : FS_DATA;
    uint32_t state = one_in(random, 32) ? below(random, 256) : 1 + below(random, 3);
    uint32_t sequence = one_in(random, 64) ? near(peer, number + 1) : number + 1;
    return FS_COMMIT(sequence, length, type, state);
}

static void scribble(struct peer *peer) {
    uint64_t *random = &peer->random;
    struct fs_direction *tx = peer->ring.tx, *rx = peer->ring.rx; /* the peer's: the victim receives from tx */
    uint32_t consumed = fs_load_relaxed(peer->consumed), posted = fs_load_relaxed(peer->posted);
    uint32_t number = consumed + below(random, 3);
    struct fs_descriptor *d = fs_descriptor_at(&peer->ring, tx, number);
    fs_word32 *ack = (fs_word32 *)&d->ack, *offset = (fs_word32 *)&d->offset;
    switch (below(random, 16)) {
    case 0: fs_store_relaxed(&tx->fin, (uint64_t)(1 + below(random, 4)) << 32 | near(peer, consumed)); break;
    case 1: fs_store_relaxed(&tx->fin, 0); break;
    case 2: fs_store_relaxed(&tx->limited, (uint32_t)next_random(random)); break;
    case 3: fs_store_relaxed(&tx->credit_wait, (uint32_t)next_random(random)); break;
    case 4: fs_store_relaxed(&rx->acked, near(peer, posted)); break;
    case 5: fs_store_relaxed(&rx->seen, (uint32_t)next_random(random)); break;
    case 6: fs_store_relaxed(&rx->doorbell, (uint32_t)next_random(random)); break;
    case 7: fs_store_relaxed(&rx->limit, (uint32_t)next_random(random)); break;
    case 8: fs_store_relaxed(ack, near(peer, posted)); break;
    case 9: /* also what only the victim writes, the slots it posts to included */
        d = fs_descriptor_at(&peer->ring, rx, posted - below(random, 3));
        fs_store_relaxed(&d->commit, next_random(random));
        break;
    case 10:
        if (peer->rewrites_header) {
            /* version, window, slots, chunk, arena or kind */
            fs_word32 *word = (fs_word32 *)((char *)peer->ring.region + 8 + 4 * below(random, 6));
            uint32_t old = fs_load_relaxed(word);
            fs_store_relaxed(word, one_in(random, 2) ? (uint32_t)next_random(random) : below(random, 40000));
            sched_yield();
            fs_store_relaxed(word, old);
        }
        break;
    case 11: fs_store_relaxed(offset, below(random, 2 * peer->ring.rx_span)); break;
    case 12: fs_store_relaxed(offset, (uint32_t)next_random(random)); break;
    default:
        if (one_in(random, 2)) fs_store_relaxed(offset, below(random, peer->ring.arena));
        fs_store_release(&d->commit, some_commit(peer, number));
    }
}

static void *be_hostile(void *argument) {
    struct peer *peer = argument;
    while (!fs_load_relaxed(&peer->stop))
        for (int i = 0; i < 64; i++) scribble(peer);
    return NULL;
}

/* ---- the victim ------------------------------------------------------------------------------------ */

struct victim {
    struct fs_ring_pair ring;
    struct fs_shared_side own;
    fs_word32 posted; /* copy of own.sender.posted for the peer */
};

static void forget_connection(struct victim *victim) {
    uint64_t *ends = victim->own.sender.ends;
    memset(&victim->own, 0, sizeof victim->own);
    memset(ends, 0, fs_ends_size(victim->ring.window));
    victim->own.sender.ends = ends;
    victim->ring.violation = NULL;
    fs_region_recycle(victim->ring.region, victim->ring.window);
}

/* A violation resets the connection. */
static void reset_after(struct victim *victim) {
    note_violation(victim->ring.violation);
    forget_connection(victim);
}

static void take(struct victim *victim, uint64_t *random) {
    struct fs_ring_pair *ring = &victim->ring;
    size_t room = 1 + below(random, one_in(random, 2) ? 64 : 100000);
    int how = one_in(random, 4) ? FS_PEEK : FS_CONSUME;
    size_t hint = fs_available(ring, room);
    check(hint <= room, "%zu bytes available of %zu asked for", hint, room);
    char *into = one_in(random, 4) ? NULL : malloc(room);
    uint32_t before = fs_load_relaxed(&victim->own.receiver.consumed);
    int64_t got = fs_ring_recv(ring, &victim->own.receiver, into, room, how);
    check(got == FS_VIOLATION || (got >= 0 && (uint64_t)got <= room), "fs_ring_recv: %" PRId64 " of %zu", got, room);
    check(how == FS_CONSUME || fs_load_relaxed(&victim->own.receiver.consumed) == before, "peeking consumed something");
    free(into);
    if (got == FS_VIOLATION) reset_after(victim);
}

static void look(struct victim *victim, uint64_t *random) {
    struct fs_ring_pair *ring = &victim->ring;
    struct fs_descriptor_view view = {0};
    uint32_t number = fs_load_relaxed(&victim->own.receiver.consumed) + below(random, 3);
    int there = fs_read_descriptor(ring, &victim->own.receiver, number, &view);
    if (there == FS_VIOLATION) {
        reset_after(victim);
    } else if (there) {
        const unsigned char *line = fs_descriptor_at(ring, ring->rx, number)->inlined;
        uint32_t longest = view.payload < ring->rx_arena + ring->rx_overflow ? ring->chunk : FS_OVERFLOW_SIZE;
        check(view.length && view.length <= longest, "a view of %u bytes", view.length);
        const unsigned char *past = view.payload + view.length;
        check(view.payload == line ? view.length <= FS_INLINE
                                   : view.payload >= ring->rx_arena && past <= ring->rx_arena + ring->rx_span,
              "a view outside of the arena");
    }
}

static void post(struct victim *victim, uint64_t *random, const char *data) {
    struct fs_ring_pair *ring = &victim->ring;
    size_t length = 1 + below(random, one_in(random, 2) ? 64 : LARGEST);
    int64_t part = fs_post(ring, &victim->own.sender, data, length, one_in(random, 2));
    check(part == FS_VIOLATION || (part >= 0 && part <= (int64_t)length && part <= ring->chunk), "fs_post: %" PRId64,
          part);
    fs_store_relaxed(&victim->posted, victim->own.sender.posted);
    if (part == FS_VIOLATION) reset_after(victim);
}

static void end(struct victim *victim) {
    uint64_t kind = fs_stream_end(&victim->ring, &victim->own.receiver);
    check(kind <= 1 || kind == FS_FIN || kind == FS_RESET || kind == FS_BACK, "fs_stream_end: %" PRIx64, kind);
    if (kind == 1) reset_after(victim);
}

static void operate(struct victim *victim, uint64_t *random, const char *data) {
    struct fs_ring_pair *ring = &victim->ring;
    operations++;
    switch (below(random, 16)) {
    case 0: end(victim); break;
    case 1: if (fs_update_credits(ring, &victim->own.sender) < 0) reset_after(victim); break;
    case 2: fs_send_ack(ring, &victim->own.receiver); break;
    case 3: if (!fs_arm_receiver(ring, FS_ASLEEP)) fs_disarm_receiver(ring, FS_ASLEEP); break;
    case 4: if (fs_arm_sender(ring, &victim->own.sender, FS_WAITS) && ring->violation) reset_after(victim); break;
    case 5: (void)fs_claim_sender_wakeups(ring, &victim->own.receiver); break;
    case 6: case 7: case 8: if (fs_peer_doorbell(ring) & FS_ASLEEP) (void)fs_claim_receiver_wakeups(ring, &victim->own.sender); break;
    case 9: (void)fs_left_unread(ring); break;
    case 10: look(victim, random); break;
    case 11: case 12: case 13: post(victim, random, data); break;
    default: take(victim, random);
    }
}

static void attach(struct mapping *map, uint32_t window, uint32_t chunk) {
    struct fs_ring_pair probe;
    const char *wrong = fs_ring_pair_attach(&probe, map->memory, map->size, 1);
    if (wrong) {
        note_violation(wrong);
        return;
    }
    size_t top = (size_t)(probe.tx_arena - (unsigned char *)map->memory) + probe.tx_overflow + FS_OVERFLOWS * FS_OVERFLOW_SIZE;
    check(top <= map->size && fs_region_size(probe.window, probe.chunk) == map->size &&
              fs_slots(probe.window) == probe.mask + 1 && probe.arena == fs_arena(probe.window, probe.chunk),
          "attached to window %u chunk %u instead of %u %u", probe.window, probe.chunk, window, chunk);
}

static void run_round(uint64_t *random, const char *data) {
    static const uint32_t windows[] = {2, 3, 5, 32, 1}, chunks[] = {1024, 2048, FS_CHUNK_MAX};
    uint32_t window = windows[below(random, 5)], chunk = chunks[below(random, 3)];
    struct mapping map = map_guarded(window, chunk);
    struct victim *victim = aligned_alloc(FS_LINE, sizeof *victim);
    struct peer peer = {.random = next_random(random), .rewrites_header = one_in(random, 2)};
    pthread_t thread;
    fs_long_copies = one_in(random, 2) && fs_read_cpu_info().vectors;
    memset(victim, 0, sizeof *victim);
    format_region(&map, window, chunk);
    check(!fs_ring_pair_attach(&victim->ring, map.memory, map.size, 0), "the victim cannot attach");
    check(!fs_ring_pair_attach(&peer.ring, map.memory, map.size, 1), "the peer cannot attach");
    size_t used = fs_directions_end(fs_slots(window)) + 2 * ((size_t)fs_arena(window, chunk) + FS_OVERFLOWS * FS_OVERFLOW_SIZE);
    ASAN_POISON_MEMORY_REGION((char *)map.memory + used, map.size - used);
    victim->ring.own = &victim->own;
    victim->ring.ack_threshold = window == 1 ? 1 : 1 + below(random, window - 1);
    victim->own.sender.ends = malloc(fs_ends_size(window));
    forget_connection(victim);
    peer.posted = &victim->posted;
    peer.consumed = &victim->own.receiver.consumed;
    pthread_create(&thread, NULL, be_hostile, &peer);
    for (int i = 0; i < 20000; i++) {
        operate(victim, random, data);
        if (peer.rewrites_header && i % 8 == 0) attach(&map, window, chunk);
        if (one_in(random, 64)) sched_yield();
    }
    fs_store_relaxed(&peer.stop, 1);
    pthread_join(thread, NULL);
    ASAN_UNPOISON_MEMORY_REGION((char *)map.memory + used, map.size - used);
    free(victim->own.sender.ends);
    free(victim);
    munmap(map.start, map.length);
}

int main(int count, char **arguments) {
    struct rounds rounds = begin_rounds(count, arguments);
    char *data = calloc(1, LARGEST);
    for (uint64_t random; next_round(&rounds, &random);) run_round(&random, data);
    free(data);
    printf("%u rounds, %" PRIu64 " operations; violations:\n", rounds.done, operations);
    for (int i = 0; i < VIOLATIONS; i++)
        if (seen[i]) printf("%10" PRIu64 " %s\n", seen[i], violations[i]);
    return 0;
}
