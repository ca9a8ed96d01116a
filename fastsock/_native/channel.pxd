# What Cython sees of the connection thread and of what stands beside it (core/channel). What each does, and who has to have the GIL for
# it (the front end's lock), stands in the headers themselves.

from libc.stdint cimport int64_t, uint32_t, uint64_t

from fastsock._native.core cimport fs_connection
from fastsock._native.core_ring cimport fs_counters, fs_word32


cdef extern from "base/share.h" nogil:
    int fs_keep_number(int fd, int passing)
    void fs_close_eventfd(int fd)


cdef extern from "wire/layout.h" nogil:
    size_t fs_region_size(uint32_t window, uint32_t chunk)


cdef extern from "channel/regions.h" nogil:
    int munmap(void *memory, size_t size)
    int eventfd(unsigned int value, int flags)
    enum: EFD_CLOEXEC, EFD_NONBLOCK
    enum: EAGAIN, EMFILE, ENOMEM

    int fs_create_region(int window, int chunk, const unsigned char *id, void **memory)
    void fs_mark_done(void *memory, size_t size, int side, int window)
    bint fs_recycle_region(void *memory, int window)
    bint fs_wakeup_seen(void *memory)


cdef extern from "channel/meetings.h" nogil:
    enum: FS_MEETING_WAITING, FS_MEETING_ARRIVED, FS_MEETING_FAILED, FS_MEETING_SHORT
    enum: FS_TOO_MANY_NAMES

    struct fs_arrival:
        void *memory
        size_t size
        int wake_fd
        int peer_fd
        bint reused
        unsigned char id[16]
        const char *failure

    void fs_set_trust(bint any_user)
    void fs_set_backlog(int length)
    int fs_publish(const char *name, size_t length, int fd, fs_word32 **arrival, uint64_t *handle)
    int fs_arrived(uint64_t handle, fs_word32 **arrival, fs_arrival *came)
    size_t fs_withdraw(uint64_t handle, fs_word32 **arrival)
    size_t fs_park(void *memory, size_t size, int wake_fd, int peer_fd, uint32_t turn, const unsigned char *id)
    size_t fs_drop_parked()


cdef extern from "channel/lookup.h" nogil:
    struct fs_lookup:
        int fd
        bint found
        bint over

    void fs_begin_lookup(fs_lookup *, const char *name, size_t length, int64_t patience)
    int fs_look_up(fs_lookup *, int64_t operations, int64_t *next)
    int64_t fs_pause_lookup(fs_lookup *, int64_t now, int64_t operations)
    int fs_take_found(fs_lookup *)
    void fs_end_lookup(fs_lookup *)


cdef extern from "channel/thread.h" nogil:
    enum: FS_NO_THREAD

    int fs_ensure_thread()
    uint32_t fs_descriptor_turn()
    void fs_stop_thread()
    void fs_fork_is_over()
    int fs_forks_under_way()
    int fs_start_thread_again()
    size_t fs_leave_channel_to_parent()


cdef extern from "channel/requests.h" nogil:
    int fs_expect_asks(fs_connection *, int side, const unsigned char *id)
    void fs_answer_asks(void *memory, int side)
    void fs_ignore_asks(fs_connection *)
    void fs_ask_for_byte(void *memory, int side, const unsigned char *id)


cdef extern from "channel/seen.h" nogil:
    fs_counters *fs_counters_of_gone
