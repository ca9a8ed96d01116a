/* The roll: which connections this process has, and why each is where it is, for whoever looks from outside.
 *
 * The connection thread reads it without the front end's lock, so it has numbers and no objects: a word per connection, written
 * with that lock, each in one store, and never given back. A reader gets an entry of now or of just before. */
#ifndef FASTSOCK_CONN_TABLE_H
#define FASTSOCK_CONN_TABLE_H

#include <stdint.h>

enum { FS_TABLE_FREE = 255 }; /* in the uppermost byte of an entry, the place of the reason: a free one */

/* A place for a new connection, of the descriptor `fd`; `inode` 0: nobody has asked for it yet. -1: there is none. */
int fs_table_add(uint64_t inode, int fd);

/* The connection at `*place` has ended in this process. `*place` becomes -1. */
void fs_table_remove(int *place);

/* Why the connection at `place` is on kernel TCP, from now on: the number of the reason, 0: none. */
void fs_table_update(int place, uint64_t inode, int fd, uint32_t reason);

/* The entry at a place: whether it is within the roll. (A free one has FS_TABLE_FREE in its uppermost byte.) */
int fs_table_read(uint32_t place, uint64_t *word);

#endif
