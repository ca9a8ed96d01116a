/* What a program does with a connection before it has made many operations on it, goes on to be so when it has. Each case has fresh pairs
 * beside the one that has moved. */
#include "conformance.h"

/* All that an instance tells at once. */
static void tells(int epoll) {
    struct epoll_event told[8];
    int count = epoll_wait(epoll, told, 8, 1000);
    printf("    told %d", count);
    for (int i = 0; i < count; i++) printf(" %#x:%ld", told[i].events, (long)told[i].data.u64);
    printf("\n");
}

static void tells_nothing(int epoll) {
    struct epoll_event told;
    SAY(epoll_wait(epoll, &told, 1, 20));
}

static struct epoll_event wanted(uint32_t events, uint64_t data) { return (struct epoll_event){events, {.u64 = data}}; }

/* A byte from `from` that comes to `to` only when it has been told of. */
static void tells_of_byte(int epoll, int from, int to) {
    char byte;
    SAY(write(from, "x", 1));
    arrive(to, 1);
    tells(epoll);
    SAY(read(to, &byte, 1));
}

static void registered_as(uint32_t events) {
    int c, d, epoll = epoll_create1(EPOLL_CLOEXEC), other = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event e = wanted(events, 11);
    connect_pair(&c, &d);
    printf("    as %#x\n", events);
    SAY(epoll_ctl(epoll, EPOLL_CTL_ADD, d, &e));
    SAY(epoll_ctl(epoll, EPOLL_CTL_ADD, d, &e));
    tells_nothing(epoll);
    tells_of_byte(epoll, c, d);
    e = wanted(events, 12);
    SAY(epoll_ctl(epoll, EPOLL_CTL_MOD, d, &e));
    tells_of_byte(epoll, c, d);
    use(c, d);
    while (epoll_wait(epoll, &e, 1, 20) > 0) {} /* (what an edge was, depends on the time that bytes take) */
    if (!(events & EPOLLONESHOT)) tells_of_byte(epoll, c, d);
    e = wanted(events | EPOLLOUT, 13);
    SAY(epoll_ctl(epoll, EPOLL_CTL_MOD, d, &e));
    tells(epoll);
    e = wanted(EPOLLIN, 14);
    SAY(epoll_ctl(other, EPOLL_CTL_ADD, d, &e));
    tells_of_byte(other, c, d);
    SAY(epoll_ctl(epoll, EPOLL_CTL_DEL, d, NULL));
    SAY(epoll_ctl(epoll, EPOLL_CTL_DEL, d, NULL));
    close(c);
    tells(other);
    tells_nothing(epoll);
    close(d), close(epoll), close(other);
}

void early_registered(int a, int b) {
    registered_as(EPOLLIN);
    registered_as(EPOLLIN | EPOLLET);
    registered_as(EPOLLIN | EPOLLONESHOT);
    registered_as(EPOLLIN | EPOLLET | EPOLLONESHOT);
    SAY(write(a, "x", 1));
    arrive(b, 1);
}

/* Registrations that are the kernel's to judge, and what becomes of them: in two instances, by two numbers, by one that is closed, in an
 * instance that is closed, of a socket that is not connected yet, and for one of several waiters. */
void early_instances(int a, int b) {
    int c, d, first = epoll_create1(EPOLL_CLOEXEC), second = epoll_create1(EPOLL_CLOEXEC), copy;
    struct epoll_event e = wanted(EPOLLIN, 1);
    connect_pair(&c, &d);
    SAY(epoll_ctl(first, EPOLL_CTL_ADD, d, &e));
    e = wanted(EPOLLIN, 2);
    SAY(epoll_ctl(second, EPOLL_CTL_ADD, d, &e));
    copy = dup(d);
    e = wanted(EPOLLIN, 3);
    SAY(epoll_ctl(second, EPOLL_CTL_ADD, copy, &e));
    use(c, d);
    SAY(write(c, "x", 1));
    arrive(d, 1);
    tells(first);
    close(d); /* the kernel tells of it all the same */
    tells(first);
    close(second);
    second = epoll_create1(EPOLL_CLOEXEC);
    tells_nothing(second);
    SAY(epoll_ctl(second, EPOLL_CTL_MOD, copy, &e));
    SAY(epoll_ctl(second, EPOLL_CTL_ADD, copy, &e));
    tells(second);
    close(c), close(copy), close(first), close(second);

    first = epoll_create1(EPOLL_CLOEXEC);
    connect_pair(&c, &d);
    e = wanted(EPOLLIN, 4);
    SAY(epoll_ctl(first, EPOLL_CTL_ADD, d, &e));
    close(first);
    first = epoll_create1(EPOLL_CLOEXEC); /* another instance, by the same number */
    SAY(epoll_ctl(first, EPOLL_CTL_MOD, d, &e));
    use(c, d);
    SAY(write(c, "x", 1));
    arrive(d, 1);
    tells_nothing(first);
    close(c), close(d);

    connect_pair(&c, &d);
    e = wanted(EPOLLIN | EPOLLEXCLUSIVE, 5);
    SAY(epoll_ctl(first, EPOLL_CTL_ADD, d, &e));
    SAY(epoll_ctl(first, EPOLL_CTL_MOD, d, &e));
    use(c, d);
    tells_of_byte(first, c, d);
    close(c), close(d), close(first);
    SAY(write(a, "x", 1));
    arrive(b, 1);
}

