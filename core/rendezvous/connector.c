/* The steps of a search.
 *
 * Responsible for: the work of an undecided connection's next operation, and its result. Never: decides if it may search (the front
 * end), the order of states (path_state.c), whom a listing accepts (control/acceptor.c).
 *
 * The host lock is unlocked in some of the calls below. So another thread may decide meanwhile, or end the connection: the path has no
 * search then, or another one, and the thread that took the step releases the resources of the search. */
#include "rendezvous/connector.h"

#include <pthread.h>

#include "control/cell.h"
#include "control/fd_reaper.h"
#include "control/region_mmap.h"
#include "control/control_thread.h"
#include "control/trust.h"
#include "conn/recovery.h"
#include "conn/state.h"
#include "rendezvous/listing_name.h"
#include "rendezvous/peer_lookup.h"
#include "rendezvous/subsequent_contact.h"
#include "process/holder_count.h"
#include "wire/control_msg.h"

enum {
    ATTEMPTS = 4,         /* failed attempts before the search ends */
    RETRY_OPERATIONS = 4, /* operations before a connection that waits for a descriptor tries again */
    FORKED_PAUSE = 8,     /* operations before a connection shared with another process tries again */
    CORKED_PAUSE = 64,    /* operations before a connection with TCP_CORK tries again, unless that is cleared (fs_option_set) */
    FIRST_CHECK = 4, CHECK_DOUBLINGS = 4, /* steps before the socket is first checked for an answer; doubled so many times */
    TRY_PAUSE = 256, /* operations before the control thread is tried again: an attempt costs system calls and a warning */
};

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
    struct fs_region_ref *region_ref; /* sent with the hello */
    struct fs_subsequent_contact posts; /* or offered without one */
    int reused;                       /* a cached region was offered: the next one is new */
    int64_t until;                    /* monotonic ns: limit of the wait for an answer */
    int checks, next_check, attempts; /* the socket is checked when both are equal */
    int began;      /* it has looked the name up, or is about to */
};

static struct fs_upgrade_config config;

void fs_set_upgrade_config(const struct fs_upgrade_config *given) {
    config = *given;
    fs_set_memory_cap(given->memory_cap);
}

/* ---- end of a search ------------------------------------------------------------------------------------------ */

static void close_control(struct fs_connector *s) {
    if (s->control >= 0) fs_reap_seeker(s->control, s->trusted);
    s->control = -1;
    s->trusted = 0;
}

static void give_up_attempt(struct fs_connector *s) {
    /* A fork may come while the host lock is unlocked in there: the child releases its own. */
    if (s->region_ref) fs_region_discard(s->region_ref);
    s->region_ref = NULL;
    fs_contact_withdraw(&s->posts, 0);
    close_control(s);
    fs_lookup_end(&s->lookup);
}

/* Releases the resources of a search that its path has forgotten. */
static void withdraw(struct fs_path *path, struct fs_connector *s) {
    if (s->published) fs_listing_withdraw(s->handle, &path->listing_state);
    give_up_attempt(s);
    fs_system.free(s);
}

int fs_connector_sent_descriptor(const struct fs_path *path) {
    return path->state == FS_AWAITING && path->search && path->search->control >= 0;
}

void fs_connector_end(struct fs_path *path) {
    struct fs_connector *s = path->search;
    path->search = NULL;
    fs_path_event(path, FS_PATH_STAY);
    if (s && !s->stepping) withdraw(path, s);
}

