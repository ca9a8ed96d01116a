/* What the C library's calls do on a stream of the kernel's: each case prints what it got, plain and under the library the same.
 *
 *     conformance [CASE ...]        all of them without a name
 *     conformance past WAY [busy|idle]   past.c
 *
 * TEST_STREAMS=unix: on stream sockets of AF_UNIX.
 *
 * tests/interpose/test_interpose.py compares. */
#include "conformance.h"

long say(const char *what, long got) {
    int error = errno;
    printf("    %s = %ld", what, got);
    if (got < 0) printf(" %s", strerrorname_np(error));
    printf("\n");
    fflush(stdout);
    return got;
}
void show(const char *data, long length) { printf("    \"%.*s\"\n", (int)(length < 0 ? 0 : length), data); }

void nap(int milliseconds) {
    struct timespec rest = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    while (nanosleep(&rest, &rest) < 0) {}
}

static struct {
    void *(*body)(void *);
    void *given;
    _Atomic pid_t number;
} beginning;

static void *begins(void *nothing) {
    (void)nothing;
    void *(*body)(void *) = beginning.body, *given = beginning.given;
    beginning.number = gettid();
    return body(given);
}

/* Nothing tells that a call waits: the thread sleeps, and has done so for some looks; or it has ended. */
pthread_t asleep_in(void *(*body)(void *), void *given) {
    char path[64], stat[512];
    pthread_t thread;
    beginning.body = body, beginning.given = given, beginning.number = 0;
    if (pthread_create(&thread, NULL, begins, NULL)) abort();
    for (int looks = 0; looks < 3; nap(1)) {
        if (!beginning.number) continue;
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", beginning.number);
        FILE *file = fopen(path, "re");
        if (!file) break;
        stat[fread(stat, 1, sizeof stat - 1, file)] = 0;
        fclose(file);
        char *end = strrchr(stat, ')');
        looks = end && end[2] == 'S' ? looks + 1 : 0;
    }
    return thread;
}

int pass_on(int fd) {
    char byte = 0, space[CMSG_SPACE(sizeof(int))] = "";
    int pair[2], got;
    struct iovec v = {&byte, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) abort();
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    *c = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    if (sendmsg(pair[0], &m, 0) != 1 || recvmsg(pair[1], &m, MSG_CMSG_CLOEXEC) != 1) abort();
    memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof got);
    close(pair[0]), close(pair[1]), close(fd);
    return got;
}

int on_unix_streams(void) {
    const char *asked = getenv("TEST_STREAMS");
    return asked && !strcmp(asked, "unix");
}

int stream_socket(int flags) { return socket(on_unix_streams() ? AF_UNIX : AF_INET, SOCK_STREAM | flags, 0); }

int listening(struct address *at, int smaller) {
    int listener = stream_socket(SOCK_CLOEXEC), bound = -1;
    *at = (struct address){.size = sizeof(sa_family_t)}; /* (of AF_UNIX the kernel chooses an abstract name) */
    at->at.ss_family = AF_UNIX;
    for (int port = smaller ? 10000 + getpid() % 10000 : 0; bound < 0; port++) {
        if (!on_unix_streams()) {
            struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)port)};
            memcpy(&at->at, &any, at->size = sizeof any);
        }
        bound = bind(listener, (struct sockaddr *)&at->at, at->size);
        if (bound < 0 && errno != EADDRINUSE) abort();
    }
    at->size = sizeof at->at;
    if (listen(listener, 8) || getsockname(listener, (struct sockaddr *)&at->at, &at->size)) abort();
    return listener;
}

int connect_to(int fd, const struct address *at) { return connect(fd, (const struct sockaddr *)&at->at, at->size); }

void connect_by(int *a, int *b, int passes) {
    struct address at;
    int listener = listening(&at, 0);
    *a = stream_socket(SOCK_CLOEXEC);
    if (connect_to(*a, &at)) abort();
    if (passes) listener = pass_on(listener);
    *b = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (*b < 0) abort();
    close(listener);
}

void connect_pair(int *a, int *b) { connect_by(a, b, 0); }

/* Both ends are used until they have had the time to move. */
void use(int a, int b) {
    char byte;
    const char *asked = getenv("CONFORMANCE_ROUNDS");
    int rounds = asked ? atoi(asked) : 60;
    for (int i = 0; i < rounds; i++) {
        if (write(a, "x", 1) != 1 || read(b, &byte, 1) != 1 || write(b, "y", 1) != 1 || read(a, &byte, 1) != 1) abort();
        if (i < rounds / 2) nap(1);
    }
}

/* What arrives takes its time on kernel TCP. */
void arrive(int fd, int bytes) {
    int there = 0;
    for (int i = 0; i < 2000 && there < bytes; i++) {
        if (ioctl(fd, FIONREAD, &there) < 0) return;
        if (there < bytes) nap(1);
    }
}

#define ENTRY(name) {#name, name},
static const struct {
    const char *name;
    void (*body)(int a, int b);
} CASES[] = {FOR_ALL_CASES(ENTRY)};
#undef ENTRY

int main(int count, char **names) {
    alarm(60);
    install();
    if (count > 2 && !strcmp(names[1], "past")) return past(count - 1, names + 1);
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        int chosen = count == 1, a, b;
        for (int n = 1; n < count; n++) chosen |= !strcmp(names[n], CASES[i].name);
        if (!chosen) continue;
        printf("%s\n", CASES[i].name), fflush(stdout);
        connect_pair(&a, &b);
        use(a, b);
        tell_path(a, b);
        CASES[i].body(a, b);
        close(a);
        close(b);
    }
    return 0;
}
