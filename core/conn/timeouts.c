/* How long a call may wait, and the result of a call that stops before all is done.
 *
 * Responsible for: SO_RCVTIMEO and SO_SNDTIMEO; the result of a call that has done a
 * part. Never: waits, receives or sends. */
#include "conn/state.h"

/* What is known of a connection that several processes have, in its word `known`: these bits, and in the upper half the number of changes
 * by then. (FS_RECEIVE and FS_SEND are 1 and 2.) */
enum { MODE_KNOWN = 1, NONBLOCKING = 2, WITHOUT_TIMEOUT = 4 };

/* `changes`: of the side, now. While one is being made nothing is known. */
static uint32_t known_by(uint64_t known, uint64_t changes) { return (uint32_t)changes || (known ^ changes) >> 32 ? 0 : (uint32_t)known; }

/* Before the kernel was asked, `changes` was read. (Of two threads that have asked at once one is heard.) */
static void note_known(struct fs_connection *c, uint64_t changes, uint32_t bits) {
    uint64_t known = fs_load_relaxed(&c->known);
    if (!(uint32_t)changes) fs_cas64(&c->known, known, changes | known_by(known, changes) | bits);
}

static int64_t is_nonblocking(struct fs_connection *c, uint64_t changes, uint32_t known) {
    if (known & MODE_KNOWN) return (known & NONBLOCKING) != 0;
    int flag = (fs_system.fcntl(fs_fd(c), F_GETFL, 0) & O_NONBLOCK) != 0;
    note_known(c, changes, MODE_KNOWN | (flag ? NONBLOCKING : 0));
    return flag;
}

int64_t fs_wait_setting(struct fs_connection *c, int what) {
    fs_word64 *timeout_of = what == FS_RECEIVE ? &c->receive_timeout : &c->send_timeout;
    int64_t timeout = (int64_t)fs_load_relaxed(timeout_of); /* (of two threads that ask both are right) */
    if (what != FS_MODE && timeout != FS_NOT_ASKED) return timeout;
    /* SYNC: changes - pairs with fs_option_set: who finds a change ended asks the kernel after it. */
    uint64_t changes = fs_load_acquire(&fs_own(c)->changes);
    uint32_t known = known_by(fs_load_relaxed(&c->known), changes), without = WITHOUT_TIMEOUT * (uint32_t)what;
    if (what == FS_MODE) return is_nonblocking(c, changes, known);
    if (known & without) return -1;
    int shared = fs_is_shared(c); /* (before the kernel is asked: who goes meanwhile may have set it) */
    timeout = fs_option_ns(fs_fd(c), what == FS_RECEIVE ? SO_RCVTIMEO : SO_SNDTIMEO);
    if (!shared) fs_store_relaxed(timeout_of, (uint64_t)timeout);
    else if (timeout < 0) note_known(c, changes, without);
    return timeout;
}

int fs_may_wait(struct fs_connection *c, int what, struct fs_wait_limit *p) {
    if (!p->waits) return 0;
    if (p->rest == FS_NOT_ASKED) p->rest = fs_wait_setting(c, what);
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
        /* (Where the kernel resets nothing, the call that has done a part has taken the error.) */
        if (is_reported_once(why) && c->stream->resets) fs_note_error(c, (uint32_t)-why);
        return done;
    }
    return done < 0 && c->stream->waits_for_nothing ? 0 : why;
}
