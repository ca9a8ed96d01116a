/* Control requests of the peers: finds the connection that a request is for, and keeps it from ending until it has answered. The
 * connection makes the answer. Also receives the peers' offers of pages of event sets. Who does not know a connection's id gets no
 * answer. */
#include "control/control_requests.h"

#include <limits.h>

#include "control/control_recv.h"
#include "control/region_mmap.h"
#include "control/rendezvous_dir.h"
#include "control/control_state.h"
#include "control/trust.h"
#include "conn/fallback_peer.h"
#include "conn/event_slot.h"
#include "conn/send.h"
#include "conn/wake.h"
#include "conn/state.h"
#include "conn/tap.h"
#include "conn/request.h"

enum { BURST = 2,   /* datagrams at once that may have filled the queue (net.unix.max_dgram_qlen): a request may have found no room */
       FLOOD = 64 }; /* datagrams without a pause: requests may find no room meanwhile */

int fs_requests_expect(struct fs_connection *c, int side, const unsigned char id[16]) {
    struct fs_control_state *t = &fs_control_state;
    fs_control_lock_hosted();
    if (t->on_ring_count == t->on_ring_room) {
        struct fs_request_target *larger = fs_system.realloc(t->on_ring, (size_t)(t->on_ring_room * 2 + 16) * sizeof *larger);
        if (larger) {
            t->on_ring = larger;
            t->on_ring_room = t->on_ring_room * 2 + 16;
        }
    }
    int room = t->on_ring_count < t->on_ring_room;
    if (room) {
        struct fs_request_target *target = &t->on_ring[t->on_ring_count];
        target->connection = c;
        memcpy(target->id, id, 16);
        target->id[16] = (unsigned char)side;
        target->due = 0;
        t->on_ring_count++;
    }
    fs_control_unlock();
    return room ? 0 : -ENOMEM;
}

uint64_t fs_requests_announce(void *memory, int side) {
    /* SYNC: token - pairs with fs_send_control_to_side. */
    fs_store_release(&((struct fs_region *)memory)->asks[side], fs_control_fds.token);
    return fs_control_fds.token;
}

void fs_requests_announce_holder(struct fs_connection *c) {
    uint64_t token = fs_control_fds.token, before = fs_load_relaxed(&c->ring.region->asks[c->ring.side]);
    if (!token || before == token) return;
    /* The holder announced before is asked again if this process is killed. An older one that still listens is better: this may be one
     * of many children. */
    fs_word64 *other = &c->ring.region->asks_else[c->ring.side];
    uint64_t kept = fs_load_relaxed(other);
    /* SYNC: token - pairs with fs_send_control_to_side. */
    if (!kept || kept == token || !fs_control_is_open(kept)) fs_store_release(other, before);
    fs_store_relaxed(&c->asked_here, token);
    c->asked_before = before;
    fs_requests_announce(c->ring.region, c->ring.side);
    fs_send_way(c, token);
}

/* Another holder of the far peer's side is asked from now on. What was posted meanwhile may have woken nobody there. */
static void take_over(struct fs_connection *c, int came) {
    int way = fs_far_of(c) && fs_is_way(came) ? fs_dup_reserved(came, 0) : -1;
    if (way < 0 || !fs_take_way(&c->far, way)) return;
    fs_wake_peer_all(c);
}

/* Needs the table lock. */
static int is_answering(const struct fs_connection *c) {
    for (struct fs_request_handler *a = fs_control_state.answering; a; a = a->next)
        if (a->connection == c) return 1;
    return 0;
}

void fs_requests_stop(struct fs_connection *c) {
    struct fs_control_state *t = &fs_control_state;
    fs_control_lock_hosted();
    for (int i = 0; i < t->on_ring_count; i++) {
        if (t->on_ring[i].connection == c) {
            t->on_ring_count--;
            t->on_ring[i] = t->on_ring[t->on_ring_count];
            break;
        }
    }
    int busy = is_answering(c);
    fs_control_unlock();
    while (busy) {
        fs_short_sleep_unlocked();
        fs_control_lock_hosted();
        busy = is_answering(c);
        fs_control_unlock();
    }
}

/* Keeps the connection from ending before release_target. Needs the table lock. */
static struct fs_connection *hold_target(struct fs_request_handler *handler, struct fs_connection *c) {
    handler->connection = c;
    handler->next = fs_control_state.answering;
    fs_control_state.answering = handler;
    return c;
}

/* Returns the connection that a request is for, held, or NULL. */
static struct fs_connection *find_target(struct fs_request_handler *handler, const unsigned char request[FS_CONTROL_KEY_SIZE]) {
    struct fs_connection *found = NULL;
    fs_control_lock();
    for (int i = 0; i < fs_control_state.on_ring_count && !found; i++) {
        struct fs_request_target *target = &fs_control_state.on_ring[i];
        /* (One that has not attached yet has nothing to answer with, and its region names no token.) */
        if (memcmp(target->id, request, FS_CONTROL_KEY_SIZE) == 0 && fs_is_attached(target->connection))
            found = hold_target(handler, target->connection);
    }
    fs_control_unlock();
    return found;
}

