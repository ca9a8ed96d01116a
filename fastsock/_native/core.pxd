# Declarations of the core, and of the front end at the C library's calls, for Cython. The C headers document them.

from libc.stdint cimport uint16_t, int64_t, uint32_t, uint64_t


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


cdef extern from "sys/epoll.h" nogil:
    union epoll_data:
        void *ptr
    struct epoll_event:
        epoll_data data


cdef extern from "unistd.h" nogil:
    int sys_close "close"(int)


cdef extern from "errno.h" nogil:
    enum: EAGAIN, ECONNRESET, ENOMEM, ENOTCONN, EINTR


cdef extern from "fastsock.h" nogil:
    int64_t fs_now()
    enum: MSG_PEEK, MSG_NOSIGNAL
    ctypedef struct fs_word64:
        pass
    struct fs_connection:
        pass
    const int64_t FS_VIOLATED
    enum: FS_REASON_ENDING, FS_REASON_DETACHED, FS_REASON_RESOURCES, FS_REASONS
    const char *fs_reason_name(int reason)
    const char *fs_reason_text(int reason)
    int64_t fs_count_paths(int reason)
    int fs_reason_of(const fs_connection *)
    enum: FS_IS_ATTACHED, FS_IS_RECEIVING_RING, FS_IS_SENDING_RING
    bint fs_is(const fs_connection *, int what)

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
    uint64_t fs_counted(const fs_word64 *)


cdef extern from "transport/stream.h" nogil:
    int fs_endpoint_address(int fd, int remote, unsigned char *address, int *port)


# ---- connections that loops drive ------------------------------------------------------------------------------


cdef extern from "fastsock_loop.h" nogil:
    enum: FS_IN, FS_OUT_ROOM
    struct fs_poller:
        pass
    struct fs_member:
        pass

    fs_poller *fs_loop_new(int *failed)
    void fs_loop_end(fs_poller *)
    int fs_loop_fd(const fs_poller *)
    void fs_loop_enter(fs_member *)
    void fs_loop_drop(fs_member *)
    void fs_loop_want(fs_member *, uint32_t events, bint ended)
    void fs_loop_activate(fs_member *)
    int fs_loop_look(fs_poller *, epoll_event *events, int max, int64_t now)
    bint fs_loop_looks(const fs_poller *)
    void fs_loop_found(fs_poller *)
    int64_t fs_loop_budget(fs_poller *, int64_t now)
    bint fs_loop_polls(fs_poller *, int64_t now)
    bint fs_loop_await(fs_poller *, int looks)
    bint fs_loop_spin(fs_poller *, int64_t until)
    bint fs_loop_arm(fs_poller *)
    bint fs_loop_sleep(fs_poller *)
    void fs_loop_awake(fs_poller *)
    void fs_loop_wake(fs_poller *)
    int64_t fs_loop_late(const fs_poller *)
    void fs_loop_activate_late(fs_poller *)

    void fs_drive_by_loop(fs_connection *)
    int64_t fs_operations_of(const fs_connection *)
    void fs_set_operations(fs_connection *, int64_t operations)
    int64_t fs_steps_at(const fs_connection *)
    bint fs_awaits_answer(const fs_connection *)
    int64_t fs_account_read(fs_connection *, uint64_t count, uint64_t *behind)
    bint fs_switch_reached(fs_connection *)
    size_t fs_bytes_on_ring(fs_connection *, size_t most)
    bint fs_has_bytes_on_ring(fs_connection *)
    bint fs_has_stream_end(fs_connection *)
    bint fs_ends_with_reset(fs_connection *)
    bint fs_peer_is_back(fs_connection *)
    bint fs_kernel_is_next(fs_connection *)
    bint fs_may_switch(fs_connection *)
    bint fs_switch_if_ready(fs_connection *)

    struct fs_description:
        const char *stage
        int64_t operations
        bint ended, broken, attached, driven, lost, peer_consents
        uint32_t holders, window, acked, doorbell, peer_doorbell
        size_t side
        uint64_t switched_at, peer_switched_at, fin
    void fs_describe(const fs_connection *, fs_description *)


cdef extern from "loop_step.h" nogil:
    struct fs_loop_seat:
        fs_poller *poller
        void *data
        fs_member *member
    void fs_libc_step "fs_libc_step_in"(fs_connection *, fs_loop_seat *, fs_step_result *)
    int fs_libc_hand_over "fs_libc_hand_over_in"(fs_connection *, fs_loop_seat *)


# ---- the process -----------------------------------------------------------------------------------------------


cdef extern from "wire/version.h" nogil:
    enum: FS_VERSION


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
    const uint64_t FS_TAP_MAGIC
    enum: FS_TAP_HEAD, FS_TAP_SIZE, FS_TAP_UNANSWERED, FS_TAP_SHOWS, FS_TAP_BUSY, FS_TAP_REFUSED
    enum:
        FS_TAP_PAD, FS_TAP_START, FS_TAP_SENT, FS_TAP_RECEIVED, FS_TAP_FIN_SENT, FS_TAP_FIN_RECEIVED, FS_TAP_CLOSED, FS_TAP_RESET
        FS_TAP_LEFT
    struct fs_tap:
        pass
    struct fs_tap_record:
        uint32_t kind, length, kept
        int64_t when
        uint64_t inode, position
    fs_tap_record *fs_tap_next(fs_tap *, uint64_t taken, uint32_t *size)
    void fs_tap_done(fs_tap *, fs_tap_record *, uint32_t size, uint64_t *taken)
    void fs_tap_ask(fs_tap *, uint32_t snaplen, uint32_t port)
    void fs_tap_look(fs_tap *, int64_t now)
    uint32_t fs_tap_answered(fs_tap *)
    uint64_t fs_tap_dropped(fs_tap *)


cdef extern from "control/link.h" nogil:
    size_t fs_memory_used()
    bint fs_links_clear()


cdef extern from "rendezvous/local_address.h" nogil:
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
    struct fs_path_pattern:
        int length
        char text[108]
    enum fs_setting_kind: FS_FLAG, FS_NUMBER, FS_USERS, FS_PORTS, FS_NETWORKS, FS_PATHS, FS_FOLDER
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
    void fs_libc_use_trust(const fs_settings *settings) nogil
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
    uint32_t fs_libc_left(int fd, int *reason)
    fs_connection *fs_libc_drive(int fd)
    void fs_libc_exit(fs_connection *, fs_call *)
    void fs_libc_end(fs_connection *)
    bint fs_libc_leave(fs_connection *, int *unread)
    void fs_libc_decide(fs_connection *, int reason)
    void fs_libc_reset(fs_connection *)
    fs_connection *fs_libc_look(int fd)
