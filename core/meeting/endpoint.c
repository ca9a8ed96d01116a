/* The end of an endpoint, and its way out.
 *
 * Responsible for: the order of the steps, and that what a leaver took is lost to nobody. Never: when a connection may be ended (state.c),
 * or the numbers of the front end's table. */
#include "meeting/endpoint.h"

#include "connection/bridge.h"
#include "connection/end.h"
#include "connection/leave.h"
#include "connection/move.h"
#include "connection/ringing.h"
#include "connection/state.h"
#include "connection/turns.h"
#include "registry/memory.h"
#include "transport/tcp.h"

int fs_close_last_number(struct fs_connection *c, int fd) {
    if (fs_note_finished_alone(c)) return 1;
    int spare = fs_system.fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (spare < 0) return fs_note_finished(c);
    fs_point_to(c, spare);
    if (fs_fd(c) != spare || !fs_note_finishing(c)) fs_system.close(spare); /* another thread has decided otherwise meanwhile */
    return 0;
}

void fs_say_goodbye(struct fs_course *course, struct fs_connection *c, struct fs_counters *totals) {
    fs_end_search(course);
    if (course->kit) fs_end_answers(course->kit);
    fs_let_go_of(c, totals);
}

void fs_release(struct fs_course *course, struct fs_connection *c) {
    fs_free_own(c);
    fs_note_detached(c);
    struct fs_kit *kit = course->kit;
    course->kit = NULL;
    if (kit) fs_release_kit(kit, c->recyclable);
}

int64_t fs_dissolve(struct fs_connection *c) {
    fs_note_broken(c);
    fs_reset_connection(fs_fd(c));
    fs_wake_own(c);
    return -ECONNRESET;
}

/* ---- the way out ----------------------------------------------------------------------------------------------- */

/* The descriptors become `near`. 0: one of them could not, and the connection has been reset. */
static int change_over(struct fs_connection *c, int near, struct fs_side *side, const struct fs_number_list *of) {
    int *numbers = NULL, room = 0, changed = 0;
    while (!changed) {
        int count = of->list(of->whose, numbers, room);
        if (count > room) {
            int *larger = fs_system.realloc(numbers, (size_t)count * sizeof *numbers);
            if (!larger) {
                fs_reset_connection(fs_fd(c));
                break;
            }
            numbers = larger;
            room = count;
            continue;
        }
        changed = fs_change_over(c, near, side, numbers, count);
        if (!changed) fs_await_both(c);
    }
    fs_system.free(numbers);
    return changed > 0;
}

/* Puts a bridge under the connection's descriptors. Its process, or -errno if there are no resources for one; -ECONNRESET if it could not
 * be put there. */
static int64_t start_bridge(struct fs_connection *c, struct fs_leaver *leaver, struct fs_parcel *parcel, const struct fs_number_list *of) {
    int near = -1;
    struct fs_side *side = fs_new_side();
    if (!side) return -ENOMEM;
    int64_t process = fs_start_bridge(c, leaver, parcel, &near);
    if (process < 0 || !change_over(c, near, side, of)) {
        fs_free_block(side, sizeof *side);
        if (process >= 0) process = -ECONNRESET;
    }
    if (near >= 0) fs_system.close(near);
    return process;
}

int fs_leave(struct fs_course *course, struct fs_connection *c, const struct fs_number_list *numbers, int64_t *bridge) {
    struct fs_parcel parcel = FS_NO_PARCEL;
    *bridge = 0;
    if (!fs_is_attached(c)) fs_stay(course, c, FS_REASON_DETACHED);
    if (!fs_is_attached(c) || fs_is_broken(c) || fs_is_out(c)) return FS_LEFT_RING;
    if (fs_is_leaving(c)) return FS_CANNOT_LEAVE; /* a signal handler, within a call that does */
    void *given = fs_let_go();
    struct fs_leaver *leaver = fs_begin_leaving(c);
    enum fs_outcome outcome = leaver ? fs_leave_ring(c, leaver, &parcel) : FS_IN_KERNEL;
    fs_take_again(given);
    if (!leaver) return -EINTR;
    int done = FS_LEFT_RING;
    if (outcome == FS_NEEDS_BRIDGE) {
        int64_t process = start_bridge(c, leaver, &parcel, numbers);
        if (process > 0) {
            *bridge = process;
            if (course->kit) fs_end_answers(course->kit);
        } else if (parcel.size == 0 && process != -ECONNRESET) {
            done = FS_CANNOT_LEAVE;
        } else {
            outcome = FS_DISSOLVED; /* without the parcel the stream would have a hole */
        }
    }
    if (outcome == FS_DISSOLVED) {
        fs_dissolve(c);
        done = FS_LEFT_BROKEN;
    }
    given = fs_let_go();
    fs_end_leaving(c, leaver, outcome != FS_DISSOLVED);
    fs_take_again(given);
    if (parcel.fd >= 0) fs_system.close(parcel.fd);
    return done;
}
