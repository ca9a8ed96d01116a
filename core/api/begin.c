/* How a front end's connection begins: early, and then open.
 *
 * Most connections of many programs end early, and what is done for these is nearly all that they cost beside the kernel's part. So it asks
 * for no memory, and stays short.
 *
 * Responsible for: how long a connection is early, and that it counts. Never: the steps of its path (path.c). */
#include "api/whole.h"

#include "conn/open_close.h"
#include "conn/state.h"
#include "control/cell.h"
#include "process/conn_table.h"

/* ---- early ------------------------------------------------------------------------------------------------------ */

void fs_early_begin(struct fs_early *e, int fd, int64_t operations, struct fs_service *service, int connecting) {
    int is_linked = service && fs_is_linked(service);
    int64_t begins = fs_search_begins(service, operations), first = is_linked ? fs_first_step(service, begins) : begins;
    enum fs_reason reason = fs_reason_before(begins, operations);
    e->service = service;
    e->operations = (uint32_t)FS_MIN(operations, (int64_t)UINT32_MAX);
    e->allowed = (uint32_t)FS_MIN(first - (first > 0), (int64_t)INT32_MAX);
    fs_store_relaxed(&e->reason, (uint32_t)reason);
    fs_store_relaxed(&e->shown, (uint32_t)fd + 1);
    e->counted = !connecting;
    e->meets = is_linked && !connecting && fs_regions_parked(0);
    if (!connecting) fs_count_opened(reason);
    if (!e->entry) e->entry = fs_table_add_early(e) + 1;
}

void fs_early_connected(struct fs_early *e) {
    if (e->counted) return;
    fs_count_opened((enum fs_reason)fs_load_relaxed(&e->reason));
    e->counted = 1;
}

int fs_early_waits(struct fs_early *e, int is_tcp) {
    if (e->allowed || (is_tcp && (fs_regions_parked(0) || fs_any_cell_posted()))) return 0;
    e->allowed = 1;
    return 1;
}

void fs_early_end(struct fs_early *e, uint32_t made) {
    fs_store_relaxed(&e->shown, 0);
    if (e->service && fs_is_news(e->service, made)) fs_note_session(e->service, made, FS_NOT_SEARCHED, 0, 0);
}

/* ---- open ------------------------------------------------------------------------------------------------------- */

static void open_path(struct fs_whole *w) {
    int64_t after = fs_search_begins(w->service, w->operations);
    enum fs_reason reason = fs_reason_before(after, w->operations);
    fs_count_opened(reason);
    /* (Operations count from the beginning of a connect: who does not wait for it has not told us yet that it is over.) */
    int64_t made = fs_operations(&w->path), first = FS_MAX(fs_first_step(w->service, after), made);
    w->path.first_contact = fs_first_contact(w->service, first, after);
    fs_path_open(&w->path, &w->c, first - made, reason);
}

static void begin_path(struct fs_whole *w, struct fs_early *e) {
    if (e->counted) {
        fs_uncount_opened((enum fs_reason)fs_load_relaxed(&e->reason));
        open_path(w);
        return;
    }
    fs_path_event(&w->path, FS_PATH_CONNECT);
    /* Until then nobody has to know if it is over. */
    w->path.next = FS_MAX(fs_first_step(w->service, fs_search_begins(w->service, w->operations)), fs_operations(&w->path));
    fs_note_reason(&w->path, &w->c, FS_REASON_FEW);
}

int fs_conn_begin(struct fs_connection *c, int fd, uint32_t unset, struct fs_early *e, uint32_t made) {
    struct fs_whole *w = fs_whole_of(c);
    w->operations = e->operations;
    w->service = e->service;
    fs_count(&w->path.operations, made);
    int place = e->entry - 1;
    e->entry = 0;
    fs_store_relaxed(&e->shown, 0);
    if (fs_conn_open(c, fd, 0, place) < 0) {
        fs_conn_discard(c, &fs_totals);
        fs_note_not_open(c);
        return -ENOMEM;
    }
    fs_know_unset(c, unset);
    if (fs_front.polls) fs_poller_connected(&w->pollable, c);
    begin_path(w, e);
    return 0;
}

void fs_path_connected(struct fs_connection *c) {
    struct fs_whole *w = fs_whole_of(c);
    if (w->path.state == FS_CONNECTING && fs_path_event(&w->path, FS_PATH_CONNECTED)) open_path(w);
}
