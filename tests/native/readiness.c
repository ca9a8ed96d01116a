/* What epoll, poll and select tell of a connection: on kernel TCP, on the ring, and on one that moves in the middle: `readiness [NAME]`.
 *
 * Each row of a table is a script with its expected answers. It runs on two sockets of the kernel with the kernel's own calls; then on a
 * connection in a poller (core/ready), which is on the ring from the beginning, never, or from each step of the script on. The answers are
 * the same. */
#include "pair.h"

#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>

#include "ready/ready.h"

/* ---- the two paths ------------------------------------------------------------------------------------------------------ */

enum { NEVER = -2, KERNEL = -1 }; /* else: before which step the connection moves */
enum engine { EPOLL, POLL, SELECT, ENGINES };
static const char *const engine_names[] = {"epoll", "poll", "select"};

#define DATA UINT64_C(0x1122334455667788)

static int path, fds[2]; /* kernel sockets, of the path KERNEL */
static int instance;     /* of epoll */
static struct fs_poller *poller;
static struct fs_pollable pollable;
static enum engine engine;
static uint32_t asked; /* by poll and select */
static int on_ring; /* runs in which something came by the ring */
static const char *row, *step_at;

#define MUST(condition, ...) \
    ((condition) ? (void)0 : (fprintf(stderr, "%s, %s, moves before step %d, at \"%s\": ", row, engine_names[engine], path, step_at), \
                              fail(__VA_ARGS__)))

static void end_call_of(struct fs_connection *c, struct fs_call *call) { end_call((struct end *)c, call); }

static int number_of(int side) { return path == KERNEL ? fds[side] : ends[side].number; }

static void begin_path(void) {
    int failed;
    instance = epoll_create1(EPOLL_CLOEXEC);
    check(instance >= 0, "epoll_create1: %m");
    if (path == KERNEL) {
        connect_pair(fds);
        for (int s = 0; s < 2; s++) fcntl(fds[s], F_SETFL, O_NONBLOCK);
        return;
    }
    open_ends();
    memset(&pollable, 0, sizeof pollable);
    poller = fs_poller_new(engine == EPOLL ? instance : -1, &failed);
    check(poller, "a poller: %d", failed);
    fs_poller_connected(&pollable, &ends[1].c);
}

/* recv and send that do not wait. Bytes or -errno. */
static int64_t receive(int side, char *into, size_t room) {
    struct fs_call call;
    if (path == KERNEL) {
        int64_t got = recv(fds[side], into, room, MSG_DONTWAIT);
        return got < 0 ? -errno : got;
    }
    MUST(begin_call(&ends[side], &call), "it has ended");
    int64_t got = fs_try_recv(&ends[side].c, into, room, 0, 1);
    end_call(&ends[side], &call);
    return got;
}

static int64_t transmit(int side, const char *from, size_t count) {
    struct fs_call call;
    if (path == KERNEL) {
        int64_t sent = send(fds[side], from, count, MSG_DONTWAIT | MSG_NOSIGNAL);
        return sent < 0 ? -errno : sent;
    }
    MUST(begin_call(&ends[side], &call), "it has ended");
    int64_t sent = fs_try_send(&ends[side].c, from, count, MSG_NOSIGNAL);
    if (side == 1 && (sent == -EAGAIN || (sent >= 0 && (size_t)sent < count))) fs_poller_sent_part(&pollable);
    end_call(&ends[side], &call);
    return sent;
}

static int64_t transmit_urgent(void) {
    struct fs_call call;
    if (path == KERNEL) return send(fds[0], "!", 1, MSG_OOB);
    MUST(begin_call(&ends[0], &call), "it has ended");
    int64_t sent = fs_try_send(&ends[0].c, "!", 1, MSG_NOSIGNAL | MSG_OOB);
    end_call(&ends[0], &call);
    return sent;
}

static void exchange(int from) {
    char byte;
    check(transmit(from, "x", 1) == 1 && fs_sends_on_ring(&ends[from].c), "side %d does not move", from);
    while (receive(!from, &byte, 1) != 1) {}
}

