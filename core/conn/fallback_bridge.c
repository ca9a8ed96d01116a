/* The bridge: the fallback when the peer cannot send the unread bytes again, because it has closed, shut down, died or stopped, or its
 * kernel has no room. A forked process becomes the reader and writer of the connection. It copies between the connection and a TCP
 * connection within this process, whose other end replaces the descriptor.
 *
 * The process has nothing but the connection: no code of the front end runs in it, all other descriptors are closed, no signal of the
 * terminal reaches it. It is a holder of the connection like any forked child, and uses fs_try_recv and fs_try_send as the program did.
 * It ends with the connection.
 *
 * Responsible for: copying both ways to the end. Never: decides that there is a bridge, or collects the unread bytes of
 * this side (fallback.c); allocates memory in the new process. */
#include "conn/fallback_bridge.h"

#include <sys/prctl.h>
#include <sys/wait.h>

#include "conn/peer_status.h"
#include "conn/recovery.h"
#include "conn/receive.h"
#include "conn/event_slot.h"
#include "conn/side_lock.h"
#include "conn/state.h"
#include "conn/wake.h"
#include "process/holder_count.h"

enum {
    BUFFER = 65536,
    /* milliseconds between checks: */
    HELD_INTERVAL = 20,   /* of a held direction, or for bytes that no poll reports (shut_but_alive) */
    QUIET_INTERVAL = 500, /* of a ring in which nothing has come for long, or with other holders */
};

/* ---- a process by itself, and a TCP connection within this one --------------------------------------------- */

/* Forks a process that its parent need not wait for: a grandchild, without a SIGCHLD. Returns 0 in it, and its process id or -errno in
 * the parent, which learns it by memory that both share: no call for it can fail and leave a process unnoticed that shares the connection.
 * No handlers of pthread_atfork run: they are the front end's. */
static int64_t fork_detached(struct fs_shared_side *own) {
    fs_store_relaxed(&own->fallback.bridge, (uint32_t)-ECHILD); /* (the end of the child orders these) */
    pid_t child = fs_system.clone(0); /* no exit signal: nobody's wait() finds it */
    if (child < 0) return -errno;
    if (child == 0) {
        fs_system.setsid();
        pid_t grandchild = fs_system.clone(0);
        if (grandchild == 0) return 0;
        fs_store_relaxed(&own->fallback.bridge, (uint32_t)(grandchild > 0 ? grandchild : -errno));
        _exit(0);
    }
    while (fs_system.waitpid(child, NULL, __WCLONE) < 0 && errno == EINTR) {}
    return (int32_t)fs_load_relaxed(&own->fallback.bridge);
}

/* Closes every descriptor but these four (-1: none). */
static void close_all_but(int a, int b, int c, int d) {
    int kept[4] = {a, b, c, d};
    for (int i = 0; i < 4; i++)
        for (int j = i + 1; j < 4; j++)
            if (kept[j] < kept[i]) {
                int swap = kept[i];
                kept[i] = kept[j];
                kept[j] = swap;
            }
    unsigned int from = 0;
    for (int i = 0; i <= 4; i++) {
        unsigned int until = i < 4 ? (unsigned int)kept[i] : ~0u;
        if (i < 4 && kept[i] < 0) continue;
        if (from < until) {
            unsigned int last = until == ~0u ? until : until - 1;
            if (fs_system.close_range(from, last, 0) < 0) {
                struct rlimit limit = {0, 0};
                fs_system.getrlimit(RLIMIT_NOFILE, &limit);
                for (unsigned int fd = from; fd <= last && fd < limit.rlim_cur; fd++) fs_system.close((int)fd);
            }
        }
        from = until + 1;
    }
}

/* The new process takes no signal that can be blocked, and has a name of its own. */
static void prepare_process(void) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    fs_system.prctl(PR_SET_NAME, "fastsock-bridge");
    if (fs_system.chdir("/") < 0) {} /* keeps no mount busy */
}

/* ---- copying ----------------------------------------------------------------------------------------------- */

