/* fastsock for a front end in C: TCP connections between processes of one host, over shared memory.
 *
 * A connection is a connected TCP socket of the program. It starts on kernel TCP, and moves to a region of shared memory when both ends
 * have one and agree. The calls below are the same on both paths. CPython's front end (fastsock/_native) uses them too. This file only
 * includes the others: each function has its contract where it is declared. docs/design.md is a tour of the internals, docs/protocol.md
 * the protocol between two processes.
 *
 *     ./dev core                                                          makes build/core/libfastsock.a
 *     cc -std=gnu11 -D_GNU_SOURCE -I core/include -I core program.c build/core/libfastsock.a -pthread
 *
 * The life of a connection
 *
 *     fs_own_pid = getpid();                      once in a process, and again in a forked child; fs_own_pid_ns too
 *     fs_conn_open(c, fd, fs_inode(fd))           on kernel TCP. `c` must not move until it is released
 *     fs_attach(c, memory, ...)                   a region shared with the peer; see below. Once, or never
 *     fs_try_recv, fs_try_send, ...               the calls, each between fs_call_enter and fs_call_exit
 *     fs_conn_shutdown(c, receiving, sending)     before shutdown(2) on the descriptor
 *     fs_note_ended(c), fs_conn_close(c, ..)      inside a call, before close(2) on the descriptor; adds the counters to a total
 *     fs_release_side(c), fs_note_detached(c)     if the last fs_call_exit, or fs_unpin, returns FS_EXIT_RELEASE
 *
 * A blocking receive, with the deadline in monotonic nanoseconds (negative: none):
 *
 *     struct fs_call call;
 *     int64_t got = -EBADF;
 *     if (fs_call_enter(c, &call)) {
 *         while ((got = fs_try_recv(c, into, room, 0, 1)) == -EAGAIN)
 *             if (!fs_spin(c, FS_RECEIVE) && fs_sleep(c, FS_RECEIVE, deadline, change) != 1) break;
 *         after = fs_call_exit(c, &call);
 *     }
 *
 * `change` is NULL in a program with one thread. With more, another thread may give the descriptor's number to another file meanwhile:
 * call fs_fd_change_subscribe before the sleep and fs_fd_change_unsubscribe after it. After -EINTR the program's signal handlers have
 * run. A blocking send does the same with fs_try_send and FS_SEND, and continues after the accepted bytes. fs_wait_limit applies the
 * program's options and timeouts, and fs_end_partial gives the result of a call that ends early (partial.h).
 *
 * Which calls block
 *
 *     never        fs_try_*; fs_call_enter, fs_call_exit; fs_conn_open; all of tcp.h; the queries of state.h
 *     for a lock   functions that take a lock of a side say so. fs_try_* give up after some 20 ms (-EAGAIN), as do fs_conn_shutdown,
 *                  fs_expose, fs_set_buffer_limits, fs_set_oob_inline (-EINTR) and fs_fallback_begin (NULL), with nothing done: the
 *                  caller checks for signals, and calls again. A lock is held for a copy. It takes longer only while its holder is
 *                  stopped; a dead one loses it
 *     bounded      fs_spin: its budget (fs_spin_ns). fs_wait_for_doorbell_byte: 20 ms. fs_fallback: FS_ANSWER_TIME for each answer
 *                  of the peer
 *     at will      fs_sleep: until something may have happened, the deadline, or a signal
 *
 * Which lock is needed
 *
 *     None for the life of a connection. Threads may enter and leave calls, close, pin and unpin the connection at the same time
 *     (state.h): all that is one word, and a thread does alone what the result tells it to do. A front end whose own lock keeps its
 *     threads apart there says so (`fs_host.keeps_apart`), and saves the locked instructions.
 *     The host lock keeps the front end's threads apart elsewhere: CPython's GIL, a mutex, or nothing in a program with one thread.
 *     It is needed for the beginning (fs_conn_open, fs_conn_identify, fs_attach, fs_expose, fs_set_fd), and for everything that a
 *     process has once: the connection table, the request targets, the fd change, the event sets, the free blocks, and the front
 *     end's own list of connections. So fs_conn_close, fs_forget_fd, fs_release_side and fs_conn_discard need it. The calls in
 *     between need no lock. They may be made with the host lock held: before a wait for a lock of a side it is unlocked by
 *     `fs_host.unlock`, and relocked after it by `fs_host.lock`. So no thread waits for a lock of a side with the host lock, or for
 *     the host lock with a lock of a side.
 *     The two locks of a side are the core's own. Functions that need one have a parameter `struct fs_sender *` or
 *     `struct fs_receiver *`, which the lock's holder has (conn/side_lock.h). They are for the core alone.
 *
 * One thread for many connections
 *
 *     An event set tells which of them have something. Its `epoll` is a descriptor on which the thread waits, beside others. A
 *     connection that is on the ring in both directions needs nothing else.
 *
 *     set = fs_event_set_new(&failed);
 *     fs_slot_alloc(c, set)                        before fs_attach; and afterwards:
 *     fs_slot_put_member(set, fs_slot_of(c), member); fs_set_register(set, c);
 *     fs_drive_by_loop(c)                          if nobody else has the descriptor's number
 *
 *     Sleep and wakeup. Serve the connections that were found, then start again:
 *
 *     for each c: found |= fs_arm_for_loop(c, receives, sends);
 *     if (!found && !fs_prepare_sleep(set)) poll(set->epoll, ...);
 *     fs_set_awake(set); fs_event_set_drain(set); fs_reoffer_pages(set);
 *     while ((count = fs_take_hints(set, slots, FS_HINTS)) > 0)    for each slot: fs_slot_member(set, slot), which may have
 *                                                  nothing (NULL: it has left), and fs_disarm_receiver(&c->ring, FS_SET_ASLEEP)
 *
 *     Call fs_slot_free(c, set) before the connection is released, and fs_event_set_end(set). tests/native/loop.h is a whole loop.
 *     ready/ready.h serves the program's own epoll, poll and select.
 *
 * What a call returns
 *
 *     fs_try_*: bytes; 0 at the end of the stream, from a receive; -EAGAIN if nothing can be done now; another negative errno as TCP
 *     would give it (-ECONNRESET, -EPIPE, -ETIMEDOUT, ...). A send without MSG_NOSIGNAL on a broken connection raises SIGPIPE, as
 *     send(2) does.
 *     FS_VIOLATED: the ring is broken beyond repair. c->ring.violation names the fault of the peer or of this side. The front end
 *     calls fs_note_broken, fs_reset_connection(fs_fd(c)) and fs_wake_local, and returns -ECONNRESET to its program.
 *     Others: 0 or -errno, or as their contracts say. errno itself is not kept.
 *
 * How a connection gets its region
 *
 *     Two ends find each other as docs/protocol.md describes (rendezvous/connector.h). Another way (a parent for its two children)
 *     needs this: memory of fs_region_size(window, chunk) bytes that both map (a sealed memfd), zeroed, and formatted by one of them
 *     (fs_region_format). One end attaches as side 0 and the other one as side 1. The front end owns the mapping and keeps it until
 *     the connection is released. Nothing that the peer can write is trusted.
 *
 * Other duties of a front end
 *
 *     fs_expose(c) before anybody else gets the descriptor's number to poll it. A loop that drives the connection and keeps its
 *     number to itself calls fs_drive_by_loop instead (loop_io.h).
 *     fs_plug_if_full(c) if a non-blocking send finds the ring full.
 *     fs_fallback(c, ..) before anybody else reads or writes the descriptor, or inherits it by an exec.
 *     In a forked child: fs_own_pid, fs_slab_forget, fs_fd_change_forget, and fs_conn_inherit for each connection. A child that must
 *     not hold the connection calls fs_conn_close, as every holder does.
 *     Requests of the peer (control/control_recv.h): fs_handle_request, or with unread data fs_resend_unread.
 */
