/* What becomes of the control thread, of forks and of the program's calls while a stranger holds a thread in a call:
 * `untrusted_users [seconds]`.
 *
 * The core asks the system by a table, and this program puts its own functions there: a call of the control thread, or of a
 * thread that drops what strangers sent (the reaper), stands still until the test lets it go on. Run under ThreadSanitizer and
 * AddressSanitizer, as memory may be given back only when no thread is at it. */
#pragma GCC diagnostic ignored "-Wunused-function" /* of frontend.h, which has more than this needs */
#include "frontend.h"

#include <sys/un.h>

#include "os/memfd.h"
#include "control/fd_reaper.h"
#include "control/named_socket.h"
#include "control/control_state.h"
#include "rendezvous/connector.h"

enum { SET_BACK = 3600 /* s that the time of day has been set back by, whenever somebody has looked at it */ };
enum { LIMIT = 1024, STRANGER = 12345, MOST_SECONDS = 60, NEVER = 20000 /* us that what must not happen is waited for */ };

enum role { PROGRAM = 0, CONTROL_THREAD, REAPER, ALL_PASS };

enum call { START, RECVMSG, WAKE, CLOSE, STAT }; /* START: before the first one */

static __thread enum role role;
static struct fs_system real;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct end ends[2];
static void *(*control_thread)(void *);      /* what the first thread does; any other thread that does something else is a reaper */
static fs_word32 no_threads;                 /* the system makes none */
static fs_word32 holds, held_call, stands;   /* such a call of this role's threads stands still; one does now */
static fs_word32 stood;                      /* how many have */
static fs_word32 seen_user;                  /* whom the kernel names at the other end of a unix socket, and to a look; 0: the real one */
static fs_word32 old_kernel;                 /* no socket refuses descriptors */
static fs_word32 soonest;                    /* ms: the control thread's shortest wait */
static fs_word32 control, control_closed_by; /* the descriptor that was connected to a name, plus one; role plus one */

#define until(condition, ...) \
    do { \
        double until_ = seconds_now() + PATIENCE; \
        while (!(condition)) { \
            check(seconds_now() < until_, __VA_ARGS__); \
            usleep(500); \
        } \
    } while (0)

/* ---- the calls ----------------------------------------------------------------------------------------------- */

struct start {
    void *(*body)(void *);
    void *argument;
    enum role role;
};

/* No wait of the core may know this clock. */
int clock_gettime(clockid_t which, struct timespec *into) {
    int result = (int)syscall(SYS_clock_gettime, which, into);
    if (which == CLOCK_REALTIME) into->tv_sec += SET_BACK;
    return result;
}

static void stand_still(enum call call) {
    if (role == PROGRAM || (uint32_t)role != fs_load_sc(&holds) || (uint32_t)call != fs_load_sc(&held_call)) return;
    fs_add_sc(&stands, 1);
    fs_add_sc(&stood, 1);
    while (fs_load_sc(&holds)) usleep(200);
    fs_add_sc(&stands, (uint32_t)-1);
}

static void *run_in_role(void *given) {
    struct start start = *(struct start *)given;
    free(given);
    role = start.role;
    stand_still(START);
    return start.body(start.argument);
}

static int create_in_role(pthread_t *thread, const pthread_attr_t *how, void *(*body)(void *), void *argument) {
    if (fs_load_sc(&no_threads)) return EAGAIN;
    struct start *start = malloc(sizeof *start);
    if (!control_thread) control_thread = body;
    *start = (struct start){body, argument, body == control_thread ? CONTROL_THREAD : REAPER};
    int failed = real.pthread_create(thread, how, run_in_role, start);
    if (failed) free(start);
    return failed;
}

static ssize_t held_recvmsg(int fd, struct msghdr *message, int flags) {
    stand_still(RECVMSG);
    ssize_t got = real.recvmsg(fd, message, flags);
    struct cmsghdr *c = got >= 0 && flags & MSG_PEEK && fs_load_sc(&seen_user) ? CMSG_FIRSTHDR(message) : NULL;
    if (c && c->cmsg_type == SCM_CREDENTIALS) ((struct ucred *)CMSG_DATA(c))->uid = fs_load_sc(&seen_user);
    return got;
}

static struct stat strange;            /* a file that came from another process */
static fs_word32 asked_file_system;    /* what became of it meanwhile, which can take any time */

