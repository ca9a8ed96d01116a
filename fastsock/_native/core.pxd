# What Cython sees of a connection and of what stands beside it (core/connection, core/registry, core/transport,
# core/waiter). What each does, and who has to have the GIL for it (the front end's lock), stands in the headers
# themselves.

from libc.stdint cimport int64_t, uint32_t, uint64_t

from fastsock._native.core_ring cimport fs_counters, fs_leaver, fs_receiver, fs_sender, fs_side, fs_vi, fs_word32, fs_word64


cdef extern from "waiter/polling.h" nogil:
    struct fs_habit:
        pass

    int64_t fs_poll_ns
    void fs_take_up_polling(fs_habit *habit)
    int64_t fs_may_poll(fs_habit *habit, int64_t now, uint32_t peer_processor)
    bint fs_shares_processor(uint32_t peer_processor)
    bint fs_crowded(int64_t now)
    void fs_learn(fs_habit *habit, fs_counters *count, int64_t began, bint polled, bint paid)


cdef extern from "waiter/news.h" nogil:
    struct fs_news:
        pass

    fs_news *fs_join_news()
    void fs_leave_news(fs_news *joined)
    void fs_forget_news()


cdef extern from "waiter/set.h" nogil:
    struct fs_set:
        int epoll

    fs_set *fs_new_set(int *failed)
    void fs_end_set(fs_set *)
    void fs_put_member(fs_set *, uint32_t place, void *member)
    void *fs_member_at(const fs_set *, uint32_t place)
    bint fs_fall_asleep(fs_set *)
    void fs_rise(fs_set *)
    void fs_rouse(fs_set *)
    void fs_clear_set(fs_set *)
    bint fs_is_hinted(const fs_set *)
    int fs_take_hints(fs_set *, uint32_t *places, int room)


cdef extern from "registry/memory.h" nogil:
    fs_side *fs_new_side()
    void fs_free_block(void *memory, size_t size)
    void fs_forget_blocks_after_fork()


cdef extern from "registry/holders.h" nogil:
    uint32_t fs_count_holders(fs_side *own)
    void fs_count_child(fs_side *own, int by)
    uint32_t fs_pid_space()


cdef extern from "registry/forks.h" nogil:
    int fs_watch_forks(int (*count_child)(int by) noexcept)
    void fs_announce_fork(bint comes)


cdef extern from "registry/roll.h" nogil:
    void fs_note_on_roll(int place, uint64_t inode, int fd, uint32_t reason)


cdef extern from "transport/tcp.h" nogil:
    int fs_reset_connection(int fd)
    int fs_end_of(int fd, int remote, unsigned char *address, int *port)
    bint fs_is_loopback(const char *host)
    enum: IPPROTO_TCP


cdef extern from "connection/connection.h" nogil:
    enum: FS_RECEIVE, FS_SEND
    enum: FS_LOCALITY_UNKNOWN, FS_HERE, FS_ELSEWHERE
    const int64_t FS_VIOLATED, FS_NOT_ASKED

    struct fs_standing:  # written by the functions fs_note_* only
        fs_word32 pending_error

    struct fs_connection:
        uint64_t inode
        int place
        fs_standing stands "is"  # (a word of Python's)
        fs_word32 nodelay
        fs_word32 locality
        bint listens
        int64_t receive_timeout
        int64_t send_timeout
        uint32_t receive_limit
        uint32_t send_limit
        int own_fault
        fs_vi vi
        fs_word32 recv_sleepers
        fs_word32 send_sleepers
        bint recyclable
        fs_word64 seat
        fs_word32 spun

    struct fs_call:
        pass

    int fs_fd(const fs_connection *)
    fs_side *fs_own(const fs_connection *)


cdef extern from "connection/state.h" nogil:
    bint fs_begin(fs_connection *, fs_call *)
    enum: FS_RELEASE, FS_END_LAST_CALL
    int fs_end_call(fs_connection *, fs_call *)
    bint fs_note_finished(fs_connection *)
    bint fs_note_finished_alone(fs_connection *)
    bint fs_note_finishing(fs_connection *)
    bint fs_note_kept(fs_connection *)
    int fs_note_loose(fs_connection *)
    bint fs_has_ended(const fs_connection *)
    bint fs_is_closed(const fs_connection *)
    uint32_t fs_calls_inside(const fs_connection *)
    bint fs_others_have(const fs_connection *)
    bint fs_is_in_kernel(const fs_connection *)
    bint fs_is_driven(const fs_connection *)
    bint fs_is_attached(const fs_connection *)
    bint fs_is_exposed(const fs_connection *)
    bint fs_is_broken(const fs_connection *)
    bint fs_is_nodelay(const fs_connection *)
    bint fs_is_lost(const fs_connection *)
    bint fs_is_gone(const fs_connection *)
    bint fs_receives_on_ring(const fs_connection *)
    bint fs_sends_on_ring(const fs_connection *)
    bint fs_is_out(const fs_connection *)
    bint fs_is_shared(const fs_connection *)

    void fs_note_detached(fs_connection *)
    void fs_note_broken(fs_connection *)
    void fs_note_fault(fs_connection *, const char *why)
    void fs_note_error(fs_connection *, uint32_t error)


