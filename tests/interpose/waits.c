/* Cases of readiness, signals and threads. */
#include "conformance.h"

void polls(int a, int b) {
    char into[64];
    struct pollfd p[2] = {{a, POLLIN | POLLOUT, 0}, {b, POLLIN, 0}};
    struct timespec soon = {0, 20000000};
    struct timeval no = {0, 0};
    fd_set r, w;
    SAY(poll(p, 2, 0));
    printf("    %d %d\n", p[0].revents, p[1].revents);
    p[0].events = POLLIN;
    SAY(ppoll(p, 2, &soon, NULL));
    SAY(write(a, "abc", 3));
    SAY(poll(p, 2, 2000));
    printf("    %d %d\n", p[0].revents, p[1].revents);
    FD_ZERO(&r);
    FD_ZERO(&w);
    FD_SET(a, &r);
    FD_SET(b, &r);
    FD_SET(a, &w);
    SAY(select((a > b ? a : b) + 1, &r, &w, NULL, NULL));
    printf("    %d %d %d\n", !!FD_ISSET(a, &r), !!FD_ISSET(b, &r), !!FD_ISSET(a, &w));
    SAY(read(b, into, 64));
    FD_ZERO(&r);
    FD_SET(b, &r);
    SAY(select(b + 1, &r, NULL, NULL, &no));
    FD_SET(b, &r);
    SAY(pselect(b + 1, &r, NULL, NULL, &soon, NULL));
    SAY(shutdown(a, SHUT_WR));
    p[1].events = POLLIN | POLLRDHUP;
    SAY(poll(p + 1, 1, 2000));
    SAY(p[1].revents);
}

static void waits(const char *what, int epoll, int milliseconds) {
    struct epoll_event events[4];
    int n = epoll_wait(epoll, events, 4, milliseconds);
    printf("    %s = %d", what, n);
    for (int i = 0; i < n; i++) printf(" %#x:%ld", events[i].events, (long)events[i].data.u64);
    printf("\n");
}

void epolls(int a, int b) {
    char into[64];
    int epoll = epoll_create1(EPOLL_CLOEXEC), outer = epoll_create1(EPOLL_CLOEXEC), pipes[2];
    struct epoll_event e = {EPOLLIN, {.u64 = 7}};
    if (pipe2(pipes, O_CLOEXEC)) abort();
    SAY(epoll_ctl(epoll, EPOLL_CTL_ADD, b, &e));
    SAY(epoll_ctl(epoll, EPOLL_CTL_ADD, b, &e));
    e.data.u64 = 8;
    SAY(epoll_ctl(epoll, EPOLL_CTL_ADD, pipes[0], &e));
    waits("nothing", epoll, 10);
    SAY(write(a, "ab", 2));
    waits("level", epoll, 2000);
    waits("level again", epoll, 0);
    SAY(write(pipes[1], "p", 1));
    struct pollfd p = {epoll, POLLIN, 0};
    SAY(poll(&p, 1, 1000));
    e.data.u64 = 9;
    SAY(epoll_ctl(outer, EPOLL_CTL_ADD, epoll, &e));
    waits("nested", outer, 1000);
    SAY(read(pipes[0], into, 64));
    SAY(read(b, into, 64));
    waits("drained", epoll, 10);
    e = (struct epoll_event){EPOLLIN | EPOLLET, {.u64 = 10}};
    SAY(epoll_ctl(epoll, EPOLL_CTL_MOD, b, &e));
    SAY(write(a, "edge", 4));
    waits("edge", epoll, 2000);
    waits("no edge", epoll, 10);
    SAY(read(b, into, 64));
    SAY(write(a, "edge", 4));
    waits("next edge", epoll, 2000);
    SAY(read(b, into, 64));
    e = (struct epoll_event){EPOLLIN | EPOLLOUT | EPOLLONESHOT, {.u64 = 11}};
    SAY(epoll_ctl(epoll, EPOLL_CTL_MOD, b, &e));
    waits("once", epoll, 1000);
    SAY(write(a, "more", 4));
    waits("not again", epoll, 10);
    SAY(epoll_ctl(epoll, EPOLL_CTL_MOD, b, &e));
    arrive(b, 4);
    waits("armed", epoll, 1000);
    SAY(epoll_ctl(epoll, EPOLL_CTL_DEL, b, NULL));
    SAY(epoll_ctl(epoll, EPOLL_CTL_DEL, b, NULL));
    waits("gone", epoll, 0);
    SAY(epoll_ctl(epoll, EPOLL_CTL_MOD, 999, &e));
    close(epoll), close(outer), close(pipes[0]), close(pipes[1]);
}