static int held_fstat(int fd, struct stat *into) {
    int result = real.fstat(fd, into);
    if (role != PROGRAM && result == 0 && into->st_ino == strange.st_ino && into->st_dev == strange.st_dev)
        fs_store_sc(&asked_file_system, 1);
    stand_still(STAT);
    return result;
}

static int held_statx(int fd, const char *path, int flags, unsigned wanted, struct statx *into) {
    if (!(flags & AT_STATX_DONT_SYNC)) fs_store_sc(&asked_file_system, 1);
    stand_still(STAT);
    return real.statx(fd, path, flags, wanted, into);
}

static int held_futex(void *word, int what, uint32_t value, const struct timespec *time) {
    if (what == FUTEX_WAKE) stand_still(WAKE);
    return real.futex(word, what, value, time);
}

static int held_close(int fd) {
    if ((uint32_t)fd + 1 == fs_load_sc(&control)) fs_store_sc(&control_closed_by, (uint32_t)role + 1);
    stand_still(CLOSE);
    return real.close(fd);
}

static int noted_wait(int epoll, struct epoll_event *events, int most, const struct timespec *time, const sigset_t *mask) {
    uint32_t ms = time ? (uint32_t)(time->tv_sec * 1000 + time->tv_nsec / 1000000) : UINT32_MAX;
    if (role == CONTROL_THREAD && ms < fs_load_sc(&soonest)) fs_store_sc(&soonest, ms);
    return real.epoll_pwait2(epoll, events, most, time, mask);
}

static int told_getsockopt(int fd, int level, int option, void *value, socklen_t *size) {
    if (option == 83 && level == SOL_SOCKET && fs_load_sc(&old_kernel)) {
        errno = ENOPROTOOPT;
        return -1;
    }
    int result = real.getsockopt(fd, level, option, value, size);
    if (option == SO_PEERCRED && level == SOL_SOCKET && fs_load_sc(&seen_user)) ((struct ucred *)value)->uid = fs_load_sc(&seen_user);
    return result;
}

static int noted_connect(int fd, const struct sockaddr *to, socklen_t size) {
    int result = real.connect(fd, to, size);
    if (result == 0 && to->sa_family == AF_UNIX) fs_store_sc(&control, (uint32_t)fd + 1);
    return result;
}

static void hold(enum role which, enum call call) {
    fs_store_sc(&held_call, (uint32_t)call);
    fs_store_sc(&holds, (uint32_t)which);
}

static void release(void) {
    fs_store_sc(&holds, 0);
    until(!fs_load_sc(&stands), "it stands still");
}

/* ---- the program ---------------------------------------------------------------------------------------------- */

static void enter_front(void) { take_again(&lock); }
static void leave_front(void) { let_go(); }

static uint64_t publish(const char *name, int fd) {
    uint64_t handle;
    int failed;
    enter_front();
    until(!(failed = fs_control_thread_start()) &&
              (failed = fs_listing_publish(name, strlen(name), fd, NULL, NULL, &handle)) != FS_TOO_MANY_LISTINGS,
          "no name can be published");
    leave_front();
    check(failed == 0, "publishing: %s", strerror(-failed));
    return handle;
}

static void withdraw(uint64_t handle) {
    fs_atomic_ptr(fs_word32) listing_state;
    enter_front();
    fs_listing_withdraw(handle, &listing_state);
    leave_front();
}

/* A name that no other run of this program has. */
static const char *own_name(const char *of) {
    static char name[64];
    snprintf(name, sizeof name, "fastsock/test/%d/%s", getpid(), of);
    return name;
}

/* Somebody at a name. */
static int visit(const char *name) {
    struct sockaddr_un address;
    socklen_t size = fs_name_address(&address, name, strlen(name));
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    check(fd >= 0 && connect(fd, (struct sockaddr *)&address, size) == 0, "visiting: %m");
    return fd;
}

static int is_sent_away(int fd, char why) {
    char said;
    return recv(fd, &said, 1, 0) == 1 && said == why;
}

static int start_thread(void) {
    enter_front();
    int failed = fs_control_thread_restart();
    leave_front();
    return failed;
}

/* As a front end does it: the parent goes on, and the child publishes a name of its own. (ThreadSanitizer has no new threads in a
 * forked child: there the child finds the table free, and no more.) */
