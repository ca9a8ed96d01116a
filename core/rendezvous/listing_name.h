/* The name by which the two ends of a connection find each other, and which of them publishes it. */
#pragma once

#include "control/rendezvous_dir.h"
#include "transport/stream.h"

/* Returns 1 if this end publishes the name, which is the smaller one (of TCP by its port), 0 if this end looks it up, and -1 if the two
 * ends are the same one. */
int fs_publishes(const struct fs_stream_identity *ends);

/* Writes the name into `name`, which has room for FS_NAME_MAX + 1 bytes. Both ends make the same one: an abstract name, or a path in the
 * folder (rendezvous_dir.h) if the other end is in another network namespace. */
void fs_listing_name(const struct fs_stream_identity *ends, char *name);
