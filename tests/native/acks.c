/* A sender with a limit learns of each descriptor that was taken, from an ACK alone: `acks [seconds [round]]`.
 *
 * Such a sender can be stopped with credits left, while nobody takes the descriptor that carries the ACK (fs_set_send_limit). So what
 * counts is the word that it looks at, after every take, also where the receiver's side posts at the same time and its descriptor
 * carries the ACK. First that post comes at the one place where it matters: between the count of what was taken and the look at
 * what was acknowledged. Then two threads try it.
 *
 * With -DNO_LIMIT nobody has set a limit, and most ACKs are late: the negative control, which has to fail. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "os/atomics.h"

static __thread void (*in_between)(void); /* at most once */

static inline void in_order_with_others(void) {
    void (*others)(void) = in_between;
    in_between = 0;
    if (others) others();
    fs_compiler_barrier();
}
#define fs_compiler_barrier in_order_with_others
#include "ring/doorbell.h"
#undef fs_compiler_barrier
#include "harness.h"

enum { WINDOW = 64, CHUNK = 4096, THRESHOLD = 16, LIMIT = 4608, FEW = 1000 };

static struct fs_ring_pair sender, receiver; /* the receiver's side sends too */
static struct fs_shared_side own[2];
static uint64_t ends[2][WINDOW];
static fs_word32 over;

static void begin(void) {
    struct mapping map = map_guarded(WINDOW, CHUNK);
    format_region(&map, WINDOW, CHUNK);
    struct fs_ring_pair *both[2] = {&sender, &receiver};
    for (int side = 0; side < 2; side++) {
        const char *wrong = fs_ring_pair_attach(both[side], map.memory, map.size, side);
        check(!wrong, "%s", wrong);
        own[side].sender.ends = ends[side];
        both[side]->own = &own[side];
        both[side]->ack_threshold = THRESHOLD;
    }
#ifndef NO_LIMIT
    fs_set_send_limit(&sender, &own[0].sender, LIMIT);
#endif
}

static int64_t post(struct fs_ring_pair *ring) {
    int64_t posted = fs_post(ring, &ring->own->sender, "x", 1, 0);
    check(posted >= 0, "%s", ring->violation);
    return posted;
}

static int64_t take(struct fs_ring_pair *ring) {
    char bytes[CHUNK];
    int64_t taken = fs_ring_recv(ring, &ring->own->receiver, bytes, sizeof bytes, FS_CONSUME);
    check(taken >= 0, "%s", ring->violation);
    return taken;
}

static void post_in_between(void) { check(post(&receiver) == 1, "no room"); }

static void check_told(void) {
    uint32_t told = fs_load_sc(&sender.tx->acked), posted = fs_load_own32(&own[0].sender.posted);
    check(told == posted, "the sender has posted %u, all was taken, and it is told of %u", posted, told);
}

static void *post_beside(void *argument) {
    while (!fs_load_relaxed(&over))
        if (!post(&receiver)) sched_yield();
    return argument;
}

static void *take_beside(void *argument) {
    while (!fs_load_relaxed(&over))
        if (!take(&sender)) sched_yield();
    return argument;
}

int main(int count, char **arguments) {
    pthread_t threads[2];
    uint64_t random;
    struct rounds rounds = begin_rounds(count, arguments);
    begin();
    for (int i = 0; i < FEW; i++) {
        check(post(&sender) == 1, "no room");
        in_between = i % 3 ? post_in_between : 0;
        check(take(&receiver) == 1 && !in_between, "not taken");
        check_told();
        while (i % 3 && take(&sender)) {}
    }
    check(pthread_create(&threads[0], NULL, post_beside, NULL) == 0, "no thread");
    check(pthread_create(&threads[1], NULL, take_beside, NULL) == 0, "no thread");
    while (next_round(&rounds, &random)) {
        for (int i = 0; i < FEW; i++) {
            while (!post(&sender)) {} /* (the ACK of the last one is there: only its own thread takes it in) */
            while (!take(&receiver)) {}
            check_told();
        }
    }
    fs_store_relaxed(&over, 1);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    printf("%u rounds, %u ACKs\n", rounds.done, FEW * (rounds.done + 1));
    return 0;
}
