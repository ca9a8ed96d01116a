/* The connection table, for introspection. Written with the host lock, and read without. Theory: conn_table.c. */
#pragma once

#include <stdint.h>

struct fs_early; /* fastsock.h */

enum { FS_TABLE_FREE = 255 }; /* in the top byte of a free entry, in place of the reason */

/* Adds a connection with the descriptor `fd`. `inode` 0: not known yet. `reason`: why it is on kernel TCP. Returns its slot, or -1 without
 * room. */
int fs_table_add(uint64_t inode, int fd, uint32_t reason);

/* Adds an entry that shows an early connection while there is one. Returns as fs_table_add. */
int fs_table_add_early(const struct fs_early *e);

/* Removes the connection, which has ended in this process, and sets `*slot` to -1. */
void fs_table_remove(int *slot);

/* Sets the reason why the connection is on kernel TCP; 0: none. */
void fs_table_update(int slot, uint64_t inode, int fd, uint32_t reason);

/* Reads the entry of a slot. Returns 0 beyond the table. (A free one has FS_TABLE_FREE in its top byte.) */
int fs_table_read(uint32_t slot, uint64_t *word);
