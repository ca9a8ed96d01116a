/* The search of the core: two ends of one process find each other, and each system call and each allocation of theirs fails
 * once: `search [seconds [round]]` (failing.h).
 *
 * A connection's ends search by their own operations, move and end; then two more do, which use the parked region again. What has
 * to hold behind the failure: nothing crashes or hangs; each end is decided, with a region or with a reason that says why not; where only
 * a hello was lost, both move all the same; and afterwards nothing is mapped. Behind the runs come the pace of a seeker, the order of
 * parked regions, and the memory cap. */
#include "failing.h"

#include <limits.h>
#include <sys/un.h>

#include "control/control_state.h"
#include "control/named_socket.h"
#include "control/region_mmap.h"
#include "rendezvous/peer_lookup.h"
#include "rendezvous/local_address.h"

enum { WINDOW = 8, CHUNK = 4096, VARIANTS = 3, BY_NAME = 64 };
enum { CONNECTIONS = 4 /* of a run, one after the other */, EARLY = 0, MET = 3 /* of these */ };

static struct fs_path paths[2];
static char folder[32]; /* for names that other network namespaces find */
static int is_far;      /* the two ends meet there */
static const struct fs_peer_process somebody = {.key = 4000000}, another = {.key = 4000001};

static void describe(void) {
    for (int s = 0; s < 2; s++)
        fprintf(stderr, "; end %d %s, reason %d", s, fs_path_state_name(paths[s].state), paths[s].reason);
    fputc('\n', stderr);
}

/* ---- the program ----------------------------------------------------------------------------------------------- */

/* An operation of end `s`: one more step, if it is due. */
static void operate(int s) {
    struct fs_path *path = &paths[s];
    struct fs_step_result step;
    struct fs_call call;
    enter(&ends[s]);
    path->operations++;
    if (fs_has_step(path) && path->operations >= path->next && fs_call_enter(&ends[s].c, &call)) {
        fs_connector_step(path, &ends[s].c, NULL, &step);
        after_call(&ends[s], &call);
        if (step.what == FS_STEP_BROKEN) violate("end %d broke the protocol: %s", s, step.violation);
    }
    leave();
}

/* End 0 seeks, end 1 publishes. */
static void begin(int s, int fd, const char *name, const struct fs_stream_identity *known) {
    paths[s] = (struct fs_path){0};
    ends[s] = (struct end){.lock = &lock, .side = s};
    int failed = open_end(&ends[s], fd);
    if (failed && strict) violate("opening: %s", strerror(-failed));
    if (failed) return;
    enter(&ends[s]);
    fs_count_opened(FS_REASON_FEW);
    fs_path_open(&paths[s], &ends[s].c, 0, FS_REASON_FEW);
    paths[s].first_contact = known ? BY_NAME : 0;
    if (!fs_path_event(&paths[s], FS_PATH_START)) violate("end %d does not start", s);
    if (fs_path_event(&paths[s], FS_PATH_START)) violate("end %d starts twice", s);
    struct fs_stream_identity ends_of;
    const struct fs_stream_identity *given = known ? known : is_far && fs_tcp_stream.identify(fd, &ends_of) ? &ends_of : NULL;
    failed = fs_connector_begin(&paths[s], name, s == 1, given);
    if (failed && strict) violate("searching: %s", strerror(-failed));
    if (failed) fs_path_decide_tcp(&paths[s], &ends[s].c, FS_REASON_RESOURCES);
    leave();
}

static int is_decided(int s) {
    return !fs_load_relaxed(&ends[s].open) || paths[s].state == FS_DECIDED;
}

static void end_connection(int s) {
    struct fs_connection *c = &ends[s].c;
    struct fs_counters totals = {0};
    struct fs_call call;
    if (!fs_cas32(&ends[s].open, 1, 0) || !fs_call_enter(c, &call)) return;
    int fd = fs_fd(c);
    enter(&ends[s]);
    if (!fs_note_ended(c)) violate("end %d is in use", s);
    fs_conn_finish(&paths[s], c, &totals);
    if (fs_call_exit(c, &call) == FS_EXIT_RELEASE) fs_conn_release(&paths[s], c);
    leave();
    close(fd);
}

