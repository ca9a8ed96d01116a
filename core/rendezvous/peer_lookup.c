/* Looking up the name that the peer may have published.
 *
 * Responsible for: checking if somebody listens there, and how often. Never: the messages sent there, or the other steps of a search
 * (connector.c). */
#include "rendezvous/peer_lookup.h"

#include "control/fd_reaper.h"
#include "control/named_socket.h"

enum {
    LOOKUPS = 64,            /* before a peer counts as foreign, together with `patience` */
    LOOKUP_NS = 2000000,     /* ns between two of them, or the time spent so far if that is more */
    LOOKUP_MOST = 250000000, /* most ns between two: a peer that had to wait for a listing keeps it for two seconds */
    LOOKUP_DOUBLINGS = 10,   /* most operations between two: they double from one on, this many times */
};

static int seeking_socket(void) {
    int fd = fs_system.socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0) fs_refuse_descriptors(fd);
    return fs_reserve_fd(fd, 1);
}

/* Returns true if a seeker may keep its number between two look-ups: a low one of the reserved range. If seekers had all of them, there
 * would be none for the names that they look for. */
static int may_keep_seeking(int fd) {
    int size;
    fs_reserved_range(&size);
    return fs_reserved_index(fd) < fs_reserved_first(size) + size / 8;
}

/* Connects the socket to an abstract name. Returns true if somebody listens there. */
static int connect_abstract(int fd, const char *name, size_t length) {
    struct sockaddr_un address;
    socklen_t size = fs_name_address(&address, name, length);
    return size && fs_system.connect(fd, (struct sockaddr *)&address, size) == 0;
}

/* The socket is not connected, or fs_lookup_take has it. */
static void close_socket(struct fs_peer_lookup *lookup) {
    if (lookup->fd >= 0) fs_system.close(lookup->fd);
    lookup->fd = -1;
}

static void start_over(struct fs_peer_lookup *lookup) {
    lookup->found = lookup->over = 0;
    lookup->tries = 0;
}

void fs_lookup_begin(struct fs_peer_lookup *lookup, const char *name, size_t length, int64_t patience) {
    *lookup = (struct fs_peer_lookup){.name = name, .length = length, .patience = patience, .fd = -1};
}

int fs_lookup_try(struct fs_peer_lookup *lookup, int64_t operations, int64_t *next) {
    if (lookup->fd < 0) {
        int fd = seeking_socket();
        if (fd < 0) return fd;
        lookup->fd = fd;
    }
    /* connect does not block here, so this keeps the host lock: unlocking costs as much. */
    if (!lookup->found && connect_abstract(lookup->fd, lookup->name, lookup->length)) lookup->found = 1;
    if (!lookup->found) {
        *next = operations + fs_lookup_pause(lookup, fs_now(), operations);
        if (!may_keep_seeking(lookup->fd)) close_socket(lookup);
    }
    return lookup->found;
}

int64_t fs_lookup_pause(struct fs_peer_lookup *lookup, int64_t now, int64_t operations) {
    if (lookup->tries == 0) {
        lookup->began = lookup->last = now;
        lookup->operations = operations;
    }
    /* A product of whole numbers might not fit. */
    double spent = (double)FS_MIN(FS_MAX((int64_t)LOOKUP_NS, now - lookup->began), (int64_t)LOOKUP_MOST);
    double since = (double)FS_MAX(now - lookup->last, (int64_t)1000);
    double stride = (double)(operations - lookup->operations) * spent / since;
    lookup->last = now;
    lookup->operations = operations;
    lookup->tries++;
    lookup->over = lookup->tries > LOOKUPS && now - lookup->began > lookup->patience;
    double most = (double)(1 << FS_MIN(lookup->tries / 2, LOOKUP_DOUBLINGS));
    int64_t pause = (int64_t)FS_MIN(stride, most);
    return FS_MAX(pause, 1);
}

int fs_lookup_take(struct fs_peer_lookup *lookup) {
    int fd = lookup->fd;
    lookup->fd = -1;
    start_over(lookup);
    return fd;
}

void fs_lookup_end(struct fs_peer_lookup *lookup) {
    close_socket(lookup);
    start_over(lookup);
}
