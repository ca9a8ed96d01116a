/* The name of a connection.
 *
 * Responsible for: both ends make the same name and take different roles. Never: publishes it or looks it up. */
#include "rendezvous/listing_name.h"

#include <arpa/inet.h>
#include <stdio.h>

#include "control/rendezvous_dir.h"
#include "rendezvous/local_address.h"

/* Negative if `a` comes before `b`: by the port, then IPv4 before IPv6, then by the address. */
static int order(const struct fs_tcp_endpoint *a, const struct fs_tcp_endpoint *b) {
    int difference = (int)ntohs(a->port) - (int)ntohs(b->port);
    if (!difference) difference = fs_is_mapped(b->address) - fs_is_mapped(a->address);
    return difference ? difference : memcmp(a->address, b->address, 16);
}

int fs_publishes(const struct fs_tcp_identity *ends) {
    int before = order(&ends->here, &ends->there);
    return before == 0 ? -1 : before < 0;
}

void fs_listing_name(const struct fs_tcp_identity *ends, char *name) {
    char text[2][40]; /* 39 characters: eight groups of four */
    int before = order(&ends->here, &ends->there);
    const struct fs_tcp_endpoint *first = before < 0 ? &ends->here : &ends->there, *second = before < 0 ? &ends->there : &ends->here;
    const struct fs_tcp_endpoint *both[2] = {first, second};
    for (int i = 0; i < 2; i++) {
        int four = fs_is_mapped(both[i]->address);
        inet_ntop(four ? AF_INET : AF_INET6, both[i]->address + (four ? 12 : 0), text[i], sizeof text[i]);
    }
    snprintf(name, FS_NAME_MAX + 1, "fastsock/tcp/%s:%d-%s:%d", text[0], ntohs(first->port), text[1], ntohs(second->port));
    if (!fs_is_local_address(ends->there.address) && fs_rendezvous_dir()) fs_dir_path(name, name);
}
