# The sending side of an endpoint: the switch to the ring, doorbells, and the plug that keeps POLLOUT away.

cdef enum:  # TCP_NOTSENT_LOWAT: POLLOUT is true, and a send possible, with this much unsent
    ANY_UNSENT = 0   # the default
    NONE_UNSENT = 1  # byte: less than that

cdef void answer_ask(Endpoint self) noexcept nogil:
    """The peer asks for a doorbell byte, since it exposed its descriptor with data already posted; or it has left, or is settled
    after that; or it cannot ring our eventfd any more (wake_peer)."""
    cdef fs_side *own = lock_sending(self)
    answer_leaver(self)
    if fs_load_relaxed(&self.own.moved) & FS_SENDING_BACK and not waits_for_leaver(self):
        tell_pollers(self)
    if not fs_load_relaxed(&self.own.moved) & FS_SENDING_BACK and self.own.posted != fs_load_relaxed(&self.vi.tx.seen):
        ring(self, fs_peer_doorbell(&self.vi) & FS_EXPOSED)
    end_turn_to_send(self, own)
    wake_own(self)


cdef int64_t send_stream(Endpoint self, const char *data, size_t length, int flags) noexcept nogil:
    """Bytes accepted, or -errno; -EAGAIN when there is no credit or no room. `flags` matter to the kernel only:
    without MSG_NOSIGNAL a broken connection raises SIGPIPE."""
    cdef int64_t done = 0, part
    cdef uint32_t doorbell, ready
    cdef int combine
    cdef fs_side *own = take_turn(self, True, PATIENCE)
    if own == NULL:
        return -EAGAIN  # a stopped process has the turn: the caller looks for signals, and tries again
    if not is_attached(self):  # under the lock: another thread may have moved the connection meanwhile
        part = kernel_send(self, data, length, flags)
        end_turn_to_send(self, own)
        return part
    # SYNC: consent - pairs with attach.
    # SYNC: left - pairs with take_back.
    ready = fs_load_sc(&self.vi.tx.ready)
    if ready == FS_LEFT:
        answer_leaver(self)
    if fs_load_relaxed(&own.moved) & (FS_SENDING_BACK | FS_OUT) == FS_SENDING_BACK:
        if not goes_on_in_kernel(self):
            end_turn_to_send(self, own)
            return -EAGAIN if length else 0
    elif ready == FS_READY and length and not fs_load_relaxed(&own.moved) & (FS_SENDING_MOVED | FS_SENDING_BACK):
        switch_sending(self)
    if (fs_load_relaxed64(&self.vi.rx.fin) or fs_load_relaxed(&self.shut_receiving)) and fs_events_now(self.fd, 0):
        peer_lost(self)  # a half-closed peer has died: its FIN was no news, but leave_byte made the kernel find out
    doorbell = fs_load_relaxed(&self.vi.tx.doorbell)
    if doorbell & (FS_SHUT | FS_GONE) == FS_SHUT and self.moved_sending() and not fs_load_relaxed(&self.lost) and not self.own.fin_sent:
        if not fs_writable(&self.vi):
            end_turn_to_send(self, own)
            return -EAGAIN if length else 0
        fs_store_relaxed(&self.lost, 1)  # there is room, and what is sent now draws a reset
    if (not self.moved_sending() or fs_load_relaxed(&self.lost) or self.own.fin_sent or is_broken(self)
            or fs_load_relaxed(&self.own.moved) & FS_SENDING_BACK or doorbell & FS_GONE):
        # Not moved yet, moved back, or nobody is left to read the ring: the kernel gives TCP's answer.
        part = refusal(self)
        if part == 0:
            part = send_in_kernel(self, data, length, flags)
            if self.gone():
                part = tell_of_kernel(self, part)
        return part if end_turn_to_send(self, own) else VIOLATED
    combine = self.vi.combine_limit and not is_nodelay(self) and length <= self.vi.combine_limit
    while done < <int64_t>length:
        part = post_and_ring(self, data + done, length - <size_t>done, combine)
        if part > 0:
            done += part
        if part < 0:
            done = VIOLATED
        if part <= 0:
            break
    note_processor(self)
    if fs_in_flight(self.own):
        watch_lifeline(self)
    if self.vi.violation != NULL:
        done = VIOLATED
    if not end_turn_to_send(self, own):
        done = VIOLATED
    return done if done or not length else -EAGAIN


