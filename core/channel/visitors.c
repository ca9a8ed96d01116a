/* Who comes to a published name, and what becomes of them.
 *
 * Responsible for: checking who asks, and the region that comes with a hello; the VI in the accept queue, or the
 * refusal. Runs in the connection thread, under the table lock, without the front end's lock. Never: waits for a
 * visitor, nor believes one. */
#include "channel/regions.h"
#include "channel/table.h"
#include "channel/thread.h"
#include "ring/ring.h"

/* What came with a hello: the message and up to four descriptors. Bytes received, or -1. `*cut`: descriptors were sent
 * that could not be received, for want of numbers. */
static int receive_hello(int fd, struct fs_hello *hello, int descriptors[4], int *count, int *cut) {
    union {
        char space[CMSG_SPACE(4 * sizeof(int))];
        struct cmsghdr aligned;
    } control;
    struct iovec iov = {hello, sizeof *hello};
    struct msghdr message = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control.space};
    int got = (int)fs_system.recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    *count = *cut = 0;
    if (got < 0) return -1;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        int n = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int)), *fds = (int *)CMSG_DATA(c);
        for (int i = 0; i < n; i++) {
            if (*count < 4) descriptors[(*count)++] = fds[i];
            else fs_system.close(fds[i]);
        }
    }
    /* With all four here it was cut because there were more, and no hello has more. */
    *cut = message.msg_flags & MSG_CTRUNC && *count < 4;
    return message.msg_flags & (MSG_TRUNC | MSG_CTRUNC) ? (int)sizeof *hello + 1 : got;
}

static uint32_t peer_uid(int fd) {
    struct ucred cred = {0, (uid_t)-1, (gid_t)-1};
    socklen_t size = sizeof cred;
    fs_system.getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &size);
    return cred.uid;
}

/* Whether `fd` is an eventfd, as `ours` is one. (Not asked of /proc, which need not be there.) All of the kernel's
 * anonymous files are one inode, and an eventfd is the one that takes a number, here 0, which changes nothing. */
static int is_eventfd(int fd, int ours) {
    struct stat it, known;
    uint64_t nothing = 0;
    return fs_system.fstat(fd, &it) == 0 && fs_system.fstat(ours, &known) == 0 && it.st_dev == known.st_dev &&
           it.st_ino == known.st_ino &&
           fs_system.write(fd, &nothing, sizeof nothing) == sizeof nothing;
}

/* Copies both into our share of the numbers. Parked regions give way to them. */
static int keep_eventfds(const int came[2], int kept[2]) {
    int size, first = fs_share(&size);
    for (int i = 0; i < 2; i++) {
        kept[i] = fs_system.fcntl(came[i], F_DUPFD_CLOEXEC, first);
        if (kept[i] < 0 && fs_release_all_parked()) kept[i] = fs_system.fcntl(came[i], F_DUPFD_CLOEXEC, first);
        if (kept[i] < 0) {
            if (i) fs_system.close(kept[0]);
            return 0;
        }
    }
    return 1;
}

