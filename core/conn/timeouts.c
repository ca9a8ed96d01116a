/* How long a call may wait, and the result of a call that stops before all is done.
 *
 * Responsible for: SO_RCVTIMEO and SO_SNDTIMEO; the result of a call that has done a
 * part. Never: waits, receives or sends. */
#include "conn/state.h"

int64_t fs_timeout_option(struct fs_connection *c, int what) {
    fs_word64 *known = what == FS_RECEIVE ? &c->receive_timeout : &c->send_timeout;
    int64_t timeout = (int64_t)fs_load_relaxed(known); /* (of two threads that ask both are right) */
    if (timeout == FS_NOT_ASKED) {
        int shared = fs_is_shared(c); /* (before the kernel is asked: who goes meanwhile may have set it) */
        timeout = fs_option_ns(fs_fd(c), what == FS_RECEIVE ? SO_RCVTIMEO : SO_SNDTIMEO);
        if (!shared) fs_store_relaxed(known, (uint64_t)timeout);
    }
    return timeout;
}

int fs_may_wait(struct fs_connection *c, int what, struct fs_wait_limit *p) {
    if (!p->waits) return 0;
    if (p->rest == FS_NOT_ASKED) p->rest = fs_timeout_option(c, what);
    return 1;
}

int64_t fs_wait_deadline(const struct fs_wait_limit *p) { return p->rest < 0 ? -1 : fs_now() + p->rest; }

void fs_wait_spent(struct fs_wait_limit *p, int64_t until) {
    if (p->rest >= 0) p->rest = FS_MAX(until - fs_now(), 0);
}

/* Returns true for errors of the connection, which the kernel reports once, to the next call. Other errors are the call's own; and every
 * send on a stream that has ended gets -EPIPE. */
static int is_reported_once(int64_t error) {
    return error == -ECONNRESET || error == -ETIMEDOUT || error == -ECONNABORTED || error == -ECONNREFUSED || error == -EHOSTUNREACH ||
           error == -ENETUNREACH || error == -EPROTO;
}

int64_t fs_end_partial(struct fs_connection *c, int64_t done, int64_t why) {
    if (done > 0) {
        if (is_reported_once(why)) fs_note_error(c, (uint32_t)-why);
        return done;
    }
    return done < 0 && c->stream->waits_for_nothing ? 0 : why;
}
