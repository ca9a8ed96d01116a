/* The way out: a moved connection goes back to the kernel, because somebody else is about to read its descriptor raw. */
#ifndef FASTSOCK_FALLBACK_H
#define FASTSOCK_FALLBACK_H

#include "conn/connection.h"

enum fs_fallback_result { /* how fs_fallback ends */
    FS_FELL_BACK = 1, /* the kernel's stream is the whole stream */
    FS_NEEDS_BRIDGE = 2,
    FS_FALLBACK_FAILED = 3, /* a violation of the peer's, or what cannot be mended at this side */
};

/* What the leaver took out of the ring and the kernel's queue. */
struct fs_unread_data {
    int fd;            /* memfd, -1: nothing */
    uint64_t room;     /* bytes that it can take for certain */
    uint64_t size;
    uint64_t returned; /* bytes of it that are in the kernel's queue again */
    int unknown;       /* how many they are is not known yet, */
    uint64_t crossed;  /* and these of them are across the bridge */
};
#define FS_NO_UNREAD_DATA {.fd = -1}

/* Whether this thread is at it already: the caller, a signal handler, cannot wait for itself. */
int fs_fallback_is_running(const struct fs_connection *c);

/* Begins to take the connection back to the kernel: until fs_fallback_end. Its lock is a mark of the one holder that
 * leaves, which the kernel takes back if it is killed. NULL while another one leaves, or a stopped process has a turn: the caller looks
 * for signals, and calls again. */
struct fs_fallback_lock *fs_fallback_begin(struct fs_connection *c);
void fs_fallback_end(struct fs_connection *c, struct fs_fallback_lock *fallback, int whole); /* others receive again, if the stream is whole */

/* Takes both directions back to the kernel, and does what comes before somebody else may use the descriptor. Between
 * fs_fallback_begin and fs_fallback_end. Without the front end's lock. */
enum fs_fallback_result fs_fallback(struct fs_connection *c, struct fs_fallback_lock *fallback, struct fs_unread_data *unread_data);

/* Readies the parcel for a loop's transport, which gets what the peer cannot put into our kernel queue again: what was returned is
 * taken out of the kernel's queue. FS_FELL_BACK: the whole parcel is to be kept, and fs_fallback_done follows; or FS_FALLBACK_FAILED. */
enum fs_fallback_result fs_fallback_collect(struct fs_connection *c, struct fs_fallback_lock *fallback, struct fs_unread_data *unread_data);

/* Both directions are the kernel's again: somebody else reads and writes the descriptor from here on. */
void fs_fallback_done(struct fs_connection *c, struct fs_fallback_lock *fallback);

/* ---- for the rest of the core */

/* The ring is read to BACK: what the kernel's queue holds behind the doorbell bytes is the program's again. */
void fs_recv_fall_back(struct fs_connection *c, struct fs_receiver *receiver);

/* Tells a peer that is held that it may go on. What is to be asked again is fs_press_peer's (FS_LATE_REQUEST). */
void fs_settle_locked(struct fs_connection *c, struct fs_receiver *receiver);

void fs_press_peer(struct fs_connection *c); /* asks the held peer again and again to go on. With no lock */

/* What a receive gets while another holder collects: -EAGAIN. FS_VIOLATED if that one was killed or has failed: then the stream
 * has a hole. In the turn to receive, without which nobody stops collecting. */
int64_t fs_recv_beside_collector(struct fs_connection *c, struct fs_receiver *receiver);

#endif
