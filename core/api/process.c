/* What a front end says of its process, and asks of it: its own functions, forks, other programs, statistics.
 *
 * Responsible for: the order in which parts hear of a fork. Never: what a connection does. */
#include "api/whole.h"

#include "conn/open_close.h"
#include "conn/state.h"
#include "conn/tap.h"
#include "control/control_thread.h"
#include "control/fd_reaper.h"
#include "control/introspection.h"
#include "control/rendezvous_dir.h"
#include "control/trust.h"
#include "events/spin_budget.h"
#include "process/atfork.h"
#include "process/fork_shared_slab.h"
#include "process/holder_count.h"

void fs_set_calls(const struct fs_calls *calls) {
#define FS_TAKE(name) if (calls->name) fs_system.name = calls->name;
    FS_TAKE(read) FS_TAKE(write) FS_TAKE(recv) FS_TAKE(send) FS_TAKE(sendto) FS_TAKE(recvmsg) FS_TAKE(sendmsg) FS_TAKE(poll)
    FS_TAKE(ppoll) FS_TAKE(epoll_create1) FS_TAKE(epoll_ctl) FS_TAKE(epoll_pwait2) FS_TAKE(futex) FS_TAKE(socket) FS_TAKE(connect)
    FS_TAKE(accept4) FS_TAKE(shutdown) FS_TAKE(getsockopt) FS_TAKE(setsockopt) FS_TAKE(close) FS_TAKE(dup3) FS_TAKE(fcntl)
    FS_TAKE(ioctl) FS_TAKE(pread) FS_TAKE(nanosleep) FS_TAKE(open) FS_TAKE(fallocate) FS_TAKE(clone) FS_TAKE(prctl)
    FS_TAKE(waitpid) FS_TAKE(close_range) FS_TAKE(pthread_create)
    FS_TAKE(eventfd) FS_TAKE(memfd_create) FS_TAKE(pidfd_open) FS_TAKE(socketpair)
#undef FS_TAKE
}

static void each(void (*body)(struct fs_connection *c, void *with), void *with) {
    if (fs_front.each) fs_front.each(body, with);
}

/* ---- forks -------------------------------------------------------------------------------------------------- */

struct counting { int by, connections; };

static void count(struct fs_connection *c, void *with) {
    struct counting *counting = with;
    if (fs_has_ended(c)) return;
    fs_count_child(fs_own(c), counting->by);
    counting->connections++;
    if (counting->by > 0 && (fs_load_sc(&c->recv_sleepers) || fs_load_sc(&c->send_sleepers)))
        fs_wake_local(c); /* who sleeps looks now and then from here on: the child may be killed with a lock held */
}

static int count_child(int by) {
    struct counting counting = {by, 0};
    each(count, &counting);
    return counting.connections;
}

int fs_begin(const struct fs_front_end *front) {
    fs_front = *front;
    fs_become_process();
    fs_own_pid_ns(); /* before a sandbox closes /proc */
    fs_count_processors();
    fs_host = (struct fs_host){.unlock = front->unlock, .lock = front->lock};
    fs_ended_counters = &fs_totals;
    if (front->polls) {
        fs_poller_host = (struct fs_poller_host){front->end_call,     front->operate,     front->leave,
                                                 front->before_sleep, front->after_sleep, front->is_interrupted};
        fs_pollers_begin();
    }
    int failed = fs_reaper_begin();
    return failed ? failed : fs_atfork_install(count_child);
}

void fs_end(void) {
    fs_front = (struct fs_front_end){0};
    fs_host = (struct fs_host){0};
}

static int FS_EACH_FORK under_way; /* a thread forks, from fs_fork_prepare to the end of its fork. With the host lock */

static void await_thread(struct fs_connection *c, void *with) {
    (void)with;
    if (fs_has_ended(c)) return;
    fs_path_await_thread(&fs_whole_of(c)->path, c);
    fs_store_relaxed(&c->settled, 0);
}

