/* Epoll instances that a fork shares: what one process changes, or is told once, counts for the other too. */
#include "conformance.h"

#include <sys/mman.h>

enum { CHANGES = 'c', WAITS = 'w', READS = 'r', RENEWS = 'n', ENDS = 'e' };
enum { MASK = EPOLLIN | EPOLLOUT | EPOLLRDHUP };

static const struct {
    const char *name;
    int before;          /* events that the instance has before the fork; 0: it has not the socket */
    int change, events;  /* what one of the two processes does; 0: it waits */
} CHANGED[] = {
    {"add", 0, EPOLL_CTL_ADD, EPOLLIN},
    {"other events", EPOLLIN, EPOLL_CTL_MOD, EPOLLOUT},
    {"an edge now", EPOLLIN, EPOLL_CTL_MOD, EPOLLIN | (int)EPOLLET},
    {"a single shot now", EPOLLIN, EPOLL_CTL_MOD, EPOLLIN | EPOLLONESHOT},
    {"take out", EPOLLIN, EPOLL_CTL_DEL, 0},
    {"single shot", EPOLLIN | EPOLLONESHOT, 0, 0},
    {"edge", EPOLLIN | (int)EPOLLET, 0, 0},
    {"level", EPOLLIN, 0, 0},
};

struct result {
    int got, error;
    uint32_t events;
    uint64_t data;
};

static int epoll, member, how;

static struct result does(int what) {
    struct epoll_event e = {.events = (uint32_t)CHANGED[how].events, .data.u64 = 2}, told = {0};
    struct result r = {0};
    char into[8];
    int there = 0;
    if (what == CHANGES && CHANGED[how].change) r.got = epoll_ctl(epoll, CHANGED[how].change, member, &e);
    else if (what == CHANGES || what == WAITS) r.got = epoll_wait(epoll, &told, 1, 40);
    for (int i = 0; i < 50 && what == READS; i++) { /* what is unread as a connection leaves the ring comes from the peer again */
        ioctl(member, FIONREAD, &there);
        if (there) break;
        nap(1);
    }
    if (what == READS) r.got = (int)recv(member, into, sizeof into, MSG_DONTWAIT);
    e = (struct epoll_event){.events = EPOLLIN | (uint32_t)(CHANGED[how].before & EPOLLONESHOT), .data.u64 = 3};
    if (what == RENEWS) r.got = epoll_ctl(epoll, EPOLL_CTL_MOD, member, &e);
    r.error = r.got < 0 ? errno : 0;
    r.events = told.events;
    r.data = told.data.u64;
    return r;
}

static void in_child(int orders) {
    char what;
    while (read(orders, &what, 1) == 1 && what != ENDS) {
        struct result r = does(what);
        if (write(orders, &r, sizeof r) != sizeof r) break;
    }
    _exit(0);
}

/* `child`: the number by which one has orders; -1: this process. */
static void have(int child, int what) {
    char word = (char)what;
    struct result r;
    if (child < 0) r = does(what);
    else if (write(child, &word, 1) != 1 || read(child, &r, sizeof r) != sizeof r) abort();
    printf(" %c%c", child < 0 ? 'p' : 'c', what);
    if (r.got < 0) printf("-%s", strerrorname_np(r.error));
    else printf("%d", r.got);
    if (r.got > 0 && what != READS && what != RENEWS) printf("(%x %d)", r.events & MASK, (int)r.data);
}

static void comes(int from, const char *data) {
    int there = 0;
    ioctl(member, FIONREAD, &there);
    if (write(from, data, strlen(data)) < 0) abort();
    arrive(member, there + (int)strlen(data));
    printf(" +");
}

static void one(int by_child, int data_first) {
    int from, pair[2], status;
    struct epoll_event e = {.events = (uint32_t)CHANGED[how].before, .data.u64 = 1};
    connect_pair(&from, &member);
    use(from, member);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    if (CHANGED[how].before && epoll_ctl(epoll, EPOLL_CTL_ADD, member, &e)) abort();
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) abort();
    pid_t child = fork();
    if (child == 0) close(pair[0]), close(from), in_child(pair[1]);
    close(pair[1]);
    int actor = by_child ? pair[0] : -1, other = by_child ? -1 : pair[0];
    printf("    %s, by the %s:", CHANGED[how].name, by_child ? "child" : "parent");
    if (data_first) comes(from, "ab");
    have(actor, CHANGES);
    if (!data_first) comes(from, "ab");
    /* (An edge of unread data is told once more as the connection leaves the ring.) */
    if (data_first && !CHANGED[how].change && CHANGED[how].before & (int)EPOLLET) have(actor, READS);
    have(other, WAITS), have(actor, WAITS);
    have(actor, READS);
    have(other, WAITS), have(actor, WAITS);
    comes(from, "cd");
    have(other, WAITS), have(actor, WAITS);
    have(other, READS);
    have(other, RENEWS);
    comes(from, "ef");
    have(actor, WAITS), have(other, WAITS);
    if (write(pair[0], &(char){ENDS}, 1) != 1 || waitpid(child, &status, 0) != child) abort();
    printf(" |");
    have(-1, WAITS), have(-1, READS), have(-1, WAITS);
    have(-1, RENEWS);
    comes(from, "gh");
    have(-1, WAITS);
    close(from), close(pair[0]);
    have(-1, READS), have(-1, WAITS);
    printf("\n");
    close(epoll), close(member);
}

