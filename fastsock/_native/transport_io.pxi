# The bytes of a transport on the ring: delivers them to the protocol, and keeps a backlog of those for which the ring has no room.
# Part of transport.pyx.

# ---- called by the queue -------------------------------------------------------------------------------------


cdef int want(Transport self) noexcept:
    """Tells the queue's poller what the transport waits for: bytes to deliver, room for the backlog."""
    cdef uint32_t events = 0
    if self.endpoint is None or self.endpoint.member == NULL:
        return 0
    if self.reading and not self.ended and self.state == OPEN:
        events = FS_IN
    if self.backlog_size:
        events |= FS_OUT_ROOM
    fs_loop_want(self.endpoint.member, events, self.lower_ended)
    return 0


cdef bint progress(Transport self) except -1:
    """Delivers received data and sends the backlog. Returns true if anything was done."""
    cdef bint any = False
    if self.backlog_size:
        any = send_backlog(self)
    if self.endpoint is None or self.ended or not self.reading or self.state != OPEN:
        return any
    if not (self.lower_ended or fs_is(self.endpoint.c, FS_IS_RECEIVING_RING) or fs_switch_reached(self.endpoint.c)):
        return any
    return receive(self, self.lower_ended) or any


cdef int keep_late(Transport self, bytes data) except -1:
    """Stores unread bytes of a connection that falls back to kernel TCP: they come before the kernel's bytes."""
    # The lower transport reads nothing until they are delivered, after the callbacks that are ready now.
    self.late = data if self.late is None else self.late + data
    if self.reading:
        self.lower.pause_reading()
        self.queue.loop.call_soon(self.deliver_kept, context=self.queue.context)
    return 0


# ---- receiving -----------------------------------------------------------------------------------------------


cdef bint receive(Transport self, bint final) except -1:
    """Delivers data from the ring once. Returns true if anything was delivered. `final`: the kernel's stream has ended, so
    no data will follow."""
    cdef int64_t got
    cdef object data
    cdef Py_ssize_t room
    if self.get_buffer is not None:
        return receive_into(self, final)
    room = fs_bytes_on_ring(self.endpoint.c, DELIVERY)
    if room == 0:
        room = 1  # to read the end of the stream, or an error
    data = PyBytes_FromStringAndSize(NULL, room)
    got = fs_try_recv(self.endpoint.c, PyBytes_AS_STRING(data), room, 0, final)
    if got <= 0:
        return received_nothing(self, got)
    deliver(self, data if got == room else data[:got])
    return True


cdef bint receive_into(Transport self, bint final) except -1:
    """Like `receive`, for a BufferedProtocol: copies from the ring into its buffer."""
    cdef Py_buffer view
    cdef int64_t got
    cdef Py_ssize_t room = fs_bytes_on_ring(self.endpoint.c, DELIVERY)
    if room == 0 and not fs_has_stream_end(self.endpoint.c) and not final:
        return False
    try:
        buffer = run_in_context(self, self.get_buffer, room if room else buffer_hint(self.queue))
        PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
        try:
            if not view.len:
                raise RuntimeError("get_buffer() returned an empty buffer")
            if self.endpoint is None:
                return True  # the protocol has closed the connection
            got = fs_try_recv(self.endpoint.c, <char *>view.buf, view.len, 0, final)
        finally:
            PyBuffer_Release(&view)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        no_buffer(self, error)
        return True
    if got <= 0:
        return received_nothing(self, got)
    call_buffer_updated(self, got)
    return True


cdef bint received_nothing(Transport self, int64_t got) except -1:
    """Handles a result without data. Returns true for the end of the stream or an error, false if there is no data yet."""
    if got == -EAGAIN:
        return False
    if got == 0 and fs_ends_with_reset(self.endpoint.c):
        fail(self, -ECONNRESET)  # the loop's own transport has read the error already
    elif got == 0:
        report_eof(self)
    else:
        fail(self, got)
    return True


cdef int drain(Transport self) except -1:
    """Delivers all data in the ring, before the end of the kernel's stream or of the connection is reported."""
    while self.endpoint is not None and not self.ended and self.state == OPEN:
        if not receive(self, True):
            break
    return 0


cdef int deliver_late(Transport self, bytes data) except -1:
    """Delivers bytes of a peer that has fallen back to kernel TCP, after the data in the ring."""
    cdef char nothing
    self.late = data if self.late is None else self.late + data
    while self.reading and self.state == OPEN and self.endpoint is not None and fs_has_bytes_on_ring(self.endpoint.c):
        if not receive(self, False):
            break
    if self.state != OPEN or self.endpoint is None:
        self.late = None
    elif not self.reading:
        self.lower.pause_reading()  # resume_reading continues
    else:
        fs_try_recv(self.endpoint.c, &nothing, 1, MSG_PEEK, False)  # consumes BACK if it was not consumed yet
        data, self.late = self.late, None
        deliver_pieces(self, data)
    return 0


