/* Requests of the peers: for a doorbell byte, to go back to the kernel, to send a parcel again.
 *
 * Responsible for: which connection is asked, and that it stays until it has answered. Never: the answer itself, which
 * is the connection's, nor one to a user whom this process does not trust. */
#include "channel/requests.h"

#include "channel/table.h"
#include "channel/thread.h"
#include "connection/leavers_peer.h"
#include "connection/send.h"
#include "connection/state.h"
#include "connection/turns.h"

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
        t->on_ring_count++;
    }
    fs_unlock_table();
    return room ? 0 : -ENOMEM;
}

void fs_answer_asks(void *memory, int side) {
    /* SYNC: token - pairs with fs_ask_for_byte. */
    fs_store_release(&((struct fs_region *)memory)->asks[side], fs_ask_token());
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
    int busy = t->answering == c;
    fs_unlock_table();
    while (busy) {
        fs_nap_aside();
        fs_take_table();
        busy = t->answering == c;
        fs_unlock_table();
    }
}

/* The connection that a request is for; it does not end before `forget_asked`. NULL: there is none. */
static struct fs_connection *find_asked(const unsigned char request[FS_ASK_SIZE]) {
    struct fs_connection *found = NULL;
    fs_lock_table();
    for (int i = 0; i < fs_table.on_ring_count; i++) {
        struct fs_asked *asked = &fs_table.on_ring[i];
        /* (One that has not attached yet has nothing to answer with, and told nobody where to ask.) */
        if (memcmp(asked->id, request, FS_ASK_SIZE) == 0 && fs_is_attached(asked->connection)) {
            found = fs_table.answering = asked->connection;
            break;
        }
    }
    fs_unlock_table();
    return found;
}

static void forget_asked(void) {
    fs_lock_table();
    fs_table.answering = NULL;
    fs_unlock_table();
}

/* Not under the table lock: an answer may be as long as a parcel, and takes the connection's own lock. `answering`
 * keeps the connection from ending meanwhile. */
void fs_answer_requests(int ask_fd) {
    unsigned char request[FS_ASK_SIZE];
    struct fs_asker asker;
    uint32_t user;
    int parcel;
    uint32_t turn = fs_thread_turn();
    for (;;) {
        if (turn != fs_thread_turn()) return; /* given up: the number may be the program's by now */
        enum fs_took took = fs_take_request(ask_fd, request, &user, &parcel, &asker);
        if (took == FS_NO_REQUEST) return;
        if (took == FS_LOOK && fs_is_trusted(user) && fs_may_answer(fs_now())) fs_answer_look(ask_fd, &asker);
        if (took != FS_REQUEST) continue;
        struct fs_connection *c = fs_table.trusts_any || fs_is_trusted(user) ? find_asked(request) : NULL;
        if (c) {
            if (parcel >= 0) fs_put_back(c, parcel);
            else fs_answer_ask(c);
            forget_asked();
        }
        if (parcel >= 0) fs_system.close(parcel);
    }
}

void fs_ask_for_byte(void *memory, int side, const unsigned char id[16]) {
    /* SYNC: token - pairs with fs_answer_asks. (If the other process is gone, so is its connection.) */
    fs_ask(fs_load_acquire(&((struct fs_region *)memory)->asks[1 - side]), id, 1 - side, -1);
}
