/* The peer of the side that falls back (fallback.h). */
#pragma once

#include "conn/connection.h"

enum { FS_UNREAD_DATA_MAX = 1 << 26 };            /* most bytes that a peer sends again */

/* From now on our bytes go through the kernel again: at once, or once the fallback is settled (`held`). */
void fs_send_fall_back(struct fs_connection *c, struct fs_sender *sender, int held);

/* Answers a peer that has fallen back: this side goes back to the kernel too. */
void fs_answer_fallback(struct fs_connection *c, struct fs_sender *sender);

/* Makes this side send through the kernel, because the peer has fallen back or this side is about to. Returns true if it may send now. */
int fs_send_resumes_in_kernel(struct fs_connection *c, struct fs_sender *sender);

/* Returns true if the peer, which has fallen back, has ended and will not settle the fallback. */
int fs_fallback_peer_ended(struct fs_connection *c);

/* Returns true if this side's sends must wait until the peer's fallback is settled. */
int fs_send_is_held(struct fs_connection *c, struct fs_sender *sender);

/* The peer has fallen back and asks for the bytes that it had not read (`unread_data`, a memfd). Sends them again, before whatever this
 * side sends next. Takes the send lock. Does nothing if a stopped process has the lock for half a second: the peer needs a bridge then. */
void fs_resend_unread(struct fs_connection *c, int unread_data);