static void release_target(struct fs_request_handler *handler) {
    fs_control_lock();
    struct fs_request_handler **at = &fs_control_state.answering;
    while (*at != handler) at = &(*at)->next;
    *at = handler->next;
    fs_control_unlock();
}

/* Returns true if a sender could harm this process by other means. (Where ways lead here (far_peer.h), the number of a user says
 * nothing.) */
static int is_trusted(uint32_t user) { return fs_is_trusted(user) && !fs_rendezvous_dir(); }

/* Returns true if who says so has the region of a connection: the id in it is drawn at random. Its user says nothing more, and may be
 * another one than that of the process which met this one: a child that has given up its privileges. */
static int knows_id(const unsigned char request[FS_CONTROL_KEY_SIZE]) {
    int known = 0;
    fs_control_lock();
    for (int i = 0; i < fs_control_state.on_ring_count && !known; i++)
        known = memcmp(fs_control_state.on_ring[i].id, request, FS_CONTROL_KEY_SIZE) == 0;
    fs_control_unlock();
    return known;
}

/* Returns true if a sender's descriptors may be received. */
static int may_send_fds(const struct fs_control_peek *seen) {
    return seen->named && (is_trusted(seen->user) || (seen->is_request && knows_id(seen->request)));
}

/* Call without the table lock. Returns true if answered; else the answer is due. */
static int answer_asked(struct fs_connection *c, int patience) {
    if (fs_handle_request(c, patience)) return 1;
    fs_control_lock();
    for (int i = 0; i < fs_control_state.on_ring_count; i++)
        if (fs_control_state.on_ring[i].connection == c) fs_control_state.on_ring[i].due = 1;
    fs_control_unlock();
    return 0;
}

/* Returns the next connection on the ring that `takes` accepts, held, or NULL. `left`: entries still to examine, at first no fewer than
 * there are. (From the last one on: when an entry is removed, the last one, already examined, takes its index.) */
static struct fs_connection *hold_next(struct fs_request_handler *handler, int *left, int (*takes)(struct fs_request_target *)) {
    struct fs_connection *c = NULL;
    fs_control_lock();
    *left = FS_MIN(*left, fs_control_state.on_ring_count);
    while (!c && --*left >= 0)
        if (takes(&fs_control_state.on_ring[*left])) c = hold_target(handler, fs_control_state.on_ring[*left].connection);
    fs_control_unlock();
    return c;
}

static int is_due(struct fs_request_target *target) {
    int due = target->due != 0;
    target->due = 0;
    return due;
}

static int may_be_due(struct fs_request_target *target) {
    if (fs_is_attached(target->connection)) fs_wake_own_set(target->connection);
    return is_due(target) | fs_peer_may_have_asked(target->connection);
}

/* Answers without a request: for all connections whose peer may have found no room for one, if `all`; else those due. Returns true if an
 * answer is still due. */
static int answer_unasked(int all) {
    struct fs_request_handler handler;
    struct fs_connection *c;
    int due = 0, left = INT_MAX;
    while ((c = hold_next(&handler, &left, all ? may_be_due : is_due))) {
        due |= !answer_asked(c, 0);
        release_target(&handler);
    }
    return due;
}

/* ---- offers of pages ------------------------------------------------------------------------------------------- */

/* Returns the token of the control socket that a datagram came from, 0 if it came from another socket. */
static uint64_t token_of(const struct fs_requester *requester) {
    struct sockaddr_un same;
    unsigned long long token = 0;
    char name[sizeof same.sun_path + 1] = {0};
    if (requester->size <= offsetof(struct sockaddr_un, sun_path) + 1 || requester->size > sizeof same) return 0;
    memcpy(name, requester->address.sun_path + 1, requester->size - offsetof(struct sockaddr_un, sun_path) - 1);
    if (sscanf(name, FS_CONTROL_NAME, &token) != 1) return 0;
    socklen_t size = fs_control_address(&same, token);
    /* (An even number would be a far peer's key, which no name has.) */
    return size == requester->size && token & 1 && memcmp(&same, &requester->address, size) == 0 ? token : 0;
}

/* (Seals before size: a file that has them is the kernel's own.) */
static int is_sound(int memfd, int fd) {
    int flags = fs_system.fcntl(fd, F_GETFL, 0);
    return fs_is_sealed(memfd) && fs_file_size(memfd) == FS_PAGE_SIZE && flags >= 0 && flags & O_NONBLOCK &&
           fs_is_eventfd(fd, fs_control_fds.kick);
}

