/* Memory for the core's records: what malloc(3) and its kin do, in signal handlers and in forked children too. Theory: memory.c. */
#pragma once

#include <stddef.h>

struct fs_page_source {
    void *(*map)(size_t size); /* NULL without memory */
    void (*unmap)(void *at, size_t size);
};

/* malloc, and free (NULL: nothing). */
void *fs_block_take(const struct fs_page_source *pages, size_t room);
void fs_block_give(const struct fs_page_source *pages, void *memory);

/* Returns how many bytes a block has room for. */
size_t fs_block_room(const void *memory);