/* One direction of the bridge. */
struct lane {
    char *bytes;
    int64_t length, done;
    int ended;
    int urgent; /* the bytes are one urgent byte */
};

/* Takes the result of a receive for the lane. At the end of the stream it ends the writer's too, at `to`. Returns false if there was an
 * error, or nothing. */
static int fill(struct lane *lane, int64_t part, int to) {
    if (part < 0) return 0;
    lane->length = part;
    lane->done = 0;
    lane->ended = part == 0;
    if (lane->ended) fs_system.shutdown(to, SHUT_WR);
    return 1;
}

/* Receives from the kernel's queue, an urgent byte by itself (`*urgent`). Returns as recv, or -errno. Needs SO_OOBINLINE: without it the
 * kernel drops an unread urgent byte for the next one. */
static int64_t recv_to_mark(int fd, char *into, int *urgent) {
    int waiting = 0, at_mark = 0;
    char byte;
    for (;;) {
        /* Count first, then check the mark: the kernel knows if a counted byte is urgent. (recv stops before the mark, but reads on from
         * it.) */
        fs_system.ioctl(fd, FIONREAD, &waiting);
        fs_system.ioctl(fd, SIOCATMARK, &at_mark);
        if (waiting > 0) break;
        ssize_t got = fs_system.recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        if (got <= 0) return got ? -errno : 0;
    }
    ssize_t got = fs_system.recv(fd, into, at_mark ? 1 : (size_t)FS_MIN(waiting, (int)BUFFER), MSG_DONTWAIT);
    *urgent = at_mark && got == 1;
    return got >= 0 ? got : -errno;
}

/* The peer was killed or stopped while it sent the unread data again. The kernel's queue holds a part of it; the peer's word or the end
 * of its stream shows how much. Returns bytes, -EAGAIN, or 0 when the amount is known. */
static int64_t next_of_unknown(struct fs_connection *c, struct fs_unread_data *unread_data, char *into) {
    uint64_t rest = unread_data->size - unread_data->crossed;
    int64_t got = fs_peek_kernel(c, into, rest > BUFFER ? BUFFER : rest, MSG_PEEK);
    /* SYNC: returned - pairs with fs_resend_unread. After the peek: the peer stores this before it sends bytes after the unread data. */
    uint32_t answer = fs_load_sc(&c->ring.rx->returned);
    if (answer) {
        unread_data->returned = (uint64_t)(answer - 1) - unread_data->crossed;
        if (answer - 1 < unread_data->crossed || answer - 1 > unread_data->size) return FS_VIOLATED;
        unread_data->crossed = answer - 1;
    } else if (got > 0) {
        got = fs_system.recv(fs_fd(c), into, (size_t)got, MSG_DONTWAIT);
        if (got > 0) unread_data->crossed += (uint64_t)got;
        return got >= 0 ? got : -errno;
    } else if (fs_is_transient((int)-got)) {
        return -EAGAIN;
    } else if (got) {
        fs_note_error(c, (uint32_t)-got); /* already reported, and for the reader to get after the unread data */
    }
    unread_data->unknown = 0;
    fs_system.lseek(unread_data->fd, (off_t)unread_data->crossed, SEEK_SET);
    return 0;
}

/* Returns the next bytes of a peer that is back in the kernel, as recv_to_mark; 0 if fs_try_recv must be used. Also beside another
 * holder, which has the option too, and may read urgent bytes apart. */
static int64_t next_in_kernel(struct fs_connection *c, char *into, int *urgent) {
    struct fs_receiver *receiver = fs_lock_recv(c);
    int plain = (fs_moved(c) & (FS_RECEIVING_BACK | FS_COLLECTING)) == FS_RECEIVING_BACK && !fs_is_shared(c) &&
                 !fs_load_relaxed(&c->is.pending_error);
    int64_t got = 0;
    if (plain) {
        fs_set_option(fs_fd(c), SOL_SOCKET, SO_OOBINLINE, 1);
        got = recv_to_mark(fs_fd(c), into, urgent);
    }
    fs_unlock_recv(receiver);
    return got;
}

