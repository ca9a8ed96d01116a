/* Forks, execve(2) and the control thread: a part of fastsock.h, which includes this file.
 *
 *     fs_fork_prepare(0);                    with the host lock, which is kept until after the fork
 *     child = fork();
 *     if (child) fs_fork_in_parent(0, 1);    also if fork has failed, with its errno
 *     else {
 *         fs_fork_in_child(0);
 *         for each connection that is open: fs_call_enter, fs_fork_restart, fs_call_exit
 *     }
 *
 * No function here fails, and no signal handler may call one. A child of a fork that was not announced makes no calls of this library. */
#ifndef FASTSOCK_FORK_H
#define FASTSOCK_FORK_H

#include "fastsock_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Announces that this thread is about to fork. Forks come one after another: waits until none of another thread's is under way. Then it
 * stops the control thread, and waits until no other thread attaches a connection. `bare`, here and below: the fork runs no handlers of
 * pthread_atfork(3), as _Fork(3) and clone(2). Blocks. [host lock, which is unlocked meanwhile, and then kept until after the fork] */
void fs_fork_prepare(int bare);

/* The fork is over, in the parent; or did not happen, and errno says why. The control thread starts again if it was there and `starts`;
 * otherwise fs_start_control_thread starts it. [host lock] */
void fs_fork_in_parent(int bare, int starts);
void fs_start_control_thread(void);

/* In the child, with this thread alone: it holds the connections now. fs_fork_restart follows for each of them, after an fs_call_enter
 * and fs_call_exit, which end a connection whose close waited for calls of threads that are not here. [host lock] */
void fs_fork_in_child(int bare);

/* In the child, for a connection: a search starts again once this process is the only holder, and requests of an attached one's peer are
 * answered here. [host lock] */
void fs_fork_restart(struct fs_connection *c);

/* Announces with 1 that this thread is about to call execve(2), which closes what has not gone back to the kernel. Until execve has
 * succeeded, all goes on. Then the kernel tells the peers, and this process counts no more as a holder. With 0: execve has returned. One
 * thread at a time. [1: host lock, which is not kept; 0: any] */
void fs_expect_exec(int comes);

/* Stops the control thread: for a fork (fs_fork_prepare does), or because this process shall make no more calls of its own. None is
 * started before the fork is over. Several threads may do so at once: one joins the thread, and the others wait for that. Nobody waits
 * long: a thread that an untrusted user blocks in a call ends later, and holds no lock meanwhile. [host lock] */
void fs_control_thread_stop(void);

/* Called after each fs_control_thread_stop that no fork follows: the thread starts again if it is wanted. `renamed`: the process may be
 * in another user namespace by now, where the numbers of users mean others. [host lock] */
void fs_control_thread_resume(int renamed);

#ifdef __cplusplus
}
#endif

#endif
