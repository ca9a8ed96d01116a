/* How the two ends of a connection find each other and agree to move. With the front end's lock.
 *
 * Both ends have been used for a while; neither knows the other. One of them, the publisher, publishes an abstract unix name
 * that both can make of the connection's addresses. The other one, the seeker, looks the name up, makes a region and sends it
 * there. The front end says whether an end may search, which of the two it is, and the name (fs_connector_begin); from then on the
 * connection's own operations take the steps (fs_connector_step), a few in its life. A step does not block. One thread at a time
 * takes one; others go on without. */
#ifndef FASTSOCK_CONNECTOR_H
#define FASTSOCK_CONNECTOR_H

#include "rendezvous/path_state.h"
#include "rendezvous/region_cache.h"

enum { FS_NAME_MAX = 107 }; /* bytes of a published name: what the address of an abstract socket has room for (unix(7)) */

/* The settings, as the front end has them in force. Connections that are searching follow them too. */
struct fs_upgrade_config {
    int window, chunk; /* of new regions */
    struct fs_flow_options flow;
    int64_t memory_cap; /* bytes */
    int64_t patience;   /* ns that a name is looked up for before the peer counts as foreign, and an answer is waited for */
    int trusts_any;     /* processes of any user are believed, if the connection's other end is theirs */
    int moves_polled;   /* connections whose descriptor may be polled move, too */
    int waits;          /* operations may wait for the other end: they take steps where nothing is known to have happened */
};
void fs_set_upgrade_config(const struct fs_upgrade_config *config);
int fs_moves_polled(void); /* the setting `moves_polled` */

/* What has come of a step, for the front end to tell and to act on. */
enum fs_step_outcome {
    FS_STEP_PENDING,
    FS_STEP_MOVED,  /* it has consented; `name` is the meeting's */
    FS_STEP_TCP,      /* on kernel TCP; the course has the reason */
    FS_STEP_BROKEN,      /* the same, as the peer broke the protocol: `violation`. The connection has been reset */
};
struct fs_step_result {
    enum fs_step_outcome what;
    int failed;    /* FS_STEP_TCP, for want of resources: which failure; 0: none that is known */
    int no_thread; /* why the connection thread could not be started again; 0: it was, or need not be */
    const char *violation;
    char name[FS_NAME_MAX + 1];
};

/* The end that publishes `name`, or looks it up, begins to search: from its next step on. The course is FS_STARTING. `ends`: as
 * fs_listing_publish. 0, or
 * -ENOMEM, -ENAMETOOLONG; and nothing happens if another thread has decided otherwise. */
int fs_connector_begin(struct fs_path *path, const char *name, size_t length, int publishes, const struct fs_tcp_identity *ends);

/* The next step of an undecided connection. The caller is inside (fs_call_enter) and knows which socket it is (fs_conn_identify). States
 * that are the front end's, and those in which another thread is at it, pass. */
void fs_connector_step(struct fs_path *path, struct fs_connection *c, const struct fs_attach_hooks *hooks, struct fs_step_result *outcome);

/* The connection stays on kernel TCP for `reason`, and a search ends. 0: it is on the ring, and there it stays. */
int fs_path_decide_tcp(struct fs_path *path, struct fs_connection *c, enum fs_reason reason);

/* Whoever looks for the peer stops: a name is taken back, and a region not yet taken is refused. If a step is under way, that
 * does it when it is over. For an end that ends, too. */
void fs_connector_end(struct fs_path *path);

/* ---- forks ------------------------------------------------------------------------------------------------- */

/* A fork begins, for which the connection thread stops. If nobody starts it again, an operation of a connection that is
 * attached does. (The steps of a search do it by themselves.) */
void fs_path_await_thread(struct fs_path *path, struct fs_connection *c);

/* In the child, after fs_regions_forget: the meeting is the parent's, and the child begins anew when it is the only
 * holder. */
void fs_path_restart(struct fs_path *path, struct fs_connection *c);

#endif