static void fork_and_publish(int fd) {
    int status;
    enter_front();
    pid_t child = fork_holder();
    if (child == 0) {
        pthread_mutex_init(&lock, NULL);
        lock_of_thread = NULL;
        alarm(MOST_SECONDS);
        fs_store_sc(&holds, 0);
#ifdef __SANITIZE_THREAD__
        fs_cache_clear();
        end_at_once(0);
#endif
        uint64_t handle = publish(own_name("child"), fd);
        int visitor = visit(own_name("child"));
        check(send(visitor, "?", 1, 0) == 1 && is_sent_away(visitor, 'v'), "the child's visitor is not answered");
        withdraw(handle);
        end_at_once(0);
    }
    leave_front();
    check(waitpid(child, &status, 0) == child && status == 0, "the child ended with %#x", (unsigned)status);
}

/* ---- the thread is held with a visitor --------------------------------------------------------------------------- */

static void hold_with_visitor(void) {
    int fds[2], visitor;
    connect_pair(fds);
    uint64_t handle = publish(own_name("a"), fds[1]);
    hold(CONTROL_THREAD, RECVMSG);
    visitor = visit(own_name("a"));
    check(send(visitor, "?", 1, 0) == 1, "send: %m");
    until(fs_load_sc(&stands), "the thread does not come to the visitor");
    fork_and_publish(fds[1]);
    check(start_thread() == FS_NO_THREAD, "a second thread runs");
    fork_and_publish(fds[1]);
    /* It keeps off the table until a fork is over. */
    enter_front();
    fs_control_thread_stop();
    leave_front();
    release();
    usleep(NEVER);
    fs_control_lock_hosted();
    check(fs_load_relaxed(&fs_control_state.listings[handle & 0xffff].state) == FS_LISTING_WAITING, "it does not keep off");
    fs_control_unlock();
    enter_front();
    fs_control_thread_after_fork();
    leave_front();
    check(is_sent_away(visitor, 'v'), "the visitor is not answered");
    until(start_thread() == 0, "no thread is started again");
    withdraw(handle);
    close(visitor);
    handle = publish(own_name("a"), fds[1]);
    visitor = visit(own_name("a"));
    check(send(visitor, "?", 1, 0) == 1 && is_sent_away(visitor, 'v'), "the next thread answers nobody");
    withdraw(handle);
    close(visitor);
    close(fds[0]);
    close(fds[1]);
}

/* ---- the thread is held while it answers ------------------------------------------------------------------------- */

struct pair {
    struct end ends[2];
    void *memory;
    size_t size;
};

static struct pair *make_pair(void) {
    static const struct fs_flow_options flow = {4, 8192, 1};
    struct pair *pair = calloc(1, sizeof *pair);
    int fds[2];
    connect_pair(fds);
    pair->memory = make_region(8, 4096, &pair->size);
    for (int s = 0; s < 2; s++) {
        struct end *e = &pair->ends[s];
        *e = (struct end){.lock = &lock, .memory = pair->memory, .size = pair->size, .side = s};
        check(open_end(e, fds[s]) == 0 && attach_end(e, &flow) == 0, "no pair");
    }
    return pair;
}

/* End 0 asks the control thread of end 1 to look, which wakes who sleeps there. */
static void ask(struct pair *pair) { fs_send_control_to_side(pair->memory, ((struct fs_region *)pair->memory)->id, 1, -1); }

static int is_answered(struct pair *pair) { return fs_load_sc(&pair->ends[1].c.watch.told) != 0; }

static fs_word32 ended;

static void *end_pair(void *given) {
    struct pair *pair = given;
    enter_front();
    for (int s = 0; s < 2; s++) {
        fs_requests_stop(&pair->ends[s].c);
        pair->ends[s].asked = 0;
    }
    leave_front();
    fs_store_sc(&ended, 1);
    for (int s = 0; s < 2; s++) close_end(&pair->ends[s], 1);
    munmap(pair->memory, pair->size);
    memset(pair, 0xee, sizeof *pair);
    free(pair);
    return NULL;
}

