# What a loop asks of an endpoint that it drives: the kernel's stream is read by the loop's own transport, and the
# waiting is the queue's.

cdef void drive_by_loop(Endpoint endpoint) noexcept:
    """From now on the ring is polled, not the descriptor: no doorbell bytes any more."""
    cdef fs_receiver *receiver
    fs_note_driven(&endpoint.c)  # in the turn to receive, below, it is told
    fs_store_relaxed(&endpoint.c.nodelay, 0)  # asyncio sets TCP_NODELAY everywhere; combining on the ring delays nothing
    if fs_is_attached(&endpoint.c):
        with nogil:
            receiver = fs_lock_receiving(&endpoint.c)
            fs_and_sc(&endpoint.c.vi.rx.doorbell, ~<uint32_t>FS_EXPOSED)
            fs_take_doorbell_bytes(&endpoint.c, receiver)
            fs_end_turn_to_receive(&endpoint.c, receiver)


cdef int64_t took_from_kernel(Endpoint endpoint, uint64_t count, uint64_t *behind) noexcept nogil:
    """The loop's transport has read `count` bytes: how many of the first ones are the program's, or FS_VIOLATED. What lies
    behind the switch are doorbell bytes; behind those, `behind` bytes are the program's again, because the peer has gone
    back to the kernel: they come after what is in the ring."""
    cdef uint64_t switch_at, left, position, mine = 0
    cdef int64_t mark
    cdef fs_receiver *receiver
    behind[0] = 0
    receiver = fs_lock_receiving(&endpoint.c)
    if not fs_moved(&endpoint.c) & (FS_RECEIVING_MOVED | FS_RECEIVING_BACK):
        # The bytes were read before this look: doorbell bytes only ever follow the switch, so without one all of them
        # are the program's.
        # SYNC: switch - pairs with fs_switch_sending.
        switch_at = fs_load_sc64(&endpoint.c.vi.rx.switch_at)
        left = switch_at - 1 - fs_load_relaxed64(&receiver.kernel_taken)
        mine = min(left, count) if switch_at else count
        if switch_at and left > <uint64_t>1 << 62:
            endpoint.c.vi.violation = b"switch offset in the past"
            fs_end_turn_to_receive(&endpoint.c, receiver)
            return FS_VIOLATED
        fs_count(&receiver.kernel_taken, mine)
        if switch_at and fs_kernel_position(&endpoint.c, &position, &mark):
            # The loop's transport does not count urgent bytes that it passed over; they come in front of what it read.
            mine = count - (min(count, position - (switch_at - 1)) if position > switch_at - 1 else 0)
            fs_store_relaxed64(&receiver.kernel_taken, min(position, switch_at - 1))
    if mine < count:
        behind[0] = count - mine - hear(endpoint, receiver, count - mine)
    fs_end_turn_to_receive(&endpoint.c, receiver)
    return <int64_t>mine


cdef uint64_t hear(Endpoint endpoint, fs_receiver *receiver, uint64_t count) noexcept nogil:
    """Accounts the doorbell bytes among `count` bytes that the loop's transport took from the kernel behind the switch: all,
    or, from a peer that goes back, as many as it rang. Their number."""
    cdef uint32_t heard = fs_load_relaxed(&endpoint.c.vi.rx.heard)
    cdef uint64_t owed = receiver.doorbell_debt, whole = count, position
    cdef int64_t mark
    cdef uint32_t taken, over
    cdef bint back
    # A doorbell byte that is here was counted in `rung` before it was sent, except for a plug's; and a plug's are counted
    # before BACK is posted.
    # SYNC: end of stream - pairs with fs_post_fin.
    back = fs_load_sc64(&endpoint.c.vi.rx.fin) & ~<uint64_t>0xffffffff == FS_BACK
    if back:
        count = min(count, owed + <uint32_t>(fs_load_acquire(&endpoint.c.vi.rx.rung) - heard))
    if fs_load_relaxed64(&endpoint.c.vi.rx.urgent) and fs_kernel_position(&endpoint.c, &position, &mark):
        taken = <uint32_t>(position + 1 - fs_load_sc64(&endpoint.c.vi.rx.switch_at))
        over = taken - fs_load_acquire(&endpoint.c.vi.rx.rung) if back else 0
        over = over if <int32_t>over > 0 else 0
        receiver.doorbell_debt = 0
        fs_store_sc(&endpoint.c.vi.rx.heard, taken - over)
        return whole - min(<uint64_t>over, whole)
    owed = min(count, owed)
    receiver.doorbell_debt -= <uint32_t>owed
    fs_store_sc(&endpoint.c.vi.rx.heard, heard + <uint32_t>(count - owed))
    return count


