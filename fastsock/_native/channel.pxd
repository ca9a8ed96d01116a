# What Cython sees of the connection thread and of what stands beside it (core/channel). What each does, and who has to have the GIL for
# it (the front end's lock), stands in the headers themselves.

from libc.stdint cimport uint32_t, uint64_t

from fastsock._native.core cimport fs_connection, fs_set
from fastsock._native.core_ring cimport fs_counters


cdef extern from "base/share.h" nogil:
    int eventfd(unsigned int value, int flags)
    enum: EFD_CLOEXEC, EFD_NONBLOCK
    int fs_keep_number(int fd, int passing)


cdef extern from "wire/layout.h" nogil:
    enum: FS_VERSION


cdef extern from "channel/meetings.h" nogil:
    enum: FS_MEETING_WAITING

    void fs_set_backlog(int length)


cdef extern from "channel/thread.h" nogil:
    enum: FS_NO_THREAD

    void fs_stop_thread()
    void fs_fork_is_over()
    int fs_start_thread_again()
    int fs_thread_is_wanted()
    int fs_forks_under_way()
    void fs_wake_loops()


cdef extern from "channel/requests.h" nogil:
    void fs_ask_for_byte(void *memory, int side, const unsigned char *id)


cdef extern from "channel/sets.h" nogil:
    void fs_seat(fs_set *, fs_connection *)
    void fs_tend(fs_set *)


cdef extern from "channel/seen.h" nogil:
    const uint64_t FS_LOOK_MAGIC, FS_SEEN_MAGIC
    const unsigned int FS_NO_MORE
    enum: FS_LOOK_PROCESS, FS_LOOK_ROLL, FS_LOOK_RING
    enum:
        FS_SEEN_SENDS, FS_SEEN_RECEIVES, FS_SEEN_EXPOSED, FS_SEEN_DRIVEN, FS_SEEN_ASLEEP, FS_SEEN_WAITS, FS_SEEN_LEFT
    struct fs_look:
        uint64_t magic, tag
        uint32_t kind, from_ "from"
    struct fs_seen:
        uint64_t magic, tag
        uint32_t kind, next, count, protocol
    struct fs_seen_process:
        fs_counters gone
        uint32_t on_ring, names, queued, window
    struct fs_seen_end:
        uint64_t inode
        uint32_t flags, window, unconsumed, credits
        uint64_t unread
        fs_counters count
    fs_counters *fs_counters_of_gone