/* Returns the next bytes for the reader: those that the peer's kernel took again, then the rest of the unread data, then whatever comes.
 * As fs_try_recv, but an urgent byte comes by itself (`*urgent`). */
static int64_t next_inward(struct fs_connection *c, struct fs_unread_data *unread_data, char *into, int *urgent) {
    int64_t got;
    *urgent = 0;
    if (unread_data->unknown) {
        got = next_of_unknown(c, unread_data, into);
        if (got) return got;
    }
    if (unread_data->returned) {
        got = fs_peek_kernel(c, into, unread_data->returned > BUFFER ? BUFFER : unread_data->returned, 0);
        if (got > 0) unread_data->returned -= (uint64_t)got;
        return got ? got : -ECONNRESET;
    }
    if (unread_data->fd >= 0) {
        got = fs_system.read(unread_data->fd, into, BUFFER);
        if (got) return got > 0 ? got : -errno;
        fs_system.close(unread_data->fd);
        unread_data->fd = -1;
    }
    got = next_in_kernel(c, into, urgent);
    if (got) return got;
    got = fs_try_recv(c, into, BUFFER, 0, 1);
    if (got == 0 && !fs_load_relaxed(&fs_own(c)->receiver.fin_taken)) {
        if (fs_liveness(c) == FS_ALIVE) return -EAGAIN; /* as fs_peek_kernel */
        got = fs_try_recv(c, into, BUFFER, 0, 1);
    }
    return got;
}

/* Returns true if this side has shut receiving (SHUT_RD) and the peer's stream goes on: then no poll reports that more came. */
static int shut_but_alive(struct fs_connection *c) {
    return fs_poll_events_now(fs_fd(c), POLLRDHUP) & POLLRDHUP && fs_liveness(c) == FS_ALIVE;
}

/* The reader is gone with bytes unread: the peer gets a RST, as it would from the reader's kernel. So does another holder of the
 * connection: the bytes that this process had taken are lost, and nobody may take the rest for the whole stream. (FS_COLLECTING without
 * a holder in a fallback says so: recv_beside_collector.) */
static void dissolve(struct fs_connection *c) {
    struct fs_receiver *receiver = fs_lock_recv(c);
    fs_change_receiving(c, receiver, FS_EV_COLLECT);
    fs_unlock_recv(receiver);
    fs_publish_gone(c);
    if (fs_is_shared(c)) {
        c->stream->reset(fs_fd(c));
        fs_wake_local(c);
    } else {
        fs_set_linger_zero(fs_fd(c));
    }
    fs_wake_peer_all(c);
}