static void move(void) {
    static const struct fs_flow_options flow = {.ack_threshold = 4, .combine_limit = 512, .combine_when_full = 1};
    if (!fs_load_sc(&ends[0].open) || !fs_load_sc(&ends[1].open)) return;
    check(fs_poller_before_attach(&pollable) == 0, "no seat");
    int failed = attach_end(&ends[1], &flow);
    if (!failed) failed = attach_end(&ends[0], &flow); /* (-ENOTCONN: a direction is shut, and it stays on the kernel) */
    fs_poller_after_attach(&pollable, fs_is_attached(&ends[1].c));
    for (int s = 0; s < 2 && path == 0; s++) exchange(s);
}

static void shut(int side, int how) {
    struct fs_call call;
    if (path != KERNEL && begin_call(&ends[side], &call)) {
        fs_conn_shutdown(&ends[side].c, how != SHUT_WR, how != SHUT_RD);
        end_call(&ends[side], &call);
    }
    shutdown(number_of(side), how);
}

static void finish(int side) {
    if (path == KERNEL) {
        if (fds[side] >= 0) close(fds[side]);
        fds[side] = -1;
    } else {
        if (side == 1 && fs_load_sc(&ends[1].open)) fs_poller_close_number(&pollable, ends[1].number, 1);
        close_end(&ends[side], 1);
    }
}

static void end_path(void) {
    if (path != KERNEL && fs_is_attached(&ends[1].c) && fs_moved(&ends[1].c)) on_ring++;
    finish(1);
    finish(0);
    if (path != KERNEL) {
        fs_poller_end(poller);
        munmap(ends[0].memory, ends[0].size);
    }
    close(instance);
}

/* ---- what a step asks -------------------------------------------------------------------------------------------------------- */

static const struct {
    char letter;
    uint32_t event;
} letters[] = {{'I', EPOLLIN}, {'O', EPOLLOUT}, {'R', EPOLLRDHUP}, {'H', EPOLLHUP}, {'E', EPOLLERR}, {'P', EPOLLPRI},
               {'t', EPOLLET}, {'1', EPOLLONESHOT}, {'x', EPOLLEXCLUSIVE}};

static uint32_t events_of(const char *text) {
    uint32_t events = 0;
    for (; *text && *text != ' '; text++)
        for (size_t i = 0; i < sizeof letters / sizeof *letters; i++)
            if (letters[i].letter == *text) events |= letters[i].event;
    return events;
}

static const char *shown(uint32_t events) {
    static char text[2][16];
    static int which;
    char *at = text[which = !which];
    for (size_t i = 0; i < sizeof letters / sizeof *letters; i++)
        if (events & letters[i].event) *at++ = letters[i].letter;
    *at = 0;
    return text[which];
}

/* 0 or -errno. */
static int control(int op, uint32_t events) {
    struct epoll_event event = {.events = events, .data.u64 = DATA};
    if (engine != EPOLL) {
        asked = op == EPOLL_CTL_DEL ? 0 : engine == POLL ? events : events & (EPOLLIN | EPOLLOUT | EPOLLPRI);
        return 0;
    }
    if (path == KERNEL) return epoll_ctl(instance, op, fds[1], &event) < 0 ? -errno : 0;
    return fs_poller_ctl(poller, op, ends[1].number, &pollable, &event);
}

static uint32_t wait_by_epoll(int64_t timeout) {
    struct epoll_event got[4];
    int n =
        path == KERNEL ? epoll_wait(instance, got, 4, (int)(timeout / 1000000)) : fs_poller_wait(poller, instance, got, 4, timeout, NULL);
    MUST(n == 0 || n == 1, "%d events", n);
    MUST(n == 0 || got->data.u64 == DATA, "another one's data: %" PRIx64, got->data.u64);
    return n ? got->events : 0;
}

static uint32_t wait_by_poll(int64_t timeout) {
    struct pollfd waits[2] = {{number_of(1), (short)asked, 0}, {instance, POLLIN, 0}};
    struct fs_pollable *its[2] = {&pollable, NULL};
    struct timespec t = {timeout / 1000000000, timeout % 1000000000};
    struct fs_call call;
    int n;
    if (path == KERNEL) {
        n = ppoll(waits, 2, &t, NULL);
    } else {
        MUST(begin_call(&ends[1], &call), "it has ended");
        n = fs_poller_poll(poller, waits, its, 2, timeout, NULL);
        end_call(&ends[1], &call);
    }
    MUST(n == (waits[0].revents != 0), "%d descriptors", n);
    return (unsigned short)waits[0].revents;
}