#ifndef FASTSOCK_FASTSOCK_H
#define FASTSOCK_FASTSOCK_H

#include "os/atomics.h"                       /* loads and stores of shared words */
#include "os/host.h"                          /* the core's interface to its front end */
#include "os/fd_reserve.h"                    /* the reserved range of numbers, eventfds, fs_inode */
#include "os/syscalls.h"                      /* the table of system calls */
#include "control/control_recv.h"             /* requests of the peer, and to it */
#include "control/tcp_identity.h"             /* the identity of a connection */
#include "control/trust.h"                    /* trusted users */
#include "control/listener.h"                 /* published names */
#include "control/control_requests.h"         /* answers to requests */
#include "control/introspection.h"            /* queries of fastsock ss */
#include "control/page_offers.h"              /* fs_set_register, fs_reoffer_pages */
#include "control/control_thread.h"           /* the connection thread */
#include "conn/kernel_io.h"                   /* the kernel's own blocking calls */
#include "conn/fallback_bridge.h"                      /* fallback without help of the peer */
#include "conn/connection.h"                  /* struct fs_connection, struct fs_call */
#include "conn/loop_io.h"                     /* calls of an event loop's transport */
#include "conn/open_close.h"                  /* opening, shutdown, close, forks */
#include "conn/fallback.h"                    /* fallback with help of the peer */
#include "conn/fallback_peer.h"               /* fs_resend_unread */
#include "conn/attach.h"                      /* fs_attach, fs_expose, fs_set_fd */
#include "conn/partial.h"                     /* how long a call waits, and its result if it ends early */
#include "conn/readiness.h"                   /* fs_recv_ready, fs_send_ready */
#include "conn/receive.h"                     /* fs_try_recv */
#include "conn/doorbell_tx.h"                 /* fs_wake_local, fs_plug_if_full */
#include "conn/event_slot.h"                  /* fs_slot_alloc, fs_slot_free */
#include "conn/send.h"                        /* fs_try_send, fs_try_send_urgent, fs_handle_request */
#include "conn/state.h"                       /* state and life: fs_call_enter, fs_call_exit, fs_note_* */
#include "conn/side_lock.h"                   /* fs_wait_for_side */
#include "conn/wait.h"                        /* fs_spin, fs_sleep */
#include "rendezvous/path_state.h"            /* state of a connection's search for its peer */
#include "rendezvous/endpoint.h"              /* close and fallback of an endpoint */
#include "rendezvous/region_cache.h"          /* regions made ahead */
#include "rendezvous/eligibility.h"                /* permits the search, and gives the name */
#include "rendezvous/connector.h"             /* the search's steps, and this process's regions */
#include "rendezvous/upgrade_delay.h"        /* statistics of the sessions of a service */
#include "ready/ready.h"                      /* epoll, poll and select over ring and kernel */
#include "process/atfork.h"                   /* counts a child in its fork */
#include "process/holder_count.h"             /* processes that hold a connection; fs_pid_ns */
#include "process/fork_shared_slab.h"         /* memory shared with forked children */
#include "process/conn_table.h"               /* the connection table, for introspection */
#include "ring/doorbell.h"                    /* fs_disarm_receiver */
#include "ring/ring.h"                        /* struct fs_counters, fs_add_counters, fs_region_format */
#include "transport/tcp.h"                    /* queries on the kernel connection */
#include "events/fd_change.h"                 /* wakes sleepers when a number changes */
#include "events/spin_budget.h"               /* fs_spin_ns: how long a wait may spin */
#include "events/event_set.h"                 /* event sets */
#include "wire/region.h"                      /* the region */
#include "wire/reasons.h"                     /* why a connection is on kernel TCP */

#endif
