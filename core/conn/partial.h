/* How long a call may wait, and the result of a call that stops before all is done. All calls that receive or send use these, on the
 * ring and on the kernel path, so that a completed part is never lost. */
#ifndef FASTSOCK_PARTIAL_H
#define FASTSOCK_PARTIAL_H

#include "conn/connection.h"

/* Reasons for a call to stop, besides a negative errno: -EAGAIN if it may not wait (longer), -EINTR if a signal ended the wait. */
#define FS_TIMED_OUT ((int64_t)-100002) /* the timeout of the socket object has passed */
/* Result of fs_end_partial besides bytes and errors. */
#define FS_RETRY ((int64_t)-100003) /* nothing is done yet, and the call starts again */

/* How long a call may wait. The timeout of a socket object covers the program's whole call, as in sendall. SO_RCVTIMEO and SO_SNDTIMEO
 * cover one system call each, of which sendall makes as many as it needs: they start again with each (fs_wait_next_part), and count only
 * the time spent waiting. */
struct fs_wait_limit {
    int64_t timeout;  /* of the socket object, ns; negative: blocks, 0: no waiting */
    int64_t deadline; /* of the timeout, monotonic ns; negative: none, or nothing has waited yet */
    int64_t rest;     /* rest of the option's time, ns; negative: not set */
    int prepared;     /* fs_may_wait was called for this part */
    int heard;        /* a signal has ended a wait; fs_end_partial decides if it is for the caller */
};

static inline struct fs_wait_limit fs_wait_limit_of(int64_t timeout) { return (struct fs_wait_limit){timeout, -1, -1, 0, 0}; }

/* A system call has done a part, and the program's call makes another one. Returns 0 if the socket object's timeout has passed. */
int fs_wait_next_part(struct fs_wait_limit *p);

/* Returns true if a call that finds nothing to do may wait. It may not, and `timeout` becomes 0, if O_NONBLOCK was set from outside. */
int fs_may_wait(struct fs_connection *c, int what, struct fs_wait_limit *p);

/* Returns the end of the next wait, monotonic ns for fs_sleep; negative: none. Called after fs_may_wait. */
int64_t fs_wait_deadline(const struct fs_wait_limit *p);

/* Subtracts a wait, which should have ended at `until`, from the option's time. */
void fs_wait_spent(struct fs_wait_limit *p, int64_t until);

/* Returns the error of a wait in vain: FS_TIMED_OUT, or -EAGAIN as the kernel does for SO_RCVTIMEO and SO_SNDTIMEO. */
static inline int64_t fs_wait_error(const struct fs_wait_limit *p) { return p->timeout > 0 ? FS_TIMED_OUT : -EAGAIN; }

/* Returns the result of a call that has done `done` bytes and cannot go on; `why` is FS_TIMED_OUT, FS_VIOLATED or a negative errno. As
 * in the kernel, a call that has done a part returns that, and an error of the connection waits for the next call. A call that has done
 * nothing returns `why`, or FS_RETRY after a signal. */
int64_t fs_end_partial(struct fs_connection *c, int64_t done, int64_t why);

/* Returns SO_RCVTIMEO or SO_SNDTIMEO in nanoseconds; -1: not set. The first call that needs the value asks the kernel. */
int64_t fs_timeout_option(struct fs_connection *c, int what);

#endif
