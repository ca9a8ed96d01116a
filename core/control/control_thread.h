/* The control thread: it serves incoming peers at published names (listener.h) and answers requests (control_requests.h). It is a
 * native thread without the host lock: it does not disturb the program, and a computing program does not keep a peer waiting. It stops
 * before a fork and starts again with the next use.
 *
 * All of these need the host lock. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { FS_NO_THREAD = -100003 }; /* returned if no thread can be made, or the last one has not ended yet */

/* Starts the control thread if it does not run: at the first use, and after a fork. During a fork the start is only noted, as the
 * child must find the thread's locks free. Returns 0, -errno without descriptors, or FS_NO_THREAD. May unlock and relock the host lock. */
int fs_control_thread_start(void);

/* ---- forks ------------------------------------------------------------------------------------------------- */

void fs_control_thread_after_fork(void);   /* call in the parent after each fs_control_thread_stop, also if the fork failed */
int fs_forks_under_way(void); /* the number of forks of this process just now */

/* Starts the thread if it is wanted and no fork is under way. Returns as fs_control_thread_start; after a failure it is still wanted. */
int fs_control_thread_restart(void);

/* For a forked child: drops the parent's names and descriptors. */
void fs_control_forget(void);

/* Fills `into` with unpredictable bytes. Returns 0 or -errno. Unlocks the host lock, since it blocks while the system starts and has
 * none yet. */
int fs_random_bytes(void *into, size_t size);
