/* Answers introspection queries. Runs in the control thread, without the host lock and without a lock that a byte of data waits for:
 * the table lock is for connections that begin and end. control_requests.c decides who may ask. */
#include "control/introspection.h"

#include "control/control_state.h"
#include "control/link.h"
#include "conn/state.h"
#include "process/conn_table.h"

enum { EXAMINED = 8192 }; /* entries of the connection table examined at most: a table of free entries must not occupy the thread */

struct fs_counters *fs_ended_counters;

static struct {
    struct fs_query_reply head;
    union {
        struct fs_process_info process;
        uint64_t words[FS_REPLY_ROOM / sizeof(uint64_t)];
        struct fs_connection_info ends[FS_REPLY_CONNECTIONS];
        struct fs_link_info links[FS_REPLY_ROOM / sizeof(struct fs_link_info)];
        unsigned char room[FS_REPLY_ROOM];
    } records;
} answer; /* for the control thread alone */

_Static_assert(offsetof(__typeof__(answer), records) == sizeof(struct fs_query_reply), "no padding on the wire");

/* Each of these fills the answer with one kind of record and returns their size in bytes. */

static size_t fill_process(void) {
    struct fs_process_info *info = &answer.records.process;
    memset(info, 0, sizeof *info);
    if (fs_ended_counters) fs_add_counters(&info->gone, fs_ended_counters, 0);
    fs_control_lock();
    info->on_ring = (uint32_t)fs_control_state.on_ring_count;
    info->queued = (uint32_t)fs_control_state.queued;
    for (int i = 0; i < FS_LISTINGS; i++)
        info->names += fs_load_relaxed(&fs_control_state.listings[i].state) == FS_LISTING_WAITING;
    fs_control_unlock();
    answer.head.count = 1;
    return sizeof *info;
}

/* Words of the connection table from `first` on, as many as fit, without free entries. */
static size_t fill_table(uint32_t first) {
    uint64_t word;
    uint32_t slot = first;
    for (int examined = 0; fs_table_read(slot, &word); examined++) {
        if (answer.head.count == FS_REPLY_ROOM / sizeof(uint64_t) || examined == EXAMINED) {
            answer.head.next = slot;
            break;
        }
        if (word >> 56 != FS_TABLE_FREE) answer.records.words[answer.head.count++] = word;
        slot++;
    }
    return answer.head.count * sizeof(uint64_t);
}

/* Ends with a region, from index `first` of the list on. If one ends meanwhile, another may move to its index, and is then reported
 * twice or not at all. */
static size_t fill_ring(uint32_t first) {
    fs_control_lock();
    for (int64_t i = first; i < fs_control_state.on_ring_count; i++) {
        if (answer.head.count == FS_REPLY_CONNECTIONS) {
            answer.head.next = (uint32_t)i;
            break;
        }
        struct fs_connection *c = fs_control_state.on_ring[i].connection;
        /* A listed connection has not ended, so its region is mapped and its side's memory exists. */
        if (fs_is_attached(c)) {
            uint32_t flags = fs_is_loop_driven(c) ? FS_INFO_LOOP_DRIVEN : 0;
            uint64_t inode = c->inode ? c->inode : fs_socket_inode(fs_fd(c));
            fs_fill_connection_info(&c->ring, fs_own(c), inode, flags, &answer.records.ends[answer.head.count]);
            answer.head.count++;
        }
    }
    fs_control_unlock();
    return answer.head.count * sizeof(struct fs_connection_info);
}

/* The next link, of which the answer begins with number `*left`. Returns false if the answer is full. */
static int fill_link(const struct fs_link *link, void *left) {
    int parked = link->parked_count[0] + link->parked_count[1];
    if (*(uint32_t *)left) return (*(uint32_t *)left)--, 1;
    if (answer.head.count == FS_REPLY_ROOM / sizeof(struct fs_link_info)) return 0;
    answer.records.links[answer.head.count++] = (struct fs_link_info){
        .counted = link->counted, .connections = fs_load_relaxed((fs_word64 *)&link->connections), .peer = (uint32_t)link->peer.pid,
        .user = link->peer.user, .in_use = (uint32_t)(link->regions - parked), .parked = (uint32_t)parked};
    return 1;
}

/* Links from number `first` on. If one ends meanwhile, another one may be left out. */
static size_t fill_links(uint32_t first) {
    uint32_t left = first;
    fs_control_lock();
    if (!fs_links_each(fill_link, &left)) answer.head.next = first + answer.head.count;
    fs_control_unlock();
    return answer.head.count * sizeof(struct fs_link_info);
}

void fs_answer_query(int fd, const struct fs_requester *requester) {
    size_t size;
    answer.head.magic = FS_REPLY_MAGIC;
    answer.head.tag = requester->query.tag;
    answer.head.kind = requester->query.kind;
    answer.head.protocol = FS_VERSION;
    answer.head.next = FS_QUERY_END;
    answer.head.count = 0;
    if (requester->query.kind == FS_QUERY_PROCESS) size = fill_process();
    else if (requester->query.kind == FS_QUERY_TABLE) size = fill_table(requester->query.from);
    else if (requester->query.kind == FS_QUERY_RING) size = fill_ring(requester->query.from);
    else if (requester->query.kind == FS_QUERY_LINKS) size = fill_links(requester->query.from);
    else return;
    fs_send_reply(fd, requester, &answer, sizeof(struct fs_query_reply) + size);
}
