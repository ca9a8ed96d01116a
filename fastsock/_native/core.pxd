# Declarations of core/conn, core/process, core/transport and core/events for Cython. The C headers document the functions, and
# say which need the GIL (the host lock).

from libc.stdint cimport int64_t, uint32_t, uint64_t

from fastsock._native.core_ring cimport fs_counters, fs_fallback_lock, fs_receiver, fs_sender, fs_shared_side, fs_ring_pair, fs_word32, fs_word64


cdef extern from "events/spin_budget.h" nogil:
    struct fs_spin_stats:
        pass

    int64_t fs_spin_ns
    void fs_spin_stats_init(fs_spin_stats *spin_stats)
    int64_t fs_spin_budget(fs_spin_stats *spin_stats, int64_t now, uint32_t peer_processor)
    bint fs_shares_cpu(uint32_t peer_processor)
    bint fs_cpus_are_busy(int64_t now)
    void fs_spin_stats_update(fs_spin_stats *spin_stats, fs_counters *count, int64_t began, bint polled, bint paid)


cdef extern from "events/fd_change.h" nogil:
    struct fs_fd_change:
        pass

    void fs_fd_change_forget()


cdef extern from "include/fastsock.h" nogil:
    fs_fd_change *fs_fd_change_subscribe()
    void fs_fd_change_unsubscribe(fs_fd_change *joined)


cdef extern from "events/event_set.h" nogil:
    struct fs_event_set:
        int epoll

    fs_event_set *fs_event_set_new(int *failed)
    void fs_event_set_end(fs_event_set *)
    void fs_slot_put_member(fs_event_set *, uint32_t place, void *member)
    void *fs_slot_member(const fs_event_set *, uint32_t place)
    bint fs_prepare_sleep(fs_event_set *)
    void fs_set_awake(fs_event_set *)
    void fs_wake_owner(fs_event_set *)
    void fs_event_set_drain(fs_event_set *)
    bint fs_has_hints(const fs_event_set *)
    int fs_take_hints(fs_event_set *, uint32_t *places, int room)


cdef extern from "process/fork_shared_slab.h" nogil:
    fs_shared_side *fs_side_new()
    void fs_slab_free(void *memory, size_t size)
    void fs_slab_forget()


cdef extern from "process/holder_count.h" nogil:
    uint32_t fs_count_holders(fs_shared_side *own)
    void fs_count_child(fs_shared_side *own, int by)
    uint32_t fs_pid_ns()


cdef extern from "process/atfork.h" nogil:
    int fs_atfork_install(int (*count_child)(int by) noexcept)
    void fs_expect_fork(bint comes)


cdef extern from "process/conn_table.h" nogil:
    void fs_table_update(int place, uint64_t inode, int fd, uint32_t reason)


cdef extern from "transport/tcp.h" nogil:
    int fs_reset_connection(int fd)
    int fs_endpoint_address(int fd, int remote, unsigned char *address, int *port)
    bint fs_is_loopback(const char *host)
    enum: IPPROTO_TCP


cdef extern from "conn/connection.h" nogil:
    enum: FS_LOCALITY_UNKNOWN, FS_HERE, FS_ELSEWHERE
    const int64_t FS_VIOLATED, FS_NOT_ASKED

    struct fs_conn_flags:  # written by the functions fs_note_* only
        fs_word32 pending_error

    struct fs_connection:
        uint64_t inode
        int place
        fs_conn_flags stands "is"  # (a word of Python's)
        fs_word32 nodelay
        fs_word32 locality
        bint listens
        int64_t receive_timeout
        int64_t send_timeout
        uint32_t receive_limit
        uint32_t send_limit
        int own_fault
        fs_ring_pair ring
        fs_word32 recv_sleepers
        fs_word32 send_sleepers
        bint recyclable
        fs_word64 slot
        fs_word32 spun

    fs_shared_side *fs_own(const fs_connection *)


cdef extern from "include/fastsock.h" nogil:
    enum: FS_RECEIVE, FS_SEND
    struct fs_call:
        pass
    int fs_fd(const fs_connection *)


cdef extern from "conn/state.h" nogil:
    bint fs_note_ended_alone(fs_connection *)
    bint fs_note_closing(fs_connection *)
    bint fs_pin(fs_connection *)
    int fs_unpin(fs_connection *)
    bint fs_has_ended(const fs_connection *)
    bint fs_is_closed(const fs_connection *)
    uint32_t fs_calls_inside(const fs_connection *)
    bint fs_has_other_users(const fs_connection *)
    bint fs_is_in_kernel(const fs_connection *)
    bint fs_is_loop_driven(const fs_connection *)
    bint fs_is_attached(const fs_connection *)
    bint fs_is_exposed(const fs_connection *)
    bint fs_is_broken(const fs_connection *)
    bint fs_is_nodelay(const fs_connection *)
    bint fs_peer_is_lost(const fs_connection *)
    bint fs_peer_is_gone(const fs_connection *)
    bint fs_receives_on_ring(const fs_connection *)
    bint fs_sends_on_ring(const fs_connection *)
    bint fs_has_fallen_back(const fs_connection *)
    bint fs_is_shared(const fs_connection *)

    void fs_note_detached(fs_connection *)
    void fs_note_broken(fs_connection *)
    void fs_note_fault(fs_connection *, const char *why)
    void fs_note_error(fs_connection *, uint32_t error)


