/* Requests of the peers: for a doorbell byte, to go back to the kernel, to send a parcel again.
 *
 * Responsible for: which connection is asked, and that it stays until it has answered. Never: the answer itself, which
 * is the connection's, nor one to a user whom this process does not trust. */
#include "channel/requests.h"

#include <limits.h>

#include "channel/sets.h"
#include "channel/table.h"
#include "channel/thread.h"
#include "connection/leavers_peer.h"
#include "connection/send.h"
#include "connection/state.h"
#include "connection/turns.h"

enum { CROWD = 2,   /* datagrams at once, and so perhaps as many as the queue holds (a setting of the system: net.unix.max_dgram_qlen):
                     * whatever they were, a request may have found no room */
       FLOOD = 64 }; /* of them without an end: requests may find none meanwhile */

int fs_expect_asks(struct fs_connection *c, int side, const unsigned char id[16]) {
    struct fs_table *t = &fs_table;
    int failed = fs_ensure_thread();
    if (failed) return failed;
    fs_take_table();
    if (t->on_ring_count == t->on_ring_room) {
        struct fs_asked *larger = fs_system.realloc(t->on_ring, (size_t)(t->on_ring_room * 2 + 16) * sizeof *larger);
        if (larger) {
            t->on_ring = larger;
            t->on_ring_room = t->on_ring_room * 2 + 16;
        }
    }
    int room = t->on_ring_count < t->on_ring_room;
    if (room) {
        struct fs_asked *asked = &t->on_ring[t->on_ring_count];
        asked->connection = c;
        memcpy(asked->id, id, 16);
        asked->id[16] = (unsigned char)side;
        asked->due = 0;
        t->on_ring_count++;
    }
    fs_unlock_table();
    return room ? 0 : -ENOMEM;
}

void fs_answer_asks(void *memory, int side) {
    /* SYNC: token - pairs with fs_ask_side. */
    fs_store_release(&((struct fs_region *)memory)->asks[side], fs_ask_token());
}

void fs_say_where_to_ask(struct fs_connection *c) {
    uint64_t token = fs_ask_token(), before = fs_load_relaxed(&c->vi.region->asks[c->vi.side]);
    if (!token || before == token) return;
    /* Who was asked before is asked again should this process be killed. Rather the one of long ago, if it is there yet:
     * this may be one of many children. */
    fs_word64 *other = &c->vi.region->asks_else[c->vi.side];
    uint64_t kept = fs_load_relaxed(other);
    /* SYNC: token - pairs with fs_ask_side. */
    if (!kept || kept == token || !fs_is_asked_at(kept)) fs_store_release(other, before);
    c->asked_here = token;
    c->asked_before = before;
    fs_answer_asks(c->vi.region, c->vi.side);
}

/* Under the table lock. */
static int is_being_asked(const struct fs_connection *c) {
    for (struct fs_answerer *a = fs_table.answering; a; a = a->next)
        if (a->connection == c) return 1;
    return 0;
}

void fs_ignore_asks(struct fs_connection *c) {
    struct fs_table *t = &fs_table;
    fs_take_table();
    for (int i = 0; i < t->on_ring_count; i++) {
        if (t->on_ring[i].connection == c) {
            t->on_ring_count--;
            t->on_ring[i] = t->on_ring[t->on_ring_count];
            break;
        }
    }
    int busy = is_being_asked(c);
    fs_unlock_table();
    while (busy) {
        fs_nap_aside();
        fs_take_table();
        busy = is_being_asked(c);
        fs_unlock_table();
    }
}

/* The connection does not end before forget_asked. Under the table lock. */
static struct fs_connection *hold_asked(struct fs_answerer *answerer, struct fs_connection *c) {
    answerer->connection = c;
    answerer->next = fs_table.answering;
    fs_table.answering = answerer;
    return c;
}

/* The connection that a request is for, held. NULL: there is none. */
static struct fs_connection *find_asked(struct fs_answerer *answerer, const unsigned char request[FS_ASK_SIZE]) {
    struct fs_connection *found = NULL;
    fs_lock_table();
    for (int i = 0; i < fs_table.on_ring_count && !found; i++) {
        struct fs_asked *asked = &fs_table.on_ring[i];
        /* (One that has not attached yet has nothing to answer with, and told nobody where to ask.) */
        if (memcmp(asked->id, request, FS_ASK_SIZE) == 0 && fs_is_attached(asked->connection))
            found = hold_asked(answerer, asked->connection);
    }
    fs_unlock_table();
    return found;
}

static void forget_asked(struct fs_answerer *answerer) {
    fs_lock_table();
    struct fs_answerer **at = &fs_table.answering;
    while (*at != answerer) at = &(*at)->next;
    *at = answerer->next;
    fs_unlock_table();
}

