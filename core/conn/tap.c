/* Shows an observer the bytes of this process's connections: who may look, and the records. The page: wire/tap_page.h.
 *
 * Responsible for: nothing that the observer does or omits costs more than its records. Never: which connections are watched (state.h has
 * the marks, control_requests.c and regions.c set them). */
#include "conn/tap.h"

#include <sys/prctl.h>

#include "conn/state.h"
#include "os/host.h"
#include "os/memfd.h"

static struct {
    fs_word32 on;     /* counts observers; 0: nobody looks. A connection's `tap_number` has the number of the one that knows it */
    fs_word32 inside; /* threads that use the page */
    fs_word32 hidden; /* the setting `tcpdump` is off. Relaxed: for the next observer */
    /* changed while nobody is inside */
    fs_atomic_ptr(struct fs_tap) page;
    uint32_t snaplen, port, owner, last;
} tap;

void fs_tap_hide(int hidden) { fs_store_relaxed(&tap.hidden, hidden != 0); }

int fs_tap_is_on(void) { return fs_load_sc(&tap.on) != 0; }

void FS_AT_FORK fs_tap_forget(void) {
    if (fs_load_relaxed(&tap.inside)) fs_store_relaxed(&tap.inside, 0); /* (avoids copying a page) */
}

/* ---- the page -------------------------------------------------------------------------------------------------- */

/* Returns true if the observer has looked lately. */
static int has_observer(void) {
    struct fs_tap *page = fs_load_relaxed(&tap.page);
    if (!fs_tap_is_on() || !page) return 0;
    int64_t age = fs_now() - (int64_t)fs_load_relaxed(&page->looked); /* (which may be a moment ahead) */
    return age < FS_TAP_LEASE && age > -FS_TAP_LEASE;
}

/* Closes the page for all threads. Returns true if none uses it any more. (Each is done in microseconds, unless it lost the CPU.) */
static int stop(void) {
    fs_store_sc(&tap.on, 0);
    for (int naps = 0; naps < 200 && fs_load_sc(&tap.inside); naps++) fs_short_sleep();
    return !fs_load_sc(&tap.inside);
}

/* (A process that may not be traced, as one with keys of other programs asks for by prctl(2), is not looked at either.) */
static enum fs_tap_answer judge(void) {
    if (fs_load_relaxed(&tap.hidden) || fs_system.prctl(PR_GET_DUMPABLE, NULL) != 1) return FS_TAP_REFUSED;
    return (tap.owner == fs_own_pid && has_observer()) || !stop() ? FS_TAP_BUSY : FS_TAP_SHOWS;
}

int fs_tap_accept(int memfd) {
    if (!fs_is_sealed(memfd) || fs_file_size(memfd) != FS_TAP_SIZE) return 0;
    struct fs_tap *page = fs_map_memfd(memfd, FS_TAP_SIZE), *before = fs_load_relaxed(&tap.page);
    if (!page) return 0;
    enum fs_tap_answer answer = judge();
    fs_store_sc(&page->answer, answer);
    if (answer != FS_TAP_SHOWS) {
        fs_system.munmap(page, FS_TAP_SIZE);
        return 0;
    }
    if (before) fs_system.munmap(before, FS_TAP_SIZE);
    fs_store_relaxed(&tap.page, page);
    tap.snaplen = *(volatile uint32_t *)&page->snaplen;
    tap.port = *(volatile uint32_t *)&page->port;
    tap.owner = fs_own_pid;
    if (!++tap.last) tap.last = 1;
    fs_store_sc(&tap.on, tap.last);
    return 1;
}

/* Returns the page, until leave; NULL: nobody looks any more, and the connection is not watched. */
static struct fs_tap *enter(struct fs_connection *c) {
    fs_add_sc(&tap.inside, 1);
    if (has_observer()) return fs_load_relaxed(&tap.page);
    fs_store_sc(&tap.on, 0);
    fs_add_sc(&tap.inside, (uint32_t)-1);
    fs_note_tapped(c, 0);
    if (fs_tap_is_on()) fs_note_tapped(c, 1); /* another observer has come just now */
    return NULL;
}

static void leave(void) { fs_add_sc(&tap.inside, (uint32_t)-1); }