enum { CHANGES_COUNT = sizeof CHANGED / sizeof *CHANGED, WAYS = 4 };

/* (Most of it is waiting in vain: each way has a process, and all of them wait at once.) */
void shared_instances(int a, int b) {
    FILE *said[CHANGES_COUNT][WAYS];
    int status;
    fflush(stdout);
    for (how = 0; how < CHANGES_COUNT; how++)
        for (int way = 0; way < WAYS; way++) {
            if (!(said[how][way] = tmpfile())) abort();
            if (fork()) continue;
            close(a), close(b);
            if (dup2(fileno(said[how][way]), STDOUT_FILENO) < 0) abort();
            one(way / 2, way % 2);
            fflush(stdout);
            _exit(0);
        }
    for (int i = 0; i < CHANGES_COUNT * WAYS; i++)
        if (wait(&status) < 0 || status) abort();
    for (int i = 0; i < CHANGES_COUNT * WAYS; i++) {
        rewind(said[i / WAYS][i % WAYS]);
        for (int byte; (byte = getc(said[i / WAYS][i % WAYS])) != EOF;) putchar(byte);
        fclose(said[i / WAYS][i % WAYS]);
    }
    SAY(write(a, "x", 1));
    SAY(read(b, &(char[1]){0}, 1));
}

/* ---- both wait at the same time ------------------------------------------------------------------------------------------ */

enum { MANY = 12 };

/* Waits until `over`, and counts what it is told of each; it reads nothing. */
static void count_told(int instance, _Atomic int *told, const _Atomic int *over) {
    struct epoll_event e[4] = {0};
    while (!*over)
        for (int n = epoll_wait(instance, e, 4, 20); n-- > 0;) told[e[n].data.u64]++;
}

/* Each single shot is for one process. No edge is lost. (One of bytes that lie unread is told again as the connection leaves the ring.) */
void shared_single_events(int a, int b) {
    for (int edges = 0; edges < 2; edges++) {
        int from[MANY], to[MANY], instance = epoll_create1(EPOLL_CLOEXEC), right = 0, status;
        struct { _Atomic int told[MANY], over; } *all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        for (int i = 0; i < MANY; i++) {
            struct epoll_event e = {.events = EPOLLIN | (edges ? EPOLLET : EPOLLONESHOT), .data.u64 = (uint64_t)i};
            connect_pair(&from[i], &to[i]);
            use(from[i], to[i]);
            if (epoll_ctl(instance, EPOLL_CTL_ADD, to[i], &e)) abort();
        }
        pid_t child = fork();
        if (child == 0) count_told(instance, all->told, &all->over), _exit(0);
        pid_t writer = fork();
        if (writer == 0) {
            for (int i = 0; i < MANY; i++)
                if (write(from[i], "x", 1) != 1) abort();
            nap(300);
            all->over = 1;
            _exit(0);
        }
        count_told(instance, all->told, &all->over);
        if (waitpid(child, &status, 0) != child || waitpid(writer, &status, 0) != writer) abort();
        for (int i = 0; i < MANY; i++) right += edges ? all->told[i] > 0 : all->told[i] == 1;
        SAY(right);
        for (int i = 0; i < MANY; i++) close(from[i]), close(to[i]);
        close(instance);
        munmap(all, sizeof *all);
    }
    SAY(write(a, "x", 1));
    SAY(read(b, &(char[1]){0}, 1));
}

/* The peer has ended its stream, so a bridge takes the place of the file in a connection that leaves the ring: the program's registrations go on. */
void bridged_member(int a, int b) {
    struct epoll_event in = {.events = EPOLLIN, .data.u64 = 1}, told = {0};
    char into[8] = "";
    epoll = epoll_create1(EPOLL_CLOEXEC);
    say("add", epoll_ctl(epoll, EPOLL_CTL_ADD, b, &in));
    say("send", send(a, "hello", 5, 0));
    say("shutdown", shutdown(a, SHUT_WR));
    int other = pass_on(dup(b)); /* somebody else has it, and may use it past the library */
    in = (struct epoll_event){.events = EPOLLIN | EPOLLRDHUP, .data.u64 = 2};
    say("change", epoll_ctl(epoll, EPOLL_CTL_MOD, b, &in));
    for (int got = 0; got < 5;) {
        say("wait", epoll_wait(epoll, &told, 1, 2000));
        say("data", (long)told.data.u64);
        ssize_t part = recv(b, into + got, sizeof into - (size_t)got, 0);
        if (part <= 0) abort();
        got += (int)part;
        if (got < 5) printf("(in parts)\n");
    }
    show(into, 5);
    say("send", send(b, "answer", 6, 0));
    say("receive", recv(a, into, sizeof into, 0));
    say("take out", epoll_ctl(epoll, EPOLL_CTL_DEL, b, NULL));
    say("take out again", epoll_ctl(epoll, EPOLL_CTL_DEL, b, NULL));
    close(other), close(epoll);
}
