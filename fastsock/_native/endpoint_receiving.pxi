# The receiving side of an endpoint: the kernel's part of the stream, then the ring, and the end of either.

cdef int64_t take_stream(Endpoint self, char *into, size_t room, int flags, bint final) noexcept nogil:
    """try_receive, under the receive lock."""
    cdef int64_t got
    cdef uint64_t end
    cdef int looks
    if not is_attached(self) or fs_load_relaxed(&self.own.moved) & (FS_RECEIVING_BACK | FS_COLLECTING):
        if collecting(self):
            return beside_collector(self)
        if is_attached(self) and self.own.doorbell_debt:
            swallow(self, 0)
            if self.own.doorbell_debt:
                return -EAGAIN  # what comes first are doorbell bytes
        if fs_load_relaxed(&self.pending_error):
            return take_error(self)
        got = sys_recv(self.fd, into, room, flags | MSG_DONTWAIT)
        return got if got >= 0 else -errno
    if is_broken(self):
        return 0
    if not self.moved_receiving():
        got = take_kernel(self, into, room, flags)
        if got != MOVED:
            return got
    for looks in range(4):
        got = fs_take(&self.vi, NULL if flags & MSG_TRUNC else into, room, FS_PEEK if flags & MSG_PEEK else FS_CONSUME)
        if got < 0:
            return VIOLATED
        if got > 0:
            if not flags & MSG_PEEK:
                if fs_peer_credit_wait(&self.vi):
                    answer_credit_wait(self)
                if fs_load_relaxed(&self.vi.rx.doorbell) & FS_EXPOSED and (
                        not fs_waiting(&self.vi) or fs_load_relaxed(&self.vi.rx.rung)
                        - fs_load_relaxed(&self.vi.rx.heard) >= FS_EDGES):
                    self.quiet()
                if fs_load_relaxed64(&self.vi.rx.fin) and fs_end(&self.vi) == FS_BACK:
                    go_back_receiving(self)  # now, so that no doorbell byte stays behind
            return got
        if fs_load_relaxed(&self.own.fin_taken) == 1:
            return 0
        end = fs_end(&self.vi)
        if end == 1:
            return VIOLATED
        if end == FS_FIN:
            fs_store_relaxed(&self.own.fin_taken, 1)
            fs_store_sc(&self.vi.rx.finack, 1)
            self.quiet()
            return 0
        if end == FS_BACK:
            go_back_receiving(self)
            return take_stream(self, into, room, flags, final)
        if end == FS_RESET and fs_load_relaxed(&self.own.fin_taken) == 0:
            fs_store_relaxed(&self.own.fin_taken, 2)  # the kernel's RST follows and says the rest
        if fs_load_relaxed(&self.pending_error):
            return take_error(self)
        if not final and end == 0:
            return -EAGAIN
        got = look_at_lifeline(self)
        if got == -EAGAIN:
            return got
        # The peer is gone. What it posted before is visible now: look once more, then believe the kernel.
        if not fs_waiting(&self.vi):
            return got
        if got < 0:
            fs_store_relaxed(&self.pending_error, <uint32_t>-got)
    return -EAGAIN


cdef int64_t take_error(Endpoint self) noexcept nogil:
    """An error that the kernel has told already, and that comes after the bytes that were there."""
    cdef int64_t error = -<int64_t>fs_load_relaxed(&self.pending_error)
    fs_store_relaxed(&self.pending_error, 0)
    return tell_of_kernel(self, error)


cdef bint kernel_part_read(Endpoint self, uint64_t switch_at) noexcept nogil:
    """Whether the kernel's stream was read up to the switch; an urgent byte may lie in front of it, which can still be read
    apart and is no part of the stream. What recv returned does not count those that it passed over."""
    cdef uint64_t position
    cdef int64_t mark
    return kernel_position(self, &position, &mark) and (
        position >= switch_at - 1 or position == switch_at - 2 and mark == 0)


