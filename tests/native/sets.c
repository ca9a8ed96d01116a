/* Event sets: no hint is lost, whoever posts and however often pages are given up meanwhile.
 *
 *   sets SECONDS [ROUND]           threads and a forked process post to the places of a set, and its owner sleeps and takes
 *   sets blind SECONDS [ROUND]     the negative control: the owner looks for hints before it says that it sleeps
 *
 * A place stands for a connection: a number of posts, and a word that says that the set is to be told, as FS_SET_ASLEEP does. Posters
 * are threads that use the offered page, threads of the owner's side, and a process that inherited both. */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "harness.h"

#include "os/host.h"
#include "events/event_set.h"

enum { PLACES = 9000, TOLD = 2, OWN = 1, MOST = 20000 };
#define TOKEN UINT64_C(0x1234567)
#ifdef __SANITIZE_THREAD__
#define CLOSES 0 /* it believes that a number is in use until its own close() is called */
#else
#define CLOSES 1
#endif

struct place {
    fs_word64 posted;
    fs_word32 asleep;
    uint32_t payload; /* written before the post by whoever posts: one poster for each place */
};

static struct place *posts; /* memory that the forked process shares */
static struct shared {
    fs_word32 posters, over;
} *shared;
static struct fs_event_set *set;
static uint32_t id;
static int blind;
static uint32_t places, each;
static uint64_t calls; /* posts, of all rounds */

static void tell(uint32_t place, int own, fs_word32 *seen) {
    uint64_t name = fs_slot_name(id, place);
    if (own || fs_remote_set_notify(TOKEN, name, seen) < 0) fs_wake_local_set(name);
}

struct poster {
    uint64_t random;
    uint32_t number; /* posts at the places number, number + 4, ... */
    int own;
};

static void post(struct poster *me) {
    fs_word32 seen = 0;
    for (uint32_t n = 0; n < each; n++) {
        uint32_t place = below(&me->random, places / 4) * 4 + me->number;
        struct place *at = &posts[place];
        at->payload++;
        fs_add_sc(&at->posted, 1);
        if (fs_load_sc(&at->asleep) && fs_cas32(&at->asleep, 1, 0)) tell(place, me->own, &seen);
        if (one_in(&me->random, 64)) sched_yield();
        if (one_in(&me->random, 256)) usleep(below(&me->random, 100));
    }
    fs_add_sc(&shared->posters, (uint32_t)-1);
    tell(me->number, me->own, &seen); /* so that the owner looks whether all have ended */
}

static void *post_on_thread(void *me) {
    post(me);
    return NULL;
}

