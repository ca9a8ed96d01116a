/* Cases of signals that come to a call which sleeps: each call, each way to install a handler, to send a signal and to block it. */
#include "conformance.h"

#define ROWS(table) (int)(sizeof table / sizeof *table)

/* ---- calls that sleep ------------------------------------------------------------------------------------------------- */

static char piece[64];
static struct iovec vector[2] = {{piece, 1}, {piece + 1, 1}};
static int instance, regular;

static long by_read(int fd) { return read(fd, piece, 9); }
static long by_readv(int fd) { return readv(fd, vector, 2); }
static long by_recv(int fd) { return recv(fd, piece, 9, 0); }
static long by_recv_all(int fd) { return recv(fd, piece, 9, MSG_WAITALL); }
static long by_peek(int fd) { return recv(fd, piece, 9, MSG_PEEK); }
static long by_recvfrom(int fd) { return recvfrom(fd, piece, 9, 0, NULL, NULL); }
static long by_recvmsg(int fd) { return recvmsg(fd, &(struct msghdr){.msg_iov = vector, .msg_iovlen = 2}, 0); }
static long by_recvmmsg(int fd) { return recvmmsg(fd, &(struct mmsghdr){{.msg_iov = vector, .msg_iovlen = 2}, 0}, 1, 0, NULL); }
static long by_read_number(int fd) { return syscall(SYS_read, fd, piece, (size_t)9); }
static long by_write(int fd) { return write(fd, piece, 1); }
static long by_writev(int fd) { return writev(fd, vector, 2); }
static long by_send(int fd) { return send(fd, piece, 1, 0); }
static long by_sendto(int fd) { return sendto(fd, piece, 1, 0, NULL, 0); }
static long by_sendmsg(int fd) { return sendmsg(fd, &(struct msghdr){.msg_iov = vector, .msg_iovlen = 2}, 0); }
static long by_sendfile(int fd) { return sendfile(fd, regular, &(off_t){0}, 1); }
static long by_accept(int fd) { return accept(instance, NULL, NULL) + 0 * fd; }
static long by_poll(int fd) { return poll(&(struct pollfd){fd, POLLIN, 0}, 1, 20000); }
static long by_ppoll(int fd) { return ppoll(&(struct pollfd){fd, POLLIN, 0}, 1, &(struct timespec){20, 0}, NULL); }
static long by_select(int fd) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    return select(fd + 1, &set, NULL, NULL, &(struct timeval){20, 0});
}
static long by_pselect(int fd) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    return pselect(fd + 1, &set, NULL, NULL, &(struct timespec){20, 0}, NULL);
}
static long by_epoll_wait(int fd) { return epoll_wait(instance, &(struct epoll_event){0}, 1, 20000) + 0 * fd; }
static long by_epoll_pwait(int fd) { return epoll_pwait(instance, &(struct epoll_event){0}, 1, 20000, NULL) + 0 * fd; }

enum { RECEIVES, SENDS, ACCEPTS, POLLS, WAITS };

static const struct sleeper {
    const char *name;
    long (*call)(int fd);
    int kind;
} SLEEPERS[] = {
    {"read", by_read, RECEIVES}, {"readv", by_readv, RECEIVES}, {"recv", by_recv, RECEIVES}, {"recv all", by_recv_all, RECEIVES},
    {"peek", by_peek, RECEIVES}, {"recvfrom", by_recvfrom, RECEIVES}, {"recvmsg", by_recvmsg, RECEIVES},
    {"recvmmsg", by_recvmmsg, RECEIVES}, {"read by number", by_read_number, RECEIVES},
    {"write", by_write, SENDS}, {"writev", by_writev, SENDS}, {"send", by_send, SENDS}, {"sendto", by_sendto, SENDS},
    {"sendmsg", by_sendmsg, SENDS}, {"sendfile", by_sendfile, SENDS}, {"accept", by_accept, ACCEPTS},
    {"poll", by_poll, POLLS}, {"ppoll", by_ppoll, POLLS}, {"select", by_select, POLLS}, {"pselect", by_pselect, POLLS},
    {"epoll_wait", by_epoll_wait, WAITS}, {"epoll_pwait", by_epoll_pwait, WAITS},
};

