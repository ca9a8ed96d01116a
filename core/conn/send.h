/* Sending: the switch to the ring, posting, and the kernel's answer for a peer that is gone. */
#pragma once

#include "conn/wake.h"

/* The program has set SO_RCVBUF or SO_SNDBUF: the ring keeps to these limits, bytes as the kernel reports them; 0: none. Takes both
 * locks, also for a connection without a region: either fs_attach finds the limits, or this function finds the region. Returns 0, or -EINTR
 * as fs_conn_shutdown. */
int fs_set_buffer_limits(struct fs_connection *c, uint32_t receive, uint32_t send);

/* As fs_check_peer_lost, for a peer whose end is hidden (fs_eof_is_hidden): asks for its socket. If nobody can say, this side goes back to
 * the kernel, which answers for a dead peer. Returns true if nothing goes into the ring any more. */
int fs_probe_peer(struct fs_connection *c, struct fs_sender *sender);

/* The same, but once in a millisecond at most: false otherwise. */
int fs_probe_now_and_then(struct fs_connection *c, struct fs_sender *sender);

/* ---- for the rest of the core */

/* Switches to the ring: records how many bytes went through the kernel, which carries nothing from here on. */
void fs_switch_sending(struct fs_connection *c, struct fs_sender *sender);

/* Handles a request of the peer: it has fallen back; or it cannot wake our event set by itself. Takes the send lock, with up to
 * `patience` waits of about 10 ms.
 * Returns 0 if a stopped process has the lock, and the answer is still due. */
int fs_handle_request(struct fs_connection *c, int patience);

/* Returns true if the peer may have sent a request that has not arrived. Needs no lock. */
int fs_peer_may_have_asked(struct fs_connection *c);

void fs_publish_cpu(struct fs_connection *c); /* publishes our processor: spinning pays nothing if the other side needs it */
