/* Each system call and each allocation of the core fails once, in a connection's life: `failures [seconds [round]]` (failing.h).
 *
 * Two ends of a connection open, carry bytes on the kernel, move, fill, carry urgent bytes, leave, half-close and
 * end. What has to hold behind the failure: nothing crashes or hangs; each byte arrives in its place, or an end is told of an
 * error; nobody sees an end of the stream too early of which nobody was told. */
#include "failing.h"

enum variant { GOES_ON, LEAVES, BRIDGES, TALKS, STOPPED, KILLED, ON_UNIX, VARIANTS };

enum { MOST_BLOCKS = 4096, SLAB = 65536, BLOCK = 64 /* as in process/fork_shared_slab.c */ };

static struct stream {
    uint64_t sent, received;
} streams[2]; /* by the end that sends */
static int failed[2];
static char buffer[LARGEST];

static void describe(void) {
    fprintf(stderr, "; sent %" PRIu64 " %" PRIu64 ", received %" PRIu64 " %" PRIu64 ", failed %d %d\n", streams[0].sent,
            streams[1].sent, streams[0].received, streams[1].received, failed[0], failed[1]);
    for (int s = 0; s < 2; s++)
        if (fs_own(&ends[s].c)) show_end(&ends[s]);
}

/* ---- the program ----------------------------------------------------------------------------------------------- */

static int alive(int s) { return fs_load_relaxed(&ends[s].open) && !failed[s]; }

/* A call has told the program of an error. One that passes is no end; behind any other one the program closes. */
static void tell(int s, int64_t error) {
    const char *name = error == FS_VIOLATED ? ends[s].c.ring.violation : strerror((int)-error);
    if (strict) violate("end %d is told of error %" PRId64 " (%s)", s, error, name);
    shared->told++;
    if (error == -EINTR || error == -ENOMEM || error == -ENOBUFS) return;
    failed[s] = 1;
    if (error == FS_VIOLATED) fs_conn_reset(&ends[s].c);
    close_end(&ends[s], 1);
}

/* One receive call of end `s`. Whether something came. */
static int take(int s, size_t room, int flags) {
    struct stream *from = &streams[!s];
    struct fs_call call;
    if (!alive(s) || !begin_call(&ends[s], &call)) return 0;
    int64_t got = fs_try_recv(&ends[s].c, buffer, room, flags, 1);
    end_call(&ends[s], &call);
    if (got == -EAGAIN) return 0;
    if (got < 0) {
        tell(s, got);
        return 0;
    }
    if (got > 0 && memcmp(buffer, pattern_at(from->received), (size_t)got) != 0) violate("end %d gets wrong bytes", s);
    if (!(flags & MSG_PEEK)) from->received += (uint64_t)got;
    if (from->received > from->sent) violate("end %d gets more than was sent", s);
    if (got == 0 && from->received < from->sent) {
        if (!failed[0] && !failed[1]) violate("the stream ends too early for end %d", s);
        failed[s] = 1;
        close_end(&ends[s], 1);
    }
    return got > 0;
}

static void pause_for(int s, int what) {
    struct fs_call call;
    if (!alive(s) || !begin_call(&ends[s], &call)) return;
    wait_for(&ends[s], what, fs_now() + 20000000, 0);
    end_call(&ends[s], &call);
}

/* Reads what the other end has sent. */
static void drain_stream(int s) {
    double until = seconds_now() + PATIENCE;
    while (alive(s) && streams[!s].received < streams[!s].sent) {
        if (!take(s, 1 + streams[!s].received % 9000, 0)) pause_for(s, FS_RECEIVE);
        if (seconds_now() > until) violate("end %d gets nothing more", s);
    }
}

