# What Cython sees of the C headers and of the system calls. Documentation stands in the headers themselves.

from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef extern from "doorbell.h" nogil:
    ctypedef struct fs_word32:
        pass
    ctypedef struct fs_word64:
        pass

    uint32_t fs_load_acquire(fs_word32 *)
    uint64_t fs_load_acquire64 "fs_load_acquire"(fs_word64 *)
    uint32_t fs_load_relaxed(fs_word32 *)
    uint64_t fs_load_relaxed64 "fs_load_relaxed"(fs_word64 *)
    uint32_t fs_load_sc(fs_word32 *)
    uint64_t fs_load_sc64 "fs_load_sc"(fs_word64 *)
    void fs_store_release(fs_word32 *, uint32_t)
    void fs_store_release64 "fs_store_release"(fs_word64 *, uint64_t)
    void fs_store_relaxed(fs_word32 *, uint32_t)
    void fs_store_relaxed64 "fs_store_relaxed"(fs_word64 *, uint64_t)
    void fs_count(fs_word64 *, uint64_t)
    void fs_store_sc(fs_word32 *, uint32_t)
    void fs_store_sc64 "fs_store_sc"(fs_word64 *, uint64_t)
    uint32_t fs_or_sc(fs_word32 *, uint32_t)
    uint32_t fs_and_sc(fs_word32 *, uint32_t)
    bint fs_swap_if32(fs_word32 *, uint32_t, uint32_t)
    bint fs_swap_if64(fs_word64 *, uint64_t, uint64_t)
    uint32_t fs_add_sc(fs_word32 *, uint32_t)
    void fs_pause()

    enum: FS_LINE, FS_INLINE, FS_WINDOW_MIN, FS_WINDOW_MAX, FS_CHUNK_MIN, FS_CHUNK_MAX
    enum: FS_DATA, FS_OOB
    enum: FS_ASLEEP, FS_EXPOSED, FS_GONE, FS_SHUT
    enum: FS_WAITS, FS_PLUGGED, FS_HURRY
    enum: FS_UNANSWERED, FS_TAKEN
    enum: FS_SLEEPS_RECEIVING, FS_SLEEPS_SENDING
    enum: FS_SENDING_MOVED, FS_RECEIVING_MOVED, FS_SENDING_BACK, FS_RECEIVING_BACK, FS_SENDING_HELD, FS_OUT, FS_COLLECTING
    enum: FS_CONSUME, FS_PEEK
    enum: FS_VIOLATION, FS_EDGES
    const uint64_t FS_FIN
    const uint64_t FS_RESET
    const uint64_t FS_BACK
    enum: FS_NOT_YET, FS_READY, FS_LEFT, FS_TOO_LATE
    enum: FS_UNSETTLED, FS_GO_ON, FS_RETURNING, FS_REFUSED
    const uint64_t FS_MAGIC
    const uint32_t FS_VERSION

    struct fs_region:
        fs_word32 wakeup
        fs_word32 done[2]
        fs_word64 asks[2]
        unsigned char id[16]

    struct fs_hello:
        uint64_t magic
        uint32_t version
        uint32_t reuse
        uint64_t size
        unsigned char id[16]

    struct fs_half:
        fs_word64 fin
        fs_word64 switch_at
        fs_word32 credit_wait
        fs_word32 rung
        fs_word32 ringing
        fs_word32 limited
        fs_word64 urgent
        fs_word32 processor
        fs_word32 returned
        fs_word32 acked
        fs_word32 doorbell
        fs_word32 heard
        fs_word32 ready
        fs_word32 finack
        fs_word32 limit
        fs_word32 settled
        fs_word32 seen

    struct fs_lock_t "fs_lock":
        fs_word32 word

    struct fs_side:
        fs_word32 holders
        fs_word32 children[4]
        uint32_t pid_space
        fs_lock_t send_lock
        fs_lock_t recv_lock
        fs_lock_t leaving
        fs_word32 moved
        fs_word32 sleeps
        uint32_t posted
        fs_word32 credited
        uint32_t send_limit
        uint64_t limited_from
        fs_word32 ack_seen
        fs_word32 consumed
        fs_word32 taken
        uint32_t oob_waiting
        unsigned char oob_byte
        uint32_t doorbell_debt
        uint64_t kernel_taken
        uint32_t fin_sent
        uint32_t bytes_unsent
        int64_t unsent_since
        unsigned char urgent_byte
        uint32_t sending_step
        fs_word32 fin_taken
        uint64_t *ends

    struct fs_counters:
        fs_word64 bytes_sent
        fs_word64 bytes_received
        fs_word64 messages_sent
        fs_word64 messages_received
        fs_word64 acks_alone
        fs_word64 acks_piggybacked
        fs_word64 sends_combined
        fs_word64 doorbells_rung
        fs_word64 polls_paid
        fs_word64 polls_unpaid
        fs_word64 poll_ns
        fs_word64 poll_unpaid_ns
        fs_word64 sleeps
        fs_word64 system_calls

    struct fs_vi:
        fs_region *region
        size_t size
        fs_side *own
        fs_half *tx
        fs_half *rx
        uint32_t window
        uint32_t chunk
        uint32_t arena
        uint32_t ack_threshold
        uint32_t combine_limit
        uint32_t combine_from
        int oob_inline
        int side
        const char *violation
        fs_counters count

    uint32_t fs_slots(uint32_t window)
    size_t fs_arena_offset(uint32_t slots, uint32_t arena, int half)
    size_t fs_region_size(uint32_t window, uint32_t chunk)
    size_t fs_ends_size(uint32_t window)
    void fs_region_format(void *, uint32_t window, uint32_t chunk, const unsigned char *id)
    void fs_region_recycle(fs_region *, uint32_t window)
    uint32_t fs_in_flight(const fs_side *)
    void fs_add_counters(fs_counters *, fs_counters *, bint)
    void fs_vi_become(fs_vi *, const fs_vi *)
    const char *fs_vi_attach(fs_vi *, void *, size_t, int side)
    int fs_count_urgent(fs_vi *)
    void fs_limit_sends(fs_vi *, uint32_t)
    int64_t fs_post(fs_vi *, const char *, size_t, int type, int combine, int *counted)
    int fs_count_ring(fs_vi *)
    bint fs_all_heard(fs_vi *)
    void fs_post_fin(fs_vi *, uint64_t kind)
    void fs_seal(fs_vi *)
    uint32_t fs_peer_doorbell(fs_vi *)
    int fs_waiting(fs_vi *)
    int fs_left_unread(fs_vi *)
    uint64_t fs_end(fs_vi *)
    void fs_acknowledge(fs_vi *)
    uint32_t fs_peer_credit_wait(fs_vi *)
    int64_t fs_take(fs_vi *, char *, size_t, int how)
    size_t fs_available(fs_vi *, size_t)
    # (What a thread knows of itself is kept in each extension module: who takes a turn in one ends it there.)
    enum: FS_BUSY, FS_TAKEN_OVER, FS_INHERITED
    int fs_try_lock(fs_lock_t *, uint32_t)
    int fs_lock(fs_lock_t *, uint32_t)
    void fs_unlock(fs_lock_t *)
    void fs_disclaim(fs_lock_t *)
    void fs_keep(fs_lock_t *)
    void fs_unkeep(fs_lock_t *)
    void fs_await_turn(fs_lock_t *)
    bint fs_turn_free(fs_lock_t *)
    int fs_readable(fs_vi *)
    int fs_arm_receiver(fs_vi *)
    void fs_disarm_receiver(fs_vi *)
    int fs_wakes_receiver(fs_vi *)
    int fs_writable(fs_vi *)
    int fs_arm_sender(fs_vi *, uint32_t)
    uint32_t fs_answer_sender(fs_vi *, uint32_t)
    uint32_t fs_hush(fs_vi *)
    int fs_begin_ringing(fs_vi *)
    int fs_begin_plug(fs_vi *)
    void fs_end_ringing(fs_vi *)
    int fs_ringing(fs_vi *)


cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <errno.h>
    #include <fcntl.h>
    #include <poll.h>
    #include <sched.h>
    #include <string.h>
    #include <sys/eventfd.h>
    #include <sys/ioctl.h>
    #include <sys/mman.h>
    #include <sys/socket.h>
    #include <sys/stat.h>
    #include <sys/syscall.h>
    #include <linux/sockios.h>
    #include <linux/tcp.h>
    #ifndef TCP_NOTSENT_LOWAT
    #define TCP_NOTSENT_LOWAT 25
    #endif
    #ifndef SIOCOUTQNSD
    #define SIOCOUTQNSD 0x894B
    #endif
    #include <time.h>
    #include <unistd.h>

    static inline int64_t fs_now(void) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
    }
    static inline void fs_nap(void) {
        struct timespec t = {0, 50000};
        nanosleep(&t, NULL);
    }
    /* Sleeps until one of the three has an event, for at most `nanoseconds` (negative: for ever). */
    static inline int fs_poll3(struct pollfd *fds, int64_t nanoseconds) {
        struct timespec t = {nanoseconds / 1000000000, nanoseconds % 1000000000};
        return ppoll(fds, 3, nanoseconds < 0 ? NULL : &t, NULL);
    }
    static inline int fs_events_within(int fd, short events, int milliseconds) {
        struct pollfd p = {fd, events, 0};
        return poll(&p, 1, milliseconds) > 0 ? p.revents : 0;
    }

    static inline int fs_events_now(int fd, short events) {
        return fs_events_within(fd, events, 0);
    }
    """
    struct pollfd:
        int fd
        short events
        short revents

    int64_t fs_now() nogil
    void fs_nap() nogil
    int fs_poll3(pollfd *, int64_t) nogil
    int fs_events_within(int fd, short events, int milliseconds) nogil
    int fs_events_now(int fd, short events) nogil
    int64_t sys_recv "recv"(int, void *, size_t, int) nogil
    int64_t sys_send "send"(int, const void *, size_t, int) nogil
    int64_t sys_read "read"(int, void *, size_t) nogil
    int64_t sys_write "write"(int, const void *, size_t) nogil
    int sys_close "close"(int) nogil
    int sys_fcntl "fcntl"(int, int, ...) nogil
    int sched_getcpu() nogil
    int sched_yield() nogil
    int sys_ioctl "ioctl"(int, unsigned long, ...) nogil
    int sys_getsockopt "getsockopt"(int, int, int, void *, uint32_t *) nogil
    void *mmap(void *, size_t, int, int, int, int64_t) nogil
    int munmap(void *, size_t) nogil
    int madvise(void *, size_t, int) nogil
    enum: POLLIN, POLLOUT, POLLERR, POLLHUP, POLLRDHUP, POLLPRI
    enum: EAGAIN, EINTR, EPIPE, ECONNRESET, EBADF, EINVAL, EISCONN, EINPROGRESS, ENOTCONN, EMSGSIZE, ENOMEM, EMFILE, ENFILE
    enum: MSG_PEEK, MSG_DONTWAIT, MSG_NOSIGNAL, MSG_EOR, MSG_TRUNC, MSG_WAITALL, MSG_OOB, MSG_ERRQUEUE
    enum: SOL_SOCKET, SO_LINGER, SO_ERROR, SO_PEERCRED, SO_SNDBUF, SO_RCVBUF
    enum: IPPROTO_TCP, TCP_INFO, TCP_NODELAY, TCP_NOTSENT_LOWAT, TCP_WINDOW_CLAMP, SIOCOUTQNSD, SIOCOUTQ
    enum: FIONREAD, F_GETFD, F_GETFL, F_SETFL, O_NONBLOCK, F_DUPFD_CLOEXEC
    enum: MAP_SHARED, MAP_ANONYMOUS, PROT_READ, PROT_WRITE, MADV_REMOVE
    void *MAP_FAILED
