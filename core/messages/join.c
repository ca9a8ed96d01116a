/* Joining, making and inspecting a group. Theory: serve.c, arena.h.
 *
 * Responsible for: what a member of a trusted user hands over is checked before it is used. Never: answers others (serve.c). */
#include "control/named_socket.h"
#include "control/region_mmap.h"
#include "control/fd_reaper.h"
#include "control/trust.h"
#include "messages/group.h"
#include "messages/handing.h"
#include "os/memfd.h"

enum {
    ANSWER_MS = 300,       /* patience with one member */
    ROUNDS = 40,           /* of asking all members, while there are some that refuse, or others make the group */
};
#define PATIENCE ((int64_t)1000000000) /* ns with members that do not answer at all: stopped ones, or of a busy machine */

/* ---- asking a member -------------------------------------------------------------------------------------------- */

/* Asks the member with this socket. Returns 0 with the descriptors, -ENOENT: there is none, or another -errno. */
static int ask(const char *name, size_t length, int fds[2]) {
    struct sockaddr_un address;
    socklen_t size = fs_name_address(&address, name, length);
    int fd = fs_system.socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), result;
    if (fd < 0) return -errno;
    if (!size) result = -EINVAL;
    else if (fs_system.connect(fd, (struct sockaddr *)&address, size) < 0) /* (EAGAIN: it has not come to answer others yet) */
        result = errno == EAGAIN ? -ETIMEDOUT : errno == ECONNREFUSED ? -ENOENT : -errno;
    else if (!(*name == '/' ? fs_dir_admits : fs_admits)(fs_peer_user(fd))) result = -EACCES;
    else result = fs_take_over(fd, fds, ANSWER_MS);
    fs_system.close(fd);
    return result;
}