/* `lost`: the program closes the thread's descriptors, so that a second one answers meanwhile. Else a fork comes. */
static void hold_while_answering(int lost) {
    struct pair *first = make_pair(), *second = make_pair();
    pthread_t ending;
    int fds[2], size;
    connect_pair(fds);
    fs_store_sc(&ended, 0);
    hold(CONTROL_THREAD, WAKE);
    ask(first);
    until(fs_load_sc(&stands), "the thread does not answer");
    if (lost) {
        int from = fs_reserved_range(&size);
        for (int i = 0; i < size; i++) close(from + i);
        enter_front();
        check(fs_control_thread_start() == 0, "no second thread");
        leave_front();
        hold(ALL_PASS, WAKE); /* but the first one */
        ask(second);
        until(is_answered(second), "the second thread does not answer");
    } else {
        fork_and_publish(fds[1]);
    }
    check(real.pthread_create(&ending, NULL, end_pair, first) == 0, "no thread");
    usleep(5 * NEVER);
    check(!fs_load_sc(&ended), "it ends while it is asked");
    release();
    pthread_join(ending, NULL);
    until(start_thread() == 0, "no thread is started again");
    if (!lost) ask(second);
    until(is_answered(second), "the next thread does not answer");
    fork_and_publish(fds[1]);
    until(start_thread() == 0, "the first thread has taken the word that the next one shall end");
    end_pair(second);
    close(fds[0]);
    close(fds[1]);
}

/* ---- an offer of an event set ------------------------------------------------------------------------------------- */

/* From the socket for requests of another process, as a peer does it. */
static void send_offer(int sender, int memfd, int fd) {
    struct sockaddr_un address;
    struct fs_page_offer offer = {.magic = FS_PAGE_OFFER_MAGIC, .version = FS_VERSION, .set = 7};
    struct iovec iov = {&offer, sizeof offer};
    union {
        char space[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(2 * sizeof(int))];
        struct cmsghdr aligned;
    } came;
    struct msghdr message = {.msg_name = &address, .msg_namelen = fs_control_address(&address, fs_control_fds.token), .msg_iov = &iov,
                             .msg_iovlen = 1, .msg_control = came.space};
    memset(&came, 0, sizeof came);
    fs_put_cmsg(&message, fs_put_credentials(&message, &came.aligned), SCM_RIGHTS, (int[]){memfd, fd}, 2 * sizeof(int));
    check(sendmsg(sender, &message, 0) == sizeof offer, "offering: %m");
}

/* What is offered as an eventfd is a file, whose file system answers when it likes. */
static void offer_file(void) {
    struct sockaddr_un address;
    socklen_t size = fs_control_address(&address, (uint64_t)getpid() << 32 | 1);
    int fds[2], sender = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), file = (int)syscall(SYS_memfd_create, "a file", 1);
    int memfd = fs_memfd_sealed("a page", FS_PAGE_SIZE), number = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct fs_event_page *page = fs_map_memfd(memfd, FS_PAGE_SIZE);
    check(sender >= 0 && bind(sender, (struct sockaddr *)&address, size) == 0, "binding: %m");
    check(fcntl(file, F_SETFL, O_NONBLOCK) == 0 && fstat(file, &strange) == 0 && page && number >= 0, "no file: %m");
    until(start_thread() == 0, "no thread is started again");
    enter_front();
    until(fs_control_thread_start() == 0, "no thread");
    leave_front();
    hold(CONTROL_THREAD, STAT);
    send_offer(sender, memfd, file);
    until(fs_load_sc(&stands), "nobody looks at the file");
    check(pthread_mutex_trylock(&fs_control_state.lock) == 0, "the table is locked meanwhile");
    pthread_mutex_unlock(&fs_control_state.lock);
    connect_pair(fds);
    fork_and_publish(fds[1]);
    release();
    until(start_thread() == 0, "no thread is started again");
    /* (The next one is taken behind this one.) */
    check(!fs_load_relaxed(&page->known), "a file is taken for an eventfd");
    send_offer(sender, memfd, number);
    until(fs_load_relaxed(&page->known), "an eventfd is refused");
    check(!fs_load_sc(&asked_file_system), "the file system is asked");
    munmap(page, FS_PAGE_SIZE);
    close(fds[0]);
    close(fds[1]);
    close(sender);
    close(file);
    close(memfd);
    close(number);
}

/* ---- nobody can drop ---------------------------------------------------------------------------------------------- */

/* The parent's thread is not in a forked child, nor is anything held there. It has that so before the front end's handlers run, as
 * one of them may close a connection. */
