/* The rules for a connection that is about to look for its peer. Called with the host lock. */
#pragma once

#include "transport/stream.h"
#include "rendezvous/connector.h"

/* Returns true if the settings let an end of a pair within this process move, whose kind is known, and nothing asks for the kernel's stream
 * alone. */
int fs_permits_pair(struct fs_connection *c);

/* Finds out of which kind the kernel's stream is, where connections of more than one may move. */
void fs_find_stream_kind(struct fs_connection *c);

/* A connection has made enough operations (FS_FEW_OPERATIONS). Begins its search, or decides that it stays on kernel TCP. Returns
 * FS_STEP_TCP; or FS_STEP_PENDING, also while another thread decides. `*failed` is -errno if resources were missing, else 0. */
enum fs_step_outcome fs_connector_start(struct fs_path *path, struct fs_connection *c, int *failed);
