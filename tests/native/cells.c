/* The cell of a region: `cells`. Two ends of a TCP connection, and the region that both have mapped; the seeker posts, the publisher takes.
 * Nobody gets a region for a connection that it was not posted for, and no two have it. Ends with 0, or says what is wrong. */
#include "internals.h"
#include "harness.h"

#include <netinet/in.h>

#include "control/cell.h"
#include "control/control_state.h"
#include "control/control_thread.h"
#include "control/region_mmap.h"
#include "transport/stream.h"

enum { WINDOW = 8, CHUNK = 4096, THREADS_ROUNDS = 20000 };

static void *theirs;         /* the seeker's mapping */
static size_t size;
static int listener;
static struct sockaddr_in at;

/* Parks a region at the publisher, as if a connection of it had ended. */
static void park(void) {
    static unsigned char id[16];
    id[0]++;
    int memfd = fs_create_region(WINDOW, CHUNK, id, &theirs);
    check(memfd >= 0, "no region");
    size = fs_region_size(WINDOW, CHUNK);
    struct fs_region_ref *parked = fs_region_of(fs_map_memfd(memfd, size), size, 1, id);
    close(memfd);
    check(fs_link_join(parked, &(struct fs_peer_process){.key = 1, .user = geteuid()}) == 0, "no link");
    parked->window = WINDOW;
    fs_region_park(parked);
    check(fs_region_find_parked(1, id) == parked && !fs_region_find_parked(2, id), "who knows its id gets it, or nobody does");
}

static void unpark(void) {
    munmap(theirs, size);
    fs_links_clear();
}

struct pair {
    int fds[2]; /* the seeker's, the publisher's */
    struct fs_stream_identity ends[2];
};

