/* What the C library's calls do on a stream of the kernel's: what the files of the cases share. A case has the two ends of a connection of
 * this process, which was used for a while, so that it has moved where it can. It prints what it gets. */
#ifndef CONFORMANCE_H
#define CONFORMANCE_H

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

#define SAY(call) say(#call, (long)(call))
long say(const char *what, long got); /* returns `got` */
void show(const char *data, long length);
void nap(int milliseconds);
pthread_t asleep_in(void *(*body)(void *), void *given); /* a thread that has begun to wait */

void install(void);    /* the library, while the process runs */
void tell_path(int a, int b);
void *library_function(const char *name); /* of the library, or NULL */

/* Sockets of TCP; with TEST_STREAMS=unix of AF_UNIX. */
struct address {
    struct sockaddr_storage at;
    socklen_t size;
};
int on_unix_streams(void);
int stream_socket(int flags);
int listening(struct address *at, int smaller); /* `smaller`: at a smaller port than clients get, so that it gets their descriptors */
int connect_to(int fd, const struct address *at);

void connect_by(int *a, int *b, int passes); /* `passes`: the listener's number comes by a message, as from another process */
void connect_pair(int *a, int *b);
void use(int a, int b);             /* until both ends have had the time to move */
void arrive(int fd, int bytes);     /* what arrives takes its time on kernel TCP */
int pass_on(int fd);                /* the number as another process would get it, by a message; `fd` is closed */

/* The cases. */
#define FOR_ALL_CASES(X) \
    X(data) X(whole) X(messages) X(files) X(urgent) X(options) X(fills) X(copies) X(greedy) X(ends) X(resets) X(polls) X(epolls) \
    X(late) X(hangups) X(signals) X(threads) X(closed) X(closed_copies) X(deaths) X(streams) X(orphan) X(passed) X(inherits) \
    X(spliced) X(forks) X(forked_waits) X(abandoned) X(closed_instances) X(forked_alone) X(forked_past) X(programs) X(cancelled) \
    X(leaps) X(spawns) X(daemons) X(changes) X(filtered) X(numbers_left) X(exits) X(renamed) X(shares) X(interrupted_calls) \
    X(interrupted_by) X(masks) X(moments) X(renumbers) X(closed_by_handlers) X(pipes) X(filters) X(sandboxes) X(forking_threads) \
    X(other_threads) X(failing_programs) X(becoming) X(holders) X(last_words) X(refusals) X(flags_of_others) X(numbered_again) \
    X(limited) X(locked) X(parts) X(free_numbers) X(shared_single_events) X(bridged_member) X(shared_instances) X(ways) \
    X(standard) X(requests) X(given_again) X(early_registered) X(early_instances) X(early_connects) X(early_shut) X(early_urgent) \
    X(early_threads) X(early_closed) X(early_forked) X(nothing) X(tells_left) X(odd_files) X(odd_times)

#define DECLARE(name) void name(int a, int b);
FOR_ALL_CASES(DECLARE)
#undef DECLARE
int past(int count, char **words);

#endif
