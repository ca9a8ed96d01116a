/* The order of a search's steps, and the publisher's steps.
 *
 * Responsible for: the work of an undecided connection's next operation, and its result. Never: decides if it may search (the front
 * end), the order of states (path_state.c), the seeker's steps (seeker.c), whom a listing accepts (control/acceptor.c). As in
 * search.c, another thread may decide while the host lock is unlocked. */
#include "rendezvous/connector.h"

#include "control/cell.h"
#include "control/control_thread.h"
#include "control/trust.h"
#include "conn/state.h"
#include "process/holder_count.h"

enum {
    FORKED_PAUSE = 8,     /* operations before a connection shared with another process tries again */
    CORKED_PAUSE = 64,    /* operations before a connection with TCP_CORK tries again, unless that is cleared (fs_option_set) */
    TRY_PAUSE = 256, /* operations before the control thread is tried again: an attempt costs system calls and a warning */
};

/* ---- the publisher ------------------------------------------------------------------------------------------- */

static int publish(struct fs_step *at) {
    struct fs_connector *s = at->search;
    if (fs_operations(at->path) < at->path->first_contact) {
        struct fs_region_ref *region_ref = s->ends_known ? fs_cell_take(&s->ends) : NULL;
        if (region_ref) return fs_search_move(at, region_ref);
        if (!fs_regions_parked(1)) at->path->next = at->path->first_contact; /* no cell can come */
        return 0;
    }
    fs_search_name(s);
    int failed = fs_control_thread_start();
    if (!failed)
        failed = fs_listing_publish(s->name, strlen(s->name), fs_fd(at->c), s->ends_known ? &s->ends : NULL,
                                    fs_search_config.waits ? NULL : &at->path->listing_state, &s->handle);
    if (failed == FS_NO_THREAD) {
        at->outcome->no_thread = failed;
        at->path->next = fs_operations(at->path) + TRY_PAUSE;
        return 0;
    }
    if (failed == FS_TOO_MANY_LISTINGS || failed == -EAGAIN) {
        fs_search_retry_soon(at);
        return 0;
    }
    if (failed == -EADDRINUSE) {
        fs_search_stay_on_tcp(at, FS_REASON_NAME);
        return 0;
    }
    if (failed) return failed;
    s->published = 1;
    if (!fs_search_is_over(at)) fs_path_event(at->path, FS_PATH_NAMED);
    return 0;
}

static int check_listing(struct fs_step *at) {
    struct fs_accepted_region accepted;
    struct fs_region_ref *region_ref;
    enum fs_listing_state state = fs_listing_result(at->search->handle, &at->path->listing_state, &accepted);
    if (state == FS_LISTING_WAITING) return 0;
    at->search->published = 0;
    if (state == FS_LISTING_ACCEPTED) {
        int failed = fs_region_accept(&accepted, &region_ref);
        return failed ? failed : fs_search_move(at, region_ref);
    }
    if (state == FS_LISTING_NO_DESCRIPTORS) return -EMFILE;
    struct fs_peer_socket peer;
    if (state == FS_LISTING_FAILED) fs_search_reset(at, accepted.failure);
    else if (state == FS_LISTING_UNPROVEN) fs_search_stay_on_tcp(at, FS_REASON_UNPROVEN);
    else if (state == FS_LISTING_OTHER_VERSION) fs_search_stay_on_tcp(at, FS_REASON_VERSION);
    else if (state == FS_LISTING_OTHER_USER && fs_search_finds_peer(at, &peer) &&
             (peer.user != geteuid() || !fs_admits(peer.user)))
        fs_search_stay_on_tcp(at, FS_REASON_UNTRUSTED);
    else fs_search_stay_on_tcp(at, FS_REASON_PEER);
    return 0;
}

/* ---- one step ------------------------------------------------------------------------------------------------ */

static int search(struct fs_step *at) {
    struct fs_path *path = at->path;
    int failed = fs_control_thread_restart(); /* if nobody said that a fork is over */
    if (failed) at->outcome->no_thread = failed;
    if (fs_search_is_over(at)) return 0;
    if (fs_count_holders(fs_own(at->c)) > 1) {
        /* Another process may read the kernel's stream directly: wait until it has closed the connection. */
        at->search->checked = 0;
        fs_change_reason(path, at->c, FS_REASON_FORKED);
        path->next = fs_operations(path) + FORKED_PAUSE;
        return 0;
    }
    int checks = !at->search->checked && !fs_is_unset(path, FS_OPTION_OTHER);
    if (checks && at->c->stream->needs_kernel(fs_fd(at->c))) {
        fs_search_stay_on_tcp(at, FS_REASON_OPTION);
        return 0;
    }
    if (checks && at->c->stream->is_corked(fs_fd(at->c))) { /* for this message: servers do so for each of their answers */
        fs_change_reason(path, at->c, FS_REASON_OPTION);
        path->next = fs_operations(path) + CORKED_PAUSE;
        return 0;
    }
    at->search->checked = 1;
    if (fs_operations(path) >= path->first_contact) fs_change_reason(path, at->c, FS_REASON_SEEKING);
    path->next = fs_operations(path) + 1;
    switch (path->state) {
    case FS_TO_PUBLISH: return publish(at);
    case FS_PUBLISHED: return check_listing(at);
    case FS_LOOKING: return fs_search_look_up(at);
    case FS_AWAITING: return fs_search_await_wakeup(at);
    default: return 0; /* another thread takes the step */
    }
}