/* ---- ways to install a handler, of SIGUSR1 ------------------------------------------------------------------------------ */

static volatile int ran, ran_nested, rescued;
static void on(int number) { ran += number == SIGUSR1; }
static void on_info(int number, siginfo_t *info, void *context) { ran += number == SIGUSR1 && info && context; }
static void on_nested(int number) {
    ran++;
    if (raise(SIGURG) || number != SIGUSR1) abort();
}
static void on_inner(int number) { ran_nested += number == SIGURG; }
static void rescue(int number) { rescued += number == SIGUSR2; }

static void act(int number, void (*handler)(int), int flags) {
    sigaction(number, &(struct sigaction){.sa_handler = handler, .sa_flags = flags}, NULL);
}
static void by_sigaction(void) { act(SIGUSR1, on, 0); }
static void by_sigaction_restart(void) { act(SIGUSR1, on, SA_RESTART); }
static void by_sigaction_once(void) { act(SIGUSR1, on, (int)SA_RESETHAND | SA_NODEFER); }
static void by_siginfo(void) { sigaction(SIGUSR1, &(struct sigaction){.sa_sigaction = on_info, .sa_flags = SA_SIGINFO}, NULL); }
static void by_signal(void) { signal(SIGUSR1, on); }
static void by_ssignal(void) { ssignal(SIGUSR1, on); }
static void by_sysv_signal(void) { sysv_signal(SIGUSR1, on); }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static void end_calls(int ends) { siginterrupt(SIGUSR1, ends); }
static void by_siginterrupt(void) { signal(SIGUSR1, on), end_calls(1); }
static void by_sigset(void) { printf("%d", sigset(SIGUSR1, on) == SIG_DFL); }
#pragma GCC diagnostic pop
static void by_number(void) {
    struct {
        void (*handler)(int);
        unsigned long flags;
        void (*restorer)(void);
        uint64_t mask;
    } how, before;
    struct sigaction c_library;
    act(SIGUSR1, on, 0);
    sigaction(SIGUSR1, NULL, &c_library);
    printf("%ld", syscall(SYS_rt_sigaction, SIGUSR1, NULL, &how, 8L));
    act(SIGUSR1, SIG_DFL, 0);
    printf(" %ld %d", syscall(SYS_rt_sigaction, SIGUSR1, &how, &before, 8L), before.handler == SIG_DFL);
    sigaction(SIGUSR1, NULL, &c_library);
    printf(" %d %d\n", how.handler == on, c_library.sa_handler == on);
}
static void by_alternate_stack(void) {
    static char stack[65536];
    sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL);
    act(SIGUSR1, on, SA_ONSTACK);
}
static void by_nested(void) { act(SIGURG, on_inner, SA_RESTART), act(SIGUSR1, on_nested, 0); }

static const struct {
    const char *name;
    void (*install)(void);
    int restarts;
} HANDLERS[] = {
    {"sigaction", by_sigaction, 0}, {"SA_RESTART", by_sigaction_restart, 1}, {"SA_RESETHAND", by_sigaction_once, 0},
    {"SA_SIGINFO", by_siginfo, 0}, {"signal", by_signal, 1}, {"ssignal", by_ssignal, 1}, {"sysv_signal", by_sysv_signal, 0},
    {"siginterrupt", by_siginterrupt, 0}, {"sigset", by_sigset, 0}, {"number", by_number, 0}, {"SA_ONSTACK", by_alternate_stack, 0},
    {"nested", by_nested, 0},
};

/* ---- ways to send it ------------------------------------------------------------------------------------------------------- */

