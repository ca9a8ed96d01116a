/* A robust lock in memory that the threads and forked processes of a side share.
 *
 * The word holds the thread id of the holder. The kernel releases the lock of a thread that dies: while a thread takes or holds a lock,
 * the lock is on the thread's list of robust futexes (get_robust_list(2)). When the thread ends for any reason (SIGKILL, an exec by
 * another thread), the kernel walks the list before the process is even a zombie, and replaces the id by FUTEX_OWNER_DIED. So no holder
 * is judged by its id, which may be reused or belong to another namespace, and a stopped holder keeps its lock. The next holder learns
 * of the death (FS_LOCK_OWNER_DIED) and must recover the half-done state.
 *
 * A thread has only one list, the C library's. We use its slot for the pending operation, which the C library needs only within calls on
 * its own robust mutexes; none is made while one of our locks is held. A lock during which another one is taken moves to the list itself
 * (fs_lock_push).
 *
 * A lock is held for a few hundred nanoseconds (a copy at most) and never across a wait or a call into Python. Unlocking wakes nobody,
 * since that would cost every unlock more than the store. Waiters look again. */
#pragma once

#include <linux/futex.h>
#include <stddef.h>

#include "os/atomics.h"
#include "os/syscalls.h"

#define FS_ROBUST_OFFSET (-32) /* from the list entry to the word, as in the C library's mutexes */

struct fs_robust_lock {
    fs_word32 word; /* 0, or the thread id of the holder, or FUTEX_OWNER_DIED */
    uint32_t unused[7];
    struct robust_list entry;
};
_Static_assert(offsetof(struct fs_robust_lock, word) - offsetof(struct fs_robust_lock, entry) == (size_t)FS_ROBUST_OFFSET,
               "where the kernel looks for the word");

/* A thread's own id and list, found once in each process. */
struct fs_robust_thread {
    uint32_t process, thread;
    struct robust_list_head *list; /* the kernel's list of this thread */
    struct robust_list_head spare; /* a list for threads without one of the C library's: in a process that clone(2) made */
};

/* No call into the C library for TLS, in a program or in a library. (In a program the linker would turn the second model into the first,
 * by an instruction that sets no flags: gcc 12 relies on them where it looks for null pointers, under UBSan.) */
#if defined(__PIC__) && !defined(__PIE__)
#define FS_TLS_MODEL __attribute__((tls_model("initial-exec")))
#else
#define FS_TLS_MODEL __attribute__((tls_model("local-exec")))
#endif

extern __thread struct fs_robust_thread fs_robust_thread FS_TLS_MODEL;

/* Fills in the thread's id and list. */
void fs_robust_thread_init(struct fs_robust_thread *me, uint32_t process);

/* `process` is the caller's, so that a forked child does not use its parent's values. */
static inline struct fs_robust_thread *fs_current_thread(uint32_t process) {
    struct fs_robust_thread *me = &fs_robust_thread;
    if (__builtin_expect(me->process != process, 0)) fs_robust_thread_init(me, process);
    return me;
}

static inline void fs_set_pending(struct fs_robust_thread *me, struct robust_list *entry) {
    fs_compiler_barrier(); /* the kernel looks at this thread's memory between two of its instructions */
    *(struct robust_list *volatile *)&me->list->list_op_pending = entry;
    fs_compiler_barrier();
}

enum fs_lock_result {
    FS_LOCK_BUSY = 0,
    FS_LOCK_TAKEN = 1, /* the caller has the lock */
    FS_LOCK_OWNER_DIED = 2,  /* the same, and the last holder died with the lock held */
};

/* Tries once. Never waits. */
static inline int fs_robust_trylock(struct fs_robust_lock *lock, uint32_t process) {
    struct fs_robust_thread *me = fs_current_thread(process);
    fs_set_pending(me, &lock->entry);
    /* SYNC: side lock - pairs with fs_robust_unlock. */
    if (fs_cas32(&lock->word, 0, me->thread)) return FS_LOCK_TAKEN;
    if (fs_load_relaxed(&lock->word) & FUTEX_OWNER_DIED && fs_cas32(&lock->word, FUTEX_OWNER_DIED, me->thread))
        return FS_LOCK_OWNER_DIED;
    fs_set_pending(me, NULL);
    return FS_LOCK_BUSY;
}

static inline void fs_robust_unlock(struct fs_robust_lock *lock) {
    /* SYNC: side lock - pairs with the swap in fs_robust_trylock. */
    fs_store_release(&lock->word, 0);
    fs_set_pending(&fs_robust_thread, NULL);
}

/* Releases an inherited lock that the caller cannot recover: the next holder gets FS_LOCK_OWNER_DIED too. */
static inline void fs_unlock_owner_died(struct fs_robust_lock *lock) {
    /* SYNC: side lock - pairs with the swap in fs_robust_trylock. */
    fs_store_release(&lock->word, FUTEX_OWNER_DIED);
    fs_set_pending(&fs_robust_thread, NULL);
}

/* Puts a word on the list of this thread. */
static inline void fs_lock_link(struct fs_robust_lock *lock) {
    struct robust_list *first = &fs_robust_thread.list->list;
    lock->entry.next = first->next;
    fs_compiler_barrier();
    first->next = &lock->entry;
}

/* Keeps a lock while others are taken. Such locks end in reverse order: fs_lock_pop, fs_robust_unlock. */
static inline void fs_lock_push(struct fs_robust_lock *lock) {
    fs_lock_link(lock);
    fs_set_pending(&fs_robust_thread, NULL);
}

static inline void fs_lock_pop(struct fs_robust_lock *lock) {
    fs_set_pending(&fs_robust_thread, &lock->entry);
    fs_robust_thread.list->list.next = lock->entry.next;
}

/* Returns true if the lock could be taken now. */
static inline int fs_lock_is_free(const struct fs_robust_lock *lock) {
    return !(fs_load_relaxed((fs_word32 *)&lock->word) & FUTEX_TID_MASK);
}

/* Waits until the lock could be taken, at most some 10 ms; the caller tries again. Call without a lock. Holders are
 * quick unless they lost the CPU, which a yield may give them, or are stopped. */
static inline void fs_lock_wait(const struct fs_robust_lock *lock) {
    struct timespec nap = {0, 50000};
    for (int looks = 0; looks < 64; looks++) {
        if (fs_lock_is_free(lock)) return;
        fs_cpu_relax();
    }
    for (int looks = 0; looks < 64; looks++) {
        sched_yield();
        if (fs_lock_is_free(lock)) return;
    }
    for (int naps = 0; naps < 12 && !fs_lock_is_free(lock); naps++) {
        fs_system.nanosleep(&nap, NULL);
        if (nap.tv_nsec < 1000000) nap.tv_nsec *= 2;
    }
}

/* For a thread that has nothing else to do and no lock. Returns FS_LOCK_TAKEN or FS_LOCK_OWNER_DIED. */
static inline int fs_robust_lock(struct fs_robust_lock *lock, uint32_t process) {
    int result;
    while (!(result = fs_robust_trylock(lock, process))) fs_lock_wait(lock);
    return result;
}
