/* Put in front of every file that qemu is to run (run-arm64). qemu 7.2 on x86 lets a sequentially consistent load pass the sequentially
 * consistent store in front of it: of two threads that each write and then read what the other writes, neither saw the other in 12 of 3
 * million rounds, and on arm64 none may. So a barrier, which qemu respects, stands in front of these loads. */
#ifndef FASTSOCK_EMULATED_H
#define FASTSOCK_EMULATED_H

#include "os/atomics.h"

#undef fs_load_sc
#define fs_load_sc(p) (atomic_thread_fence(memory_order_seq_cst), atomic_load_explicit((p), memory_order_seq_cst))

#endif
