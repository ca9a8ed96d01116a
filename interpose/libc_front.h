/* The front end at the C library's calls, as the Python package sees it: both are on one core, in one library. */
#pragma once

#include "fastsock.h"
#include "settings.h"

/* The headers of the core that the library was compiled with. A package of another build cannot use it. */
extern const char fs_build[];

/* 1: every connection of this process is served at the C library's calls, and the core's host lock is that front end's. */
int fs_libc_serves(void);

/* Puts the front end in place in this process, in all loaded objects and in those that are loaded later. `settings`: their lists stay the
 * caller's as long as the process lives; NULL: those of the environment. `all`: it serves every TCP socket that is made from now on;
 * otherwise those that are claimed, what they accept, and their copies. Returns NULL, or why that is not possible. */
const char *fs_libc_install(const struct fs_settings *settings, int all);

/* The number is that of a socket which the program has `made`, or was given: it is served, if it is TCP and no connection yet. */
void fs_libc_claim(int fd, int made);

/* Other settings for the connections to come, where this front end serves the process. */
void fs_libc_configure(const struct fs_settings *settings);

/* The settings `trust` and `rendezvous_dir` alone, for groups and channels, which need no front end. Takes this front end's lock. */
void fs_libc_use_trust(const struct fs_settings *settings);

/* From now on no more sockets are served than those that are claimed; or none, if none was. Then the functions go when the last one that is
 * served has ended. */
void fs_libc_uninstall(void);

struct fs_libc_path {
    int sends, receives, attached; /* on the ring */
    int reason;                    /* enum fs_reason: why with the kernel */
};

/* The path of a number's connection. 0: the number means none. Takes this front end's lock. */
int fs_libc_path(int fd, struct fs_libc_path *path);

struct fs_libc_connection {
    int fd;
    struct fs_libc_path path;
    char local[64], peer[64];  /* "127.0.0.1:80", IPv4-mapped addresses as IPv4; "": it is not connected any more */
    struct fs_counters count;  /* of this connection alone */
};

/* Writes at most `room` of the connections that are open in this process. Returns how many there are. Takes this front end's lock. */
int fs_libc_connections(struct fs_libc_connection *list, int room);

/* A number's connection, for tests and for reports of faults; or NULL. Its memory stays, but may be another one's later. */
struct fs_connection *fs_libc_look(int fd);

/* Sets `sum` to the counters of all connections that this front end serves or has served. */
void fs_libc_sum_counters(struct fs_counters *sum);

/* ---- events, for the program's own log --------------------------------------------------------------------------------------- */

/* What has become of a connection. All texts but `value` stay. */
struct fs_libc_event {
    const char *event;  /* "fastsock.path" */
    const char *name;   /* of the value: "path" */
    const char *reason; /* why the connection is with the kernel, or NULL */
    int fd;
    int lost;  /* events before it that found no room */
    int of;    /* the process */
    char value[64];
};

/* From now on `tell` is called when events wait, and again only when they were all taken. It must not wait for anything: its thread may
 * have locks of this library and of the program. It returns 0, or it has failed. NULL: nobody listens. */
void fs_libc_listen(int (*tell)(void));

/* How many events wait. Those that only report paths are forgotten first, unless `details`. */
int fs_libc_events(int details);

/* Takes the oldest event. 0: there is none. */
int fs_libc_take_event(struct fs_libc_event *taken);

/* Reports the events of this process and of those that it forks to `fastsock doctor`, in this folder (interpose/report.c). Its beginning
 * and its end are reported by the caller. */
void fs_libc_report_to(const char *folder);

/* Ends all connections, as the end of the process does, while other threads may be in calls: for tests. */
void fs_libc_say_goodbye(void);

/* This thread is about to fork, and the control thread shall not be there when the fork returns (1); it has forked, and may start now
 * (0). */
void fs_libc_fork_quietly(int quietly);

/* Serves a process whose Python cannot have the package, as fs_libc_install for all sockets, unless `enabled` is 0. `statistics`: the file
 * for those of this process, or NULL. */
const char *fs_libc_run(const char *statistics);

/* ---- event loops ---- */

/* The operations that a number's connection may make before the transport of a loop is to drive it, so that many end before. 0: it is to
 * do so at once. `*reason`: enum fs_reason, why it is on kernel TCP until then. */
uint32_t fs_libc_left(int fd, int *reason);

/* The transport of an event loop drives a number's connection from now on. NULL: it is none that may still move. */
struct fs_connection *fs_libc_drive(int fd);

/* Takes the next step of an undecided connection, and reports it: fs_step. The hooks are called with the lock. */
void fs_libc_step(struct fs_connection *c, const struct fs_attach_hooks *hooks, struct fs_step_result *result);

/* Ends a call on it that fs_call_enter has admitted. */
void fs_libc_exit(struct fs_connection *c, struct fs_call *call);

/* Ends it in this process: FIN if this is the last holder. The loop does not know it any more. */
void fs_libc_end(struct fs_connection *c);

/* Keeps it with the kernel, if it is not on the ring yet. */
void fs_libc_decide(struct fs_connection *c, int reason);

/* Nobody drives it any more: calls on its number are served from now on, those of the loop's own transport among them. The hooks are those
 * of its step. 0, or -errno: it is driven as before, as somebody waits for it past this front end, or for want of resources; -ENOTCONN: it
 * has no place in the loop any more. */
int fs_libc_hand_over(struct fs_connection *c, const struct fs_attach_hooks *hooks);

/* Resets it, as the ring is broken (FS_VIOLATED), and reports why. */
void fs_libc_reset(struct fs_connection *c);

/* Takes it back to the kernel. Returns 0 if that is not possible. `*unread`: a file with bytes that come before all others, for the caller
 * to close; or -1. */
int fs_libc_leave(struct fs_connection *c, int *unread);