cdef int64_t take_kernel(Endpoint self, char *into, size_t room, int flags) noexcept nogil:
    """The part of the stream that came before the peer's switch. MOVED when it is exhausted."""
    cdef uint64_t switch_at, here, left, limit
    cdef int64_t got, more, mark
    cdef char byte
    while True:
        # Count first, look for the switch then: doorbell bytes only ever follow the switch, so what was
        # counted before an unset switch is the program's.
        here = 0
        mark = -1
        kernel_waiting(self.fd, &here, &mark)
        left = here
        # SYNC: switch - pairs with move_sending.
        switch_at = fs_load_sc64(&self.vi.rx.switch_at)
        if switch_at:
            left = switch_at - 1 - self.own.kernel_taken
            if left > <uint64_t>1 << 62:
                self.vi.violation = b"switch offset in the past"
                return VIOLATED
            if left and kernel_part_read(self, switch_at):
                left = 0
                self.own.kernel_taken = switch_at - 1
            if left == 0:
                move_receiving(self)
                return MOVED
            # Count again: all of it may have come by now, and what was not counted is not read. Recv would pass over an
            # urgent byte in front, and go on behind the switch.
            kernel_waiting(self.fd, &here, &mark)
        if here == 0 or here == 1 and mark == 0:
            if fs_load_relaxed(&self.pending_error):
                return take_error(self)  # of a receive that had taken bytes already
            got = sys_recv(self.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT)
            if got > 0 or (got == 0 and not switch_at and fs_load_sc64(&self.vi.rx.switch_at)):
                continue  # came just now
            if got < 0:
                return kernel_failed(self, errno) if errno != EAGAIN else -EAGAIN
            # (With a FIN in the ring the peer has ended its stream, and lives.)
            return stream_ended(self) if not fs_load_sc64(&self.vi.rx.fin) else 0
        limit = min(here, left)
        if mark == 0:
            limit -= 1
        elif 0 < mark < <int64_t>limit:
            limit = <uint64_t>mark
        got = sys_recv(self.fd, into, room if room < limit else limit, flags | MSG_DONTWAIT)
        if got < 0:
            return -errno
        if mark == 0 and got:
            left -= 1
            if not flags & MSG_PEEK:
                self.own.kernel_taken += 1
        if not flags & MSG_PEEK:
            self.own.kernel_taken += <uint64_t>got
        if switch_at and <uint64_t>got == left and room > left:
            # The rest of the kernel's part: go on in the ring, where TCP would have gone on too.
            more = 0
            if flags & MSG_PEEK:
                more = fs_take(&self.vi, NULL if flags & MSG_TRUNC else into + got, room - <size_t>got, FS_PEEK)
            elif fs_waiting(&self.vi):
                move_receiving(self)
                more = take_stream(self, into + got, room - <size_t>got, flags, False)
            got += more if more > 0 else 0
        return got


cdef void move_receiving(Endpoint self) noexcept nogil:
    """The kernel's part of the stream has been read."""
    # Not before: an urgent byte that came over the kernel belongs in line as the option says.
    fs_set_option(self.fd, SOL_SOCKET, SO_OOBINLINE, 0)
    fs_or_sc(&self.own.moved, FS_RECEIVING_MOVED)
    hold_receive_buffer(self)


cdef void keep_receive_buffer(Endpoint self) noexcept nogil:
    """At the attachment. A buffer that has not grown yet does not grow any more. One that has grown is not held before the
    kernel's part of the stream has been read: megabytes of that may lie in the peer's kernel, and would come through the
    small window a bit at a time, each after the kernel's timer of 200 ms."""
    if fs_option(self.fd, SOL_SOCKET, SO_RCVBUF) <= HELD_BUFFER:
        hold_receive_buffer(self)


