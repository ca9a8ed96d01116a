/* An event loop whose transports drive connections: they read and write the kernel connection themselves, and the ring by fastsock.h.
 *
 * The loop has a poller with an event set. A connection becomes a member of it when it attaches. The loop polls while it works, and sleeps
 * in its own selector, beside the descriptor of the set. Its own transport has the kernel connection, so nothing here asks the kernel.
 *
 *     p = fs_loop_new(&failed);                          fs_loop_fd(p) goes into the loop's selector
 *     fs_step(c, &hooks, &result)                        `watch` of the hooks calls fs_loop_add, `ignore` fs_loop_drop
 *     fs_drive_by_loop(c); fs_loop_enter(m);             it has attached
 *     while (fs_loop_look(p, events, max, now)) ...      delivers what fs_try_recv has, sends what waits
 *     fs_loop_arm(p), fs_loop_sleep(p)                   both 0: the loop may sleep
 *     fs_loop_wake(p)                                    the descriptor was readable
 *     fs_loop_drop(m); fs_loop_end(p);
 *
 * All is called by the loop's thread, which is inside the connection (fs_call_enter) or has pinned it (fs_pin): nobody else knows the
 * poller. Another process that inherited the connection may use it meanwhile, so some functions take locks of its side. No signal handler
 * may call a function of this file. */
#ifndef FASTSOCK_FASTSOCK_LOOP_H
#define FASTSOCK_FASTSOCK_LOOP_H

#include "fastsock.h"

