/* Waking who waits for messages or for room (wait.c).
 *
 * The lost-wakeup argument, for all bells. A sleeper reads the futex, counts `armed` up, then looks for what it waits for, and sleeps while
 * the futex has the value it read. A waker publishes, then compares `armed` and `told`. Both are sequentially consistent, so the sleeper
 * sees the message or the waker sees it armed. A waker stores `told` after it has woken, and it stores the value of `armed` that it read
 * before: for a sleeper that came since the two still differ.
 *
 * A member that waits in poll arms its own bell, and then the group's, so a waker looks at the members' only if one of them has armed. It
 * is woken by a datagram to its socket, which anybody on the host may send: a filter of the kernel's drops all that do not contain the
 * member's secret, which only members can read.
 *
 * Responsible for: no wakeup is lost, by the death of a waker either. Never: takes or publishes messages, or sleeps (wait.c). */
#include "messages/group.h"

#include <linux/filter.h>
#include <stdio.h>

#include "control/named_socket.h"
#include "events/futex.h"

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
