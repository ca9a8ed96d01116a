/* What the connection thread tells to who looks at this process from outside.
 *
 * Responsible for: what each kind of look shows. Runs in the connection thread, without the front end's lock, and
 * without a lock that a byte of data waits for: the table lock is for connections that begin and end. Never: who may
 * look (requests.c). */
#include "channel/seen.h"

#include "channel/table.h"
#include "connection/state.h"
#include "registry/roll.h"

enum { LOOKED = 8192 }; /* entries of the roll, at most: one of free entries only must not keep the thread */

struct fs_counters *fs_counters_of_gone;

static struct {
    struct fs_seen head;
    union {
        struct fs_seen_process process;
        uint64_t words[FS_SEEN_ROOM / sizeof(uint64_t)];
        struct fs_seen_end ends[FS_SEEN_ENDS];
        unsigned char room[FS_SEEN_ROOM];
    } records;
} answer; /* the connection thread's alone */

_Static_assert(offsetof(__typeof__(answer), records) == sizeof(struct fs_seen), "no padding on the wire");

/* Each of these fills the answer with one kind of record: bytes of them. */

static size_t see_process(void) {
    struct fs_seen_process *seen = &answer.records.process;
    memset(seen, 0, sizeof *seen);
    if (fs_counters_of_gone) fs_add_counters(&seen->gone, fs_counters_of_gone, 0);
    fs_lock_table();
    seen->on_ring = (uint32_t)fs_table.on_ring_count;
    seen->queued = (uint32_t)fs_table.queued;
    for (int i = 0; i < FS_MEETINGS; i++)
        seen->names += fs_load_relaxed(&fs_table.meetings[i].state) == FS_MEETING_WAITING;
    fs_unlock_table();
    answer.head.count = 1;
    return sizeof *seen;
}

/* Words of the roll from an entry on, as many as fit; free entries are left out. */
static size_t see_roll(uint32_t first) {
    uint64_t word;
    uint32_t place = first;
    for (int looked = 0; fs_on_roll(place, &word); looked++) {
        if (answer.head.count == FS_SEEN_ROOM / sizeof(uint64_t) || looked == LOOKED) {
            answer.head.next = place;
            break;
        }
        if (word >> 56 != FS_ROLL_FREE) answer.records.words[answer.head.count++] = word;
        place++;
    }
    return answer.head.count * sizeof(uint64_t);
}

/* Ends that have a region, from the n-th of the list on. One that ends meanwhile may move another to its place, which
 * is then told twice or not at all. */
static size_t see_ring(uint32_t first) {
    fs_lock_table();
    for (int64_t i = first; i < fs_table.on_ring_count; i++) {
        if (answer.head.count == FS_SEEN_ENDS) {
            answer.head.next = (uint32_t)i;
            break;
        }
        struct fs_connection *c = fs_table.on_ring[i].connection;
        /* A connection on the list has not ended, so its region is mapped and its side's memory is there. */
        if (fs_is_attached(c)) {
            uint32_t flags = fs_is_exposed(c) ? FS_SEEN_EXPOSED : 0;
            if (fs_is_driven(c)) flags |= FS_SEEN_DRIVEN;
            fs_see_end(&c->vi, fs_own(c), c->inode, flags, &answer.records.ends[answer.head.count]);
            answer.head.count++;
        }
    }
    fs_unlock_table();
    return answer.head.count * sizeof(struct fs_seen_end);
}

void fs_answer_look(int fd, const struct fs_asker *asker) {
    size_t size;
    answer.head.magic = FS_SEEN_MAGIC;
    answer.head.tag = asker->look.tag;
    answer.head.kind = asker->look.kind;
    answer.head.protocol = FS_VERSION;
    answer.head.next = FS_NO_MORE;
    answer.head.count = 0;
    if (asker->look.kind == FS_LOOK_PROCESS) size = see_process();
    else if (asker->look.kind == FS_LOOK_ROLL) size = see_roll(asker->look.from);
    else if (asker->look.kind == FS_LOOK_RING) size = see_ring(asker->look.from);
    else return;
    fs_answer(fd, asker, &answer, sizeof(struct fs_seen) + size);
}
