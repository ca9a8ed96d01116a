/* An echo server and a client of it, as programs in C are written, for chaos (native.py):
 *
 *     echo server epoll|threads|forks HOST PORT
 *     echo client blocking|polling|selecting|edges HOST PORT SEED
 *
 * A client makes one connection after the other. It sends bytes that follow from its seed, checks what comes back, and says of each
 * connection "ok BYTES", or "cut ERROR BYTES" if it ended early. Other bytes than it sent: "wrong", and it ends. Timers interrupt its
 * calls. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PIECE = 65536 };

static struct sockaddr_in address;
static uint64_t random_state;

static uint32_t draw(uint32_t below) { /* xorshift */
    random_state ^= random_state << 13, random_state ^= random_state >> 7, random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 20) % below;
}

static void fail(const char *what) {
    perror(what);
    exit(2);
}

/* ---- servers --------------------------------------------------------------------------------------------------------- */

static void echo(int fd) {
    char piece[PIECE];
    ssize_t got, part;
    while ((got = read(fd, piece, sizeof piece)) > 0 || (got < 0 && errno == EINTR))
        for (ssize_t at = 0; at < got; at += part)
            if ((part = write(fd, piece + at, (size_t)(got - at))) < 0) {
                if (errno != EINTR) return;
                part = 0;
            }
    shutdown(fd, SHUT_WR);
}

static void *echoes(void *fd) {
    echo((int)(intptr_t)fd);
    close((int)(intptr_t)fd);
    return NULL;
}

static void serve_threads(int listener) {
    for (;;) {
        pthread_t thread;
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) continue;
        if (pthread_create(&thread, NULL, echoes, (void *)(intptr_t)fd)) close(fd);
        else pthread_detach(thread);
    }
}

static void reap(int number) {
    int error = errno;
    (void)number;
    while (waitpid(-1, NULL, WNOHANG) > 0) {}
    errno = error;
}

static void serve_forks(int listener) {
    struct sigaction how = {.sa_handler = reap}; /* (without SA_RESTART) */
    sigaction(SIGCHLD, &how, NULL);
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0) continue;
        pid_t child = fork();
        if (child == 0) {
            close(listener);
            echo(fd);
            _exit(0);
        }
        close(fd);
    }
}

/* A connection of the edge-triggered server: what it has read and not yet written. */
struct edge {
    int fd, ended;
    size_t from, to;
    char bytes[PIECE];
};

/* 0: it is over. */
static int serve_edge(struct edge *e) {
    for (;;) {
        while (e->from < e->to) {
            ssize_t part = send(e->fd, e->bytes + e->from, e->to - e->from, MSG_NOSIGNAL);
            if (part < 0 && errno == EINTR) continue;
            if (part < 0) return errno == EAGAIN;
            e->from += (size_t)part;
        }
        e->from = e->to = 0;
        if (e->ended) return 0;
        ssize_t got = recv(e->fd, e->bytes, sizeof e->bytes, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return errno == EAGAIN;
        if (got == 0) e->ended = 1, shutdown(e->fd, SHUT_WR);
        e->to = (size_t)got;
    }
}

static void serve_epoll(int listener) {
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event e = {EPOLLIN, {.ptr = NULL}}, told[16];
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &e);
    fcntl(listener, F_SETFL, O_NONBLOCK);
    for (;;) {
        int n = epoll_wait(epoll, told, 16, -1), fd;
        for (int i = 0; i < n; i++) {
            struct edge *of = told[i].data.ptr;
            if (of) {
                if (!serve_edge(of)) close(of->fd), free(of);
                continue;
            }
            while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
                of = calloc(1, sizeof *of);
                of->fd = fd;
                e = (struct epoll_event){EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, {.ptr = of}};
                if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e)) close(fd), free(of);
            }
        }
    }
}

/* ---- clients --------------------------------------------------------------------------------------------------------- */

static char out[PIECE], in[PIECE];
static volatile sig_atomic_t alarms;
static void on_alarm(int number) {
    (void)number;
    alarms++;
}

static unsigned char byte_at(uint64_t key, uint64_t at) { return (unsigned char)((key ^ at) * UINT64_C(0x9e3779b97f4a7c15) >> 56); }

struct talk {
    int fd, epoll, shut, closes_early;
    uint64_t key, sent, got, total;
};

/* 1: done, 0: would wait, -1: cut. */
static int send_some(struct talk *t, int flags) {
    size_t length = 1 + draw(draw(2) ? 200 : PIECE - 1);
    if (length > t->total - t->sent) length = t->total - t->sent;
    if (!length) {
        if (!t->shut) t->shut = 1, shutdown(t->fd, SHUT_WR);
        return 0;
    }
    for (size_t i = 0; i < length; i++) out[i] = (char)byte_at(t->key, t->sent + i);
    struct iovec v[2] = {{out, length / 3}, {out + length / 3, length - length / 3}};
    ssize_t part = flags || draw(2) ? send(t->fd, out, length, flags | MSG_NOSIGNAL) : writev(t->fd, v, 2);
    if (part < 0) return errno == EINTR || errno == EAGAIN ? 0 : -1;
    t->sent += (uint64_t)part;
    return 1;
}

