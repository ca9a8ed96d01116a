/* How a front end's connection begins and ends.
 *
 * Responsible for: that its parts are told in the right order. Never: what a part does. */
#include "api/whole.h"

#include "conn/open_close.h"
#include "conn/state.h"
#include "control/cell.h"
#include "process/conn_table.h"

/* What the public header's inline functions read. */
#define FS_SAME(head, field, whole, same) \
    _Static_assert(offsetof(struct head, field) == offsetof(struct whole, same), "as the header has it")
FS_SAME(fs_conn_head, fd, fs_connection, fd);
FS_SAME(fs_conn_head, own, fs_connection, own);
FS_SAME(fs_conn_head, settled, fs_connection, settled);
FS_SAME(fs_conn_head, attached, fs_connection, is.attached);
FS_SAME(fs_conn_head, life, fs_connection, is.life);
FS_SAME(fs_conn_head, in_kernel, fs_connection, is.in_kernel);
FS_SAME(fs_side_head, moved, fs_shared_side, moved);
FS_SAME(fs_side_head, holders, fs_shared_side, holders);

/* (A multiple of 64, so that a front end may have many in a row.) */
size_t fs_conn_size(void) { return (sizeof(struct fs_whole) + 63) & ~(size_t)63; }

struct fs_connection *fs_conn_init(void *memory) {
    struct fs_whole *w = memory;
    fs_note_not_open(&w->c);
    w->c.place = -1; /* 0 would be another connection's */
    w->path = (struct fs_path){0};
    w->pollable = (struct fs_pollable){0};
    w->service = NULL;
    w->operations = 0;
    return &w->c;
}

void fs_know_unset(struct fs_connection *c, uint32_t unset) {
    fs_store_relaxed(&fs_whole_of(c)->path.unset, unset);
    c->counted = (unset & FS_KNOWN_FRESH) != 0 && !fs_operations(&fs_whole_of(c)->path);
    if (unset & FS_OPTION_TIMEOUTS) fs_store_relaxed(&c->receive_timeout, (uint64_t)-1), fs_store_relaxed(&c->send_timeout, (uint64_t)-1);
    else fs_forget_timeouts(c);
}

void fs_finish(struct fs_connection *c) {
    struct fs_whole *w = fs_whole_of(c);
    if (w->service) fs_note_session_of(w->service, &w->path, c);
    fs_conn_finish(&w->path, c, &fs_totals);
}

void fs_lose_fd(struct fs_connection *c) {
    if (fs_has_other_users(c)) fs_forget_fd(c);
}

int fs_after_exit(struct fs_connection *c, struct fs_call *call, enum fs_exit_action after) {
    int spare = -1;
    if (after == FS_EXIT_CLOSE) { /* the number is the spare one, which fs_close_last_fd has made */
        spare = fs_fd(c);
        fs_finish(c);
        fs_lose_fd(c);
        after = fs_call_exit(c, call);
    }
    if (after == FS_EXIT_RELEASE) fs_conn_release(&fs_whole_of(c)->path, c);
    if (spare >= 0) fs_system.close(spare);
    return after == FS_EXIT_RELEASE;
}

struct fs_pollable *fs_pollable_of(struct fs_connection *c) { return &fs_whole_of(c)->pollable; }
