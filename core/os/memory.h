/* Memory for the core's records: what malloc(3) and its kin do, in signal handlers and in forked children too. Theory: memory.c. */
#ifndef FASTSOCK_MEMORY_H
#define FASTSOCK_MEMORY_H

#include <stddef.h>

#include "include/fastsock.h" /* fs_allocate, fs_release */

void *fs_allocate_zeroed(size_t count, size_t size); /* calloc */
void *fs_resize(void *before, size_t room);          /* realloc */

/* Where it comes from: syscalls.c. NULL without memory. */
void *fs_map_pages(size_t size);
void fs_unmap_pages(void *at, size_t size);

#endif
