/* Drops descriptors and messages of untrusted users. No thread that somebody waits for makes a close or a receive that may block, and an
 * untrusted user occupies a bounded number of threads and descriptors. */
#include "control/fd_reaper.h"

#include <netinet/in.h>

#include "os/fd_reserve.h"
#include "control/abstract_socket.h"
#include "control/background_thread.h"
#include "control/tcp_identity.h"
#include "control/trust.h"
#include "wire/region.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* Linux 6.16 */
#endif

enum {
    UNWANTED = 4096,     /* twice the maximum number of names, each with a listener and an incoming peer */
    BEGUN_WITHIN = 1000, /* ms */
};

/* A datagram to drop. */
struct message {
    int fd;
    fs_word32 stage; /* enum stage */
    fs_word32 users; /* the thread, and the caller that waits until the message is gone */
    union {
        char space[CMSG_SPACE(sizeof(struct ucred))];
        struct cmsghdr aligned;
    } came;
};

enum stage { LIES, BEGUN, OFF, GIVEN_UP }; /* in the queue; being received; gone; not to be received any more */

/* The queue for the threads: a descriptor + 1; above it, for the socket of an incoming peer, VISITOR and the letter to send, if any. */
static fs_word64 unwanted[UNWANTED];
#define VISITOR (UINT64_C(1) << 40)
/* Entries that no thread has claimed. An entry is stored before it is counted, so a claim always finds one without waiting. */
static fs_word32 waiting;
static fs_word32 droppers; /* threads that run or are about to */

/* Counts a thread to be started. Returns 0 if there are enough. */
static int count_dropper(void) {
    uint32_t count = fs_load_sc(&droppers);
    while (count < FS_REAPERS && !fs_cas32(&droppers, count, count + 1)) count = fs_load_sc(&droppers);
    return count < FS_REAPERS;
}

/* For a forked child, before anything else of ours: the threads are the parent's. Queued descriptors stay open here, since a thread may
 * be closing them while the child is created. */
static void forget_droppers(void) {
    for (int i = 0; i < UNWANTED; i++)
        if (fs_load_relaxed(&unwanted[i])) fs_store_relaxed(&unwanted[i], 0);
    fs_store_relaxed(&droppers, 0);
    fs_store_relaxed(&waiting, 0);
}

/* Starts a counted thread. Returns 0 if the system makes none. (If two threads install the fork handler, it runs twice.) */
static int start_dropper(void *(*body)(void *), void *argument) {
    static fs_word32 watched; /* relaxed: nothing else depends on it */
    pthread_t started;
    int failed = fs_load_relaxed(&watched) ? 0 : fs_system.pthread_atfork(NULL, NULL, forget_droppers);
    if (!failed) {
        fs_store_relaxed(&watched, 1);
        failed = fs_background_thread(&started, body, argument);
    }
    if (failed) fs_add_sc(&droppers, (uint32_t)-1);
    else pthread_detach(started);
    return !failed;
}

/* Queues an entry. Returns 0 without room. */
static int put_unwanted(uint64_t it) {
    for (int i = 0; i < UNWANTED; i++) {
        if (fs_load_relaxed(&unwanted[i]) || !fs_cas64(&unwanted[i], 0, it)) continue;
        fs_add_sc(&waiting, 1);
        return 1;
    }
    return 0;
}

/* Returns the next entry, or 0. */
static uint64_t take_unwanted(void) {
    uint64_t it = 0;
    uint32_t count = fs_load_sc(&waiting);
    while (count && !fs_cas32(&waiting, count, count - 1)) count = fs_load_sc(&waiting);
    for (uint32_t i = 0; count && !it; i = (i + 1) % UNWANTED)
        if (fs_load_relaxed(&unwanted[i])) it = fs_exchange_sc(&unwanted[i], 0);
    return it;
}

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

static void *drop_all(void *nothing) {
    do {
        for (uint64_t it; (it = take_unwanted()) != 0;) drop(it);
        /* SYNC: dropper - pairs with leave_to_dropper, which counts the entry and then looks at the number of threads: one of both sees
         * the other. */
        fs_add_sc(&droppers, (uint32_t)-1);
    } while (fs_load_sc(&waiting) && count_dropper());
    return nothing;
}

int fs_reaper_has_room(void) {
    /* (Only counts: a small delay does no harm.) */
    if (fs_load_relaxed(&waiting) && count_dropper()) start_dropper(drop_all, NULL);
    return fs_load_relaxed(&droppers) < FS_REAPERS && fs_load_relaxed(&waiting) < FS_REAPERS;
}

