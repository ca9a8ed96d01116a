/* How a connection with its path ends in this process and falls back: the order of steps for every front end. Called with the host lock,
 * which is unlocked while others are waited for. The caller is inside (fs_call_enter) unless the comment says otherwise. The index by
 * which the front end finds connections is its own. */
#ifndef FASTSOCK_ENDPOINT_H
#define FASTSOCK_ENDPOINT_H

#include "conn/fallback.h"
#include "conn/recovery.h"
#include "rendezvous/connector.h"

/* Closes the connection's last number `fd`. The kernel keeps a connection open while a call is in progress on it; likewise this function
 * gives the connection a reserved number for that time. Returns 1 if the connection has ended by this call: the caller calls
 * fs_conn_finish, ends its call, and then closes `fd`. Returns 0 if not: the caller only ends its call. */
int fs_close_last_fd(struct fs_connection *c, int fd);

/* Closes a connection that has ended; the caller is the one chosen for this. Nobody answers requests for it any more. Adds its counters
 * to `totals`. fs_forget_fd follows if there are other users (fs_has_other_users). */
void fs_conn_finish(struct fs_path *path, struct fs_connection *c, struct fs_counters *totals);

/* Frees its memory. For the caller that got FS_EXIT_RELEASE; not inside. */
void fs_conn_release(struct fs_path *path, struct fs_connection *c);

/* What a fallback asks of the front end. `list` writes at most `room` of the connection's descriptors in this process, and returns how many
 * there are. `keep` is for a connection that a loop's transport drives: the transport reads the unread data from its memfd, and delivers it
 * before all that follows. Returns 0 on failure. NULL if no transport drives connections here. */
struct fs_fallback_hooks {
    int (*list)(void *whose, int *numbers, int room);
    int (*keep)(void *whose, const struct fs_unread_data *unread_data);
    void *whose;
};

enum fs_fall_back_outcome { FS_CANNOT_FALL_BACK = 0, FS_NOW_IN_KERNEL = 1, FS_FELL_BACK_BROKEN = 2 };

/* The fallback, before somebody else reads and writes the descriptor: the connection goes back to the kernel, and stays there. If the
 * peer cannot help, the near end of a bridge replaces the kernel connection, and `*bridge` is its process id, else 0.
 * Returns FS_NOW_IN_KERNEL, also for a connection that was never on the ring; FS_FELL_BACK_BROKEN if bytes were lost and the connection
 * was reset; FS_CANNOT_FALL_BACK if resources are missing, and it stays on the ring; -EINTR if another thread has a lock: the caller
 * handles signals, and calls again. */
int fs_path_fall_back(struct fs_path *path, struct fs_connection *c, const struct fs_fallback_hooks *hooks, int64_t *bridge);

#endif