/* Whether a sender's descriptors may become ours: one who is believed, or the peer of a connection, which knows its id. */
static int may_bring(const struct fs_glimpse *seen) {
    int known = 0;
    if (!seen->named) return 0;
    if (fs_is_trusted(seen->user)) return 1;
    if (!fs_trusts_any() || !seen->asks) return 0;
    fs_lock_table();
    for (int i = 0; i < fs_table.on_ring_count && !known; i++)
        known = memcmp(fs_table.on_ring[i].id, seen->request, FS_ASK_SIZE) == 0;
    fs_unlock_table();
    return known;
}

/* Without the table lock. Whether it is done: else it is due. */
static int answer_asked(struct fs_connection *c, int patience) {
    if (fs_answer_ask(c, patience)) return 1;
    fs_lock_table();
    for (int i = 0; i < fs_table.on_ring_count; i++)
        if (fs_table.on_ring[i].connection == c) fs_table.on_ring[i].due = 1;
    fs_unlock_table();
    return 0;
}

/* The next connection on the ring that `takes` says, held; NULL: there is none. `left`: how many are to be looked at yet, at first no
 * fewer than there are. (From the last one on: who leaves the table meanwhile gives its place to the last one, which has been looked at.) */
static struct fs_connection *hold_next(struct fs_answerer *answerer, int *left, int (*takes)(struct fs_asked *)) {
    struct fs_connection *c = NULL;
    fs_lock_table();
    *left = FS_MIN(*left, fs_table.on_ring_count);
    while (!c && --*left >= 0)
        if (takes(&fs_table.on_ring[*left])) c = hold_asked(answerer, fs_table.on_ring[*left].connection);
    fs_unlock_table();
    return c;
}

static int is_due(struct fs_asked *asked) {
    int due = asked->due != 0;
    asked->due = 0;
    return due;
}

static int may_be_due(struct fs_asked *asked) {
    if (fs_is_attached(asked->connection)) fs_wake_own_set(asked->connection);
    return is_due(asked) | fs_may_have_asked(asked->connection);
}

/* Answers without having been asked: `all`, whoever may have found no room to ask; else what is due. Whether something is due then. */
static int answer_unasked(int all) {
    struct fs_answerer answerer;
    struct fs_connection *c;
    int due = 0, left = INT_MAX;
    while ((c = hold_next(&answerer, &left, all ? may_be_due : is_due))) {
        due |= !answer_asked(c, 0);
        forget_asked(&answerer);
    }
    return due;
}

/* Not under the table lock: an answer may be as long as a parcel, and takes the connection's own lock. `answering`
 * keeps the connection from ending meanwhile. */
int fs_answer_requests(int ask_fd) {
    struct fs_answerer answerer;
    struct fs_glimpse seen;
    unsigned char request[FS_ASK_SIZE];
    struct fs_asker asker;
    uint32_t user;
    int brought[2], taken = 0, left = 0, due = 0;
    uint32_t turn = fs_thread_turn();
    for (;;) {
        if (turn != fs_thread_turn()) return 0; /* given up: the number may be the program's by now */
        if (!fs_look_at_request(ask_fd, &seen)) break;
        left = seen.brings && !fs_can_drop();
        if (!left && seen.brings && !may_bring(&seen)) {
            left = !fs_drop_message(ask_fd);
            taken += !left;
            if (!left) continue;
        }
        if (left) break;
        enum fs_took took = fs_take_request(ask_fd, request, &user, brought, &asker);
        if (took == FS_NO_REQUEST) break;
        taken++;
        if (taken % FLOOD == 0) due |= answer_unasked(1);
        if (took == FS_LOOK && fs_is_trusted(user) && fs_may_answer(fs_now())) fs_answer_look(ask_fd, &asker);
        int permitted = fs_trusts_any() || fs_is_trusted(user);
        if (took == FS_OFFERED && permitted) fs_take_offer(&asker, brought);
        struct fs_connection *c = took == FS_REQUEST && permitted ? find_asked(&answerer, request) : NULL;
        if (c) {
            if (brought[0] >= 0) fs_put_back(c, brought[0]);
            else due |= !answer_asked(c, FS_PATIENCE);
            forget_asked(&answerer);
        }
        for (int i = 0; i < 2; i++)
            if (brought[i] >= 0) fs_drop_descriptor(brought[i], fs_is_trusted(user));
    }
    if (taken >= CROWD || left) due = answer_unasked(1); /* (what cannot be dropped keeps the queue full) */
    return left | due;
}

int fs_answer_again(int ask_fd) { return answer_unasked(0) | fs_answer_requests(ask_fd); }

void fs_ask_for_byte(void *memory, int side, const unsigned char id[16]) {
    fs_ask_side(memory, id, 1 - side, -1); /* (if all of the other side are gone, so is the connection) */
}