int fs_path_decide_tcp(struct fs_path *path, struct fs_connection *c, enum fs_reason reason) {
    int counted = path->state != FS_CONNECTING;
    fs_connector_end(path);
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

struct step {
    struct fs_path *path;
    struct fs_connection *c;
    struct fs_connector *search;
    const struct fs_attach_hooks *hooks;
    struct fs_step_result *outcome;
};

/* Returns true if another thread has decided otherwise since the step began. */
static int is_over(const struct step *at) { return at->path->search != at->search; }

static void stay_on_tcp(struct step *at, enum fs_reason reason) {
    if (is_over(at)) return;
    fs_path_decide_tcp(at->path, at->c, reason);
    at->outcome->what = FS_STEP_TCP;
}

/* The peer broke the protocol, or we did (fs_note_fault): resets the connection. */
static void reset_violator(struct step *at, const char *violation) {
    if (is_over(at)) return;
    fs_path_decide_tcp(at->path, at->c, FS_REASON_VIOLATION);
    fs_conn_reset(at->c);
    at->c->ring.violation = violation;
    at->outcome->what = FS_STEP_BROKEN;
    at->outcome->violation = violation;
}

static void fail(struct step *at, int failed) {
    if (failed == FS_CAP_REACHED) {
        stay_on_tcp(at, FS_REASON_MEMORY_CAP);
    } else if (failed == -ENOTCONN) {
        stay_on_tcp(at, FS_REASON_ENDING);
    } else if (!is_over(at)) {
        at->outcome->failed = failed;
        stay_on_tcp(at, FS_REASON_RESOURCES);
    }
}

/* All descriptors for searches are in use: tries again soon. The next operation after one becomes free gets it, and does not compete any
 * more when its search is over. So every connection gets one in time. If those that have waited longest tried again latest, published
 * names would wait for them in vain. */
static void retry_soon(struct step *at) { at->path->next = fs_operations(at->path) + RETRY_OPERATIONS; }

/* This attempt failed: makes another one, with a new region. The publisher may have withdrawn its name because of a fork, and one of its
 * processes publishes it again. */
static void retry_search(struct step *at, enum fs_reason otherwise) {
    give_up_attempt(at->search);
    if (!is_over(at)) fs_path_event(at->path, FS_PATH_AGAIN);
    if (++at->search->attempts == ATTEMPTS) stay_on_tcp(at, otherwise);
}

/* ---- the move ------------------------------------------------------------------------------------------------ */

/* No fork comes between the check of who shares the connection and consent: a fork waits for `attaching`, unless it began before, or
 * this thread makes it in a signal handler. */
static int attach(struct step *at, struct fs_region_ref *region_ref) {
    const char *wrong;
    at->path->attaching = (unsigned long)pthread_self();
    int failed = fs_region_attach(region_ref, at->c, &config.flow, at->hooks, &wrong);
    if (!failed) {
        at->path->region_ref = region_ref;
        fs_path_counts.by_reason[at->path->reason]--;
        fs_path_counts.ring++;
        fs_note_reason(at->path, at->c, FS_REASON_NONE);
        fs_path_event(at->path, FS_PATH_MOVED);
        at->outcome->what = FS_STEP_MOVED;
        if (!is_over(at)) at->path->search = NULL;
    }
    at->path->attaching = 0;
    if (!failed) return 0;
    /* First, as a fork may come while a region is released. */
    if (failed == -EINVAL && wrong) reset_violator(at, wrong);
    else fail(at, failed);
    fs_region_discard(region_ref); /* no consent was given */
    return 0;
}

static int move(struct step *at, struct fs_region_ref *region_ref) {
    if (is_over(at)) {
        fs_region_discard(region_ref);
        return 0;
    }
    fs_path_event(at->path, FS_PATH_CAME);
    if (!fs_forks_under_way() && !at->path->attaching && fs_count_holders(fs_own(at->c)) <= 1) return attach(at, region_ref);
    stay_on_tcp(at, FS_REASON_FORKED); /* a fork since this step began */
    fs_region_discard(region_ref);
    return 0;
}

/* ---- the publisher ------------------------------------------------------------------------------------------- */

static void name_it(struct fs_connector *s) { /* (most of those that have met before never need it) */
    if (!*s->name) fs_listing_name(&s->ends, s->name);
    if (!s->lookup.name) fs_lookup_begin(&s->lookup, s->name, strlen(s->name), config.patience);
}

static int publish(struct step *at) {
    struct fs_connector *s = at->search;
    if (fs_operations(at->path) < at->path->first_contact) {
        struct fs_region_ref *region_ref = NULL;
        int failed = s->ends_known ? fs_contact_take(fs_fd(at->c), &s->ends, &region_ref) : 0;
        if (region_ref) return move(at, region_ref);
        if (!fs_cell_may_come()) at->path->next = at->path->first_contact;
        return failed;
    }
    name_it(s);
    int failed = fs_listing_publish(s->name, strlen(s->name), fs_fd(at->c), s->ends_known ? &s->ends : NULL,
                            config.waits ? NULL : &at->path->listing_state, &s->handle);
    if (failed == FS_NO_THREAD) {
        at->outcome->no_thread = failed;
        at->path->next = fs_operations(at->path) + TRY_PAUSE;
        return 0;
    }
    if (failed == FS_TOO_MANY_LISTINGS || failed == -EAGAIN) {
        retry_soon(at);
        return 0;
    }
    if (failed == -EADDRINUSE) {
        stay_on_tcp(at, FS_REASON_NAME);
        return 0;
    }
    if (failed) return failed;
    s->published = 1;
    if (!is_over(at)) fs_path_event(at->path, FS_PATH_NAMED);
    return 0;
}

static int check_listing(struct step *at) {
    struct fs_accepted_region accepted;
    struct fs_region_ref *region_ref;
    enum fs_listing_state state = fs_listing_result(at->search->handle, &at->path->listing_state, &accepted);
    if (state == FS_LISTING_WAITING) return 0;
    at->search->published = 0;
    if (state == FS_LISTING_ACCEPTED) {
        int failed = fs_region_accept(&accepted, &region_ref);
        return failed ? failed : move(at, region_ref);
    }
    if (state == FS_LISTING_NO_DESCRIPTORS) return -EMFILE;
    struct fs_peer_socket peer;
    if (state == FS_LISTING_FAILED) reset_violator(at, accepted.failure);
    else if (state == FS_LISTING_OTHER_VERSION) stay_on_tcp(at, FS_REASON_VERSION);
    else if (state == FS_LISTING_OTHER_USER && at->c->stream->find_peer(fs_fd(at->c), -1, &peer) &&
             (peer.user != geteuid() || !fs_admits(peer.user)))
        stay_on_tcp(at, FS_REASON_UNTRUSTED);
    else stay_on_tcp(at, FS_REASON_PEER);
    return 0;
}

/* ---- the seeker ---------------------------------------------------------------------------------------------- */

/* Sends HELLO with `count` descriptors. Returns 0 or -errno. */
static int send_hello(struct fs_connector *s, const int *descriptors, int count) {
    struct fs_hello hello = {.magic = FS_MAGIC, .version = FS_VERSION, .reuse = count == 1, .size = s->region_ref->size};
    memcpy(hello.id, s->region_ref->id, sizeof hello.id);
    return fs_send_hello(s->control, &hello, descriptors, count);
}

/* Returns the reason that a refusal means. A later version may have reasons that this one does not know. */
static enum fs_reason reason_of(char why) {
    switch (why) {
    case FS_WHY_UNTRUSTED: return FS_REASON_UNTRUSTED;
    case FS_WHY_DESCRIPTORS: return FS_REASON_RESOURCES;
    case FS_WHY_OTHER_VERSION: return FS_REASON_VERSION;
    default: return FS_REASON_REFUSED;
    }
}

/* Takes the publisher's refusal, or its silent end. Returns 0 if it has not answered yet. */
static int take_answer(struct step *at) {
    char answer;
    ssize_t got = fs_system.recv(at->search->control, &answer, 1, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (fs_wakeup_seen(at->search->region_ref->memory)) return 1; /* the next step takes it */
    if (got <= 0) retry_search(at, FS_REASON_PEER);
    /* the publisher does not know the old region any more, or its queue is full */
    else if (answer == FS_WHY_AGAIN) retry_search(at, FS_REASON_REFUSED);
    else stay_on_tcp(at, reason_of(answer));
    return 1;
}

/* Returns true if the other end of a socket has gone. */
static int is_gone(int failed) {
    return failed == -EPIPE || failed == -ESHUTDOWN || failed == -ECONNRESET || failed == -ECONNABORTED || failed == -ECONNREFUSED;
}

/* Sends the connection's own descriptor along: it proves this end's identity to the publisher. */
static int offer_region(struct step *at, uint32_t user) {
    struct fs_connector *s = at->search;
    int memfd = -1, failed = 0;
    struct fs_region_ref *region_ref = s->reused ? NULL : fs_cached_region_for(s->peer, config.window, config.chunk);
    if (region_ref) s->reused = 1;
    else failed = fs_region_new(s->peer, config.window, config.chunk, &region_ref, &memfd);
    if (failed) return failed;
    region_ref->service = s->ends.service;
    region_ref->is_of_own_user = s->ends_known && user == geteuid();
    s->region_ref = region_ref;
    if (memfd >= 0) failed = send_hello(s, (int[]){memfd, fs_fd(at->c)}, 2);
    else failed = send_hello(s, (int[]){fs_fd(at->c)}, 1);
    if (memfd >= 0) fs_system.close(memfd);
    if (is_gone(failed) && !take_answer(at)) retry_search(at, FS_REASON_PEER); /* (it may be refused before it says a word) */
    if (failed) return is_gone(failed) ? 0 : failed;
    if (!is_over(at)) fs_path_event(at->path, FS_PATH_HELLO);
    s->checks = 0;
    s->next_check = FIRST_CHECK;
    return 0;
}

/* Returns true if the socket at the other end is this user's, as the kernel says. */
static int has_other_end(const struct step *at, uint32_t user) {
    struct fs_peer_socket peer;
    return at->c->stream->find_peer(fs_fd(at->c), -1, &peer) && peer.user == user;
}

static int look_up(struct step *at) {
    struct fs_connector *s = at->search;
    if (fs_operations(at->path) < at->path->first_contact) {
        if (s->ends_known && fs_contact_post(&s->posts, fs_fd(at->c), &s->ends, config.window, config.chunk))
            fs_path_event(at->path, FS_PATH_HELLO);
        else if (!fs_contact_may_post(&s->posts)) at->path->next = at->path->first_contact;
        return 0;
    }
    /* This is usually the end that connected, because it has the larger port. It reaches the number of operations before the other end,
     * which publishes when the next message has come: a look-up now would be in vain. */
    if (!s->began && !config.waits) {
        s->began = 1;
        return 0;
    }
    if (!fs_reaper_has_room()) { /* nobody could close the socket to an untrusted holder of the name */
        retry_soon(at);
        return 0;
    }
    int64_t next = fs_next_step(at->path);
    name_it(s);
    int found = fs_lookup_try(&s->lookup, fs_operations(at->path), &next);
    at->path->next = next;
    if (found == -EAGAIN) {
        retry_soon(at);
        return 0;
    }
    if (found < 0) return found;
    if (!found) {
        if (s->lookup.over) stay_on_tcp(at, FS_REASON_PEER);
        return 0;
    }
    struct ucred who;
    socklen_t size = sizeof who;
    s->control = fs_lookup_take(&s->lookup);
    s->until = fs_now() + config.patience;
    if (fs_system.getsockopt(s->control, SOL_SOCKET, SO_PEERCRED, &who, &size) < 0) return -errno;
    s->peer = who.pid;
    /* Anybody may hold the name. A hello carries descriptors that are for the other end only: of the users who are admitted, those who
     * could not harm this process anyway get one if the other end is theirs. */
    s->trusted = fs_is_trusted(who.uid);
    if (fs_admits(who.uid) && (s->trusted || has_other_end(at, who.uid))) return offer_region(at, who.uid);
    stay_on_tcp(at, FS_REASON_UNTRUSTED);
    return 0;
}

static int await_wakeup(struct step *at) {
    struct fs_connector *s = at->search;
    if (s->posts.count) {
        struct fs_region_ref *taken = fs_contact_taken(&s->posts);
        if (taken) return move(at, taken);
        if (fs_operations(at->path) < at->path->first_contact) return 0;
        fs_contact_withdraw(&s->posts, 1);
        fs_path_event(at->path, FS_PATH_AGAIN);
        return 0;
    }
    if (fs_wakeup_seen(s->region_ref->memory)) {
        struct fs_region_ref *region_ref = s->region_ref;
        s->region_ref = NULL;
        return move(at, region_ref);
    }
    if (++s->checks < s->next_check) return 0;
    s->next_check += FS_MIN(s->checks, FIRST_CHECK << CHECK_DOUBLINGS);
    if (!take_answer(at) && fs_now() >= s->until) stay_on_tcp(at, FS_REASON_PEER);
    return 0;
}

/* ---- one step ------------------------------------------------------------------------------------------------ */

static int search(struct step *at) {
    struct fs_path *path = at->path;
    int failed = fs_control_thread_restart(); /* if nobody said that a fork is over */
    if (failed) at->outcome->no_thread = failed;
    if (is_over(at)) return 0;
    if (fs_count_holders(fs_own(at->c)) > 1) {
        /* Another process may read the kernel's stream directly: wait until it has closed the connection. */
        at->search->checked = 0;
        fs_change_reason(path, at->c, FS_REASON_FORKED);
        path->next = fs_operations(path) + FORKED_PAUSE;
        return 0;
    }
    if (!at->search->checked && at->c->stream->needs_kernel(fs_fd(at->c))) {
        stay_on_tcp(at, FS_REASON_OPTION);
        return 0;
    }
    if (!at->search->checked && at->c->stream->is_corked(fs_fd(at->c))) { /* for this message: servers do so for each of their answers */
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
    case FS_LOOKING: return look_up(at);
    case FS_AWAITING: return await_wakeup(at);
    default: return 0; /* another thread takes the step */
    }
}

/* Takes a step of the search, unless another thread takes one. */
static void take_step(struct fs_path *path, struct fs_connection *c, const struct fs_attach_hooks *hooks, struct fs_step_result *outcome,
                      int (*body)(struct step *)) {
    struct step at = {path, c, path->search, hooks, outcome};
    if (!at.search || at.search->stepping) return;
    at.search->stepping = 1;
    int failed = body(&at);
    if (failed) fail(&at, failed);
    at.search->stepping = 0;
    if (is_over(&at)) withdraw(path, at.search);
}

void fs_connector_step(struct fs_path *path, struct fs_connection *c, const struct fs_attach_hooks *hooks, struct fs_step_result *outcome) {
    *outcome = (struct fs_step_result){.what = FS_STEP_PENDING};
    if (path->state == FS_FAULTED) {
        fs_note_fault(c, path->fault);
        reset_violator(&(struct step){path, c, path->search, hooks, outcome}, path->fault);
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
    path->search = s;
    fs_path_event(path, publishes ? FS_PATH_PUBLISH : FS_PATH_SEEK);
    return 0;
}

/* ---- forks --------------------------------------------------------------------------------------------------- */

void fs_path_await_thread(struct fs_path *path, struct fs_connection *c) {
    if (fs_is_attached(c) && fs_path_event(path, FS_PATH_FORK)) path->next = fs_operations(path);
}

void fs_path_restart(struct fs_path *path, struct fs_connection *c) {
    struct fs_connector *s = path->search;
    path->waits = 0;
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
    give_up_attempt(s);
    path->next = fs_operations(path);
}
