/* Creates, maps and recycles the shared memory of a connection. A region is a sealed memfd, so its size cannot change while it is
 * mapped. wire/region.h has its bytes. */
#pragma once

#include "os/memfd.h"
#include "os/syscalls.h"
#include "ring/ring.h"

#ifndef MADV_REMOVE
#define MADV_REMOVE 9
#endif

/* Creates a sealed region of fs_region_size(window, chunk) bytes. Returns its memfd and sets `*memory` to the mapping, both the
 * caller's; or returns -errno, also -ENOMEM without address space. */
int fs_create_region(int window, int chunk, const unsigned char id[16], void **memory);

/* Marks that this side will not touch the region any more. Its pages stay for the next connection, until one of the sides cools it.
 * Returns true if neither has: this side is to. */
int fs_mark_done(void *memory, size_t size, int side, int window);

/* This side does without the pages of the arenas, except the first few. They go back to the system once both sides are done, now or by
 * the other side's fs_mark_done. For a side that has it parked, after fs_mark_done, and once; nobody takes it meanwhile. */
void fs_cool(void *memory, size_t size, int side, int window);

/* Returns true if both sides are done with the region. */
int fs_is_region_free(void *memory);

/* Readies a region for the next connection: both sides are done with it, as this one knows. */
static inline void fs_recycle_region(void *memory, int window) { fs_region_recycle(memory, (uint32_t)window); }

/* Packet WAKEUP: returns true if the publisher has taken the region. */
int fs_wakeup_seen(void *memory);
