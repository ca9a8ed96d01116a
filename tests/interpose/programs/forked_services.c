/* A server with a child for each connection, and a client on kernel TCP. Says how many threads each child had after twelve operations. */
#include <dirent.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SESSIONS = 24, REQUESTS = 6 };

static int threads(void) {
    DIR *tasks = opendir("/proc/self/task");
    int count = 0;
    for (struct dirent *e; (e = readdir(tasks));) count += e->d_name[0] != '.';
    closedir(tasks);
    return count;
}

static int made(int fd) {
    if (fd < 0) exit(1);
    return fd;
}

static int ask(int port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)port)};
    char byte = 0;
    for (int i = 0; i < SESSIONS; i++) {
        int fd = made(socket(AF_INET, SOCK_STREAM, 0));
        if (connect(fd, (struct sockaddr *)&at, sizeof at)) exit(2);
        for (int j = 0; j < REQUESTS; j++)
            if (send(fd, &byte, 1, 0) != 1 || recv(fd, &byte, 1, 0) != 1) exit(3);
        close(fd);
    }
    return 0;
}

static void serve(int fd, int listener) {
    char byte;
    close(listener);
    for (int j = 0; j < REQUESTS; j++)
        if (recv(fd, &byte, 1, 0) != 1 || send(fd, &byte, 1, 0) != 1) exit(4);
    exit(100 + threads());
}

int main(int count, char **arguments) {
    char port[8];
    if (count == 2) return ask(atoi(arguments[1]));
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener = made(socket(AF_INET, SOCK_STREAM, 0)), status;
    if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 8)) return 5;
    getsockname(listener, (struct sockaddr *)&at, &(socklen_t){sizeof at});
    setvbuf(stdout, NULL, _IONBF, 0); /* no child has any of it */
    pid_t client = fork();
    if (!client) {
        snprintf(port, sizeof port, "%d", ntohs(at.sin_port));
        unsetenv("LD_PRELOAD");
        execl("/proc/self/exe", arguments[0], port, NULL);
    }
    for (int i = 0; i < SESSIONS; i++) {
        int fd = made(accept(listener, NULL, NULL));
        pid_t child = fork();
        if (!child) serve(fd, listener);
        close(fd);
        if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return 6;
        printf("%d\n", WEXITSTATUS(status) - 100);
    }
    return waitpid(client, &status, 0) != client || status;
}
