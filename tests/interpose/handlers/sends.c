/* Sends on a connection while the handler of a library's sends there too. Prints what the kernel and what sigaction(2) say of the
 * handler. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    static char block[60000];
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0), fd, *handler_fd = dlsym(RTLD_DEFAULT, "handler_fd");
    char c = 0;
    if (!handler_fd || bind(listener, (struct sockaddr *)&at, size) || listen(listener, 1)) return 2;
    getsockname(listener, (struct sockaddr *)&at, &size);
    pid_t child = fork();
    if (!child) {
        fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&at, size)) return 3;
        for (int i = 0; i < 300; i++)
            if (write(fd, &c, 1) != 1 || read(fd, &c, 1) != 1) return 4;
        while (read(fd, block, sizeof block) > 0) {}
        return 0;
    }
    fd = accept(listener, NULL, NULL);
    for (int i = 0; i < 300; i++)
        if (read(fd, &c, 1) != 1 || write(fd, &c, 1) != 1) return 5;
    *handler_fd = fd;
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 100}, {0, 100}}, NULL);
    for (int i = 0; i < 100000; i++)
        if (send(fd, block, 50, MSG_NOSIGNAL) != 50) return 6;
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    struct sigaction how;
    sigaction(SIGALRM, NULL, &how);
    Dl_info of;
    printf("%d %d\n", dladdr((void *)how.sa_handler, &of), (how.sa_flags & SA_RESTART) != 0);
    close(fd);
    int status;
    waitpid(child, &status, 0);
    return status;
}
