/* Which processes hold a connection: a count, and the process ids of forked children, so that one that is killed is
 * struck out.
 *
 * Responsible for: who is the last. Never: what the last one says. No lock: the words are atomics of memory that the
 * holders share. */
#include "process/holder_count.h"

#include <signal.h>

#include "os/host.h"
#include "os/syscalls.h"

uint32_t fs_pid_ns(void) {
    struct stat s;
    return fs_system.stat("/proc/self/ns/pid", &s) == 0 ? (uint32_t)s.st_ino : 0;
}

/* Whether a process has ended, a zombie too: its descriptors are closed, whether somebody waits for it or not. */
static int is_dead(uint32_t process) {
    struct pollfd ended = {-1, POLLIN, 0};
    int dead;
    if (process == fs_own_pid) return 0;
    if (fs_system.kill((pid_t)process, 0) < 0 && errno == ESRCH) return 1;
    ended.fd = fs_system.pidfd_open((pid_t)process, 0);
    dead = ended.fd >= 0 && fs_system.poll(&ended, 1, 0) > 0;
    if (ended.fd >= 0) fs_system.close(ended.fd);
    return dead;
}

/* How many of `children` this process reads and writes: all of them, if they mean to it what they mean to the one
 * that opened the connection, and none otherwise. In another PID namespace the numbers are other processes' or
 * nobody's: a holder there is not noted, and strikes out nobody. So one that is killed there is counted for good,
 * and none that lives is taken for dead. */
static int known_children(const struct fs_shared_side *own) {
    return own->pid_space == fs_own_pid_ns ? (int)(sizeof own->children / sizeof *own->children) : 0;
}

uint32_t fs_count_holders(struct fs_shared_side *own) {
    int known = known_children(own);
    for (int i = 0; i < known; i++) {
        uint32_t child = fs_load_sc(&own->children[i]);
        if (child && is_dead(child) && fs_cas32(&own->children[i], child, 0))
            fs_add_sc(&own->holders, (uint32_t)-1);
    }
    return fs_load_sc(&own->holders);
}

void fs_count_child(struct fs_shared_side *own, int by) { fs_add_sc(&own->holders, (uint32_t)by); }

void fs_register_child(struct fs_shared_side *own) {
    int known = known_children(own);
    for (int i = 0; i < known; i++)
        if (fs_cas32(&own->children[i], 0, fs_own_pid)) break;
}

/* Where this process was noted, -1: nowhere. */
static int forget_child(struct fs_shared_side *own) {
    int known = known_children(own);
    for (int i = 0; i < known; i++)
        if (fs_cas32(&own->children[i], fs_own_pid, 0)) return i;
    return -1;
}

void fs_unregister_holder(struct fs_shared_side *own) {
    forget_child(own);
    fs_add_sc(&own->holders, (uint32_t)-1);
}

/* One swap decides: of two that end at once one lets go, and the other one finds itself alone. (If each looked at
 * the number and took itself out later, both would find two, and nobody would say FIN.) Who is alone stays alone, as
 * a fork counts only connections that have not begun to end. It stays counted while it speaks, since the parent
 * gives the memory to another connection once nobody is counted (fs_side_free).
 *
 * Who is killed before the swap is struck out, or counted for good: then nobody is the last, and the kernel's FIN
 * alone ends the connection, as where all are killed. The same goes for who is killed while it speaks as the last.
 * Who is killed behind the swap had nothing to say. It has left `children` before: struck out as well it would be
 * counted out twice, and somebody would speak as the last who is not. */
int fs_release_unless_last(struct fs_shared_side *own) {
    for (;;) {
        uint32_t holders = fs_count_holders(own);
        if (holders <= 1) return 1;
        int child = forget_child(own);
        if (fs_cas32(&own->holders, holders, holders - 1)) return 0;
        if (child >= 0) fs_cas32(&own->children[child], 0, fs_own_pid);
    }
}
