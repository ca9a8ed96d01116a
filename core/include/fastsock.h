/* fastsock for a front end in C: TCP connections between processes of one host, over shared memory.
 *
 * A connection is a connected TCP socket of the program. It starts on kernel TCP, and moves to a region of shared
 * memory when both ends have one and agree. The calls below are the same on both paths. CPython's front end
 * (fastsock/_native) is made of them too. This file only collects them: each function has its contract where it is
 * declared. The tour of the internals is docs/design.md, the protocol between two processes is docs/protocol.md.
 *
 *     ./dev core                                                          makes build/core/libfastsock.a
 *     cc -std=gnu11 -D_GNU_SOURCE -I core/include -I core program.c build/core/libfastsock.a -pthread
 *
 * How a connection lives
 *
 *     fs_own_pid = getpid();                    once in a process, and again in a forked child; fs_own_pid_ns too
 *     fs_conn_open(c, fd, fs_inode(fd))   on kernel TCP. `c` stays where it is until it is released
 *     fs_attach(c, memory, ...)                 a region that is shared with the peer; see below. Once, or never
 *     fs_try_recv, fs_try_send, ...          the calls, each between fs_call_enter and fs_call_exit
 *     fs_conn_shutdown(c, receiving, sending)            before shutdown(2) on the descriptor, and instead of nothing
 *     fs_note_ended(c), fs_conn_close(c, ..)  from inside, before close(2) on the descriptor; the counters go to a total
 *     fs_release_side(c), fs_note_detached(c)       by who is told FS_EXIT_RELEASE: of the last fs_call_exit, or fs_unpin
 *
 * A blocking receive, with the deadline in monotonic nanoseconds (negative: none):
 *
 *     struct fs_call call;
 *     int64_t got = -EBADF;
 *     if (fs_call_enter(c, &call)) {
 *         while ((got = fs_try_recv(c, into, room, 0, 1)) == -EAGAIN)
 *             if (!fs_spin(c, FS_RECEIVE) && fs_sleep(c, FS_RECEIVE, deadline, news) != 1) break;
 *         after = fs_call_exit(c, &call);
 *     }
 *
 * `news` is NULL in a program with one thread. With more, another thread may give the descriptor's number to another
 * file meanwhile: fs_fd_change_subscribe before the sleep, fs_fd_change_unsubscribe after it. After -EINTR the program's signal handlers
 * have run. A blocking send is the same with fs_try_send and FS_SEND; it goes on behind what was accepted. Where the program's
 * options and timeouts count, fs_wait_limit says how long to wait, and fs_end_partial what a call returns that ends early (partial.h).
 *
 * Which calls block
 *
 *     never        fs_try_*; fs_call_enter, fs_call_exit; fs_conn_open; what tcp.h has; the questions of state.h
 *     for a turn   everything that takes one says so, and so do fs_try_*, which give up after some 20 ms (-EAGAIN), and
 *                  fs_conn_shutdown, fs_expose, fs_set_buffer_limits, fs_set_oob_inline (-EINTR) and fs_fallback_begin (NULL), with nothing done:
 *                  the caller looks for signals, and calls again. A turn is a copy long. It takes longer only while its
 *                  holder is stopped; a dead one loses it
 *     so long      fs_spin: its budget (fs_spin_ns). fs_wait_for_doorbell_byte: 20 ms. fs_fallback: FS_ANSWER_TIME
 *                  for each answer of the peer
 *     at will      fs_sleep: until something may have happened, the deadline, or a signal
 *
 * Which lock is needed
 *
 *     How long a connection lives needs none. Threads may begin and end calls, close the connection, keep it and let it
 *     loose at once (state.h): all that is one word, and what a thread is told to do then, it does alone. A front end whose
 *     own lock keeps its threads apart there says so (`fs_host.keeps_apart`), and saves the locked instructions.
 *     The front end's lock is whatever keeps its threads apart elsewhere: CPython's GIL, a mutex, or nothing in a program
 *     with one thread. Under it are the beginning (fs_conn_open, fs_conn_identify, fs_attach, fs_expose, fs_set_fd), and
 *     what a process has one of: the roll, the requests' list, the news, the event sets, the free blocks, and the list of
 *     connections that the front end keeps for its own ends. So fs_conn_close, fs_forget_fd, fs_release_side and fs_conn_discard
 *     need it. The calls in between need no lock. They may be made with the front end's lock held: where a turn is waited
 *     for, it is let go by `fs_host.let_go` and taken again by `fs_host.take_again`. So no thread waits for a turn with
 *     that lock, and none waits for that lock with a turn.
 *     The turns (the two locks of a side) are the core's own. Functions that need one ask for a `struct fs_sender *` or a
 *     `struct fs_receiver *`, which a turn gives (conn/side_lock.h). They are for the core alone.
 *
 * One thread for many connections
 *
 *     An event set says which of them have something. Its `epoll` is a descriptor that the thread waits on beside others: of a
 *     connection that is on the ring in both directions nothing else has to be asked.
 *
 *     set = fs_event_set_new(&failed);
 *     fs_slot_alloc(c, set)                        before fs_attach; and once that is done:
 *     fs_slot_put_member(set, fs_slot_of(c), whose); fs_set_register(set, c);
 *     fs_drive_by_loop(c)                         if the descriptor's number is nobody else's
 *
 *     Going to sleep, and awake again. What a look finds is served first, and then it begins anew:
 *
 *     for each c: found |= fs_arm_for_loop(c, receives, sends);
 *     if (!found && !fs_prepare_sleep(set)) poll(set->epoll, ...);
 *     fs_set_awake(set); fs_event_set_drain(set); fs_reoffer_pages(set);
 *     while ((count = fs_take_hints(set, places, FS_HINTS)) > 0)   for each place: fs_slot_member(set, place), which may have
 *                                                 nothing (NULL: it has left), and fs_disarm_receiver(&c->ring, FS_SET_ASLEEP)
 *
 *     fs_slot_free(c, set) before the connection is let go, and fs_event_set_end(set). tests/native/loop.h is such a loop whole.
 *     The program's own epoll, poll and select are ready/ready.h's.
 *
 * What a call returns
 *
 *     fs_try_*: bytes; 0 at the end of the stream, from a receive; -EAGAIN if there is nothing to be had now; another
 *     negative errno as TCP would give it (-ECONNRESET, -EPIPE, -ETIMEDOUT, ...). What is sent without MSG_NOSIGNAL on
 *     a broken connection raises SIGPIPE, as send(2) does.
 *     FS_VIOLATED: the ring is broken. c->ring.violation names what the peer did, or what was lost at this side. It cannot be mended.
 *     The front end calls fs_note_broken, fs_reset_connection(fs_fd(c)) and fs_wake_local, and tells its program -ECONNRESET.
 *     Others: 0 or -errno, or what their contracts say. errno itself is not kept.
 *
 * How a connection gets its region
 *
 *     Two ends find each other as docs/protocol.md says under "Meeting" (rendezvous/connector.h). Whoever does it in another
 *     way (a parent for its two children) needs this: memory of fs_region_size(window, chunk) bytes that both map (a
 *     sealed memfd), zeroed and formatted by one of them (fs_region_format). One end attaches as side 0 and the other one as
 *     side 1. The mapping stays the front end's, which keeps it until the connection is released. Nothing that the peer can
 *     write is trusted.
 *
 * What else a front end owes
 *
 *     fs_expose(c) before anybody else gets the descriptor's number to poll it. A loop that drives the connection and
 *     keeps its number to itself says fs_drive_by_loop instead (loop_io.h).
 *     fs_plug_if_full(c) where a send that does not wait finds the ring full.
 *     fs_fallback(c, ..) before anybody else reads or writes the descriptor, or inherits it by an exec.
 *     In a forked child: fs_own_pid, fs_slab_forget, fs_fd_change_forget, and fs_conn_inherit for each connection. A
 *     child that shall not hold the connection says so as every holder does: fs_conn_close.
 *     Requests of the peer (control/control_recv.h): fs_handle_request, or with a parcel fs_resend_unread.
 */
