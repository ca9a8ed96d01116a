/* A send from a buffer that the program may not touch, and a handler of the fault that ends the process. The peer prints how the connection
 * ends. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void on(int number) {
    (void)number;
    _exit(7);
}

int main(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0), fd;
    char c = 0;
    if (bind(listener, (struct sockaddr *)&at, size) || listen(listener, 1)) return 2;
    getsockname(listener, (struct sockaddr *)&at, &size);
    if (!fork()) {
        long got;
        fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&at, size)) return 3;
        for (int i = 0; i < 300; i++)
            if (write(fd, &c, 1) != 1 || read(fd, &c, 1) != 1) return 4;
        while ((got = read(fd, &c, 1)) > 0) {}
        printf("%ld\n", got);
        return 0;
    }
    fd = accept(listener, NULL, NULL);
    for (int i = 0; i < 300; i++)
        if (read(fd, &c, 1) != 1 || write(fd, &c, 1) != 1) return 5;
    sigaction(SIGSEGV, &(struct sigaction){.sa_handler = on}, NULL);
    alarm(20);
    send(fd, mmap(NULL, 1 << 16, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 60000, 0);
    return 6; /* on kernel TCP: EFAULT */
}
