/* The only file of fastsock that touches atomics. Everything that crosses a thread or a process goes
 * through these few names, so that a memory order is never chosen in passing.
 *
 *   fs_load_acquire / fs_store_release   publish and observe: what was written before the store is seen
 *                                        after the load that read it. Each use carries a `SYNC:` label that
 *                                        stands at both of its ends.
 *   fs_load_sc / fs_store_sc / fs_or_sc  for the two "I write mine, then read yours" handshakes (doorbell and
 *                                        credits), where acquire and release are not enough: both sides could
 *                                        miss each other. Sequentially consistent operations on both words
 *                                        forbid that outcome without a separate fence (which ThreadSanitizer
 *                                        would not understand).
 *   fs_load_relaxed / fs_store_relaxed   a word with one writer that is read by others only as a hint, or
 *                                        that is ordered by a neighbouring store.
 *   fs_count                             statistics: of two threads that count at once, one may be missed.
 */
#ifndef FASTSOCK_ATOMICS_H
#define FASTSOCK_ATOMICS_H

#include <stdatomic.h>
#include <stdint.h>

typedef _Atomic uint32_t fs_word32;
typedef _Atomic uint64_t fs_word64;
#define fs_atomic_ptr(type) _Atomic(type *)

_Static_assert(sizeof(fs_word32) == 4 && sizeof(fs_word64) == 8, "atomics must not hide a lock");

#define fs_load_acquire(p) atomic_load_explicit((p), memory_order_acquire)
#define fs_store_release(p, v) atomic_store_explicit((p), (v), memory_order_release)
#define fs_load_sc(p) atomic_load_explicit((p), memory_order_seq_cst)
#define fs_store_sc(p, v) atomic_store_explicit((p), (v), memory_order_seq_cst)
#define fs_or_sc(p, v) atomic_fetch_or_explicit((p), (v), memory_order_seq_cst)
#define fs_and_sc(p, v) atomic_fetch_and_explicit((p), (v), memory_order_seq_cst)
#define fs_add_sc(p, v) atomic_fetch_add_explicit((p), (v), memory_order_seq_cst)
#define fs_exchange_sc(p, v) atomic_exchange_explicit((p), (v), memory_order_seq_cst)
#define fs_load_relaxed(p) atomic_load_explicit((p), memory_order_relaxed)
#define fs_store_relaxed(p, v) atomic_store_explicit((p), (v), memory_order_relaxed)

/* What a side keeps for itself: relaxed, and no place where a peer could interfere, which the tests look for. */
static inline uint32_t fs_load_own32(const fs_word32 *p) { return fs_load_relaxed((fs_word32 *)p); }
static inline void fs_count(fs_word64 *p, uint64_t n) { fs_store_relaxed(p, fs_load_relaxed(p) + n); }

/* Keeps the compiler from moving a thread's accesses across: for whoever sees them between two of its instructions, be it a
 * signal's end of the process. Costs nothing. */
static inline void fs_compiler_barrier(void) { atomic_signal_fence(memory_order_seq_cst); }

/* Replaces `expected` by `desired`; true if the word held `expected`. */
static inline int fs_cas32(fs_word32 *p, uint32_t expected, uint32_t desired) {
    return atomic_compare_exchange_strong_explicit(p, &expected, desired, memory_order_seq_cst,
                                                   memory_order_seq_cst);
}

static inline int fs_cas64(fs_word64 *p, uint64_t expected, uint64_t desired) {
    return atomic_compare_exchange_strong_explicit(p, &expected, desired, memory_order_seq_cst,
                                                   memory_order_seq_cst);
}

/* The same of a pointer; `expected` is a variable, which has what the word held instead. */
#define fs_cas_pointer(p, expected, desired) \
    atomic_compare_exchange_strong_explicit((p), &(expected), (desired), memory_order_seq_cst, memory_order_seq_cst)

/* Tells the core that this is a spin loop. */
static inline void fs_cpu_relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield" ::: "memory");
#else
    __asm__ __volatile__("" ::: "memory");
#endif
}

#endif