cdef extern from "connection/turns.h" nogil:
    void fs_await_both(fs_connection *)


cdef extern from "connection/end.h" nogil:
    int fs_open_connection(fs_connection *, int fd, uint64_t inode)
    bint fs_identify(fs_connection *)
    void fs_discard(fs_connection *, fs_counters *totals)
    void fs_let_go_of(fs_connection *, fs_counters *totals)
    void fs_abandon_number(fs_connection *)
    void fs_free_own(fs_connection *)
    int fs_shut(fs_connection *, bint receiving, bint sending)
    void fs_inherit(fs_connection *)


cdef extern from "connection/move.h" nogil:
    struct fs_manner:
        uint32_t ack_threshold
        uint32_t combine_limit
        bint combine_when_full

    int fs_expose(fs_connection *)
    bint fs_is_told_exposed(const fs_connection *)
    void fs_await_doorbell_byte(fs_connection *)
    void fs_point_to(fs_connection *, int fd)


cdef extern from "connection/seat.h" nogil:
    int fs_take_seat(fs_connection *, fs_set *)
    void fs_leave_seat(fs_connection *, fs_set *)
    uint32_t fs_seat_of(const fs_connection *)


cdef extern from "connection/ringing.h" nogil:
    void fs_wake_own(fs_connection *)
    bint fs_plug_if_full(fs_connection *)


cdef extern from "connection/receive.h" nogil:
    enum: FS_RECEIVE_FLAGS
    enum: FS_NOT_FINAL, FS_FINAL, FS_IF_TOLD
    bint fs_nap_for_more(fs_connection *)
    int64_t fs_try_receive(fs_connection *, char *into, size_t room, int flags, int final)
    int fs_put_oob_inline(fs_connection *, bint inline)


cdef extern from "connection/send.h" nogil:
    enum: FS_POLLS_FIRST
    int64_t fs_try_send(fs_connection *, const char *data, size_t length, int flags)
    int64_t fs_try_send_urgent(fs_connection *, const char *data, size_t length, int flags)
    int fs_note_limits(fs_connection *, uint32_t receive, uint32_t send)


cdef extern from "connection/drive.h" nogil:
    void fs_drive_by_loop(fs_connection *)
    int64_t fs_account_read(fs_connection *, uint64_t count, uint64_t *behind)
    bint fs_switch_reached(fs_connection *)
    bint fs_keeps_plug(fs_connection *)
    bint fs_ends_with_reset(fs_connection *)
    bint fs_kernel_is_next(fs_connection *)
    bint fs_may_switch(fs_connection *)
    bint fs_switch_if_ready(fs_connection *)
    bint fs_credit_returned(fs_connection *)
    bint fs_probe_driven_peer(fs_connection *)
    bint fs_arm_for_loop(fs_connection *, bint receives, bint sends)


cdef extern from "connection/ready.h" nogil:
    bint fs_hides_death(const fs_connection *)


cdef extern from "connection/wait.h" nogil:
    bint fs_spin(fs_connection *, int what)
    int fs_sleep(fs_connection *, int what, int64_t deadline, fs_news *news)
    bint fs_polls(fs_connection *)
    int64_t fs_budget(fs_connection *, int64_t now)
    void fs_settle_wait(fs_connection *, int64_t began, bint polled, bint paid)


cdef extern from "connection/partial.h" nogil:
    const int64_t FS_TIMED_OUT, FS_GO_ON

    struct fs_patience:
        int64_t timeout, deadline
        bint heard

    fs_patience fs_patience_of(int64_t timeout)
    bint fs_next_part(fs_patience *)
    bint fs_may_wait(fs_connection *, int what, fs_patience *)
    int64_t fs_wait_until(const fs_patience *)
    void fs_waited(fs_patience *, int64_t until)
    int64_t fs_over(const fs_patience *)
    int64_t fs_stop(fs_connection *, int64_t done, int64_t why)
    int64_t fs_timeout_option(fs_connection *, int what)


cdef extern from "connection/blocking.h":
    int64_t fs_receive_polling(fs_connection *, char *into, size_t room, int flags, bint *polled)
    int64_t fs_receive_asleep(fs_connection *, char *into, size_t room, int flags, bint polled)
    int64_t fs_send_asleep(fs_connection *, const char *data, size_t length, int flags)


cdef extern from "connection/leave.h" nogil:
    enum: FS_IN_KERNEL, FS_NEEDS_BRIDGE, FS_DISSOLVED

    struct fs_parcel:
        int fd
        uint64_t size

    bint fs_is_leaving(fs_connection *)
    fs_leaver *fs_begin_leaving(fs_connection *)
    void fs_end_leaving(fs_connection *, fs_leaver *, bint whole)
    int fs_leave_ring(fs_connection *, fs_leaver *, fs_parcel *)
    int fs_take_returned(fs_connection *, fs_leaver *, fs_parcel *)
    void fs_go_out(fs_connection *, fs_leaver *)


cdef extern from "connection/bridge.h" nogil:
    int64_t fs_start_bridge(fs_connection *, fs_leaver *, fs_parcel *, int *near)
    int fs_change_over(fs_connection *, int near, fs_side *side, const int *numbers, int count)
