/* When the sessions of a service begin to look for their peer.
 *
 * A search and a move cost as much as some dozens of operations. Their gain depends on how long the session lives afterwards, which
 * nobody knows. But the sessions of one service are alike. So each service records how long its sessions lived, and computes after each
 * of them: had all of them searched after T operations, what would they have cost? The next sessions search after the T that costs
 * least. A mixed service gets a T behind its short sessions, which the long ones hardly notice. A service whose peers have no fastsock,
 * or whose waits on the ring sleep, gets a T that few sessions reach, and these try again.
 *
 * Responsible for: that number. Never: reads a clock, so that nothing here depends on the machine's speed. Old data fades as new data
 * comes. Takes no lock: processes that a fork has made may write the same statistics at once, and what is lost or counted twice then
 * makes a start too early or too late, which costs time alone. */
#include "rendezvous/upgrade_delay.h"

#include "conn/state.h"

#define KEPT (1 - 1.0 / 16)             /* weight of the past when a session ends: the last dozens count */
#define KEPT_OF_OUTCOMES (1 - 1.0 / 64) /* the same for the results of searches, which few sessions may make */
#define LONG 4096.0                     /* operations of the one session that a service is assumed to have had before all others */
#define BEST 0.9                        /* part of an operation that the ring saves if no wait sleeps */
#define SLEPT 0.5                       /* less, if every message costs a system call to sleep or to wake (docs/decisions.md) */
enum { ENOUGH = 3 };              /* sessions needed for a decision */

static int64_t shortest_of(int class) { return (int64_t)FS_SESSION_SHORTEST << class; }

static int class_of(int64_t operations) {
    int class = 0;
    while (class + 1 < FS_SESSION_LENGTHS && shortest_of(class + 1) <= operations) class++;
    return class;
}

/* Returns the part of an operation that the ring saves. Before any wait was seen, a third of them is assumed to sleep. */
static double gain_of(const struct fs_session_stats *s) {
    double calls = (s->calls + 32) / (s->messages + 96);
    return BEST - SLEPT * FS_MIN(calls, 1.0);
}

/* Returns the class of lengths at whose shortest a search costs least. */
static int best_class(const struct fs_session_stats *s) {
    double share = (s->found + 1) / (s->found + s->missed + 1);
    double on_ring = 1 - share * gain_of(s); /* cost of an operation after the search */
    double search = FS_SESSION_SEARCH_COST + share * FS_SESSION_MOVE_COST;
    double longer = 1, behind = LONG, before = 0; /* sessions that reach the class, their operations; operations of shorter ones */
    int best = 0;
    double least = 0;
    for (int class = 0; class < FS_SESSION_LENGTHS; class++) longer += s->ended[class], behind += s->operations[class];
    for (int class = 0; class < FS_SESSION_LENGTHS; class++) {
        double start = (double)shortest_of(class);
        double cost = before + longer * (start + search) + (behind - longer * start) * on_ring;
        if (class == 0 || cost < least) best = class, least = cost;
        longer -= s->ended[class];
        behind -= s->operations[class];
        before += s->operations[class];
    }
    return best;
}

void fs_note_session(struct fs_service *service, int64_t operations, enum fs_search_result sought, uint64_t calls, uint64_t messages) {
    struct fs_session_stats *s = service->stats;
    s->sessions = FS_MIN(s->sessions + 1, (uint32_t)FS_SESSIONS_KEPT);
    s->lasting += ((operations >= FS_SESSION_LASTING) - s->lasting) / s->sessions;
    if (sought != FS_SEARCH_MOVED && service->linked && operations >= FS_SESSION_LASTING) service->linked--;
    if (sought == FS_SEARCH_FAILED && service->tried < FS_LINK_TRIES) service->tried++;
    if (operations < FS_SESSION_SHORTEST) return;
    for (int class = 0; class < FS_SESSION_LENGTHS; class++) s->ended[class] *= KEPT, s->operations[class] *= KEPT;
    int class = class_of(operations);
    s->ended[class] += 1;
    s->operations[class] += (double)operations;
    s->found *= KEPT_OF_OUTCOMES;
    s->missed *= KEPT_OF_OUTCOMES;
    s->calls *= KEPT_OF_OUTCOMES;
    s->messages *= KEPT_OF_OUTCOMES;
    if (sought == FS_SEARCH_FAILED) s->missed += 1;
    if (sought == FS_SEARCH_MOVED) {
        double weight = 256.0 / (double)FS_MAX(messages, (uint64_t)256); /* for a long session its manner counts, not its length */
        s->found += 1;
        s->calls += weight * (double)calls;
        s->messages += weight * (double)messages;
    }
    if (s->noted < ENOUGH && ++s->noted < ENOUGH) return;
    int best = best_class(s);
    s->later = best ? shortest_of(best) : 0;
}

/* Returns the result of a connection's search. -1: the connection may not move and does not count. */
static int search_result_of(const struct fs_path *path) {
    if (path->region_ref) return FS_SEARCH_MOVED;
    switch (path->reason) {
    case FS_REASON_FEW:
    case FS_REASON_UNPAID: return FS_NOT_SEARCHED;
    case FS_REASON_SEEKING:
    case FS_REASON_PEER:
    case FS_REASON_ABSENT:
    case FS_REASON_UNPROVEN:
    case FS_REASON_UNTRUSTED:
    case FS_REASON_NAME:
    case FS_REASON_REFUSED:
    case FS_REASON_VERSION: return FS_SEARCH_FAILED;
    default: return -1;
    }
}

static uint64_t counted(const fs_word64 *counter) { return fs_load_relaxed((fs_word64 *)counter); }

void fs_note_session_of(struct fs_service *service, const struct fs_path *path, const struct fs_connection *c) {
    const struct fs_counters *count = &c->ring.count;
    int sought = search_result_of(path);
    if (sought < 0) return;
    uint64_t messages = counted(&count->messages_sent) + counted(&count->messages_received);
    /* A message to a sleeping peer costs a system call at both ends. This end knows its own direction only, so the number is doubled
     * again. */
    uint64_t calls = 4 * counted(&count->doorbells_rung);
    /* (Neither a loop's transport nor fs_operate counts operations on the ring.) */
    int uncounted = fs_is_loop_driven(c) || fs_is_settled(c);
    fs_note_session(service, fs_operations(path) + (uncounted ? (int64_t)messages : 0), (enum fs_search_result)sought, calls, messages);
}
