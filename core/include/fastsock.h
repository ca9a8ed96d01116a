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
 *     fs_own_pid = getpid();                    once in a process, and again in a forked child; fs_own_pid_space too
 *     fs_open_connection(c, fd, fs_inode(fd))   on kernel TCP. `c` stays where it is until it is released
 *     fs_attach(c, memory, ...)                 a region that is shared with the peer; see below. Once, or never
 *     fs_try_receive, fs_try_send, ...          the calls, each between fs_begin and fs_end_call
 *     fs_shut(c, receiving, sending)            before shutdown(2) on the descriptor, and instead of nothing
 *     fs_note_finished(c), fs_let_go_of(c, ..)  from inside, before close(2) on the descriptor; the counters go to a total
 *     fs_free_own(c), fs_note_detached(c)       by who is told FS_RELEASE: of the last fs_end_call, or fs_note_loose
 *
 * A blocking receive, with the deadline in monotonic nanoseconds (negative: none):
 *
 *     struct fs_call call;
 *     int64_t got = -EBADF;
 *     if (fs_begin(c, &call)) {
 *         while ((got = fs_try_receive(c, into, room, 0, 1)) == -EAGAIN)
 *             if (!fs_spin(c, FS_RECEIVE) && fs_sleep(c, FS_RECEIVE, deadline, news) != 1) break;
 *         after = fs_end_call(c, &call);
 *     }
 *
 * `news` is NULL in a program with one thread. With more, another thread may give the descriptor's number to another
 * file meanwhile: fs_join_news before the sleep, fs_leave_news after it. After -EINTR the program's signal handlers
 * have run. A blocking send is the same with fs_try_send and FS_SEND; it goes on behind what was accepted. Where the program's
 * options and timeouts count, fs_patience says how long to wait, and fs_stop what a call returns that ends early (partial.h).
 *
 * Which calls block
 *
 *     never        fs_try_*; fs_begin, fs_end_call; fs_open_connection; what tcp.h has; the questions of state.h
 *     for a turn   everything that takes one says so, and so do fs_try_*, which give up after some 20 ms (-EAGAIN), and
 *                  fs_shut, fs_expose, fs_note_limits, fs_put_oob_inline (-EINTR) and fs_begin_leaving (NULL), with nothing done:
 *                  the caller looks for signals, and calls again. A turn is a copy long. It takes longer only while its
 *                  holder is stopped; a dead one loses it
 *     so long      fs_spin: its budget (fs_poll_ns). fs_await_doorbell_byte: 20 ms. fs_leave_ring: FS_ANSWER_TIME
 *                  for each answer of the peer
 *     at will      fs_sleep: until something may have happened, the deadline, or a signal
 *
 * Which lock is needed
 *
 *     How long a connection lives needs none. Threads may begin and end calls, close the connection, keep it and let it
 *     loose at once (state.h): all that is one word, and what a thread is told to do then, it does alone. A front end whose
 *     own lock keeps its threads apart there says so (`fs_front.keeps_apart`), and saves the locked instructions.
 *     The front end's lock is whatever keeps its threads apart elsewhere: CPython's GIL, a mutex, or nothing in a program
 *     with one thread. Under it are the beginning (fs_open_connection, fs_identify, fs_attach, fs_expose, fs_point_to), and
 *     what a process has one of: the roll, the requests' list, the news, the event sets, the free blocks, and the list of
 *     connections that the front end keeps for its own ends. So fs_let_go_of, fs_abandon_number, fs_free_own and fs_discard
 *     need it. The calls in between need no lock. They may be made with the front end's lock held: where a turn is waited
 *     for, it is let go by `fs_front.let_go` and taken again by `fs_front.take_again`. So no thread waits for a turn with
 *     that lock, and none waits for that lock with a turn.
 *     The turns (the two locks of a side) are the core's own. Functions that need one ask for a `struct fs_sender *` or a
 *     `struct fs_receiver *`, which a turn gives (connection/turns.h). They are for the core alone.
 *
 * One thread for many connections
 *
 *     An event set says which of them have something. Its `epoll` is a descriptor that the thread waits on beside others: of a
 *     connection that is on the ring in both directions nothing else has to be asked.
 *
 *     set = fs_new_set(&failed);
 *     fs_take_seat(c, set)                        before fs_attach; and once that is done:
 *     fs_put_member(set, fs_seat_of(c), whose); fs_seat(set, c);
 *     fs_drive_by_loop(c)                         if the descriptor's number is nobody else's
 *
 *     Going to sleep, and awake again. What a look finds is served first, and then it begins anew:
 *
 *     for each c: found |= fs_arm_for_loop(c, receives, sends);
 *     if (!found && !fs_fall_asleep(set)) poll(set->epoll, ...);
 *     fs_rise(set); fs_clear_set(set); fs_tend(set);
 *     while ((count = fs_take_hints(set, places, FS_HINTS)) > 0)   for each place: fs_member_at(set, place), which may have
 *                                                 nothing (NULL: it has left), and fs_disarm_receiver(&c->vi, FS_SET_ASLEEP)
 *
 *     fs_leave_seat(c, set) before the connection is let go, and fs_end_set(set). tests/native/loop.h is such a loop whole.
 *     The program's own epoll, poll and select are ready/ready.h's.
 *
 * What a call returns
 *
 *     fs_try_*: bytes; 0 at the end of the stream, from a receive; -EAGAIN if there is nothing to be had now; another
 *     negative errno as TCP would give it (-ECONNRESET, -EPIPE, -ETIMEDOUT, ...). What is sent without MSG_NOSIGNAL on
 *     a broken connection raises SIGPIPE, as send(2) does.
 *     FS_VIOLATED: the ring is broken. c->vi.violation names what the peer did, or what was lost at this side. It cannot be mended.
 *     The front end calls fs_note_broken, fs_reset_connection(fs_fd(c)) and fs_wake_own, and tells its program -ECONNRESET.
 *     Others: 0 or -errno, or what their contracts say. errno itself is not kept.
 *
 * How a connection gets its region
 *
 *     Two ends find each other as docs/protocol.md says under "Meeting" (meeting/search.h). Whoever does it in another
 *     way (a parent for its two children) needs this: memory of fs_region_size(window, chunk) bytes that both map (a
 *     sealed memfd), zeroed and formatted by one of them (fs_region_format). One end attaches as side 0 and the other one as
 *     side 1. The mapping stays the front end's, which keeps it until the connection is released. Nothing that the peer can
 *     write is trusted.
 *
 * What else a front end owes
 *
 *     fs_expose(c) before anybody else gets the descriptor's number to poll it. A loop that drives the connection and
 *     keeps its number to itself says fs_drive_by_loop instead (drive.h).
 *     fs_plug_if_full(c) where a send that does not wait finds the ring full.
 *     fs_leave_ring(c, ..) before anybody else reads or writes the descriptor, or inherits it by an exec.
 *     In a forked child: fs_own_pid, fs_forget_blocks_after_fork, fs_forget_news, and fs_inherit for each connection. A
 *     child that shall not hold the connection says so as every holder does: fs_let_go_of.
 *     Requests of the peer (channel/asking.h): fs_answer_ask, or with a parcel fs_put_back.
 */