/* Hands a descriptor to a thread; `how`: VISITOR and the letter, or 0. If all are blocked, or none can be made, it waits for the next
 * one. */
static void leave_to_dropper(int fd, uint64_t how) {
    uint64_t it = how | ((uint32_t)fd + 1);
    /* (Not reached for untrusted users: nothing is received from them while all threads are blocked.) */
    if (!put_unwanted(it)) drop(it);
    /* SYNC: dropper - pairs with drop_all. (A claimed entry needs no thread.) */
    else if (fs_load_sc(&waiting) && count_dropper()) start_dropper(drop_all, NULL);
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
    else leave_to_dropper(fd, 0);
}

void fs_reap_tcp(int fd, int trusted) {
    if (trusted && is_brief(fd)) fs_system.close(fd);
    else leave_to_dropper(fd, 0);
}

/* (After the shutdown nothing more comes, and the look tells if anything is there. An empty message with descriptors from a trusted peer
 * would look like the end; fastsock sends none.) */
void fs_reap_control(int control, int trusted) {
    char unread;
    if (trusted && fs_system.shutdown(control, SHUT_RD) == 0 &&
        fs_system.recv(control, &unread, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
        fs_system.close(control);
    else leave_to_dropper(control, VISITOR);
}

void fs_refuse(int control, char why, int trusted) {
    if (trusted) {
        refuse(control, why);
        fs_reap_control(control, 1);
    } else {
        leave_to_dropper(control, VISITOR | (uint64_t)(unsigned char)why << 32);
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
    if (came >= 0) leave_to_dropper(came, VISITOR);
    leave_to_dropper(listener, 0);
}

/* ---- a message -------------------------------------------------------------------------------------------- */

static void put_down(struct message *m) {
    if (fs_add_sc(&m->users, (uint32_t)-1) == 1) fs_system.free(m);
}

static void *drop_message(void *given) {
    struct message *m = given;
    struct msghdr message = {.msg_control = m->came.space, .msg_controllen = sizeof m->came.space};
    if (fs_cas32(&m->stage, LIES, BEGUN)) {
        fs_system.recvmsg(m->fd, &message, MSG_DONTWAIT);
        fs_store_sc(&m->stage, OFF);
    }
    put_down(m);
    return drop_all(NULL);
}

/* The kernel writes the sender's credentials before it drops a message's descriptors, which may take forever. (No sanitizer knows at
 * which moment of a call the kernel writes.) */
__attribute__((noinline, no_sanitize("thread"))) static int is_named(const struct message *m) {
    return *(const volatile size_t *)&m->came.aligned.cmsg_len != 0;
}

/* Returns true if the thread has received it. */
static int is_taken(struct message *m) { return is_named(m) || fs_load_sc(&m->stage) == OFF; }

/* A begun receive is waited for: it could take the next message, which may be a request. */
static int is_given_up(struct message *m, int64_t until) {
    return fs_now() >= until && fs_cas32(&m->stage, LIES, GIVEN_UP);
}

int fs_reap_message(int fd) {
    struct message *m = fs_reaper_has_room() ? fs_system.calloc(1, sizeof *m) : NULL;
    if (!m) return 0;
    m->fd = fd;
    fs_store_relaxed(&m->users, 2);
    if (!count_dropper() || !start_dropper(drop_message, m)) {
        fs_system.free(m);
        return 0;
    }
    int64_t until = fs_now() + (int64_t)BEGUN_WITHIN * 1000000;
    int given_up = 0;
    while (!given_up && !is_taken(m)) {
        fs_short_sleep();
        given_up = is_given_up(m, until);
    }
    put_down(m);
    return !given_up;
}

/* ---- a seeker --------------------------------------------------------------------------------------------- */

void fs_refuse_descriptors(int control) {
    int no = 0;
    fs_system.setsockopt(control, SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof no);
}

/* (No shutdown: a forked child closes its copies, and the parent continues.) */
void fs_reap_seeker(int control, int trusted) {
    int passes = 1;
    socklen_t size = sizeof passes;
    if (trusted || (fs_system.getsockopt(control, SOL_SOCKET, SO_PASSRIGHTS, &passes, &size) == 0 && !passes) ||
        fs_is_trusted(fs_peer_user(control)))
        fs_system.close(control);
    else leave_to_dropper(control, 0);
}
