/* A server with a child for each connection, and a client: short sessions, and then a long one, which the server and its children serve in
 * the way that the argument names. Says how many threads the process had that has served the last request: one that has looked for the
 * client has two. */
#include <dirent.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SHORT = 20, LONG = 120 }; /* sessions of one request, and requests of the last session */

static int made(int fd) {
    if (fd < 0) exit(1);
    return fd;
}

static int threads(void) {
    DIR *tasks = opendir("/proc/self/task");
    int count = 0;
    for (struct dirent *e; (e = readdir(tasks));) count += e->d_name[0] != '.';
    closedir(tasks);
    return count;
}

static void ask(int fd, int from, int to) {
    for (int number = from, answer; number < to; number++)
        if (send(fd, &number, sizeof number, 0) != sizeof number || recv(fd, &answer, sizeof answer, MSG_WAITALL) != sizeof answer ||
            answer != -number)
            exit(2);
}

static int client(const struct sockaddr_in *at) {
    char byte;
    for (int i = 0; i <= SHORT; i++) {
        int fd = made(socket(AF_INET, SOCK_STREAM, 0));
        if (connect(fd, (const struct sockaddr *)at, sizeof *at)) return 3;
        ask(fd, 0, i < SHORT ? 1 : LONG);
        if (shutdown(fd, SHUT_WR) || recv(fd, &byte, 1, 0) != 0) return 4;
        close(fd);
    }
    return 0;
}

static void answer(int fd, int from, int to) {
    for (int number, reply; from < to; from++) {
        if (recv(fd, &number, sizeof number, MSG_WAITALL) != sizeof number || number != from) exit(5);
        reply = -number;
        if (send(fd, &reply, sizeof reply, 0) != sizeof reply) exit(6);
    }
}

static int ended(pid_t child) {
    int status;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) exit(7);
    return WEXITSTATUS(status);
}

static pid_t child_that_answers(int fd, int from, int to, int copies) {
    pid_t child = fork();
    if (child) return child;
    if (copies) { /* the number that it had means nothing then */
        int copy = made(dup(fd));
        close(fd);
        fd = copy;
    }
    answer(fd, from, to);
    _exit(100 + threads());
}

static int serve(int listener, const char *way) {
    pid_t child;
    for (int i = 0; i < SHORT; i++) {
        int fd = made(accept(listener, NULL, NULL));
        child = child_that_answers(fd, 0, 1, 0);
        close(fd);
        ended(child);
    }
    int fd = made(accept(listener, NULL, NULL));
    if (!strcmp(way, "closes") || !strcmp(way, "copies")) {
        child = child_that_answers(fd, 0, LONG, way[1] == 'o');
        close(fd);
        return ended(child);
    }
    if (!strcmp(way, "keeps")) {
        int threads_of_child = ended(child_that_answers(fd, 0, LONG, 0));
        close(fd);
        return threads_of_child;
    }
    if (!strcmp(way, "goes on")) { /* in the middle of a session it is the parent again, and then another child */
        ended(child_that_answers(fd, 0, LONG / 3, 0));
        answer(fd, LONG / 3, LONG / 2);
        child = child_that_answers(fd, LONG / 2, LONG, 0);
        close(fd);
        return ended(child);
    }
    if (!strcmp(way, "forks twice")) { /* both children have it, one after the other uses it */
        int turn[2];
        char byte = 0;
        if (pipe(turn)) return 8;
        child = child_that_answers(fd, 0, LONG / 2, 0);
        pid_t second = fork();
        if (!second) {
            if (read(turn[0], &byte, 1) != 1) _exit(9);
            answer(fd, LONG / 2, LONG);
            _exit(100 + threads());
        }
        close(fd);
        int threads_of_first = ended(child);
        if (write(turn[1], &byte, 1) != 1) return 10;
        int threads_of_second = ended(second);
        return threads_of_first > threads_of_second ? threads_of_first : threads_of_second;
    }
    return 11;
}

int main(int count, char **arguments) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener = made(socket(AF_INET, SOCK_STREAM, 0));
    if (count != 2 || bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 8)) return 12;
    getsockname(listener, (struct sockaddr *)&at, &(socklen_t){sizeof at});
    pid_t asks = fork();
    if (!asks) _exit(client(&at));
    int said = serve(listener, arguments[1]);
    if (said < 100) return said;
    printf("%d\n", said - 100);
    return ended(asks);
}
