/* The rules for a connection that is about to look for its peer: if it may, the name by which the two ends find each other, and which of
 * them publishes it. Called with the host lock. */
#ifndef FASTSOCK_ELIGIBILITY_H
#define FASTSOCK_ELIGIBILITY_H

#include "control/tcp_identity.h"
#include "rendezvous/connector.h"

/* Returns true if a connection with these two ends may move. */
int fs_permits(const struct fs_tcp_identity *ends);

/* Returns true if the address (IPv4 as ::ffff:...) is one of this host's: the kernel would bind a socket to it. */
int fs_is_local_address(const unsigned char address[16]);

/* Writes the name by which the two ends of a connection find each other into `name`, which has room for FS_NAME_MAX + 1 bytes. Both ends
 * make the same one: an abstract name, or a path in the folder (rendezvous_dir.h) if the other end is not in this network namespace. Returns 1 if this end publishes it, which is the one with the smaller port, 0 if this end looks it up, and -1 if
 * the two ends are the same one. */
int fs_listing_name(const struct fs_tcp_identity *ends, char *name);

/* A connection has made enough operations (FS_FEW_OPERATIONS). Begins its search, or decides that it stays on kernel TCP. Returns
 * FS_STEP_TCP; or FS_STEP_PENDING, also while another thread decides. `*failed` is -errno if resources were missing, else 0. */
enum fs_step_outcome fs_connector_start(struct fs_path *path, struct fs_connection *c, int *failed);

#endif
