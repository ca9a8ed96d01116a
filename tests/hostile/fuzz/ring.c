/* The ring's shipped headers under a peer that writes anything at any moment, as a function of one input: libFuzzer's
 * entry point, or that of driver.c.
 *
 * An input is a geometry and a list of steps. A step is a call of the victim or a write of the peer's. Some writes wait:
 * they happen in the middle of a later call, before one of its loads. So a value that is read twice, and changed in
 * between, is found by one thread and in every run. The region lies between guard pages, what pads it is poisoned, and
 * each result must be within its bounds, or a violation with its text. */
#include <stdint.h>

static void interfere(void); /* the peer, before a load of the victim's */

#include "os/atomics.h"

#undef fs_load_acquire
#undef fs_load_sc
#undef fs_load_relaxed
#define fs_load_acquire(p) (interfere(), atomic_load_explicit((p), memory_order_acquire))
#define fs_load_sc(p) (interfere(), atomic_load_explicit((p), memory_order_seq_cst))
#define fs_load_relaxed(p) (interfere(), atomic_load_explicit((p), memory_order_relaxed))

#define fs_cas64(p, expected, desired) (interfere(), (fs_cas64)((p), (expected), (desired)))

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "ring/doorbell.h"

#if defined(__SANITIZE_ADDRESS__)
#define POISONS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define POISONS 1
#endif
#endif
#ifdef POISONS
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(start, size) ((void)(start), (void)(size))
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define check(condition, ...) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "FAILED: " __VA_ARGS__); \
            fputc('\n', stderr); \
            abort(); \
        } \
    } while (0)

enum { LARGEST = 65536, STEPS = 4000 };

/* ---- the input --------------------------------------------------------------------------------------- */

static const uint8_t *input;
static size_t left;

static uint8_t byte(void) { return left ? (left--, *input++) : 0; }

static uint32_t word(void) {
    uint32_t value = 0;
    for (int i = 0; i < 4; i++) value = value << 8 | byte();
    return value;
}

/* ---- one connection ---------------------------------------------------------------------------------- */

static const uint32_t windows[] = {2, 3, 4, 7, 32}, chunks[] = {1024, 1088, 4096, FS_CHUNK_MAX};
enum { WINDOWS = 5, CHUNKS = 4 };

struct room {
    char *memory;
    size_t size;
};

static struct room rooms[WINDOWS][CHUNKS];
static struct fs_ring_pair victim, peer;
static struct fs_shared_side own;
static char *sent, *received;
static uint64_t *ends;