/* Both processes have met: the region that is parked was last one of a connection to the same address. */
static void be_known(int fds[2], struct fs_stream_identity known[2]) {
    enter(&ends[0]);
    for (int s = 0; s < 2; s++) fs_tcp_stream.identify(fds[s], &known[s]);
    struct fs_region_ref *region_ref = fs_region_take((uint64_t)getpid(), WINDOW, CHUNK);
    if (region_ref) {
        memcpy(region_ref->services, known[0].services, sizeof region_ref->services);
        for (int s = 0; s < 2; s++) fs_mark_done(region_ref->memory, region_ref->size, s, WINDOW);
        fs_region_park(region_ref);
    }
    leave();
}

/* The name of a process that was killed a while ago. */
static void leave_name(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timespec old[2] = {{1, 0}, {1, 0}};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    strcpy(address.sun_path, path);
    check(bind(fd, (struct sockaddr *)&address, sizeof address) == 0, "%s: %m", path);
    utimensat(AT_FDCWD, path, old, 0);
    close(fd);
}

/* The two ends of a far connection, once it has moved: a request, and a holder that takes over. */
static void ask_far(void) {
    struct fs_connection *c = &ends[0].c;
    if (!fs_load_relaxed(&ends[0].open) || !fs_is_attached(c)) return;
    if (!fs_far_of(c)) violate("the peer is not known as a far one");
    step("a request");
    enter(&ends[0]);
    int failed = fs_send_request(c, -1), way = fs_make_way(fs_control_fds.token);
    if (failed && strict) violate("a request: %s", strerror(-failed));
    if (way >= 0 && !fs_is_way(way) && strict) violate("a way is none");
    if (way >= 0 && !fs_take_way(&c->far, way) && strict) violate("nobody takes over");
    fs_send_way(c, fs_control_fds.token);
    leave();
}

/* Nobody will come to end 1 any more. */
static void leave_far(void) {
    if (is_decided(1)) return;
    enter(&ends[1]);
    fs_path_decide_tcp(&paths[1], &ends[1].c, FS_REASON_PEER);
    leave();
}

static void run_connection(int number) {
    char name[FS_NAME_MAX + 1]; /* as long as one may be: two long addresses of IPv6 need nearly that */
    int fds[2], was_armed = armed;
    struct fs_stream_identity known[2];
    int length = snprintf(name, sizeof name, "fastsock/test/%d/%d/%d/", getpid(), strict, number);
    memset(name + length, '-', sizeof name - 1 - (size_t)length);
    name[sizeof name - 1] = 0;
    armed = 0;
    if (is_far && fs_rendezvous_dir()) {
        fs_dir_path(name, fs_rendezvous_dir(), FS_DIR_CONNECTION, name);
        leave_name(name);
    }
    connect_pair(fds);
    int met = number == MET && !is_far, early = number == EARLY && !is_far;
    if (met) be_known(fds, known);
    armed = was_armed;
    step("connection %d begins", number);
    for (int s = 0; s < 2; s++) begin(s, fds[s], name, met ? &known[s] : NULL);
    step("connection %d searches", number);
    /* (A name waits for time to pass; who seeks waits for operations, of which it has thousands where nobody is found. Should this never
     * end, the run's alarm says so.) */
    while (!is_decided(0) || !is_decided(1)) {
        operate(0);
        if (early && fs_search_sent_descriptor(&paths[0])) end_connection(0); /* the program closes it with the hello on its way */
        operate(1);
        if (is_decided(0) || paths[0].operations % 1024 == 0) usleep(50);
        if (is_far && is_decided(0) && !paths[0].region_ref) leave_far(); /* (there are too many such runs to wait for the name's end) */
    }
    for (int s = 0; s < 2; s++) {
        int attached = fs_load_relaxed(&ends[s].open) && fs_is_attached(&ends[s].c);
        int hello_lost = shared->fired && plan.call == CALL_sendmsg && plan.error == ECONNREFUSED && plan.where == PROGRAM;
        if (!fs_load_relaxed(&ends[s].open)) continue;
        if (attached != (paths[s].region_ref != NULL)) violate("end %d has no region, or too many", s);
        if (attached ? paths[s].reason != FS_REASON_NONE : paths[s].reason <= FS_REASON_SEEKING)
            violate("end %d stands without a reason", s);
        if (!attached && !early && (strict || (hello_lost && !is_far))) violate("end %d does not move", s);
    }
    if (met && strict && plan.n < 0 && paths[0].operations >= BY_NAME) violate("they move by a name");
    if (is_far && fs_rendezvous_dir()) ask_far();
    step("connection %d ends", number);
    for (int s = 0; s < 2; s++) end_connection(s);
}