#ifndef FASTSOCK_FASTSOCK_H
#define FASTSOCK_FASTSOCK_H

#include "base/atomics.h"              /* loads and stores of the words that it shows */
#include "base/front.h"                /* what the core asks of its front end */
#include "base/share.h"                /* the share of descriptor numbers, eventfds, fs_inode */
#include "base/system.h"               /* the table of system calls */
#include "channel/asking.h"            /* requests of the peer, and to it */
#include "channel/identity.h"          /* this process as others name it, and whom it believes */
#include "channel/meetings.h"          /* where seekers come */
#include "channel/requests.h"          /* requests that came */
#include "channel/seen.h"              /* connections as they are seen from outside */
#include "channel/sets.h"              /* fs_seat, fs_tend */
#include "channel/thread.h"            /* the connection thread */
#include "connection/blocking.h"       /* the kernel's own blocking calls */
#include "connection/bridge.h"         /* the way back to the kernel without help of the peer */
#include "connection/connection.h"     /* struct fs_connection, struct fs_call */
#include "connection/drive.h"          /* an event loop's transport drives the connection */
#include "connection/end.h"            /* opening, shutdown, ending, forks */
#include "connection/leave.h"          /* the way back to the kernel, with its help */
#include "connection/leavers_peer.h"   /* fs_put_back */
#include "connection/move.h"           /* fs_attach, fs_expose, fs_point_to */
#include "connection/partial.h"        /* how long a call waits, and how one ends that has done a part */
#include "connection/ready.h"          /* fs_has_bytes, fs_has_room */
#include "connection/receive.h"        /* fs_try_receive */
#include "connection/ringing.h"        /* fs_wake_own, fs_plug_if_full */
#include "connection/seat.h"           /* fs_take_seat, fs_leave_seat */
#include "connection/send.h"           /* fs_try_send, fs_try_send_urgent, fs_answer_ask */
#include "connection/state.h"          /* how a connection stands and lives: fs_begin, fs_end_call, fs_note_* */
#include "connection/turns.h"          /* fs_await_both */
#include "connection/wait.h"           /* fs_spin, fs_sleep */
#include "meeting/course.h"            /* how far the search of a connection is */
#include "meeting/endpoint.h"          /* how an endpoint ends and leaves */
#include "meeting/kits.h"              /* regions, made ahead */
#include "meeting/policy.h"            /* whether a connection may look for its peer, and by which name */
#include "meeting/search.h"            /* how two ends find each other, and the regions of this process */
#include "meeting/sessions.h"          /* what sessions of a service are like */
#include "ready/ready.h"               /* epoll, poll and select over ring and kernel */
#include "registry/forks.h"            /* a child is counted in by the fork itself */
#include "registry/holders.h"          /* which processes have a connection open; fs_pid_space */
#include "registry/memory.h"           /* memory shared with forked children */
#include "registry/roll.h"             /* what this process tells to who looks at it from outside */
#include "ring/doorbell.h"             /* fs_disarm_receiver */
#include "ring/ring.h"                 /* struct fs_counters, fs_add_counters; fs_region_format */
#include "transport/tcp.h"             /* what is asked of the kernel connection */
#include "waiter/news.h"               /* what sleepers hear of numbers */
#include "waiter/polling.h"            /* fs_poll_ns: how long a wait may poll */
#include "waiter/set.h"                /* event sets */
#include "wire/layout.h"               /* the region */
#include "wire/reasons.h"              /* why a connection stays on kernel TCP */

#endif