/* The one that came is sent away: u: untrusted, v: a violation, !: no descriptors, ?: queue full or unknown region. */
static void refuse(struct fs_meeting *m, const char *why) {
    char unread;
    if (why) {
        /* A hello that lies unread would turn the refusal into a reset. (So received, it brings no descriptors.) */
        fs_system.recv(m->control, &unread, 1, MSG_DONTWAIT);
        fs_system.send(m->control, why, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    fs_system.close(m->control);
    m->control = -1;
}

/* There are no descriptors for whoever came. The connection stays on kernel TCP, and both ends know why. */
static void give_up_short(struct fs_meeting *m) {
    if (m->control >= 0) refuse(m, "!");
    fs_close_meeting(m);
    fs_store_relaxed(&m->state, FS_MEETING_SHORT);
}

/* Checks a hello and takes its region; the descriptors stay the caller's. NULL: taken. Else what was wrong:
 * "u", "!..." and "?..." are refusals, and anything else is a violation. */
static const char *judge(struct fs_meeting *m, const struct fs_hello *hello, int got, const int *descriptors, int count,
                         uint32_t uid) {
    int eventfds[2];
    struct fs_vi probe;
    /* The last descriptor is the seeker's end of the TCP connection. Without it, whoever came is not the peer: its
     * hello is no violation of the peer's, unless it is of a user who could harm the peer anyway. */
    int proven = count > 0 && fs_is_other_end(&m->tcp, descriptors[count - 1]);
    if (!proven && !fs_is_trusted(uid)) return "u";
    if (got != (int)sizeof *hello || hello->magic != FS_MAGIC) return "garbage instead of a hello";
    if (hello->version != FS_VERSION) return "hello of another version";
    if (!proven) return "u";
    if (fs_table.queued >= FS_MAX(fs_table.backlog, FS_BACKLOG)) return "?queue full";
    if (hello->reuse) {
        struct fs_parked_region *found = NULL;
        for (int i = 0; i < FS_PARKED && !found; i++) {
            struct fs_parked_region *parked = &fs_table.parked[i];
            if (parked->memory && memcmp(parked->id, hello->id, 16) == 0 && parked->turn == fs_thread_turn())
                found = parked;
        }
        if (!found) return "?unknown region";
        m->came.memory = found->memory;
        m->came.size = found->size;
        m->came.wake_fd = found->wake_fd;
        m->came.peer_fd = found->peer_fd;
        found->memory = NULL;
        m->came.reused = 1;
    } else {
        m->came.reused = 0;
        if (count != 4) return "hello without its four descriptors";
        int seals = fs_system.fcntl(descriptors[0], F_GET_SEALS, 0);
        if (seals < 0 || (seals & FS_SEALS) != FS_SEALS) return "memfd not sealed";
        if (hello->size == 0 || hello->size > fs_region_size(FS_WINDOW_MAX, FS_CHUNK_MAX) ||
            fs_file_size(descriptors[0]) != (int64_t)hello->size)
            return "memfd of the wrong size";
        if (!is_eventfd(descriptors[1], fs_known_eventfd()) || !is_eventfd(descriptors[2], fs_known_eventfd()))
            return "hello without eventfds";
        if (!keep_eventfds(descriptors + 1, eventfds)) return "!the share of descriptors is full";
        void *memory = fs_map_region(descriptors[0], hello->size);
        const char *wrong = "?no address space";
        if (memory) wrong = fs_vi_attach(&probe, memory, hello->size, 1);
        if (wrong) {
            if (memory) fs_system.munmap(memory, hello->size);
            fs_system.close(eventfds[0]);
            fs_system.close(eventfds[1]);
            return wrong;
        }
        m->came.memory = memory;
        m->came.size = hello->size;
        m->came.peer_fd = eventfds[0];
        m->came.wake_fd = eventfds[1];
    }
    memcpy(m->came.id, hello->id, 16);
    /* SYNC: taken - pairs with fs_wakeup_seen. Packet WAKEUP. */
    fs_store_release(&((struct fs_region *)m->came.memory)->wakeup, FS_TAKEN);
    fs_close_meeting(m);
    fs_table.queued++;
    /* SYNC: arrived - by the table lock, under which fs_arrived reads it. */
    fs_store_relaxed(&m->state, FS_MEETING_ARRIVED);
    return NULL;
}

/* Somebody came to a published name, or said something there. Under the table lock. */
static void meet(struct fs_meeting *m, uint64_t handle) {
    struct fs_hello hello;
    int descriptors[4];
    int count, cut;
    while (fs_load_relaxed(&m->state) == FS_MEETING_WAITING) {
        if (m->control < 0) {
            int came = fs_system.accept4(m->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
            if (came < 0 && errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS) return;
            m->control = came >= 0 ? fs_keep_number(came, 1) : -1;
            if (m->control < 0) {
                give_up_short(m);
                return;
            }
            fs_watch_socket(m->control, handle);
        }
        uint32_t uid = peer_uid(m->control);
        if (!(fs_table.trusts_any || fs_is_trusted(uid))) {
            refuse(m, "u");
            continue;
        }
        if (!fs_room()) {
            give_up_short(m); /* the descriptors that come with a hello might be the program's last */
            return;
        }
        int got = receive_hello(m->control, &hello, descriptors, &count, &cut);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) return;
        if (got < 0 && fs_passes(errno)) { /* the hello may be sound: want of memory is no violation */
            give_up_short(m);
            return;
        }
        if (got < 0) {
            refuse(m, NULL); /* it has gone */
            continue;
        }
        if (got == 0 && count == 0 && !cut) {
            refuse(m, NULL); /* left again without a word */
            continue;
        }
        const char *why = cut ? "!" : judge(m, &hello, got, descriptors, count, uid);
        for (int i = 0; i < count; i++) fs_system.close(descriptors[i]);
        if (!why) return;
        if (why[0] == '!') {
            give_up_short(m);
        } else if (why[0] == '?' || (why[0] == 'u' && why[1] == 0)) {
            refuse(m, why);
        } else {
            m->came.failure = why;
            refuse(m, "v");
            fs_close_meeting(m);
            fs_store_relaxed(&m->state, FS_MEETING_FAILED);
        }
    }
}

void fs_greet(uint64_t handle) {
    uint32_t entry = (uint32_t)handle;
    if (entry >= FS_MEETINGS) return;
    struct fs_meeting *m = &fs_table.meetings[entry];
    fs_lock_table();
    if (fs_load_relaxed(&m->state) == FS_MEETING_WAITING && m->turn == (uint32_t)(handle >> 32)) meet(m, handle);
    fs_unlock_table();
}
