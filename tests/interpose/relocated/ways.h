/* The calls that each way of tests/interpose/ways.c makes. */
#include <poll.h>
#include <sys/types.h>

struct way {
    ssize_t (*read)(int fd, void *into, size_t room);
    ssize_t (*write)(int fd, const void *data, size_t length);
    ssize_t (*recv)(int fd, void *into, size_t room, int flags);
    ssize_t (*send)(int fd, const void *data, size_t length, int flags);
    int (*poll)(struct pollfd *fds, nfds_t count, int milliseconds);
    int (*close)(int fd);
    int (*dup2)(int from, int to);
    int (*fcntl)(int fd, int what, ...);
    int (*shutdown)(int fd, int how);
};