static void fork_beside_reaper(void) {
    int status, pipes[FS_REAPER_ROOM][2];
    hold(REAPER, CLOSE);
    for (int i = 0; i < FS_REAPER_ROOM; i++) {
        check(pipe2(pipes[i], O_CLOEXEC) == 0, "pipe: %m");
        fs_reap_fd(pipes[i][0], 0);
    }
    until(fs_load_sc(&stands) == 1, "it is not held");
    usleep(NEVER);
    check(fs_load_sc(&stands) == 1, "there is a second thread");
    check(!fs_reaper_has_room(), "more can be dropped");
    enter_front();
    fs_control_thread_stop();
    fs_expect_fork(1);
    pid_t child = fork();
    fs_expect_fork(0);
    if (child == 0) end_at_once(!fs_reaper_has_room());
    fs_control_thread_after_fork();
    leave_front();
    check(waitpid(child, &status, 0) == child && status == 0, "the child waits for its parent's thread");
    release();
    until(fs_reaper_has_room(), "nothing can be dropped");
    for (int i = 0; i < FS_REAPER_ROOM; i++) close(pipes[i][1]);
    until(start_thread() == 0, "no thread is started again");
}

static int more_can_be_dropped(void) {
    enter_front();
    int can = fs_reaper_has_room();
    leave_front();
    return can;
}

/* Visitors whom nobody can send away, as the thread is held or none can be made. */
static void flood(int none_can_be_made) {
    int fds[2], visitors[64], count = 0;
    struct sockaddr_un address;
    const char *name = own_name("flood");
    socklen_t size = fs_name_address(&address, name, strlen(name));
    connect_pair(fds);
    int before = open_descriptors();
    uint64_t handle = publish(name, fds[1]);
    enter_front();
    fs_control_lock_hosted();
    fs_control_state.listings[handle & 0xffff].expires = fs_now() + (int64_t)MOST_SECONDS * 1000000000;
    fs_control_unlock();
    leave_front();
    int published = open_descriptors();
    fs_store_sc(&soonest, UINT32_MAX);
    fs_store_sc(&seen_user, STRANGER);
    if (none_can_be_made) fs_store_sc(&no_threads, 1);
    else hold(REAPER, CLOSE);
    /* (The control thread may be slow to take them.) */
    double until = seconds_now() + 3 * PATIENCE;
    for (double last = seconds_now(); count < 64 && (seconds_now() - last < 0.5 || more_can_be_dropped()); usleep(500)) {
        check(seconds_now() < until, "more can be dropped");
        visitors[count] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (connect(visitors[count], (struct sockaddr *)&address, size) == 0) {
            count++;
            last = seconds_now();
        } else {
            close(visitors[count]);
        }
    }
    check(count < 64, "all are let in");
    int taken = open_descriptors() - published - count;
    check(taken <= FS_REAPER_ROOM + 1, "%d are taken", taken);
    check(fs_load_sc(&soonest) <= 1, "the others wait for %u ms, though there is room at once", fs_load_sc(&soonest));
    fs_store_sc(&no_threads, 0);
    release();
    for (int i = 0; i < count; i++) {
        struct pollfd polled = {visitors[i], POLLIN, 0};
        check(poll(&polled, 1, (int)PATIENCE * 1000) == 1, "visitor %d of %d waits for ever", i, count);
        check(is_sent_away(visitors[i], 'u'), "visitor %d of %d is not answered", i, count);
        close(visitors[i]);
    }
    withdraw(handle);
    until(open_descriptors() == before, "%d descriptors are left", open_descriptors() - before);
    until(fs_reaper_has_room(), "nothing can be dropped");
    fs_store_sc(&seen_user, 0);
    close(fds[0]);
    close(fds[1]);
}

/* A stranger's message is dropped by a thread that starts late: it takes no other one. */
static void drop_late(void) {
    char name[64];
    struct pair *pair = make_pair();
    int length = snprintf(name, sizeof name, FS_CONTROL_NAME, (unsigned long long)fs_control_fds.token), before = open_descriptors();
    struct sockaddr_un address;
    socklen_t size = fs_name_address(&address, name, (size_t)length);
    int stranger = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr aligned;
    } came = {.aligned = {.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))}};
    struct msghdr message = {.msg_name = &address, .msg_namelen = size, .msg_control = came.space, .msg_controllen = sizeof came};
    memcpy(CMSG_DATA(&came.aligned), &stranger, sizeof stranger);
    fs_store_sc(&seen_user, STRANGER);
    hold(REAPER, START);
    check(stranger >= 0 && sendmsg(stranger, &message, 0) == 0, "sending: %m");
    close(stranger);
    until(fs_load_sc(&stands), "nobody drops it");
    uint32_t told = fs_load_sc(&pair->ends[1].c.watch.told);
    ask(pair);
    enter_front();
    fs_control_thread_stop();
    fs_control_thread_after_fork();
    leave_front();
    until(start_thread() == 0, "the control thread waits for ever");
    check(fs_load_sc(&pair->ends[1].c.watch.told) == told, "it is answered too early");
    release();
    until(fs_load_sc(&pair->ends[1].c.watch.told) != told, "the request behind is lost");
    fs_store_sc(&seen_user, 0);
    until(open_descriptors() == before, "%d descriptors are left", open_descriptors() - before);
    end_pair(pair);
}

