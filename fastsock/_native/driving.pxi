# What a loop asks of an endpoint that it drives: the kernel's stream is read by the loop's own transport, and the
# waiting is the queue's.

cdef void drive_by_loop(Endpoint endpoint) noexcept:
    """From now on the ring is polled, not the descriptor: no doorbell bytes any more."""
    cdef fs_side *own
    endpoint.driven = True
    fs_store_relaxed(&endpoint.exposed_word, 0)  # under the receive lock, below, it is told
    fs_store_relaxed(&endpoint.nodelay_word, 0)  # asyncio sets TCP_NODELAY everywhere; combining on the ring delays nothing
    if is_attached(endpoint):
        with nogil:
            own = lock_receiving(endpoint)
            fs_and_sc(&endpoint.vi.rx.doorbell, ~<uint32_t>FS_EXPOSED)
            endpoint.quiet()
            end_turn_to_receive(endpoint, own)


cdef int64_t took_from_kernel(Endpoint endpoint, uint64_t count, uint64_t *behind) noexcept nogil:
    """The loop's transport has read `count` bytes: how many of the first ones are the program's, or VIOLATED. What lies
    behind the switch are doorbell bytes; behind those, `behind` bytes are the program's again, because the peer has gone
    back to the kernel: they come after what is in the ring."""
    cdef uint64_t switch_at, left, position, mine = 0
    cdef fs_side *own
    behind[0] = 0
    own = lock_receiving(endpoint)
    if not fs_load_relaxed(&endpoint.own.moved) & (FS_RECEIVING_MOVED | FS_RECEIVING_BACK):
        # The bytes were read before this look: doorbell bytes only ever follow the switch, so without one all of them
        # are the program's.
        # SYNC: switch - pairs with move_sending.
        switch_at = fs_load_sc64(&endpoint.vi.rx.switch_at)
        left = switch_at - 1 - endpoint.own.kernel_taken
        mine = min(left, count) if switch_at else count
        if switch_at and left > <uint64_t>1 << 62:
            endpoint.vi.violation = b"switch offset in the past"
            end_turn_to_receive(endpoint, own)
            return VIOLATED
        endpoint.own.kernel_taken += mine
        if switch_at and endpoint.position(&position):
            # The loop's transport does not count urgent bytes that it passed over; they come in front of what it read.
            mine = count - (min(count, position - (switch_at - 1)) if position > switch_at - 1 else 0)
            endpoint.own.kernel_taken = min(position, switch_at - 1)
    if mine < count:
        behind[0] = count - mine - hear(endpoint, count - mine)
    end_turn_to_receive(endpoint, own)
    return <int64_t>mine


cdef uint64_t hear(Endpoint endpoint, uint64_t count) noexcept nogil:
    """Accounts the doorbell bytes among `count` bytes that the loop's transport took from the kernel behind the switch: all,
    or, from a peer that goes back, as many as it rang. Their number. Under the receive lock."""
    cdef uint32_t heard = fs_load_relaxed(&endpoint.vi.rx.heard)
    cdef uint64_t owed = endpoint.own.doorbell_debt, whole = count, position
    cdef uint32_t taken, over
    cdef bint back
    # A doorbell byte that is here was counted in `rung` before it was sent, except for a plug's; and a plug's are counted
    # before BACK is posted.
    # SYNC: end of stream - pairs with fs_post_fin.
    back = fs_load_sc64(&endpoint.vi.rx.fin) & ~<uint64_t>0xffffffff == FS_BACK
    if back:
        count = min(count, owed + <uint32_t>(fs_load_acquire(&endpoint.vi.rx.rung) - heard))
    if fs_load_relaxed64(&endpoint.vi.rx.urgent) and endpoint.position(&position):
        taken = <uint32_t>(position + 1 - fs_load_sc64(&endpoint.vi.rx.switch_at))
        over = taken - fs_load_acquire(&endpoint.vi.rx.rung) if back else 0
        over = over if <int32_t>over > 0 else 0
        endpoint.own.doorbell_debt = 0
        fs_store_sc(&endpoint.vi.rx.heard, taken - over)
        return whole - min(<uint64_t>over, whole)
    owed = min(count, owed)
    endpoint.own.doorbell_debt -= <uint32_t>owed
    fs_store_sc(&endpoint.vi.rx.heard, heard + <uint32_t>(count - owed))
    return count