static uint32_t wait_by_select(int64_t timeout) {
    fd_set sets[3];
    int fd = number_of(1), n;
    const uint32_t means[3] = {EPOLLIN, EPOLLOUT, EPOLLPRI};
    struct timespec t = {timeout / 1000000000, timeout % 1000000000};
    for (int i = 0; i < 3; i++) {
        FD_ZERO(&sets[i]);
        if (asked & means[i]) FD_SET(fd, &sets[i]);
    }
    if (path == KERNEL) {
        n = pselect(fd + 1, &sets[0], &sets[1], &sets[2], &t, NULL);
    } else {
        struct pollfd waits[8];
        struct fs_pollable *its[8] = {&pollable};
        struct fs_call call;
        int count = fs_select_to_poll(fd + 1, &sets[0], &sets[1], &sets[2], waits);
        MUST(count == (asked != 0), "%d descriptors", count);
        MUST(begin_call(&ends[1], &call), "it has ended");
        n = fs_poller_poll(poller, waits, its, (nfds_t)count, timeout, NULL);
        end_call(&ends[1], &call);
        if (n >= 0) n = fs_poll_to_select(waits, count, fd + 1, &sets[0], &sets[1], &sets[2]);
    }
    uint32_t found = 0;
    for (int i = 0; i < 3; i++)
        if (FD_ISSET(fd, &sets[i])) found |= means[i];
    MUST(n == __builtin_popcount(found), "%d bits", n);
    return found;
}

static uint32_t wait_now(int64_t timeout) {
    return engine == EPOLL ? wait_by_epoll(timeout) : engine == POLL ? wait_by_poll(timeout) : wait_by_select(timeout);
}

/* What select tells of what poll tells. */
static uint32_t selected(uint32_t events) {
    uint32_t found = events & asked & (EPOLLIN | EPOLLOUT | EPOLLPRI);
    if (events & (EPOLLHUP | EPOLLERR)) found |= asked & EPOLLIN;
    if (events & EPOLLERR) found |= asked & EPOLLOUT;
    return found;
}

/* A level comes piece by piece: what is there is told again. */
static void expect(uint32_t events) {
    double until = seconds_now() + PATIENCE;
    uint32_t found;
    if (engine == SELECT) events = selected(events);
    do found = wait_now(events ? (int64_t)(PATIENCE * 1e9) : 0);
    while (found != events && found && !(found & ~events) && seconds_now() < until);
    MUST(found == events, "told \"%s\", not \"%s\"", shown(found), shown(events));
}

static void fill(int side) {
    static char bytes[65536];
    int64_t sent;
    int tries = 0;
    /* (What the kernel has on its way makes room for a moment.) */
    while ((sent = transmit(side, bytes, sizeof bytes)) >= 0 || (sent == -EAGAIN && tries++ < 20))
        if (sent < 0) usleep(1000);
    MUST(sent == -EAGAIN, "sending: %" PRId64, sent);
}

static void drain_all(int side) {
    static char bytes[1 << 20];
    int64_t got;
    int tries = 0;
    while ((got = receive(side, bytes, sizeof bytes)) > 0 || (got == -EAGAIN && tries++ < 20))
        if (got < 0) usleep(1000);
    MUST(got == -EAGAIN, "receiving: %" PRId64, got);
}

static void take(int count) {
    char bytes[4096];
    double until = seconds_now() + PATIENCE;
    for (int64_t got; count; count -= (int)got) {
        while ((got = receive(1, bytes, (size_t)count)) == -EAGAIN && seconds_now() < until) {}
        MUST(got > 0, "receiving: %" PRId64, got);
    }
}

/* Until the answer is this: -errno, or 0 for the end. */
static void fails_with(int64_t answer) {
    char byte;
    double until = seconds_now() + PATIENCE;
    int64_t got;
    while ((got = receive(1, &byte, 1)) != answer && got == -EAGAIN && seconds_now() < until) {}
    MUST(got == answer, "receiving: %" PRId64, got);
}

