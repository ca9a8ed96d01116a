/* The beginning and the end of this front end: in a process that the library was preloaded in, at its start; in one that has loaded it for
 * its core, when the program asks for it.
 *
 * Responsible for: that the core has one front end at a time, and that no connection of ours is left without the functions that serve it.
 * Never: slots (relocations.c), settings. */
#include "interpose.h"
#include "own_numbers.h"
#include "process.h"
#include "report.h"
#include "signals.h"

#include <dlfcn.h>

#ifndef FS_BUILD /* (setup.py says it: no package takes the library of another build) */
#define FS_BUILD ""
#endif

const char fs_build[] = FS_BUILD;

static int installed; /* 0: preloaded, for as long as the process lives */
static int claims;    /* the program makes sockets of the Python package's class. With the lock */

static struct fs_front_end front = {.unlock = ip_let_go, .lock = ip_take_again, .each = ip_each_connection, .before_fork = ip_prepare_fork};

/* Returns 0, or it has failed. */
static int serve(void) {
    static int begun;
    ip_claim_memory();
    fs_set_backlog(SOMAXCONN);
    if (!begun) ip_begin_readiness(&front);
    /* (The core's handlers of forks are installed first, so that ours have announced a fork before they run.) */
    if (fs_begin(&front) || (!begun && ip_begin_forks())) return -1;
    begun = 1;
    ip_store_relaxed(&ip_is_serving, 1);
    return 0;
}

/* Returns true if the process has the C library that this one was built for. */
static int fits(void) {
#ifdef __GLIBC__
    return dlsym(RTLD_DEFAULT, "gnu_get_libc_version") != NULL;
#else
    return 1;
#endif
}

static void end_if_unneeded(void);

__attribute__((constructor)) static void start(void) {
    fs_set_lookup();
    ip_above = (struct ip_above){ip_look_again, end_if_unneeded};
    if (!fits()) {
        fprintf(stderr, "fastsock: %s stays with the kernel: its C library is not glibc, for which this library is\n",
                program_invocation_name);
        return;
    }
    ip_tell_core();
    ip_begin_end();
    if (!ip_is_asked_to_serve()) return;
    static struct fs_settings settings;
    const char *why = ip_read_settings(&settings);
    fs_settings_warn();
    if (!why && !settings.enabled) return;
    if (!why) why = ip_put_in_place();
    if (why) {
        fprintf(stderr, "fastsock: %s stays with the kernel: %s\n", program_invocation_name, why);
        return;
    }
    ip_use_settings(&settings);
    if (serve()) return;
    ip_store_relaxed(&ip_activity, IP_TAKING);
    ip_wrap_handlers(); /* of constructors that have run before this one */
    ip_begin_report();
}

static void begin_taking(int all) {
    if (ip_is_active() && (all || !ip_is_taking())) ip_store_relaxed(&ip_activity, all ? IP_TAKING : IP_CLAIMING);
}

const char *fs_libc_install(const struct fs_settings *settings, int all) {
    static struct fs_settings own; /* with the lock */
    int error = errno;
    ip_lock();
    const char *why = settings ? NULL : ip_read_settings(&own);
    if (!settings) settings = &own;
    claims |= !all;
    if (!why && fs_libc_serves()) { /* its end may have been asked for and not come: it goes on */
        ip_use_settings(settings);
        begin_taking(all);
    } else if (!why && !(why = ip_put_in_place())) {
        ip_use_settings(settings);
        installed = 1;
        if (serve()) {
            fs_end();
            ip_take_out_of_place();
            why = "out of memory: cannot register fork handlers";
        } else {
            ip_store_relaxed(&ip_activity, IP_ENDING);
            begin_taking(all);
            ip_wrap_handlers();
        }
    }
    ip_unlock();
    errno = error;
    return why;
}

const char *fs_libc_run(const char *statistics) {
    static struct fs_settings settings;
    const char *why = ip_read_settings(&settings);
    if (why || !settings.enabled || fs_libc_serves()) return why;
    ip_keep_statistics(statistics);
    why = fs_libc_install(&settings, 1);
    if (!why) ip_begin_report();
    return why;
}

void fs_libc_configure(const struct fs_settings *settings) {
    ip_lock();
    if (ip_is_active()) ip_use_settings(settings);
    ip_unlock();
}

/* ---- the end ---------------------------------------------------------------------------------------------------------- */

static void look_at_socket(struct ip_socket *s, void *needed) { *(int *)needed |= s->opened || ip_is(&s->thing, IP_EARLY); }
static void look_at_epoll(struct ip_epoll *e, void *needed) { *(int *)needed |= ip_load_relaxed(&e->poller) != NULL; }

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

static void end_if_unneeded(void) {
    if (!installed) return;
    int needed = ip_fork_is_under_way();
    ip_each_socket(look_at_socket, &needed);
    ip_each_epoll(look_at_epoll, &needed);
    if (needed) return;
    ip_unwrap_handlers();
    ip_store_relaxed(&ip_activity, IP_INACTIVE);
    ip_take_out_of_place();
    forget_records();
    ip_forget_own_numbers();
    fs_end();
    ip_store_relaxed(&ip_is_serving, 0);
}

void fs_libc_uninstall(void) {
    ip_lock();
    if (installed && ip_is_active()) ip_store_relaxed(&ip_activity, claims ? IP_CLAIMING : IP_ENDING);
    ip_end_if_unneeded();
    ip_unlock();
}
