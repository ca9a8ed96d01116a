/* The connection thread: it meets who comes to published names (listener.h), and answers requests (control_requests.h). It is a
 * native thread that needs no lock of the front end: so neither does it disturb the program nor does a computing
 * program keep a peer waiting. It stops before a fork and starts again with the next use.
 *
 * All of these with the front end's lock. */
#ifndef FASTSOCK_CONTROL_THREAD_H
#define FASTSOCK_CONTROL_THREAD_H

#include <stddef.h>
#include <stdint.h>

enum { FS_NO_THREAD = -100003 }; /* of fs_control_thread_start: the system makes none, or the last one has not ended yet */

/* Starts the connection thread if it does not run: at the first use, and again after a fork. While a fork is under way
 * it is only noted: the thread starts when that is over, as the child must find its locks free. 0, or -errno without
 * descriptors, or FS_NO_THREAD. May let go of the front end's lock. */
int fs_control_thread_start(void);

/* ---- forks ------------------------------------------------------------------------------------------------- */

/* Before a fork: a thread does not survive it, and its locks must be free. No thread is started before
 * `fs_control_thread_after_fork`. Several threads may fork at once: one of them joins the thread, and the others wait for that. Nobody waits
 * long: a thread that a stranger holds in a call ends when it can, and has no lock meanwhile. */
void fs_control_thread_stop(void);

void fs_control_thread_after_fork(void);   /* in the parent, after each fs_control_thread_stop, whether or not there is a child */
int fs_forks_under_way(void); /* how many forks of this process are */

/* Returns true if a fork has stopped or delayed the thread, or it could not be started, and nobody has started it since. */
int fs_control_thread_is_wanted(void);

/* Starts the thread if a fork has stopped or delayed it, and no fork is under way. As fs_control_thread_start; then somebody
 * tries again. */
int fs_control_thread_restart(void);

/* The loops of this process are woken, each of which takes a step of a connection then (FS_THREAD_LATER), for who may not start the
 * thread now, and whose program may make no call. */
void fs_wake_loops(void);

/* In the child: what the parent published is the parent's, and so is its epoll. */
void fs_control_forget(void);

/* Bytes that nobody guesses. 0 or -errno. Blocks while the system is starting and has none yet: it lets go of the front
 * end's lock. */
int fs_random_bytes(void *into, size_t size);

/* ---- for the rest of this room ---------------------------------------------------------------------------- */

/* Which thread it is: another one once it was given up. Needs no lock. */
uint32_t fs_control_thread_generation(void);

void fs_control_thread_kick(void); /* it looks at the deadlines again */

/* The thread calls fs_accept_hello with this handle when something happens at the socket. Under the table lock. */
void fs_control_watch_socket(int fd, uint64_t handle);

/* The socket for requests, to send from: who gets something by it knows that this process sent it. -1: it is not ours any more. With the
 * front end's lock. */
int fs_request_socket(void);

int fs_control_eventfd(void); /* the thread's own. For that thread alone */

uint64_t fs_request_token(void); /* where this process is asked; 0: nowhere yet */

#endif
