# Declarations of core/control for Cython. The C headers document the functions, and say which need the GIL (the host lock).

from libc.stdint cimport uint32_t, uint64_t

from fastsock._native.core cimport fs_connection, fs_event_set
from fastsock._native.core_ring cimport fs_counters


cdef extern from "os/fd_reserve.h" nogil:
    int eventfd(unsigned int value, int flags)
    enum: EFD_CLOEXEC, EFD_NONBLOCK
    int fs_reserve_fd(int fd, int passing)


cdef extern from "wire/region.h" nogil:
    enum: FS_VERSION


cdef extern from "control/listener.h" nogil:
    enum: FS_LISTING_WAITING


cdef extern from "include/fastsock.h" nogil:
    void fs_set_backlog(int length)


cdef extern from "control/control_thread.h" nogil:
    enum: FS_NO_THREAD

    void fs_control_thread_stop()
    void fs_control_thread_after_fork()
    int fs_control_thread_restart()
    int fs_control_thread_is_wanted()
    int fs_forks_under_way()
    void fs_wake_loops()


cdef extern from "control/control_requests.h" nogil:
    void fs_request_doorbell_byte(void *memory, int side, const unsigned char *id)


cdef extern from "control/page_offers.h" nogil:
    void fs_set_register(fs_event_set *, fs_connection *)
    void fs_reoffer_pages(fs_event_set *)


cdef extern from "control/introspection.h" nogil:
    const uint64_t FS_QUERY_MAGIC, FS_REPLY_MAGIC
    const unsigned int FS_QUERY_END
    enum: FS_QUERY_PROCESS, FS_QUERY_TABLE, FS_QUERY_RING
    enum:
        FS_INFO_SENDS, FS_INFO_RECEIVES, FS_INFO_EXPOSED, FS_INFO_LOOP_DRIVEN, FS_INFO_ASLEEP, FS_INFO_WAITS, FS_INFO_FELL_BACK
    struct fs_query:
        uint64_t magic, tag
        uint32_t kind, from_ "from"
    struct fs_query_reply:
        uint64_t magic, tag
        uint32_t kind, next, count, protocol
    struct fs_process_info:
        fs_counters gone
        uint32_t on_ring, names, queued, window
    struct fs_connection_info:
        uint64_t inode
        uint32_t flags, window, unconsumed, credits
        uint64_t unread
        fs_counters count
    fs_counters *fs_ended_counters
