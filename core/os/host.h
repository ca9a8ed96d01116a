/* What the core asks of its front end (CPython, or a program in C). The front end fills `fs_host` before its first connection. */
#ifndef FASTSOCK_HOST_H
#define FASTSOCK_HOST_H

#include <stdint.h>

/* `let_go` gives up what other threads of the front end need to run (CPython's GIL), if this thread has it; `take_again`
 * gets what `let_go` returned, and waits for it without a lock of the core. A front end without such a thing leaves both NULL.
 *
 * `keeps_apart`: two threads are never at once in functions that change the life of one connection (state.h), because each has a lock
 * then that the other one waits for, or because there is one thread. Then a load and a store change the word of that life, and not a
 * locked instruction, which costs some 10 ns twice a call. 0 is always right. */
struct fs_host {
    void *(*let_go)(void);
    void (*take_again)(void *);
    int keeps_apart;
};

extern struct fs_host fs_host;

/* The process that this code runs in, and the PID namespace of it (0: unknown). Set again in a forked child. */
extern uint32_t fs_own_pid, fs_own_pid_ns;

static inline void *fs_host_unlock(void) { return fs_host.let_go ? fs_host.let_go() : 0; }
static inline void fs_host_lock(void *given) {
    if (given) fs_host.take_again(given);
}

#endif
