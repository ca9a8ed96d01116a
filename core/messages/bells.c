/* Waiting for messages and for room, and waking who waits.
 *
 * The lost-wakeup argument, for all bells. A sleeper reads the futex, counts `armed` up, then looks for what it waits for, and sleeps while
 * the futex has the value it read. A waker publishes, then compares `armed` and `told`. Both are sequentially consistent, so the sleeper
 * sees the message or the waker sees it armed. A waker stores `told` after it has woken, and it stores the value of `armed` that it read
 * before: a sleeper that came since is still untold.
 *
 * A member that waits in poll arms its own bell, and then the group's, so a waker looks at the members' only if one of them has armed. It
 * is woken by a datagram to its socket, which anybody on the host may send: a filter of the kernel's drops all that do not contain the
 * member's secret, which only members can read.
 *
 * Responsible for: no wakeup is lost, by the death of a waker either. Never: takes or publishes messages. */
#include "messages/group.h"

#include <linux/filter.h>
#include <stdio.h>

#include "control/named_socket.h"
#include "events/futex.h"

#define LOOK_INTERVAL ((int64_t)20000000) /* ns that a writer sleeps at most: nobody wakes it when a reader dies */
/* That a reader does: a signal's handler that ran before the sleep may have told its caller to end. */
#define CALLER_INTERVAL ((int64_t)100000000)
#define UNTRUSTED_INTERVAL ((int64_t)50000000)

/* ---- waking ----------------------------------------------------------------------------------------------------- */

static int is_armed(struct fs_bell *bell, uint32_t *armed) {
    *armed = fs_load_sc(&bell->armed);
    return *armed != fs_load_sc(&bell->told);
}

static void ring(struct fs_bell *bell) {
    uint32_t armed;
    if (!is_armed(bell, &armed)) return;
    fs_futex_wake(&bell->futex);
    fs_store_sc(&bell->told, armed);
}

/* Sends the secret to a member's socket. If its queue is full, it is readable already. */
static void notify(const struct fs_group *g, uint32_t place) {
    char name[FS_NAME_MAX + 1];
    struct sockaddr_un address;
    socklen_t size = fs_name_address(&address, name, fs_group_name(name, g, place, FS_BELL));
    uint64_t secret = fs_load_relaxed(&g->table->member[place].secret);
    while (fs_system.sendto(g->bell_fd, &secret, sizeof secret, MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&address, size) < 0 &&
           errno == EINTR) {}
}

void fs_wake_readers(struct fs_group *g) {
    struct fs_group_head *table = g->table;
    uint32_t armed, member_armed;
    ring(&table->readers);
    if (!is_armed(&table->pollers, &armed)) return;
    for (uint32_t i = 0, end = fs_places_end(table); i < end; i++) {
        struct fs_member_place *member = &table->member[i];
        if (!fs_load_relaxed(&member->joined) || !is_armed(&member->poll, &member_armed)) continue;
        notify(g, i);
        fs_store_sc(&member->poll.told, member_armed);
    }
    fs_store_sc(&table->pollers.told, armed);
}

void fs_wake_writers(struct fs_group *g) { ring(&g->table->writers); }

/* ---- sleeping --------------------------------------------------------------------------------------------------- */

/* Returns true if a message of the size could be sent for which there was no room. */
static int is_writable(struct fs_group *g) {
    struct fs_lent lent;
    struct fs_group_head *table = g->table;
    fs_advance_tail(g);
    if (fs_load_sc(&table->head) - fs_load_sc(&table->tail) >= g->geometry.slots) return 0;
    if (fs_group_reserve(g, fs_load_relaxed(&g->wanted), &lent)) return 0;
    fs_group_abandon(g, &lent);
    return 1;
}

static int is_ready(struct fs_group *g, int what) { return what == FS_RECEIVE ? fs_group_pending(g) : is_writable(g); }