#ifndef FASTSOCK_FASTSOCK_H
#define FASTSOCK_FASTSOCK_H

#include "os/atomics.h"              /* loads and stores of the words that it shows */
#include "os/host.h"                /* what the core asks of its front end */
#include "os/fd_reserve.h"                /* the share of descriptor numbers, eventfds, fs_inode */
#include "os/syscalls.h"               /* the table of system calls */
#include "control/control_recv.h"            /* requests of the peer, and to it */
#include "control/tcp_identity.h"          /* this process as others name it, and whom it believes */
#include "control/listener.h"          /* where seekers come */
#include "control/control_requests.h"          /* requests that came */
#include "control/introspection.h"              /* connections as they are seen from outside */
#include "control/page_offers.h"              /* fs_set_register, fs_reoffer_pages */
#include "control/control_thread.h"            /* the connection thread */
#include "conn/kernel_io.h"       /* the kernel's own blocking calls */
#include "conn/bridge.h"         /* the way back to the kernel without help of the peer */
#include "conn/connection.h"     /* struct fs_connection, struct fs_call */
#include "conn/loop_io.h"          /* an event loop's transport drives the connection */
#include "conn/open_close.h"            /* opening, shutdown, ending, forks */
#include "conn/fallback.h"          /* the way back to the kernel, with its help */
#include "conn/fallback_peer.h"   /* fs_resend_unread */
#include "conn/attach.h"           /* fs_attach, fs_expose, fs_set_fd */
#include "conn/partial.h"        /* how long a call waits, and how one ends that has done a part */
#include "conn/readiness.h"          /* fs_recv_ready, fs_send_ready */
#include "conn/receive.h"        /* fs_try_recv */
#include "conn/doorbell_tx.h"        /* fs_wake_local, fs_plug_if_full */
#include "conn/event_slot.h"           /* fs_slot_alloc, fs_slot_free */
#include "conn/send.h"           /* fs_try_send, fs_try_send_urgent, fs_handle_request */
#include "conn/state.h"          /* how a connection stands and lives: fs_call_enter, fs_call_exit, fs_note_* */
#include "conn/side_lock.h"          /* fs_wait_for_side */
#include "conn/wait.h"           /* fs_spin, fs_sleep */
#include "rendezvous/path_state.h"            /* how far the search of a connection is */
#include "rendezvous/endpoint.h"          /* how an endpoint ends and leaves */
#include "rendezvous/region_cache.h"              /* regions, made ahead */
#include "rendezvous/policy.h"            /* whether a connection may look for its peer, and by which name */
#include "rendezvous/connector.h"            /* how two ends find each other, and the regions of this process */
#include "rendezvous/upgrade_policy.h"          /* what sessions of a service are like */
#include "ready/ready.h"               /* epoll, poll and select over ring and kernel */
#include "process/atfork.h"            /* a child is counted in by the fork itself */
#include "process/holder_count.h"          /* which processes have a connection open; fs_pid_ns */
#include "process/fork_shared_slab.h"           /* memory shared with forked children */
#include "process/conn_table.h"             /* what this process tells to who looks at it from outside */
#include "ring/doorbell.h"             /* fs_disarm_receiver */
#include "ring/ring.h"                 /* struct fs_counters, fs_add_counters; fs_region_format */
#include "transport/tcp.h"             /* what is asked of the kernel connection */
#include "events/fd_change.h"               /* what sleepers hear of numbers */
#include "events/spin_budget.h"            /* fs_spin_ns: how long a wait may poll */
#include "events/event_set.h"                /* event sets */
#include "wire/region.h"               /* the region */
#include "wire/reasons.h"              /* why a connection stays on kernel TCP */

#endif
