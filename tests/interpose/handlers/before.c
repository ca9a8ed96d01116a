/* A library that sets handlers in its constructor, which runs before that of libfastsock.so: the handler sends on the program's
 * connection. */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/socket.h>

int handler_fd = -1;

static void on(int number) {
    if (number && handler_fd >= 0) send(handler_fd, "h", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

__attribute__((constructor)) static void set(void) {
    sigaction(SIGALRM, &(struct sigaction){.sa_handler = on, .sa_flags = SA_RESTART}, NULL);
}
