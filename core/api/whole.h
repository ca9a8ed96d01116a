/* A connection as a front end has it: with its path, and its place in pollers. For the files of this room. */
#pragma once

#include "ready/ready.h"
#include "rendezvous/path_end.h"
#include "rendezvous/upgrade_delay.h"

struct fs_whole {
    struct fs_connection c; /* first: fs_conn_init returns it */
    struct fs_path path;
    struct fs_pollable pollable;
    struct fs_service *service;       /* NULL: nothing is known of it */
    int64_t operations;               /* after which it looks for its peer, if its connect is still under way */
};

static inline struct fs_whole *fs_whole_of(const struct fs_connection *c) { return (struct fs_whole *)(void *)c; }

/* Only these options are known to be unset: the kernel is asked for the others. (life.c) */
void fs_know_unset(struct fs_connection *c, uint32_t unset);

extern struct fs_front_end fs_front;
extern struct fs_counters fs_totals; /* of connections that have ended */
