/* What poll says of an eventfd on this kernel, found out once in a process.
 *
 * Responsible for: that. Never: the numbers of the share, which fd_reserve.h has. */
#include "os/fd_reserve.h"

fs_word32 fs_control_fd = UINT32_MAX;
fs_word64 fs_control_fd_inode;

short fs_not_eventfd_events(void) {
    static fs_word32 learnt; /* what was learnt, plus one; relaxed: who asks at the same time learns the same */
    uint32_t known = fs_load_relaxed(&learnt);
    if (!known) {
        struct pollfd p = {fs_system.eventfd(1, EFD_CLOEXEC), POLLIN | POLLOUT | FS_NOT_EVENTFD, 0};
        if (p.fd < 0) return 0; /* without a descriptor the next one asks again */
        known = 1 + (fs_system.poll(&p, 1, 0) > 0 && !(p.revents & FS_NOT_EVENTFD) ? FS_NOT_EVENTFD : 0);
        fs_store_relaxed(&learnt, known);
        fs_system.close(p.fd);
    }
    return (short)(known - 1);
}