#ifdef __cplusplus
extern "C" {
#endif

struct fs_member; /* a connection in the poller */

enum { FS_IN = EPOLLIN | EPOLLRDNORM, FS_OUT_ROOM = EPOLLOUT | EPOLLWRNORM };

/* ---- the poller --------------------------------------------------------------------------------------------------------------- */

/* Makes an empty poller with an event set. Returns NULL after an error, with `*failed` set to it as -errno.
 * Errors: EMFILE, ENFILE, ENOMEM. [any] */
struct fs_poller *fs_loop_new(int *failed);

/* The loop has ended. The poller ends with its last member. [any] */
void fs_loop_end(struct fs_poller *p);

/* Returns the descriptor for the loop's selector: readable when the set is woken. [any] */
int fs_loop_fd(const struct fs_poller *p);

/* Makes a member for a connection that is about to attach, with a slot in the set. Its events have `data`. Returns NULL after an error,
 * with `*failed` set to it as -errno.
 * Errors: EMFILE, ENFILE, ENOMEM, ENOSPC. [any] */
struct fs_member *fs_loop_add(struct fs_poller *p, struct fs_connection *c, void *data, int *failed);

/* It has attached: it may be ready from now on. [any] */
void fs_loop_enter(struct fs_member *m);

/* Ends the member, whose connection is about to end or has not attached. [any] */
void fs_loop_drop(struct fs_member *m);

/* Sets what is wanted of it: FS_IN, FS_OUT_ROOM. `ended`: the kernel's stream from the peer has ended, so no more comes than is in the
 * ring. [any] */
void fs_loop_want(struct fs_member *m, uint32_t events, int ended);

/* It may be ready, or what is wanted of it has changed: the next look looks at it. [any] */
void fs_loop_activate(struct fs_member *m);

/* Takes the hints, and writes which members of the list are ready, or as many as there is room for. They stay in the list. `now`: about
 * when, monotonic ns. Returns how many. [any] */
int fs_loop_look(struct fs_poller *p, struct epoll_event *events, int max, int64_t now);

/* Returns true if members may be ready: the loop looks on, and does not sleep. [any] */
int fs_loop_looks(const struct fs_poller *p);

/* ---- polling, and sleeping ------------------------------------------------------------------------------------------------------ */

/* A look has found something that was delivered: the wait is over. [any] */
void fs_loop_found(struct fs_poller *p);

/* Nothing was found. Returns the ns for which the wait may go on polling; 0: it is to sleep. [any] */
int64_t fs_loop_budget(struct fs_poller *p, int64_t now);

/* Returns true if polling pays at present. [any] */
int fs_loop_polls(struct fs_poller *p, int64_t now);

/* Looks at the only member of the list so many times, without hints and clock. Returns true if it may be ready. [any] */
int fs_loop_await(struct fs_poller *p, int looks);

/* Looks until one may be ready, there is a hint, or the time is over. Returns true if something was found. [any] */
int fs_loop_spin(struct fs_poller *p, int64_t until);

/* Leaves the members of the list to the event set. Returns true if some are ready, and stay. [any] */
int fs_loop_arm(struct fs_poller *p);

/* With no member in the list: says that the set sleeps. Returns true if there are hints: the loop looks on. [any] */
int fs_loop_sleep(struct fs_poller *p);

/* The loop is awake, and begins to look. [any] */
void fs_loop_awake(struct fs_poller *p);

/* The descriptor was readable: takes the hints. [any] */
void fs_loop_wake(struct fs_poller *p);

/* Returns how long the loop may wait, asleep or not, before it looks at members which no event may report, ns; -1: there are none. [any] */
int64_t fs_loop_late(const struct fs_poller *p);

/* These may be ready. [any] */
void fs_loop_activate_late(struct fs_poller *p);

/* ---- a connection --------------------------------------------------------------------------------------------------------------- */

/* Makes the connection loop-driven: nobody else reads, writes or polls the descriptor. Called again after it has attached. [any] */
void fs_drive_by_loop(struct fs_connection *c);

/* Keeps the memory of a connection that has not ended, beyond calls. Returns 0 if it has ended. fs_unpin ends that; fs_after_exit does what
 * its result says, with no call. [any] */
int fs_pin(struct fs_connection *c);
enum fs_exit_action fs_unpin(struct fs_connection *c);

/* Gives the number of a connection that a loop drives to the program, whose calls are on it from now on, and makes it known to pollers.
 * `loop`: the hooks of its step. Returns 0 or -errno, and the loop drives it as before.
 * Errors: EBADF, EMFILE, ENFILE, ENOMEM, ENOSPC (no slot in a set); ENOTCONN: nobody drives it, as the way back has failed too. [host lock,
 * inside] */
int fs_leave_loop(struct fs_connection *c, const struct fs_attach_hooks *loop);

/* Returns, and sets, how many operations of the program were made; the loop counts them itself meanwhile. [any] */
int64_t fs_operations_of(const struct fs_connection *c);
void fs_set_operations(struct fs_connection *c, int64_t operations);

/* Returns the number of operations from which on fs_step has something to do; INT64_MAX: never. [any] */
int64_t fs_steps_at(const struct fs_connection *c);

/* Returns true if a published name has no answer yet: no step is due, however many operations there are. [any] */
int fs_awaits_answer(const struct fs_connection *c);

/* The loop's transport has read `count` bytes from the kernel, of a connection that is attached. Returns how many of the first bytes come
 * before those in the ring, or FS_VIOLATED. `*behind` bytes come after those in the ring, because the peer has gone back to the kernel.
 * [inside] */
int64_t fs_account_read(struct fs_connection *c, uint64_t count, uint64_t *behind);

/* Returns true if all bytes of the kernel's part were taken: the next ones come by the ring. [inside] */
int fs_switch_reached(struct fs_connection *c);

/* Returns how many bytes lie in the ring, `most` at most; and if there are any. [inside] */
size_t fs_bytes_on_ring(struct fs_connection *c, size_t most);
int fs_has_bytes_on_ring(struct fs_connection *c);

/* Returns true if the end of the peer's stream is in the ring; if it is a reset; and if it is the peer's fallback, after which bytes of the
 * kernel may follow those in the ring. [inside] */
int fs_has_stream_end(struct fs_connection *c);
int fs_ends_with_reset(struct fs_connection *c);
int fs_peer_is_back(struct fs_connection *c);

/* Returns true if the loop's transport sends the next bytes. [inside] */
int fs_kernel_is_next(struct fs_connection *c);

/* Returns true if the peer is ready for the ring, and this side's bytes still go through the kernel. [inside] */
int fs_may_switch(struct fs_connection *c);

/* Switches to the ring if the peer is ready. Everything written so far is in the kernel. Returns true if this side sends on the ring.
 * [inside] */
int fs_switch_if_ready(struct fs_connection *c);

/* What a connection is like, for tests and for reports of faults. */
struct fs_description {
    const char *stage; /* of its path */
    int64_t operations;
    int ended, broken, attached, driven, lost;
    uint32_t holders;
    uintptr_t side; /* where the state of its side is */
    /* of one that is attached, and has not ended */
    uint32_t window, acked, doorbell, peer_doorbell;
    int peer_consents;
    uint64_t switched_at, peer_switched_at, fin;
};

/* Sets `d`. Other threads may change the connection meanwhile. [any] */
void fs_describe(const struct fs_connection *c, struct fs_description *d);

#ifdef __cplusplus
}
#endif

#endif