static void run_connections(void) {
    armed = 1;
    for (int i = 0; i < CONNECTIONS; i++) run_connection(i);
    enter(&ends[0]);
    if (strict && plan.n < 0 && !fs_regions_parked(0)) violate("no region is parked");
    fs_links_clear();
    if (fs_memory_used()) violate("%zu bytes are counted as mapped", fs_memory_used());
    leave();
    armed = 0;
}

static void put_terms(void) {
    struct fs_upgrade_config config = {.window = WINDOW, .chunk = CHUNK, .flow = {4, 1024, 1}, .memory_cap = 1 << 30,
                             .patience = 200000000, .waits = 1};
    fs_set_upgrade_config(&config);
}

/* At the cap those that are there are looked at. */
static void run_capped(void) {
    struct fs_region_ref *refs[2] = {NULL, NULL};
    int memfd, failed[2];
    armed = 1;
    step("at the cap");
    ends[0].lock = &lock;
    enter(&ends[0]);
    fs_set_memory_cap((int64_t)fs_size_without_overflows(fs_region_size(WINDOW, CHUNK)) + 8192);
    for (int i = 0; i < 2; i++) {
        failed[i] = fs_region_new(&somebody, WINDOW, CHUNK, &refs[i], &memfd);
        if (!failed[i]) fs_system.close(memfd);
        else if (strict) violate("there is room beside the pages of the first one");
    }
    for (int i = 0; i < 2; i++)
        if (!failed[i]) fs_region_discard(refs[i]);
    if (fs_memory_used()) violate("%zu bytes are counted as mapped", fs_memory_used());
    const unsigned char here[16] = {[10] = 0xff, [11] = 0xff, 127, 1, 2, 3}, elsewhere[16] = {[10] = 0xff, [11] = 0xff, 192, 0, 2, 1};
    if (!fs_is_local_address(here)) violate("a loopback address is another host's");
    if (fs_is_local_address(elsewhere)) violate("another host's address is here");
    put_terms();
    leave();
    armed = 0;
}

/* Names in a folder, where the last owner of each was killed. */
static void run_far(void) {
    char path[64];
    static int number;
    ends[0].lock = &lock;
    enter(&ends[0]);
    fs_set_rendezvous_dir(NULL);
    snprintf(path, sizeof path, "%s/tcp-%08x%08x", folder, getpid(), ++number);
    leave_name(path);
    armed = 1;
    step("the folder");
    const char *wrong = fs_set_rendezvous_dir(folder);
    if (wrong && strict) violate("the folder: %s", wrong);
    leave();
    fs_dir_sweep();
    armed = 0;
    unlink(path);
    is_far = 1;
    run_connections();
    is_far = 0;
    enter(&ends[0]);
    fs_set_rendezvous_dir(NULL);
    leave();
}

static void run_scenario(int variant) {
    put_terms();
    if (variant == 2) run_far();
    else if (variant) run_capped();
    else run_connections();
}

/* (Where a call failed that tells whether a close can block, a thread closes the descriptor, and nobody waits for that
 * thread: control/fd_reaper.h. Here it gets its time.) */
static void take_stock(struct counts *counts, const struct counts *wanted) {
    double until = seconds_now() + PATIENCE;
    int most = wanted ? wanted->descriptors : INT_MAX;
    do counts->descriptors = open_descriptors();
    while (counts->descriptors > most && seconds_now() < until && usleep(1000) == 0);
    counts->allocations = (int)fs_load_sc(&allocations);
}

/* (What is known of a far peer is never given back.) */
static int may_keep(int variant) { return variant == 2 ? 8 : 0; }

/* The thread's only write shows what an eventfd is, by adding 0 to it, which never fails. Poll of one descriptor allocates nothing. */
static int is_spared(int variant, int where, int call, int error) {
    return variant == 1 || where == BRIDGE || (call == CALL_write && where == CONNECTION_THREAD) ||
           (call == CALL_poll && error_of(call, error) == ENOMEM);
}

/* ---- the pace of a seeker, and parked regions ------------------------------------------------------------------ */