/* A client that registers its socket before it connects. */
void early_connects(int a, int b) {
    struct address at;
    for (int round = 0; round < 3; round++) {
        uint32_t flags = round == 1 ? EPOLLET : round == 2 ? EPOLLONESHOT : 0;
        int listener = listening(&at, 0), epoll = epoll_create1(EPOLL_CLOEXEC);
        int c = stream_socket(SOCK_CLOEXEC | SOCK_NONBLOCK), d;
        struct epoll_event e = wanted(EPOLLIN, 7);
        char byte;
        SAY(epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &e));
        SAY(connect_to(c, &at) < 0 && errno != EINPROGRESS);
        tells(epoll);
        d = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        e = wanted(EPOLLIN | EPOLLOUT | flags, 8);
        SAY(epoll_ctl(epoll, EPOLL_CTL_ADD, c, &e));
        tells(epoll);
        fcntl(c, F_SETFL, 0);
        use(c, d);
        e = wanted(EPOLLIN, 9);
        SAY(epoll_ctl(epoll, EPOLL_CTL_MOD, c, &e));
        SAY(write(d, "x", 1));
        arrive(c, 1);
        tells(epoll);
        SAY(read(c, &byte, 1));
        tells_nothing(epoll);
        close(c), close(d), close(listener), close(epoll);
    }
    SAY(write(a, "x", 1));
    arrive(b, 1);
}

/* Half-closed by its first operations, and used the other way from then on. */
void early_shut(int a, int b) {
    for (int how = SHUT_RD; how <= SHUT_RDWR; how++) {
        int c, d, wrong = 0;
        char byte = 0;
        connect_pair(&c, &d);
        signal(SIGPIPE, SIG_IGN);
        SAY(write(c, "x", 1));
        SAY(shutdown(c, how));
        SAY(read(d, &byte, 1));
        if (how != SHUT_RD) SAY(read(d, &byte, 1));
        for (int i = 0; how == SHUT_WR && i < 200; i++) {
            wrong += write(d, "y", 1) != 1 || read(c, &byte, 1) != 1 || byte != 'y';
            if (i < 20) nap(1);
        }
        for (int i = 0; how == SHUT_RD && i < 200; i++) {
            wrong += write(c, "z", 1) != 1 || read(d, &byte, 1) != 1 || byte != 'z';
            if (i < 20) nap(1);
        }
        SAY(wrong);
        if (how != SHUT_RD) SAY(write(c, "x", 1));
        SAY(recv(c, &byte, 1, MSG_DONTWAIT));
        close(d);
        nap(20);
        SAY(read(c, &byte, 1) <= 0);
        close(c);
    }
    SAY(write(a, "x", 1));
    arrive(b, 1);
}

/* An urgent byte, before and behind others, and then many operations. */
void early_urgent(int a, int b) {
    int c, d;
    char byte;
    for (int round = 0; round < 4; round++) {
        connect_pair(&c, &d);
        if (round) SAY(write(c, "x", 1)), SAY(read(d, &byte, 1));
        struct iovec v = {"!", 1};
        struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
        if (round < 2) SAY(send(c, "ab!", 3, MSG_OOB));
        else SAY(sendmsg(c, &m, MSG_OOB));
        struct pollfd p = {d, POLLPRI, 0};
        SAY(poll(&p, 1, 2000));
        if (round < 3) SAY(recv(d, &byte, 1, MSG_OOB));
        if (round < 2) SAY(recv(d, &byte, 1, 0)), SAY(recv(d, &byte, 1, 0));
        for (int i = 0; round == 3 && i < 60; i++, nap(1)) /* both ends operate, and nobody reads past the mark */
            if (write(d, "y", 1) != 1 || read(c, &byte, 1) != 1) abort();
        use(c, d);
        SAY(send(c, "!", 1, MSG_OOB));
        SAY(poll(&p, 1, 2000));
        SAY(recv(d, &byte, 1, MSG_OOB));
        use(d, c);
        close(c), close(d);
    }
    SAY(write(a, "x", 1));
    arrive(b, 1);
}

