/* The peer of a leaver (fallback.h): it posts BACK, waits until the leaver is settled, sends what that had not read once more, and goes
 * on in the kernel. */
#ifndef FASTSOCK_FALLBACK_PEER_H
#define FASTSOCK_FALLBACK_PEER_H

#include "conn/connection.h"

enum { FS_UNREAD_DATA_MAX = 1 << 26 };            /* bytes that a peer is willing to send again */
#define FS_ANSWER_TIME ((int64_t)1000000000) /* ns that its connection thread gets for an answer */

/* From here on our bytes go through the kernel again: at once, or once it is settled (`held`). */
void fs_send_fall_back(struct fs_connection *c, struct fs_sender *sender, int held);

/* Whether and how this side goes on after the peer has left. */
void fs_answer_fallback(struct fs_connection *c, struct fs_sender *sender);

/* This side sends through the kernel again, because the peer has left, or because it is about to leave itself. Whether it may do
 * so now. */
int fs_send_resumes_in_kernel(struct fs_connection *c, struct fs_sender *sender);

/* Whether the peer, which has left, will not say any more how that is settled. */
int fs_fallback_peer_ended(struct fs_connection *c);

/* Whether what this side sends must wait until the peer that left is settled. */
int fs_send_is_held(struct fs_connection *c, struct fs_sender *sender);

/* It is settled, and this side goes on in the kernel: makes an edge for who polls for POLLOUT. */
void fs_signal_writable(struct fs_connection *c, struct fs_sender *sender);

/* The peer has left and asks for the bytes that it had not read (`parcel`, a memfd): they go out once more, in front of what this
 * side sends next. Takes the turn, unless a stopped process has it for half a second: then the leaver needs a bridge. */
void fs_resend_unread(struct fs_connection *c, int unread_data);

#endif
