/* The fallback: a connection that has moved goes back to the kernel, because somebody else is about to read its descriptor directly. */
#pragma once

#include "conn/connection.h"

enum fs_fallback_result { /* results of fs_fallback */
    FS_FELL_BACK = 1, /* the kernel's stream is the whole stream */
    FS_NEEDS_BRIDGE = 2,
    FS_FALLBACK_FAILED = 3, /* a violation by the peer, or damage on this side that cannot be repaired */
};

/* Bytes that this side had not read, taken from the ring and from the kernel's queue. */
struct fs_unread_data {
    int fd;        /* memfd, -1: nothing */
    uint64_t room; /* bytes that certainly fit */
    uint64_t size;
    uint64_t returned; /* bytes of it that are in the kernel's queue again */
    int unknown;       /* `returned` is not known yet */
    uint64_t crossed;  /* bytes of `returned` that have crossed the bridge so far */
};
#define FS_NO_UNREAD_DATA {.fd = -1}

/* Returns true if this thread is already in a fallback: the caller, a signal handler, cannot wait for itself. */
int fs_fallback_is_running(const struct fs_connection *c);

/* Begins the fallback, until fs_fallback_end. The lock marks the one holder that falls back; the kernel releases it if that holder is
 * killed. Returns NULL if another holder is in a fallback or a stopped process has a lock: the caller handles signals, and calls again. */
struct fs_fallback_lock *fs_fallback_begin(struct fs_connection *c);
/* others receive again, if the stream is whole */
void fs_fallback_end(struct fs_connection *c, struct fs_fallback_lock *fallback, int whole);

/* Takes both directions back to the kernel, and does what must come before somebody else uses the descriptor. Called between
 * fs_fallback_begin and fs_fallback_end, without the host lock. */
enum fs_fallback_result fs_fallback(struct fs_connection *c, struct fs_fallback_lock *fallback, struct fs_unread_data *unread_data);

/* Completes the unread data for a loop's transport, which gets the bytes that the peer cannot put into our kernel queue again: takes the
 * returned ones out of the kernel's queue. Returns FS_FELL_BACK, and fs_fallback_done follows; or FS_FALLBACK_FAILED. */
enum fs_fallback_result fs_fallback_collect(struct fs_connection *c, struct fs_fallback_lock *fallback, struct fs_unread_data *unread_data);

/* Both directions are the kernel's again: from now on somebody else reads and writes the descriptor. */
void fs_fallback_done(struct fs_connection *c, struct fs_fallback_lock *fallback);