/* The page of the process with this token, which is this process: offered and kept. */
static void offer(struct fs_page_ref *page) {
    int memfd = fs_page_init(set, page, 0);
    check(memfd >= 0, "a page: %d", memfd);
    void *mapped = mmap(NULL, FS_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
    check(mapped != MAP_FAILED, "mmap: %m");
    int fd = fcntl(fs_page_eventfd(set, page), F_DUPFD_CLOEXEC, 3);
    check(fd >= 0 && fs_remote_set_add(TOKEN, id, mapped, fd), "keeping");
    close(memfd);
}

/* What a loop does with a connection that may have something: takes all, arms and looks again. */
static uint64_t take(uint32_t place, uint64_t *taken) {
    struct place *at = &posts[place];
    uint64_t got = 0;
    for (;;) {
        uint64_t posted = fs_load_sc(&at->posted);
        got += posted - taken[place];
        taken[place] = posted;
        fs_store_sc(&at->asleep, 1);
        if (fs_load_sc(&at->posted) == posted) return got;
        fs_store_sc(&at->asleep, 0);
    }
}

static int fall_asleep_blindly(void) {
    if (fs_has_hints(set)) return 1;
    sched_yield();
    fs_store_sc(&set->home->asleep, 1);
    for (struct fs_page_ref *page = set->pages; page; page = page->next)
        if (page->memory) fs_store_sc(&page->memory->asleep, 1);
    set->sleep = 1;
    return 0;
}

static void own(uint64_t *random) {
    static uint64_t taken[PLACES];
    uint32_t hints[FS_HINTS * 2];
    uint64_t got = 0, whole = (uint64_t)each * (TOLD + OWN + 1);
    struct fs_page_ref *page = NULL;
    int closes = CLOSES;
    memset(taken, 0, sizeof taken);
    for (uint32_t i = 0; i < places; i++) {
        check(fs_set_slot_alloc(set) == (int)i, "places in order");
        fs_slot_put_member(set, i, &posts[i]);
        page = fs_page_of_process(set, i, TOKEN);
        check(page && page->members == i + 1, "members");
        got += take(i, taken);
    }
    offer(page);
    fs_store_sc(&shared->posters, TOLD + OWN + 1);
    fs_store_sc(&shared->over, 0);
    pthread_t threads[TOLD + OWN];
    struct poster posters[TOLD + OWN + 1];
    for (int i = 0; i < TOLD + OWN + 1; i++)
        posters[i] = (struct poster){next_random(random), (uint32_t)i, i == TOLD};
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        post(&posters[TOLD + OWN]);
        /* (An eventfd that the owner has closed would take what was written to it along with its last holder.) */
        while (!fs_load_sc(&shared->over)) usleep(100);
        end_at_once(0);
    }
    for (int i = 0; i < TOLD + OWN; i++) check(pthread_create(&threads[i], NULL, post_on_thread, &posters[i]) == 0, "a thread");
    while (got < whole || fs_load_sc(&shared->posters)) {
        int count;
        fs_set_awake(set);
        fs_event_set_drain(set);
        do {
            count = fs_take_hints(set, hints, FS_HINTS * 2);
            for (int i = 0; i < count; i++) {
                check(fs_slot_member(set, hints[i]) == &posts[hints[i]], "a hint at nobody: %u", hints[i]);
                got += take(hints[i], taken);
            }
        } while (count);
        if (one_in(random, 50)) { /* the program has closed the numbers, or the process at the other end has lost them */
            fs_retire_page(set, page);
            offer(page);
        }
        if (closes && one_in(random, 20)) { /* as a program does that closes what is not its own */
            closes = 0;
            syscall(SYS_close, (int)fs_load_relaxed(&set->fd));
        }
        if (got == whole && !fs_load_sc(&shared->posters)) break;
        if (blind ? fall_asleep_blindly() : fs_prepare_sleep(set)) continue;
        struct pollfd waits = {set->epoll, POLLIN, 0};
        int milliseconds = blind ? 2000 : (int)(PATIENCE * 1000);
        check(poll(&waits, 1, milliseconds) > 0, "a lost hint: %" PRIu64 " of %" PRIu64, got, whole);
    }
    fs_store_sc(&shared->over, 1);
    for (int i = 0; i < TOLD + OWN; i++) pthread_join(threads[i], NULL);
    check(waitpid(child, NULL, 0) == child, "the process");
    uint64_t payload = 0;
    for (uint32_t i = 0; i < places; i++) {
        payload += posts[i].payload;
        posts[i] = (struct place){0};
        fs_set_slot_free(set, i);
    }
    calls += payload;
    check(payload == whole, "%" PRIu64 " posts of %" PRIu64, payload, whole);
    check(!set->pages || !set->pages->members, "members are left");
}