cdef void hold_receive_buffer(Endpoint self) noexcept nogil:
    """The kernel's queue is for doorbell bytes now. It would grow with plugs that are read fast, and so would the next
    plug; a size that was set does not grow. One that has grown shrinks once the window that it offered is used up."""
    cdef int size
    cdef uint32_t heard = fs_load_relaxed(&self.vi.rx.heard)
    if self.receive_limit:
        return  # the program has set it
    size = fs_option(self.fd, SOL_SOCKET, SO_RCVBUF)
    if size <= HELD_BUFFER or self.receive_buffer_grown and heard - self.held_from > <uint32_t>size:
        size = min(size, HELD_BUFFER)
        fs_set_option(self.fd, SOL_SOCKET, SO_RCVBUF, size // 2)  # (the kernel doubles it)
        self.receive_buffer_grown = False
        return
    if not self.receive_buffer_grown:
        self.receive_buffer_grown = True
        self.held_from = heard
    fs_set_option(self.fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, HELD_BUFFER // 4)


cdef void free_receive_buffer(Endpoint self) noexcept nogil:
    """The kernel's queue is the program's again."""
    if not self.receive_limit:
        fs_set_option(self.fd, SOL_SOCKET, SO_RCVBUF, FREED_BUFFER)
        fs_set_option(self.fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, FREED_BUFFER)


cdef void answer_credit_wait(Endpoint self) noexcept nogil:
    """The peer waits for credits: acknowledge, wake it, take the plug out of its send buffer. The plug only once a third
    of the window is free, as POLLOUT means a third of the buffer in TCP: else each read would cost a plug."""
    cdef uint32_t wants, keep = 0, consumed = fs_load_relaxed(&self.own.consumed)
    if fs_peer_credit_wait(&self.vi) & FS_PLUGGED:
        if not self.plug_seen:
            self.plug_seen = True
            self.plug_seen_at = consumed
        if fs_waiting(&self.vi) and consumed - self.plug_seen_at < self.vi.window // 3:
            keep = FS_PLUGGED
        else:
            self.plug_seen = False
    fs_acknowledge(&self.vi)
    wants = fs_answer_sender(&self.vi, keep)
    if wants & FS_WAITS:
        wake_peer(self)
    if wants & FS_PLUGGED:
        take_doorbell_bytes(self)


cdef void take_doorbell_bytes(Endpoint self) noexcept nogil:
    """After a read: the kernel's queue then holds doorbell bytes exactly while something waits in the ring."""
    if not self.moved_receiving():
        return  # the program's bytes come first
    if not post_ends(self):
        self.late |= LATE_AGAIN if self.peer_late else LATE_POST
        return
    hear_doorbell_bytes(self)


cdef void hear_doorbell_bytes(Endpoint self) noexcept nogil:
    """take_doorbell_bytes, whether or not the peer is in a post."""
    if fs_peer_credit_wait(&self.vi) & FS_PLUGGED and fs_waiting(&self.vi):
        return  # a plug, perhaps a new one: for answer_credit_wait
    swallow(self, fs_hush(&self.vi))
    if self.receive_buffer_grown:
        hold_receive_buffer(self)


cdef bint post_ends(Endpoint self) noexcept nogil:
    """Whether the peer is in no post, or is seen to end it: it is within a few instructions of that. If it does not get there it
    is in a plug, or was interrupted, perhaps by us: then it needs a processor, and we do not wait for that in our turn."""
    cdef int tries
    for tries in range(POST_LOOKS):
        if not fs_ringing(&self.vi):
            return True
        fs_pause()
    return not fs_ringing(&self.vi)


cdef int await_post(Endpoint self, int64_t patience) noexcept nogil:
    """Takes the doorbell bytes that a turn has left in the kernel's queue (LATE_POST), once the peer's post has ended or after
    `patience` nanoseconds. What is late then."""
    cdef fs_side *own
    cdef int late
    cdef int64_t deadline = fs_now() + patience
    while True:
        fs_await_post(&self.vi, deadline)
        own = take_turn(self, False, PATIENCE)
        if own == NULL:
            return 0  # a stopped process has the turn: the next one takes them
        if not is_attached(self) or not self.moved_receiving() or not fs_ringing(&self.vi):
            break
        if fs_now() >= deadline:
            self.peer_late = True  # stopped, killed or hostile: once is enough
            break
        fs_unlock(&own.recv_lock)  # the next post
    if is_attached(self) and self.moved_receiving():
        hear_doorbell_bytes(self)
    late, self.late = self.late, 0
    fs_unlock(&own.recv_lock)
    return late


cdef void swallow(Endpoint self, uint64_t count) noexcept nogil:
    """Takes `count` doorbell bytes from the kernel's queue, and those that are owed. `doorbell_debt` has all of them until they
    are taken, so that it does not matter who takes them. The end of the turn waits for those that do not come at once. Under the
    receive lock."""
    cdef bint owed = self.own.doorbell_debt != 0
    cdef bint urgent = fs_load_relaxed64(&self.vi.rx.urgent) != 0
    self.own.doorbell_debt += <uint32_t>count
    if not urgent or not swallow_by_place(self):
        if urgent:
            fs_set_option(self.fd, SOL_SOCKET, SO_OOBINLINE, 1)
        swallow_counted(self)
        if urgent:
            fs_set_option(self.fd, SOL_SOCKET, SO_OOBINLINE, self.vi.oob_inline and not self.moved_receiving())
    if self.own.doorbell_debt and not owed:  # once is enough
        self.late |= LATE_BYTES


cdef bint end_turn_to_receive(Endpoint self, fs_side *own) noexcept nogil:
    """Gives back the receive lock, and waits then for what is late. Whether doorbell bytes were taken only then, which may have
    hidden the end of the kernel's stream."""
    cdef int late = self.late
    self.late = 0
    fs_unlock(&own.recv_lock)
    if late:
        await_late(self, late)
    return late & (LATE_POST | LATE_AGAIN) != 0


cdef void end_both(Endpoint self, fs_side *own) noexcept nogil:
    """unlock_both, with what the end of each turn waits for."""
    cdef int late = self.late
    cdef bint late_sending = take_late(self, own)
    self.late = 0
    unlock_both(own)
    if late:
        await_late(self, late)
    if late_sending:
        await_room(self)


cdef void await_late(Endpoint self, int late) noexcept nogil:
    """Waits for what a turn has found to be on its way, a few milliseconds for a post and its doorbell bytes: whoever looked at the
    descriptor after this call would take a late byte for data. Without the turn: another holder that receives meanwhile, and one that is
    killed, leaves what is still owed in `doorbell_debt`, and each look starts from that."""
    cdef int tries
    cdef bint owed
    cdef fs_side *own
    if late & (LATE_POST | LATE_AGAIN):
        late |= await_post(self, LATE_NS if late & LATE_AGAIN else RINGING_NS)
    if late & LATE_REQUEST:  # perhaps of a dead holder whose turn await_post took over
        press(self)
    if not late & LATE_BYTES:
        return
    for tries in range(SWALLOW_MS):
        fs_await_byte(self.fd)
        own = take_turn(self, False, PATIENCE)
        if own == NULL:
            continue
        if is_attached(self) and own.doorbell_debt:
            swallow(self, 0)
        owed = is_attached(self) and own.doorbell_debt
        fs_unlock(&own.recv_lock)
        if not owed:
            return


cdef void swallow_counted(Endpoint self) noexcept nogil:
    cdef int64_t got
    cdef int tries = 0
    while self.own.doorbell_debt and tries < BYTE_LOOKS:
        # Nothing is written to `junk`, but the kernel checks that all of it could be: no more than there is.
        got = look_in_kernel(self, junk, min(<size_t>self.own.doorbell_debt, sizeof(junk)), MSG_TRUNC)
        if got > 0:
            self.own.doorbell_debt -= <uint32_t>got
        elif got == -EAGAIN:
            tries += 1  # counted by the peer, but not sent yet: it is in between, or was interrupted there
            fs_pause()
        else:
            if got < 0:
                fs_store_relaxed(&self.pending_error, <uint32_t>-got)
            self.own.doorbell_debt = 0  # nothing comes any more


cdef bint swallow_by_place(Endpoint self) noexcept nogil:
    """swallow, where urgent bytes are among the doorbell bytes: recv passes over them, and where two of them meet so does the
    kernel. So it is not counted how many were taken: it is asked how far the queue was read.
    False: the kernel does not tell; the rest is owed."""
    cdef uint64_t position
    cdef int64_t mark, got
    cdef int tries = 0, inline
    cdef uint32_t missing
    while kernel_position(self, &position, &mark):
        missing = fs_load_relaxed(&self.vi.rx.heard) - <uint32_t>(position + 1 - fs_load_sc64(&self.vi.rx.switch_at))
        self.own.doorbell_debt = missing if <int32_t>missing > 0 else 0
        if not self.own.doorbell_debt or tries == BYTE_LOOKS:
            return True
        inline = fs_option(self.fd, SOL_SOCKET, SO_OOBINLINE)
        fs_set_option(self.fd, SOL_SOCKET, SO_OOBINLINE, 1)  # takes the urgent byte with the others
        got = look_in_kernel(self, junk, min(<size_t>missing, sizeof(junk)), MSG_TRUNC)
        fs_set_option(self.fd, SOL_SOCKET, SO_OOBINLINE, inline)
        if got > 0:
            self.own.doorbell_debt = missing - <uint32_t>got
        elif got == -EAGAIN:
            tries += 1
            fs_pause()
        else:
            if got < 0:
                fs_store_relaxed(&self.pending_error, <uint32_t>-got)
            self.own.doorbell_debt = 0  # nothing comes any more
            return True
    return False


cdef bint tell_exposed(Endpoint self) noexcept nogil:
    """`exposed` was set: on the ring the peer is told. Under the receive lock, where a thread that goes to sleep looks at
    `exposed`, and takes back what is told if it was not set. Whether the ring is read."""
    cdef fs_side *own = lock_receiving(self)
    cdef bint told = is_attached(self)  # (a bridge may have come meanwhile)
    if told:
        # SYNC: exposed - by the receive lock, with sleep_for.
        fs_or_sc(&self.vi.rx.doorbell, FS_EXPOSED)
        told = not fs_load_relaxed(&own.moved) & FS_RECEIVING_BACK
        if self.moved_receiving() and not fs_waiting(&self.vi):
            self.quiet()  # of a byte behind which nothing waits: leave_byte
    end_turn_to_receive(self, own)
    return told


cdef void put_oob_inline(Endpoint self, bint inline) noexcept nogil:
    """The ring's option; the kernel's too, until the kernel's part of the stream has been read."""
    cdef fs_side *own = lock_receiving(self)
    self.vi.oob_inline = inline
    if not self.moved_receiving():
        fs_set_option(self.fd, SOL_SOCKET, SO_OOBINLINE, inline)
    fs_unlock(&own.recv_lock)
