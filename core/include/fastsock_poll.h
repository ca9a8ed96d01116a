/* epoll, poll and select on connections: a part of fastsock.h, which includes this file.
 *
 * A front end has one poller for each epoll instance of its program, and one for each thread that calls poll or select. What a poller is
 * asked and answers is what the kernel's calls of these names are asked and answer, for members on the ring and for other descriptors.
 *
 *     it = fs_pollable_of(c);                                 a connection's place in pollers
 *     p = fs_poller_new(epoll, &failed);                      the program's own epoll instance
 *     fs_poller_ctl(p, EPOLL_CTL_ADD, fd, it, &event);        `it` NULL: a descriptor of the kernel's
 *     fs_poller_wait(p, epoll, events, max, timeout, NULL);
 *     fs_poller_close_number(it, fd, 1);                      before close(2) of the socket's last number
 *     fs_poller_end(p);                                       before close(2) of the instance's last number
 *
 * `polls` of struct fs_front_end is set. Pollers have no use for the host lock, but locks of their own: no signal handler may call a
 * function of this file but fs_is_poller_data. A handler that uses connections is put off while its thread is in such a function, but for
 * the time between `before_sleep` and `after_sleep` of struct fs_front_end. Arrays and sets are used during the call only. */
#ifndef FASTSOCK_POLL_H
#define FASTSOCK_POLL_H

#include "fastsock_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the connection's place in pollers, also before it is open, and for a socket that may become a connection. It lies in the
 * connection's memory, and is there as long. [any] */
struct fs_pollable *fs_pollable_of(struct fs_connection *c);

/* Returns true if data of the program's lie in the range that pollers use, so that fs_poller_ctl has to make the registration. [any] */
int fs_is_poller_data(uint64_t data);

/* Makes a poller for the program's epoll instance `epoll`; or with -1 for a thread that polls. It takes no descriptor before its first
 * member is on the ring. Returns NULL after an error, with `*failed` set to it as -errno; else `*failed` is 0.
 * Errors: ENOMEM. [any] */
struct fs_poller *fs_poller_new(int epoll, int *failed);

/* Called before the program closes the number by which the instance is known here. `epoll`: another number of it. [any] */
void fs_poller_set_number(struct fs_poller *p, int epoll);

/* Called before the program closes the last number of the instance, or when the thread ends. Threads that wait on it go on waiting, as
 * they do on the kernel's. The poller is not used any more. [any] */
void fs_poller_end(struct fs_poller *p);

/* epoll_ctl(2). `it`: of a socket that is a connection or may become one; NULL: a descriptor of the kernel's. `event` is read as the
 * kernel reads it, and not at all by EPOLL_CTL_DEL. Returns 0 or -errno.
 * Errors: those of epoll_ctl(2): EBADF, EEXIST, EFAULT, EINVAL, ELOOP, ENOENT, ENOMEM, ENOSPC, EPERM. [any] */
int fs_poller_ctl(struct fs_poller *p, int op, int fd, struct fs_pollable *it, const struct epoll_event *event);

/* epoll_pwait2(2) by the number `epoll`, one of the instance's. `timeout`: ns, negative: none. `mask` is in force while the thread
 * sleeps; NULL: the thread's own. Returns the number of events, 0 when the time is over, or -errno. Blocks.
 * Errors: EINTR (a signal), EBADF (the instance is closed), EFAULT, EINVAL (`max` is not positive, or `epoll` is no instance). [any] */
int fs_poller_wait(struct fs_poller *p, int epoll, struct epoll_event *events, int max, int64_t timeout, const sigset_t *mask);

/* Begins a wait that the kernel alone can answer. `sleeps`: its timeout is not 0. Returns true if no member is on the ring: the front end
 * then calls the kernel's epoll_wait itself, and fs_poller_end_kernel_wait with its result. A member that moves to the ring meanwhile ends
 * the sleep. [any] */
int fs_poller_begin_kernel_wait(struct fs_poller *p, int sleeps);

/* Called after that wait: `events` become the program's. Returns how many they are, or `count` if that is 0 or less. If it returns 0, and
 * `count` was more, the wait goes on with fs_poller_wait. [any] */
int fs_poller_end_kernel_wait(struct fs_poller *p, int sleeps, struct epoll_event *events, int count);

/* ppoll(2). `its`: for each of `fds` the pollable, or NULL for a descriptor of the kernel's. `p` is this thread's. The caller is inside
 * each connection that is named, also those that are not on the ring but may move. `timeout`: ns, negative: none. Returns the number of
 * descriptors with events, 0 when the time is over, or -errno. Blocks.
 * Errors: EINTR (a signal), EINVAL (more descriptors than RLIMIT_NOFILE), ENOMEM. [inside] */
int fs_poller_poll(struct fs_poller *p, struct pollfd *fds, struct fs_pollable *const *its, nfds_t count, int64_t timeout,
                   const sigset_t *mask);

/* Writes the descriptors that select(2) names to `fds`, as poll has them; there is room for `count`. Returns how many. A NULL set is
 * empty. [any] */
int fs_select_to_poll(int count, const fd_set *reads, const fd_set *writes, const fd_set *excepts, struct pollfd *fds);

/* Rewrites the sets to what poll has found, as select reports it. Returns how many bits are set, or -errno.
 * Errors: EBADF (one of `fds` is not open); the sets are unchanged then. [any] */
int fs_poll_to_select(const struct pollfd *fds, int n, int count, fd_set *reads, fd_set *writes, fd_set *excepts);

/* Called when somebody polls the instance's number, or adds it to another instance: from now on it is readable while a member is ready,
 * between the program's waits too. [any] */
void fs_poller_expose(struct fs_poller *p);

/* Called when a send that does not wait got -EAGAIN or sent a part: the next room is an edge, as on kernel TCP (SOCK_NOSPACE). [any] */
void fs_poller_sent_part(struct fs_pollable *it);

/* Called before the program closes the number `fd` of the socket. `last`: no other number of this process means the socket. A member by
 * that number is removed if it was the last one. Otherwise its events are still reported, and it can no longer be changed, as in the
 * kernel. [any] */
void fs_poller_close_number(struct fs_pollable *it, int fd, int last);

/* ---- pollers in a fork (fastsock_fork.h) ------------------------------------------------------------------------------------------ */

/* Called before the next two, and of a poller that is made later: the bit by which processes that share the instance know it
 * (core/ready/inherited.c). [any] */
void fs_poller_share(struct fs_poller *p, uint64_t family);

/* Called in a fork's parent, once the fork is over, for each poller: the child may take a wakeup that was meant for this process. [any] */
void fs_poller_forked(struct fs_poller *p);

/* Called in a forked child, for each poller, after fs_fork_in_child. What the parent had registered stays registered as long as it has
 * the sockets, whatever the child closes. [any] */
void fs_poller_after_fork(struct fs_poller *p);

#ifdef __cplusplus
}
#endif

#endif