/* What is no hint of anybody's, as a hostile peer may write: it is taken, and leads nowhere. */
static void try_garbage(void) {
    uint32_t hints[FS_HINTS], seen = 0;
    int failed, count;
    struct fs_event_set *other = fs_event_set_new(&failed);
    check(other, "a set: %d", failed);
    struct fs_page_ref *page = fs_set_slot_alloc(other) == 0 ? fs_page_of_process(other, 0, TOKEN) : NULL;
    check(page, "a page");
    int memfd = fs_page_init(other, page, 1);
    check(memfd >= 0 && page->fd >= 0 && fs_page_eventfd(other, page) == page->fd, "an eventfd of its own");
    memset(page->memory, 0xff, sizeof *page->memory);
    check(fs_has_hints(other) && fs_prepare_sleep(other) && !fs_load_sc(&page->memory->asleep), "asleep with hints");
    while ((count = fs_take_hints(other, hints, FS_HINTS))) {
        check(count <= FS_HINTS, "too many");
        for (int i = 0; i < count; i++) {
            check(hints[i] < FS_SET_SLOTS && !fs_slot_member(other, hints[i]), "a member at %u", hints[i]);
            seen++;
        }
    }
    check(seen == FS_SET_SLOTS, "%u hints", seen);
    fs_wake_local_set(0);
    fs_wake_local_set(UINT64_MAX);
    fs_wake_local_set(fs_slot_name(fs_load_relaxed(&other->id) + FS_SETS, 3)); /* of a set that was here, or will be */
    check(!fs_has_hints(other), "hinted by a stranger");
    close(memfd);
    fs_set_slot_free(other, 0);
    fs_event_set_end(other);
}

static ssize_t die_before_it_writes(int fd, const void *data, size_t size) {
    (void)fd, (void)data, (void)size;
    end_at_once(0);
}

/* A process that was about to wake the set, and was killed: the next one that posts wakes it, whatever it posts. */
static void try_killed_poster(void) {
    int failed;
    struct fs_event_set *other = fs_event_set_new(&failed);
    check(other && fs_set_slot_alloc(other) == 0 && fs_set_slot_alloc(other) == 1, "a set with two places: %d", failed);
    check(!fs_prepare_sleep(other), "hints at nobody");
    uint32_t its = fs_load_relaxed(&other->id);
    pid_t child = fork();
    if (child == 0) {
        fs_system.write = die_before_it_writes;
        fs_wake_local_set(fs_slot_name(its, 0));
        end_at_once(1);
    }
    int status;
    check(waitpid(child, &status, 0) == child && status == 0, "it was not about to write: %#x", status);
    fs_wake_local_set(fs_slot_name(its, 1));
    struct pollfd waits = {other->epoll, POLLIN, 0};
    check(poll(&waits, 1, 0) == 1, "the set sleeps on");
    fs_set_awake(other);
    fs_set_slot_free(other, 0);
    fs_set_slot_free(other, 1);
    fs_event_set_end(other);
}

/* A set in an epoll that has other members too: each wakeup is told once, nothing is told after its end, and the epoll stays. */
static void try_epoll_of_others(void) {
    struct epoll_event got[4];
    int failed, epoll = epoll_create1(EPOLL_CLOEXEC);
    struct fs_event_set *other = fs_event_set_new_in(epoll, 7, &failed);
    check(other && fs_set_slot_alloc(other) == 0, "a set with a place: %d", failed);
    uint64_t name = fs_slot_name(fs_load_relaxed(&other->id), 0);
    fs_wake_local_set(name);
    check(epoll_wait(epoll, got, 4, 0) == 0, "told of an awake set");
    check(fs_prepare_sleep(other), "asleep with a hint");
    uint32_t hints[FS_HINTS];
    check(fs_take_hints(other, hints, FS_HINTS) == 1 && hints[0] == 0, "another hint");
    check(!fs_prepare_sleep(other), "hints at nobody");
    for (int i = 0; i < 3; i++) {
        if (i == 1) fs_wake_owner(other);
        else fs_wake_local_set(name);
        check(epoll_wait(epoll, got, 4, 0) == 1 && got[0].data.u64 == 7, "not told");
        check(epoll_wait(epoll, got, 4, 0) == 0, "told twice");
        while (fs_take_hints(other, hints, FS_HINTS)) {}
        check(!fs_prepare_sleep(other), "hints at nobody");
    }
    int theirs = dup(fs_page_eventfd(other, &(struct fs_page_ref){.fd = -1})); /* as a peer process has it */
    check(theirs >= 0, "no eventfd: %m");
    fs_set_slot_free(other, 0);
    fs_event_set_end(other);
    check(write(theirs, &(uint64_t){1}, 8) == 8 && epoll_wait(epoll, got, 4, 0) == 0, "told behind its end");
    check(close(theirs) == 0 && close(epoll) == 0, "the epoll was closed: %m");
}

