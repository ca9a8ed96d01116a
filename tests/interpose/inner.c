/* Calls inside of the C library on a connection's number: its streams at the standard numbers, daemon, requests that its threads carry out,
 * and numbers that it closes. */
#include "conformance.h"

#include <aio.h>

static void connect_at(int *a, int *b, int listener, const struct address *at) {
    *a = stream_socket(0);
    if (connect_to(*a, at)) abort();
    *b = accept(listener, NULL, NULL);
    for (int i = 0; i < 30; i++) {
        char byte;
        if (write(*a, "x", 1) != 1 || read(*b, &byte, 1) != 1 || write(*b, "y", 1) != 1 || read(*a, &byte, 1) != 1) abort();
        nap(1);
    }
}

/* A process prints to a pipe: its standard numbers are for connections. */
static int out;
#define TELL(call) tell(#call, (long)(call))
static void tell(const char *what, long got) {
    char line[256];
    int length = snprintf(line, sizeof line, "%s: %ld %s\n", what, got, got < 0 ? strerrorname_np(errno) : "");
    if (write(out, line, (size_t)length) != length) abort();
}
static void tell_text(const char *text) {
    if (write(out, text, strlen(text)) < 0) abort();
}

static void apart(void (*body)(void)) {
    int ends[2], status;
    char line[4096];
    ssize_t got;
    fflush(stdout);
    if (pipe(ends)) abort();
    pid_t child = fork();
    if (!child) {
        out = fcntl(ends[1], F_DUPFD, 50);
        close(ends[0]), close(ends[1]);
        alarm(20);
        body();
        _exit(0);
    }
    close(ends[1]);
    while ((got = read(ends[0], line, sizeof line)) > 0) fwrite(line, 1, (size_t)got, stdout);
    close(ends[0]);
    waitpid(child, &status, 0);
    printf("status %d\n", status);
}

static void streams_on(int in, int to) { /* the numbers 0 and 1, whoever has made them the connection's two ends */
    char line[64] = "";
    TELL(printf("printed\n") > 0);
    TELL(fflush(stdout));
    tell_text(fgets(line, sizeof line, stdin) ? line : "none\n");
    TELL(write(to, "written\n", 8));
    tell_text(fgets(line, sizeof line, stdin) ? line : "none\n");
    TELL(puts("put") > 0);
    TELL(fflush(stdout));
    TELL(read(in, line, sizeof line));
    TELL(fclose(stdout));
    TELL(read(in, line, sizeof line));
    int next = open("/etc/passwd", O_RDONLY);
    TELL(next == to);
    TELL(read(next, line, 4));
    TELL(freopen("/dev/null", "r", stdin) != NULL);
    TELL(read(in, line, sizeof line));
}

static void at_standard_numbers(void) {
    struct address at;
    int a, b, listener = listening(&at, 0);
    close(0);
    a = stream_socket(0);
    close(1);
    if (a != 0 || connect_to(a, &at) || (b = accept(listener, NULL, NULL)) != 1) abort();
    for (int i = 0; i < 60; i++) {
        char byte;
        if (write(a, "x", 1) != 1 || read(b, &byte, 1) != 1 || write(b, "y", 1) != 1 || read(a, &byte, 1) != 1) abort();
        nap(1);
    }
    streams_on(0, 1);
}

static void copied_to_standard_numbers(void) {
    struct address at;
    int a, b, listener = listening(&at, 0);
    connect_at(&a, &b, listener, &at);
    TELL(dup2(a, 0));
    TELL(dup3(b, 1, 0));
    close(a), close(b);
    streams_on(0, 1);
}

static void duplicated_to_standard_numbers(void) {
    struct address at;
    int a, b, listener = listening(&at, 0);
    connect_at(&a, &b, listener, &at);
    close(0), TELL(dup(a));
    close(1), TELL(fcntl(b, F_DUPFD, 0));
    close(a), close(b);
    streams_on(0, 1);
}