/* `length` bytes from end `s`; the other one reads when there is no room. `urgent`: the last one is. */
static void send_bytes(int s, uint64_t length, int urgent) {
    double until = seconds_now() + PATIENCE;
    uint64_t end = streams[s].sent + length;
    struct fs_call call;
    while (alive(s) && streams[s].sent < end) {
        const char *data = (const char *)pattern_at(streams[s].sent);
        size_t part = (size_t)(end - streams[s].sent < 40000 ? end - streams[s].sent : 40000);
        if (!begin_call(&ends[s], &call)) return;
        int64_t sent = fs_try_send(&ends[s].c, data, part, MSG_NOSIGNAL | (urgent ? MSG_OOB : 0));
        end_call(&ends[s], &call);
        if (sent > 0) streams[s].sent += (uint64_t)sent;
        else if (sent != -EAGAIN) tell(s, sent);
        else if (!take(!s, 20000, 0)) pause_for(s, FS_SEND);
        if (seconds_now() > until) violate("end %d can send nothing more", s);
    }
}

/* ---- what happens ------------------------------------------------------------------------------------------------ */

static void attach(int s) {
    static const struct fs_flow_options flow = {4, 8192, 1};
    if (!alive(s)) return;
    int result = attach_end(&ends[s], &flow);
    if (result && strict) violate("attaching: %s", strerror(-result));
}

/* Full of bytes; and there is room again once they are read. */
static void fill(int s) {
    struct fs_call call;
    int full = 0;
    for (int tries = 0; alive(s) && alive(!s) && !full && tries < 10000; tries++) {
        if (!begin_call(&ends[s], &call)) return;
        int64_t sent = fs_try_send(&ends[s].c, (const char *)pattern_at(streams[s].sent), 3000, MSG_NOSIGNAL);
        full = sent == -EAGAIN;
        end_call(&ends[s], &call);
        if (sent > 0) streams[s].sent += (uint64_t)sent;
        else if (!full) tell(s, sent);
    }
    drain_stream(!s);
    send_bytes(s, 3000, 0);
}

static void half_close(int s) {
    struct fs_call call;
    if (!alive(s) || !begin_call(&ends[s], &call)) return;
    while (fs_conn_shutdown(&ends[s].c, 0, 1) == -EINTR) {}
    end_call(&ends[s], &call);
    syscall(SYS_shutdown, ends[s].number, SHUT_WR);
}

/* To the end of the other one's stream. */
static void read_to_end(int s) {
    double until = seconds_now() + PATIENCE;
    struct fs_call call;
    drain_stream(s);
    while (alive(s)) {
        if (!begin_call(&ends[s], &call)) return;
        int64_t got = fs_try_recv(&ends[s].c, buffer, sizeof buffer, 0, 1);
        end_call(&ends[s], &call);
        if (got == 0) return;
        if (got > 0) violate("end %d gets %" PRId64 " bytes that nobody sent", s, got);
        if (got != -EAGAIN) tell(s, got);
        else pause_for(s, FS_RECEIVE);
        if (seconds_now() > until) violate("the stream to end %d has no end", s);
    }
}

static void leave_ring(int s, int may_bridge) {
    if (!alive(s)) return;
    if (leave_end(&ends[s], may_bridge) != FS_FALLBACK_FAILED) return;
    if (strict) violate("end %d had to give up the connection", s);
    failed[s] = 1;
    close_end(&ends[s], 1);
}

static void on_the_ring(void) {
    step("both ways");
    for (int i = 0; i < 12; i++) {
        send_bytes(i % 2, (uint64_t)(1 + i * i * 37 % 3000), 0);
        if (i % 3 == 2) drain_stream(1 - i % 2);
    }
    drain_stream(0);
    drain_stream(1);
    if (strict && !(fs_sends_on_ring(&ends[0].c) && fs_sends_on_ring(&ends[1].c))) violate("it has not moved");
    step("a large send");
    send_bytes(0, 200000, 0);
    drain_stream(1);
    step("a look");
    for (int i = 0; i < 5; i++) send_bytes(0, 100, 0);
    take(1, 50, MSG_PEEK);
    drain_stream(1);
    step("full");
    fill(0);
}

static void send_urgent(int s) {
    if (!alive(s)) return;
    if (send(ends[s].number, pattern_at(streams[s].sent), 30, MSG_OOB | MSG_NOSIGNAL) == 30) streams[s].sent += 30;
    else tell(s, -errno);
}