/* As many places as there are, and as many pages of processes that come and go as are kept. */
/* A forked child wakes a set that has ended since, and the next one has its memory. */
static void try_child_of_before(void) {
    struct epoll_event event;
    int failed, status;
    struct fs_event_set *first = fs_event_set_new(&failed);
    check(first && fs_set_slot_alloc(first) == 0, "a set: %d", failed);
    uint64_t name = fs_slot_name(fs_load_relaxed(&first->id), 0);
    fs_store_sc(&shared->over, 0);
    pid_t child = fork();
    if (child == 0) {
        while (!fs_load_sc(&shared->over)) sched_yield();
        fs_wake_local_set(name);
        _exit(0);
    }
    fs_event_set_end(first);
    struct fs_event_set *next = fs_event_set_new(&failed);
    check(next == first && fs_set_slot_alloc(next) == 0, "the set that was given: %d", failed);
    fs_prepare_sleep(next);
    fs_store_sc(&shared->over, 1);
    check(waitpid(child, &status, 0) == child && status == 0, "status %x", status);
    fs_wake_local_set(fs_slot_name(fs_load_relaxed(&next->id), 0));
    check(fs_epoll_wait(next->epoll, &event, 1, 0, NULL) == 1, "it sleeps on");
    fs_event_set_end(next);
}

static void try_bounds(void) {
    int failed, idle = 0;
    struct fs_event_set *other = fs_event_set_new(&failed);
    check(other, "a set: %d", failed);
    for (int i = 0; i < FS_SET_SLOTS; i++) check(fs_set_slot_alloc(other) == i, "place %d", i);
    check(fs_set_slot_alloc(other) == -ENOSPC, "a place too many");
    for (uint32_t i = 0; i < 100; i++) check(fs_page_of_process(other, 7, 1000 + i), "page %u", i);
    fs_set_slot_free(other, 7);
    for (struct fs_page_ref *page = other->pages; page; page = page->next) idle += !page->members;
    check(idle == FS_IDLE_PAGES, "%d pages of nobody", idle);
    check(fs_set_slot_alloc(other) == 7, "the place that was given");
    fs_event_set_end(other);
}

int main(int count, char **arguments) {
    if (count > 1 && strcmp(arguments[1], "blind") == 0) {
        blind = 1;
        count--;
        arguments[1] = arguments[0];
        arguments++;
    }
    struct rounds rounds = begin_rounds(count, arguments);
    uint64_t random;
    int failed, before = -1;
    fs_become_process();
    void *memory = mmap(NULL, sizeof *posts * PLACES + 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(memory != MAP_FAILED, "mmap: %m");
    shared = memory;
    posts = (struct place *)((char *)memory + 4096);
    while (next_round(&rounds, &random)) {
        places = one_in(&random, 4) ? PLACES : (1 + below(&random, 64)) * 4;
        each = 1000 + below(&random, MOST);
        set = fs_event_set_new(&failed);
        check(set, "a set: %d", failed);
        id = fs_load_relaxed(&set->id);
        own(&random);
        fs_event_set_end(set);
        try_garbage();
        try_killed_poster();
        try_epoll_of_others();
        try_child_of_before();
        if (one_in(&random, 8)) try_bounds();
        if (before >= 0 && rounds.done > 70) check(open_descriptors() <= before + 2, "descriptors are left open");
        if (rounds.done == 70) before = open_descriptors();
    }
    printf("%u rounds, %" PRIu64 " calls\n", rounds.done, calls);
    return 0;
}
