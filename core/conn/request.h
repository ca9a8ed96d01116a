/* Requests of a connection to its peer's control thread (wire/control_msg.h). */
#pragma once

#include "conn/connection.h"

/* Sends a request to the peer's control thread, with the memfd `unread_data` if that is not negative. Returns 0 or -errno. */
int fs_send_request(struct fs_connection *c, int unread_data);

/* If the peer is in another network namespace: tells it that requests go to the control socket with this token from now on. */
void fs_send_way(struct fs_connection *c, uint64_t token);

/* Returns what names the peer's process among those that have sets: its token, or its key (far_peer.h). 0: it has not attached yet. */
uint64_t fs_peer_token(struct fs_connection *c);