/* The peer's stream has ended with bytes unread here, and it reads on. */
static void talk_across(void) {
    drain_stream(1);
    step("the peer ends its stream");
    half_close(1);
    step("leaving by a bridge");
    leave_ring(0, 1);
    usleep(50000); /* the bridge has nothing to do */
    step("across the bridge");
    send_bytes(0, 3000, 0);
    send_urgent(0);
    send_bytes(0, 500, 0);
    drain_stream(1);
    half_close(0);
    read_to_end(1);
}

/* What the thread sends again stops half-way until the side that falls back has given it up, and a bridge reads the half. `ends_there`: the
 * kernel's stream ends there, as that of a process that is killed, and the thread stays until the bridge has found out. */
static fs_word32 released, ends_there;

static ssize_t send_half(int fd, const void *data, size_t length, int flags) {
    if (is_program || getpid() != home || length < 1000) return may_fail_send(fd, data, length, flags);
    ssize_t sent = real.send(fd, data, length / 2, flags);
    if (fs_load_sc(&ends_there)) shutdown(fd, SHUT_WR);
    while (!fs_load_sc(&released)) usleep(1000);
    usleep(50000);
    return sent;
}

static void leave_beside_a_stopped_peer(int is_killed) {
    step(is_killed ? "the peer is killed as it sends again" : "the peer stops as it sends again");
    fs_store_sc(&released, 0);
    fs_store_sc(&ends_there, (uint32_t)is_killed);
    fs_system.send = send_half;
    leave_ring(0, 1);
    if (is_killed) drain_stream(0);
    fs_store_sc(&released, 1);
    drain_stream(0);
    fs_system.send = may_fail_send;
}

static void run_scenario(int variant) {
    int fds[2], one = 1;
    size_t size;
    armed = 0;
    memset(streams, 0, sizeof streams);
    failed[0] = failed[1] = 0;
    if (variant == ON_UNIX) check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0, "no pair");
    else connect_pair(fds);
    void *memory = make_region(8, 4096, &size);
    for (int s = 0; s < 2; s++) {
        setsockopt(fds[s], SOL_SOCKET, SO_OOBINLINE, &one, sizeof one);
        ends[s] = (struct end){.lock = &lock, .memory = memory, .size = size, .side = s};
    }
    armed = 1;
    step("opening");
    for (int s = 0; s < 2; s++) {
        int result = open_end(&ends[s], fds[s]);
        if (result && strict) violate("opening: %s", strerror(-result));
        failed[s] = result != 0;
        if (variant == ON_UNIX) ends[s].c.stream = &fs_unix_stream;
    }
    step("on the kernel");
    send_bytes(0, 3000, 0);
    take(1, 1000, 0);
    step("attaching");
    pause_for(1, FS_RECEIVE);
    pause_for(0, FS_RECEIVE); /* for nothing: so that there are news (fd_change.h) */
    attach(1);
    send_bytes(1, 10, 0);
    attach(0);
    on_the_ring();
    step("unread on both sides");
    send_bytes(0, 5000, 0);
    send_bytes(1, 6000, 0);
    take(1, 100, 0);
    if (variant == LEAVES) {
        step("leaving");
        leave_ring(1, 0);
        step("gone back");
        for (int i = 0; i < 4; i++) send_bytes(i % 2, 2000, 0);
    }
    if (variant == BRIDGES || variant == ON_UNIX) {
        drain_stream(1);
        step("the peer closes");
        half_close(1);
        half_close(0);
        read_to_end(1);
        if (alive(1)) close_end(&ends[1], 1);
        step("leaving by a bridge");
        leave_ring(0, 1);
    }
    if (variant == TALKS) talk_across();
    if (variant == STOPPED || variant == KILLED) leave_beside_a_stopped_peer(variant == KILLED);
    if (variant == GOES_ON) {
        step("urgent");
        send_bytes(0, 30, 1);
    }
    step("the end");
    drain_stream(0);
    drain_stream(1);
    if (variant == KILLED && alive(1)) close_end(&ends[1], 1);
    if (variant != BRIDGES && variant != ON_UNIX && variant != TALKS && variant != KILLED) {
        half_close(0);
        read_to_end(1);
        send_bytes(1, 500, 0);
        if (alive(1)) close_end(&ends[1], 1);
    }
    read_to_end(0);
    step("closing");
    for (int s = 0; s < 2; s++) close_end(&ends[s], 1);
    munmap(memory, size);
    if (!failed[0] && !failed[1] && (streams[0].received != streams[0].sent || streams[1].received != streams[1].sent))
        violate("bytes are missing");
    armed = 0;
}

