/* Getting rid of what strangers sent.
 *
 * Responsible for: that no close and no receive that may block is done by a thread that somebody waits for, and that a
 * stranger holds a bounded number of threads and descriptors. Never: who is a stranger. */
#include "channel/dropping.h"

#include <netinet/in.h>

#include "base/share.h"
#include "channel/meetings.h"
#include "channel/names.h"
#include "channel/threads.h"
#include "wire/layout.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* Linux 6.16 */
#endif

enum {
    UNWANTED = 4096,     /* twice the names that there can be, which have a listener and a visitor each */
    BEGUN_WITHIN = 1000, /* ms */
};

/* What waits for a thread. */
struct unwanted {
    int fd;
    char why; /* said before it is closed; 0: nothing */
};

/* A datagram on its way out. */
struct message {
    int fd, done;
    int begun, given_up; /* the thread is about to take it, or it shall not any more */
    int users;           /* the thread, and who waits until the message is off the socket */
    union {
        char space[CMSG_SPACE(sizeof(struct ucred))];
        struct cmsghdr aligned;
    } came;
};

/* Over a few words, and no call of the system. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct unwanted waiting[UNWANTED]; /* the first `waiting_count` */
static int waiting_count, droppers;

/* A thread may be started, and counts from here on; `wanted`: there is something for it to do. */
static int count_dropper(int wanted) {
    pthread_mutex_lock(&lock);
    int may = droppers < FS_DROPPERS && (wanted || waiting_count > 0);
    droppers += may;
    pthread_mutex_unlock(&lock);
    return may;
}

/* In a forked child, before anything else of ours: the threads are the parent's, and one may have the lock. What waits stays open here,
 * as they may be at it as the child comes to be. (ThreadSanitizer takes the parent's threads for ours.) */
__attribute__((no_sanitize("thread"))) static void forget_droppers(void) {
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    droppers = waiting_count = 0;
}

/* Starts one that counts. 0: the system makes none. (Two that watch forks forget twice.) */
static int start_dropper(void *(*body)(void *), void *argument) {
    static fs_word32 watched; /* relaxed: it says nothing of anything else */
    pthread_t started;
    int failed = fs_load_relaxed(&watched) ? 0 : fs_system.pthread_atfork(NULL, NULL, forget_droppers);
    if (!failed) {
        fs_store_relaxed(&watched, 1);
        failed = fs_start_quiet_thread(&started, body, argument);
    }
    if (!failed) {
        pthread_detach(started);
        return 1;
    }
    pthread_mutex_lock(&lock);
    droppers--;
    pthread_mutex_unlock(&lock);
    return 0;
}

/* The next thing to drop. 0: there is none, and the thread counts no longer. */
static int take_unwanted(struct unwanted *taken) {
    pthread_mutex_lock(&lock);
    int any = waiting_count > 0;
    if (any) *taken = waiting[--waiting_count];
    else droppers--;
    pthread_mutex_unlock(&lock);
    return any;
}

static void refuse(int control, char why) {
    struct fs_refusal said = {.why = (unsigned char)why, .version = FS_VERSION};
    fs_system.send(control, &said, why == FS_WHY_OTHER_VERSION ? sizeof said : 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void drop(const struct unwanted *it) {
    char unread;
    if (it->why) refuse(it->fd, it->why);
    /* A hello that lies unread would turn the refusal into a reset. (What is no socket has none.) */
    fs_system.recv(it->fd, &unread, 1, MSG_DONTWAIT);
    fs_system.close(it->fd);
}

static void *drop_all(void *nothing) {
    struct unwanted it;
    while (take_unwanted(&it)) drop(&it);
    return nothing;
}

int fs_can_drop(void) {
    if (count_dropper(0)) start_dropper(drop_all, NULL);
    pthread_mutex_lock(&lock);
    int can = droppers < FS_DROPPERS && waiting_count < FS_DROPPERS;
    pthread_mutex_unlock(&lock);
    return can;
}

/* Hands it to a thread. If all are held, or none can be made, it waits for the next one. */
static void leave_to_dropper(int fd, char why) {
    struct unwanted it = {fd, why};
    pthread_mutex_lock(&lock);
    int room = waiting_count < UNWANTED;
    if (room) waiting[waiting_count++] = it;
    pthread_mutex_unlock(&lock);
    /* (No stranger gets so far: nothing is taken from one while all threads are held.) */
    if (!room) drop(&it);
    else if (count_dropper(0)) start_dropper(drop_all, NULL);
}

/* Whether closing it does not linger. */
static int is_brief(int fd) {
    struct linger linger = {0, 0};
    socklen_t size = sizeof linger;
    return fs_system.getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &size) == 0 && !linger.l_onoff;
}

/* Whether closing it cannot block. A memfd is in memory, whoever sent it; what else a believed sender sends may linger. */
static int is_harmless(int fd, int trusted) {
    int protocol = 0;
    socklen_t n = sizeof protocol;
    if (!trusted || fs_system.getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &n) < 0)
        return fs_system.fcntl(fd, F_GET_SEALS, 0) >= 0 || (trusted && fs_is_our_eventfd(fd));
    return protocol == IPPROTO_TCP && is_brief(fd);
}

