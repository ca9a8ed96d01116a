/* How long a call may wait, and the result of a call that stops before all is done.
 *
 * Responsible for: combining the kernel's options, O_NONBLOCK and the socket object's timeout; the result of a call that has done a
 * part. Never: waits, receives or sends. */
#include "conn/state.h"
#include "transport/tcp.h"

int64_t fs_timeout_option(struct fs_connection *c, int what) {
    int64_t *known = what == FS_RECEIVE ? &c->receive_timeout : &c->send_timeout;
    if (*known == FS_NOT_ASKED) *known = fs_option_ns(fs_fd(c), what == FS_RECEIVE ? SO_RCVTIMEO : SO_SNDTIMEO);
    return *known;
}

/* Returns true if O_NONBLOCK was set by somebody who knows the descriptor's number, past the socket object. */
static int nonblocking_by_flag(struct fs_connection *c) {
    return fs_is_exposed(c) && fs_system.fcntl(fs_fd(c), F_GETFL, 0) & O_NONBLOCK;
}

int fs_may_wait(struct fs_connection *c, int what, struct fs_wait_limit *p) {
    if (!p->prepared) {
        p->prepared = 1;
        if (p->timeout < 0 && nonblocking_by_flag(c)) p->timeout = 0;
        if (p->timeout < 0) p->rest = fs_timeout_option(c, what);
        else if (p->timeout > 0 && p->deadline < 0) p->deadline = fs_now() + p->timeout;
    }
    return p->timeout != 0;
}

int64_t fs_wait_deadline(const struct fs_wait_limit *p) {
    if (p->deadline >= 0) return p->deadline;
    return p->rest < 0 ? -1 : fs_now() + p->rest;
}

void fs_wait_spent(struct fs_wait_limit *p, int64_t until) {
    if (p->rest >= 0 && p->deadline < 0) p->rest = FS_MAX(until - fs_now(), 0);
}

int fs_wait_next_part(struct fs_wait_limit *p) {
    p->prepared = 0;
    if (p->timeout <= 0) return 1;
    int64_t now = fs_now();
    if (p->deadline < 0) p->deadline = now + p->timeout;
    return now < p->deadline;
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
    return why == -EINTR ? FS_RETRY : why;
}