static int is_there(const char *name, size_t length) {
    struct sockaddr_un address;
    socklen_t size = fs_name_address(&address, name, length);
    int fd = fs_system.socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int there = fd >= 0 && (fs_system.connect(fd, (struct sockaddr *)&address, size) == 0 || errno == EAGAIN);
    if (fd >= 0) fs_system.close(fd);
    return there;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* (As fs_map_memfd, but to read.) */
static void *map_read_only(int fd, size_t size) {
    void *memory = fs_system.mmap(NULL, size, PROT_NONE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) return NULL;
    fs_system.munlock(memory, size);
    if (fs_system.mprotect(memory, size, PROT_READ) == 0) return memory;
    fs_system.munmap(memory, size);
    return NULL;
}

static void unmap(struct fs_group *g) {
    unsigned char *writable = (unsigned char *)(uintptr_t)fs_load_sc(&g->writable);
    if (writable) fs_system.munmap(writable, g->geometry.arena_size);
    if (g->arena) fs_system.munmap((void *)(uintptr_t)g->arena, g->geometry.arena_size);
    if (g->table) fs_system.munmap(g->table, g->geometry.table_size);
    if (g->table_fd >= 0) fs_system.close(g->table_fd);
    if (g->arena_fd >= 0) fs_system.close(g->arena_fd);
    g->table = NULL;
    g->arena = NULL;
    g->table_fd = g->arena_fd = -1;
    fs_store_sc(&g->writable, 0);
}

/* Maps what a member has handed over. Everything is checked: it may be of another user. */
static int adopt(struct fs_group *g, int fds[2], const struct fs_group_options *options) {
    struct fs_group_head *head;
    uint64_t table_size = (uint64_t)fs_file_size(fds[0]); /* (-1 is too large) */
    for (int i = 0; i < 2; i++) { /* they are the group's from here on */
        int kept = fs_dup_reserved(fds[i], 0);
        *(i ? &g->arena_fd : &g->table_fd) = kept;
        if (kept < 0) return kept;
    }
    if (!fs_is_sealed(fds[0]) || !fs_is_sealed(fds[1]) || table_size < sizeof *head || table_size > UINT64_C(1) << 32) return -EPROTO;
    head = map_read_only(fds[0], sizeof *head);
    if (!head) return -ENOMEM;
    uint64_t magic = head->magic, size = head->size, largest = head->largest;
    uint32_t version = head->version, slots = head->slots, blocking = head->blocking, length = head->name_length;
    int same = length <= FS_GROUP_NAME_MAX && (!options || (length == options->length && memcmp(head->name, options->name, length) == 0));
    fs_system.munmap(head, sizeof *head);
    if (magic != FS_GROUP_MAGIC || version != FS_GROUP_VERSION || blocking > 1 || !same) return -EPROTO;
    if (options && blocking != options->blocking) return -EINVAL;
    if (fs_geometry_of(&g->geometry, slots, size, largest)) return -EPROTO;
    if (table_size != g->geometry.table_size || (uint64_t)fs_file_size(fds[1]) != g->geometry.arena_size) return -EPROTO;
    g->geometry.blocking = blocking;
    g->table = fs_map_memfd(g->table_fd, g->geometry.table_size);
    g->arena = map_read_only(g->arena_fd, g->geometry.arena_size);
    return g->table && g->arena ? 0 : -ENOMEM;
}

static int make(struct fs_group *g, const struct fs_group_options *options) {
    int failed = fs_geometry_of(&g->geometry, options->slots, options->size, options->largest);
    if (failed) return failed;
    g->geometry.blocking = options->blocking;
    int table = fs_memfd_sealed("fastsock-group", g->geometry.table_size);
    if (table < 0) return table;
    g->table_fd = fs_dup_reserved(table, 0);
    fs_system.close(table);
    int arena = fs_memfd_sealed("fastsock-group-arena", g->geometry.arena_size);
    if (arena < 0) return arena;
    g->arena_fd = fs_dup_reserved(arena, 0);
    fs_system.close(arena);
    if (g->table_fd < 0 || g->arena_fd < 0) return -EMFILE;
    g->table = fs_map_memfd(g->table_fd, g->geometry.table_size);
    g->arena = map_read_only(g->arena_fd, g->geometry.arena_size);
    if (!g->table || !g->arena) return -ENOMEM;
    for (uint32_t i = 0; i < options->slots; i++) /* as if a lap had been before */
        fs_store_relaxed(&fs_group_slots(g)[i], fs_slot_word((uint64_t)i - options->slots, FS_NO_BLOCK));
    struct fs_group_head *head = g->table;
    head->magic = FS_GROUP_MAGIC;
    head->version = FS_GROUP_VERSION;
    head->slots = options->slots;
    head->blocking = options->blocking;
    head->size = options->size;
    head->largest = options->largest;
    head->name_length = (uint32_t)options->length;
    memcpy(head->name, options->name, options->length);
    return 0;
}

/* ---- joining ------------------------------------------------------------------------------------------------------ */

static void key_of(const struct fs_group_options *options, char key[FS_GROUP_KEY + 1]) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (size_t i = 0; i < sizeof options->owner; i++) hash = (hash ^ (options->owner >> 8 * i & 255)) * UINT64_C(0x100000001b3);
    for (size_t i = 0; i < options->length; i++) hash = (hash ^ (unsigned char)options->name[i]) * UINT64_C(0x100000001b3);
    for (int i = 0; i < FS_GROUP_KEY; i++) key[i] = "0123456789abcdef"[hash >> 4 * i & 15];
    key[FS_GROUP_KEY] = 0;
}