/* ---- records --------------------------------------------------------------------------------------------------- */

/* Returns false if there was no room. */
static int write_record(struct fs_tap *page, struct fs_connection *c, enum fs_tap_kind kind, int64_t when, uint64_t position,
                        struct fs_source from, uint32_t length, uint32_t kept) {
    uint32_t size;
    struct fs_tap_record *record = fs_tap_reserve(page, kept, &size);
    if (!record) return 0;
    record->kind = (uint32_t)kind;
    record->when = when;
    record->inode = c->inode;
    record->position = position;
    record->length = length;
    record->kept = kept;
    if (kept) fs_copy_from(record + 1, from, kept);
    fs_tap_commit(record, size);
    return 1;
}

/* The position in the stream of a direction, by the bytes that the ring has carried. (One that has not moved yet has the kernel's.) */
static uint64_t in_stream(struct fs_connection *c, int sent, uint64_t of_ring) {
    uint64_t at = fs_load_relaxed(sent ? &c->ring.tx->switch_at : &c->ring.rx->switch_at), kernel = 0;
    if (at) return at - 1 + of_ring;
    if (!sent) return fs_load_relaxed(&fs_own(c)->receiver.kernel_taken);
    return c->stream->count_sent(fs_fd(c), &kernel) ? kernel : 0;
}

static uint64_t end_of(struct fs_connection *c, int sent) {
    return in_stream(c, sent, fs_load_relaxed(sent ? &c->ring.count.bytes_sent : &c->ring.count.bytes_received));
}

/* The first record of a connection. Returns false if it is none that the observer asked for, or there was no room. (Out of line, as few
 * have so large a frame.) */
__attribute__((noinline)) static int introduce(struct fs_tap *page, struct fs_connection *c, int64_t when) {
    struct fs_tap_start start = {
        .positions = {end_of(c, 1), end_of(c, 0)}, .side = (uint32_t)c->ring.side, .peer = (uint32_t)c->peer_process};
    int wanted = !tap.port;
    memcpy(start.id, c->region_id, sizeof start.id);
    for (int remote = 0; remote < 2; remote++) {
        int port = 0, size = fs_endpoint_address(fs_fd(c), remote, start.addresses[remote], &port);
        if (size > 0) start.address_size = (uint32_t)size;
        else if (c->stream->find_path) c->stream->find_path(fs_fd(c), remote, (char *)start.paths[remote]);
        start.ports[remote] = (uint32_t)port;
        wanted |= tap.port == (uint32_t)port && size > 0;
    }
    if (!wanted) fs_note_tapped(c, 0);
    wanted = wanted && write_record(page, c, FS_TAP_START, when, 0, (struct fs_source){.data = (const char *)&start}, 0, sizeof start);
    if (wanted) fs_store_relaxed(&c->tap_number, fs_load_relaxed(&tap.on));
    return wanted;
}

static int is_known(struct fs_tap *page, struct fs_connection *c, int64_t when) {
    return fs_load_relaxed(&c->tap_number) == fs_load_relaxed(&tap.on) || introduce(page, c, when);
}

void fs_tap_bytes(struct fs_connection *c, enum fs_tap_kind kind, int64_t when, uint64_t position, struct fs_source from, size_t length) {
    struct fs_tap *page = enter(c);
    if (!page) return;
    int shown = is_known(page, c, when);
    position = in_stream(c, kind == FS_TAP_SENT, position);
    while (shown && length) {
        uint32_t part = (uint32_t)FS_MIN(length, (size_t)FS_TAP_PIECE);
        write_record(page, c, kind, when, position, from, part, from.data || from.v ? FS_MIN(part, tap.snaplen) : 0);
        from.skip += part;
        position += part;
        length -= part;
    }
    leave();
}

void fs_tap_end(struct fs_connection *c, enum fs_tap_kind kind) {
    int64_t when = fs_now();
    struct fs_tap *page = enter(c);
    if (!page) return;
    int sent = kind != FS_TAP_FIN_RECEIVED;
    if (is_known(page, c, when)) write_record(page, c, kind, when, end_of(c, sent), (struct fs_source){0}, 0, 0);
    leave();
}
