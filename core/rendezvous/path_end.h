/* How a connection with its path ends in this process and falls back: the order of steps for every front end. Called with the host lock,
 * which is unlocked while others are waited for. The caller is inside (fs_call_enter) unless the comment says otherwise. The index by
 * which the front end finds connections is its own. */
#pragma once

#include "conn/fallback.h"
#include "conn/recovery.h"
#include "rendezvous/connector.h"

/* Closes a connection that has ended; the caller is the one chosen for this. Nobody answers requests for it any more. Adds its counters
 * to `totals`. fs_forget_fd follows if there are other users (fs_has_other_users). */
void fs_conn_finish(struct fs_path *path, struct fs_connection *c, struct fs_counters *totals);

/* Frees its memory. For the caller that got FS_EXIT_RELEASE; not inside. */
void fs_conn_release(struct fs_path *path, struct fs_connection *c);

/* fs_fall_back (fastsock.h). */
int fs_path_fall_back(struct fs_path *path, struct fs_connection *c, const struct fs_fallback_hooks *hooks, int64_t *bridge);