static pthread_t sleeping;
static pid_t sleeping_id;
static timer_t timer;

static void by_pthread_kill(void) { pthread_kill(sleeping, SIGUSR1); }
static void by_kill(void) { kill(getpid(), SIGUSR1); }
static void by_tgkill(void) { syscall(SYS_tgkill, getpid(), sleeping_id, SIGUSR1); }
static void by_sigqueue(void) { sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = 5}); }
static void by_thread_queue(void) { pthread_sigqueue(sleeping, SIGUSR1, (union sigval){.sival_int = 5}); }
static void by_timer(void) { timer_settime(timer, 0, &(struct itimerspec){.it_value = {0, 1000000}}, NULL); }

static void (*const SENDERS[])(void) = {by_pthread_kill, by_kill, by_tgkill, by_sigqueue, by_thread_queue, by_timer};

/* ---- one signal to one call ---------------------------------------------------------------------------------------------- */

static volatile int about_to_sleep, returned;

/* Waits until the thread that is about to sleep does. (Between looks at its connection it may be awake.) */
static void await_sleep(void) {
    char name[64], line[256];
    snprintf(name, sizeof name, "/proc/self/task/%d/stat", sleeping_id);
    for (int seen = 0, tries = 0; seen < 2 && tries < 5000 && !returned; tries++) {
        FILE *f = fopen(name, "r");
        char state = f && fgets(line, sizeof line, f) ? strrchr(line, ')')[2] : 'R';
        if (f) fclose(f);
        seen = state == 'S' && about_to_sleep ? seen + 1 : 0;
        nap(1);
    }
}

struct shot {
    void (*send)(void);
    int goes_on; /* the call is expected to */
};

static void *shoot(void *given) {
    const struct shot *shot = given;
    await_sleep();
    shot->send();
    for (int i = 0; i < 10000 && !ran; i++) nap(1);
    if (shot->goes_on) await_sleep();
    else
        for (int i = 0; i < 3000 && !returned; i++) nap(1);
    while (!returned) {
        pthread_kill(sleeping, SIGUSR2);
        nap(20);
    }
    return NULL;
}

static void one(int fd, const struct sleeper *sleeper, void (*send)(void), int restarts) {
    pthread_t thread;
    sigset_t both;
    struct shot shot = {send, restarts && sleeper->kind <= ACCEPTS};
    sigemptyset(&both), sigaddset(&both, SIGUSR1), sigaddset(&both, SIGUSR2);
    ran = ran_nested = rescued = about_to_sleep = returned = 0;
    pthread_sigmask(SIG_BLOCK, &both, NULL); /* in that thread */
    pthread_create(&thread, NULL, shoot, &shot);
    pthread_sigmask(SIG_UNBLOCK, &both, NULL);
    about_to_sleep = 1;
    errno = 0;
    long got = sleeper->call(fd);
    int error = errno;
    returned = 1;
    pthread_join(thread, NULL);
    sigset_t now;
    pthread_sigmask(SIG_BLOCK, NULL, &now);
    printf("%s: %ld %s, ran %d %d, %s, blocked %d\n", sleeper->name, got, got < 0 ? strerror(error) : "", ran, ran_nested,
           rescued ? "went on" : "ended", sigismember(&now, SIGUSR1));
}

static void begin(int a, int b) {
    static char block[65536];
    char name[] = "/tmp/interrupted.XXXXXX";
    regular = mkstemp(name);
    unlink(name);
    if (write(regular, block, 64) != 64) abort();
    act(SIGUSR2, rescue, 0);
    sleeping = pthread_self();
    sleeping_id = (pid_t)syscall(SYS_gettid);
    timer_create(CLOCK_MONOTONIC, &(struct sigevent){.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1}, &timer);
    for (int still = 0; still < 3; still++, nap(60)) /* nothing more goes from `a` to `b` */
        for (size_t size = sizeof block; size; size /= 8)
            while (send(a, block, size, MSG_DONTWAIT) > 0) still = 0;
    (void)b;
}

