/* Forks, threads, other programs, and the end of the process: process.c, own_tables.c, other_programs.c, going_without.c. */
#pragma once

#include "interpose.h"

#pragma GCC visibility push(hidden)

void ip_begin_end(void); /* of the process: the handlers of its exit */
int ip_begin_forks(void); /* 0, or it has failed */
int ip_fork_is_under_way(void); /* With the lock */
void ip_prepare_fork(void);     /* what the core asks for before a fork. With the lock */
void ip_each_connection(void (*body)(struct fs_connection *c, void *with), void *with); /* that is open. With the lock */

void ip_before_thread_with_table(void); /* with numbers of its own (own_tables.c) */
/* While the core's is stopped: the process has no other thread than this one. Naps so often before it says no. */
int ip_has_one_thread(int naps);

/* A process is about to be made with these flags: one that is no thread and has this memory shares it from its first instruction on. */
static inline void ip_before_clone(uint64_t flags) {
    if (flags & CLONE_THREAD) ip_note_threads();
    else if (flags & CLONE_VM) ip_store_relaxed(&ip_memory_shared, 1);
    if (flags & CLONE_THREAD && !(flags & CLONE_FILES)) ip_before_thread_with_table();
}

/* The program is about to filter its system calls (seccomp(2)), with a filter that knows its calls and not the core's and may kill for
 * them; or to set itself a limit below which nothing can be opened, as such programs do first. From here on it does what it does without
 * us. */
void ip_before_sandbox(void);

/* From here on this process does what it does without us: what is on the ring goes back to the kernel. With the lock. */
void ip_go_without(void);

/* The thread is about to get a table of descriptors of its own, or to make a thread that has one (own_tables.c). Returns true if it has the
 * lock then, and the core has no thread, until ip_after_own_table. */
int ip_before_own_table(void);
void ip_after_own_table(void);

/* The environment for a program that is about to be started: without this library, if that cannot have it. `file` may be a name on the
 * PATH. ip_forget_environment follows if the program was not started, or is another process. */
struct ip_own_environment { void *memory; size_t size; };
char *const *ip_environment_for(const char *file, char *const *environment, struct ip_own_environment *own);
void ip_forget_environment(struct ip_own_environment *own);

long ip_fork_by_number(long number, const long a[6]); /* the call is one that forks */

#pragma GCC visibility pop
