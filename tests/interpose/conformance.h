/* What the C library's calls do on a stream of the kernel's: what the files of the cases share. A case has the two ends of a connection of this
 * process, which was used for a while, so that it has moved where it can. It prints what it gets. */
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

void data(int a, int b);
void whole(int a, int b);
void ways(int a, int b);
void standard(int a, int b);
void requests(int a, int b);
void given_again(int a, int b);
void messages(int a, int b);
void files(int a, int b);
void urgent(int a, int b);
void options(int a, int b);
void fills(int a, int b);
void copies(int a, int b);
void greedy(int a, int b);
void ends(int a, int b);
void resets(int a, int b);
void polls(int a, int b);
void abandoned(int a, int b);
void closed_instances(int a, int b);
void epolls(int a, int b);
void late(int a, int b);
void hangups(int a, int b);
void signals(int a, int b);
void interrupted_calls(int a, int b);
void interrupted_by(int a, int b);
void masks(int a, int b);
void moments(int a, int b);
void renumbers(int a, int b);
void closed_by_handlers(int a, int b);
void pipes(int a, int b);
void threads(int a, int b);
void closed(int a, int b);
void closed_copies(int a, int b);
void deaths(int a, int b);
void streams(int a, int b);
void orphan(int a, int b);
void passed(int a, int b);
void inherits(int a, int b);
void spliced(int a, int b);
void forks(int a, int b);
void forked_waits(int a, int b);
void forked_alone(int a, int b);
void forked_past(int a, int b);
void programs(int a, int b);
int past(int count, char **words);
void cancelled(int a, int b);
void leaps(int a, int b);
void spawns(int a, int b);
void daemons(int a, int b);
void changes(int a, int b);
void filtered(int a, int b);
void numbers_left(int a, int b);
void exits(int a, int b);
void renamed(int a, int b);
void shares(int a, int b);
void filters(int a, int b);
void forking_threads(int a, int b);
void other_threads(int a, int b);
void failing_programs(int a, int b);
void becoming(int a, int b);
void holders(int a, int b);
void last_words(int a, int b);
void refusals(int a, int b);
void flags_of_others(int a, int b);
void numbered_again(int a, int b);
void limited(int a, int b);
void locked(int a, int b);
void parts(int a, int b);
void free_numbers(int a, int b);
void shared_single_events(int a, int b);
void bridged_member(int a, int b);
void shared_instances(int a, int b);
void early_registered(int a, int b);
void early_instances(int a, int b);
void early_connects(int a, int b);
void early_shut(int a, int b);
void early_urgent(int a, int b);
void early_threads(int a, int b);
void early_closed(int a, int b);
void early_forked(int a, int b);
void nothing(int a, int b);
void tells_left(int a, int b);
void odd_files(int a, int b);
void odd_times(int a, int b);

#endif
