/* The beginning of this front end in a process that the library was preloaded in. One that has loaded it for its core alone has another.
 *
 * Responsible for: that the core has one front end. Never: settings. */
#include "interpose.h"

const char fs_build[] = FS_BUILD;

int fs_libc_serves(void) { return ip_active; }

__attribute__((constructor)) static void start(void) {
    fs_set_lookup();
    const char *settings = ip_given_settings();
    if (!settings) return;
    ip_read_settings(settings);
    fs_own_pid = (uint32_t)getpid();
    fs_own_pid_ns = fs_pid_ns();
    ip_begin_lock();
    ip_begin_signals();
    ip_begin_own_numbers();
    ip_begin_readiness();
    fs_set_backlog(SOMAXCONN);
    fs_ended_counters = &ip_totals;
    if (!ip_begin_forks()) ip_active = 1;
}
