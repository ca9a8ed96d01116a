/* Who comes to a published name, and what becomes of them.
 *
 * Responsible for: checking who asks, and the region that comes with a hello; the VI in the accept queue, or the
 * refusal. Runs in the connection thread, without the front end's lock. Never: waits for a visitor, nor believes one.
 * Nothing that a visitor sent is received, asked or closed under the table lock, as each of these may block. */
#include "channel/asking.h"
#include "channel/dropping.h"
#include "channel/names.h"
#include "channel/regions.h"
#include "channel/table.h"
#include "channel/thread.h"
#include "ring/ring.h"

#ifndef HUGETLBFS_MAGIC
#define HUGETLBFS_MAGIC 0x958458f6
#endif

enum { BRINGS = 2 }; /* descriptors with a fresh region: its memfd, and the proof */

/* What a visitor said and brought. */
struct brought {
    struct fs_hello hello;
    int size; /* bytes received, or -errno */
    int descriptors[FS_BRINGS_MAX];
    int count;
    int cut;    /* descriptors were sent that could not be received, for want of numbers */
    int proven; /* the last one is the other end of the connection */
    int sealed; /* so is the first one */
    int trusted; /* the user is believed */
    pid_t process; /* 0: of another PID namespace */
};

/* What came with a hello of any version. There is room for all that can come: the kernel closes what has none. */
static void receive_hello(int fd, struct brought *it) {
    union {
        char space[CMSG_SPACE(FS_BRINGS_MAX * sizeof(int))];
        struct cmsghdr aligned;
    } control;
    struct iovec iov = {&it->hello, sizeof it->hello};
    struct msghdr message = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control.space};
    int got;
    do got = (int)fs_system.recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    it->count = it->cut = 0;
    it->size = got < 0 ? -errno : got;
    if (got < 0) return;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        int n = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        for (int i = 0; i < n && it->count < FS_BRINGS_MAX; i++)
            memcpy(&it->descriptors[it->count++], CMSG_DATA(c) + (size_t)i * sizeof(int), sizeof(int));
    }
    /* With as many as a hello may have it was cut because there were more, and no hello has more. */
    it->cut = message.msg_flags & MSG_CTRUNC && it->count < FS_HELLO_DESCRIPTORS;
    if (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC) || it->count > FS_HELLO_DESCRIPTORS) it->size = (int)sizeof it->hello + 1;
}

/* Whether a memfd is of huge pages. One that was punched out may be gone for good, and whoever reads there dies. */
static int has_huge_pages(int fd) {
    struct statfs where;
    return fs_system.fstatfs(fd, &where) == 0 && (uint32_t)where.f_type == HUGETLBFS_MAGIC;
}

/* What the descriptors are. (The connection's other end is asked for its names, and a stranger's file for what it is.) */
static void examine(struct brought *it, const struct fs_tcp_identity *tcp) {
    it->proven = it->count > 0 && fs_is_other_end(tcp, it->descriptors[it->count - 1]);
    it->sealed = it->count == BRINGS && fs_is_sealed(it->descriptors[0]);
}

static void drop_descriptors(const struct brought *it) {
    for (int i = 0; i < it->count; i++) {
        if (i == 0 && it->sealed) fs_system.close(it->descriptors[i]); /* a memfd */
        else if (i == it->count - 1 && it->proven) fs_drop_tcp(it->descriptors[i], it->trusted);
        else fs_drop_descriptor(it->descriptors[i], it->trusted);
    }
}

/* The one that came is sent away, for a reason of enum fs_why. 0: it has gone. */
static void refuse(struct fs_meeting *m, int why) {
    if (why) fs_send_away(m->control, (char)why, m->trusted);
    else fs_drop_control(m->control, m->trusted);
    m->control = -1;
}

/* There are no descriptors for whoever came. The connection stays on kernel TCP, and both ends know why. */
static void give_up_short(struct fs_meeting *m) {
    if (m->control >= 0) refuse(m, FS_WHY_DESCRIPTORS);
    fs_close_meeting(m);
    fs_store_relaxed(&m->state, FS_MEETING_SHORT);
}

