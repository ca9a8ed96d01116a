/* The rules for a connection that is about to look for its peer: if it may, the name by which the two ends find each other, and which of
 * them publishes it. Called with the host lock. */
#ifndef FASTSOCK_ELIGIBILITY_H
#define FASTSOCK_ELIGIBILITY_H

#include "control/tcp_identity.h"
#include "rendezvous/connector.h"

struct fs_port_range {
    uint16_t first, last; /* both inclusive */
};

/* A network. An IPv4 network is stored as IPv4-mapped addresses, so `bits` is 96 more than its prefix length. */
struct fs_network {
    unsigned char address[16];
    int bits;
};

/* The settings of the same names: which connections may move. A connection has two addresses and two ports; either one may exclude it,
 * and either one may allow it. The arrays stay the caller's until others replace them. */
struct fs_limits {
    const struct fs_port_range *ports_allowed, *ports_excluded;
    const struct fs_network *addresses_allowed, *addresses_excluded;
    int ports_allowed_count, ports_excluded_count, addresses_allowed_count, addresses_excluded_count;
};
void fs_set_limits(const struct fs_limits *limits);

/* Returns true if a connection with these two ends may move. */
int fs_permits(const struct fs_tcp_identity *ends);

/* Returns true if the address (IPv4 as ::ffff:...) is one of this host's: the kernel would bind a socket to it. */
int fs_is_local_address(const unsigned char address[16]);

/* Writes the name by which the two ends of a connection find each other into `name`, which has room for FS_NAME_MAX + 1 bytes. Both ends
 * make the same one. Returns 1 if this end publishes it, which is the one with the smaller port, 0 if this end looks it up, and -1 if
 * the two ends are the same one. */
int fs_listing_name(const struct fs_tcp_identity *ends, char *name);

/* A connection has made enough operations (FS_FEW_OPERATIONS). Begins its search, or decides that it stays on kernel TCP. Returns
 * FS_STEP_TCP; or FS_STEP_PENDING, also while another thread decides. `*failed` is -errno if resources were missing, else 0. */
enum fs_step_outcome fs_connector_start(struct fs_path *path, struct fs_connection *c, int *failed);

#endif