/* Takes a place in the group that is mapped. Returns 0 or -errno. */
static int enter(struct fs_group *g, const struct fs_group_options *options) {
    g->lock_fd = fs_place_open(g);
    if (g->lock_fd < 0) return g->lock_fd;
    int place = fs_place_take(g, g->lock_fd);
    if (place < 0) return place;
    g->place = g->hands = (uint32_t)place;
    g->bit = UINT64_C(1) << place;
    struct fs_member_place *me = fs_place(g);
    uint64_t secret = 0;
    if (fs_system.getrandom(&secret, sizeof secret, 0) != sizeof secret) return -EAGAIN;
    fs_store_relaxed(&me->secret, secret);
    fs_store_relaxed(&me->reads, options->reads != 0);
    fs_store_relaxed(&me->pid, (uint32_t)getpid());
    fs_store_relaxed(&me->user, (uint32_t)geteuid());
    g->bell_fd = fs_bell_socket(g);
    return g->bell_fd < 0 ? g->bell_fd : fs_serve(g);
}

/* Its place in the order: all messages from here on. Twice, as a writer that has not seen `joined` may have counted `tail` up meanwhile,
 * but not beyond what `head` was before. */
static void begin(struct fs_group *g) {
    struct fs_member_place *me = fs_place(g);
    fs_store_sc(&me->cursor, fs_load_sc(&g->table->head));
    fs_store_sc(&me->joined, FS_MEMBER);
    fs_store_sc(&me->cursor, fs_load_sc(&g->table->head));
    fs_count_members(g->table);
}

/* Undoes a try. */
static void retreat(struct fs_group *g) {
    if (g->listen_fd >= 0) fs_group_unname(g, g->place, FS_LISTENS);
    if (fs_load_sc(&g->process)) fs_serve_not(g);
    if (g->bell_fd >= 0) {
        fs_group_unname(g, g->place, FS_BELL);
        fs_system.close(g->bell_fd);
    }
    if (g->lock_fd >= 0) fs_system.close(g->lock_fd);
    g->bell_fd = g->lock_fd = -1;
    fs_store_sc(&g->process, 0);
    unmap(g);
}

/* Asks all members. Returns the place of the one that has answered and whose group is joined up to `begin`, or -errno: -ENOENT: there is
 * nobody; -ETIMEDOUT: some that are there do not answer; -ECONNRESET: they refuse, or are just coming or going. */
static int join(struct fs_group *g, const struct fs_group_options *options) {
    char name[FS_NAME_MAX + 1];
    int seen = -ENOENT;
    for (int place = 0; place < FS_GROUP_MEMBERS; place++) {
        int fds[2] = {-1, -1};
        size_t length = fs_group_name(name, g, (uint32_t)place, FS_LISTENS);
        int asked = ask(name, length, fds);
        if (asked == -ENOENT) continue;
        if (asked) {
            if (seen != -ETIMEDOUT) seen = asked;
            continue;
        }
        int failed = adopt(g, fds, options);
        for (int i = 0; i < 2; i++) fs_reap_fd(fds[i], 0);
        if (!failed) failed = enter(g, options);
        if (!failed && !is_there(name, length)) failed = -ECONNRESET;
        if (!failed) return place;
        retreat(g);
        if (failed != -ECONNRESET && failed != -EADDRINUSE) return failed; /* (in use: by one that tries to make the group) */
        if (seen != -ETIMEDOUT) seen = -ECONNRESET;
    }
    return seen;
}

/* Makes the group, if the first name is free and nobody is a member. Returns 0, -EEXIST: look again, or another -errno. */
static int found(struct fs_group *g, const struct fs_group_options *options) {
    char name[FS_NAME_MAX + 1];
    int failed = make(g, options);
    if (!failed) failed = enter(g, options);
    if (!failed && (g->place != 0 || g->listen_fd < 0)) failed = -EEXIST;
    for (int looks = 0; !failed && looks < 2; looks++)
        for (uint32_t place = 1; !failed && place < FS_GROUP_MEMBERS; place++)
            if (is_there(name, fs_group_name(name, g, place, FS_LISTENS))) failed = -EEXIST;
    if (failed) retreat(g);
    return failed == -EADDRINUSE ? -EEXIST : failed;
}