/* The hello breaks the protocol, as the text says. */
static int violated(struct fs_meeting *m, const char *wrong) {
    m->came.failure = wrong;
    return FS_WHY_VIOLATION;
}

/* Checks a hello and takes its region; the descriptors stay the caller's. 0: taken. Else why not, of enum fs_why. */
static int judge(struct fs_meeting *m, const struct brought *it) {
    struct fs_vi probe;
    const struct fs_hello *hello = &it->hello;
    const int *descriptors = it->descriptors;
    /* The last descriptor is the seeker's end of the TCP connection. Without it, whoever came is not the peer: its
     * hello is no violation of the peer's, unless it is of a user who could harm the peer anyway. */
    if (!it->proven && !it->trusted) return FS_WHY_UNTRUSTED;
    if (it->size < (int)FS_HELLO_HEAD || hello->magic != FS_MAGIC) return violated(m, "garbage instead of a hello");
    if (hello->version != FS_VERSION) return FS_WHY_OTHER_VERSION; /* whatever else it says */
    if (it->size != (int)sizeof *hello) return violated(m, "garbage instead of a hello");
    if (!it->proven) return FS_WHY_UNTRUSTED;
    if (fs_table.queued >= FS_MAX((int)fs_load_relaxed(&fs_table.backlog), FS_BACKLOG)) return FS_WHY_AGAIN;
    if (hello->reuse) {
        struct fs_parked_region *found = NULL;
        for (int i = 0; i < FS_PARKED && !found; i++) {
            struct fs_parked_region *parked = &fs_table.parked[i];
            if (parked->memory && memcmp(parked->id, hello->id, 16) == 0) found = parked;
        }
        if (!found) return FS_WHY_AGAIN;
        m->came.memory = found->memory;
        m->came.size = found->size;
        found->memory = NULL;
        m->came.reused = 1;
    } else {
        m->came.reused = 0;
        if (it->count != BRINGS) return violated(m, "hello without its two descriptors");
        if (!it->sealed) return violated(m, "memfd not sealed");
        if (has_huge_pages(descriptors[0])) return violated(m, "memfd of huge pages");
        if (hello->size == 0 || hello->size > fs_region_size(FS_WINDOW_MAX, FS_CHUNK_MAX) ||
            fs_file_size(descriptors[0]) != (int64_t)hello->size)
            return violated(m, "memfd of the wrong size");
        void *memory = fs_map_sealed(descriptors[0], hello->size);
        if (!memory) return FS_WHY_AGAIN; /* there is no address space */
        const char *wrong = fs_vi_attach(&probe, memory, hello->size, 1);
        if (wrong) {
            fs_system.munmap(memory, hello->size);
            return violated(m, wrong);
        }
        m->came.memory = memory;
        m->came.size = hello->size;
    }
    m->came.peer = it->process;
    memcpy(m->came.id, hello->id, 16);
    /* SYNC: taken - pairs with fs_wakeup_seen. Packet WAKEUP. */
    fs_store_release(&((struct fs_region *)m->came.memory)->wakeup, FS_TAKEN);
    fs_close_meeting(m);
    fs_table.queued++;
    /* SYNC: arrived - by the table lock, under which fs_arrived reads it. */
    fs_store_relaxed(&m->state, FS_MEETING_ARRIVED);
    return 0;
}

enum visit { NOBODY, VISITOR, LATER };

/* A visitor has said nothing yet: it is waited for. (Mostly the hello is there when the visitor is, and its socket is closed before
 * anybody needs its number.) Under the table lock. */
static void await_hello(struct fs_meeting *m, uint64_t handle) {
    if (m->kept) return;
    int kept = fs_copy_number(m->control, 1);
    if (kept < 0) {
        give_up_short(m);
        return;
    }
    fs_system.close(m->control); /* (the copy stays) */
    m->control = kept;
    m->kept = 1;
    fs_watch_socket(kept, handle); /* (a hello that has come just now is an event) */
}

