/* The name of a connection.
 *
 * Responsible for: both ends make the same name and take different roles. Never: publishes it or looks it up. */
#include "rendezvous/listing_name.h"

#include <stdio.h>

#include "rendezvous/local_address.h"

/* Negative if `a` comes before `b`: by the port, then IPv4 before IPv6, then by the address. */
static int order(const struct fs_stream_endpoint *a, const struct fs_stream_endpoint *b) {
    int difference = (int)ntohs(a->port) - (int)ntohs(b->port);
    if (!difference) difference = fs_is_mapped(b->address) - fs_is_mapped(a->address);
    return difference ? difference : memcmp(a->address, b->address, 16);
}

int fs_publishes(const struct fs_stream_identity *ends) {
    int before = order(&ends->here, &ends->there);
    return before == 0 ? -1 : before < 0;
}

void fs_listing_name(const struct fs_stream_identity *ends, char *name) {
    char text[2][FS_END_TEXT];
    int before = order(&ends->here, &ends->there) < 0;
    ends->kind->write_end(before ? &ends->here : &ends->there, text[0]);
    ends->kind->write_end(before ? &ends->there : &ends->here, text[1]);
    snprintf(name, FS_NAME_MAX + 1, "fastsock/%s/%s-%s", ends->kind->name, text[0], text[1]);
    int elsewhere = ends->kind->has_addresses && !fs_is_local_address(ends->there.address);
    const char *folder = elsewhere ? fs_rendezvous_dir() : NULL;
    if (folder) fs_dir_path(name, folder, FS_DIR_CONNECTION, name);
}