cdef int64_t post_and_ring(Endpoint self, const char *data, size_t length, int combine) noexcept nogil:
    """Posts one descriptor's worth, and tells a receiver that sleeps or whose descriptor may be polled. As fs_post."""
    cdef int counted = 0
    cdef bint lacks = False
    cdef uint32_t doorbell = 0
    cdef int ringing = fs_begin_ringing(&self.vi)
    cdef int64_t part = fs_post(&self.vi, data, length, FS_DATA, combine, &counted if ringing else NULL)
    if part > 0:
        doorbell = fs_peer_doorbell(&self.vi)
        # (A peer that has ended its stream: see leave_byte.)
        lacks = (doorbell & FS_EXPOSED or fs_load_relaxed64(&self.vi.rx.fin) or fs_load_relaxed(&self.shut_receiving)) and fs_all_heard(&self.vi)
    if ringing and not lacks:
        fs_end_ringing(&self.vi)
    if counted:
        send_doorbell_byte(self)
    if doorbell:
        doorbell &= ~<uint32_t>FS_EXPOSED
    if lacks:
        doorbell |= FS_EXPOSED
    if doorbell:
        ring(self, doorbell)
    if ringing and lacks:
        fs_end_ringing(&self.vi)
    return part


cdef bint plug_full_ring(Endpoint self) noexcept nogil:
    """At the end of a send on an exposed descriptor. True if the ring is full and POLLOUT is false now."""
    cdef bint full = False
    cdef fs_side *own = take_turn(self, True, PATIENCE)
    if own == NULL:
        return True
    if self.moved_sending() and not fs_load_relaxed(&self.lost) and not fs_writable(&self.vi):
        if fs_begin_plug(&self.vi):
            full = plug(self)
        fs_end_ringing(&self.vi)
    end_turn_to_send(self, own)
    return full


cdef int64_t kernel_send(Endpoint self, const char *data, size_t length, int flags) noexcept nogil:
    cdef int64_t part = sys_send(self.fd, data, length, flags | MSG_DONTWAIT)
    return part if part >= 0 else -errno


cdef int64_t send_in_kernel(Endpoint self, const char *data, size_t length, int flags) noexcept nogil:
    """kernel_send on a connection that has a region: doorbell bytes that are owed come first."""
    return kernel_send(self, data, length, flags) if send_owed(self) else -EAGAIN


cdef void owe_bytes(Endpoint self, uint32_t count) noexcept nogil:
    """So many of the bytes that were counted as rung have not been sent: now, or without the turn when that ends. Under the send
    lock."""
    cdef bint owed = self.own.bytes_unsent != 0
    self.own.bytes_unsent = count
    if not send_owed(self) and not owed:  # once is enough
        self.own.unsent_since = fs_now()
        self.late_sending = True


cdef bint send_owed(Endpoint self) noexcept nogil:
    """Sends the doorbell bytes, urgent ones among them, that were counted as rung and not sent. False if there is no room for all
    of them. What the peer has counted as taken, and is only about to take, does not hold them back: there is room behind
    the largest plug, beyond the low-water mark. Under the send lock."""
    cdef int64_t part
    # (Without its descriptor nothing of this process goes out any more; the bytes are another holder's to send.)
    if not self.own.bytes_unsent or self.fd < 0:
        return True
    part = send_owed_now(self)
    if part == -EAGAIN:
        widen(self)
        if self.plugs:
            fs_set_option(self.fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, ANY_UNSENT)
        part = send_owed_now(self)
        if self.plugs:
            fs_set_option(self.fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, NONE_UNSENT)
    if part < 0 and part != -EAGAIN and fs_inode(self.fd) == self.inode:
        self.own.bytes_unsent = 0  # nothing goes out any more (what a stranger behind the number says means nothing)
    return part != -EAGAIN


