/* The only file of the core that uses atomics (the front end: interpose/atomics.h). Everything that crosses a thread or a process goes
 * through these names, so each memory order is a deliberate choice.
 *
 *   fs_load_acquire / fs_store_release   publish and observe: writes before the store are visible after the load that read it. Each use
 *                                        carries a `SYNC:` label, which stands at both ends.
 *   fs_load_sc / fs_store_sc / fs_or_sc  for the two handshakes "write mine, then read yours" (doorbell and credits). With acquire and
 *                                        release both sides could miss each other. Sequential consistency on both words forbids
 *                                        that without a separate fence, which ThreadSanitizer would not understand.
 *   fs_load_relaxed / fs_store_relaxed   a word with one writer that others read only as a hint, or that a neighbouring store orders.
 *   fs_count                             statistics: if two threads count at once, one count may be lost. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "include/fastsock.h"

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

/* Loads a word that only this side writes. Relaxed; the tests know from the name that a peer cannot interfere here. */
static inline uint32_t fs_load_own32(const fs_word32 *p) { return fs_load_relaxed((fs_word32 *)p); }
static inline void fs_count(fs_word64 *p, uint64_t n) { fs_store_relaxed(p, fs_load_relaxed(p) + n); }

/* Keeps the compiler from moving accesses across this point, for readers that may see the state between two instructions (a signal that
 * kills the process). Costs nothing. */
static inline void fs_compiler_barrier(void) { atomic_signal_fence(memory_order_seq_cst); }

/* Replaces `expected` by `desired`. Returns true if the word held `expected`. */
static inline int fs_cas32(fs_word32 *p, uint32_t expected, uint32_t desired) {
    return atomic_compare_exchange_strong_explicit(p, &expected, desired, memory_order_seq_cst,
                                                   memory_order_seq_cst);
}

static inline int fs_cas64(fs_word64 *p, uint64_t expected, uint64_t desired) {
    return atomic_compare_exchange_strong_explicit(p, &expected, desired, memory_order_seq_cst,
                                                   memory_order_seq_cst);
}

/* fs_cas32 for a pointer. `expected` must be a variable; on failure it receives the value found. */
#define fs_cas_pointer(p, expected, desired) \
    atomic_compare_exchange_strong_explicit((p), &(expected), (desired), memory_order_seq_cst, memory_order_seq_cst)

/* Tells the CPU that this is a spin loop. */
static inline void fs_cpu_relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield" ::: "memory");
#else
    __asm__ __volatile__("" ::: "memory");
#endif
}
