# What Cython sees of how two ends find each other (core/meeting). What each does, and who has to have the GIL for it (the front
# end's lock), stands in the headers themselves.

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t

from fastsock._native.core cimport fs_connection, fs_manner
from fastsock._native.core_ring cimport fs_word32


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
    void fs_release_kit(fs_kit *, bint recyclable)
    int fs_count_parked_kits()
    bint fs_drop_kits()
    void fs_leave_kits_to_parent()


cdef extern from "meeting/course.h" nogil:
    enum:  # struct fs_course.state: written by fs_proceed only
        FS_DECIDED, FS_CONNECTING, FS_FEW_OPERATIONS, FS_ANSWER_LATER, FS_THREAD_LATER
    enum: FS_CE_CONNECT, FS_CE_CONNECTED, FS_CE_START, FS_CE_PUT_OFF

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


cdef extern from "channel/identity.h" nogil:
    struct fs_tcp_end:
        unsigned char address[16]
        uint16_t port

    struct fs_tcp_identity:
        fs_tcp_end here
        fs_tcp_end there

    bint fs_ask_ends(int fd, fs_tcp_identity *)


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

    enum: FS_MOVED_NOW, FS_STAYS, FS_BROKE, FS_DOUBTED

    struct fs_upshot:
        int what
        int failed
        int no_thread
        uint32_t user
        const char *violation
        char *name

    void fs_put_terms(const fs_terms *)
    int fs_begin_search(fs_course *, const char *name, size_t length, bint publishes, const fs_tcp_identity *ends)
    void fs_take_step(fs_course *, fs_connection *, const fs_watcher *, fs_upshot *)
    void fs_leave_doubt(fs_course *, fs_connection *, fs_upshot *)
    void fs_judge_doubt(fs_course *, fs_connection *, bint believed, fs_upshot *)
    bint fs_stay(fs_course *, fs_connection *, int reason)
    void fs_end_search(fs_course *)
    void fs_await_thread(fs_course *, fs_connection *)
    void fs_start_over(fs_course *, fs_connection *)
