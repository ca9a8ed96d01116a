/* The front end's functions and the identity of this process. */
#include "os/host.h"

#include "os/atomics.h"

struct fs_host fs_host;
uint32_t FS_EACH_FORK fs_own_pid;

static fs_word64 FS_EACH_FORK pid_ns; /* + 1; 0: nobody has asked. Relaxed: who asks at the same time gets the same answer */

void FS_AT_FORK fs_become_process(void) {
    fs_own_pid = (uint32_t)getpid();
    fs_store_relaxed(&pid_ns, 0);
}

/* (One that is free already is not written: the child would get a page for it.) */
void FS_AT_FORK fs_renew_lock(pthread_mutex_t *lock) {
    static const pthread_mutex_t made = PTHREAD_MUTEX_INITIALIZER;
    if (memcmp(lock, &made, sizeof made)) *lock = made;
}

uint32_t fs_own_pid_ns(void) {
    uint64_t known = fs_load_relaxed(&pid_ns);
    struct stat s;
    if (!known) {
        known = 1 + (uint64_t)(fs_system.stat("/proc/self/ns/pid", &s) == 0 ? (uint32_t)s.st_ino : 0);
        fs_store_relaxed(&pid_ns, known);
    }
    return (uint32_t)(known - 1);
}