static void each_call(int a, void (*send)(void), int restarts, int step, int from) {
    for (int i = from; i < ROWS(SLEEPERS); i += step) {
        const struct sleeper *sleeper = &SLEEPERS[i];
        struct address any;
        instance = sleeper->kind == WAITS ? epoll_create1(0) : sleeper->kind == ACCEPTS ? listening(&any, 0) : -1;
        if (sleeper->kind == WAITS) epoll_ctl(instance, EPOLL_CTL_ADD, a, &(struct epoll_event){.events = EPOLLIN});
        one(a, sleeper, send, restarts);
        if (instance >= 0) close(instance);
    }
}

/* (Each call with sigaction, and some of them with each other way.) */
void interrupted_calls(int a, int b) {
    begin(a, b);
    for (int i = 0; i < ROWS(HANDLERS); i++) {
        signal(SIGUSR1, SIG_DFL);
        end_calls(0);
        for (int step = i < 2 ? 1 : 5, n = i < 2 ? 0 : i % 5; n < ROWS(SLEEPERS); n += step) {
            HANDLERS[i].install(); /* (some are for one signal) */
            printf("%s ", HANDLERS[i].name);
            each_call(a, by_pthread_kill, HANDLERS[i].restarts, ROWS(SLEEPERS), n);
        }
        fflush(stdout);
    }
}

void interrupted_by(int a, int b) {
    begin(a, b);
    for (int i = 0; i < ROWS(SENDERS); i++) {
        printf("sender %d\n", i);
        by_siginfo();
        each_call(a, SENDERS[i], 0, 3, i % 3);
        by_sigaction_restart();
        each_call(a, SENDERS[i], 1, 7, i % 7);
        fflush(stdout);
    }
    timer_delete(timer);
}

/* ---- masks ----------------------------------------------------------------------------------------------------------------- */

static long masked(int which, int fd, int64_t ns, const sigset_t *mask) {
    struct timespec time = {ns / 1000000000, ns % 1000000000};
    struct epoll_event event;
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    switch (which) {
    case 0: return ppoll(&(struct pollfd){fd, POLLIN, 0}, 1, &time, mask);
    case 1: return pselect(fd + 1, &set, NULL, NULL, &time, mask);
    case 2: return epoll_pwait(instance, &event, 1, (int)(ns / 1000000), mask);
    default: return epoll_pwait2(instance, &event, 1, &time, mask);
    }
}

/* Which of the two are blocked, and which handlers have run. */
static void tell_signals(const char *what, int which, long got) {
    int error = errno;
    sigset_t now;
    pthread_sigmask(SIG_BLOCK, NULL, &now);
    printf("%d %s: %ld %s, ran %d %d, blocked %d %d\n", which, what, got, got < 0 ? strerror(error) : "", ran, ran_nested,
           sigismember(&now, SIGUSR1), sigismember(&now, SIGURG));
    ran = ran_nested = 0;
}