void fs_drop_descriptor(int fd, int trusted) {
    if (is_harmless(fd, trusted)) fs_system.close(fd);
    else leave_to_dropper(fd, 0);
}

void fs_drop_tcp(int fd, int trusted) {
    if (trusted && is_brief(fd)) fs_system.close(fd);
    else leave_to_dropper(fd, 0);
}

/* (Once it is shut, nothing more comes, and a look says whether there is anything. A trusted one may say an empty message
 * with descriptors, which looks like the end; fastsock does not.) */
void fs_drop_control(int control, int trusted) {
    char unread;
    if (trusted && fs_system.shutdown(control, SHUT_RD) == 0 &&
        fs_system.recv(control, &unread, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
        fs_system.close(control);
    else leave_to_dropper(control, 0);
}

void fs_send_away(int control, char why, int trusted) {
    if (trusted) {
        refuse(control, why);
        fs_drop_control(control, 1);
    } else {
        leave_to_dropper(control, why);
    }
}

/* (Once it is shut, nobody connects any more.) Whoever came and was not met may have said something. */
void fs_drop_listener(int listener) {
    int came = -1, known = fs_system.shutdown(listener, SHUT_RDWR) == 0;
    if (known) came = fs_system.accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (known && came < 0 && errno == EAGAIN) {
        fs_system.close(listener);
        return;
    }
    if (came >= 0) leave_to_dropper(came, 0);
    leave_to_dropper(listener, 0);
}

/* ---- a message -------------------------------------------------------------------------------------------- */

static void put_down(struct message *m, int dropper) {
    pthread_mutex_lock(&lock);
    int last = --m->users == 0;
    m->done |= dropper;
    droppers -= dropper;
    pthread_mutex_unlock(&lock);
    if (last) fs_system.free(m);
}

static void *drop_message(void *given) {
    struct message *m = given;
    struct msghdr message = {.msg_control = m->came.space, .msg_controllen = sizeof m->came.space};
    pthread_mutex_lock(&lock);
    int begun = m->begun = !m->given_up;
    pthread_mutex_unlock(&lock);
    if (begun) fs_system.recvmsg(m->fd, &message, MSG_DONTWAIT);
    put_down(m, 1);
    return NULL;
}

/* The kernel writes who sent a message before it drops what came with it, which may take for ever. (No sanitizer knows at which
 * moment of a call the kernel writes.) */
__attribute__((noinline, no_sanitize("thread"))) static int is_named(const struct message *m) {
    return *(const volatile size_t *)&m->came.aligned.cmsg_len != 0;
}

/* Whether the thread has taken it. */
static int is_taken(const struct message *m) {
    if (is_named(m)) return 1;
    pthread_mutex_lock(&lock);
    int done = m->done;
    pthread_mutex_unlock(&lock);
    return done;
}

/* Once it has begun it is waited for: it would take the next message, which may be a request. */
static int is_given_up(struct message *m, int64_t until) {
    if (fs_now() < until) return 0;
    pthread_mutex_lock(&lock);
    int given_up = m->given_up = !m->begun;
    pthread_mutex_unlock(&lock);
    return given_up;
}

int fs_drop_message(int fd) {
    struct message *m = fs_can_drop() ? fs_system.calloc(1, sizeof *m) : NULL;
    if (!m) return 0;
    m->fd = fd;
    m->users = 2;
    if (!count_dropper(1) || !start_dropper(drop_message, m)) {
        fs_system.free(m);
        return 0;
    }
    int64_t until = fs_now() + (int64_t)BEGUN_WITHIN * 1000000;
    int given_up = 0;
    while (!given_up && !is_taken(m)) {
        fs_nap();
        given_up = is_given_up(m, until);
    }
    put_down(m, 0);
    return !given_up;
}

/* ---- a seeker --------------------------------------------------------------------------------------------- */

void fs_refuse_descriptors(int control) {
    int no = 0;
    fs_system.setsockopt(control, SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof no);
}

/* (It is not shut: a forked child closes its copies, and the parent goes on.) */
void fs_drop_seeker(int control, int trusted) {
    int passes = 1;
    socklen_t size = sizeof passes;
    if (trusted || (fs_system.getsockopt(control, SOL_SOCKET, SO_PASSRIGHTS, &passes, &size) == 0 && !passes) ||
        fs_is_trusted(fs_user_at(control)))
        fs_system.close(control);
    else leave_to_dropper(control, 0);
}
