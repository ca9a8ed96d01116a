/* Calls that wait on kernel TCP, in the kernel's own recv or send.
 *
 * Responsible for: counting the calls that are in the kernel; spin statistics of such waits. Never: decides whether a call may go to the
 * kernel. */
#include "os/host.h"
#include "conn/attach.h"
#include "conn/state.h"
#include "conn/wait.h"
#include "conn/wake.h"

/* A thread that sees the count takes no step that moves the connection. */
static void *enter_kernel(struct fs_connection *c) {
    fs_count_in_kernel(c, 1);
    return fs_host_unlock();
}

static void leave_kernel(struct fs_connection *c, void *host_state) {
    fs_host_lock(host_state);
    fs_count_in_kernel(c, -1);
}

int64_t fs_receive_polling(struct fs_connection *c, char *into, size_t room, int flags, int *spun) {
    int64_t got = -EAGAIN, began = fs_now(), until = began + fs_wait_budget(c, began), now = began;
    int attempts = 0;
    /* (Not beside a step: what is taken as it attaches would not be counted.) */
    *spun = until != began && fs_note_in_kernel(c, 1);
    if (!*spun) return -EAGAIN;
    void *host_state = fs_host_unlock();
    while (got == -EAGAIN && (attempts == 0 || (now = fs_now()) < until)) {
        got = fs_system.recv(fs_fd_unlocked(c), into, room, flags | MSG_DONTWAIT);
        attempts++;
        if (got < 0) {
            got = -errno;
            sched_yield(); /* the peer may be waiting for this very processor */
        }
    }
    if (!(flags & MSG_PEEK)) fs_count_kernel(&c->kernel_received, got);
    leave_kernel(c, host_state);
    uint64_t spent = (uint64_t)(FS_MIN(now, until) - began);
    fs_count(&c->ring.count.poll_ns, spent);
    if (got == -EAGAIN)
        fs_count(&c->ring.count.poll_unpaid_ns, spent);
    else if (attempts > 1)
        fs_note_wait(c, began, 1, 1);
    return got;
}

int64_t fs_receive_asleep(struct fs_connection *c, char *into, size_t room, int flags, int spun) {
    int64_t began = fs_now();
    void *host_state = enter_kernel(c);
    int64_t got = fs_system.recv(fs_fd_unlocked(c), into, room, flags);
    if (got < 0) got = -errno;
    if (!(flags & MSG_PEEK)) fs_count_kernel(&c->kernel_received, got);
    leave_kernel(c, host_state);
    if (got != -EINTR) fs_note_wait(c, began, spun, 0);
    return got;
}

int64_t fs_send_asleep(struct fs_connection *c, const struct iovec *v, size_t skip, size_t length, int flags) {
    void *host_state = enter_kernel(c);
    int64_t sent = fs_send_pieces_kernel(fs_fd_unlocked(c), v, skip, length, flags);
    fs_count_kernel(&c->kernel_sent, sent);
    leave_kernel(c, host_state);
    return sent;
}
