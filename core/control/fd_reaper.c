/* Drops descriptors and messages of untrusted users, in one thread with a queue. No thread that somebody waits for makes a close or a
 * receive that may block, and an untrusted user occupies this thread and a bounded number of descriptors. */
#include "control/fd_reaper.h"

#include <netinet/in.h>

#include "os/fd_reserve.h"
#include "os/host.h"
#include "control/named_socket.h"
#include "control/background_thread.h"
#include "control/trust.h"
#include "wire/region.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* Linux 6.16 */
#endif

enum {
    QUEUE = 4096,        /* twice the maximum number of names, each with a listener and an incoming peer */
    IDLE_WITHIN = 5,     /* ms that a message waits for what is dropped just now */
    BEGUN_WITHIN = 1000, /* ms that it waits for the thread */
};

/* A descriptor + 1; above it, for the socket of an incoming peer, VISITOR and the letter to send before the close, if any. Or MESSAGE.
 * 0: free. */
static fs_word64 queue[QUEUE];
#define MESSAGE UINT64_MAX
#define VISITOR (UINT64_C(1) << 40)

/* Entries that are queued or being dropped. An entry is stored before it is counted, so the thread finds one for each that is counted. Who
 * counts the first one starts the thread, and it ends when it has counted the last one out: there is never a second one. */
static fs_word32 pending;
static fs_word32 unstarted; /* the system made no thread for them */
static fs_word32 used;      /* something was queued once */

enum stage { IDLE, CLAIMED, WAITS, BEGUN, GIVEN_UP }; /* nothing; being queued; queued; being received; not to be received any more */

/* The datagram to drop: the next one of `fd`. */
static struct {
    fs_word32 stage;
    int fd;
    union {
        char space[CMSG_SPACE(sizeof(struct ucred))];
        struct cmsghdr aligned;
    } came;
} message;

static void refuse(int control, char why) {
    struct fs_refusal said = {.why = (unsigned char)why, .version = FS_VERSION};
    fs_system.send(control, &said, why == FS_WHY_OTHER_VERSION ? sizeof said : 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void drop(uint64_t it) {
    int fd = (int)(uint32_t)it - 1;
    char unread, why = (char)(it >> 32);
    if (why) refuse(fd, why);
    /* An unread hello would turn the refusal into a reset. (After the shutdown none comes any more. Nothing is read from descriptors that
     * were received: one of them is the peer's end of the connection.) */
    if (it & VISITOR && fs_system.shutdown(fd, SHUT_RD) == 0) fs_system.recv(fd, &unread, 1, MSG_DONTWAIT);
    fs_system.close(fd);
}

static void drop_message(void) {
    struct msghdr it = {.msg_control = message.came.space, .msg_controllen = sizeof message.came.space};
    if (fs_cas32(&message.stage, WAITS, BEGUN)) fs_system.recvmsg(message.fd, &it, MSG_DONTWAIT);
    fs_store_sc(&message.stage, IDLE);
}

static void *drop_all(void *nothing) {
    int at = 0;
    do {
        uint64_t it = 0;
        for (; !it; at = (at + 1) % QUEUE)
            if (fs_load_relaxed(&queue[at])) it = fs_exchange_sc(&queue[at], 0);
        if (it == MESSAGE) drop_message();
        else drop(it);
        /* SYNC: reaper - pairs with enqueue: a later entry is found here, or is the first one for the next thread. */
    } while (fs_add_sc(&pending, (uint32_t)-1) != 1);
    return nothing;
}

/* Queued descriptors stay open in the child, since the thread may be closing them while it is created. */
void FS_AT_FORK fs_reaper_in_child(void) {
    if (!fs_load_relaxed(&used)) return; /* (a look at the queue would make its 8 pages for each child) */
    for (int i = 0; i < QUEUE; i++)
        if (fs_load_relaxed(&queue[i])) fs_store_relaxed(&queue[i], 0);
    fs_store_relaxed(&pending, 0);
    fs_store_relaxed(&unstarted, 0);
    fs_store_relaxed(&message.stage, IDLE);
}

/* pthread_atfork(3) waits for a fork that is under way, where a C library holds its list while handlers run (musl, glibc before 2.36), and
 * these wait for the host lock: so the handler is installed at the beginning, and not with the thread. */
int fs_reaper_begin(void) {
    static int begun;
    int failed = begun ? 0 : fs_system.pthread_atfork(NULL, NULL, fs_reaper_in_child);
    begun |= !failed;
    return failed;
}

static void start_thread(void) {
    pthread_t started;
    if (fs_background_thread(&started, drop_all, NULL)) fs_store_sc(&unstarted, 1);
    else pthread_detach(started);
}

int fs_reaper_has_room(void) {
    if (fs_load_relaxed(&unstarted) && fs_cas32(&unstarted, 1, 0)) start_thread();
    return fs_load_relaxed(&pending) < FS_REAPER_ROOM;
}

/* Returns 0 without room. */
static int enqueue(uint64_t it) {
    int i = 0;
    fs_store_relaxed(&used, 1);
    while (i < QUEUE && (fs_load_relaxed(&queue[i]) || !fs_cas64(&queue[i], 0, it))) i++;
    if (i == QUEUE) return 0;
    /* SYNC: reaper - pairs with drop_all. */
    if (fs_add_sc(&pending, 1) == 0) start_thread();
    else fs_reaper_has_room(); /* tries again if there is no thread */
    return 1;
}

/* Leaves a descriptor to the thread; `how`: VISITOR and the letter, or 0. If the queue is full, it is closed here, which may block. (That
 * does not happen with what untrusted users send: nothing is received from them, and no name is published, while the thread has many
 * entries.) */
static void leave_to_reaper(int fd, uint64_t how) {
    uint64_t it = how | ((uint32_t)fd + 1);
    if (!enqueue(it)) drop(it);
}

/* Returns true if closing the socket does not linger. */
static int is_brief(int fd) {
    struct linger linger = {0, 0};
    socklen_t size = sizeof linger;
    return fs_system.getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &size) == 0 && !linger.l_onoff;
}

/* Returns true if the close cannot block. A memfd is in memory, whoever sent it; other descriptors of a trusted sender may linger. */
static int is_harmless(int fd, int trusted) {
    int protocol = 0;
    socklen_t n = sizeof protocol;
    if (!trusted || fs_system.getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &n) < 0)
        return fs_system.fcntl(fd, F_GET_SEALS, 0) >= 0 || (trusted && fs_is_own_eventfd(fd));
    return protocol == IPPROTO_TCP && is_brief(fd);
}

