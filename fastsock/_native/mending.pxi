# After a process of this side was killed in the middle of its turn: see mending.h, which mends the ring's own state.
# Here is what concerns the kernel connection. The kernel has counted every byte, so what the dead process did not
# live to note can be told from its counts:
#
#     killed in             leaves                                        mended by
#     switch_sending        `switch_at` stored, not noted as moved        noting it
#     ring, post_urgent     one or two bytes counted, and not sent        sending them
#     plug                  bytes sent, and not counted                   counting them
#     a post                `ringing`, which readers wait for             clearing it
#     take_kernel           bytes read, and not counted                   counting them
#     swallow               doorbell bytes heard, and perhaps not taken   `doorbell_debt`
#     go_back_receiving     doorbell bytes not heard, the peer held       hearing them, settling
#     shutdown              FIN in the ring and not in the kernel         shutting down there
#     answer_credit_wait    the peer's wish cleared, the peer not woken   waking it: once too often does no harm
#     ring                  the peer's ASLEEP cleared, it was not woken   the same
#
# Not what `sending_step` and FS_COLLECTING mark: the way out moves bytes to where only the dead process knew of them. The
# connection is dissolved then (the latter by `beside_collector`), so that nobody takes what is left for the whole stream.
# The same where the kernel does not tell (urgent data).

cdef extern from "mending.h" nogil:
    int fs_mend_sender(fs_vi *)
    void fs_mend_receiver(fs_vi *)


cdef void break_off(Endpoint self, const char *why) noexcept nogil:
    """The stream has a hole that cannot be mended: the next call says so (VIOLATED), the peer gets a RST."""
    self.vi.violation = why
    fs_store_relaxed(&self.lost, 1)
    fs_reset_connection(self.fd)
    wake_own(self)


cdef void mend_sending(Endpoint self, fs_side *own) noexcept nogil:
    """Call with the inherited send lock."""
    cdef uint64_t sent, received, switch_at
    cdef uint32_t rung
    cdef int32_t more
    cdef int64_t owed
    cdef char state
    if not is_attached(self) or fs_load_relaxed(&own.moved) & FS_OUT:
        return  # the kernel's stream, which has its own turns
    if own.sending_step:
        break_off(self, b"a process of this side was killed while it took the connection back to the kernel")
        return
    if fs_mend_sender(&self.vi) == FS_VIOLATION:
        break_off(self, self.vi.violation)
        return
    switch_at = fs_load_sc64(&self.vi.tx.switch_at)
    if switch_at:
        fs_or_sc(&own.moved, FS_SENDING_MOVED)
        if not fs_load_relaxed(&own.moved) & FS_SENDING_BACK and tcp_bytes(self.fd, &state, &sent, &received):
            rung = fs_load_relaxed(&self.vi.tx.rung)
            more = <int32_t>(<uint32_t>(sent - (switch_at - 1)) - rung)
            if more > 0:
                fs_store_sc(&self.vi.tx.rung, rung + <uint32_t>more)
            owed = -<int64_t>more
            # (Behind an urgent byte another one is counted at once.)
            owe_bytes(self, <uint32_t>owed if 0 <= owed <= <int64_t>own.bytes_unsent + 2 else 0)
            if own.bytes_unsent:  # the dead one may have been about to wait for room
                own.unsent_since = fs_now()
                self.late_sending = True
    fs_end_ringing(&self.vi)
    tell_peer(self)
    if fs_load_sc64(&self.vi.tx.fin) & KIND == FS_FIN:
        sys_shutdown(self.fd, SHUT_WR)


cdef bint read_of_kernel(Endpoint self, uint64_t *taken) noexcept nogil:
    """Bytes of the kernel's stream that this side has read so far, doorbell bytes and all. False if an urgent byte makes
    that uncertain, or the kernel does not tell."""
    cdef int64_t mark
    return kernel_position(self, taken, &mark) and mark < 0


cdef void mend_receiving(Endpoint self, fs_side *own) noexcept nogil:
    """Call with the inherited receive lock."""
    cdef uint64_t taken, switch_at
    cdef uint32_t moved = fs_load_relaxed(&own.moved), heard
    cdef int64_t owed
    if not is_attached(self) or moved & FS_OUT:
        return
    fs_mend_receiver(&self.vi)
    switch_at = fs_load_sc64(&self.vi.rx.switch_at)
    if moved & FS_RECEIVING_BACK:
        fs_store_sc(&self.vi.rx.heard, fs_load_acquire(&self.vi.rx.rung))
    # A loop's transport reads the kernel without our turns, and accounts for it afterwards.
    if not self.driven and not (moved & FS_RECEIVING_BACK and not switch_at) and fs_events_now(self.fd, 0) & POLLERR == 0:
        if not read_of_kernel(self, &taken):
            break_off(self, b"a process of this side was killed while it read from the kernel")
            return
        if not moved & FS_RECEIVING_MOVED:
            own.kernel_taken = taken
        else:
            heard = fs_load_relaxed(&self.vi.rx.heard)
            owed = <int32_t>(heard - <uint32_t>(taken - (switch_at - 1)))
            own.doorbell_debt = <uint32_t>owed if owed > 0 else 0
    if moved & FS_RECEIVING_BACK and not moved & FS_COLLECTING:
        settle_in_turn(self)
    elif moved & FS_RECEIVING_MOVED:
        fs_acknowledge(&self.vi)
    tell_peer(self)