/* Takes a step of the search, unless another thread takes one. */
static void take_step(struct fs_path *path, struct fs_connection *c, const struct fs_attach_hooks *hooks, struct fs_step_result *outcome,
                      int (*body)(struct fs_step *)) {
    struct fs_step at = {path, c, path->search, hooks, outcome};
    if (!at.search || at.search->stepping) return;
    at.search->stepping = 1;
    int failed = body(&at);
    if (failed) fs_search_fail(&at, failed);
    at.search->stepping = 0;
    if (fs_search_is_over(&at)) fs_search_withdraw(path, at.search);
}

void fs_connector_step(struct fs_path *path, struct fs_connection *c, const struct fs_attach_hooks *hooks, struct fs_step_result *outcome) {
    *outcome = (struct fs_step_result){.what = FS_STEP_PENDING};
    if (path->state == FS_FAULTED) {
        fs_note_fault(c, path->fault);
        fs_search_reset(&(struct fs_step){path, c, path->search, hooks, outcome}, path->fault);
        return;
    }
    if (path->state != FS_THREAD_LATER && path->state != FS_ANSWER_LATER) {
        take_step(path, c, hooks, outcome, search);
        return;
    }
    if (fs_forks_under_way()) { /* another thread's: its child must not find the control thread running */
        path->next = fs_operations(path) + 1;
    } else if (path->state == FS_THREAD_LATER) {
        outcome->no_thread = fs_control_thread_restart();
        if (outcome->no_thread) path->next = fs_operations(path) + TRY_PAUSE;
        else fs_path_event(path, FS_PATH_ANSWERED);
    } else {
        /* The parent may close the connection. (Until this succeeds requests go unanswered as before: fs_may_miss_hints.) */
        fs_path_event(path, FS_PATH_ANSWERED);
        if (path->region_ref && fs_region_inherit(path->region_ref, c)) {
            fs_path_event(path, FS_PATH_INHERIT);
            path->next = fs_operations(path) + TRY_PAUSE;
        }
    }
}

int fs_connector_begin(struct fs_path *path, const char *name, int publishes, const struct fs_stream_identity *ends) {
    if (path->state != FS_STARTING) return 0;
    if (name && strlen(name) > FS_NAME_MAX) return -ENAMETOOLONG;
    struct fs_connector *s = fs_system.calloc(1, sizeof *s);
    if (!s) return -ENOMEM;
    if (name) memcpy(s->name, name, strlen(name));
    if (ends) s->ends = *ends;
    s->ends_known = ends != NULL;
    s->control = s->lookup.fd = -1;
    fs_meeting_init(&s->far);
    path->search = s;
    fs_path_event(path, publishes ? FS_PATH_PUBLISH : FS_PATH_SEEK);
    return 0;
}

void fs_connector_join(struct fs_path *paths[2], struct fs_connection *ends[2], const struct fs_attach_hooks *hooks,
                       struct fs_step_result outcomes[2]) {
    static const enum fs_path_events steps[] = {FS_PATH_START, FS_PATH_PUBLISH, FS_PATH_CAME};
    struct fs_region_ref *regions[2];
    int failed = fs_region_new_pair(fs_search_config.window, fs_search_config.chunk, regions);
    for (int i = 0; i < 2; i++) {
        struct fs_step at = {paths[i], ends[i], NULL, hooks ? &hooks[i] : NULL, &outcomes[i]};
        outcomes[i] = (struct fs_step_result){.what = FS_STEP_PENDING};
        if (failed) {
            fs_search_fail(&at, failed);
            continue;
        }
        for (size_t step = 0; step < sizeof steps / sizeof *steps; step++) fs_path_event(paths[i], steps[step]);
        fs_search_attach(&at, regions[i]);
    }
}

/* ---- forks --------------------------------------------------------------------------------------------------- */

void fs_path_await_thread(struct fs_path *path, struct fs_connection *c) {
    if (fs_is_attached(c) && fs_path_event(path, FS_PATH_FORK)) path->next = fs_operations(path);
}

void fs_path_restart(struct fs_path *path, struct fs_connection *c) {
    struct fs_connector *s = path->search;
    if (fs_is_attached(c)) {
        fs_path_event(path, FS_PATH_INHERIT);
        path->next = fs_operations(path);
        return;
    }
    fs_path_event(path, FS_PATH_CHILD);
    if (!s) return;
    s->stepping = s->published = 0;
    path->listing_state = NULL;
    fs_contact_forget(&s->posts);
    fs_search_give_up(s);
    path->next = fs_operations(path);
}
