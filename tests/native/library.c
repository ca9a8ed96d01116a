/* The ring as a shared library, for tests/native/test_ring.py: one end of a region behind plain functions, the layout as
 * a table of numbers, and a way to let the peer act between a function's look at a commit word and its swap of it. */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>

#include "os/atomics.h"

static void (*interference)(void); /* called once, before the next swap of a commit word */

static inline int swap_interfered(fs_word64 *word, uint64_t expected, uint64_t desired) {
    void (*act)(void) = interference;
    interference = NULL;
    if (act) act();
    return fs_cas64(word, expected, desired);
}
#define fs_cas64 swap_interfered
#include "ring/doorbell.h"

void interfere_once(void (*act)(void)) { interference = act; }

void copy_in_vectors(int wanted) { fs_long_copies = wanted && fs_read_cpu_info().vectors; }

/* ---- layout ---------------------------------------------------------------------------------------- */

struct number {
    const char *name;
    uint64_t value;
};

#define CONSTANT(name) {#name, name}
#define SIZE(type) {#type, sizeof(struct type)}
#define FIELD(type, field) {#type "." #field, offsetof(struct type, field)}

const struct number layout[] = {
    CONSTANT(FS_VERSION), CONSTANT(FS_FIN), CONSTANT(FS_RESET), CONSTANT(FS_BACK),
    SIZE(fs_region), SIZE(fs_direction), SIZE(fs_descriptor),
    FIELD(fs_region, magic), FIELD(fs_region, version), FIELD(fs_region, window), FIELD(fs_region, slots),
    FIELD(fs_region, chunk), FIELD(fs_region, arena), FIELD(fs_region, kind), FIELD(fs_direction, acked), FIELD(fs_direction, fin),
    FIELD(fs_descriptor, commit), FIELD(fs_descriptor, ack), FIELD(fs_descriptor, offset),
    {NULL, 0},
};

uint64_t commit_word(uint32_t sequence, uint32_t length, uint32_t type, uint32_t state) {
    return FS_COMMIT(sequence, length, type, state);
}

uint32_t slots(uint32_t window) { return fs_slots(window); }
size_t region_size(uint32_t window, uint32_t chunk) { return fs_region_size(window, chunk); }
size_t half_size(uint32_t of_slots) { return fs_direction_size(of_slots); }
size_t arena_offset(uint32_t of_slots, int half) { return fs_arena_offset(of_slots, half); }
uint32_t near(uint32_t of_slots) { return fs_near_size(of_slots); }
uint32_t arena(uint32_t window, uint32_t chunk) { return fs_arena(window, chunk); }
uint32_t gap(uint32_t window, uint32_t chunk, int half) { return fs_arena_gap(window, chunk, half); }
uint32_t spare_offset(uint32_t window, uint32_t chunk, int half) { return fs_overflow_offset(window, chunk, half); }
void format(void *memory, uint32_t window, uint32_t chunk, const unsigned char *id) {
    fs_region_format(memory, window, chunk, id);
}
void recycle(void *memory, uint32_t window) { fs_region_recycle(memory, window); }

/* ---- one end --------------------------------------------------------------------------------------- */

struct end {
    struct fs_ring_pair ring;
    struct fs_shared_side own;
};

/* NULL with *wrong telling why, or when there is no memory. Both counts of a direction begin at a number: `sending`
 * descriptors were posted and consumed before, `receiving` came from the peer. */
struct end *end_new(void *memory, size_t size, int side, uint32_t ack_threshold, uint32_t sending, uint32_t receiving,
                    const char **wrong) {
    struct end *end = aligned_alloc(FS_LINE, sizeof *end);
    if (!end) return NULL;
    memset(end, 0, sizeof *end);
    *wrong = fs_ring_pair_attach(&end->ring, memory, size, side);
    if (*wrong) {
        free(end);
        return NULL;
    }
    end->ring.own = &end->own;
    end->ring.ack_threshold = ack_threshold;
    end->own.sender.ends = calloc(1, fs_ends_size(end->ring.window));
    end->own.sender.posted = end->own.sender.credited = sending;
    fs_store_relaxed(&end->own.receiver.consumed, receiving);
    fs_store_relaxed(&end->own.receiver.acknowledged, receiving);
    fs_store_relaxed(&end->own.receiver.ack_seen, sending);
    fs_store_relaxed(&end->ring.rx->acked, receiving);
    for (uint32_t n = receiving - end->ring.mask - 1; receiving && n != receiving; n++)
        fs_store_relaxed(&fs_descriptor_at(&end->ring, end->ring.rx, n)->commit, FS_COMMIT(n + 1, 1, FS_DATA, FS_SEALED));
    return end;
}