/* 1: some, 0: would wait, -1: cut, 2: the end. */
static int receive_some(struct talk *t, int flags) {
    size_t room = 1 + draw(PIECE - 1);
    if (flags != MSG_DONTWAIT && room > t->sent - t->got && t->sent > t->got) room = t->sent - t->got;
    ssize_t got = recv(t->fd, in, room, flags);
    if (got < 0) return errno == EINTR || errno == EAGAIN ? 0 : -1;
    if (got == 0) return 2;
    for (ssize_t i = 0; i < got; i++)
        if ((unsigned char)in[i] != byte_at(t->key, t->got + (uint64_t)i)) {
            printf("wrong byte at %llu of key %llu\n", (unsigned long long)t->got + (unsigned long long)i, (unsigned long long)t->key);
            exit(3);
        }
    t->got += (uint64_t)got;
    if (t->got > t->sent) {
        printf("wrong: more bytes than were sent\n");
        exit(3);
    }
    return 1;
}

/* Turns: at most so many bytes lie between here and there that both ends may block. */
static int talk_blocking(struct talk *t) {
    for (;;) {
        int did = 1;
        if (t->sent < t->total && t->sent - t->got < 30000) {
            uint64_t before = t->total;
            if (t->total > t->sent + 20000) t->total = t->sent + 20000;
            did = send_some(t, 0);
            t->total = before;
        } else if (t->sent == t->total && !t->shut) {
            send_some(t, 0);
        } else {
            did = receive_some(t, draw(4) ? 0 : MSG_WAITALL);
        }
        if (did < 0) return -1;
        if (did == 2) return t->got == t->total ? 2 : -1;
        if (t->closes_early && t->got > t->total / 2) return 3;
    }
}

static int wait_for_it(struct talk *t, int writes, const char *how) {
    if (*how == 'p') {
        struct pollfd p = {t->fd, (short)(POLLIN | (writes ? POLLOUT : 0)), 0};
        poll(&p, 1, draw(3) ? -1 : 50);
    } else if (*how == 's') {
        fd_set r, w;
        FD_ZERO(&r);
        FD_ZERO(&w);
        FD_SET(t->fd, &r);
        if (writes) FD_SET(t->fd, &w);
        select(t->fd + 1, &r, &w, NULL, NULL);
    } else {
        struct epoll_event told;
        epoll_wait(t->epoll, &told, 1, -1);
    }
    return 0;
}

static int talk_waiting(struct talk *t, const char *how) {
    struct epoll_event e = {EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, {.fd = t->fd}};
    fcntl(t->fd, F_SETFL, O_NONBLOCK);
    if (*how == 'e') epoll_ctl(t->epoll, EPOLL_CTL_ADD, t->fd, &e);
    for (;;) {
        int sent = 0, got;
        while (t->sent < t->total && (sent = send_some(t, MSG_DONTWAIT)) == 1 && draw(4)) {}
        if (sent < 0) return -1;
        if (t->sent == t->total) send_some(t, MSG_DONTWAIT);
        while ((got = receive_some(t, MSG_DONTWAIT)) == 1) {}
        if (got < 0) return -1;
        if (got == 2) return t->got == t->total ? 2 : -1;
        if (t->closes_early && t->got > t->total / 2) return 3;
        if (sent != 1 || t->sent == t->total) wait_for_it(t, t->sent < t->total, how);
    }
}

static void be_client(const char *how) {
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    for (;;) {
        static const uint32_t sizes[] = {1, 300, 20000, 200000, 2000000};
        struct talk t = {
            .epoll = epoll, .key = (uint64_t)draw(UINT32_MAX) << 16, .total = 1 + draw(sizes[draw(5)]), .closes_early = !draw(12)};
        struct sigaction action = {.sa_handler = on_alarm, .sa_flags = draw(2) ? SA_RESTART : 0};
        struct itimerval often = {{0, 200 + (int)draw(20000)}, {0, 1000}}, never = {0};
        sigaction(SIGALRM, &action, NULL);
        t.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (!draw(4)) setsockopt(t.fd, SOL_SOCKET, SO_RCVBUF, &(int){16384}, sizeof(int));
        int done = connect(t.fd, (struct sockaddr *)&address, sizeof address);
        if (done < 0 && (errno == EINTR || errno == ECONNREFUSED)) { /* by a timer; or the server begins */
            usleep(50000);
            close(t.fd);
            continue;
        }
        if (done < 0) {
            usleep(50000);
        } else {
            if (draw(2)) setitimer(ITIMER_REAL, &often, NULL);
            done = *how == 'b' ? talk_blocking(&t) : talk_waiting(&t, how);
        }
        int error = errno;
        setitimer(ITIMER_REAL, &never, NULL);
        close(t.fd);
        if (done < 0) printf("cut %s %llu\n", strerrorname_np(error), (unsigned long long)t.got);
        else printf("ok %llu\n", (unsigned long long)t.got);
        fflush(stdout);
    }
}

int main(int count, char **words) {
    if (count < 5) return 1;
    signal(SIGPIPE, SIG_IGN);
    address =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(words[4])), .sin_addr.s_addr = inet_addr(words[3])};
    if (!strcmp(words[1], "client")) {
        random_state = strtoull(words[5], NULL, 10) * 2 + 1;
        be_client(words[2]);
    }
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    for (int tries = 0; bind(listener, (struct sockaddr *)&address, sizeof address); tries++) {
        if (tries == 400) fail("bind");
        usleep(50000);
    }
    if (listen(listener, 256)) fail("listen");
    if (!strcmp(words[2], "epoll")) serve_epoll(listener);
    if (!strcmp(words[2], "threads")) serve_threads(listener);
    serve_forks(listener);
}