cdef extern from "include/fastsock.h" nogil:
    bint fs_call_enter(fs_connection *, fs_call *)
    enum: FS_EXIT_RELEASE, FS_EXIT_CLOSE
    int fs_call_exit(fs_connection *, fs_call *)
    bint fs_note_ended(fs_connection *)


cdef extern from "conn/side_lock.h" nogil:
    void fs_wait_for_side(fs_connection *)


cdef extern from "conn/open_close.h" nogil:
    int fs_conn_open(fs_connection *, int fd, uint64_t inode)
    void fs_conn_discard(fs_connection *, fs_counters *totals)
    void fs_conn_close(fs_connection *, fs_counters *totals)
    void fs_forget_fd(fs_connection *)
    void fs_release_side(fs_connection *)
    void fs_conn_inherit(fs_connection *)


cdef extern from "include/fastsock.h" nogil:
    bint fs_conn_identify(fs_connection *)
    int fs_conn_shutdown(fs_connection *, bint receiving, bint sending)


cdef extern from "conn/attach.h" nogil:
    int fs_expose(fs_connection *)
    bint fs_is_told_exposed(const fs_connection *)
    void fs_wait_for_doorbell_byte(fs_connection *)


cdef extern from "include/fastsock.h" nogil:
    struct fs_flow_options:
        uint32_t ack_threshold
        uint32_t combine_limit
        bint combine_when_full
    void fs_set_fd(fs_connection *, int fd)


cdef extern from "conn/event_slot.h" nogil:
    int fs_slot_alloc(fs_connection *, fs_event_set *)
    void fs_slot_free(fs_connection *, fs_event_set *)
    uint32_t fs_slot_of(const fs_connection *)


cdef extern from "include/fastsock.h" nogil:
    void fs_wake_local(fs_connection *)
    bint fs_plug_if_full(fs_connection *)
    enum: FS_RECEIVE_FLAGS
    enum: FS_NOT_FINAL, FS_FINAL, FS_IF_TOLD
    bint fs_wait_for_more(fs_connection *)
    int64_t fs_try_recv(fs_connection *, char *into, size_t room, int flags, int final)
    int fs_set_oob_inline(fs_connection *, bint inline)


cdef extern from "conn/send.h" nogil:
    int fs_set_buffer_limits(fs_connection *, uint32_t receive, uint32_t send)


cdef extern from "include/fastsock.h" nogil:
    enum: FS_POLLS_FIRST
    int64_t fs_try_send(fs_connection *, const char *data, size_t length, int flags)
    int64_t fs_try_send_urgent(fs_connection *, const char *data, size_t length, int flags)


cdef extern from "conn/loop_io.h" nogil:
    void fs_drive_by_loop(fs_connection *)
    int64_t fs_account_read(fs_connection *, uint64_t count, uint64_t *behind)
    bint fs_switch_reached(fs_connection *)
    bint fs_keeps_plug(fs_connection *)
    bint fs_ends_with_reset(fs_connection *)
    bint fs_kernel_is_next(fs_connection *)
    bint fs_may_switch(fs_connection *)
    bint fs_switch_if_ready(fs_connection *)
    bint fs_credit_returned(fs_connection *)
    bint fs_probe_loop_peer(fs_connection *)
    bint fs_arm_for_loop(fs_connection *, bint receives, bint sends)


cdef extern from "conn/readiness.h" nogil:
    bint fs_eof_inconclusive(const fs_connection *)


cdef extern from "conn/wait.h" nogil:
    bint fs_spin_pays(fs_connection *)
    int64_t fs_wait_budget(fs_connection *, int64_t now)
    void fs_note_wait(fs_connection *, int64_t began, bint polled, bint paid)


cdef extern from "include/fastsock.h" nogil:
    bint fs_spin(fs_connection *, int what)
    int fs_sleep(fs_connection *, int what, int64_t deadline, fs_fd_change *fd_change)
    const int64_t FS_TIMED_OUT, FS_RETRY

    struct fs_wait_limit:
        int64_t timeout, deadline
        bint heard

    fs_wait_limit fs_wait_limit_of(int64_t timeout)
    bint fs_wait_next_part(fs_wait_limit *)
    bint fs_may_wait(fs_connection *, int what, fs_wait_limit *)
    int64_t fs_wait_deadline(const fs_wait_limit *)
    void fs_wait_spent(fs_wait_limit *, int64_t until)
    int64_t fs_wait_error(const fs_wait_limit *)
    int64_t fs_end_partial(fs_connection *, int64_t done, int64_t why)
    int64_t fs_timeout_option(fs_connection *, int what)


cdef extern from "include/fastsock.h":
    int64_t fs_receive_polling(fs_connection *, char *into, size_t room, int flags, bint *polled)
    int64_t fs_receive_asleep(fs_connection *, char *into, size_t room, int flags, bint polled)
    int64_t fs_send_asleep(fs_connection *, const char *data, size_t length, int flags)


cdef extern from "conn/fallback.h" nogil:
    struct fs_unread_data:
        int fd
        uint64_t size