/* Each look costs a system call, and a server may have many foreign clients. A peer that publishes its name is found
 * before it takes it back, no later than as long again, and within a third of a second: it has the name for two, and others wait for
 * it. */
static void check_pace(int64_t pace) {
    struct fs_peer_lookup lookup;
    double last = 0, seconds = 2;
    int64_t operations = 1;
    int looks = 0;
    fs_lookup_begin(&lookup, "nobody", 6, (int64_t)(seconds * 1e9));
    while (!lookup.over) {
        double now = (double)operations / (double)pace, most = FS_MAX(FS_MAX(0.01, 40 / (double)pace), FS_MIN(1.1 * last, 0.33));
        check(looks < 1 || now - last <= most, "%" PRId64 " a second: look %d comes %f s after %f s", pace, looks, now - last, last);
        last = now;
        looks++;
        operations += fs_lookup_pause(&lookup, operations * 1000000000 / pace, operations);
    }
    check(last > seconds, "the search is over after %f s", last);
    check(looks > 64 && looks < 80 + 3 * (double)pace * seconds / 1024, "%d looks at %" PRId64 " a second", looks, pace);
    fs_lookup_end(&lookup);
}

static void check_parking(void) {
    struct fs_region_ref *refs[FS_PARKED_PER_LINK + 2], *again;
    void *newest;
    int memfd;
    ends[0].lock = &lock;
    put_terms();
    become_front_end();
    enter(&ends[0]);
    for (int i = 0; i < FS_PARKED_PER_LINK + 2; i++) {
        check(fs_region_new(&somebody, WINDOW, CHUNK, &refs[i], &memfd) == 0, "no region");
        close(memfd);
        refs[i]->window = WINDOW; /* as if it had been attached, and the peer were done with it too */
        fs_mark_done(refs[i]->memory, refs[i]->size, 1, WINDOW);
    }
    newest = refs[FS_PARKED_PER_LINK + 1]->memory;
    for (int i = 0; i < FS_PARKED_PER_LINK + 2; i++) fs_region_release(refs[i], 1);
    check(fs_regions_parked(0) == FS_PARKED_PER_LINK, "%d regions are parked", fs_regions_parked(0));
    check(!fs_region_take(4000001, WINDOW, CHUNK) && !fs_region_take(4000000, WINDOW * 2, CHUNK), "another one's region");
    again = fs_region_take(4000000, WINDOW, CHUNK);
    check(again && again->memory == newest, "the newest did not go first");
    check(fs_regions_parked(0) == FS_PARKED_PER_LINK - 1, "it is parked still");
    fs_region_release(again, 1);
    for (struct fs_region_ref *region_ref; (region_ref = fs_region_take(4000000, WINDOW, CHUNK)); fs_region_discard(region_ref))
        check(region_ref != again, "one that the peer has not finished with");
    check(fs_regions_parked(0) == 1, "it stays for later");
    fs_links_clear();
    leave();
}

/* Parks a region of the seeker's for each of the links with these keys, with which the publisher has finished too. */
static void park_for(uint64_t first, uint64_t last, uint64_t token) {
    for (uint64_t key = first; key <= last; key++) {
        struct fs_peer_process peer = {.key = key, .user = geteuid()};
        struct fs_region_ref *region_ref;
        int memfd;
        check(fs_region_new(&peer, WINDOW, CHUNK, &region_ref, &memfd) == 0, "no region");
        close(memfd);
        region_ref->window = WINDOW;
        fs_store_relaxed(&((struct fs_region *)region_ref->memory)->asks[1], token);
        fs_mark_done(region_ref->memory, region_ref->size, 1, WINDOW);
        fs_region_release(region_ref, 1);
    }
}

