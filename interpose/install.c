/* The beginning and the end of this front end: in a process that the library was preloaded in, at its start; in one that has loaded it for its
 * core, when the program asks for it.
 *
 * Responsible for: that the core has one front end at a time, and that no connection of ours is left without the functions that serve it.
 * Never: slots (relocations.c), settings. */
#include "interpose.h"

const char fs_build[] = FS_BUILD;

static struct { /* the front end that the core had before */
    struct fs_host host;
    struct fs_counters *ended;
    int (*count_child)(int by);
} before;
static int installed; /* 0: preloaded, for as long as the process lives */

int fs_libc_serves(void) { return ip_is_active(); }

/* What is done once. 0, or it has failed. */
static int begin(void) {
    static int begun;
    if (begun) return 0;
    before.count_child = fs_count_child_of_front;
    if (ip_begin_forks()) return -1;
    fs_atfork_install(before.count_child);
    ip_begin_signals();
    ip_begin_own_numbers();
    ip_begin_readiness();
    fs_set_backlog(SOMAXCONN);
    begun = 1;
    return 0;
}

static void serve(void) {
    fs_own_pid = (uint32_t)getpid();
    fs_own_pid_ns = fs_pid_ns();
    before.host = fs_host;
    before.ended = fs_ended_counters;
    before.count_child = fs_count_child_of_front;
    ip_begin_lock();
    fs_ended_counters = &ip_totals;
    fs_atfork_install(ip_count_child);
    fs_store_sc(&ip_active, 1);
    fs_store_sc(&ip_taking, 1);
}

__attribute__((constructor)) static void start(void) {
    fs_set_lookup();
    const char *settings = ip_given_settings();
    if (!settings) return;
    ip_read_settings(settings);
    if (!begin()) serve();
}

const char *fs_libc_install(const char *settings) {
    int error = errno;
    ip_lock();
    const char *why = NULL;
    if (ip_is_active()) { /* its end was asked for and has not come: it goes on */
        ip_read_settings(settings);
        fs_store_sc(&ip_taking, 1);
    } else if (begin()) {
        why = "out of memory: cannot register fork handlers";
    } else {
        why = ip_put_in_place();
        if (!why) {
            ip_read_settings(settings);
            ip_threaded = 1;
            installed = 1;
            serve();
            ip_wrap_handlers();
        }
    }
    ip_unlock();
    errno = error;
    return why;
}

/* ---- the end ---------------------------------------------------------------------------------------------------------- */

static int needed;

static void look_at_socket(struct ip_socket *s) { needed |= s->opened; }
static void look_at_epoll(struct ip_epoll *e) { needed |= fs_load_relaxed(&e->poller) != NULL; }

static void forget_records(void) {
    for (int fd = 0; fd <= ip_highest(); fd++) {
        struct ip_socket *s = ip_socket_at(fd);
        struct ip_epoll *e = ip_epoll_at(fd);
        if (!s && !e) continue;
        struct ip_thing *thing = s ? &s->thing : &e->thing;
        ip_set_number(fd, NULL);
        if (thing->numbers) continue;
        if (s) ip_free_socket(s);
        else ip_free_epoll(e);
    }
}

void ip_end_if_unneeded(void) {
    if (ip_likely(ip_is_taking() || !ip_is_active() || !installed)) return;
    needed = 0;
    ip_each_socket(look_at_socket);
    ip_each_epoll(look_at_epoll);
    if (needed) return;
    ip_unwrap_handlers();
    fs_store_sc(&ip_active, 0);
    ip_take_out_of_place();
    forget_records();
    ip_forget_own_numbers();
    fs_host = before.host;
    fs_ended_counters = before.ended;
    fs_atfork_install(before.count_child);
}

void fs_libc_uninstall(void) {
    ip_lock();
    if (installed) fs_store_sc(&ip_taking, 0);
    ip_end_if_unneeded();
    ip_unlock();
}