int fs_group_join(const struct fs_group_options *options, struct fs_group **made) {
    int result = -EINVAL;
    if (!options->length || options->length > FS_GROUP_NAME_MAX || options->blocking > 1) return -EINVAL;
    struct fs_group *g = fs_system.calloc(1, sizeof *g);
    if (!g) return -ENOMEM;
    g->table_fd = g->arena_fd = g->lock_fd = g->hands_fd = g->bell_fd = g->listen_fd = -1;
    g->owner = options->owner;
    g->folder = options->far ? fs_rendezvous_dir() : NULL;
    if (g->folder) fs_dir_sweep();
    key_of(options, g->key);
    fs_spin_stats_init(&g->receiving);
    fs_spin_stats_init(&g->sending);
    int64_t until = fs_now() + PATIENCE;
    for (int round = 1, left = ROUNDS; left > 0 && fs_now() < until; round++) {
        result = join(g, options);
        if (result >= 0 && options->how == FS_GROUP_NEW) {
            retreat(g);
            result = -EEXIST;
            break;
        }
        if (result == -ENOENT && options->how != FS_GROUP_EXISTING) result = found(g, options);
        if (result != -EEXIST && result != -ECONNRESET && result != -ETIMEDOUT) break;
        left -= result != -ETIMEDOUT;
        struct timespec nap = {0, 1000000 * FS_MIN(round, (int)ROUNDS)};
        fs_system.nanosleep(&nap, NULL);
    }
    if (result == -ETIMEDOUT) result = -EAGAIN;
    if (result == -ECONNRESET) result = -ETIMEDOUT;
    if (result < 0) {
        fs_system.free(g);
        return result;
    }
    begin(g);
    *made = g;
    return 0;
}

void fs_group_free(struct fs_group *g) {
    unmap(g);
    fs_system.free(g);
}

/* ---- looking ------------------------------------------------------------------------------------------------------ */

static void describe(const struct fs_group *g, struct fs_group_info *info) {
    struct fs_group_head *table = g->table;
    memset(info, 0, sizeof *info);
    info->head = fs_load_sc(&table->head);
    info->bytes = fs_load_relaxed(&table->touched);
    info->size = g->geometry.limit;
    info->largest = g->geometry.largest;
    info->members = fs_load_relaxed(&table->members);
    info->slots = g->geometry.slots;
    info->blocking = g->geometry.blocking;
}

static void add_member(struct fs_group_info *info, struct fs_member_place *member) {
    uint64_t cursor = fs_load_relaxed(&member->cursor);
    info->sent += fs_load_relaxed(&member->sent);
    info->received += fs_load_relaxed(&member->received);
    info->lost += fs_load_relaxed(&member->lost);
    if (info->head > cursor) info->unread = FS_MAX(info->unread, info->head - cursor);
}

void fs_group_get_info(struct fs_group *g, struct fs_group_info *info) {
    describe(g, info);
    info->place = g->place;
    add_member(info, fs_place(g));
}

int fs_group_inspect(const char *socket_name, struct fs_group_info *info, char name[FS_GROUP_NAME_MAX + 1]) {
    int fds[2] = {-1, -1}, failed = ask(socket_name, strlen(socket_name), fds);
    if (failed) return failed;
    struct fs_group *g = fs_system.calloc(1, sizeof *g);
    if (g) {
        g->table_fd = g->arena_fd = -1;
        failed = adopt(g, fds, NULL);
        if (!failed) {
            describe(g, info);
            for (uint32_t i = 0, end = fs_places_end(g->table); i < end; i++)
                if (fs_load_sc(&g->table->member[i].joined) == FS_MEMBER) add_member(info, &g->table->member[i]);
            uint32_t length = FS_MIN(g->table->name_length, (uint32_t)FS_GROUP_NAME_MAX);
            memcpy(name, g->table->name, length);
            name[length] = 0;
        }
        unmap(g);
        fs_system.free(g);
    }
    for (int i = 0; i < 2; i++) fs_reap_fd(fds[i], 0);
    return g ? failed : -ENOMEM;
}
