/* Cases of threads that are cancelled, and of handlers that do not come back. */
#include "conformance.h"

#include <setjmp.h>

/* One wait: on `fd`, of which nothing comes. */
struct waiting {
    int fd, epoll, cleaned;
};
static char block[1 << 20];

static void reads(struct waiting *w) { read(w->fd, block, 16); }
static void receives(struct waiting *w) { recv(w->fd, block, 16, MSG_WAITALL); }
static void gets_message(struct waiting *w) {
    struct iovec v = {block, 16};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    recvmsg(w->fd, &m, 0);
}
static void polls_it(struct waiting *w) {
    struct pollfd p = {w->fd, POLLIN, 0};
    poll(&p, 1, -1);
}
static void polls_many(struct waiting *w) { /* which takes memory */
    static struct pollfd p[400];
    for (int i = 0; i < 400; i++) p[i] = (struct pollfd){w->fd, POLLIN, 0};
    poll(p, 400, -1);
}
static void selects(struct waiting *w) {
    fd_set r;
    FD_ZERO(&r);
    FD_SET(w->fd, &r);
    select(w->fd + 1, &r, NULL, NULL, NULL);
}
static void waits_on_epoll(struct waiting *w) {
    struct epoll_event told;
    epoll_wait(w->epoll, &told, 1, -1);
}
static void fills_it(struct waiting *w) {
    for (;;) write(w->fd, block, sizeof block);
}
static void never_waits(struct waiting *w) {
    for (;;) recv(w->fd, block, 16, MSG_DONTWAIT);
}

static const struct {
    const char *name;
    void (*body)(struct waiting *w);
} WAITS[] = {{"read", reads}, {"recv", receives}, {"recvmsg", gets_message}, {"poll", polls_it}, {"poll of many", polls_many},
             {"select", selects}, {"epoll_wait", waits_on_epoll}, {"recv that does not wait", never_waits}, {"write", fills_it}};

static void clean(void *given) { ((struct waiting *)given)->cleaned++; }

static struct waiting now;
static void *waits(void *which) {
    pthread_cleanup_push(clean, &now);
    WAITS[(long)which].body(&now);
    pthread_cleanup_pop(0);
    return NULL;
}

static void *waits_uncancelled(void *which) {
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    WAITS[(long)which].body(&now);
    return "it was not cancelled";
}

/* Others go on with the connection, and a thread that was cancelled in a call on it keeps nothing of it. */
void cancelled(int a, int b) {
    char into[64];
    pthread_t thread;
    void *end;
    struct epoll_event e = {EPOLLIN, {.u64 = 7}};
    now = (struct waiting){b, epoll_create1(EPOLL_CLOEXEC), 0};
    epoll_ctl(now.epoll, EPOLL_CTL_ADD, b, &e);
    for (size_t i = 0; i < sizeof WAITS / sizeof *WAITS; i++) {
        int ended = 0;
        for (int n = 0; n < 12; n++) { /* at once, in the middle of polling, and asleep */
            pthread_create(&thread, NULL, waits, (void *)(long)i);
            if (n % 3) nap(n);
            pthread_cancel(thread);
            pthread_join(thread, &end);
            ended += end == PTHREAD_CANCELED;
        }
        printf("    %s: %d ended, %d cleaned\n", WAITS[i].name, ended, now.cleaned), fflush(stdout);
        now.cleaned = 0;
        if (WAITS[i].body == fills_it) break;
        pthread_create(&thread, NULL, waits_uncancelled, (void *)(long)(i % 7));
        nap(10);
        pthread_cancel(thread);
        SAY(write(a, "sixteen bytes ...", 16));
        pthread_join(thread, &end);
        SAY(end != PTHREAD_CANCELED);
        recv(b, into, 16, MSG_DONTWAIT);
    }
    close(now.epoll);
    close(b);
    while (read(a, block, sizeof block) > 0) {}
    SAY(read(a, into, 1)); /* nobody is inside, so the peer hears of the close */
}

/* ---- handlers that do not come back ---------------------------------------------------------------------------------- */

static sigjmp_buf back;
static void leap(int number) {
    (void)number;
    siglongjmp(back, 1);
}

void leaps(int a, int b) {
    char into[64] = "";
    struct sigaction how = {.sa_handler = leap};
    struct pollfd p = {b, POLLIN, 0};
    sigaction(SIGALRM, &how, NULL);
    unsigned before = alarm(0);
    for (volatile int i = 0; i < 9; i++) {
        if (!sigsetjmp(back, 1)) {
            struct itimerval soon = {{0, 0}, {0, 5000}};
            setitimer(ITIMER_REAL, &soon, NULL);
            if (i % 3 == 0) read(b, into, 64);
            else if (i % 3 == 1) poll(&p, 1, -1);
            else select(b + 1, &(fd_set){0}, NULL, NULL, NULL);
            printf("    it came back\n");
        }
        SAY(write(a, "over", 4));
        SAY(poll(&p, 1, 2000));
        SAY(read(b, into, 64));
        SAY(write(b, "back", 4));
        SAY(read(a, into, 64));
    }
    alarm(before);
}