/* Signals that wait before the call, with the time of a look, of a sleep, and beside bytes that are there. */
void masks(int a, int b) {
    sigset_t none, first, both;
    char byte;
    sigemptyset(&none), sigemptyset(&first), sigemptyset(&both);
    sigaddset(&first, SIGUSR1), sigaddset(&both, SIGUSR1), sigaddset(&both, SIGURG);
    act(SIGUSR1, on, 0);
    act(SIGURG, on_inner, 0);
    instance = epoll_create1(0);
    epoll_ctl(instance, EPOLL_CTL_ADD, b, &(struct epoll_event){.events = EPOLLIN});
    for (int which = 0; which < 4; which++)
        for (int time = 0; time < 2; time++) {
            int64_t ns = time ? 50000000 : 0;
            pthread_sigmask(SIG_SETMASK, &both, NULL);
            raise(SIGUSR1);
            tell_signals("one waits", which, masked(which, b, ns, &none));
            raise(SIGUSR1), raise(SIGURG);
            tell_signals("two wait", which, masked(which, b, ns, &none));
            raise(SIGUSR1), raise(SIGURG);
            tell_signals("two wait, one is let through", which, masked(which, b, ns, &first));
            tell_signals("none is let through", which, masked(which, b, ns, &both));
            pthread_sigmask(SIG_SETMASK, &none, NULL);
            tell_signals("unblocked", which, 0);
            tell_signals("nothing waits", which, masked(which, b, ns, &both));
            if (write(a, "x", 1) != 1) abort();
            arrive(b, 1);
            pthread_sigmask(SIG_SETMASK, &both, NULL);
            raise(SIGUSR1);
            tell_signals("beside a byte", which, masked(which, b, ns, &none));
            pthread_sigmask(SIG_SETMASK, &none, NULL);
            if (read(b, &byte, 1) != 1) abort();
            tell_signals("unblocked", which, 0);
        }
    close(instance);
}

/* ---- the moment ---------------------------------------------------------------------------------------------------------- */

static volatile int wanted, answered;

/* Signals at any moment of a call: each ends it, or comes before it. The call's own thread sees to it that none comes in between. */
static void *send_signals(void *rounds) {
    for (int i = 0; i < (int)(long)rounds; i++) {
        while (wanted <= i) sched_yield();
        for (volatile int spin = i * 37 % 4000; spin > 0; spin--) {}
        pthread_kill(sleeping, SIGUSR1);
        for (int patience = 0; answered <= i; patience++) {
            nap(1);
            if (patience > 3000) {
                rescued++;
                pthread_kill(sleeping, SIGUSR2);
            }
        }
    }
    return NULL;
}

/* With the mask of the call alone a handler runs, and so it runs within the call. */
void moments(int a, int b) {
    enum { ROUNDS = 150 };
    sigset_t none, first;
    sigemptyset(&none), sigemptyset(&first);
    sigaddset(&first, SIGUSR1);
    act(SIGUSR1, on, 0);
    act(SIGUSR2, rescue, 0);
    sleeping = pthread_self();
    instance = epoll_create1(0);
    epoll_ctl(instance, EPOLL_CTL_ADD, b, &(struct epoll_event){.events = EPOLLIN});
    for (int which = 0; which < 4; which++) {
        pthread_t thread;
        int ended = 0, others = 0, unblocked = 0;
        wanted = answered = rescued = ran = 0;
        pthread_sigmask(SIG_BLOCK, &first, NULL);
        pthread_create(&thread, NULL, send_signals, (void *)(long)ROUNDS);
        for (int i = 0; i < ROUNDS; i++) {
            sigset_t now;
            int before = ran;
            wanted = i + 1;
            long got = masked(which, b, 20000000000, &none);
            ended += got < 0 && errno == EINTR && ran == before + 1;
            others += got >= 0;
            pthread_sigmask(SIG_BLOCK, &first, &now);
            unblocked += !sigismember(&now, SIGUSR1);
            answered = i + 1;
        }
        pthread_join(thread, NULL);
        printf("%d: %d ended, %d not, %d unblocked, %d lost\n", which, ended, others, unblocked, rescued);
    }
    close(instance);
    pthread_sigmask(SIG_UNBLOCK, &first, NULL);
    (void)a;
}

static int renumbered;

static void *renumber(void *file) {
    nap(2);
    if (dup2((int)(long)file, renumbered) < 0) abort();
    for (volatile int spin = 0; spin < 20000; spin++) {}
    pthread_kill(sleeping, SIGUSR1);
    for (int patience = 0; !returned; patience++) {
        nap(1);
        if (patience == 3000) rescued++;
        if (patience >= 3000) pthread_kill(sleeping, SIGUSR2);
    }
    return NULL;
}

