/* A membership in this process. For the files of this room. */
#pragma once

#include "control/rendezvous_dir.h"
#include "events/spin_budget.h"
#include "messages/arena.h"

enum { FS_GROUP_KEY = 16 }; /* hexadecimal digits of the hash of owner and name */

struct fs_group {
    struct fs_geometry geometry;
    struct fs_group_head *table;
    const unsigned char *arena;
    fs_word64 writable; /* unsigned char *: the arena again, for a member that has written; 0: not yet */
    uint32_t place;     /* this member's */
    uint32_t hands;     /* the place by which this process claims blocks and holds messages: another one in a forked child */
    uint64_t bit;       /* 1 << hands */
    uint32_t owner;
    const char *folder; /* where its members meet (rendezvous_dir.h); NULL: in their network namespace */
    int arena_fd, table_fd; /* to hand over */
    int lock_fd;            /* the table's file, with the lock; -1: has left */
    int hands_fd;           /* the same for `hands`; -1: it is the member's place */
    int bell_fd;            /* the datagram socket that fs_group_fd shows */
    int listen_fd;          /* -1: the name is another process's */
    fs_word32 polls;        /* fs_group_fd has been called */
    fs_word32 leaving;
    fs_word32 lent;           /* blocks that this process has claimed or holds */
    fs_word32 kept[FS_CLASSES]; /* messages that it holds */
    fs_word64 next_sweep;     /* monotonic ns */
    fs_word64 wanted;         /* bytes for which there was no room */
    struct fs_spin_stats receiving, sending;
    struct fs_counters count;
    fs_word32 process;      /* the process that has a thread for it */
    struct fs_group *next;  /* in the list of the thread */
    char key[FS_GROUP_KEY + 1];
};

static inline fs_word64 *fs_group_slots(const struct fs_group *g) { return (fs_word64 *)(void *)(g->table + 1); }
static inline struct fs_block *fs_group_blocks(const struct fs_group *g) {
    return (struct fs_block *)(void *)(fs_group_slots(g) + g->geometry.slots);
}

static inline struct fs_member_place *fs_place(const struct fs_group *g) { return &g->table->member[g->place]; }

/* This process; changes in a forked child. */
extern fs_word32 fs_messages_pid;

/* ---- cursors.c -------------------------------------------------------------------------------------------------- */

/* Counts `tail` up as far as the readers of a blocking group permit. */
void fs_advance_tail(struct fs_group *g);

/* ---- members.c ------------------------------------------------------------------------------------------------ */

/* Opens the table's file with a description of its own. Returns the descriptor, a reserved one, or -errno. */
int fs_place_open(struct fs_group *g);

/* Takes a place with the lock `fd`. Returns its number, or -EUSERS. */
int fs_place_take(struct fs_group *g, int fd);

/* Cleans up for member `place` if it is dead. Returns true if it was. */
int fs_place_sweep(struct fs_group *g, uint32_t place);

/* Cleans up for all dead members, at most every FS_SWEEP_INTERVAL. */
void fs_sweep(struct fs_group *g);

void fs_count_members(struct fs_group_head *table);

/* ---- bells.c -------------------------------------------------------------------------------------------------- */

int fs_bell_socket(const struct fs_group *g);
void fs_wake_readers(struct fs_group *g);
void fs_wake_writers(struct fs_group *g);

/* Makes the descriptor of a member that polls say whether there is a message. */
void fs_bell_settle(struct fs_group *g);

/* ---- serve.c -------------------------------------------------------------------------------------------------- */

/* The group has this member from now on: others may find it. */
int fs_serve(struct fs_group *g);
void fs_serve_not(struct fs_group *g);

/* For each call that may be the first in a forked child. */
void fs_serve_in_child(struct fs_group *g);

/* ---- names.c -------------------------------------------------------------------------------------------------- */

/* The two names of a member: FS_NAME_MAX + 1 bytes, of which it returns how many it has written. */
#define FS_LISTENS ""
#define FS_BELL "w"
size_t fs_group_name(char *into, const struct fs_group *g, uint32_t place, const char *what);

/* Removes such a name from the folder: before its socket is closed, or with the place of a member that is dead. */
void fs_group_unname(const struct fs_group *g, uint32_t place, const char *what);