/* ---- the seeker ---------------------------------------------------------------------------------------------------- */

/* Another user holds the name. The seeker's call closes nothing that may have something in it. */
static void seek_at_stranger(int old) {
    const char *name = own_name("held");
    struct fs_path path = {0};
    struct fs_step_result step;
    struct fs_call call;
    struct sockaddr_un address;
    socklen_t size = fs_name_address(&address, name, strlen(name));
    int fds[2], holder = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    check(holder >= 0 && bind(holder, (struct sockaddr *)&address, size) == 0 && listen(holder, 4) == 0, "holding: %m");
    connect_pair(fds);
    fs_store_sc(&seen_user, STRANGER);
    fs_store_sc(&old_kernel, (uint32_t)old);
    fs_store_sc(&control, 0);
    fs_store_sc(&control_closed_by, 0);
    ends[0] = (struct end){.lock = &lock};
    check(open_end(&ends[0], fds[0]) == 0, "no end");
    enter_front();
    fs_count_opened(FS_REASON_FEW);
    fs_path_open(&path, &ends[0].c, 0, FS_REASON_FEW);
    check(fs_path_event(&path, FS_PATH_START) && fs_connector_begin(&path, name, 0, NULL) == 0, "no search");
    for (path.operations = 1; path.state != FS_DECIDED; path.operations++) {
        check(path.operations < 10000 && fs_call_enter(&ends[0].c, &call), "nothing is decided");
        fs_connector_step(&path, &ends[0].c, NULL, &step);
        after_call(&ends[0], &call);
    }
    check(path.reason == FS_REASON_UNTRUSTED, "reason %d", path.reason);
    leave_front();
    until(fs_load_sc(&control_closed_by), "nobody closes it");
    int passes = 1;
    socklen_t n = sizeof passes;
    int refuses = !old && getsockopt(holder, SOL_SOCKET, 83, &passes, &n) == 0;
    check(fs_load_sc(&control_closed_by) == 1 + (uint32_t)(refuses ? PROGRAM : REAPER), "closed by %u", fs_load_sc(&control_closed_by));
    fs_store_sc(&seen_user, 0);
    fs_store_sc(&old_kernel, 0);
    close_end(&ends[0], 1);
    close(fds[1]);
    close(holder);
}

int main(int count, char **arguments) {
    struct rounds rounds = begin_rounds(count, arguments);
    uint64_t random;
    struct fs_upgrade_config config = {.window = 8, .chunk = 4096, .flow = {4, 1024, 1}, .memory_cap = 1 << 30, .patience = 200000000};
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = LIMIT;
    check(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit: %m");
    alarm(MOST_SECONDS * 2);
    signal(SIGPIPE, SIG_IGN);
    real = fs_system;
    check(fs_reaper_begin() == 0, "forks are not watched");
    fs_system.pthread_create = create_in_role;
    fs_system.recvmsg = held_recvmsg;
    fs_system.futex = held_futex;
    fs_system.close = held_close;
    fs_system.fstat = held_fstat;
    fs_system.statx = held_statx;
    fs_system.getsockopt = told_getsockopt;
    fs_system.epoll_pwait2 = noted_wait;
    fs_system.connect = noted_connect;
    become_front_end();
    fs_set_upgrade_config(&config);
    while (next_round(&rounds, &random)) {
        hold_with_visitor();
        hold_while_answering(0);
        hold_while_answering(1);
        offer_file();
        fork_beside_reaper();
        flood(0);
        flood(1);
        drop_late();
        seek_at_stranger(0);
        seek_at_stranger(1);
    }
    printf("%u rounds, %u calls stood still\n", rounds.done, fs_load_sc(&stood));
    return 0;
}