static int spin(struct fs_group *g, int what, int64_t began, int64_t deadline) {
    struct fs_spin_stats *stats = what == FS_RECEIVE ? &g->receiving : &g->sending;
    int64_t budget = fs_spin_budget(stats, began, 0), until = began + budget, now;
    int ready = 0;
    if (deadline >= 0 && until > deadline) until = deadline;
    while (!ready && (now = fs_now()) < until)
        for (int i = 0; i < FS_SPIN_ROUNDS && !(ready = is_ready(g, what)); i++) fs_cpu_relax();
    fs_spin_stats_update(stats, &g->count, began, budget > 0, ready);
    return ready;
}

int fs_group_wait(struct fs_group *g, int what, int64_t deadline) {
    struct fs_bell *bell = what == FS_RECEIVE ? &g->table->readers : &g->table->writers;
    int64_t began = fs_now(), most = what == FS_SEND ? LOOK_INTERVAL : CALLER_INTERVAL;
    fs_serve_in_child(g);
    if (what == FS_RECEIVE && fs_group_pending(g)) { /* what another thread or process takes just now */
        fs_lock_wait(&fs_place(g)->taking);
        return 1;
    }
    if (spin(g, what, began, deadline)) return 1;
    uint32_t heard = fs_futex_load(&bell->futex);
    fs_add_sc(&bell->armed, 1);
    if (is_ready(g, what)) return 1;
    if (fs_load_relaxed(&fs_untrusted_wakeups)) most = FS_MIN(most, UNTRUSTED_INTERVAL);
    int64_t now = fs_now(), rest = deadline < 0 ? -1 : FS_MAX(deadline - now, (int64_t)0);
    int ends = rest >= 0 && rest <= most;
    int slept = fs_futex_wait(&bell->futex, heard, ends ? rest : most);
    return slept == 0 && !ends ? 1 : slept;
}

/* ---- the descriptor of a member that polls ------------------------------------------------------------------------ */

/* A datagram socket with the member's name, which takes its secret alone. */
int fs_bell_socket(const struct fs_group *g) {
    char name[FS_NAME_MAX + 1];
    uint32_t half[2];
    uint64_t secret = fs_load_relaxed(&fs_place(g)->secret);
    memcpy(half, &secret, sizeof secret);
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __builtin_bswap32(half[0]), 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 4), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __builtin_bswap32(half[1]), 0, 1),
        BPF_STMT(BPF_RET | BPF_K, UINT32_MAX), BPF_STMT(BPF_RET | BPF_K, 0),
    };
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#error the filter compares words as the kernel reads them, in the order of the network
#endif
    struct sock_fprog filter = {sizeof steps / sizeof *steps, steps};
    int fd = fs_system.socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -errno;
    int failed = fs_system.setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) < 0 ? -errno : 0;
    if (!failed) failed = fs_name_bind(fd, name, fs_group_name(name, g, g->place, FS_BELL));
    if (failed) fs_system.close(fd);
    return failed ? failed : fd;
}

void fs_bell_settle(struct fs_group *g) {
    uint64_t said;
    if (fs_group_pending(g)) { /* the descriptor is readable, or becomes so */
        if (fs_load_sc(&fs_place(g)->poll.armed) == fs_load_sc(&fs_place(g)->poll.told)) return;
        notify(g, g->place);
        return;
    }
    while (fs_system.recv(g->bell_fd, &said, sizeof said, MSG_DONTWAIT) >= 0 || errno == EINTR) {}
    fs_add_sc(&fs_place(g)->poll.armed, 1);
    fs_add_sc(&g->table->pollers.armed, 1);
    if (fs_group_pending(g)) notify(g, g->place);
}

int fs_group_fd(struct fs_group *g) {
    if (!fs_exchange_sc(&g->polls, 1)) {
        fs_bell_settle(g);
        if (fs_group_pending(g)) notify(g, g->place); /* (what had been told meanwhile nobody has looked at) */
    }
    return g->bell_fd;
}

void fs_group_fd_unused(struct fs_group *g) { fs_store_sc(&g->polls, 0); }
