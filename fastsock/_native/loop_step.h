/* A step of a connection that a loop drives: it becomes a member of the loop's poller when it attaches. */
#pragma once

#include "fastsock_loop.h"
#include "libc_front.h"

struct fs_loop_seat {
    struct fs_poller *poller;
    void *data;               /* that events of the member tell */
    struct fs_member *member; /* NULL: it has not attached */
};

static inline int fs_loop_watch(void *whose, struct fs_connection *c) {
    struct fs_loop_seat *seat = whose;
    int failed;
    seat->member = fs_loop_add(seat->poller, c, seat->data, &failed);
    return seat->member ? 0 : failed;
}

static inline void fs_loop_ignore(void *whose, struct fs_connection *c) {
    struct fs_loop_seat *seat = whose;
    (void)c;
    fs_loop_drop(seat->member);
    seat->member = NULL;
}

static inline void fs_libc_step_in(struct fs_connection *c, struct fs_loop_seat *seat, struct fs_step_result *result) {
    struct fs_attach_hooks hooks = {fs_loop_watch, fs_loop_ignore, seat};
    fs_libc_step(c, &hooks, result);
}

static inline int fs_libc_hand_over_in(struct fs_connection *c, struct fs_loop_seat *seat) {
    struct fs_attach_hooks hooks = {fs_loop_watch, fs_loop_ignore, seat};
    return fs_libc_hand_over(c, &hooks);
}