/* ---- signals ------------------------------------------------------------------------------------------------------- */

static int answer_to, handled;
static void on_alarm(int number) {
    (void)number;
    handled++;
    if (answer_to >= 0 && write(answer_to, "woken", 5) != 5) abort();
}
static void *ring(void *thread) {
    nap(50);
    pthread_kill((pthread_t)thread, SIGUSR1);
    return NULL;
}
static void interrupted(int from, int restarts) {
    char into[64] = "";
    pthread_t thread;
    struct sigaction how = {.sa_handler = on_alarm, .sa_flags = restarts ? SA_RESTART : 0}, before;
    sigaction(SIGUSR1, &how, NULL);
    sigaction(SIGUSR1, NULL, &before);
    SAY(before.sa_handler == on_alarm);
    SAY(before.sa_flags & SA_RESTART);
    pthread_create(&thread, NULL, ring, (void *)pthread_self());
    SAY(read(from, into, 64));
    show(into, 5);
    pthread_join(thread, NULL);
}
void signals(int a, int b) {
    answer_to = a; /* the handler sends, on the other end of the connection that its thread waits for */
    interrupted(b, 1);
    answer_to = -1;
    interrupted(b, 0);
    pthread_t thread;
    struct pollfd p = {b, POLLIN, 0};
    signal(SIGUSR1, on_alarm);
    pthread_create(&thread, NULL, ring, (void *)pthread_self());
    SAY(poll(&p, 1, 5000));
    pthread_join(thread, NULL);
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event e = {EPOLLIN, {.u64 = 7}}, got;
    epoll_ctl(epoll, EPOLL_CTL_ADD, b, &e);
    pthread_create(&thread, NULL, ring, (void *)pthread_self());
    SAY(epoll_wait(epoll, &got, 1, 5000));
    pthread_join(thread, NULL);
    close(epoll);
    SAY(handled);
}

/* ---- threads ------------------------------------------------------------------------------------------------------- */

static void *echoes(void *fd) {
    char piece[4096];
    long got;
    while ((got = read((int)(long)fd, piece, sizeof piece)) > 0)
        if (write((int)(long)fd, piece, (size_t)got) != got) abort();
    close((int)(long)fd);
    return NULL;
}
static void *asks(void *number) {
    unsigned seed = (unsigned)(long)number;
    for (int round = 0; round < 4; round++) {
        char out[9000], in[9000];
        pthread_t other;
        int a, b;
        connect_pair(&a, &b);
        for (int i = 0; i < 2; i++)
            setsockopt(i ? a : b, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)); /* (else the kernel takes its time) */
        pthread_create(&other, NULL, echoes, (void *)(long)b);
        for (int i = 0; i < 80; i++) {
            size_t length = 1 + (size_t)rand_r(&seed) % sizeof out;
            for (size_t at = 0; at < length; at++) out[at] = (char)rand_r(&seed);
            for (size_t at = 0; at < length;) at += (size_t)write(a, out + at, length - at);
            if (recv(a, in, length, MSG_WAITALL) != (ssize_t)length || memcmp(in, out, length)) return "other bytes";
        }
        close(a);
        pthread_join(other, NULL);
    }
    return NULL;
}
/* A thread sleeps on an instance already when another one adds the first connection. */
static void *first_event(void *instance) {
    static struct epoll_event e;
    if (epoll_wait((int)(long)instance, &e, 1, 20000) != 1) e.data.u64 = 0;
    return &e;
}

void late(int a, int b) {
    for (int round = 0; round < 4; round++) {
        struct epoll_event e = {EPOLLIN, {.u64 = 7}}, *got;
        int epoll = epoll_create1(EPOLL_CLOEXEC), pipes[2];
        char byte;
        pthread_t waiter;
        if (pipe2(pipes, O_CLOEXEC)) abort();
        SAY(epoll_ctl(epoll, EPOLL_CTL_ADD, pipes[0], &e));
        pthread_create(&waiter, NULL, first_event, (void *)(long)epoll);
        usleep(20000); /* (who is not asleep by then proves nothing, and fails nothing) */
        e = (struct epoll_event){EPOLLIN | (round & 1 ? EPOLLET : 0), {.u64 = 8}};
        if (round & 2) SAY(write(a, "x", 1));
        SAY(epoll_ctl(epoll, EPOLL_CTL_ADD, b, &e));
        if (!(round & 2)) SAY(write(a, "x", 1));
        pthread_join(waiter, (void **)&got);
        printf("    %#x:%ld\n", got->events, (long)got->data.u64);
        SAY(read(b, &byte, 1));
        close(epoll);
        close(pipes[0]);
        close(pipes[1]);
    }
}