cdef bint owes_nothing(Endpoint self) noexcept nogil:
    """Whether the doorbell bytes that were counted as rung are out. Sends what there is room for. False also if a stopped process has
    the turn."""
    cdef bint out
    cdef fs_side *own = take_turn(self, True, PATIENCE)
    if own == NULL:
        return False
    out = send_owed(self)
    end_turn_to_send(self, own)
    return out


cdef int64_t send_owed_now(Endpoint self) noexcept nogil:
    """As far as there is room. 0: all of them, or -errno."""
    cdef int64_t part
    cdef uint64_t urgent
    cdef fs_side *own = self.own
    while own.bytes_unsent:
        urgent = fs_load_relaxed64(&self.vi.tx.urgent)  # its place among those that were counted
        if urgent and <uint32_t>urgent == fs_load_relaxed(&self.vi.tx.rung) - own.bytes_unsent + 1:
            part = kernel_send(self, <char *>&own.urgent_byte, 1, MSG_OOB | MSG_NOSIGNAL)
        else:
            part = kernel_send(self, junk, 1, MSG_NOSIGNAL)
        if part < 0:
            return part
        own.bytes_unsent -= 1
    return 0


cdef bint take_late(Endpoint self, fs_side *own) noexcept nogil:
    """Whether this turn is the one that waits for room when it has ended. Under the send lock."""
    cdef bint late = self.late_sending
    self.late_sending = False
    if own.bytes_unsent and not late and fs_now() - own.unsent_since > <int64_t>2 * BYTE_NS:
        # Whoever waited was killed or stopped, or somebody who was stopped had the turn for so long.
        own.unsent_since = fs_now()
        late = True
    return late


cdef bint end_turn_to_send(Endpoint self, fs_side *own) noexcept nogil:
    """Gives back the send lock, and sends then what doorbell bytes the kernel had no room for. As await_room."""
    cdef bint late = take_late(self, own)
    fs_unlock(&own.send_lock)
    return not late or await_room(self)


cdef bint await_room(Endpoint self) noexcept nogil:
    """Waits until the kernel has room for the doorbell bytes that are owed: the system is short of memory, or the send buffer may
    not be widened. Without the turn: another holder that sends meanwhile sends them, and one whose turn ends later waits if this
    one cannot (take_late). False if the peer takes none of those that lie there: one at a time is sent, and it has
    counted them as taken."""
    cdef fs_side *own
    cdef bint sent = False, over = False
    cdef uint32_t left = 0
    cdef int64_t deadline = fs_now() + <int64_t>2 * BYTE_NS  # from then on the one that has the turn knows that nobody waits
    while not sent and not over:
        fs_nap_aside()
        own = take_turn(self, True, PATIENCE)
        if own == NULL:
            if fs_now() >= deadline:
                return True  # a stopped process has the turn
            continue
        left = max(left, own.bytes_unsent)
        sent = not is_attached(self) or send_owed(self)
        if not sent and own.bytes_unsent < left:
            # Some went out: the time begins anew. (Only here: by it others know that somebody waits.)
            own.unsent_since = fs_now()
            deadline = own.unsent_since + <int64_t>2 * BYTE_NS
        left = own.bytes_unsent
        if not sent and fs_now() - own.unsent_since >= <int64_t>BYTE_NS:
            over = True
            self.vi.violation = b"stopped reading its doorbell"
        self.late_sending = False
        fs_unlock(&own.send_lock)
    return sent


