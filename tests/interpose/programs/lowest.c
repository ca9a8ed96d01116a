/* A program of one thread whose connections move all the time, to it and from it, and go back with bytes unread. Each number that it is
 * given is the lowest that is free, by its own account. Usage: lowest CONNECTIONS; prints what was not. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 30, CLIENTS = 3, NUMBERS = 256, PATIENCE = 60 /* s */ };

static char own[NUMBERS];
static long taken, others;
static double end;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* A number that this process was given. */
static int given(int fd) {
    int lowest = 0;
    while (own[lowest]) lowest++;
    taken++;
    others += fd != lowest;
    if (fd < 0 || fd >= NUMBERS) abort();
    own[fd] = 1;
    return fd;
}

static void give_back(int fd) {
    own[fd] = 0;
    close(fd);
}

/* By each kind of call. */
static void make_some(void) {
    int made[4] = {given(open("/dev/null", O_RDWR)), 0, 0, 0};
    if (pipe(made + 1)) abort();
    given(made[1]), given(made[2]);
    made[3] = given(dup(made[0]));
    for (int i = 0; i < 4; i++) give_back(made[i]);
    give_back(given(fcntl(0, F_DUPFD, 0)));
    give_back(given(epoll_create1(0)));
}

static int listening(struct sockaddr_in *at) {
    socklen_t size = sizeof *at;
    int fd = given(socket(AF_INET, SOCK_STREAM, 0));
    *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(fd, (void *)at, size) || listen(fd, 64) || getsockname(fd, (void *)at, &size)) abort();
    return fd;
}

/* Sends and receives until the connection has moved, then asks for bytes and leaves the connection to a stream before it has read them. */
static void talk(int fd) {
    char said[8] = "x";
    for (int i = 0; i < ROUNDS; i++)
        if (write(fd, said, 1) != 1 || read(fd, said, 1) != 1) return;
    if (write(fd, "u", 1) != 1) return;
    poll(&(struct pollfd){fd, POLLIN, 0}, 1, 1000);
    FILE *stream = fdopen(dup(fd), "r");
    if (!stream || !fgets(said, sizeof said, stream)) return;
    fclose(stream);
}

static void be_client(const struct sockaddr_in *at) {
    while (now() < end) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (const void *)at, sizeof *at)) _exit(1);
        talk(fd);
        close(fd);
    }
    _exit(0);
}

/* Returns 0 at the end of the stream. */
static int answer(int fd) {
    char said;
    if (read(fd, &said, 1) != 1) return 0;
    return said == 'u' ? write(fd, "unread\n", 7) == 7 : write(fd, &said, 1) == 1;
}

static void be_server(int listener) {
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        while (answer(fd)) {}
        close(fd);
    }
}

int main(int argc, char **argv) {
    struct sockaddr_in here, there;
    pid_t clients[CLIENTS], server;
    int connections[64], count = 0, others_listener, mine = -1, left = 0;
    long ended = 0;
    own[0] = own[1] = own[2] = 1;
    for (int fd = 3; fd < NUMBERS; fd++) close(fd);
    end = now() + PATIENCE;
    int listener = listening(&here);
    others_listener = listening(&there);
    if (!(server = fork())) be_server(others_listener);
    give_back(others_listener);
    for (int i = 0; i < CLIENTS; i++)
        if (!(clients[i] = fork())) be_client(&here);
    while (ended < atol(argv[1]) && now() < end) {
        struct pollfd p[66] = {{listener, POLLIN, 0}};
        if (mine < 0) {
            mine = given(socket(AF_INET, SOCK_STREAM, 0));
            left = ROUNDS;
            if (connect(mine, (void *)&there, sizeof there) || write(mine, "x", 1) != 1) abort();
        }
        for (int i = 0; i < count; i++) p[i + 1] = (struct pollfd){connections[i], POLLIN, 0};
        p[count + 1] = (struct pollfd){mine, POLLIN, 0};
        int ready = poll(p, (nfds_t)count + 2, 1);
        for (int i = 0; i < 60; i++) make_some();
        if (ready <= 0) continue;
        if (p[count + 1].revents) {
            char said;
            if (read(mine, &said, 1) != 1) abort();
            if (left-- && write(mine, "x", 1) != 1) abort();
            if (left < 0) {
                give_back(mine);
                mine = -1;
                ended++;
            }
        }
        for (int i = count - 1; i >= 0; i--)
            if (p[i + 1].revents && !answer(connections[i])) {
                give_back(connections[i]);
                connections[i] = connections[--count];
                ended++;
            }
        if (p[0].revents && count < 64) connections[count++] = given(accept(listener, NULL, NULL));
    }
    for (int i = 0; i < CLIENTS; i++) kill(clients[i], SIGKILL), waitpid(clients[i], NULL, 0);
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    printf("%s, %ld of %ld numbers were not the lowest\n", ended < atol(argv[1]) ? "too few" : "done", others, taken > 1000 ? 1000 : taken);
    return 0;
}
