# Declarations of core/rendezvous for Cython. The C headers document the functions, and say which need the GIL (the host lock).

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t

from fastsock._native.core cimport fs_connection, fs_flow_options, fs_unread_data
from fastsock._native.core_ring cimport fs_counters, fs_word32


cdef extern from "include/fastsock.h" nogil:
    enum:
        FS_REASON_ENDING, FS_REASON_FEW, FS_REASON_HANDED_OUT, FS_REASON_OVERRIDDEN, FS_REASON_RESOURCES, FS_REASON_UNPAID, FS_REASONS


cdef extern from "rendezvous/region_cache.h" nogil:
    enum: FS_CAP_REACHED

    struct fs_region_ref:
        void *memory
        size_t size
        int side
        unsigned char id[16]

    size_t fs_memory_used()
    void fs_region_stop_requests(fs_region_ref *)
    int fs_cached_region_count()
    bint fs_region_cache_clear()
    void fs_regions_forget()


cdef extern from "include/fastsock.h" nogil:
    struct fs_attach_hooks:
        int (*watch)(void *whose, fs_connection *) noexcept
        void (*ignore)(void *whose, fs_connection *) noexcept
        void *whose


cdef extern from "rendezvous/path_state.h" nogil:
    enum:  # struct fs_path.state: written by fs_path_event only
        FS_DECIDED, FS_CONNECTING, FS_FEW_OPERATIONS, FS_ANSWER_LATER, FS_THREAD_LATER
    enum: FS_PATH_CONNECT, FS_PATH_CONNECTED, FS_PATH_START

    struct fs_path:
        int state
        int reason
        int64_t operations
        int64_t next
        fs_word32 *listing_state
        fs_region_ref *region_ref
        unsigned long attaching
        int64_t waited
        bint waits

    bint fs_has_step(const fs_path *)
    bint fs_is_undecided(const fs_path *)
    bint fs_is_searching(const fs_path *)
    bint fs_path_event(fs_path *, int event)
    const char *fs_path_state_name(int state)
    const char *fs_reason_text(int reason)

    struct fs_paths_of_process "fs_path_counts":
        int64_t *by_reason
        int64_t ring
    fs_paths_of_process fs_path_counts

    void fs_note_reason(fs_path *, fs_connection *, int reason)
    void fs_count_opened(int reason)
    void fs_count_changed(int before, int now)
    void fs_path_open(fs_path *, fs_connection *, int64_t operations, int reason)


cdef extern from "include/fastsock.h" nogil:
    const char *fs_reason_name(int reason)
    const char *fs_reason_text(int reason)


cdef extern from "rendezvous/upgrade_delay.h" nogil:
    void fs_note_session(fs_session_stats *, int64_t operations, int sought, uint64_t calls, uint64_t messages)
    void fs_note_session_of(fs_session_stats *, const fs_path *, const fs_connection *)
    int64_t fs_search_begins(const fs_session_stats *, int64_t move_after)
    int fs_reason_before(int64_t begins, int64_t move_after)


cdef extern from "include/fastsock.h" nogil:
    struct fs_session_stats:
        int64_t later


cdef extern from "rendezvous/connector.h" nogil:
    void fs_connector_step(fs_path *, fs_connection *, const fs_attach_hooks *, fs_step_result *)
    bint fs_path_decide_tcp(fs_path *, fs_connection *, int reason)
    void fs_connector_end(fs_path *)
    void fs_path_await_thread(fs_path *, fs_connection *)
    void fs_path_restart(fs_path *, fs_connection *)


cdef extern from "include/fastsock.h" nogil:
    struct fs_upgrade_config:
        int window
        int chunk
        fs_flow_options flow
        int64_t memory_cap
        int64_t patience
        bint moves_polled
        bint waits
    enum: FS_STEP_MOVED, FS_STEP_TCP, FS_STEP_BROKEN
    struct fs_step_result:
        int what
        int failed
        int no_thread
        const char *violation
        char *name
    void fs_set_upgrade_config(const fs_upgrade_config *)

cdef extern from "include/fastsock.h" nogil:
    struct fs_trust:
        bint any
        bint self
        int count
        const uint32_t *users
    void fs_set_trust(const fs_trust *)

cdef extern from "rendezvous/eligibility.h" nogil:
    int fs_connector_start(fs_path *, fs_connection *, int *failed)
    bint fs_is_local_address(const unsigned char *address)


cdef extern from "include/fastsock.h" nogil:
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
    void fs_set_limits(const fs_limits *)

cdef extern from "transport/tcp.h" nogil:
    bint fs_owner_of_peer(int fd, uint32_t *user)

cdef extern from "rendezvous/endpoint.h" nogil:
    void fs_conn_finish(fs_path *, fs_connection *, fs_counters *)
    void fs_conn_release(fs_path *, fs_connection *)

    int fs_path_fall_back(fs_path *, fs_connection *, const fs_fallback_hooks *, int64_t *bridge)


cdef extern from "include/fastsock.h" nogil:
    bint fs_close_last_fd(fs_connection *, int fd)
    int64_t fs_conn_reset(fs_connection *)
    struct fs_fallback_hooks:
        int (*list)(void *whose, int *numbers, int room) noexcept
        int (*keep)(void *whose, const fs_unread_data *unread_data) noexcept
        void *whose
    enum: FS_CANNOT_FALL_BACK