cdef bint switch_reached(Endpoint endpoint) noexcept nogil:
    """Whether the kernel's part of the stream is complete and the ring has the rest."""
    cdef uint64_t switch_at = fs_load_sc64(&endpoint.vi.rx.switch_at)
    # (The rest may be urgent bytes, which the loop's transport does not read.)
    return (switch_at != 0 and not fs_load_relaxed(&endpoint.own.moved) & FS_RECEIVING_BACK
            and (switch_at - 1 == endpoint.own.kernel_taken or endpoint.kernel_part_read(switch_at)))


cdef bint plugged(Endpoint endpoint) noexcept nogil:
    """Whether the peer keeps its POLLOUT away with bytes in our kernel's queue, which have to lie there."""
    return fs_peer_credit_wait(&endpoint.vi) & FS_PLUGGED and fs_waiting(&endpoint.vi)


cdef bint may_move_sending(Endpoint endpoint) noexcept nogil:
    # SYNC: consent - pairs with attach.
    return fs_load_sc(&endpoint.vi.tx.ready) == FS_READY and not (
        fs_load_relaxed(&endpoint.own.moved) & (FS_SENDING_MOVED | FS_SENDING_BACK))


cdef bint move_now(Endpoint endpoint) noexcept nogil:
    """Everything that was written is in the kernel: what follows may go to the ring. Whether it will."""
    cdef fs_side *own
    own = lock_sending(endpoint)
    if may_move_sending(endpoint) and not endpoint.own.fin_sent:
        endpoint.move_sending()
    end_turn_to_send(endpoint, own)
    return endpoint.moved_sending()


cdef bint kernel_is_next(Endpoint endpoint) noexcept nogil:
    """Whether what is written next is the loop's transport's, which sends it past our turns: not while doorbell bytes are owed. To the
    peer, which has counted them, bytes that overtake them would be those."""
    if endpoint.moved_sending() or waits_for_leaver(endpoint):
        return False
    return not fs_load_relaxed(&endpoint.own.moved) & FS_SENDING_BACK or owes_nothing(endpoint)  # (before the switch it has rung none)


cdef bint credit_returned(Endpoint endpoint) noexcept nogil:
    """Whether the sender should try again. A hint: try_send has the last word."""
    return (<int32_t>(fs_load_acquire(&endpoint.vi.tx.acked) - fs_load_relaxed(&endpoint.own.credited)) > 0
            or <int32_t>(fs_load_acquire(&endpoint.own.ack_seen) - fs_load_relaxed(&endpoint.own.credited)) > 0
            or endpoint.gone() or not endpoint.moved_sending() and not waits_for_leaver(endpoint))


cdef bint was_reset(Endpoint endpoint) noexcept nogil:
    """Whether the peer's stream ends with a reset."""
    return fs_load_sc64(&endpoint.vi.rx.fin) >> 32 == FS_RESET >> 32


cdef bint lost_peer(Endpoint endpoint) noexcept nogil:
    """Whether a peer whose end of stream was seen is dead. If not, a doorbell byte asks: to a dead one it draws a RST."""
    cdef bint lost
    cdef fs_side *own
    own = lock_sending(endpoint)
    lost = endpoint.ask_peer()
    end_turn_to_send(endpoint, own)
    return lost


cdef bint arm(Endpoint endpoint, bint receiver, bint sender) noexcept nogil:
    """Says that the loop sleeps on the eventfd. True if something is there already."""
    cdef bint there = False
    cdef fs_side *own
    own = lock_receiving(endpoint)
    endpoint.serve_sender()  # the acknowledgements delayed so far
    if receiver and fs_arm_receiver(&endpoint.vi):
        there = endpoint.moved_receiving() or switch_reached(endpoint)
    end_turn_to_receive(endpoint, own)
    if sender:
        own = lock_sending(endpoint)
        # (Back in the kernel nobody rings when what is owed is out, which takes a moment at most.)
        there = (fs_arm_sender(&endpoint.vi, FS_WAITS) or endpoint.gone() or there
                 or not endpoint.moved_sending() and not waits_for_leaver(endpoint))
        end_turn_to_send(endpoint, own)
    return there