/* One word of a script: a letter, and its argument. */
static void step(const char *text) {
    char bytes[4096] = {0};
    int count = atoi(text + 1), failed = 0;
    switch (*text) {
    case '+': failed = control(EPOLL_CTL_ADD, events_of(text + 1)); break;
    case '~': failed = control(EPOLL_CTL_MOD, events_of(text + 1)); break;
    case '-': failed = control(EPOLL_CTL_DEL, 0); break;
    case '!': failed = -control(text[1] == '+' ? EPOLL_CTL_ADD : text[1] == '~' ? EPOLL_CTL_MOD : EPOLL_CTL_DEL, events_of(text + 2));
        MUST(failed == atoi(strchr(text, '=') + 1), "%d", failed);
        failed = 0;
        break;
    case '?': expect(events_of(text + 1)); break;
    case 's': MUST(transmit(0, bytes, (size_t)count) == count, "sending"); break;
    case 'r': take(count); break;
    case 'e': fails_with(-EAGAIN); break;
    case 'z': fails_with(0); break;
    case 'x': fails_with(-ECONNRESET); break;
    case 'w': MUST(transmit(1, bytes, (size_t)count) == count, "sending"); break;
    case 'f': fill(1); break;
    case 'd': drain_all(0); break;
    case 'o': MUST(transmit_urgent() == 1, "sending an urgent byte"); break;
    case 'u': MUST(recv(number_of(1), bytes, 1, MSG_OOB) == 1, "the urgent byte: %m"); break;
    case 'h': shut(0, SHUT_WR); break;
    case 'H': shut(1, SHUT_WR); break;
    case 'S': shut(1, SHUT_RD); break;
    case 'c': finish(0); break;
    case 'D': { /* as by a kill: the kernel alone tells */
        int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
        check(dup2(nothing, number_of(0)) >= 0, "dup2: %m");
        close(nothing);
        break;
    }
    case 'k': {
        struct linger none = {1, 0};
        setsockopt(number_of(0), SOL_SOCKET, SO_LINGER, &none, sizeof none);
        finish(0);
        break;
    }
    default: fail("no such step: %s", text);
    }
    MUST(!failed, "epoll_ctl: %d", failed);
}

/* ---- the table --------------------------------------------------------------------------------------------------------------- */

/* +~- add, modify, delete; ? what a wait tells at once; s r the peer sends, this end takes so many bytes; e z x a receive finds nothing,
 * the end, a reset; w f this end sends, sends until nothing goes; d the peer takes all; o the
 * peer sends an urgent byte, u it is taken; h c k the peer shuts its sending, closes, resets, D is killed; H S this end shuts
 * sending, receiving; !+x=22 what fails, and how. */