/* Many processes: those of the last ones stay. What is offered in vain is used last. */
static void check_many_links(void) {
    const struct fs_stream_endpoint nobody = {.port = 0};
    struct fs_region_ref *taken[FS_PARKED_BY_SEEKER];
    const uint64_t last = FS_PARKED_BY_SEEKER / 2 + 4;
    int count;
    for (int round = 0; round < 2; round++) park_for(1, last, 0);
    check(fs_regions_parked(0) == FS_PARKED_BY_SEEKER, "%d regions are parked", fs_regions_parked(0));
    struct fs_region_ref *oldest = fs_region_take(1, WINDOW, CHUNK);
    check(oldest && !fs_region_take(1, WINDOW, CHUNK), "of the process of long ago one region is there");
    fs_region_discard(oldest);
    park_for(last, last, 0);
    count = fs_regions_take_to(&nobody, WINDOW, CHUNK, taken, 8);
    check(count == 8 && taken[0]->link->peer.key == last, "%d regions, not of the last one", count);
    fs_region_park_last(taken[0]);
    for (int i = 1; i < count; i++) fs_region_discard(taken[i]);
    struct fs_region_ref *in_vain = taken[0];
    check(fs_regions_take_to(&nobody, WINDOW, CHUNK, taken, 1) == 1 && taken[0]->link != in_vain->link, "what was in vain comes first");
    fs_region_discard(taken[0]);
    check((taken[0] = fs_region_take(in_vain->link->peer.key, WINDOW, CHUNK)) != in_vain, "it comes first of its link");
    fs_region_discard(taken[0]);
    park_for(101, 101 + FS_PARKED_BY_SEEKER - 2, 0);
    check(fs_regions_parked(0) == FS_PARKED_BY_SEEKER && fs_region_take(in_vain->link->peer.key, WINDOW, CHUNK) == in_vain,
          "it goes early");
    fs_region_discard(in_vain);
    fs_links_clear();
}

static int count_link(const struct fs_link *link, void *count) {
    *(int *)count += link->regions;
    return 1;
}

/* A link that is idle keeps all for a while, then less and less, and nothing if the other process has ended. */
static void check_idle_link(void) {
    static const int left[] = {8, 8, 8, 8, 4, 2, 1, 1, 1};
    const uint64_t token = 0x7e57;
    char name[FS_CONTROL_NAME_SIZE];
    fs_control_name(name, token);
    int regions = 0, alive = fs_named_socket(SOCK_DGRAM, name, sizeof name);
    for (int i = 0; i < 8; i++) park_for(7, 7, token);
    int64_t parked = fs_now(), due = fs_links_look(parked);
    for (size_t i = 0; i < sizeof left / sizeof *left; i++) {
        check(due > parked && due <= parked + ((int64_t)2000000000 << i), "the look comes at another time");
        check(fs_links_look(due - 1) == due, "it comes early");
        due = fs_links_look(due);
        check(fs_regions_parked(0) == left[i], "look %zu: %d regions are parked", i, fs_regions_parked(0));
        check(fs_memory_used() <= (size_t)left[i] * 24576, "look %zu: %zu bytes count", i, fs_memory_used());
    }
    check(fs_links_look(4 * due) > 4 * due, "a look is due already, where no thread has looked for a while");
    check(close(alive) == 0 && fs_links_look(64 * due) == INT64_MAX, "it is looked at still");
    fs_links_each(count_link, &regions);
    check(!regions && !fs_regions_parked(0) && !fs_memory_used(), "%d regions of a dead process", regions);
}

static size_t pages_of(const struct fs_region_ref *region) {
    static unsigned char there[16384];
    size_t found = 0, pages = region->size / 4096;
    check(pages <= sizeof there && mincore(region->memory, region->size, there) == 0, "the kernel does not tell");
    for (size_t i = 0; i < pages; i++) found += there[i] & 1;
    return found;
}

/* What happens to a region whose connection has ended. The seeker caches it (s), the publisher parks it (p), each of them has a newer one
 * (S, P), it lies parked for a while (w), the seeker readies it (r) and is refused. With the last of these its pages go. */
static const char *const cooled[] = {"spS", "psS", "spP", "psP", "spw", "psw", "pPs", "pws", "sSp", "sprP", "sprw"};

