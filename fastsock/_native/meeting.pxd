# What Cython sees of how two ends find each other (core/meeting). What each does, and who has to have the GIL for it (the front
# end's lock), stands in the headers themselves.

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t

from fastsock._native.core cimport fs_connection, fs_manner
from fastsock._native.core_ring cimport fs_counters, fs_word32


cdef extern from "wire/reasons.h" nogil:
    enum:
        FS_REASON_FEW, FS_REASON_SEEKING, FS_REASON_EXCLUDED, FS_REASON_REMOTE, FS_REASON_PEER, FS_REASON_UNTRUSTED
        FS_REASON_NAME, FS_REASON_REFUSED, FS_REASON_OPTION, FS_REASON_POLLED, FS_REASON_DETACHED, FS_REASON_BACK
        FS_REASON_OVERRIDDEN, FS_REASON_HANDED_OUT, FS_REASON_FORKED, FS_REASON_MEMORY_CAP, FS_REASON_RESOURCES, FS_REASON_ENDING
        FS_REASON_VIOLATION, FS_REASON_VERSION, FS_REASON_UNPAID, FS_REASONS


cdef extern from "meeting/kits.h" nogil:
    enum: FS_CAP_REACHED

    struct fs_kit:
        void *memory
        size_t size
        int side
        unsigned char id[16]

    struct fs_watcher:
        int (*watch)(void *whose, fs_connection *) noexcept
        void (*ignore)(void *whose, fs_connection *) noexcept
        void *whose

    size_t fs_memory_used()
    void fs_end_answers(fs_kit *)
    int fs_count_parked_kits()
    bint fs_drop_kits()
    void fs_leave_kits_to_parent()


cdef extern from "meeting/course.h" nogil:
    enum:  # struct fs_course.state: written by fs_proceed only
        FS_DECIDED, FS_CONNECTING, FS_FEW_OPERATIONS, FS_ANSWER_LATER, FS_THREAD_LATER
    enum: FS_CE_CONNECT, FS_CE_CONNECTED, FS_CE_START

    struct fs_course:
        int state
        int reason
        int64_t operations
        int64_t next
        fs_word32 *arrival
        fs_kit *kit
        unsigned long attaching
        int64_t waited
        bint waits

    bint fs_is_undecided(const fs_course *)
    bint fs_is_searching(const fs_course *)
    bint fs_proceed(fs_course *, int event)
    const char *fs_course_name(int state)

    struct fs_paths_of_process "fs_paths":
        int64_t by_reason[22]
        int64_t ring
    fs_paths_of_process fs_paths

    void fs_note_reason(fs_course *, fs_connection *, int reason)
    void fs_count_opened(int reason)
    void fs_count_changed(int before, int now)
    void fs_open_course(fs_course *, fs_connection *, int64_t operations, int reason)


cdef extern from "meeting/sessions.h" nogil:
    struct fs_sessions:
        int64_t later

    void fs_note_session(fs_sessions *, int64_t operations, int sought, uint64_t calls, uint64_t messages)
    int fs_what_was_sought(const fs_course *)


cdef extern from "meeting/search.h" nogil:
    struct fs_terms:
        int window
        int chunk
        fs_manner manner
        int64_t memory_cap
        int64_t patience
        bint trusts_any
        bint moves_polled
        bint waits

    enum: FS_MOVED_NOW, FS_STAYS, FS_BROKE

    struct fs_upshot:
        int what
        int failed
        int no_thread
        const char *violation
        char *name

    void fs_put_terms(const fs_terms *)
    void fs_take_step(fs_course *, fs_connection *, const fs_watcher *, fs_upshot *)
    bint fs_stay(fs_course *, fs_connection *, int reason)
    void fs_end_search(fs_course *)
    void fs_await_thread(fs_course *, fs_connection *)
    void fs_start_over(fs_course *, fs_connection *)

cdef extern from "meeting/policy.h" nogil:
    struct fs_port_range:
        uint16_t first
        uint16_t last

    struct fs_network:
        unsigned char *address
        int bits

    struct fs_limits:
        const fs_port_range *ports_allowed
        const fs_port_range *ports_excluded
        const fs_network *addresses_allowed
        const fs_network *addresses_excluded
        int ports_allowed_count
        int ports_excluded_count
        int addresses_allowed_count
        int addresses_excluded_count

    void fs_put_limits(const fs_limits *)
    int fs_start_search(fs_course *, fs_connection *, int *failed)
    bint fs_is_local_address(const unsigned char *address)

cdef extern from "transport/tcp.h" nogil:
    bint fs_owner_of_peer(int fd, uint32_t *user)

cdef extern from "meeting/endpoint.h" nogil:
    bint fs_close_last_number(fs_connection *, int fd)
    void fs_say_goodbye(fs_course *, fs_connection *, fs_counters *)
    void fs_release(fs_course *, fs_connection *)
    int64_t fs_dissolve(fs_connection *)