static const struct row {
    const char *name, *script;
} rows[] = {
    {"a level", "+I ? s3 ?I ?I r2 ?I r1 ? s1 ?I r1 ?"},
    {"levels of both directions", "+IO ?O s1 ?IO r1 ?O ~I ? ~IO ?O"},
    {"room", "+O ?O f ? d ?O"},
    {"room that nobody asks for", "+I f ? ~IO ? d ?O s1 ?IO"},
    {"nothing wanted", "+ s1 ? ~I ?I ~ ? ~I ?I"},
    {"deleted", "+I s1 ?I - ? +I ?I r1 ?"},
    {"added twice", "+I !+I=17 - !-=2 !~I=2 +I ?"},
    {"added with something there", "s5 +I ?I r5 ?"},
    {"the peer shuts its sending", "+IR h ?IR z ?IR ~I ?I ~R ?R ~O ?O"},
    {"the peer shuts its sending behind bytes", "+IR s2 h ?IR r2 ?IR z ?IR"},
    {"the peer closes", "+IOR c ?IOR z"},
    {"the peer closes behind bytes", "+IR s2 c ?IR r2 z ?IR"},
    {"the peer resets", "+IR k ?IRHE x ?IRH"},
    {"a reset that nobody asks for", "+ k ?HE"},
    {"the peer resets behind bytes", "+IR s2 k ?IRHE r2 x ?IRH"},
    {"the peer closes with bytes unread", "+IR w5 c ?IRHE x ?IRH"},
    {"the peer dies", "+IOR D ?IOR z ?IOR"},
    {"the peer dies behind bytes", "+IR s2 D ?IR r2 z ?IR"},
    {"the peer dies with bytes unread", "+IR w5 D ?IRHE x ?IRH"},
    {"an edge of a death", "+IRt D ?IR ?"},
    {"both have shut", "+IR h H ?IRH z ?IRH"},
    {"this end shuts its sending", "+IO H ?O s1 ?IO"},
    {"this end shuts its receiving", "+IR S ?IR"},
    {"an edge", "+It ? s3 ?I ? r3 e ? s1 ?I ?"},
    {"an edge with unread bytes", "+It s3 ?I ? s1 ?I ? r1 ? s2 ?I ? r5 e ? s1 ?I"},
    {"an edge of bytes that were there", "s3 +It ?I ? ~It ?I ?"},
    {"an edge of room", "+Ot ?O ? w5 ? f ? d ?O ? f d ?O ?"},
    {"edges of both", "+IOt ?O ? s1 ?IO ? r1 ? s1 ?IO ?"},
    {"an edge of the end", "+IRt s1 ?I h ?IR ? r1 z ?"},
    {"an edge of a reset", "+IRt k ?IRHE ?"},
    {"a single shot", "+I1 ? s1 ?I ? s1 ? ~I1 ?I ? r2 ~I1 ? s1 ?I ?"},
    {"a single shot of room", "+O1 ?O ? ~O1 ?O ? f ~O1 ? d ?O ?"},
    {"a single shot that is told of no end", "+I1 s1 ?I k ? ~I1 ?IHE ?"},
    {"a single edge", "+It1 s1 ?I s1 ? ~It1 ?I ? r2 ~It1 ? s1 ?I ?"},
    {"exclusive", "+Ix ? s1 ?I ?I r1 ? !~I=22 - +I !~Ix=22 ~I ?"},
    {"exclusive with flags that do not go with it", "!+IRx=22 !+I1x=22 +Ixt s1 ?I ? s1 ?I ?"},
    {"urgent", "+IP ? o ?P ?P s1 ?IP u ?I r1 ?"},
    {"urgent behind bytes", "+IP s2 o ?IP r2 ?P u ?"},
    {"an edge of an urgent byte", "+IPt o ?P ? s1 ?IP ?"},
    {"closed", "+I s1 ?I"},
};

static int has_edges(const char *script) { return strchr(script, 't') != NULL; }

static int needs_epoll(const char *script) { return strpbrk(script, "1tx!") != NULL; }

/* Returns the number of steps. */
static int run(const struct row *r) {
    int steps = 0;
    row = r->name;
    step_at = r->script;
    begin_path();
    for (const char *text = r->script; text; text = strchr(text, ' ')) {
        text += *text == ' ';
        step_at = text;
        if (path == steps) move();
        step(text);
        steps++;
    }
    end_path();
    return steps;
}

static int try_rows(const char *only) {
    int runs = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (only && strcmp(only, rows[i].name) != 0) continue;
        for (engine = EPOLL; engine < ENGINES; engine++) {
            if (engine != EPOLL && needs_epoll(rows[i].script)) continue;
            path = KERNEL;
            int steps = run(&rows[i]);
            path = NEVER;
            run(&rows[i]);
            path = 0;
            run(&rows[i]);
            runs += 3;
            /* (One that moves is asked anew, and what is there is an edge once more.) */
            for (path = 1; path < steps && !has_edges(rows[i].script); path++, runs++) run(&rows[i]);
        }
    }
    return runs;
}

int main(int count, char **arguments) {
    signal(SIGPIPE, SIG_IGN);
    become_front_end();
    fs_pollers_begin();
    fs_poller_host.end_call = end_call_of;
    const char *only = count > 1 && !strchr("0123456789", *arguments[1]) ? arguments[1] : NULL;
    int runs = try_rows(only);
    fs_control_thread_stop();
    check(only || on_ring > runs / 4, "only %d runs are on the ring", on_ring);
    printf("%d runs, %d on the ring\n", runs, on_ring);
    return 0;
}