/* Whether a visitor who may be heard is at the name. LATER: nothing more may be taken from strangers now. Under the table lock. */
static enum visit look_for_visitor(struct fs_meeting *m) {
    if (!fs_can_drop()) return LATER;
    while (m->control < 0) {
        int came = fs_system.accept4(m->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (came < 0 && errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS) return NOBODY;
        if (came < 0) {
            give_up_short(m);
            return NOBODY;
        }
        m->control = came;
        m->kept = 0;
        m->who = fs_who_is_at(m->control);
        m->trusted = fs_is_trusted(m->who.uid);
        if (fs_trusts_any() || m->trusted) continue;
        refuse(m, FS_WHY_UNTRUSTED); /* and nothing of a stranger's is received */
        if (!fs_can_drop()) return LATER;
    }
    if (fs_room()) return VISITOR;
    give_up_short(m); /* the descriptors that come with a hello might be the program's last */
    return NOBODY;
}

/* What becomes of the visitor that was heard. Under the table lock; it has the meeting's control again. */
static void answer(struct fs_meeting *m, const struct brought *it) {
    if (it->size < 0 && fs_passes(-it->size)) { /* the hello may be sound: want of memory is no violation */
        give_up_short(m);
        return;
    }
    if (it->size < 0) {
        refuse(m, 0); /* it has gone */
        return;
    }
    if (it->size == 0 && it->count == 0 && !it->cut) {
        refuse(m, 0); /* left again without a word */
        return;
    }
    int why = it->cut ? FS_WHY_DESCRIPTORS : judge(m, it);
    if (!why) return;
    if (why == FS_WHY_DESCRIPTORS) {
        give_up_short(m);
        return;
    }
    refuse(m, why);
    if (why == FS_WHY_UNTRUSTED || why == FS_WHY_AGAIN) return; /* the next one may be the peer */
    fs_close_meeting(m);
    fs_store_relaxed(&m->state, why == FS_WHY_OTHER_VERSION ? FS_MEETING_OTHER_VERSION : FS_MEETING_FAILED);
}

static int is_waiting(const struct fs_meeting *m, uint64_t handle) {
    return fs_load_relaxed(&m->state) == FS_MEETING_WAITING && m->turn == (uint32_t)(handle >> 32);
}

int fs_greet(uint64_t handle) {
    struct brought it;
    enum visit visit = NOBODY;
    uint32_t entry = (uint32_t)handle, turn = fs_thread_turn();
    if (entry >= FS_MEETINGS) return 0;
    struct fs_meeting *m = &fs_table.meetings[entry];
    fs_lock_table();
    while (is_waiting(m, handle) && turn == fs_thread_turn() && (visit = look_for_visitor(m)) == VISITOR) {
        /* Ours alone meanwhile: whoever withdraws the name does not see it, and this thread is the only one that listens. */
        int control = m->control;
        struct fs_tcp_identity tcp = m->tcp;
        m->control = -1;
        it.trusted = m->trusted;
        it.process = m->who.pid;
        fs_unlock_table();
        receive_hello(control, &it);
        int silent = it.size == -EAGAIN;
        if (!silent) examine(&it, &tcp);
        fs_lock_table();
        if (turn != fs_thread_turn()) break; /* the numbers may be the program's by now */
        if (is_waiting(m, handle)) {
            m->control = control;
            if (silent) {
                await_hello(m, handle);
                break;
            }
            answer(m, &it);
        } else {
            fs_drop_control(control, it.trusted);
        }
        fs_unlock_table();
        drop_descriptors(&it);
        fs_lock_table();
    }
    fs_unlock_table();
    return visit == LATER;
}

int fs_greet_all(void) {
    int left = 0, more = 1;
    for (uint64_t i = 0; more; i++) {
        fs_lock_table();
        more = i < (uint64_t)fs_table.used;
        uint64_t handle = more ? (uint64_t)fs_table.meetings[i].turn << 32 | i : 0;
        fs_unlock_table();
        if (more) left |= fs_greet(handle);
    }
    return left;
}
