/* How long a call may wait, and how a call ends that stops before all is done. Every call that receives or sends goes by these, on the
 * ring and on the kernel path, so that a part that is done is never lost. */
#ifndef FASTSOCK_PARTIAL_H
#define FASTSOCK_PARTIAL_H

#include "conn/connection.h"

/* Why a call stops, beside a negative errno: -EAGAIN where it may not wait (longer), -EINTR where a signal ended the wait. */
#define FS_TIMED_OUT ((int64_t)-100002) /* the timeout of the socket object is over */
/* What fs_end_partial says beside bytes and errors. */
#define FS_RETRY ((int64_t)-100003) /* nothing is done yet, and the call begins again */

/* How long a call may wait. The timeout of a socket object is for the whole call of the program, as sendall has it. SO_RCVTIMEO and
 * SO_SNDTIMEO are for one call of the kernel's, of which sendall makes as many as it needs: they begin anew with each
 * (fs_wait_next_part), and count only the time that is waited. */
struct fs_wait_limit {
    int64_t timeout;  /* of the socket object, ns; negative: it blocks, 0: no waiting */
    int64_t deadline; /* when it is over, monotonic ns; negative: never, or nobody has waited yet */
    int64_t rest;     /* of the option, ns; negative: it is not set */
    int asked;        /* fs_may_wait was called for this part */
    int heard;        /* a signal has ended a wait: whether it is for the caller, fs_end_partial says */
};

static inline struct fs_wait_limit fs_wait_limit_of(int64_t timeout) { return (struct fs_wait_limit){timeout, -1, -1, 0, 0}; }

/* A kernel call is over with a part done, and the program's call makes another one. 0: the socket object's timeout is over. */
int fs_wait_next_part(struct fs_wait_limit *p);

/* Whether a call that finds nothing to do may wait. It may not (and `timeout` is 0 from then on) where somebody has set O_NONBLOCK. */
int fs_may_wait(struct fs_connection *c, int what, struct fs_wait_limit *p);

/* When the next wait ends, monotonic ns for fs_sleep; negative: never. `now`: fs_now(), which is looked at only behind fs_may_wait. */
int64_t fs_wait_deadline(const struct fs_wait_limit *p);

/* A wait that should end `until` is over: the option's time has become less. */
void fs_wait_spent(struct fs_wait_limit *p, int64_t until);

/* What a wait means that was in vain: FS_TIMED_OUT, or -EAGAIN as the kernel says of SO_RCVTIMEO and SO_SNDTIMEO. */
static inline int64_t fs_wait_error(const struct fs_wait_limit *p) { return p->timeout > 0 ? FS_TIMED_OUT : -EAGAIN; }

/* How a call ends that has `done` so many bytes and cannot go on: `why` is FS_TIMED_OUT, FS_VIOLATED or a negative errno. As the kernel
 * decides: a call that has done a part returns that, and an error of the connection waits for the next call; one that has done nothing
 * returns `why`, and goes on behind a signal (FS_RETRY). */
int64_t fs_end_partial(struct fs_connection *c, int64_t done, int64_t why);

/* SO_RCVTIMEO or SO_SNDTIMEO, nanoseconds; -1: not set. Asked of the kernel by the first call that needs it. */
int64_t fs_timeout_option(struct fs_connection *c, int what);

#endif
