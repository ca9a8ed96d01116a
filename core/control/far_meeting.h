/* The seeker's part of a rendezvous with a process in another network namespace, from the unix connection to the hello, and the answer.
 * Needs the host lock. Nothing here blocks. */
#pragma once

#include "control/address_proof.h"

struct fs_far_meeting {
    struct fs_address_proof proof;
    uint64_t key; /* of the process at the other end (far_peer.h) */
    int way;      /* which it has sent; -1: none yet */
    int runs;     /* it is being proven what it is */
};

enum fs_meeting { FS_MEETING_FAILED = -1, FS_MEETING_GOES_ON = 0, FS_MEETING_READY = 1 }; /* or the letter of a refusal */

void fs_meeting_init(struct fs_far_meeting *meeting);

/* Somebody listens at the name, and `control` is connected: begins the proof, unless that process has proven the address before. Returns 1
 * if a hello may be sent, 0 if not yet, or -errno. */
int fs_meeting_begin(struct fs_far_meeting *meeting, int control, const struct fs_stream_identity *ends);

/* Goes on with the proof. */
int fs_meeting_step(struct fs_far_meeting *meeting, int control, const struct fs_stream_identity *ends);

/* Sends a hello with its descriptors: before the last one, the way to this process. Starts the control thread, which may unlock
 * the host lock. */
int fs_meeting_hello(int control, const struct fs_hello *hello, const int *descriptors, int count);

/* Receives the publisher's answer, as recv does: one letter. If it is FS_HAS_WAY, the way has come. */
ssize_t fs_meeting_answer(struct fs_far_meeting *meeting, int control, char *letter);

/* The publisher has taken the region, and has sent its way before. Returns the peer, or NULL as fs_far_peer_join. */
struct fs_far_peer *fs_meeting_join(struct fs_far_meeting *meeting, int control);

/* It is over, or failed. */
void fs_meeting_end(struct fs_far_meeting *meeting);
