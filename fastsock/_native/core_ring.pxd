# Declarations of core/os, core/wire and core/ring for Cython, and of the front end at the C library's calls. The C headers document the functions.

from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef extern from "os/atomics.h" nogil:
    ctypedef struct fs_word32:
        pass
    ctypedef struct fs_word64:
        pass

    uint32_t fs_load_relaxed(fs_word32 *)
    uint64_t fs_load_relaxed64 "fs_load_relaxed"(fs_word64 *)
    void fs_count(fs_word64 *, uint64_t)
    uint32_t fs_load_sc(fs_word32 *)
    uint64_t fs_load_sc64 "fs_load_sc"(fs_word64 *)
    void fs_store_relaxed(fs_word32 *, uint32_t)
    uint32_t fs_add_sc(fs_word32 *, uint32_t)
    void fs_cpu_relax()


cdef extern from "os/host.h" nogil:
    struct fs_host_t "fs_host":
        void *(*unlock)() noexcept nogil
        void (*lock)(void *) noexcept nogil
        int keeps_apart

    fs_host_t fs_host
    uint32_t fs_own_pid
    uint32_t fs_own_pid_ns


cdef extern from "os/syscalls.h" nogil:
    int64_t fs_now()
    void fs_short_sleep()
    int sys_close "close"(int)
    int sys_fcntl "fcntl"(int, int, ...)
    int sched_yield()
    enum: POLLOUT
    enum: EAGAIN, EBADF, EINTR, EINVAL, ECONNRESET, EISCONN, EINPROGRESS, ENOTCONN, ENOMEM, EMFILE, ENFILE
    enum: MSG_PEEK, MSG_DONTWAIT, MSG_NOSIGNAL, MSG_TRUNC, MSG_WAITALL, MSG_OOB, MSG_ERRQUEUE, MSG_CMSG_CLOEXEC
    enum: F_GETFD, F_GETFL, O_NONBLOCK, F_DUPFD, F_DUPFD_CLOEXEC


cdef extern from "os/fd_reserve.h" nogil:
    uint64_t fs_inode(int)


cdef extern from "include/fastsock.h" nogil:
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


cdef extern from "ring/doorbell.h" nogil:
    struct fs_direction:
        fs_word64 fin
        fs_word64 switch_at
        fs_word32 credit_wait
        fs_word32 rung
        fs_word64 urgent
        fs_word32 processor
        fs_word32 acked
        fs_word32 doorbell
        fs_word32 heard
        fs_word32 ready

    struct fs_lock_t "fs_robust_lock":
        fs_word32 word

    struct fs_sender:
        fs_lock_t lock
        fs_word32 posted
        fs_word32 credited
        unsigned char fin_sent
        uint32_t bytes_unsent

    struct fs_receiver:
        fs_lock_t lock
        fs_word32 consumed
        fs_word32 ack_seen
        fs_word32 taken
        uint32_t doorbell_debt
        fs_word64 kernel_taken

    struct fs_fallback_lock:
        fs_lock_t lock

    struct fs_shared_side:
        fs_sender sender
        fs_receiver receiver
        fs_fallback_lock fallback
        fs_word32 holders
        uint32_t pid_space
        fs_word32 send_buffer_before

    struct fs_ring_pair:
        fs_direction *tx
        fs_direction *rx
        uint32_t window
        int oob_inline
        const char *violation
        fs_counters count

    void fs_add_counters(fs_counters *, fs_counters *, bint)
    int fs_has_descriptor(fs_ring_pair *)
    size_t fs_available(fs_ring_pair *, size_t)
    bint fs_ring_readable(fs_ring_pair *)
    void fs_disarm_receiver(fs_ring_pair *, uint32_t how)
    enum: FS_SET_ASLEEP


cdef extern from "libc_front.h" nogil:
    const char fs_build[]
    int fs_libc_serves()
    const char *fs_libc_install(const char *settings)
    void fs_libc_uninstall()
    struct fs_libc_path_ "fs_libc_path":
        int sends, receives, attached, reason
    int fs_libc_path(int fd, fs_libc_path_ *)
    void fs_libc_sum_counters(fs_counters *)