/* A region between two pages that nobody may touch, for this geometry: made once. */
static struct room *room_for(int w, int c) {
    struct room *room = &rooms[w][c];
    if (room->memory) return room;
    room->size = fs_region_size(windows[w], chunks[c]);
    char *start = mmap(NULL, room->size + 2 * 4096, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(start != MAP_FAILED, "mmap");
    check(mprotect(start + 4096, room->size, PROT_READ | PROT_WRITE) == 0, "mprotect");
    room->memory = start + 4096;
    size_t used = fs_directions_end(fs_slots(windows[w])) + 2 * ((size_t)fs_arena(windows[w], chunks[c]) + FS_OVERFLOWS * FS_OVERFLOW_SIZE);
    ASAN_POISON_MEMORY_REGION(room->memory + used, room->size - used);
    return room;
}

/* ---- the peer's writes ------------------------------------------------------------------------------- */

static struct {
    uint8_t loads; /* until it happens */
    uint8_t kind, a;
    uint32_t value;
} later[4];

/* A number: right, nearly right, or anything. */
static uint32_t number_near(uint32_t right, uint8_t how, uint32_t any) {
    switch (how & 7) {
    case 0: return any;
    case 1: return right - 1 - any % 40;
    case 2: return right + any % 40;
    case 3: return right + 1;
    case 4: return right - victim.mask - 1;
    default: return right;
    }
}

static void write_region(uint8_t kind, uint8_t a, uint32_t value) {
    uint32_t consumed = atomic_load_explicit(&own.receiver.consumed, memory_order_relaxed), number = consumed + a % 4;
    struct fs_direction *tx = peer.tx, *rx = peer.rx; /* the victim receives from tx */
    struct fs_descriptor *d = fs_descriptor_at(&peer, tx, number);
    fs_word32 *hot[] = {&tx->credit_wait, &tx->processor, &tx->returned, &tx->limited, &rx->doorbell, &rx->limit, &rx->ready, &rx->settled,
                        &rx->seen, &rx->finack, &rx->credit_wait, &tx->acked, &tx->seen, &tx->doorbell};
    switch (kind % 10) {
    case 0: /* a descriptor that may pass */
        atomic_store(&d->commit, FS_COMMIT(number + 1, 1 + value % (a & 16 ? a & 8 ? FS_OVERFLOW_SIZE : victim.chunk : FS_INLINE),
                                           a & 32 ? FS_DATA + 1 : FS_DATA, 1 + (a >> 6) % 3));
        break;
    case 1: d->offset = a & 16 ? value : value % (a & 8 ? victim.rx_span : victim.arena); break;
    case 2: d->ack = number_near(own.sender.posted, a >> 4, value); break;
    case 3: atomic_store(&rx->acked, number_near(own.sender.posted, a, value)); break;
    case 4: atomic_store(&tx->fin, (uint64_t)(1 + (a >> 4) % 4) << 32 | number_near(consumed, a, value)); break;
    case 5: atomic_store(&tx->fin, 0); break;
    case 6: atomic_store(hot[a % (sizeof hot / sizeof *hot)], value); break;
    case 7: /* any word but the header's */
        atomic_store((fs_word32 *)(void *)((char *)victim.region + FS_LINE +
                                           value % (fs_directions_end(victim.mask + 1) - FS_LINE) / 4 * 4),
                     number_near(consumed, a, value));
        break;
    case 8: /* a commit word of any kind */
        atomic_store(&d->commit, FS_COMMIT(number_near(number + 1, a >> 4, value), value >> 16, value >> 8 & 255, value & 255));
        break;
    default: /* the victim's own slots and progress */
        d = fs_descriptor_at(&peer, rx, own.sender.posted - 1 - a % 4);
        atomic_store(&d->commit, FS_COMMIT(own.sender.posted - a % 4, value & 0xffff, value >> 16 & 3, value >> 18 & 3));
    }
}

static void interfere(void) {
    for (size_t i = 0; i < sizeof later / sizeof *later; i++)
        if (later[i].loads && --later[i].loads == 0) write_region(later[i].kind, later[i].a, later[i].value);
}

static void attach_to_rewritten_header(struct room *room, uint8_t which, uint32_t value) {
    uint32_t *header = (uint32_t *)(void *)room->memory + which % 8, before = *header;
    struct fs_ring_pair probe;
    *header = value;
    const char *wrong = fs_ring_pair_attach(&probe, room->memory, room->size, which >> 7);
    if (!wrong) {
        size_t top = (size_t)(probe.tx_arena - (unsigned char *)room->memory) + probe.tx_overflow + FS_OVERFLOWS * FS_OVERFLOW_SIZE;
        check(top <= room->size && (size_t)(probe.rx_arena - (unsigned char *)room->memory) + probe.rx_span <= room->size,
              "attached beyond the region");
    }
    *header = before;
}

/* ---- the victim's calls ------------------------------------------------------------------------------ */

static void look(uint8_t a) {
    struct fs_descriptor_view view = {0};
    uint32_t number = fs_load_relaxed(&own.receiver.consumed) + a % 3;
    if (fs_read_descriptor(&victim, &own.receiver, number, &view) != 1) return;
    const unsigned char *line = fs_descriptor_at(&victim, victim.rx, number)->inlined;
    uint32_t longest = view.payload < victim.rx_arena + victim.rx_overflow ? victim.chunk : FS_OVERFLOW_SIZE;
    check(view.length && view.length <= longest, "a view of %u bytes", view.length);
    check(view.payload == line ? view.length <= FS_INLINE
                               : view.payload >= victim.rx_arena &&
                                     view.payload + view.length <= victim.rx_arena + victim.rx_span,
          "a view outside of the arena");
}

static void take(uint8_t a) {
    size_t room = 1 + (size_t)(a & 1 ? a / 4 : a * 300);
    int how = a & 2 ? FS_PEEK : FS_CONSUME;
    size_t hint = fs_available(&victim, room);
    check(hint <= room, "%zu bytes available of %zu asked for", hint, room);
    uint32_t before = fs_load_relaxed(&own.receiver.consumed);
    char *into = a % 7 ? realloc(received, room) : NULL; /* exactly as large as was said */
    if (into) received = into;
    int64_t got = fs_ring_recv(&victim, &own.receiver, into, room, how);
    check(got == FS_VIOLATION || (got >= 0 && (uint64_t)got <= room), "took %lld of %zu", (long long)got, room);
    check(how == FS_CONSUME || fs_load_relaxed(&own.receiver.consumed) == before, "peeking consumed something");
}

static void post(uint8_t a) {
    size_t length = 1 + (size_t)(a & 1 ? a / 4 : a * 256);
    int64_t part = fs_post(&victim, &own.sender, sent, length, a & 2);
    check(part == FS_VIOLATION || (part >= 0 && part <= (int64_t)length && part <= victim.chunk), "posted %lld of %zu",
          (long long)part, length);
}

static void be_the_victim(uint8_t kind, uint8_t a) {
    switch (kind % 12) {
    case 0: {
        uint64_t end = fs_stream_end(&victim, &own.receiver);
        check(end <= 1 || end == FS_FIN || end == FS_RESET || end == FS_BACK, "an end of no kind");
        break;
    }
    case 1: fs_update_credits(&victim, &own.sender); break;
    case 2: fs_send_ack(&victim, &own.receiver); break;
    case 3: if (!fs_arm_receiver(&victim, FS_ASLEEP)) fs_disarm_receiver(&victim, FS_ASLEEP); break;
    case 4: (void)fs_arm_sender(&victim, &own.sender, FS_WAITS); break;
    case 5: (void)fs_claim_sender_wakeups(&victim, &own.receiver); break;
    case 6: if (fs_peer_doorbell(&victim) & FS_ASLEEP) (void)fs_claim_receiver_wakeups(&victim, &own.sender); break;
    case 7: (void)fs_left_unread(&victim); break;
    case 8: look(a); break;
    case 9: if (a == 255) fs_post_fin(&victim, &own.sender, FS_FIN); else (void)fs_peer_credit_wait(&victim); break;
    case 10: post(a); break;
    default: take(a);
    }
    check(victim.region && own.sender.posted - own.sender.credited <= victim.window, "more posted than the window");
    check(own.sender.head - own.sender.tail <= victim.arena, "more in the arena than fits");
}

static void connect_anew(struct room *room, int w, int c) {
    memset(room->memory, 0, fs_directions_end(fs_slots(windows[w])));
    fs_region_format(room->memory, windows[w], chunks[c], (const unsigned char *)"0123456789abcdef");
    check(!fs_ring_pair_attach(&victim, room->memory, room->size, 0), "the victim cannot attach");
    check(!fs_ring_pair_attach(&peer, room->memory, room->size, 1), "the peer cannot attach");
    memset(&own, 0, sizeof own);
    memset(later, 0, sizeof later);
    free(ends);
    own.sender.ends = ends = calloc(1, fs_ends_size(windows[w])); /* of its own, so that a slot too far is seen */
    victim.own = &own;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    input = data;
    left = size;
    fs_long_copies = size % 2 && fs_read_cpu_info().vectors; /* either way, whatever this processor is */
    if (!sent) sent = calloc(1, LARGEST);
    uint8_t shape = byte(), flow = byte();
    int w = shape % WINDOWS, c = shape / WINDOWS % CHUNKS;
    struct room *room = room_for(w, c);
    connect_anew(room, w, c);
    victim.ack_threshold = 1 + (flow & 15) % victim.window;
    victim.combine_limit = flow & 16 ? 4096 : 0;
    if (flow & 64) { /* near the wrap of the numbers */
        uint32_t start = 0 - (uint32_t)(flow & 15);
        own.sender.posted = own.sender.credited = start;
        atomic_store(&own.receiver.consumed, start);
        atomic_store(&own.receiver.acknowledged, start);
        atomic_store(&own.receiver.ack_seen, start);
        atomic_store(&victim.tx->acked, start);
        atomic_store(&victim.rx->acked, start);
    }
    for (int step = 0; left && step < STEPS; step++) {
        uint8_t op = byte(), a = byte();
        if (op < 112) {
            be_the_victim(op, a);
            if (victim.violation) break; /* the connection is reset */
        } else if (op < 176) {
            write_region(op, a, word());
        } else if (op < 240) {
            size_t slot = op % (sizeof later / sizeof *later);
            later[slot].loads = 1 + (op >> 2) % 16;
            later[slot].kind = byte();
            later[slot].a = a;
            later[slot].value = word();
        } else {
            attach_to_rewritten_header(room, a, word());
        }
    }
    return 0;
}
