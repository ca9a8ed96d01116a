/* What this front end knows of its process and its threads: words that every file may look at. */
#pragma once

#include "libc_functions.h" /* first */

#include <sched.h>

#include "atomics.h"
#include "fastsock.h"

#pragma GCC visibility push(hidden)

#define ip_unlikely(condition) __builtin_expect(!!(condition), 0)
#define ip_likely(condition) __builtin_expect(!!(condition), 1)

/* Of a variable at which most calls look that make and end connections: these lie together, in one or two lines of the cache. (After a call
 * of the kernel's hardly any line of this library's is in the first cache.) */
#define IP_EACH_CALL __attribute__((section("ip_each_call")))

/* Of a variable that each forked child writes: these lie together, with the core's (FS_EACH_FORK), in one page that it gets for them. */
#define IP_EACH_FORK __attribute__((section("each_fork")))

/* ---- the process --------------------------------------------------------------------------------------------------- */

/* What this front end does in the process (install.c, ip_before_sandbox). Changes with the lock; relaxed: the calls of other threads that
 * it ends go on as they have begun. */
extern fs_word32 ip_activity;
enum {
    IP_INACTIVE,
    IP_ENDING,   /* serves what there is, */
    IP_CLAIMING, /* and sockets that the Python package claims, */
    IP_TAKING,   /* and all new ones */
};

extern fs_word32 ip_is_serving; /* the core's front end is this one: fs_libc_serves. With the lock */

/* What files above this one do for those below them; install.c says it, before anything else runs. */
extern struct ip_above {
    void (*look_again)(void); /* before a connection moves: at slots that threads were about to fill meanwhile. Without the lock */
    void (*end_if_unneeded)(void);
} ip_above;

/* The end of the front end, if it was asked for and nothing needs it any more. With the lock. */
static inline void ip_end_if_unneeded(void) {
    if (__builtin_expect(ip_load_relaxed(&ip_activity) == IP_ENDING, 0)) ip_above.end_if_unneeded();
}

static inline int ip_is_active(void) { return ip_load_relaxed(&ip_activity) != IP_INACTIVE; }
static inline int ip_is_taking(void) { return ip_load_relaxed(&ip_activity) == IP_TAKING; }
static inline int ip_is_claiming(void) { return ip_load_relaxed(&ip_activity) >= IP_CLAIMING; }

extern fs_word32 ip_sandboxed; /* the program may have filtered its system calls: the core makes those alone that a filter may know */

/* True in the process that this front end serves: not in a child of vfork, which runs in its memory, nor in one that was forked past us. */
extern fs_word32 *ip_original_mark; /* 0 in a copy of this process's memory, however it was made; relaxed */
extern fs_word32 ip_memory_shared;  /* other processes run in this memory, or may: ask; relaxed */
int ip_ask_process(void) __attribute__((cold));
void ip_claim_memory(void); /* this process is the one that is served */
static inline int ip_is_own_process(void) {
    return ip_likely(ip_load_relaxed(ip_original_mark) && !ip_load_relaxed(&ip_memory_shared)) || ip_ask_process();
}

/* A clone with these flags makes a process with a copy of the memory, as fork(2) does. */
static inline int ip_makes_process(uint64_t flags) { return !(flags & (CLONE_VM | CLONE_SETTLS)); }

/* ---- the thread ---------------------------------------------------------------------------------------------------- */

struct ip_thread {
    int busy;       /* handlers of the program are put off */
    int has_lock;   /* its mutex: how often */
    int may_sleep;  /* the next sleep of the core is a call's wait (ip_sleep) */
    int sleeps;     /* enum ip_sleeps, of sleep_call.h */
    int pending;    /* something is put off: handlers, */
    int cancelled;  /* or the thread's end */
    int forking;    /* between the two handlers of its fork, and the lock is held: how deep */
    uintptr_t handler; /* the frame from which the innermost handler of the program was called; 0: none */
    int forks_quietly; /* its forks leave the control thread stopped (fs_libc_fork_quietly) */
    uint32_t ran;   /* handlers that ran in this thread, */
    uint32_t ended; /* and those of them that end a call (no SA_RESTART) */
};
extern __thread struct ip_thread ip_thread __attribute__((tls_model("initial-exec")));

/* False: no other thread runs the program's code, nor does while this one sleeps. (The C library knows of all threads that it makes, for
 * whichever of its functions, and of the core's; its own malloc(3) goes by that. An older one does not say.) */
extern ip_atomic_ptr(const char) ip_is_single; /* where the C library says so, or where it says no; relaxed */
void ip_note_threads(void);                    /* clone(2) is about to make one that the C library does not know */
static inline int ip_has_threads(void) { return !*ip_load_relaxed(&ip_is_single); }

extern fs_word32 ip_copied_past; /* this process is a copy of one with threads, made without the C library (_Fork(3)); relaxed */

/* True where the C library may be asked for threads and for the loader's lists: not in a handler, whose thread may be within malloc(3), nor
 * where another thread of the parent's may have been when the copy was made. (A handler that left by longjmp(3) has its frame below who is
 * asking.) */
static inline int ip_may_use_libc(void) {
    uintptr_t here = (uintptr_t)__builtin_frame_address(0), frame = ip_thread.handler;
    return !(here < frame && frame - here < 1 << 20) && !ip_load_relaxed(&ip_copied_past);
}

/* A handler has forked, and could not start the core's control thread again: the next wait does. Relaxed. */
extern fs_word32 ip_thread_due;

void ip_run_handlers(void) __attribute__((cold)); /* what was put off. Not while busy */

static inline void ip_enter(void) {
    ip_thread.busy++;
    ip_compiler_barrier();
}
static inline void ip_leave(void) {
    ip_compiler_barrier();
    if (--ip_thread.busy == 0 && ip_unlikely(ip_thread.pending)) ip_run_handlers();
}

extern fs_word32 ip_cancels; /* the program has cancelled threads; relaxed */

/* Where a call begins that need not sleep. Not inside. */
static inline void ip_cancellation_point(void) {
    if (ip_unlikely(ip_load_relaxed(&ip_cancels)) && !ip_thread.busy) pthread_testcancel();
}

#pragma GCC visibility pop
