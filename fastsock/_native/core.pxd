# Declarations of the core, and of the front end at the C library's calls, for Cython. The C headers document them.

from libc.stdint cimport uint16_t, int64_t, uint32_t, uint64_t


cdef extern from "os/atomics.h" nogil:
    ctypedef struct fs_word32:
        pass
    ctypedef struct fs_word64:
        pass

    uint32_t fs_load_relaxed(fs_word32 *)
    uint64_t fs_load_relaxed64 "fs_load_relaxed"(fs_word64 *)
    uint32_t fs_load_sc(fs_word32 *)
    uint64_t fs_load_sc64 "fs_load_sc"(fs_word64 *)


cdef extern from "os/syscalls.h" nogil:
    int64_t fs_now()
    int sys_close "close"(int)
    int sched_yield()
    enum: EAGAIN, ECONNRESET, ENOMEM, ENOTCONN, EINTR
    enum: MSG_PEEK, MSG_NOSIGNAL


cdef extern from "os/fd_reserve.h" nogil:
    int eventfd(unsigned int value, int flags)
    enum: EFD_CLOEXEC, EFD_NONBLOCK
    int fs_reserve_fd(int fd, int passing)


cdef extern from *:
    """
    static int fs_close_reserved(int fd) { return fs_system.close(fd); }
    """
    int fs_close_reserved(int fd)


# ---- the public header ---------------------------------------------------------------------------------------


cdef extern from "fastsock.h" nogil:
    const int64_t FS_VIOLATED
    enum: FS_REASON_ENDING, FS_REASON_DETACHED, FS_REASON_RESOURCES, FS_REASONS
    struct fs_trust:
        bint any "any"
        bint self "self"
        int count
        const uint32_t *users
    void fs_set_trust(const fs_trust *)
    const char *fs_reason_name(int reason)
    const char *fs_reason_text(int reason)
    int64_t fs_count_paths(int reason)

    struct fs_call:
        pass
    size_t fs_conn_size()
    fs_connection *fs_conn_init(void *memory)
    bint fs_call_enter(fs_connection *, fs_call *)
    int fs_conn_shutdown(fs_connection *, bint receiving, bint sending)

    int64_t fs_try_recv(fs_connection *, char *into, size_t room, int flags, int final)
    int64_t fs_try_send(fs_connection *, const char *data, size_t length, int flags)

    enum: FS_STEP_BROKEN
    struct fs_step_result:
        int what

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


# ---- connections that loops drive ------------------------------------------------------------------------------


cdef extern from "ring/doorbell.h" nogil:
    struct fs_direction:
        fs_word64 fin
        fs_word64 switch_at
        fs_word32 acked
        fs_word32 doorbell
        fs_word32 processor
        fs_word32 ready

    struct fs_ring_pair:
        fs_direction *tx
        fs_direction *rx
        uint32_t window

    bint fs_has_descriptor(fs_ring_pair *)
    size_t fs_available(fs_ring_pair *, size_t)


cdef extern from "conn/connection.h" nogil:
    struct fs_connection:
        fs_ring_pair ring


cdef extern from "conn/state.h" nogil:
    bint fs_has_ended(const fs_connection *)
    bint fs_is_attached(const fs_connection *)
    bint fs_receives_on_ring(const fs_connection *)
    bint fs_sends_on_ring(const fs_connection *)
    bint fs_is_broken(const fs_connection *)
    bint fs_is_loop_driven(const fs_connection *)
    bint fs_peer_is_lost(const fs_connection *)


cdef extern from "process/holder_count.h" nogil:
    struct fs_shared_side:
        pass
    fs_shared_side *fs_own(const fs_connection *)
    uint32_t fs_count_holders(fs_shared_side *own)


cdef extern from "conn/loop_io.h" nogil:
    void fs_drive_by_loop(fs_connection *)
    int64_t fs_account_read(fs_connection *, uint64_t count, uint64_t *behind)
    bint fs_switch_reached(fs_connection *)
    bint fs_ends_with_reset(fs_connection *)
    bint fs_peer_is_back(fs_connection *)
    bint fs_kernel_is_next(fs_connection *)
    bint fs_may_switch(fs_connection *)
    bint fs_switch_if_ready(fs_connection *)


cdef extern from "rendezvous/path_state.h" nogil:
    struct fs_path:
        int state
        int reason
        int64_t operations
        int64_t next
        fs_word32 *listing_state
        int64_t waited

    bint fs_has_step(const fs_path *)
    int64_t fs_next_step(const fs_path *)
    const char *fs_path_state_name(int state)


cdef extern from "transport/stream.h" nogil:
    int fs_endpoint_address(int fd, int remote, unsigned char *address, int *port)


cdef extern from "loop_step.h" nogil:
    fs_path *fs_path_of(fs_connection *)
    struct fs_loop_seat:
        fs_poller *poller
        void *data
        fs_member *member
    void fs_libc_step "fs_libc_step_in"(fs_connection *, fs_loop_seat *, fs_step_result *)
    int fs_libc_hand_over "fs_libc_hand_over_in"(fs_connection *, fs_loop_seat *)


# ---- the poller of a loop ----------------------------------------------------------------------------------------


cdef extern from "sys/epoll.h" nogil:
    union epoll_data:
        void *ptr
    struct epoll_event:
        epoll_data data


