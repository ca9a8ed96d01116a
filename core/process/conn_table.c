/* The roll: which connections this process has, and why each is where it is, for whoever looks from outside
 * (control/introspection.h).
 *
 * The connection thread reads it without the front end's lock, so it has numbers and no objects: a word per connection,
 * written with that lock, each in one store, and never given back. A reader gets an entry of now or of just before.
 *
 * Responsible for: that table. Never: gives back memory, waits, or knows what a reason means. */
#include "process/conn_table.h"

#include "os/atomics.h"
#include "os/fd_reserve.h"
#include "os/syscalls.h"

enum {
    PAGE = 512,         /* words of a page */
    PAGES = 2048,       /* a connection beyond these is not seen from outside */
    PLACES = PAGE * PAGES,
};

static fs_word64 *roll[PAGES];
static fs_word32 length;    /* entries that were ever used */
static int first_free = -1;

static fs_word64 *entry(int place) { return &roll[place / PAGE][place % PAGE]; }

/* What an entry says. (The kernel numbers its sockets with 32 bits; 55 are kept.) A free one (FS_TABLE_FREE) has the
 * next free place where others have their inode; PLACES: there is none. */
static uint64_t word_of(uint64_t inode, uint64_t what) { return (inode & (((uint64_t)1 << 56) - 1)) | what << 56; }

/* Of a connection that nobody has needed the inode of: its descriptor in place of that. */
#define BY_NUMBER ((uint64_t)1 << 55)

static uint64_t named(uint64_t inode, int fd) { return inode ? inode : BY_NUMBER | (uint32_t)fd; }

int fs_table_add(uint64_t inode, int fd) {
    int place = first_free;
    if (place >= 0) {
        first_free = (int)(fs_load_relaxed(entry(place)) & 0xffffffff);
        if (first_free == PLACES) first_free = -1;
    } else {
        place = (int)fs_load_relaxed(&length);
        if (place == PLACES) return -1;
        if (place % PAGE == 0) {
            roll[place / PAGE] = fs_system.calloc(PAGE, sizeof(fs_word64));
            if (!roll[place / PAGE]) return -1;
        }
        fs_store_sc(entry(place), 0);
        /* SYNC: roll - pairs with fs_table_read: the page is there before its first entry counts. */
        fs_store_release(&length, (uint32_t)place + 1);
    }
    fs_store_sc(entry(place), word_of(named(inode, fd), 0));
    return place;
}

void fs_table_remove(int *place) {
    if (*place < 0) return;
    fs_store_sc(entry(*place), word_of((uint64_t)(first_free < 0 ? PLACES : first_free), FS_TABLE_FREE));
    first_free = *place;
    *place = -1;
}

void fs_table_update(int place, uint64_t inode, int fd, uint32_t reason) {
    if (place >= 0) fs_store_sc(entry(place), word_of(named(inode, fd), reason));
}

int fs_table_read(uint32_t place, uint64_t *word) {
    /* SYNC: roll - pairs with fs_table_add. */
    if (place >= fs_load_acquire(&length)) return 0;
    uint64_t said = fs_load_sc(entry((int)place));
    /* (The number may have been closed just now: then there is no such socket, or it is one that is here as well.) */
    if (said >> 56 != FS_TABLE_FREE && said & BY_NUMBER) said = word_of(fs_socket_inode((int)(said & 0xffffffff)), said >> 56);
    *word = said;
    return 1;
}