/* A thread waits on a number, another one has it mean another file, and sends a signal: the wait knows the file, or ends by the signal. */
void renumbers(int a, int b) {
    int pair[2], ended = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) abort();
    close(pair[1]);
    act(SIGUSR1, on, 0);
    act(SIGUSR2, rescue, 0);
    sleeping = pthread_self();
    rescued = 0;
    for (int i = 0; i < 200; i++) {
        pthread_t thread;
        renumbered = dup(b);
        returned = 0;
        pthread_create(&thread, NULL, renumber, (void *)(long)pair[0]);
        struct pollfd p = {renumbered, POLLIN, 0};
        long got = poll(&p, 1, -1);
        returned = 1;
        ended += got == 1 || (got < 0 && errno == EINTR);
        pthread_join(thread, NULL);
        close(renumbered);
    }
    printf("%d ended\n%d lost\n", ended, rescued);
    SAY(write(a, "x", 1));
    SAY(read(b, piece, 1));
    close(pair[0]);
}

static volatile int other_end;

static void replace_instances(int number) {
    int at[40];
    if (instance < 0 || number != SIGALRM) return;
    close(instance);
    instance = -1;
    for (int i = 0; i < 40; i++) {
        at[i] = epoll_create1(0);
        epoll_ctl(at[i], EPOLL_CTL_ADD, other_end, &(struct epoll_event){.events = EPOLLIN});
        epoll_wait(at[i], &(struct epoll_event){0}, 1, 0);
    }
    for (int i = 0; i < 40; i++) close(at[i]);
}

/* A handler closes the instance on which its thread is about to wait, and many others, so that their memory is used again. */
void closed_by_handlers(int a, int b) {
    other_end = b;
    instance = -1;
    act(SIGALRM, replace_instances, 0);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 300}, {0, 300}}, NULL);
    int odd = 0;
    for (int i = 0; i < 300; i++) {
        int made = epoll_create1(0);
        epoll_ctl(made, EPOLL_CTL_ADD, b, &(struct epoll_event){.events = EPOLLIN});
        instance = made;
        for (int n = 0; n < 1000 && instance >= 0; n++) odd += epoll_wait(made, &(struct epoll_event){0}, 1, n % 8 ? 0 : 2) > 0;
        if (instance >= 0) close(instance);
        instance = -1;
    }
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    SAY(odd);
    SAY(write(a, "x", 1));
    SAY(poll(&(struct pollfd){b, POLLIN, 0}, 1, 5000));
    SAY(read(b, piece, 1));
}

/* ---- SIGPIPE --------------------------------------------------------------------------------------------------------------- */

static void tell_pending(const char *what, long got) {
    int error = errno;
    sigset_t now;
    sigpending(&now);
    printf("%s: %ld %s, pending %d\n", what, got, got < 0 ? strerror(error) : "", sigismember(&now, SIGPIPE));
    sigemptyset(&now), sigaddset(&now, SIGPIPE);
    sigtimedwait(&now, NULL, &(struct timespec){0});
}

void pipes(int a, int b) {
    sigset_t all;
    sigemptyset(&all), sigaddset(&all, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    close(b);
    nap(50);
    for (int i = 0; i < 20 && write(a, "x", 1) == 1; i++) nap(50);
    tell_pending("write", write(a, "x", 1));
    tell_pending("write", write(a, "x", 1));
    tell_pending("send", send(a, "x", 1, 0));
    tell_pending("send, no signal", send(a, "x", 1, MSG_NOSIGNAL));
    tell_pending("writev", writev(a, vector, 2));
    tell_pending("sendmsg", sendmsg(a, &(struct msghdr){.msg_iov = vector, .msg_iovlen = 2}, 0));
    shutdown(a, SHUT_WR);
    tell_pending("behind its own end", write(a, "x", 1));
    pthread_sigmask(SIG_UNBLOCK, &all, NULL);
}
