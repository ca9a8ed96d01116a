/* How an endpoint, a connection with its course, ends in this process and goes the way out: what every front end does in the same order.
 * With the front end's lock, which is let go while others are waited for. The caller is inside (fs_call_enter) unless it says otherwise. What
 * the front end finds connections by is its own. */
#ifndef FASTSOCK_ENDPOINT_H
#define FASTSOCK_ENDPOINT_H

#include "conn/fallback.h"
#include "rendezvous/connector.h"

/* The program closes the connection's last number `fd`. Like the kernel, which keeps a connection open while somebody is in a call on it,
 * this gives it a number of ours for as long as that takes. Returns 1 if the connection has ended by this: the caller says the goodbye
 * (fs_conn_finish), ends its call, and then closes `fd`. 0: the caller ends its call, as always. */
int fs_close_last_fd(struct fs_connection *c, int fd);

/* The connection has ended, and the caller was told so. It says its last, and nobody answers for it any more. Adds its counters to `totals`.
 * fs_forget_fd follows, if others have it (fs_has_other_users). */
void fs_conn_finish(struct fs_path *path, struct fs_connection *c, struct fs_counters *totals);

/* Gives back its memory. For who was told FS_EXIT_RELEASE, not inside. */
void fs_conn_release(struct fs_path *path, struct fs_connection *c);

/* Ends a connection whose peer broke the protocol, with a RST. What the program gets: -ECONNRESET. */
int64_t fs_conn_reset(struct fs_connection *c);

/* What a way out asks of the front end. `list` writes at most `room` of the connection's numbers in this process and returns how many there
 * are. `keep` is for a connection that a loop's transport drives: the transport keeps the parcel, whose memfd it reads, in front of all that
 * comes. It returns 0 where it cannot; NULL: no transport drives connections here. */
struct fs_fallback_hooks {
    int (*list)(void *whose, int *numbers, int room);
    int (*keep)(void *whose, const struct fs_unread_data *unread_data);
    void *whose;
};

enum fs_left { FS_CANNOT_FALL_BACK = 0, FS_NOW_IN_KERNEL = 1, FS_FELL_BACK_BROKEN = 2 };

/* The way out, before somebody else reads and writes the descriptor: the connection goes back to the kernel, and stays there. If the peer
 * cannot help, the near end of a bridge takes the place of the kernel connection, `*bridge` is its process then, else 0.
 * FS_NOW_IN_KERNEL also of one that was never on the ring; FS_FELL_BACK_BROKEN: it could not leave whole, and was reset; FS_CANNOT_FALL_BACK: there are no
 * resources for it, and it stays. -EINTR: a turn is somebody else's; the caller looks for signals, and calls again. */
int fs_path_fall_back(struct fs_path *path, struct fs_connection *c, const struct fs_fallback_hooks *asks, int64_t *bridge);

#endif
