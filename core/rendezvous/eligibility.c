/* The rules for a connection that is about to look for its peer.
 *
 * Responsible for: no connection looks for its peer if the settings or the kernel's answers rule it out. Never: the steps of the search
 * (connector.c). */
#include "rendezvous/eligibility.h"

#include <arpa/inet.h>

#include "control/rendezvous_dir.h"
#include "rendezvous/listing_name.h"
#include "rendezvous/local_address.h"
#include "transport/stream.h"

static struct fs_limits limits;

void fs_set_limits(const struct fs_limits *given) { limits = *given; }

/* ---- what the settings permit -------------------------------------------------------------------------------- */

static int has_port(const struct fs_port_range *ranges, int count, const struct fs_stream_endpoint *end) {
    uint16_t port = ntohs(end->port);
    for (int i = 0; i < count; i++)
        if (ranges[i].first <= port && port <= ranges[i].last) return 1;
    return 0;
}

static int has_address(const struct fs_network *networks, int count, const struct fs_stream_endpoint *end) {
    for (int i = 0; i < count; i++) {
        int whole = networks[i].bits / 8, rest = networks[i].bits % 8;
        if (memcmp(networks[i].address, end->address, (size_t)whole) != 0) continue;
        if (!rest || !((networks[i].address[whole] ^ end->address[whole]) >> (8 - rest))) return 1;
    }
    return 0;
}

/* A pattern is the path itself, a folder above it, or the beginning as far as a '/'; "@" is every abstract name. */
static int has_path(const struct fs_path_pattern *patterns, int count, const char *path, int length) {
    for (int i = 0; i < count; i++) {
        const struct fs_path_pattern *it = &patterns[i];
        if (it->length > length || memcmp(it->text, path, (size_t)it->length) != 0) continue;
        if (it->length == length || path[it->length] == '/' || it->text[it->length - 1] == '/' || (it->length == 1 && *it->text == '@'))
            return 1;
    }
    return 0;
}

static int permits_paths(int fd, const struct fs_stream_identity *ends) {
    const struct fs_limits *l = &limits;
    int allowed = !l->paths_allowed_count;
    char path[FS_PATH_TEXT];
    for (int remote = 0; remote < 2 && (l->paths_allowed_count || l->paths_excluded_count); remote++) {
        int length = ends->kind->find_path(fd, remote, path);
        if (length && has_path(l->paths_excluded, l->paths_excluded_count, path, length)) return 0;
        allowed |= length && has_path(l->paths_allowed, l->paths_allowed_count, path, length);
    }
    return allowed;
}

/* Returns true if the settings let a connection with these two ends move. */
static int permits(int fd, const struct fs_stream_identity *ends) {
    const struct fs_limits *l = &limits;
    if (!ends->kind->has_addresses) return permits_paths(fd, ends);
    const struct fs_stream_endpoint *a = &ends->here, *b = &ends->there;
    int ports = l->ports_allowed_count, networks = l->addresses_allowed_count;
    if (ports && !has_port(l->ports_allowed, ports, a) && !has_port(l->ports_allowed, ports, b)) return 0;
    if (networks && !has_address(l->addresses_allowed, networks, a) && !has_address(l->addresses_allowed, networks, b)) return 0;
    ports = l->ports_excluded_count, networks = l->addresses_excluded_count;
    return !has_port(l->ports_excluded, ports, a) && !has_port(l->ports_excluded, ports, b) &&
           !has_address(l->addresses_excluded, networks, a) && !has_address(l->addresses_excluded, networks, b);
}

int fs_permits_pair(struct fs_connection *c) {
    struct fs_stream_identity ends = {.kind = c->stream};
    return !c->stream->needs_kernel(fs_fd(c)) && permits(fs_fd(c), &ends);
}

/* ---- starting a search ----------------------------------------------------------------------------------------- */

void fs_find_stream_kind(struct fs_connection *c) {
    if (limits.unix_streams) c->stream = fs_stream_kind_of(fs_fd(c));
}

enum fs_step_outcome fs_connector_start(struct fs_path *path, struct fs_connection *c, int *failed) {
    struct fs_stream_identity ends;
    enum fs_reason reason = FS_REASON_NONE;
    int publishes = 0;
    *failed = 0;
    int known = c->stream->identify(fs_fd(c), &ends);
    if (known == -EAGAIN) { /* (from its process come no operations either) */
        path->next = 2 * fs_operations(path) + 1;
        return FS_STEP_PENDING;
    }
    if (!fs_path_event(path, FS_PATH_START)) return FS_STEP_PENDING;
    if (!known) {
        reason = FS_REASON_PEER; /* it is reset already */
    } else {
        int local = !ends.kind->has_addresses || fs_is_local_address(ends.there.address);
        fs_store_relaxed(&c->locality, local ? FS_HERE : FS_ELSEWHERE);
        publishes = fs_publishes(&ends);
        if (!local && !fs_rendezvous_dir()) reason = FS_REASON_REMOTE;
        else if (!permits(fs_fd(c), &ends) || publishes < 0) reason = FS_REASON_EXCLUDED;
    }
    if (reason == FS_REASON_NONE) {
        *failed = fs_connector_begin(path, NULL, publishes, &ends);
        if (!*failed) return FS_STEP_PENDING;
        reason = FS_REASON_RESOURCES;
    }
    fs_path_decide_tcp(path, c, reason);
    return FS_STEP_TCP;
}
