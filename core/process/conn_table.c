/* The connection table: the process's connections, and the reason why each is on kernel TCP, for introspection
 * (control/introspection.h).
 *
 * The control thread reads it without the host lock, so it has numbers and no objects: one word per connection, written with the host
 * lock in one store. The memory is never freed. A reader gets the present entry or the one just before. An early connection has its two
 * words in its own memory, to which its entry leads. */
#include "process/conn_table.h"

#include "os/atomics.h"
#include "os/fd_reserve.h"
#include "os/syscalls.h"
#include "include/fastsock.h"

enum {
    EARLY = 254,        /* in the top byte: the rest is the address of a struct fs_early, which stays for ever */
    PAGE = 512,         /* words of a page */
    PAGES = 2048,       /* further connections are not shown */
    SLOTS = PAGE * PAGES,
};

static fs_word64 *table[PAGES];
static fs_word32 length;    /* slots ever used */
static int first_free = -1;

static fs_word64 *entry(int slot) { return &table[(unsigned)slot / PAGE][(unsigned)slot % PAGE]; }

/* Makes an entry. (The kernel numbers its sockets with 32 bits; 55 are kept.) A free entry (FS_TABLE_FREE) has the next free slot
 * instead of the inode, SLOTS for none. */
static uint64_t word_of(uint64_t inode, uint64_t what) { return (inode & (((uint64_t)1 << 56) - 1)) | what << 56; }

/* Marks a descriptor in place of an inode that nobody has needed yet. */
#define BY_NUMBER ((uint64_t)1 << 55)

static uint64_t named(uint64_t inode, int fd) { return inode ? inode : BY_NUMBER | (uint32_t)fd; }

static int add(uint64_t word) {
    int slot = first_free;
    if (slot >= 0) {
        first_free = (int)(fs_load_relaxed(entry(slot)) & 0xffffffff);
        if (first_free == SLOTS) first_free = -1;
    } else {
        slot = (int)fs_load_relaxed(&length);
        if (slot == SLOTS) return -1;
        if (slot % PAGE == 0) {
            table[slot / PAGE] = fs_system.calloc(PAGE, sizeof(fs_word64));
            if (!table[slot / PAGE]) return -1;
        }
        fs_store_relaxed(entry(slot), 0);
        /* SYNC: conn table - pairs with fs_table_read: the page is there before its first entry counts. */
        fs_store_release(&length, (uint32_t)slot + 1);
    }
    /* SYNC: conn table - pairs with fs_table_read: what it leads to is whole. */
    fs_store_release(entry(slot), word);
    return slot;
}

int fs_table_add(uint64_t inode, int fd, uint32_t reason) { return add(word_of(named(inode, fd), reason)); }
int fs_table_add_early(const struct fs_early *e) { return add(word_of((uintptr_t)e, EARLY)); }

/* (Relaxed: each of the two is the present one, or one of a connection just before.) */
static uint64_t word_of_early(struct fs_early *e) {
    uint32_t number = fs_load_relaxed(&e->shown);
    return number ? word_of(BY_NUMBER | (number - 1), (uint64_t)fs_load_relaxed(&e->reason)) : word_of(0, FS_TABLE_FREE);
}

void fs_table_remove(int *slot) {
    if (*slot < 0) return;
    fs_store_relaxed(entry(*slot), word_of((uint64_t)(first_free < 0 ? SLOTS : first_free), FS_TABLE_FREE));
    first_free = *slot;
    *slot = -1;
}

void fs_table_update(int slot, uint64_t inode, int fd, uint32_t reason) {
    if (slot >= 0) fs_store_relaxed(entry(slot), word_of(named(inode, fd), reason));
}

int fs_table_read(uint32_t slot, uint64_t *word) {
    /* SYNC: conn table - pairs with fs_table_add. */
    if (slot >= fs_load_acquire(&length)) return 0;
    uint64_t said = fs_load_acquire(entry((int)slot));
    if (said >> 56 == EARLY) said = word_of_early((struct fs_early *)(uintptr_t)word_of(said, 0));
    /* (If the number was closed just now, there is no such socket, or it is one that is listed too.) */
    if (said >> 56 != FS_TABLE_FREE && said & BY_NUMBER) said = word_of(fs_socket_inode((int)(said & 0xffffffff)), said >> 56);
    *word = said;
    return 1;
}