void fs_reap_fd(int fd, int trusted) {
    if (is_harmless(fd, trusted)) fs_system.close(fd);
    else leave_to_reaper(fd, 0);
}

void fs_reap_tcp(int fd, int trusted) {
    if (trusted && is_brief(fd)) fs_system.close(fd);
    else leave_to_reaper(fd, 0);
}

/* (After the shutdown nothing more comes, and the look tells if anything is there. An empty message with descriptors from a trusted peer
 * would look like the end; fastsock sends none.) */
void fs_reap_control(int control, int trusted) {
    char unread;
    if (trusted && fs_system.shutdown(control, SHUT_RD) == 0 &&
        fs_system.recv(control, &unread, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
        fs_system.close(control);
    else leave_to_reaper(control, VISITOR);
}

void fs_refuse(int control, char why, int trusted) {
    if (trusted) {
        refuse(control, why);
        fs_reap_control(control, 1);
    } else {
        leave_to_reaper(control, VISITOR | (uint64_t)(unsigned char)why << 32);
    }
}

/* (After the shutdown nobody connects any more.) A peer in the backlog may have sent something. */
void fs_reap_listener(int listener) {
    int came = -1, known = fs_system.shutdown(listener, SHUT_RDWR) == 0;
    if (known) came = fs_system.accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (known && came < 0 && errno == EAGAIN) {
        fs_system.close(listener);
        return;
    }
    if (came >= 0) leave_to_reaper(came, VISITOR);
    leave_to_reaper(listener, 0);
}

/* ---- a message -------------------------------------------------------------------------------------------- */

/* The kernel writes the sender's credentials before it drops a message's descriptors, which may take forever. (No sanitizer knows at
 * which moment of a call the kernel writes.) */
__attribute__((noinline, no_sanitize("thread"))) static int is_named(void) {
    return ((const volatile struct cmsghdr *)&message.came.aligned)->cmsg_len != 0;
}

/* A begun receive is waited for: it could take the next message, which may be a request. */
static int is_given_up(int64_t until) {
    return (fs_now() >= until || fs_load_relaxed(&unstarted)) && fs_cas32(&message.stage, WAITS, GIVEN_UP);
}

int fs_reap_message(int fd) {
    int64_t until = fs_now() + (int64_t)IDLE_WITHIN * 1000000;
    while (fs_load_sc(&pending) && fs_now() < until) fs_short_sleep();
    /* (Another control thread, which was given up, may still have claimed it.) */
    if (fs_load_sc(&pending) || !fs_cas32(&message.stage, IDLE, CLAIMED)) return 0;
    message.fd = fd;
    memset(&message.came, 0, sizeof message.came);
    fs_store_sc(&message.stage, WAITS);
    if (!enqueue(MESSAGE)) {
        fs_store_sc(&message.stage, IDLE);
        return 0;
    }
    int given_up = 0;
    until = fs_now() + (int64_t)BEGUN_WITHIN * 1000000;
    while (!given_up && !is_named() && fs_load_sc(&message.stage) != IDLE) {
        fs_short_sleep();
        given_up = is_given_up(until);
    }
    return !given_up;
}

/* ---- a seeker --------------------------------------------------------------------------------------------- */

void fs_refuse_descriptors(int control) {
    int no = 0;
    fs_system.setsockopt(control, SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof no);
}

void fs_accept_descriptors(int control) {
    int yes = 1;
    fs_system.setsockopt(control, SOL_SOCKET, SO_PASSRIGHTS, &yes, sizeof yes);
}

/* (No shutdown: a forked child closes its copies, and the parent continues.) */
void fs_reap_seeker(int control, int trusted) {
    int passes = 1;
    socklen_t size = sizeof passes;
    if (trusted || (fs_system.getsockopt(control, SOL_SOCKET, SO_PASSRIGHTS, &passes, &size) == 0 && !passes) ||
        fs_is_trusted(fs_peer_user(control)))
        fs_system.close(control);
    else leave_to_reaper(control, 0);
}
