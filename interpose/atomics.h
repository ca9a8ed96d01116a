/* The atomic words of this front end. The names mean what they mean in core/os/atomics.h. */
#pragma once

#include <stdatomic.h>

#define ip_atomic_ptr(type) _Atomic(type *)

#define ip_load_acquire(p) atomic_load_explicit((p), memory_order_acquire)
#define ip_store_release(p, v) atomic_store_explicit((p), (v), memory_order_release)
#define ip_load_relaxed(p) atomic_load_explicit((p), memory_order_relaxed)
#define ip_store_relaxed(p, v) atomic_store_explicit((p), (v), memory_order_relaxed)
#define ip_load_sc(p) atomic_load_explicit((p), memory_order_seq_cst)
#define ip_store_sc(p, v) atomic_store_explicit((p), (v), memory_order_seq_cst)
#define ip_add(p, v) atomic_fetch_add_explicit((p), (v), memory_order_seq_cst)
#define ip_or(p, v) atomic_fetch_or_explicit((p), (v), memory_order_seq_cst)
#define ip_and(p, v) atomic_fetch_and_explicit((p), (v), memory_order_seq_cst)
/* Replaces `expected` by `desired`, if the word holds it. Otherwise `expected`, a variable, receives what it holds. */
#define ip_replace(p, expected, desired) \
    atomic_compare_exchange_weak_explicit((p), &(expected), (desired), memory_order_relaxed, memory_order_relaxed)
#define ip_exchange(p, v) atomic_exchange_explicit((p), (v), memory_order_seq_cst)

/* Keeps the compiler from moving accesses across this point: a signal handler of this thread may run there. */
#define ip_compiler_barrier() atomic_signal_fence(memory_order_seq_cst)
