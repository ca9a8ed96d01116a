/* Where the core asks the system: put in front of each file of a core whose `fs_system.recv(...)` was rewritten to `FS_AT(recv)(...)`
 * (tests/native/test_syscall_failures.py). Each such place notes itself before the call, and a program finds all of them between the two
 * ends of their section. */
#ifndef FASTSOCK_SITES_H
#define FASTSOCK_SITES_H

struct fs_site {
    const char *file, *name;
    long line;
};

extern __thread struct fs_site *fs_site_now; /* of this thread's last call */

#define FS_AT(call) \
    (*({ \
        static struct fs_site here __attribute__((section("fs_sites"), used, aligned(8))) = {__FILE__, #call, __LINE__}; \
        fs_site_now = &here; \
        &fs_system.call; \
    }))

#endif
