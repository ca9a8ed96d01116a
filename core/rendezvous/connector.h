/* How the two ends of a connection find each other and agree to move. Called with the host lock.
 *
 * Neither end knows the other one's process. The publisher publishes an abstract unix name that both can make of the connection's
 * addresses. The seeker looks the name up, makes a region and sends it there. The front end decides if an end may search, which of the
 * two it is, and the name (fs_connector_begin). From then on a few of the connection's own operations take the steps
 * (fs_connector_step). A step does not block. One thread at a time takes a step; others go on without. */
#pragma once

#include "rendezvous/search.h"
#include "rendezvous/regions.h"

/* Starts the search of the end that publishes `name`, or looks it up; the next step begins it. The state must be FS_STARTING: otherwise
 * another thread has decided, and nothing happens. `ends`: of the connection, and the name is made of them; a test gives a name instead.
 * Returns 0, -ENOMEM or -ENAMETOOLONG. */
int fs_connector_begin(struct fs_path *path, const char *name, int publishes, const struct fs_stream_identity *ends);

/* Takes the next step of a connection that has one (fs_has_step). The caller is inside (fs_call_enter) and has called fs_conn_identify.
 * Does nothing in states that are the front end's, or while another thread takes a step. */
void fs_connector_step(struct fs_path *path, struct fs_connection *c, const struct fs_attach_hooks *hooks, struct fs_step_result *outcome);

/* Attaches the two ends of a connection, which are both this process's: no search is needed. `hooks`: of each, or NULL. */
void fs_connector_join(struct fs_path *paths[2], struct fs_connection *ends[2], const struct fs_attach_hooks *hooks,
                       struct fs_step_result outcomes[2]);

/* ---- forks ------------------------------------------------------------------------------------------------- */

/* A fork begins, for which the control thread stops. If nobody restarts it, an operation of an attached connection does. (The steps
 * of a search restart it themselves.) */
void fs_path_await_thread(struct fs_path *path, struct fs_connection *c);

/* Called in the child, after fs_regions_forget: the listing and the hello are the parent's, and the child starts again once it is the
 * only holder. */
void fs_path_restart(struct fs_path *path, struct fs_connection *c);
