/* The table of path states until a connection's path is decided, and the reasons for kernel TCP.
 *
 * Responsible for: the order of states. Never: the work in a state (connector.c).
 *
 * `table` has the states to which an event leads, and `late` those in which it changes nothing: of several threads that act at once,
 * another one was first. In all other states an event is our fault, and leads to FS_FAULTED: the next operation ends the connection and
 * reports it. Debug builds (FS_DEBUG) stop at it.
 *
 *     connecting -> few operations -> starting -> to publish -> published -----------> attaching -> decided (the ring)
 *                                              \-> looking -> awaiting -/
 *
 * From every state FS_PATH_STAY leads to decided: kernel TCP, or the end. The states of a connection on the ring after a fork lead back
 * there too. */
#include "rendezvous/path_state.h"

#include <assert.h>

#include "process/conn_table.h"

#define TO(state) ((state) + 1)

/* clang-format off */
static const unsigned char table[FS_PATH_EVENTS][FS_PATH_STATES] = {
    [FS_PATH_CONNECT] = {[FS_DECIDED] = TO(FS_CONNECTING)},
    [FS_PATH_CONNECTED] = {[FS_CONNECTING] = TO(FS_DECIDED)},
    [FS_PATH_OPEN] = {[FS_DECIDED] = TO(FS_FEW_OPERATIONS)},
    [FS_PATH_START] = {[FS_FEW_OPERATIONS] = TO(FS_STARTING)},
    [FS_PATH_PUBLISH] = {[FS_STARTING] = TO(FS_TO_PUBLISH)},
    [FS_PATH_SEEK] = {[FS_STARTING] = TO(FS_LOOKING)},
    [FS_PATH_NAMED] = {[FS_TO_PUBLISH] = TO(FS_PUBLISHED)},
    [FS_PATH_HELLO] = {[FS_LOOKING] = TO(FS_AWAITING)},
    [FS_PATH_AGAIN] = {[FS_LOOKING] = TO(FS_LOOKING), [FS_AWAITING] = TO(FS_LOOKING)},
    [FS_PATH_CAME] = {[FS_TO_PUBLISH] = TO(FS_ATTACHING), [FS_PUBLISHED] = TO(FS_ATTACHING), [FS_AWAITING] = TO(FS_ATTACHING)},
    [FS_PATH_MOVED] = {[FS_ATTACHING] = TO(FS_DECIDED)},
    [FS_PATH_STAY] = {[0 ... FS_PATH_STATES - 1] = TO(FS_DECIDED)},
    [FS_PATH_FORK] = {[FS_DECIDED] = TO(FS_THREAD_LATER)},
    [FS_PATH_ANSWERED] = {[FS_THREAD_LATER] = TO(FS_DECIDED), [FS_ANSWER_LATER] = TO(FS_DECIDED)},
    /* A thread that took a step is not in the child. The role stays: a published name is published again. */
    [FS_PATH_CHILD] = {[FS_STARTING] = TO(FS_FEW_OPERATIONS), [FS_PUBLISHED] = TO(FS_TO_PUBLISH),
                     [FS_AWAITING] = TO(FS_LOOKING)},
    [FS_PATH_INHERIT] = {[0 ... FS_PATH_STATES - 1] = TO(FS_ANSWER_LATER)},
};

#define IN(state) (1u << (state))
#define EVERYWHERE (~0u)
static const uint32_t late[FS_PATH_EVENTS] = {
    [FS_PATH_CONNECTED] = EVERYWHERE,
    [FS_PATH_START] = EVERYWHERE & ~IN(FS_CONNECTING),
    /* (A step that goes on in a child, which a signal handler has made within it.) */
    [FS_PATH_CAME] = IN(FS_LOOKING),
    [FS_PATH_MOVED] = IN(FS_DECIDED) | IN(FS_THREAD_LATER) | IN(FS_ANSWER_LATER),
    [FS_PATH_FORK] = IN(FS_ATTACHING) | IN(FS_THREAD_LATER) | IN(FS_ANSWER_LATER),
    [FS_PATH_ANSWERED] = IN(FS_DECIDED),
    [FS_PATH_CHILD] = EVERYWHERE,
};
/* clang-format on */

#define FORBIDDEN(event) [FS_PATH_##event] = "internal error: event " #event " is not allowed in this state of the path"
static const char *const forbidden[FS_PATH_EVENTS] = {
    FORBIDDEN(CONNECT), FORBIDDEN(OPEN),  FORBIDDEN(START), FORBIDDEN(PUBLISH), FORBIDDEN(SEEK), FORBIDDEN(NAMED),
    FORBIDDEN(HELLO),   FORBIDDEN(AGAIN), FORBIDDEN(CAME),  FORBIDDEN(MOVED),   FORBIDDEN(FORK), FORBIDDEN(ANSWERED),
};

static const char *const names[FS_PATH_STATES] = {
    [FS_DECIDED] = "decided",
    [FS_CONNECTING] = "connecting",
    [FS_FEW_OPERATIONS] = "few operations",
    [FS_STARTING] = "starting",
    [FS_TO_PUBLISH] = "to publish",
    [FS_PUBLISHED] = "published",
    [FS_LOOKING] = "looking",
    [FS_AWAITING] = "awaiting",
    [FS_ATTACHING] = "attaching",
    [FS_FAULTED] = "faulted",
    [FS_THREAD_LATER] = "thread later",
    [FS_ANSWER_LATER] = "answer later",
};

#define NAME(name, text) #name,
#define TEXT(name, text) text,
static const char *const reason_names[FS_REASONS] = {FS_REASON_TABLE(NAME)};
static const char *const reason_texts[FS_REASONS] = {FS_REASON_TABLE(TEXT)};

struct fs_path_counts fs_path_counts;

int fs_path_event(struct fs_path *path, enum fs_path_events event) {
    unsigned char to = table[event][path->state];
    if (path->state == FS_FAULTED && event != FS_PATH_STAY) return 0;
    if (to) {
        path->state = to - 1;
        return 1;
    }
    if (late[event] & IN(path->state)) return 0;
#ifdef FS_DEBUG
    assert(!"an event that the table forbids");
#endif
    path->state = FS_FAULTED;
    path->fault = forbidden[event];
    path->listing_state = NULL; /* the next operation takes the step, and does not wait for the listing */
    path->next = fs_operations(path);
    return 0;
}

const char *fs_path_state_name(int state) { return names[state]; }

const char *fs_reason_name(int reason) { return reason_names[reason]; }

const char *fs_reason_text(int reason) { return reason_texts[reason]; }

void fs_note_reason(struct fs_path *path, struct fs_connection *c, enum fs_reason reason) {
    path->reason = (int)reason;
    fs_table_update(c->place, c->inode, fs_fd(c), reason);
}

void fs_change_reason(struct fs_path *path, struct fs_connection *c, enum fs_reason reason) {
    if (path->reason == (int)reason) return;
    fs_count_changed((enum fs_reason)path->reason, reason);
    fs_note_reason(path, c, reason);
}

void fs_path_open(struct fs_path *path, struct fs_connection *c, int64_t operations, enum fs_reason reason) {
    if (!fs_path_event(path, FS_PATH_OPEN)) return;
    path->next = fs_operations(path) + operations;
    fs_note_reason(path, c, reason);
}
