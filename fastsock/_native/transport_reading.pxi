# The receiving side of a transport: what the ring has goes to the protocol.

cdef enum:
    UVLOOP_HINT = 65536  # bytes: what libuv asks for (uv__read). Its protocols may take a size_t, uvloop's SSLProtocol does
    DELIVERY = 262144  # bytes given to a protocol at once, at most: what asyncio's own transports read

cdef bint receive(Transport self, bint final) except -1:
    """One delivery from the ring. Whether anything was delivered. `final`: the kernel's stream has ended, so what the
    ring holds is all."""
    cdef int64_t got
    cdef object data
    cdef Py_ssize_t room
    if self.get_buffer is not None:
        return receive_into(self, final)
    room = fs_available(&self.endpoint.c.vi, DELIVERY)
    if room == 0:
        room = 1  # the end of the stream, or an error
    data = PyBytes_FromStringAndSize(NULL, room)
    got = fs_try_receive(&self.endpoint.c, PyBytes_AS_STRING(data), room, 0, final)
    release_lower(self)
    if got <= 0:
        return received_nothing(self, got)
    deliver(self, data if got == room else data[:got])
    return True


cdef inline Py_ssize_t hint_of(Transport self) noexcept:
    """The size that the loop's own transport would ask a protocol's buffer for."""
    return -1 if self.origin.stdlib else UVLOOP_HINT


cdef bint receive_into(Transport self, bint final) except -1:
    """As `receive`, for a BufferedProtocol: from the ring straight into its buffer."""
    cdef Py_buffer view
    cdef int64_t got
    cdef Py_ssize_t room = fs_available(&self.endpoint.c.vi, DELIVERY)
    if room == 0 and not fs_load_relaxed64(&self.endpoint.c.vi.rx.fin) and not final:
        return False
    try:
        buffer = run_in_context(self, self.get_buffer, room if room else hint_of(self))
        PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
        try:
            if not view.len:
                raise RuntimeError("get_buffer() returned an empty buffer")
            if self.endpoint is None:
                return True  # the protocol has ended the connection
            got = fs_try_receive(&self.endpoint.c, <char *>view.buf, view.len, 0, final)
            release_lower(self)
        finally:
            PyBuffer_Release(&view)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        no_buffer(self, error)
        return True
    if got <= 0:
        return received_nothing(self, got)
    tell_updated(self, got)
    return True


cdef bint received_nothing(Transport self, int64_t got) except -1:
    """`got` is no number of bytes: whether it was news, the end of the stream or an error."""
    if got == -EAGAIN:
        return False
    if got == 0 and fs_ends_with_reset(&self.endpoint.c):
        self.fail(-ECONNRESET)  # the loop's own transport has taken the error from the kernel already
    elif got == 0:
        tell_end(self)
    else:
        self.fail(got)
    return True


cdef int drain(Transport self) except -1:
    """The kernel's stream has ended, or the connection is lost: what lies in the ring comes first."""
    while self.endpoint is not None and not self.ended and not self.closing:
        if not receive(self, True):
            break
    return 0


cdef int deliver_late(Transport self, bytes data) except -1:
    """Bytes of a peer that has gone back to the kernel: they come after what is in the ring."""
    cdef char nothing
    self.late = data if self.late is None else self.late + data
    while self.reading and not self.closing and self.endpoint is not None and fs_waiting(&self.endpoint.c.vi):
        if not receive(self, False):
            break
    if self.closing or self.endpoint is None:
        self.late = None
    elif not self.reading:
        self.lower.pause_reading()  # resume_reading comes back to this
    else:
        fs_try_receive(&self.endpoint.c, &nothing, 1, MSG_PEEK, False)  # sees BACK, if it was not seen yet
        data, self.late = self.late, None
        deliver_pieces(self, data)
    return 0


cdef int deliver_soon(Transport self, bytes data) except -1:
    """Bytes that come before everything else: nothing is read until they are delivered, behind what is ready by now."""
    self.late = data if self.late is None else self.late + data
    if self.reading:
        self.lower.pause_reading()
        self.origin.loop.call_soon(self.deliver_kept, context=self.origin.queue.context)
    return 0


cdef int hold_lower(Transport self) except -1:
    """The loop's transport has read of a plug: leaves the rest where it is, until the plug is answered."""
    if fs_keeps_plug(&self.endpoint.c):
        self.lower_held = True
        self.lower.pause_reading()
    return 0


cdef int release_lower(Transport self) except -1:
    if self.lower_held and not fs_keeps_plug(&self.endpoint.c):
        self.lower_held = False
        if self.reading or self.receives_on_ring():
            self.lower.resume_reading()
    return 0