cdef void widen(Endpoint self) noexcept nogil:
    """Makes the kernel's send buffer take a plug, and doorbell bytes behind it. (If it has grown larger by itself it stays
    so: what the program sent before the switch may lie in it, and would leave no room in a smaller one.)"""
    cdef uint32_t before = fs_load_relaxed(&self.send_buffer_before)
    if not before:
        before = <uint32_t>fs_option(self.fd, SOL_SOCKET, SO_SNDBUF)
        fs_store_relaxed(&self.send_buffer_before, before)
    if before < WIDENED:
        fs_set_option(self.fd, SOL_SOCKET, SO_SNDBUF, WIDENED // 2)  # (the kernel doubles it)


cdef int64_t send_urgent(Endpoint self, const char *data, size_t length) noexcept nogil:
    """MSG_OOB: all but the last byte are ordinary data; the last one takes its place in the ring and is rung
    on the kernel connection as urgent, which gives the peer its POLLPRI and SIGURG."""
    cdef int64_t part
    cdef fs_side *own
    if length == 0:
        return -EAGAIN
    own = take_turn(self, True, PATIENCE)
    if own == NULL:
        return -EAGAIN
    answer_leaver(self)
    if held(self):
        end_turn_to_send(self, own)
        return -EAGAIN
    if not fs_load_relaxed(&self.own.moved) & FS_SENDING_MOVED and fs_load_sc(&self.vi.tx.ready) == FS_READY:
        self.move_sending()
    if not self.moved_sending() or self.own.fin_sent or self.gone():
        part = send_in_kernel(self, data, length, MSG_OOB)
        end_turn_to_send(self, own)
        return part
    part = post_and_ring(self, data, length - 1, 0) if length > 1 else post_urgent(self, data)
    if not end_turn_to_send(self, own):
        part = -1
    return part if part > 0 else (-EAGAIN if part == 0 else VIOLATED)


cdef int64_t post_urgent(Endpoint self, const char *byte) noexcept nogil:
    """As post_and_ring. A doorbell byte follows the urgent one, which alone does not make the descriptor readable."""
    cdef bint counted
    cdef uint32_t doorbell
    cdef int64_t part
    cdef int ringing = fs_begin_ringing(&self.vi)
    cdef unsigned char before = self.own.urgent_byte  # may be owed
    self.own.urgent_byte = <unsigned char>byte[0]  # before it is counted: see mending.pxi
    if not fs_count_urgent(&self.vi):
        self.own.urgent_byte = before
        if ringing:
            fs_end_ringing(&self.vi)
        return 0 if self.vi.violation == NULL else -1
    counted = ringing and fs_count_ring(&self.vi)
    part = fs_post(&self.vi, byte, 1, FS_OOB, 0, NULL)  # (there is credit)
    doorbell = fs_peer_doorbell(&self.vi)
    if ringing:
        fs_end_ringing(&self.vi)
    owe_bytes(self, self.own.bytes_unsent + 1 + counted)
    if counted:
        doorbell &= ~<uint32_t>FS_EXPOSED
        fs_count(&self.vi.count.doorbells_rung, 1)
    if doorbell:
        ring(self, doorbell)
    return part


cdef void switch_sending(Endpoint self) noexcept nogil:
    """The switch: records how many bytes went through the kernel; from here on it carries doorbell bytes."""
    cdef uint64_t sent, received
    cdef char state
    # Doorbell bytes will need room behind what the peer has not read yet.
    if not fs_events_now(self.fd, POLLOUT) & POLLOUT or not tcp_bytes(self.fd, &state, &sent, &received):
        return
    if state != TCP_ESTABLISHED and state != TCP_CLOSE_WAIT:
        return  # our stream has ended, or the connection: POLLOUT means an error, and a FIN counts as a byte sent
    fs_set_option(self.fd, IPPROTO_TCP, TCP_NODELAY, 1)  # a doorbell byte waits for no ACK
    # SYNC: switch - pairs with take_kernel.
    fs_store_sc64(&self.vi.tx.switch_at, sent + 1)
    fs_or_sc(&self.own.moved, FS_SENDING_MOVED)


cdef void ring(Endpoint self, uint32_t doorbell) noexcept nogil:
    """The peer sleeps, polls its descriptor, or has closed. Under the send lock."""
    # (A descriptor that is shut in both directions is readable anyway, and its kernel would answer a byte with RST. So is one
    # whose peer, we, has ended its stream: our kernel takes no byte then, and one that was counted would never come.)
    if (doorbell & FS_EXPOSED and not fs_peer_doorbell(&self.vi) & FS_SHUT
            and fs_load_sc64(&self.vi.tx.fin) & KIND != FS_FIN and fs_count_ring(&self.vi)):
        send_doorbell_byte(self)
    # After the byte: whoever wakes up and drains the ring must find it, else it would lie there afterwards.
    if doorbell & FS_ASLEEP and fs_wakes_receiver(&self.vi):
        wake_peer(self)
    if doorbell & FS_GONE:
        fs_store_relaxed(&self.lost, 1)
        # Draws the RST that data to a closed socket draws. (Counted: it may be about to close, and reads the byte.)
        fs_store_sc(&self.vi.tx.rung, fs_load_relaxed(&self.vi.tx.rung) + 1)
        kernel_send(self, junk, 1, MSG_NOSIGNAL)


cdef void send_doorbell_byte(Endpoint self) noexcept nogil:
    """The byte that was accounted."""
    fs_count(&self.vi.count.doorbells_rung, 1)
    fs_count(&self.vi.count.system_calls, 1)
    owe_bytes(self, self.own.bytes_unsent + 1)


cdef void wake_peer(Endpoint self) noexcept nogil:
    """The peer sleeps on its eventfd."""
    tell_peer(self)
    fs_count(&self.vi.count.doorbells_rung, 1)
    fs_count(&self.vi.count.system_calls, 2)


cdef void tell_peer(Endpoint self) noexcept nogil:
    """Rings the peer's eventfd. If the program has closed our descriptor of it, the peer's connection thread is asked to, which
    many may ask at a time."""
    cdef int tries = 0
    if fs_ring_eventfd(self.peer_fd):
        return
    while ask_peer(self, -1) == -EAGAIN and tries < 20:
        sched_yield()
        tries += 1


cdef void wake_own(Endpoint self) noexcept nogil:
    """Threads and processes of this side, and its loop."""
    fs_ring_eventfd(self.wake_fd)


cdef void note_limits(Endpoint self, uint32_t receive, uint32_t send) noexcept:
    """Endpoint.limit_buffers. In both turns, also of a connection that has no region yet: `attach` finds the limits, or they find
    the region."""
    cdef fs_side *own
    with nogil:
        own = lock_both(self)
        self.receive_limit = receive
        self.send_limit = send
        if send and fs_load_relaxed(&self.send_buffer_before):
            fs_store_relaxed(&self.send_buffer_before, send)
        if is_attached(self):
            limit_on_ring(self)
        end_both(self, own)


cdef void limit_on_ring(Endpoint self) noexcept nogil:
    """SO_RCVBUF or SO_SNDBUF was set in the middle."""
    fs_limit_sends(&self.vi, self.send_limit)
    fs_store_sc(&self.vi.rx.limit, self.receive_limit)
    if self.receive_limit:
        self.vi.ack_threshold = 1
    answer_credit_wait(self)  # what is read counts no more, as in TCP


cdef bint plug(Endpoint self) noexcept nogil:
    """The ring is full and somebody may wait for POLLOUT: fill the kernel's send buffer, which makes it false,
    until the receiver returns credits and drains it. False if credits came meanwhile."""
    cdef int64_t part
    cdef int unsent = 0, unacknowledged = 0, most
    cdef int64_t whole = 0
    cdef uint32_t limit = fs_load_relaxed(&self.vi.tx.limit)
    cdef size_t piece = min(max(limit // 8, 256), PLUG_PIECE) if limit else PLUG_PIECE
    cdef bint room = send_owed(self)  # in front of it; if there is no room for that, POLLOUT is false
    widen(self)
    if self.plugs:
        fs_set_option(self.fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, ANY_UNSENT)
    self.plugs = True
    most = fs_option(self.fd, SOL_SOCKET, SO_SNDBUF) // 2  # the rest is for doorbell bytes
    # A peer that takes the plug out as fast as it is put in must not keep us here. (One of ours returns credits first.)
    while (room and whole < PLUG_MOST and not fs_writable(&self.vi)
           and sys_ioctl(self.fd, SIOCOUTQNSD, &unsent) == 0 and unsent < PLUG
           and sys_ioctl(self.fd, SIOCOUTQ, &unacknowledged) == 0 and unacknowledged < most):
        part = kernel_send(self, junk, piece, MSG_NOSIGNAL | MSG_EOR)
        if part <= 0:
            break
        whole += part
        fs_store_sc(&self.vi.tx.rung, fs_load_relaxed(&self.vi.tx.rung) + <uint32_t>part)
    # POLLOUT now needs an empty send queue. What the peer's window holds is acknowledged sooner or later; what
    # lies behind it stays unsent until the peer drains.
    fs_set_option(self.fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, NONE_UNSENT)
    return not fs_writable(&self.vi)