void end_free(struct end *end) {
    free(end->own.sender.ends);
    free(end);
}

/* No acknowledgement came with DATA since the connection began. */
void end_never_piggybacked(struct end *end) { fs_store_relaxed(&end->own.receiver.ack_seen, 0); }

int64_t end_post(struct end *end, const char *data, size_t length, int combine) {
    return fs_post(&end->ring, &end->own.sender, data, length, combine);
}
int64_t end_take(struct end *end, char *into, size_t room, int how) {
    return fs_ring_recv(&end->ring, &end->own.receiver, into, room, how);
}
void end_post_fin(struct end *end, uint64_t kind) { fs_post_fin(&end->ring, &end->own.sender, kind); }
uint64_t end_of_stream(struct end *end) { return fs_stream_end(&end->ring, &end->own.receiver); }
void end_fin_taken(struct end *end) { end->own.receiver.fin_taken = 1; }
void end_acknowledge(struct end *end) { fs_send_ack(&end->ring, &end->own.receiver); }
int end_take_credits(struct end *end) { return fs_update_credits(&end->ring, &end->own.sender); }
void end_seal(struct end *end) { fs_seal(&end->ring, &end->own.sender); }
void end_limit(struct end *end, uint32_t send_limit) { end->own.sender.send_limit = send_limit; }
int end_waiting(struct end *end) { return fs_has_descriptor(&end->ring); }
int end_readable(struct end *end) { return fs_ring_readable(&end->ring); }
int end_writable(struct end *end) { return fs_ring_writable(&end->ring, &end->own.sender); }
size_t end_available(struct end *end, size_t enough) { return fs_available(&end->ring, enough); }

const char *end_violation(struct end *end) { return end->ring.violation; }
uint32_t end_posted(struct end *end) { return end->own.sender.posted; }
uint32_t end_credited(struct end *end) { return end->own.sender.credited; }
uint32_t end_consumed(struct end *end) { return fs_load_relaxed(&end->own.receiver.consumed); }
uint64_t end_arena_used(struct end *end) { return end->own.sender.head - end->own.sender.tail; }
const struct fs_counters *end_counters(struct end *end) { return &end->ring.count; }

/* ---- locks ------------------------------------------------------------------------------------------ */

/* The lock of a side that a live endpoint uses (its `describe` tells where). */
static struct fs_robust_lock *lock_of(struct fs_shared_side *side, int sends) { return sends ? &side->sender.lock : &side->receiver.lock; }

int lock_try(struct fs_shared_side *side, int sends) { return fs_robust_trylock(lock_of(side, sends), (uint32_t)getpid()); }
void lock_release(struct fs_shared_side *side, int sends) { fs_robust_unlock(lock_of(side, sends)); }
uint32_t lock_word(struct fs_shared_side *side, int sends) { return fs_load_relaxed(&lock_of(side, sends)->word); }

void *holders_of(struct fs_shared_side *side) { return &side->holders; }

/* Has the allocator's lock most of the time, until *over. */
void churn(fs_word32 *over) {
    while (!fs_load_relaxed(over)) {
        void *volatile block = malloc(3000);
        malloc_trim(0); /* long, and under the lock */
        free(block);
    }
}

static void leave_error(void) { errno = EAGAIN; }

/* Each fork of this process finds an error from now on, which is none of its own. */
int leave_errors_in_forks(void) { return pthread_atfork(leave_error, leave_error, NULL); }
