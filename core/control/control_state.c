/* What the program and its control thread share, and its lock. */
#include "control/control_state.h"

#include "os/host.h"

struct fs_control_state fs_control_state = {.lock = PTHREAD_MUTEX_INITIALIZER}; /* (All zero, so no shared object carries its 130 KB.) */

void fs_control_lock_hosted(void) {
    while (pthread_mutex_trylock(&fs_control_state.lock)) {
        void *given = fs_host_unlock();
        pthread_mutex_lock(&fs_control_state.lock);
        pthread_mutex_unlock(&fs_control_state.lock);
        fs_host_lock(given);
    }
}

struct fs_control_fds fs_control_fds = {.epoll = -1, .kick = -1, .request = -1, .diag = -1};