void threads(int a, int b) {
    pthread_t all[6];
    void *wrong;
    for (long i = 0; i < 6; i++) pthread_create(&all[i], NULL, asks, (void *)i);
    for (int i = 0; i < 6; i++) {
        pthread_join(all[i], &wrong);
        SAY(wrong == NULL);
    }
    SAY(write(a, "x", 1));
    SAY(read(b, &wrong, 1));
}

static void *waits_there(void *instance) {
    struct epoll_event told;
    return (void *)(long)epoll_wait((int)(long)instance, &told, 1, 5000);
}

/* A child asks too, on what it has inherited, while a thread of its parent sleeps. */
void forked_waits(int a, int b) {
    struct epoll_event wanted = {.events = EPOLLIN};
    char byte;
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        void *told;
        int status, instance = epoll_create1(0), go[2];
        if (epoll_ctl(instance, EPOLL_CTL_ADD, b, &wanted) || pipe(go)) abort();
        thread = asleep_in(waits_there, (void *)(long)instance);
        pid_t child = fork();
        if (child == 0) {
            struct pollfd asks = {b, POLLIN, 0};
            long got = recv(b, &byte, 1, MSG_DONTWAIT), polled = poll(&asks, 1, 1);
            _exit(write(go[1], "", 1) != 1 || got != -1 || polled);
        }
        long sent = read(go[0], &byte, 1) + write(a, "x", 1);
        pthread_join(thread, &told);
        waitpid(child, &status, 0);
        SAY((long)told + 10 * sent + 100 * status);
        SAY(read(b, &byte, 1));
        close(instance), close(go[0]), close(go[1]);
    }
}

static void *waits_shortly(void *instance) {
    struct epoll_event told;
    return (void *)(long)epoll_wait((int)(long)instance, &told, 1, 200);
}

static void *waits_until_closed(void *instance) {
    struct epoll_event told;
    int got;
    do got = epoll_wait((int)(long)instance, &told, 1, 0);
    while (got >= 0);
    return (void *)(long)errno;
}

/* A thread waits on an instance whose number another one closes, and gives to a file: it goes on waiting, as on the kernel's. */
void abandoned(int a, int b) {
    struct epoll_event wanted = {.events = EPOLLIN};
    char byte;
    for (int i = 0; i < 4; i++) {
        pthread_t thread;
        void *told;
        int comes = i & 1, other = i & 2, pipes[2] = {-1, -1};
        int instance = epoll_create1(0);
        if (epoll_ctl(instance, EPOLL_CTL_ADD, b, &wanted)) abort();
        thread = asleep_in(comes ? waits_there : waits_shortly, (void *)(long)instance);
        SAY(close(instance));
        if (other && pipe(pipes)) abort();
        if (comes) SAY(write(a, "x", 1));
        pthread_join(thread, &told);
        SAY(told);
        if (comes) SAY(read(b, &byte, 1));
        if (other) close(pipes[0]), close(pipes[1]);
    }
}

/* Two threads begin one wait after the other on an instance that is closed meanwhile. */
void closed_instances(int a, int b) {
    struct epoll_event wanted = {.events = EPOLLIN};
    int wrong = 0;
    for (int i = 0; i < 500; i++) {
        pthread_t both[2];
        void *why;
        int instance = epoll_create1(0);
        if (epoll_ctl(instance, EPOLL_CTL_ADD, b, &wanted)) abort();
        for (int k = 0; k < 2; k++) pthread_create(&both[k], NULL, waits_until_closed, (void *)(long)instance);
        if (i % 4 == 0) nap(1);
        close(instance);
        for (int k = 0; k < 2; k++) wrong += pthread_join(both[k], &why) || why != (void *)(long)EBADF;
    }
    SAY(wrong);
    for (int i = 0; i < 4; i++) SAY(write(a, "x", 1));
}

/* Few numbers below the limit are free. */
static void leave_numbers(int free) {
    struct rlimit few = {64, 64};
    int last = -1, next;
    setrlimit(RLIMIT_NOFILE, &few);
    while ((next = dup(0)) >= 0) last = next;
    while (free--) close(last--);
}