/* Needs the table lock, so that a fork finds all of it done, or nothing. */
static void keep_offered(uint64_t token, const struct fs_requester *requester, const int descriptors[2]) {
    int fd = fs_dup_reserved(descriptors[1], 0);
    if (fd < 0) return;
    struct fs_event_page *page = fs_map_memfd(descriptors[0], FS_PAGE_SIZE);
    if (page && fs_remote_set_add(token, requester->offer.set, page, fd)) {
        fs_store_relaxed(&page->known, 1); /* tells the owner not to offer the page again */
        return;
    }
    if (page) fs_system.munmap(page, FS_PAGE_SIZE);
    fs_system.close(fd);
}

/* Returns the key of the process in another network namespace that has the other end of a connection; 0: it is in this one. Such a process
 * can say nothing of the sets of another: it has to know the connection's id. */
static uint64_t far_key_of(const unsigned char request[FS_CONTROL_KEY_SIZE]) {
    struct fs_request_handler handler;
    struct fs_connection *c = find_target(&handler, request);
    struct fs_far_peer *far = c ? fs_far_of(c) : NULL;
    uint64_t key = far ? far->key : 0;
    if (c) release_target(&handler);
    return key;
}

/* Checks an offer of the page of an event set and keeps it. `requester`: its sender. `descriptors`: page and eventfd, which stay the
 * caller's. Takes the table lock; asks no file system. */
static void accept_page_offer(const struct fs_requester *requester, const unsigned char request[FS_CONTROL_KEY_SIZE],
                              const int descriptors[2]) {
    uint64_t key = far_key_of(request), token = key ? key : token_of(requester);
    if (!token || !is_sound(descriptors[0], descriptors[1])) return;
    fs_control_lock();
    keep_offered(token, requester, descriptors);
    fs_control_unlock();
}

/* ---- observers -------------------------------------------------------------------------------------------------- */

static void accept_observer(int memfd) {
    if (!fs_tap_accept(memfd)) return;
    fs_control_lock();
    for (int i = 0; i < fs_control_state.on_ring_count; i++) fs_note_tapped(fs_control_state.on_ring[i].connection, 1);
    fs_control_unlock();
}

/* ---- what came -------------------------------------------------------------------------------------------------- */

/* Runs without the table lock: an answer may be as long as the unread data, and takes the connection's own lock. `answering` keeps the
 * connection from ending meanwhile. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wframe-larger-than=" /* the control thread's stack is our own */
int fs_handle_requests(int request_fd) {
    struct fs_request_handler handler;
    struct fs_control_peek seen;
    unsigned char request[FS_CONTROL_KEY_SIZE];
    struct fs_requester requester;
    uint32_t user;
    int brought[2], taken = 0, left = 0, due = 0;
    uint32_t generation = fs_control_thread_generation();
    for (;;) {
        if (generation != fs_control_thread_generation()) return 0; /* given up: the program may use the number by now */
        if (!fs_peek_control(request_fd, &seen)) {
            left = errno == ENOMEM; /* (of a datagram that stays the kernel tells no second time) */
            break;
        }
        left = seen.has_fds && !fs_reaper_has_room();
        if (!left && seen.has_fds && !may_send_fds(&seen)) {
            left = !fs_reap_message(request_fd);
            taken += !left;
            if (!left) continue;
        }
        if (left) break;
        enum fs_control_kind took = fs_recv_control(request_fd, request, &user, brought, &requester);
        if (took == FS_CONTROL_NONE) {
            left = 1; /* it was there */
            break;
        }
        taken++;
        if (taken % FLOOD == 0) due |= answer_unasked(1);
        if (took == FS_CONTROL_QUERY && fs_is_trusted(user) && fs_reply_allowed(fs_now())) fs_answer_query(request_fd, &requester);
        if (took == FS_CONTROL_PAGE_OFFER && (is_trusted(user) || knows_id(request))) accept_page_offer(&requester, request, brought);
        if (took == FS_CONTROL_TAP && is_trusted(user) && fs_reply_allowed(fs_now())) accept_observer(brought[0]);
        int is_request = took == FS_CONTROL_REQUEST || took == FS_CONTROL_WAY;
        struct fs_connection *c = is_request ? find_target(&handler, request) : NULL;
        if (c) {
            if (took == FS_CONTROL_WAY) take_over(c, brought[0]);
            else if (brought[0] >= 0) fs_resend_unread(c, brought[0]);
            else due |= !answer_asked(c, FS_PATIENCE);
            release_target(&handler);
        }
        for (int i = 0; i < 2; i++)
            if (brought[i] >= 0) fs_reap_fd(brought[i], is_trusted(user));
    }
    if (taken >= BURST || left) due = answer_unasked(1); /* (a datagram that cannot be dropped keeps the queue full) */
    return left | due;
}
#pragma GCC diagnostic pop

int fs_handle_due_requests(int request_fd) { return answer_unasked(0) | fs_handle_requests(request_fd); }
