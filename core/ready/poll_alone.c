/* A poll that names one connection on the ring, for bytes to receive: clients of databases, and Python's sockets with a timeout, make it
 * before each receive.
 *
 * It waits as a receive on the connection does (conn/wait.c). So the thread needs no event set, whose wakeup takes three system calls here
 * and two at the peer; a futex takes one and one.
 *
 * Responsible for: such a poll while nothing is unusual. Never: what the kernel says of the descriptor (poll_select.c asks it). */
#include "ready/poll_alone.h"

#include "conn/readiness.h"
#include "conn/wait.h"
#include "events/futex.h"
#include "ready/level.h"

/* True if an epoll instance or another thread's poll may wait for the connection too. (A wait has the peer know its event set before it
 * sleeps. One that sleeps beside it on the futex does not, and the first hint would come late.) */
static int is_polled_elsewhere(const struct fs_poller *p, struct fs_pollable *it) {
    return fs_load_relaxed(&it->members) && fs_load_relaxed(&it->home) != p;
}

/* (With other processes at this side, a receive of theirs may take the bytes that end the wait. A stream that has ended is readable.) */
static int is_usual(struct fs_connection *c, int fd) {
    return fs_load_relaxed(&c->number) == (uint32_t)fd && fs_is_attached(c) && fs_receives_on_ring(c) && !fs_is_shared(c) &&
           !fs_eof_inconclusive(c);
}

/* True if the control thread has reported nothing since a receive found nothing in the kernel: then the kernel has no event to add. */
static int is_kernel_quiet(struct fs_connection *c) {
    return fs_is_watched(&c->watch, FS_HANGUP_AND_IN) && fs_load_sc(&c->watch.told) == fs_load_relaxed(&c->receive_checked);
}

/* Another thread may close the number, and with it the connection. It takes the connection from the pollable (fs_poller_close_number), and
 * wakes the futex after that (fs_set_fd). This thread reads the futex first and then the pollable, so it misses neither. With the value of
 * before the wakeup it is woken, or the kernel finds another value and returns. With the later value it has read what was published by the
 * wakeup: the pollable without the connection. (The wakeup's addition and this load are sequentially consistent.) */
static int sleep_for_bytes(struct fs_connection *c, struct fs_pollable *it, int64_t deadline) {
    int woken = -EINTR;
    if (!fs_poller_host.before_sleep || !fs_poller_host.before_sleep()) {
        uint32_t looked = fs_futex_load(&c->ring.rx->futex);
        woken = fs_load_relaxed(&it->c) == c ? fs_sleep_on_ring(c, looked, deadline) : 1;
    }
    if (fs_poller_host.after_sleep) fs_poller_host.after_sleep();
    return woken;
}

int fs_poll_alone(const struct fs_poller *p, struct pollfd *fd, struct fs_pollable *it, int64_t deadline) {
    struct fs_connection *c = fs_load_relaxed(&it->c);
    if (fd->events & ~(FS_IN | POLLERR | POLLHUP) || !(fd->events & FS_IN) || is_polled_elsewhere(p, it)) return FS_NOT_ALONE;
    for (;;) {
        /* (If it was closed, its memory stays: this thread is in a call on it.) */
        if (!c || fs_load_relaxed(&it->c) != c || !is_usual(c, fd->fd)) return FS_NOT_ALONE;
        if (fs_ring_readable(&c->ring)) {
            if (!is_kernel_quiet(c) || fs_level_peek(c, (unsigned short)fd->events) <= 0) return FS_NOT_ALONE;
            fd->revents = (short)(fd->events & FS_IN);
            return 1;
        }
        if (deadline >= 0 && deadline - fs_now() <= fs_spin_ns) return FS_NOT_ALONE;
        if (fs_spin(c, FS_RECEIVE)) continue;
        int woken = sleep_for_bytes(c, it, deadline);
        if (woken < 0) return woken;
        if (!fs_ring_readable(&c->ring)) return FS_NOT_ALONE; /* (a look here would take an error that the program is to see) */
    }
}