# ---- sending -------------------------------------------------------------------------------------------------


cdef int post(Transport self, const char *data, Py_ssize_t length) except -1:
    """Writes to the ring. Data without room goes to the end of the backlog."""
    cdef int64_t sent = 0
    if length == 0:
        return 0
    self.queue.writes += 1
    if self.backlog_size == 0:
        sent = fs_try_send(self.endpoint.c, data, length, MSG_NOSIGNAL)
        if sent == length:
            return 0
        if sent < 0:
            if sent != -EAGAIN:
                fail(self, sent)
                return 0
            sent = 0
    if self.backlog is None:
        self.backlog = _deque()
    self.backlog.append(PyBytes_FromStringAndSize(data + sent, length - sent))
    self.backlog_size += length - sent
    self.queue.activate(self)  # the queue arms for credits when polling does not pay
    update_paused(self)
    return 0


cdef bint send_backlog(Transport self) except -1:
    """Sends as much of the backlog as there is room for. Returns true if anything was sent."""
    cdef int64_t sent
    cdef bint any = False
    cdef bytes piece
    while self.backlog_size and self.endpoint is not None:
        piece = self.backlog[0]
        sent = fs_try_send(
            self.endpoint.c, PyBytes_AS_STRING(piece) + self.first_sent, PyBytes_GET_SIZE(piece) - self.first_sent, MSG_NOSIGNAL
        )
        if sent < 0:
            if sent != -EAGAIN:
                fail(self, sent)
                return True
            if fs_kernel_is_next(self.endpoint.c):
                hand_backlog_down(self)
                return True
            break
        any = True
        self.backlog_size -= sent
        self.first_sent += sent
        if self.first_sent < PyBytes_GET_SIZE(piece):
            break
        self.backlog.popleft()
        self.first_sent = 0
    if not self.backlog_size:
        want(self)
    if any:
        self.flushing = True
        update_paused(self)
        self.flushing = False
        if not self.backlog_size:
            backlog_is_empty(self)
    return any


cdef int drop_backlog(Transport self) except -1:
    if self.backlog_size:
        self.backlog.clear()
        self.backlog_size = self.first_sent = 0
        want(self)
    return 0


cdef int hand_backlog_down(Transport self) except -1:
    """Moves the backlog to the lower transport, as the peer has fallen back to kernel TCP."""
    cdef list pieces = list(self.backlog)
    pieces[0] = pieces[0][self.first_sent :]
    drop_backlog(self)
    for piece in pieces:
        self.lower.write(piece)
    update_paused(self)
    backlog_is_empty(self)
    return 0


cdef int backlog_is_empty(Transport self) except -1:
    """Completes close or write_eof, which waited for the backlog."""
    if self.state != OPEN:
        end_endpoint(self)
        self.lower.close()
    elif self.write_ended:
        end_sending(self)
    return 0


cdef int end_sending(Transport self) except -1:
    cdef bint stood = False
    if self.entered:
        stood = shutdown(self.endpoint)  # packet FIN: a FIN of the kernel alone means that the peer died
    else:
        drive(self)
        if self.endpoint is not None:
            decide(self.endpoint, FS_REASON_ENDING)
            self.acts_at = INT64_MAX
    try:
        self.lower.write_eof()
    except OSError as error:
        if error.errno != ENOTCONN or not stood:
            raise
    return 0


cdef int update_paused(Transport self) except -1:
    """Calls pause_writing or resume_writing of the program's protocol if the state has changed. This is the only place that
    decides: by the size of the backlog, the limits of the lower transport, and its own pause_writing."""
    cdef bint paused = self.lower_paused
    if not paused and self.backlog_size:
        low, high = self.lower.get_write_buffer_limits()
        if self.protocol_paused:
            paused = self.backlog_size > low
        else:
            paused = self.backlog_size > high and not self.sends_file  # the sender of a file waits itself
    if paused != self.protocol_paused:
        self.protocol_paused = paused
        call_protocol(self, "pause_writing" if paused else "resume_writing")
    return wake_waiters(self)


cdef int wake_waiters(Transport self) except -1:
    """Completes the futures of those who wait until bytes are sent."""
    cdef list waiters = self.waiters
    if waiters is not None:
        self.waiters = None
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
    return 0