/* Copies both ways until both have ended. `buffers`: twice BUFFER bytes. */
static void copy_both_ways(struct fs_connection *c, struct fs_unread_data *unread_data, int far, char *buffers) {
    struct lane inward = {.bytes = buffers}, outward = {.bytes = buffers + BUFFER};
    struct pollfd fds[2];
    int64_t part;
    int ring_interval = HELD_INTERVAL;
    while (!(inward.ended && outward.ended && outward.done == outward.length)) {
        int progress = 0;
        if (inward.done == inward.length && !inward.ended) {
            part = next_inward(c, unread_data, inward.bytes, &inward.urgent);
            progress = fill(&inward, part, far);
            if (!progress && !fs_is_transient((int)-part)) {
                fs_set_linger_zero(far);
                if (part == FS_VIOLATED) c->stream->reset(fs_fd(c));
                return;
            }
        }
        if (inward.done < inward.length) {
            part = fs_system.send(far, inward.bytes + inward.done, (size_t)(inward.length - inward.done),
                        MSG_DONTWAIT | MSG_NOSIGNAL | (inward.urgent ? MSG_OOB : 0));
            if (part > 0) {
                inward.done += part;
                progress = 1;
            } else if (part < 0 && !fs_is_transient(errno)) {
                dissolve(c);
                return;
            }
        }
        if (outward.done == outward.length && !outward.ended) {
            part = recv_to_mark(far, outward.bytes, &outward.urgent);
            if (fill(&outward, part, fs_fd(c))) {
                progress = 1;
            } else if (!fs_is_transient((int)-part)) {
                dissolve(c);
                return;
            }
        }
        if (outward.done < outward.length) {
            part = fs_try_send(c, outward.bytes + outward.done, (size_t)(outward.length - outward.done),
                               MSG_NOSIGNAL | (outward.urgent ? MSG_OOB : 0));
            if (part > 0) {
                outward.done += part;
                progress = 1;
            } else if (part < 0 && !fs_is_transient((int)-part)) {
                /* The peer is gone. The bytes that it sent are still worth reading; the writer will get a reset. */
                outward.done = outward.length;
                outward.ended = progress = 1;
                if (inward.ended) fs_set_linger_zero(far);
            }
        }
        if (progress) {
            ring_interval = HELD_INTERVAL;
            continue;
        }
        int wants = inward.done == inward.length && !inward.ended && !fs_is_collecting(c);
        int polls = wants && shut_but_alive(c);
        if (polls && (outward.ended || !c->stream->resets) && !unread_data->returned && !unread_data->unknown) {
            /* Shut in both directions: the kernel answers later bytes with RST, as it would the reader's. Or it refuses them. */
            inward.ended = 1;
            fs_system.shutdown(far, SHUT_WR);
            continue;
        }
        int of_ring = fs_is_attached(c) && wants && !(fs_moved(c) & FS_RECEIVING_BACK);
        fds[0].fd = wants || outward.done < outward.length ? fs_fd(c) : -1;
        fds[0].events = 0;
        if (wants && !polls) {
            int ring_only = of_ring && fs_receives_on_ring(c) && !unread_data->returned && !unread_data->unknown;
            fds[0].events |= ring_only ? POLLRDHUP : POLLIN | POLLRDHUP;
        }
        int patience = polls || fs_is_collecting(c) ? HELD_INTERVAL : fs_is_shared(c) ? QUIET_INTERVAL : -1;
        if (outward.done < outward.length) {
            if (fs_moved(c) & FS_SENDING_HELD) patience = HELD_INTERVAL;
            else fds[0].events |= POLLOUT;
        }
        /* Also with nothing to wait for there: a reader that has closed answers bytes sent to it with a RST. */
        fds[1].fd = !inward.ended || !outward.ended ? far : -1;
        fds[1].events = (inward.done < inward.length ? POLLOUT : 0) |
                        (outward.done == outward.length && !outward.ended ? POLLIN : 0);
        if (of_ring) {
            /* With the receive lock: another holder may read, and an ACK that is older than its own would step back. */
            struct fs_receiver *receiver = fs_lock_recv(c);
            fs_answer_credit_wait(c, receiver);
            int ready = fs_ring_readable(&c->ring) && fs_receives_on_ring(c);
            fs_unlock_recv(receiver);
            if (ready) continue;
            if (!fs_receives_on_ring(c) && fs_load_sc(&c->ring.rx->switch_at))
                patience = HELD_INTERVAL; /* the kernel's part is still on its way */
        }
        if (of_ring || unread_data->unknown) {
            /* Nothing wakes us for the ring. A live peer has gone back to the kernel; a stopped one may still post, and goes back then;
             * or it stores how much of the unread data it has sent again. So this process polls, less and less often. */
            if (patience < 0 || patience > ring_interval) patience = ring_interval;
            ring_interval = FS_MIN(2 * ring_interval, (int)QUIET_INTERVAL);
        }
        fds[1].revents = 0;
        fs_system.poll(fds, 2, patience);
        if (outward.ended && !inward.ended && inward.done == inward.length && fds[1].revents & (POLLERR | POLLHUP)) {
            dissolve(c);
            return;
        }
    }
}

/* ---- starting and swapping ---------------------------------------------------------------------------------- */

/* Starts the process. Returns its process id, or -errno. The process allocates nothing: another thread may have held the allocator's
 * lock at the fork. */
