/* Threads of the core: a small stack, and all signals blocked, since those are the program's. */
#pragma once

#include "os/syscalls.h"

/* Starts a thread. Returns 0, or an error number. */
static inline int fs_background_thread(pthread_t *started, void *(*body)(void *), void *argument) {
    sigset_t all, old;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 128 * 1024);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int failed = fs_system.pthread_create(started, &attributes, body, argument);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attributes);
    return failed;
}