cdef extern from "ready/loop_wait.h" nogil:
    enum: FS_IN, FS_OUT_ROOM
    struct fs_poller:
        pass
    struct fs_member:
        pass

    fs_poller *fs_loop_new(int *failed)
    void fs_loop_end(fs_poller *)
    void fs_loop_enter(fs_member *)
    void fs_loop_drop(fs_member *)
    void fs_loop_want(fs_member *, uint32_t events, bint ended)
    void fs_loop_activate(fs_member *)
    bint fs_loop_looks(const fs_poller *)
    int fs_loop_look(fs_poller *, epoll_event *events, int max, int64_t now)
    void fs_loop_found(fs_poller *)
    int64_t fs_loop_budget(fs_poller *, int64_t now)
    bint fs_loop_polls(fs_poller *, int64_t now)
    bint fs_loop_await(fs_poller *, int looks)
    bint fs_loop_spin(fs_poller *, int64_t until)
    int fs_loop_fd(const fs_poller *)
    bint fs_loop_arm(fs_poller *)
    bint fs_loop_sleep(fs_poller *)
    void fs_loop_awake(fs_poller *)
    void fs_loop_wake(fs_poller *)
    int64_t fs_loop_late(const fs_poller *)
    void fs_loop_activate_late(fs_poller *)


# ---- the process -----------------------------------------------------------------------------------------------


cdef extern from "wire/region.h" nogil:
    enum: FS_VERSION


cdef extern from "control/listener.h" nogil:
    enum: FS_LISTING_WAITING


cdef extern from "control/introspection.h" nogil:
    const uint64_t FS_QUERY_MAGIC, FS_REPLY_MAGIC
    const unsigned int FS_QUERY_END
    enum: FS_QUERY_PROCESS, FS_QUERY_TABLE, FS_QUERY_RING, FS_QUERY_LINKS
    enum:
        FS_INFO_SENDS, FS_INFO_RECEIVES, FS_INFO_LOOP_DRIVEN, FS_INFO_ASLEEP, FS_INFO_WAITS, FS_INFO_FELL_BACK
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
    struct fs_link_info:
        uint64_t counted, connections
        uint32_t peer, user, in_use, parked


cdef extern from "control/link.h" nogil:
    size_t fs_memory_used()
    bint fs_links_clear()


cdef extern from "rendezvous/eligibility.h" nogil:
    bint fs_is_local_address(const unsigned char *address)


cdef extern from "settings.h" nogil:
    struct fs_list:
        void *items
        int count
        bint any "any"
        bint self "self"
    struct fs_settings:
        fs_list trust
    struct fs_port_range:
        uint16_t first, last
    struct fs_network:
        unsigned char address[16]
        int bits
    enum fs_setting_kind: FS_FLAG, FS_NUMBER, FS_USERS, FS_PORTS, FS_NETWORKS, FS_FOLDER
    struct fs_setting:
        const char *name
        const char *initial
        fs_setting_kind kind
        uint32_t at
    const fs_setting fs_setting_table[]
    struct fs_setting_error:
        const char *setting
        const char *word
        int length
        bint is_number
        char permitted[192]
    void fs_settings_begin(fs_settings *)
    int fs_setting_read(fs_settings *, const fs_setting *, const char *text, fs_setting_error *)
    int fs_settings_check(const fs_settings *, fs_setting_error *)
    void fs_settings_free(fs_settings *)
    void fs_users_text(const fs_list *users, char *text, size_t size)
    bint fs_setting_is_unknown(const char *variable, const fs_setting **nearest)


cdef extern from "program_file.h" nogil:
    struct fs_program:
        pass
    int fs_find_program(const char *name, fs_program *found)


cdef extern from "libc_front.h" nogil:
    const char fs_build[]
    bint fs_libc_serves()
    const char *fs_libc_install(const fs_settings *settings, bint all)
    void fs_libc_configure(const fs_settings *settings)
    void fs_libc_uninstall()
    void fs_libc_claim(int fd, bint made)
    struct fs_libc_path_ "fs_libc_path":
        bint sends, receives, attached
        int reason
    bint fs_libc_path(int fd, fs_libc_path_ *)
    struct fs_libc_connection:
        int fd
        fs_libc_path_ path
        char local[64]
        char peer[64]
        fs_counters count
    int fs_libc_connections(fs_libc_connection *list, int room)
    struct fs_libc_event:
        const char *event
        const char *name
        const char *reason
        int fd
        int lost
        char value[64]
    void fs_libc_listen(int (*tell)() noexcept nogil)
    int fs_libc_events(bint details)
    bint fs_libc_take_event(fs_libc_event *)
    void fs_libc_report_to(const char *folder)
    void fs_libc_sum_counters(fs_counters *)
    void fs_libc_fork_quietly(bint quietly)
    void fs_libc_say_goodbye()
    fs_connection *fs_libc_drive(int fd)
    void fs_libc_exit(fs_connection *, fs_call *)
    void fs_libc_end(fs_connection *)
    bint fs_libc_leave(fs_connection *, int *unread)
    void fs_libc_decide(fs_connection *, int reason)
    void fs_libc_reset(fs_connection *)
    fs_connection *fs_libc_look(int fd)