static int64_t fork_bridge(struct fs_connection *c, struct fs_unread_data *unread_data, int far, char *buffers) {
    fs_count_child(fs_own(c), 1); /* before it exists: see process/atfork.h */
    int64_t pid = fork_detached(fs_own(c));
    if (pid < 0) fs_count_child(fs_own(c), -1);
    if (pid != 0) return pid;
    fs_become_process();
    prepare_process();
    close_all_but(fs_fd(c), fs_peer_set_eventfd(c), far, unread_data->fd);
    fs_register_child(fs_own(c));
    if (unread_data->fd >= 0) fs_system.lseek(unread_data->fd, (off_t)unread_data->returned, SEEK_SET);
    copy_both_ways(c, unread_data, far, buffers);
    fs_unregister_holder(fs_own(c));
    _exit(0);
}

int64_t fs_start_bridge(struct fs_connection *c, struct fs_fallback_lock *fallback, struct fs_unread_data *unread_data, int *near) {
    int ends[2];
    *near = -1;
    char *buffers = fs_system.malloc(2 * BUFFER);
    int64_t pid = buffers ? c->stream->make_pair(fs_fd(c), ends) : -ENOMEM;
    if (pid == 0) {
        /* Until the fallback is done nobody else receives, and the bridge waits: a thread that received beside it would get bytes from
         * after those that the bridge has taken. */
        struct fs_receiver *receiver = fs_lock_recv(c);
        fs_change_receiving(c, receiver, FS_EV_COLLECT);
        fs_unlock_recv(receiver);
        void *host_state = fs_host_unlock();
        pid = fork_bridge(c, unread_data, ends[1], buffers);
        fs_host_lock(host_state);
        if (pid > 0) *near = ends[0];
        else fs_system.close(ends[0]);
        fs_system.close(ends[1]);
    }
    fs_system.free(buffers);
    return pid;
}

int fs_swap_to_bridge(struct fs_connection *c, int near, struct fs_shared_side *side, const int *numbers, int count) {
    /* With both locks, so that no call is under way on the connection; and with the host lock, for which no holder of a lock may wait. */
    struct fs_side_locks locks;
    struct fs_shared_side *old = fs_own(c);
    if (!fs_trylock_side(c, &locks)) return 0;
    if (!fs_try_watch_remove(&c->watch)) {
        fs_unlock_side(locks);
        return 0;
    }
    /* Only this process and the bridge hold it: its signals come from `near` from now on. */
    if (fs_load_relaxed(&old->holders) == 2) fs_system.fcntl(fs_fd(c), F_SETOWN, 0);
    for (int i = 0; i < count; i++) {
        int flags = fs_system.fcntl(numbers[i], F_GETFD, 0), replaced;
        while ((replaced = fs_system.dup3(near, numbers[i], flags & FD_CLOEXEC ? O_CLOEXEC : 0)) < 0 &&
               (errno == EINTR || errno == EBUSY)) {}
        if (replaced < 0) { /* for example a number beyond the limit by now (setrlimit): it is still the bridge's socket */
            int failed = -errno;
            c->stream->reset(numbers[i]);
            fs_break_connection(c, "a descriptor of the connection could not be replaced");
            fs_unlock_side(locks);
            return failed;
        }
    }
    /* The bridge ends its stream after the unread bytes, where the socket would answer them with RST, shut in both directions, or would
     * refuse them because it is shut for receiving. */
    if (fs_load_relaxed(&c->is.shut_receiving) && !fs_load_relaxed(&c->is.shut_sending) && c->stream->resets)
        fs_system.shutdown(near, SHUT_RD);
    if (fs_load_relaxed(&c->is.shut_sending)) fs_system.shutdown(near, SHUT_WR);
    /* The region and the old state stay mapped until the connection ends: a thread may be reading them without a lock. */
    fs_note_bridged(c);
    fs_store_release(&c->own, side); /* SYNC: own side - pairs with fs_own, of a caller without a lock of the old side. */
    fs_unlock_side(locks);
    fs_unregister_holder(old); /* a forked child is not removed a second time: it would be counted twice */
    fs_wake_local_threads(c);
    fs_fd_change_notify();
    c->inode = fs_inode(fs_fd(c));
    return 1;
}
