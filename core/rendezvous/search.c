/* What both sides of a search share: its end, the results of a step, and the move.
 *
 * The host lock is unlocked in some of the calls below. So another thread may decide meanwhile, or end the connection: the path has no
 * search then, or another one, and the thread that took the step releases the resources of the search. */
#include "rendezvous/search.h"

#include <pthread.h>

#include "control/control_thread.h"
#include "control/fd_reaper.h"
#include "control/link.h"
#include "control/listener.h"
#include "conn/state.h"
#include "process/holder_count.h"
#include "rendezvous/listing_name.h"

enum {
    ATTEMPTS = 4,         /* failed attempts before the search ends */
    RETRY_OPERATIONS = 4, /* operations before a connection that waits for a descriptor tries again */
};

struct fs_upgrade_config fs_search_config;

void fs_set_upgrade_config(const struct fs_upgrade_config *given) {
    fs_search_config = *given;
    fs_set_memory_cap(given->memory_cap);
}

/* ---- end of a search ------------------------------------------------------------------------------------------ */

static void close_control(struct fs_connector *s) {
    if (s->control >= 0) fs_reap_seeker(s->control, s->trusted);
    s->control = -1;
    s->trusted = 0;
    fs_meeting_end(&s->far);
}

void fs_search_give_up(struct fs_connector *s) {
    /* A fork may come while the host lock is unlocked in there: the child releases its own. */
    if (s->region_ref) fs_region_discard(s->region_ref);
    s->region_ref = NULL;
    fs_contact_withdraw(&s->posts, 0);
    close_control(s);
    fs_lookup_end(&s->lookup);
}

void fs_search_withdraw(struct fs_path *path, struct fs_connector *s) {
    if (s->published) fs_listing_withdraw(s->handle, &path->listing_state);
    fs_search_give_up(s);
    fs_system.free(s);
}

int fs_search_sent_descriptor(const struct fs_path *path) {
    return path->state == FS_AWAITING && path->search && path->search->control >= 0;
}

void fs_search_end(struct fs_path *path) {
    struct fs_connector *s = path->search;
    path->search = NULL;
    fs_path_event(path, FS_PATH_STAY);
    if (s && !s->stepping) fs_search_withdraw(path, s);
}

int fs_path_decide_tcp(struct fs_path *path, struct fs_connection *c, enum fs_reason reason) {
    int counted = path->state != FS_CONNECTING;
    fs_search_end(path);
    if (fs_is_attached(c)) return 0;
    if (counted) {
        fs_change_reason(path, c, reason);
    } else {
        fs_note_reason(path, c, reason);
        /* a descriptor passed on unused is not counted as this program's connection */
        if (reason != FS_REASON_DETACHED) fs_count_opened(reason);
    }
    return 1;
}

/* ---- results of a step -------------------------------------------------------------------------------------- */

int fs_search_is_over(const struct fs_step *at) { return at->path->search != at->search; }

void fs_search_stay_on_tcp(struct fs_step *at, enum fs_reason reason) {
    if (fs_search_is_over(at)) return;
    if (reason == FS_REASON_PEER && fs_search_is_far(at->search)) reason = FS_REASON_ABSENT;
    fs_path_decide_tcp(at->path, at->c, reason);
    at->outcome->what = FS_STEP_TCP;
}

void fs_search_reset(struct fs_step *at, const char *violation) {
    if (fs_search_is_over(at)) return;
    fs_path_decide_tcp(at->path, at->c, FS_REASON_VIOLATION);
    fs_conn_reset(at->c);
    at->c->ring.violation = violation;
    at->outcome->what = FS_STEP_BROKEN;
    at->outcome->violation = violation;
}

void fs_search_fail(struct fs_step *at, int failed) {
    if (failed == FS_CAP_REACHED) {
        fs_search_stay_on_tcp(at, FS_REASON_MEMORY_CAP);
    } else if (failed == -ENOTCONN) {
        fs_search_stay_on_tcp(at, FS_REASON_ENDING);
    } else if (!fs_search_is_over(at)) {
        at->outcome->failed = failed;
        fs_search_stay_on_tcp(at, FS_REASON_RESOURCES);
    }
}

/* The next operation after one becomes free gets it, and does not compete any
 * more when its search is over. So every connection gets one in time. If those that have waited longest tried again latest, published
 * names would wait for them in vain. */
void fs_search_retry_soon(struct fs_step *at) { at->path->next = fs_operations(at->path) + RETRY_OPERATIONS; }

/* The publisher may have withdrawn its name because of a fork, and one of its
 * processes publishes it again. */
void fs_search_again(struct fs_step *at, enum fs_reason otherwise) {
    fs_search_give_up(at->search);
    if (!fs_search_is_over(at)) fs_path_event(at->path, FS_PATH_AGAIN);
    if (++at->search->attempts == ATTEMPTS) fs_search_stay_on_tcp(at, otherwise);
}

/* ---- the move ------------------------------------------------------------------------------------------------ */

/* No fork comes between the check of who shares the connection and consent: a fork waits for `attaching`, unless it began before, or
 * this thread makes it in a signal handler. */
int fs_search_attach(struct fs_step *at, struct fs_region_ref *region_ref) {
    const char *wrong;
    at->path->attaching = (unsigned long)pthread_self();
    int failed = fs_region_attach(region_ref, at->c, &fs_search_config.flow, at->hooks, &wrong);
    if (!failed) {
        at->path->region_ref = region_ref;
        fs_path_counts.by_reason[at->path->reason]--;
        fs_path_counts.ring++;
        fs_note_reason(at->path, at->c, FS_REASON_NONE);
        fs_path_event(at->path, FS_PATH_MOVED);
        at->outcome->what = FS_STEP_MOVED;
        if (!fs_search_is_over(at)) at->path->search = NULL;
    }
    at->path->attaching = 0;
    if (!failed) return 0;
    /* First, as a fork may come while a region is released. */
    if (failed == -EINVAL && wrong) fs_search_reset(at, wrong);
    else fs_search_fail(at, failed);
    fs_region_discard(region_ref); /* no consent was given */
    return 0;
}

int fs_search_move(struct fs_step *at, struct fs_region_ref *region_ref) {
    if (fs_search_is_over(at)) {
        fs_region_discard(region_ref);
        return 0;
    }
    fs_path_event(at->path, FS_PATH_CAME);
    if (!fs_forks_under_way() && !at->path->attaching && fs_count_holders(fs_own(at->c)) <= 1) return fs_search_attach(at, region_ref);
    fs_search_stay_on_tcp(at, FS_REASON_FORKED); /* a fork since this step began */
    fs_region_discard(region_ref);
    return 0;
}

void fs_search_name(struct fs_connector *s) {
    if (!*s->name) fs_listing_name(&s->ends, s->name);
    if (!s->lookup.name) fs_lookup_begin(&s->lookup, s->name, strlen(s->name), fs_search_config.patience);
}
