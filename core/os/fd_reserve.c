/* How poll reports an eventfd on this kernel, tested once in a process. */
#include "os/fd_reserve.h"

fs_word32 fs_control_fd = UINT32_MAX;
fs_word64 fs_control_fd_inode;

short fs_not_eventfd_events(void) {
    static fs_word32 learnt; /* the result plus one; relaxed: concurrent callers find the same result */
    uint32_t known = fs_load_relaxed(&learnt);
    if (!known) {
        struct pollfd p = {fs_system.eventfd(1, EFD_CLOEXEC), POLLIN | POLLOUT | FS_NOT_EVENTFD, 0};
        if (p.fd < 0) return 0; /* no descriptor: the next call tries again */
        known = 1 + (fs_system.poll(&p, 1, 0) > 0 && !(p.revents & FS_NOT_EVENTFD) ? FS_NOT_EVENTFD : 0);
        fs_store_relaxed(&learnt, known);
        fs_system.close(p.fd);
    }
    return (short)(known - 1);
}