struct receiver { int fd; long sum, bytes; };

static void *receives_all(void *given) {
    struct receiver *r = given;
    unsigned char some[65536];
    for (ssize_t got; (got = read(r->fd, some, sizeof some)) > 0; r->bytes += got)
        for (ssize_t i = 0; i < got; i++) r->sum += some[i] * ((r->bytes + i) % 251);
    return NULL;
}

/* Another thread waits in its first receive while this one sends: many times, or once and much. And the same with a poll before it. */
static void *polls_first(void *given) {
    struct pollfd one = {((struct receiver *)given)->fd, POLLIN, 0};
    poll(&one, 1, 5000);
    return receives_all(given);
}

void early_threads(int a, int b) {
    enum { MUCH = 8 << 20 };
    static unsigned char much[MUCH];
    for (int i = 0; i < MUCH; i++) much[i] = (unsigned char)(i * 7 + i / 4096);
    for (int round = 0; round < 6; round++) {
        int c, d;
        pthread_t thread;
        long sum = 0, bytes = 0;
        connect_pair(&c, &d);
        struct receiver r = {d, 0, 0};
        if (round < 4) thread = asleep_in(round & 1 ? polls_first : receives_all, &r);
        else pthread_create(&thread, NULL, round & 1 ? polls_first : receives_all, &r);
        if (round < 2) {
            for (int i = 0; i < 3000; i++) {
                size_t piece = (size_t)(i % 97) + 1;
                if (write(c, much + bytes, piece) != (ssize_t)piece) abort();
                bytes += (long)piece;
            }
        } else {
            SAY(write(c, much, MUCH));
            bytes = MUCH;
        }
        for (long i = 0; i < bytes; i++) sum += much[i] * (i % 251);
        close(c);
        pthread_join(thread, NULL);
        SAY(r.bytes == bytes);
        SAY(r.sum == sum);
        close(d);
    }
    SAY(write(a, "x", 1));
    arrive(b, 1);
}

/* Closed under a call, and its record taken by the next one; and a thread that never comes back out of its call. */
static void *receives_one(void *fd) {
    char byte;
    return (void *)(long)read((int)(long)fd, &byte, 1);
}

void early_closed(int a, int b) {
    for (int round = 0; round < 40; round++) {
        int c, d, e, f;
        pthread_t thread;
        void *got;
        connect_pair(&c, &d);
        thread = asleep_in(receives_one, (void *)(long)d);
        if (round % 4 == 3) {
            pthread_cancel(thread);
            pthread_join(thread, &got);
            if (got != PTHREAD_CANCELED) abort();
        }
        close(d);
        connect_pair(&e, &f);
        if (round % 4 == 2) use(e, f);
        if (write(e, "yz", 2) != 2) abort();
        if (send(c, "x", 1, MSG_NOSIGNAL) != 1 && round % 4 != 3) abort(); /* (then nobody has the other end, and AF_UNIX knows) */
        if (round % 4 != 3) {
            pthread_join(thread, &got);
            if (got != (void *)1L) abort();
        }
        char two[2];
        if (recv(f, two, 2, MSG_WAITALL) != 2 || memcmp(two, "yz", 2)) abort();
        close(c), close(e), close(f);
    }
    SAY(write(a, "x", 1));
    arrive(b, 1);
    for (int i = 0; i < 4; i++) SAY(write(b, "x", 1));
}

/* Forked with a registration and a few bytes on the way; parent and child go on, one after the other. */
void early_forked(int a, int b) {
    int c, d, status, epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event e = wanted(EPOLLIN, 21);
    char byte;
    connect_pair(&c, &d);
    SAY(epoll_ctl(epoll, EPOLL_CTL_ADD, d, &e));
    SAY(write(c, "x", 1));
    arrive(d, 1);
    pid_t child = fork();
    if (child == 0) {
        tells(epoll);
        SAY(read(d, &byte, 1));
        for (int i = 0; i < 100; i++)
            if (write(d, "y", 1) != 1 || read(c, &byte, 1) != 1) abort();
        fflush(stdout);
        _exit(3);
    }
    waitpid(child, &status, 0);
    SAY(WEXITSTATUS(status));
    tells_nothing(epoll);
    use(c, d);
    tells_of_byte(epoll, c, d);
    close(c), close(d), close(epoll);
    SAY(write(a, "x", 1));
    arrive(b, 1);
}
