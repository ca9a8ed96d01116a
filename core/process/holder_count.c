/* The processes that hold a connection: a count, and the ids of forked children, so that a killed one is uncounted. No lock: the words
 * are atomics in memory that the holders share. */
#include "process/holder_count.h"

#include <signal.h>

#include "os/host.h"
#include "os/syscalls.h"

/* Returns true if a process has ended, or has become another program. A zombie has ended too: its descriptors are closed even if nobody
 * waits for it. */
static int is_dead(uint32_t process) {
    struct pollfd ended = {-1, POLLIN, 0};
    int dead;
    if (process & FUTEX_OWNER_DIED) return 1;
    if (process == fs_own_pid) return 0;
    if (fs_system.kill((pid_t)process, 0) < 0 && errno == ESRCH) return 1;
    ended.fd = fs_system.pidfd_open((pid_t)process, 0);
    dead = ended.fd >= 0 && fs_system.poll(&ended, 1, 0) > 0;
    if (ended.fd >= 0) fs_system.close(ended.fd);
    return dead;
}

/* Returns how many of `children` this process uses: all, if it is in the PID namespace of the process that opened the connection, else
 * none. In another namespace the ids belong to other processes or to none: a holder there registers nothing and uncounts nobody. So one
 * that is killed there stays counted, and no living one is taken for dead. */
static int known_children(const struct fs_shared_side *own) {
    return own->pid_space == fs_own_pid_ns() ? (int)(sizeof own->children / sizeof *own->children) : 0;
}

uint32_t fs_count_holders(struct fs_shared_side *own) {
    int known = known_children(own);
    for (int i = 0; i < known; i++) {
        uint32_t child = fs_load_sc(&own->children[i].word);
        if (child && is_dead(child) && fs_cas32(&own->children[i].word, child, 0))
            fs_add_sc(&own->holders, (uint32_t)-1);
    }
    return fs_load_sc(&own->holders);
}

void fs_count_child(struct fs_shared_side *own, int by) { fs_add_sc(&own->holders, (uint32_t)by); }

void fs_register_child(struct fs_shared_side *own) {
    int known = known_children(own);
    for (int i = 0; i < known; i++)
        if (fs_cas32(&own->children[i].word, 0, fs_own_pid)) break;
}

/* Returns the index of this process in `children`, or -1. (Its own word: relaxed.) */
static int find_child(const struct fs_shared_side *own) {
    int known = known_children(own);
    for (int i = 0; i < known; i++)
        if (fs_load_relaxed((fs_word32 *)&own->children[i].word) == fs_own_pid) return i;
    return -1;
}

/* Removes this process from `children`. Returns its index, or -1. */
static int forget_child(struct fs_shared_side *own) {
    int child = find_child(own);
    return child >= 0 && fs_cas32(&own->children[child].word, fs_own_pid, 0) ? child : -1;
}

/* (The thread that calls execve has its process's id when the kernel walks its list, whichever thread it is.) */
void fs_holder_may_exec(struct fs_shared_side *own) {
    int child = find_child(own);
    if (child < 0) return;
    fs_current_thread(fs_own_pid);
    fs_lock_link(&own->children[child]);
}

void fs_unregister_holder(struct fs_shared_side *own) {
    forget_child(own);
    fs_add_sc(&own->holders, (uint32_t)-1);
}

/* One swap decides: of two processes that end at once, one releases the connection and the other one is the last. (If each read the
 * count and subtracted itself later, both would find two, and nobody would send FIN.) The last one stays the last, as a fork counts only
 * connections that have not begun to end. It stays counted until it has sent its FIN, since the parent reuses the memory once nobody is
 * counted (fs_side_free).
 *
 * A process killed before the swap is uncounted later, or stays counted: then nobody is the last, and the kernel's FIN alone ends the
 * connection, as where all are killed. The same holds for one that is killed as the last. A process killed after the swap had nothing to
 * send. It has left `children` before, or it would be uncounted twice, and a process that is not the last would act as the last. */
int fs_release_unless_last(struct fs_shared_side *own) {
    for (;;) {
        if (fs_load_sc(&own->holders) == 1) return 1; /* this process alone: no killed one is counted */
        uint32_t holders = fs_count_holders(own);
        if (holders <= 1) return 1;
        int child = forget_child(own);
        if (fs_cas32(&own->holders, holders, holders - 1)) return 0;
        if (child >= 0) fs_cas32(&own->children[child].word, 0, fs_own_pid);
    }
}
