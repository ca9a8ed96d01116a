/* How a connection gets its region, and how its descriptor is handed out. */
#ifndef FASTSOCK_ATTACH_H
#define FASTSOCK_ATTACH_H

#include "conn/state.h"

/* What an attachment is told of how to behave. */
struct fs_flow_options {
    uint32_t ack_threshold; /* t */
    uint32_t combine_limit; /* largest send that is combined, bytes */
    int combine_when_full;  /* the last quarter of the window always combines */
};

/* Takes a region and gives consent: what the peer posts after its switch will be read here. `memory`, of `size` bytes:
 * the mapping; `side`: 0 the seeker, 1 the publisher; The mapping stays the caller's. With the front end's lock, which is let go while the
 * turns are taken. 0, or -ENOMEM, or -ENOTCONN if the connection is being closed or shared, or the kernel does not
 * count its bytes; -EINVAL and `*wrong` if the region is unsound. */
int fs_attach(struct fs_connection *c, void *memory, size_t size, int side, const struct fs_flow_options *flow, const char **wrong);

/* Bytes of the kernel's stream that were received so far. 0 if the connection is no longer whole, or the kernel does
 * not tell. */
int fs_count_received(struct fs_connection *c, uint64_t *taken);

/* The descriptor's number was handed out: from now on it must be readable exactly while something waits. The caller is
 * inside (fs_call_enter), until after fs_wait_for_doorbell_byte. With the front end's lock, so that nobody begins to drive the
 * connection between the look at that and the note; it is let go while the turn is taken. 1 if the peer has to be asked
 * for a doorbell byte (fs_lacks_doorbell_byte), which the caller does and awaits by fs_wait_for_doorbell_byte. -EINTR as fs_conn_shutdown
 * (open_close.h). */
int fs_expose(struct fs_connection *c);

/* Whether that was done, and is told: an fs_expose that has no turn has not told the peer. */
static inline int fs_is_told_exposed(const struct fs_connection *c) {
    return fs_is_exposed(c) && (!fs_is_attached(c) || fs_load_relaxed(&c->ring.rx->doorbell) & FS_EXPOSED);
}

void fs_wait_for_doorbell_byte(struct fs_connection *c); /* for 20 ms at most; without the front end's lock */

/* The descriptor, for a call of the kernel that is made without a turn. (It may be closed before that call begins, as it
 * may on TCP.) */
static inline int fs_fd_unlocked(const struct fs_connection *c) { return (int)fs_load_own32(&c->number); }

/* The descriptor is `fd` from now on. In both turns, as far as threads of this process have them: no call on the old number may be
 * under way when its owner closes it, and a process that is stopped in a turn is not waited for. The caller is inside (fs_call_enter), with the front end's lock, which is let go while the turns are taken. */
void fs_set_fd(struct fs_connection *c, int fd);

#endif
