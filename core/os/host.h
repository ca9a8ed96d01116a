/* The core's interface to its front end. The front end fills `fs_host` before its first connection. */
#pragma once

#include <pthread.h>
#include <stdint.h>

#include "os/syscalls.h"

/* `unlock` releases the host lock if this thread has it. `lock` takes it again: it is called with the value that `unlock`
 * returned, and waits with no lock of the core held. A front end without such a lock leaves both NULL. */
struct fs_host {
    void *(*unlock)(void);
    void (*lock)(void *);
};

extern struct fs_host fs_host;

extern uint32_t fs_own_pid; /* this process */

/* Of a variable that each forked child writes, and of a function that runs there: the ones lie in one page, which it gets for them, and the
 * others side by side. (A fault of a page costs 0.5 to 6 us, by the machine.) */
#define FS_EACH_FORK __attribute__((section("each_fork")))
#define FS_AT_FORK __attribute__((hot))

/* In a forked child: the lock is free, whichever thread of the parent's had it. */
void fs_renew_lock(pthread_mutex_t *lock);

void fs_become_process(void); /* this one is: at the beginning, and in a forked child */

/* Returns the PID namespace of this process, its inode in nsfs, which never changes; 0 if unknown. Asks the kernel once. */
uint32_t fs_own_pid_ns(void);

static inline void *fs_host_unlock(void) { return fs_host.unlock ? fs_host.unlock() : 0; }
static inline void fs_host_lock(void *given) {
    if (given) fs_host.lock(given);
}

static inline void fs_short_sleep_unlocked(void) { /* a nap without the host lock */
    void *host_state = fs_host_unlock();
    fs_short_sleep();
    fs_host_lock(host_state);
}