cdef bint switch_reached(Endpoint endpoint) noexcept nogil:
    """Whether the kernel's part of the stream is complete and the ring has the rest."""
    cdef uint64_t switch_at = fs_load_sc64(&endpoint.c.vi.rx.switch_at)
    # (The rest may be urgent bytes, which the loop's transport does not read.)
    return (switch_at != 0 and not fs_moved(&endpoint.c) & FS_RECEIVING_BACK
            and (switch_at - 1 == fs_load_relaxed64(&endpoint.c.own.receiver.kernel_taken)
                 or fs_kernel_part_read(&endpoint.c, switch_at)))


cdef bint plugged(Endpoint endpoint) noexcept nogil:
    """Whether the peer keeps its POLLOUT away with bytes in our kernel's queue, which have to lie there."""
    return fs_peer_credit_wait(&endpoint.c.vi) & FS_PLUGGED and fs_waiting(&endpoint.c.vi)


cdef bint may_move_sending(Endpoint endpoint) noexcept nogil:
    # SYNC: consent - pairs with fs_attach.
    return fs_load_sc(&endpoint.c.vi.tx.ready) == FS_READY and not (
        fs_moved(&endpoint.c) & (FS_SENDING_MOVED | FS_SENDING_BACK))


cdef bint move_now(Endpoint endpoint) noexcept nogil:
    """Everything that was written is in the kernel: what follows may go to the ring. Whether it will."""
    cdef fs_sender *sender
    sender = fs_lock_sending(&endpoint.c)
    if may_move_sending(endpoint) and not sender.fin_sent:
        fs_switch_sending(&endpoint.c, sender)
    fs_end_turn_to_send(&endpoint.c, sender)
    return fs_sends_on_ring(&endpoint.c)


cdef bint kernel_is_next(Endpoint endpoint) noexcept nogil:
    """Whether what is written next is the loop's transport's, which sends it past our turns: not while doorbell bytes are owed. To the
    peer, which has counted them, bytes that overtake them would be those."""
    if fs_sends_on_ring(&endpoint.c) or fs_waits_for_leaver(&endpoint.c):
        return False
    return not fs_moved(&endpoint.c) & FS_SENDING_BACK or fs_owes_nothing(&endpoint.c)  # (before the switch it has rung none)


cdef bint credit_returned(Endpoint endpoint) noexcept nogil:
    """Whether the sender should try again. A hint: fs_try_send has the last word."""
    return (<int32_t>(fs_load_acquire(&endpoint.c.vi.tx.acked) - fs_load_relaxed(&endpoint.c.own.sender.credited)) > 0
            or <int32_t>(fs_load_acquire(&endpoint.c.own.receiver.ack_seen) - fs_load_relaxed(&endpoint.c.own.sender.credited)) > 0
            or fs_is_gone(&endpoint.c) or not fs_sends_on_ring(&endpoint.c) and not fs_waits_for_leaver(&endpoint.c))


cdef bint was_reset(Endpoint endpoint) noexcept nogil:
    """Whether the peer's stream ends with a reset."""
    return fs_load_sc64(&endpoint.c.vi.rx.fin) >> 32 == FS_RESET >> 32


cdef bint lost_peer(Endpoint endpoint) noexcept nogil:
    """Whether a peer whose end of stream was seen is dead. If not, a doorbell byte asks: to a dead one it draws a RST."""
    cdef bint lost
    cdef fs_sender *sender
    sender = fs_lock_sending(&endpoint.c)
    lost = fs_probe_peer(&endpoint.c, sender)
    fs_end_turn_to_send(&endpoint.c, sender)
    return lost


cdef bint arm(Endpoint endpoint, bint receives, bint sends) noexcept nogil:
    """Says that the loop sleeps on the eventfd. True if something is there already."""
    cdef bint there = False
    cdef fs_receiver *receiver
    cdef fs_sender *sender
    receiver = fs_lock_receiving(&endpoint.c)
    fs_answer_credit_wait(&endpoint.c, receiver)  # the acknowledgements delayed so far
    if receives and fs_arm_receiver(&endpoint.c.vi):
        there = fs_receives_on_ring(&endpoint.c) or switch_reached(endpoint)
    fs_end_turn_to_receive(&endpoint.c, receiver)
    if sends:
        sender = fs_lock_sending(&endpoint.c)
        # (Back in the kernel nobody rings when what is owed is out, which takes a moment at most.)
        there = (fs_arm_sender(&endpoint.c.vi, sender, FS_WAITS) or fs_is_gone(&endpoint.c) or there
                 or not fs_sends_on_ring(&endpoint.c) and not fs_waits_for_leaver(&endpoint.c))
        fs_end_turn_to_send(&endpoint.c, sender)
    return there
