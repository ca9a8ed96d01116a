/* The end of a connection with its path, and its fallback.
 *
 * Responsible for: the order of the steps; bytes collected in a fallback are not lost. Never: when a connection may be ended (state.c),
 * or the numbers in the front end's index. */
#include "rendezvous/path_end.h"

#include "conn/fallback_bridge.h"
#include "conn/open_close.h"
#include "conn/fallback.h"
#include "conn/state.h"
#include "conn/side_lock.h"
#include "process/holder_count.h"
#include "process/fork_shared_slab.h"

/* The program closes a connection whose hello is on its way to the publisher. The hello has a descriptor with it, and the kernel would
 * report the end to the peer only when that is closed too. So this reports it now, as close(2) does it: by a reset if bytes are unread.
 * Not where another process has the connection. */
static void end_in_kernel(struct fs_connection *c) {
    int unread = 0;
    if (fs_count_holders(fs_own(c)) > 1) return;
    if (fs_has_linger_zero(fs_fd(c)) || (fs_system.ioctl(fs_fd(c), FIONREAD, &unread) == 0 && unread)) c->stream->reset(fs_fd(c));
    else fs_system.shutdown(fs_fd(c), SHUT_RDWR);
}

void fs_conn_finish(struct fs_path *path, struct fs_connection *c, struct fs_counters *totals) {
    if (fs_search_sent_descriptor(path)) end_in_kernel(c);
    fs_search_end(path);
    if (path->region_ref) fs_region_stop_requests(path->region_ref);
    fs_conn_close(c, !fs_is_unset(path, FS_OPTION_LINGER), totals);
}

void fs_conn_release(struct fs_path *path, struct fs_connection *c) {
    fs_release_side(c);
    fs_note_detached(c);
    struct fs_region_ref *region_ref = path->region_ref;
    path->region_ref = NULL;
    fs_far_peer_restore(&c->far);
    if (region_ref) fs_region_release(region_ref, c->recyclable);
}

/* ---- the fallback ---------------------------------------------------------------------------------------------- */

/* Makes the descriptors refer to `near`. Returns 0 if one of them could not be replaced, and the connection has been reset. */
static int change_over(struct fs_connection *c, int near, struct fs_shared_side *side, const struct fs_fallback_hooks *hooks) {
    int *numbers = NULL, room = 0, swapped = 0;
    while (!swapped) {
        int count = hooks->list(hooks->whose, numbers, room);
        if (count > room) {
            int *larger = fs_system.realloc(numbers, (size_t)count * sizeof *numbers);
            if (!larger) {
                c->stream->reset(fs_fd(c));
                break;
            }
            numbers = larger;
            room = count;
            continue;
        }
        swapped = fs_swap_to_bridge(c, near, side, numbers, count);
        if (!swapped) fs_wait_for_side(c);
    }
    fs_system.free(numbers);
    return swapped > 0;
}

/* Puts a bridge under the connection's descriptors. Returns its process id; -errno if resources are missing; -ECONNRESET if a descriptor
 * could not be replaced. */
static int64_t start_bridge(struct fs_connection *c, struct fs_fallback_lock *fallback, struct fs_unread_data *unread_data,
                            const struct fs_fallback_hooks *hooks) {
    int near = -1;
    struct fs_shared_side *side = fs_side_new();
    if (!side) return -ENOMEM;
    int64_t process = fs_start_bridge(c, fallback, unread_data, &near);
    if (process < 0 || !change_over(c, near, side, hooks)) {
        fs_slab_free(side, sizeof *side);
        if (process >= 0) process = -ECONNRESET;
    }
    if (near >= 0) fs_system.close(near);
    return process;
}

/* Gives the unread data of a connection that a loop drives to its transport. */
static enum fs_fallback_result keep_unread(struct fs_connection *c, struct fs_fallback_lock *fallback,
                                           struct fs_unread_data *unread_data, const struct fs_fallback_hooks *hooks) {
    if (!hooks->keep || fs_fallback_collect(c, fallback, unread_data) != FS_FELL_BACK) return FS_FALLBACK_FAILED;
    if (!hooks->keep(hooks->whose, unread_data->fd, unread_data->size)) return FS_FALLBACK_FAILED;
    fs_fallback_done(c, fallback);
    return FS_FELL_BACK;
}

int fs_path_fall_back(struct fs_path *path, struct fs_connection *c, const struct fs_fallback_hooks *hooks, int64_t *bridge) {
    struct fs_unread_data unread_data = FS_NO_UNREAD_DATA;
    *bridge = 0;
    if (!fs_is_attached(c)) fs_path_decide_tcp(path, c, FS_REASON_DETACHED);
    if (!fs_is_attached(c) || fs_is_broken(c) || fs_has_fallen_back(c)) return FS_NOW_IN_KERNEL;
    if (fs_fallback_is_running(c)) return FS_CANNOT_FALL_BACK; /* a signal handler within a call that falls back */
    void *host_state = fs_host_unlock();
    struct fs_fallback_lock *fallback = fs_fallback_begin(c);
    enum fs_fallback_result outcome = fallback ? fs_fallback(c, fallback, &unread_data) : FS_FELL_BACK;
    fs_host_lock(host_state);
    if (!fallback) return -EINTR;
    int done = FS_NOW_IN_KERNEL;
    if (outcome == FS_NEEDS_BRIDGE && fs_is_loop_driven(c)) {
        /* A bridge would take the descriptor away under the loop, which has it registered. What is unread goes to the transport instead. */
        if (unread_data.size == 0) done = FS_CANNOT_FALL_BACK;
        else outcome = keep_unread(c, fallback, &unread_data, hooks);
    } else if (outcome == FS_NEEDS_BRIDGE) {
        int64_t process = start_bridge(c, fallback, &unread_data, hooks);
        if (process > 0) {
            *bridge = process;
            if (path->region_ref) fs_region_stop_requests(path->region_ref);
        } else if (unread_data.size == 0 && process != -ECONNRESET) {
            done = FS_CANNOT_FALL_BACK;
        } else {
            outcome = FS_FALLBACK_FAILED; /* without the unread data the stream would have a hole */
        }
    }
    if (outcome == FS_FALLBACK_FAILED) {
        if (!c->ring.violation) fs_note_fault(c, "the connection could not fall back to kernel TCP without losing data");
        fs_conn_reset(c);
        done = FS_FELL_BACK_BROKEN;
    }
    host_state = fs_host_unlock();
    fs_fallback_end(c, fallback, outcome != FS_FALLBACK_FAILED);
    fs_host_lock(host_state);
    if (unread_data.fd >= 0) fs_system.close(unread_data.fd);
    return done;
}