/* A connection from a port, 0: any. */
static struct pair connected(int port) {
    struct pair p;
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    p.fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(p.fds[0], SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    check(bind(p.fds[0], (struct sockaddr *)&from, sizeof from) == 0, "bind: %s", strerror(errno));
    check(connect(p.fds[0], (struct sockaddr *)&at, sizeof at) == 0, "connect: %s", strerror(errno));
    check((p.fds[1] = accept(listener, NULL, NULL)) >= 0, "accept");
    for (int i = 0; i < 2; i++) check(fs_tcp_stream.identify(p.fds[i], &p.ends[i]), "no addresses");
    return p;
}

static void end_pair(struct pair *p) {
    for (int i = 0; i < 2; i++)
        if (p->fds[i] >= 0) close(p->fds[i]);
}

static int post_from(const struct pair *p, int end) {
    *(uint64_t *)((struct fs_region *)theirs + 1) = 1; /* what an earlier connection has left */
    fs_cell_post(theirs, fs_cookie(p->fds[end]), &p->ends[end]);
    return 1;
}

static int post(const struct pair *p) { return post_from(p, 0); }

static int take(const struct pair *p) {
    struct fs_region_ref *taken = fs_cell_take(&p->ends[1]);
    if (!taken) return 0;
    check(taken->size == size && taken->link->peer.key == 1 && !fs_regions_parked(1), "another region");
    check(fs_wakeup_seen(theirs), "the seeker is not told");
    check(!fs_is_region_free(theirs) && !*(uint64_t *)((struct fs_region *)theirs + 1), "it is not ready");
    fs_region_discard(taken);
    return 1;
}

static struct fs_cell *cell(void) { return &((struct fs_region *)theirs)->cell; }

static void reset(int fd) { fs_tcp_stream.reset(fd), close(fd); }

/* Each of these ends with a publisher that may, or may not, take the region. */
static int is_taken(struct pair *p) { return post(p) && take(p); }
static int not_posted(struct pair *p) { return take(p); }
static int withdrawn(struct pair *p) { return post(p) && fs_cell_withdraw(theirs) && take(p); }
static int taken_once(struct pair *p) { return post(p) && take(p) && take(p); }
static int withdrawn_late(struct pair *p) { return post(p) && take(p) && fs_cell_withdraw(theirs); }
static int posted_again(struct pair *p) { return post(p) && fs_cell_withdraw(theirs) && post(p) && take(p); }

static int of_another(struct pair *p) {
    struct pair other = connected(0);
    int taken = post(&other) && take(p);
    end_pair(&other);
    return taken;
}

static int at_the_other_end(struct pair *p) { /* the publisher's own end posts */
    return post_from(p, 1) && take(p);
}

static int of_the_dead(struct pair *p) { /* who posted has died, and another socket has its port */
    int port = ntohs(p->ends[0].here.port), taken;
    check(post(p), "not posted");
    reset(p->fds[0]);
    p->fds[0] = -1;
    struct pair foreign = connected(port);
    taken = take(&foreign);
    end_pair(&foreign);
    return taken;
}

static int reset_before(struct pair *p) {
    check(post(p), "not posted");
    reset(p->fds[0]);
    p->fds[0] = -1;
    return take(p);
}

static int half_closed(struct pair *p) {
    check(post(p), "not posted");
    shutdown(p->fds[0], SHUT_WR);
    return take(p);
}

static int forged_cookie(struct pair *p) {
    check(post(p), "not posted");
    cell()->cookie++;
    return take(p);
}

static int no_cookie(struct pair *p) {
    check(post(p), "not posted");
    cell()->cookie = 0;
    return take(p);
}

static int forged_ends(struct pair *p) {
    check(post(p), "not posted");
    cell()->seeker[15]++;
    return take(p);
}

static int overwritten(struct pair *p) { /* with what a hostile process might write */
    uint64_t random = 1;
    int taken = 0;
    for (int i = 0; i < 1000; i++) {
        for (size_t at_byte = 8; at_byte < sizeof *cell(); at_byte++)
            ((unsigned char *)cell())[at_byte] = (unsigned char)next_random(&random);
        fs_store_relaxed(&cell()->state, next_random(&random));
        taken |= take(p);
    }
    return taken;
}

static int displaced(struct pair *p) { /* the publisher has no room for it any more */
    check(post(p), "not posted");
    fs_links_clear();
    return take(p);
}

static int told_before(struct pair *p) { /* the seeker has the word still by which it was told of the last connection */
    fs_store_relaxed(&((struct fs_region *)theirs)->wakeup, FS_TAKEN);
    check(post(p), "not posted");
    return fs_wakeup_seen(theirs);
}

static int changed_meanwhile_is; /* 1: withdrawn while the kernel is asked, 2: and posted again */
static ssize_t (*real_recv)(int, void *, size_t, int);

static ssize_t change_within(int fd, void *into, size_t room, int flags) {
    int again = changed_meanwhile_is == 2;
    if (changed_meanwhile_is && changed_meanwhile_is <= 2) check(fs_cell_withdraw(theirs), "taken already");
    if (again) fs_store_release(&cell()->state, fs_load_relaxed(&cell()->state) | 1);
    if (changed_meanwhile_is == 3) check(!fs_links_clear(), "it is parked meanwhile");
    changed_meanwhile_is = 0;
    return real_recv(fd, into, room, flags);
}

static int changed_meanwhile(struct pair *p, int how) {
    check(post(p), "not posted");
    real_recv = fs_system.recv;
    changed_meanwhile_is = how;
    fs_system.recv = change_within;
    int taken = take(p);
    fs_system.recv = real_recv;
    check(!changed_meanwhile_is, "the kernel was not asked");
    return taken;
}

static int withdrawn_meanwhile(struct pair *p) { return changed_meanwhile(p, 1); }
static int stale_generation(struct pair *p) { return changed_meanwhile(p, 2); }
static int cleared_meanwhile(struct pair *p) { return changed_meanwhile(p, 3); }

static const struct {
    const char *name;
    int (*body)(struct pair *);
    int expected;
} cases[] = {
    {"posted and taken", is_taken, 1},
    {"not posted", not_posted, 0},
    {"withdrawn", withdrawn, 0},
    {"taken once", taken_once, 0},
    {"withdrawn behind the taking", withdrawn_late, 0},
    {"posted again", posted_again, 1},
    {"another connection's", of_another, 0},
    {"posted by the wrong end", at_the_other_end, 0},
    {"a dead poster whose port another has", of_the_dead, 0},
    {"reset before it is taken", reset_before, 0},
    {"half closed", half_closed, 0},
    {"a forged cookie", forged_cookie, 0},
    {"no cookie", no_cookie, 0},
    {"forged ends", forged_ends, 0},
    {"overwritten", overwritten, 0},
    {"displaced", displaced, 0},
    {"told of the last taking", told_before, 0},
    {"withdrawn while the kernel is asked", withdrawn_meanwhile, 0},
    {"posted again while the kernel is asked", stale_generation, 0},
    {"all that is parked goes while the kernel is asked", cleared_meanwhile, 1},
};

/* ---- both at once ------------------------------------------------------------------------------------------------- */

static fs_word32 round_of[2], done;
static struct pair raced;

static void *withdraw_rounds(void *won) {
    for (uint32_t i = 1; i <= THREADS_ROUNDS; i++) {
        while (fs_load_sc(&round_of[0]) != i) {}
        *(int *)won += fs_cell_withdraw(theirs);
        fs_store_sc(&done, i);
    }
    return NULL;
}

/* Of a withdrawal and a taking at once, exactly one succeeds. */
static void check_race(void) {
    pthread_t thread;
    int withdrawals = 0, takings = 0, before;
    uint64_t random = 7;
    raced = connected(0);
    park();
    check(pthread_create(&thread, NULL, withdraw_rounds, &withdrawals) == 0, "no thread");
    for (uint32_t i = 1; i <= THREADS_ROUNDS; i++) {
        before = withdrawals + takings;
        check(post(&raced), "not posted");
        fs_store_sc(&round_of[0], i);
        for (uint32_t pause = below(&random, 200) * (i % 2); pause; pause--) fs_cpu_relax();
        int taken = take(&raced);
        while (fs_load_sc(&done) != i) {}
        takings += taken;
        check(withdrawals + takings == before + 1, "round %u: %d have the region", i, withdrawals + takings - before);
        if (taken) munmap(theirs, size), park();
    }
    pthread_join(thread, NULL);
    check(withdrawals && takings, "%d withdrawals, %d takings", withdrawals, takings);
    unpark();
    end_pair(&raced);
}

int main(void) {
    socklen_t length = sizeof at;
    at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    check(bind(listener, (struct sockaddr *)&at, sizeof at) == 0 && listen(listener, 16) == 0, "no listener");
    getsockname(listener, (struct sockaddr *)&at, &length);
    fs_become_process();
    for (int kept = 0; kept < 2; kept++) { /* the kernel is asked on a socket of the question's own, and on the one that is kept */
        if (kept) check(fs_control_thread_start() == 0 && fs_diag_socket() >= 0, "no control thread");
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            struct pair p = connected(0);
            park();
            int taken = cases[i].body(&p);
            check(taken == cases[i].expected, "%s: %d", cases[i].name, taken);
            unpark();
            end_pair(&p);
        }
    }
    check_race();
    puts("1 taken");
    return 0;
}