/* A child that has a connection to itself waits for it first of all: by an instance of its own or of its parent's, or without one. */
void forked_alone(int a, int b) {
    (void)a, (void)b;
    for (int round = 0; round < 18; round++) {
        int how = round < 6 ? round : 2 + 2 * (round % 2), limit = round < 6 ? -1 : (round - 6) / 2;
        struct epoll_event wanted = {.events = EPOLLIN | (how & 1 ? EPOLLET : 0)};
        int status, x, y, instance = epoll_create1(0);
        char byte;
        connect_pair(&x, &y);
        use(x, y);
        if (how < 2) epoll_ctl(instance, EPOLL_CTL_ADD, y, &wanted);
        pid_t child = fork();
        if (child == 0) {
            struct pollfd asks = {y, POLLIN, 0};
            close(x);
            if (limit >= 0) leave_numbers(limit);
            if (how == 2 || how == 3) epoll_ctl(instance, EPOLL_CTL_ADD, y, &wanted);
            for (int i = 0; i < 20; i++)
                if ((how < 4 ? epoll_wait(instance, &wanted, 1, -1) : poll(&asks, 1, -1)) != 1 || read(y, &byte, 1) != 1 ||
                    write(y, "y", 1) != 1)
                    _exit(1);
            _exit(0);
        }
        close(y);
        for (int i = 0; i < 20; i++) {
            nap(i ? 1 : 60);
            if (write(x, "x", 1) != 1 || read(x, &byte, 1) != 1) abort();
        }
        waitpid(child, &status, 0);
        SAY(status);
        close(instance), close(x);
    }
}

static void *reads(void *fd) {
    char into[64];
    return (void *)read((int)(long)fd, into, sizeof into);
}
void closed(int a, int b) {
    pthread_t thread;
    void *got;
    thread = asleep_in(reads, (void *)(long)b);
    SAY(close(b)); /* somebody is in a call on it, which goes on */
    SAY(write(b, "x", 1));
    SAY(write(a, "late", 4));
    pthread_join(thread, &got);
    SAY((long)got);
    SAY(read(a, &got, 1));
}

static void *polls_number(void *fd) {
    struct pollfd p = {(int)(long)fd, POLLIN, 0};
    long n = poll(&p, 1, -1);
    return (void *)(n * 1000 + p.revents);
}
/* A child wakes by a number that its parent's thread waited by, and another thread waits there now. */
void forked_past(int a, int b) {
    (void)a, (void)b;
    for (int round = 0; round < 3; round++) {
        int x, y, v, w, go[2], done[2];
        pthread_t thread;
        void *found;
        char byte;
        connect_pair(&x, &y), connect_pair(&v, &w);
        use(x, y), use(v, w);
        if (pipe(go) || pipe(done)) abort();
        thread = asleep_in(polls_number, (void *)(long)y);
        pid_t child = fork();
        if (child == 0) {
            long got = read(go[0], &byte, 1) + recv(y, &byte, 1, MSG_DONTWAIT);
            _exit(write(done[1], "", 1) + got != 3);
        }
        SAY(write(x, "x", 1));
        pthread_join(thread, &found);
        SAY(found);
        thread = asleep_in(polls_number, (void *)(long)w);
        SAY(write(go[1], "", 1) + read(done[0], &byte, 1) + write(v, "x", 1));
        pthread_join(thread, &found);
        SAY(found);
        waitpid(child, NULL, 0);
        close(x), close(y), close(v), close(w), close(go[0]), close(go[1]), close(done[0]), close(done[1]);
    }
}

/* A copy is closed while a thread polls by it; then somebody else begins to wait. */
void closed_copies(int a, int b) {
    for (int by_poll = 0; by_poll < 2; by_poll++) {
        struct epoll_event e = {EPOLLIN, {.u64 = 7}};
        int instance = epoll_create1(0), copy = dup(b);
        void *found;
        char byte;
        pthread_t thread = asleep_in(polls_number, (void *)(long)copy), other;
        SAY(close(copy));
        if (by_poll) other = asleep_in(polls_number, (void *)(long)b);
        else SAY(epoll_ctl(instance, EPOLL_CTL_ADD, b, &e));
        if (!by_poll) waits("nothing", instance, 10);
        SAY(write(a, "x", 1));
        pthread_join(thread, &found);
        SAY(found);
        if (by_poll) pthread_join(other, &found);
        else found = (void *)(long)epoll_wait(instance, &e, 1, 10000);
        SAY(found);
        SAY(read(b, &byte, 1));
        close(instance);
    }
}