static void look_for_thread(struct fs_connection *c, void *attaching) {
    unsigned long thread = fs_whole_of(c)->path.attaching;
    *(int *)attaching |= thread && thread != (unsigned long)pthread_self();
}

void fs_fork_prepare(int bare) {
    while (under_way) fs_short_sleep_unlocked();
    under_way = 1;
    fs_control_thread_stop();
    for (;;) { /* the child would believe itself on kernel TCP, and its parent and the peer be on the ring */
        int attaching = 0;
        each(look_for_thread, &attaching);
        if (!attaching) break;
        fs_short_sleep_unlocked();
    }
    if (fs_front.before_fork) fs_front.before_fork();
    each(await_thread, NULL);
    fs_expect_fork(1);
    if (bare) fs_before_fork();
}

static void forget_options(struct fs_connection *c, void *with) {
    (void)with;
    fs_know_unset(c, 0);
}

void fs_fork_in_parent(int bare, int starts) {
    if (bare) fs_after_fork_in_parent();
    fs_expect_fork(0);
    under_way = 0;
    fs_control_thread_after_fork();
    each(forget_options, NULL); /* the child may set them */
    if (starts) fs_start_control_thread();
}

void fs_control_thread_resume(int renamed) {
    if (renamed) fs_users_changed();
    fs_control_thread_after_fork();
    fs_start_control_thread();
}

void fs_start_control_thread(void) { fs_control_thread_restart(); }

static void inherit(struct fs_connection *c, void *with) {
    (void)with;
    fs_whole_of(c)->path.attaching = 0;
    fs_conn_inherit(c);
    fs_know_unset(c, 0);
}

void FS_AT_FORK fs_fork_in_child(int bare) {
    if (bare) fs_reaper_in_child(), fs_after_fork_in_child();
    fs_become_process();
    fs_expect_fork(0);
    under_way = 0;
    fs_slab_forget();
    fs_fd_change_forget();
    fs_tap_forget();
    each(inherit, NULL);
    fs_regions_forget();
}

void fs_fork_restart(struct fs_connection *c) {
    fs_path_restart(&fs_whole_of(c)->path, c);
    fs_store_relaxed(&c->settled, 0);
    fs_pollable_after_fork(&fs_whole_of(c)->pollable);
}

/* ---- other programs ------------------------------------------------------------------------------------------ */

/* (What has gone back to the kernel the program may inherit.) */
static void may_close(struct fs_connection *c, void *with) {
    (void)with;
    int stays = fs_is_attached(c) ? !fs_has_fallen_back(c) : fs_is_undecided(&fs_whole_of(c)->path);
    if (!fs_has_ended(c) && stays) fs_holder_may_exec(fs_own(c));
}

void fs_expect_exec(int comes) {
    static struct robust_list *before; /* (of one thread at a time) */
    struct robust_list_head *list = fs_current_thread(fs_own_pid)->list;
    if (comes) {
        before = list->list.next;
        each(may_close, NULL);
    } else {
        list->list.next = before;
    }
}

/* ---- settings and statistics --------------------------------------------------------------------------------- */

const char *fs_set_trust(const struct fs_trust *given) {
    fs_set_trusted(given);
    fs_tap_hide(given->hidden);
    return fs_set_rendezvous_dir(given->rendezvous_dir);
}

void fs_set_spin(int64_t longest) { fs_spin_ns = longest; }

static void add(struct fs_connection *c, void *sum) { fs_add_counters(sum, &c->ring.count, 0); }

void fs_sum_counters(struct fs_connection *c, struct fs_counters *sum) {
    memset(sum, 0, sizeof *sum);
    if (c) {
        add(c, sum);
        return;
    }
    fs_add_counters(sum, &fs_totals, 0);
    fs_add_counters(sum, &fs_poller_totals, 0);
    each(add, sum);
}

int64_t fs_count_paths(enum fs_reason reason) {
    return reason == FS_REASON_NONE ? fs_path_counts.ring : fs_path_counts.by_reason[reason];
}