static void check_cooling(const char *steps) {
    struct fs_region_ref *refs[2], *theirs[2];
    int memfd;
    for (int i = 0; i < 2; i++) {
        check(fs_region_new(i ? &another : &somebody, WINDOW, CHUNK, &refs[i], &memfd) == 0, "no region");
        theirs[i] = fs_region_of(fs_map_memfd(memfd, refs[i]->size), refs[i]->size, 1, refs[i]->id);
        check(fs_link_join(theirs[i], i ? &another : &somebody) == 0, "no link");
        refs[i]->window = theirs[i]->window = WINDOW;
        close(memfd);
    }
    memset((char *)refs[0]->memory + 4096, 1, refs[0]->size - 4096);
    size_t all = pages_of(theirs[0]);
    for (const char *at = steps; *at; at++) {
        int newer = *at == 'S' || *at == 'P';
        if (*at == 's' || *at == 'S') fs_region_release(refs[newer], 1);
        if (*at == 'p' || *at == 'P') fs_region_release(theirs[newer], 1);
        if (*at == 'w') fs_links_look(fs_now() + 3000000000);
        if (*at == 'r') check(fs_region_take(4000000, WINDOW, CHUNK) == refs[0], "it is not free");
        check(at[1] ? pages_of(theirs[0]) == all : pages_of(theirs[0]) < 16, "%s at %s: %zu pages", steps, at, pages_of(theirs[0]));
    }
    if (strchr(steps, 'r')) fs_region_discard(refs[0]);
    if (!strchr(steps, 'S')) fs_region_discard(refs[1]);
    if (!strchr(steps, 'P')) fs_region_discard(theirs[1]);
    fs_links_clear();
}

static int no_looks(void *at, size_t length, unsigned char *into) {
    errno = EAGAIN;
    return -1;
}

/* A region counts whole, but for its spare parts, below the cap. At the cap those that are there are looked at, and count what is in
 * memory. */
static void check_cap(void) {
    struct fs_region_ref *refs[3];
    int memfd;
    size_t size = fs_size_without_overflows(fs_region_size(WINDOW, CHUNK));
    enter(&ends[0]);
    check(fs_memory_used() == 0, "%zu bytes count already", fs_memory_used());
    fs_set_memory_cap((int64_t)size - 1);
    check(fs_region_new(&somebody, WINDOW, CHUNK, &refs[0], &memfd) == FS_CAP_REACHED, "beyond the cap");
    fs_set_memory_cap((int64_t)size);
    check(fs_region_new(&somebody, WINDOW, CHUNK, &refs[0], &memfd) == 0 && fs_memory_used() == size, "at the cap");
    close(memfd);

    fs_set_memory_cap((int64_t)size + 8192);
    fs_system.mincore = no_looks;
    check(fs_region_new(&somebody, WINDOW, CHUNK, &refs[1], &memfd) == FS_CAP_REACHED, "what the kernel does not tell counts whole");
    fs_system.mincore = mincore;
    check(fs_region_new(&somebody, WINDOW, CHUNK, &refs[1], &memfd) == 0, "there is room beside the pages of the first one");
    close(memfd);
    check(fs_memory_used() == size + 4096, "a header and a region are %zu bytes", fs_memory_used());

    memset((char *)refs[0]->memory + 4096, 1, size - 4096); /* it grows */
    check(fs_region_new(&somebody, WINDOW, CHUNK, &refs[2], &memfd) == FS_CAP_REACHED, "what was looked at does not grow");
    check(fs_memory_used() == size + 4096, "a region and a header are %zu bytes", fs_memory_used());
    fs_system.madvise((char *)refs[0]->memory + 4096, size - 4096, MADV_REMOVE);
    check(fs_region_new(&somebody, WINDOW, CHUNK, &refs[2], &memfd) == 0, "it does not shrink");
    close(memfd);
    check(fs_memory_used() == size + 8192, "two headers and a region are %zu bytes", fs_memory_used());

    for (int i = 0; i < 3; i++) fs_region_discard(refs[i]);
    check(fs_memory_used() == 0, "%zu bytes count still", fs_memory_used());
    fs_set_memory_cap((int64_t)size);
    check(fs_region_new(&somebody, WINDOW, CHUNK, &refs[0], &memfd) == 0, "nothing is mapped, and there is no room");
    close(memfd);
    fs_region_discard(refs[0]);
    leave();
}

int main(int count, char **arguments) {
    static const char *const names[VARIANTS] = {"connections", "at the cap", "far connections"};
    strcpy(folder, "/tmp/fs-search-XXXXXX");
    check(mkdtemp(folder) != NULL, "mkdtemp: %m");
    int status = run_failures(count, arguments, names, VARIANTS);
#ifndef FS_AT
    if (count > 2) return status;
    check_pace(50);
    check_pace(1000);
    check_pace(14000);
    check_pace(200000);
    check_parking();
    enter(&ends[0]);
    for (size_t i = 0; i < sizeof cooled / sizeof *cooled; i++) check_cooling(cooled[i]);
    check_many_links();
    check_idle_link();
    leave();
    check_cap();
#endif
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) ? 1 : status;
}