/* An end of which the kernel alone knows is one event with the room that was there before. */
void deaths(int a, int b) {
    static const uint32_t kinds[] = {0, EPOLLET, EPOLLONESHOT};
    for (int unread = 0; unread < 2; unread++) {
        int instances[3], x = a, y = b;
        if (unread) connect_pair(&x, &y), use(x, y);
        pid_t child = fork();
        if (child == 0) {
            close(y);
            for (;;) pause();
        }
        close(x);
        for (int i = 0; i < 3; i++) {
            struct epoll_event e = {EPOLLIN | EPOLLOUT | EPOLLRDHUP | kinds[i], {.u64 = 7}};
            epoll_ctl(instances[i] = epoll_create1(0), EPOLL_CTL_ADD, y, &e);
            waits("room", instances[i], 1000);
            waits("room", instances[i], 0);
            if (i == 2) epoll_ctl(instances[i], EPOLL_CTL_MOD, y, &e);
        }
        if (unread) SAY(write(y, "x", 1));
        nap(50);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        for (int i = 0; i < 3; i++) {
            waits("death", instances[i], 1000);
            close(instances[i]);
        }
        if (unread) close(y);
    }
}

/* The end of a stream is told behind its last byte: who has heard of it, and then receives less than it asked for, has all. The kernel has
 * a part here that its reader's queue does not hold, and what follows may go another way. */
/* Receives until nothing is there. */
static void arrive_all(int fd) {
    static char bytes[300000];
    for (int empty = 0; empty < 3; nap(1)) empty = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0 ? 0 : empty + 1;
}

static void hang_up(int how, int by_poll, int leaves) {
    static char bytes[300000];
    int a, b, epoll = epoll_create1(EPOLL_CLOEXEC);
    long sent = 0, got = 0, part;
    connect_pair(&a, &b);
    for (int round = 0; round < 3; round++) { /* until it holds no more; and again, by now perhaps elsewhere */
        while ((part = send(a, bytes, sizeof bytes, MSG_DONTWAIT)) > 0) sent += part;
        for (int i = 0; i < 20; i++) {
            char byte;
            if (write(b, "y", 1) != 1 || read(a, &byte, 1) != 1 || recv(b, &byte, 1, MSG_PEEK) != 1) abort();
            nap(1);
        }
    }
    if (leaves) { /* some bytes where it is, and the rest in the kernel again */
        for (int i = 0; i < 200; i++) {
            char byte;
            if (i < 60 && (recv(b, bytes, sizeof bytes, MSG_DONTWAIT) == 0 || write(b, "y", 1) != 1 || read(a, &byte, 1) != 1)) abort();
            if (i == 60) sent = got = 0, arrive_all(b);
            if (i >= 60 && send(a, bytes, 1000, MSG_DONTWAIT) == 1000) sent += 1000;
        }
        fcntl(a, F_SETSIG, 0);
        if (send(a, bytes, 100000, MSG_DONTWAIT) == 100000) sent += 100000;
    }
    if (how < 0) close(a);
    else shutdown(a, how);
    if (leaves) nap(20);
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP};
    struct pollfd fds = {.fd = b, .events = POLLIN | POLLRDHUP};
    epoll_ctl(epoll, EPOLL_CTL_ADD, b, &event);
    for (;;) {
        if (by_poll) poll(&fds, 1, -1);
        else epoll_wait(epoll, &event, 1, -1);
        int told = by_poll ? fds.revents & POLLRDHUP : (int)(event.events & EPOLLRDHUP);
        part = recv(b, bytes, sizeof bytes, MSG_DONTWAIT);
        got += part > 0 ? part : 0;
        if (told && part < (long)sizeof bytes) break;
    }
    SAY(got == sent);
    SAY(recv(b, bytes, sizeof bytes, MSG_DONTWAIT));
    close(b);
    close(epoll);
    if (how >= 0) close(a);
}

void hangups(int a, int b) {
    (void)a, (void)b;
    for (int by_poll = 0; by_poll < 2; by_poll++) {
        hang_up(SHUT_WR, by_poll, 0);
        hang_up(-1, by_poll, 0);
        hang_up(SHUT_WR, by_poll, 1);
        hang_up(-1, by_poll, 1);
    }
}