/* ---- what is left ------------------------------------------------------------------------------------------------ */

/* Blocks of one size that are free in the slabs that there are. */
static int count_blocks(size_t size) {
    static void *taken[MOST_BLOCKS];
    int count = 0;
    no_slabs = 1;
    while (count < MOST_BLOCKS && (taken[count] = fs_slab_alloc(size))) count++;
    for (int i = 0; i < count; i++) fs_slab_free(taken[i], size);
    no_slabs = 0;
    return count;
}

/* (The process of a bridge holds the side's memory until it ends, by itself: all of the first slabs comes back.) */
static void take_stock(struct counts *counts, const struct counts *wanted) {
    int of_side = SLAB / (int)((sizeof(struct fs_shared_side) + BLOCK - 1) / BLOCK * BLOCK), of_ends = SLAB / BLOCK;
    double until = seconds_now() + 3;
    (void)wanted;
    do {
        counts->side_blocks = count_blocks(sizeof(struct fs_shared_side));
        counts->ends_blocks = count_blocks(fs_ends_size(8));
    } while ((counts->side_blocks < of_side || counts->ends_blocks < of_ends) && seconds_now() < until &&
             usleep(1000) == 0);
    counts->descriptors = open_descriptors();
    counts->allocations = (int)fs_load_sc(&allocations);
    counts->slabs = (int)fs_load_sc(&slabs);
}

/* News, and the list of what a bridge holds, if needed. */
static int may_keep(int variant) {
#ifdef FS_AT
    return 2;
#endif
    return variant >= BRIDGES ? 2 : 0;
}

static int is_spared(int variant, int where, int call, int error) {
    (void)variant, (void)where, (void)call, (void)error;
    return 0;
}

/* Fails if there is a call in the table that the scenario never makes, and that is not named here. */
static void check_all_are_made(void) {
    static const enum call elsewhere[] = {
        CALL_sendto,                            /* to who looks from outside */
        CALL_kill, CALL_pidfd_open, CALL_stat, CALL_tgkill, /* about forked holders */
        CALL_pthread_atfork, CALL_pipe2,        /* by a front end that forks */
        CALL_sysconf,                           /* when a process begins */
        CALL_madvise, CALL_munmap, CALL_mprotect, CALL_munlock, /* of a region that the core has made */
        CALL_mincore,                           /* beyond the memory cap */
        CALL_chmod, CALL_unlink, CALL_flock, CALL_getdents64, CALL_getrandom, /* in the folder for other network namespaces */
        CALL_fstatfs, CALL_statx,               /* of one that came, and of an eventfd that did */
        CALL_sched_getaffinity, CALL_nanosleep, /* before polling, and instead of it: by chance */
    };
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) is_made[elsewhere[i]] = 1;
    for (int call = 0; call < CALLS; call++) check(is_made[call], "the scenario never calls %s", call_names[call]);
}

int main(int count, char **arguments) {
    static const char *const names[VARIANTS] = {"goes on", "leaves", "leaves by a bridge", "talks across a bridge",
                                                "leaves beside a peer that is stopped as it sends again",
                                                "leaves beside a peer that is killed as it sends again",
                                                "leaves by a bridge, on a unix stream"};
    int status = run_failures(count, arguments, names, VARIANTS);
#ifndef FS_AT
    if (count <= 2) check_all_are_made();
#endif
    return status;
}