/* daemon(3) puts a file on the numbers 0 to 2 of the child: what goes there is not the parent's connection. */
static void becomes_daemon(void) {
    struct address at;
    int a, b, gate[2], listener = listening(&at, 0);
    char into[16] = "";
    close(0);
    connect_at(&a, &b, listener, &at);
    if (a || pipe(gate)) abort();
    pid_t child = fork();
    if (!child) {
        close(gate[0]);
        TELL(daemon(1, 0));
        TELL(read(0, into, sizeof into));
        TELL(write(0, "nowhere", 7));
        TELL(write(1, "nowhere", 7));
        _exit(0);
    }
    close(gate[1]);
    waitpid(child, NULL, 0);
    TELL(read(gate[0], into, 1));
    TELL(write(a, "abc", 3));
    TELL(read(b, into, sizeof into));
    TELL(shutdown(a, SHUT_WR));
    TELL(read(b, into, sizeof into));
}

/* A stream closes its number inside of the C library: the number's next file is no connection. */
static void closed_by_streams(void) {
    struct address at;
    int a, b, listener = listening(&at, 0);
    char into[16];
    for (int how = 0; how < 3; how++) {
        connect_at(&a, &b, listener, &at);
        FILE *stream = fdopen(a, how ? "r+" : "w");
        if (how == 2) TELL(freopen("/etc/passwd", "r", stream) != NULL), TELL(fileno(stream) == a);
        else TELL(fclose(stream));
        if (how < 2) TELL(open("/etc/passwd", O_RDONLY) == a);
        TELL(read(a, into, 4));
        TELL(read(b, into, sizeof into));
        close(a), close(b);
        connect_at(&a, &b, listener, &at); /* and then it is one again */
        TELL(write(a, "again", 5));
        TELL(read(b, into, sizeof into));
        close(a), close(b);
    }
}

void standard(int a, int b) {
    (void)a, (void)b;
    apart(at_standard_numbers), apart(copied_to_standard_numbers), apart(duplicated_to_standard_numbers);
    apart(becomes_daemon), apart(closed_by_streams);
}

/* ---- POSIX AIO -------------------------------------------------------------------------------------------------------- */

static long ended(struct aiocb *request) {
    const struct aiocb *list[] = {request};
    while (aio_error(request) == EINPROGRESS) aio_suspend(list, 1, NULL);
    errno = aio_error(request);
    return aio_return(request);
}

void requests(int a, int b) {
    char into[2][16] = {"", ""}, seen[16];
    struct aiocb receive = {.aio_fildes = b, .aio_buf = into[0], .aio_nbytes = 16};
    struct aiocb other = {.aio_fildes = a, .aio_buf = into[1], .aio_nbytes = 16};
    struct aiocb transmit = {.aio_fildes = a, .aio_buf = "requested", .aio_nbytes = 9};
    struct aiocb answer = {.aio_fildes = b, .aio_buf = "answered", .aio_nbytes = 8};
    SAY(write(a, "before", 6)); /* unread when it leaves */
    SAY(aio_read(&receive));
    SAY(ended(&receive));
    show(into[0], 6);
    SAY(aio_read(&receive)); /* and nothing is there yet */
    nap(20);
    SAY(aio_error(&receive) == EINPROGRESS);
    SAY(write(a, "later", 5));
    SAY(ended(&receive));
    show(into[0], 5);
    SAY(aio_write(&transmit));
    SAY(ended(&transmit));
    SAY(read(b, seen, sizeof seen));
    receive.aio_lio_opcode = other.aio_lio_opcode = LIO_READ;
    transmit.aio_lio_opcode = answer.aio_lio_opcode = LIO_WRITE;
    struct aiocb *all[] = {&transmit, NULL, &answer, &receive, &other};
    int lists[2];
    connect_pair(&lists[0], &lists[1]);
    use(lists[0], lists[1]);
    for (int i = 0; i < 5; i++)
        if (all[i]) all[i]->aio_fildes = lists[all[i]->aio_fildes == b];
    SAY(lio_listio(LIO_WAIT, all, 5, NULL));
    SAY(ended(&receive));
    SAY(ended(&other));
    show(into[0], 9), show(into[1], 8);
    close(lists[0]);
    SAY(aio_read(&receive));
    SAY(ended(&receive));
    close(lists[1]);
}
