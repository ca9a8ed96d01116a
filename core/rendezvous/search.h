/* What the steps of a search share. connector.c has those of the publisher and their order, seeker.c those of the seeker. For
 * these alone, but for the end of a search. */
#pragma once

#include "control/far_meeting.h"
#include "control/rendezvous_dir.h"
#include "rendezvous/path_state.h"
#include "rendezvous/peer_lookup.h"
#include "rendezvous/subsequent_contact.h"

struct fs_connector {
    char name[FS_NAME_MAX + 1];  /* "": it is still to be made */
    struct fs_stream_identity ends; /* of the connection, if ends_known */
    int ends_known;
    int stepping, checked; /* a thread takes a step; nothing in the kernel's connection was in the way */
    int published; /* the name is published, as `handle` */
    uint64_t handle;
    struct fs_peer_lookup lookup;
    int control;                      /* the socket to the publisher; -1: none */
    pid_t peer;                       /* the process at its other end */
    int trusted;                      /* which belongs to a trusted user */
    struct fs_far_meeting far;        /* with it, in another network namespace */
    struct fs_region_ref *region_ref; /* sent with the hello */
    struct fs_subsequent_contact posts; /* or offered without one */
    int reused;                       /* a parked region was offered: the next one is new */
    int64_t until;                    /* monotonic ns: limit of the wait for an answer */
    int checks, next_check, attempts; /* the socket is checked when both are equal */
    int began;      /* it has looked the name up, or is about to */
};

struct fs_step {
    struct fs_path *path;
    struct fs_connection *c;
    struct fs_connector *search;
    const struct fs_attach_hooks *hooks;
    struct fs_step_result *outcome;
};

/* Returns true if the other end is in another network namespace, so that the name is a path. */
static inline int fs_search_is_far(const struct fs_connector *s) { return *s->name == '/'; }

extern struct fs_upgrade_config fs_search_config;

/* Returns true if the kernel tells what the socket at the other end is, and sets `*peer`. */
static inline int fs_search_finds_peer(const struct fs_step *at, struct fs_peer_socket *peer) {
    const struct fs_connector *s = at->search;
    return s->ends_known && s->ends.kind->find_peer(&s->ends, -1, peer);
}

/* ---- its end (search.c) ------------------------------------------------------------------------------------- */

/* Ends the search: the connection stays on kernel TCP for `reason`. Returns 0 if it is already on the ring, where it stays. */
int fs_path_decide_tcp(struct fs_path *path, struct fs_connection *c, enum fs_reason reason);

/* Returns true if a descriptor of the connection is on its way to the publisher, or there. */
int fs_search_sent_descriptor(const struct fs_path *path);

/* Ends the search: withdraws the name, and refuses a region not yet taken. If a step is under way, that thread does so when the step is
 * over. Also for a connection that ends. */
void fs_search_end(struct fs_path *path);

/* Ends this attempt: refuses a region not yet taken, and closes the control socket. */
void fs_search_give_up(struct fs_connector *s);

/* Releases the resources of a search that its path has forgotten. */
void fs_search_withdraw(struct fs_path *path, struct fs_connector *s);

/* ---- results of a step (search.c) --------------------------------------------------------------------------- */

/* Returns true if another thread has decided otherwise since the step began. */
int fs_search_is_over(const struct fs_step *at);

void fs_search_stay_on_tcp(struct fs_step *at, enum fs_reason reason);

/* The step failed, as `failed` says: -errno or FS_CAP_REACHED. The connection stays on kernel TCP. */
void fs_search_fail(struct fs_step *at, int failed);

/* The peer broke the protocol, or we did (fs_note_fault): resets the connection. */
void fs_search_reset(struct fs_step *at, const char *violation);

/* All descriptors for searches are in use: tries again soon. */
void fs_search_retry_soon(struct fs_step *at);

/* This attempt failed: makes another one, with a new region; or stays on kernel TCP, `otherwise`. */
void fs_search_again(struct fs_step *at, enum fs_reason otherwise);

/* Both have the region: attaches it. Return 0. fs_search_attach does not ask if another process has the connection. */
int fs_search_move(struct fs_step *at, struct fs_region_ref *region_ref);
int fs_search_attach(struct fs_step *at, struct fs_region_ref *region_ref);

/* Makes the name, unless it is made. (Most of those that have met before never need it.) */
void fs_search_name(struct fs_connector *s);

/* ---- the seeker's steps (seeker.c). Return 0 or -errno ----------------------------------------------------- */

int fs_search_look_up(struct fs_step *at);
int fs_search_await_wakeup(struct fs_step *at);
