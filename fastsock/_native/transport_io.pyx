# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=False
"""Receiving and sending of transports on the ring: delivers data to the protocol, and keeps a backlog of data for which
the ring has no room.
"""

from libc.stdint cimport int64_t
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from fastsock._native.core cimport *
from fastsock._native.core_ring cimport *
from fastsock._native.loop_connection cimport DELIVERY, LoopConnection, call_protocol, deliver, deliver_pieces, no_buffer
from fastsock._native.loop_connection cimport receives_on_ring, run_in_context, report_eof, call_buffer_updated

from collections import deque as _deque

cdef enum:
    UVLOOP_HINT = 65536  # bytes that libuv asks for (uv__read); uvloop's SSLProtocol takes a size_t, so -1 is not possible


# ---- receiving -----------------------------------------------------------------------------------------------


cdef bint receive(LoopConnection self, bint final) except -1:
    """Delivers data from the ring once. Returns true if anything was delivered. `final`: the kernel's stream has ended, so
    no data will follow."""
    cdef int64_t got
    cdef object data
    cdef Py_ssize_t room
    if self.get_buffer is not None:
        return receive_into(self, final)
    room = fs_available(&self.endpoint.c.ring, DELIVERY)
    if room == 0:
        room = 1  # to read the end of the stream, or an error
    data = PyBytes_FromStringAndSize(NULL, room)
    got = fs_try_recv(&self.endpoint.c, PyBytes_AS_STRING(data), room, 0, final)
    release_lower(self)
    if got <= 0:
        return received_nothing(self, got)
    deliver(self, data if got == room else data[:got])
    return True


cdef inline Py_ssize_t hint_of(LoopConnection self) noexcept:
    """Returns the size that the loop's own transport requests from get_buffer."""
    return -1 if self.origin.stdlib else UVLOOP_HINT


cdef bint receive_into(LoopConnection self, bint final) except -1:
    """Like `receive`, for a BufferedProtocol: copies from the ring into its buffer."""
    cdef Py_buffer view
    cdef int64_t got
    cdef Py_ssize_t room = fs_available(&self.endpoint.c.ring, DELIVERY)
    if room == 0 and not fs_load_relaxed64(&self.endpoint.c.ring.rx.fin) and not final:
        return False
    try:
        buffer = run_in_context(self, self.get_buffer, room if room else hint_of(self))
        PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
        try:
            if not view.len:
                raise RuntimeError("get_buffer() returned an empty buffer")
            if self.endpoint is None:
                return True  # the protocol has closed the connection
            got = fs_try_recv(&self.endpoint.c, <char *>view.buf, view.len, 0, final)
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
    call_buffer_updated(self, got)
    return True


cdef bint received_nothing(LoopConnection self, int64_t got) except -1:
    """Handles a result without data. Returns true for the end of the stream or an error, false if there is no data yet."""
    if got == -EAGAIN:
        return False
    if got == 0 and fs_ends_with_reset(&self.endpoint.c):
        self.fail(-ECONNRESET)  # the loop's own transport has read the error already
    elif got == 0:
        report_eof(self)
    else:
        self.fail(got)
    return True


cdef int drain(LoopConnection self) except -1:
    """Delivers all data in the ring, before the end of the kernel's stream or of the connection is reported."""
    while self.endpoint is not None and not self.ended and not self.closing:
        if not receive(self, True):
            break
    return 0


cdef int deliver_late(LoopConnection self, bytes data) except -1:
    """Delivers bytes of a peer that has fallen back to kernel TCP, after the data in the ring."""
    cdef char nothing
    self.late = data if self.late is None else self.late + data
    while self.reading and not self.closing and self.endpoint is not None and fs_has_descriptor(&self.endpoint.c.ring):
        if not receive(self, False):
            break
    if self.closing or self.endpoint is None:
        self.late = None
    elif not self.reading:
        self.lower.pause_reading()  # resume_reading continues
    else:
        fs_try_recv(&self.endpoint.c, &nothing, 1, MSG_PEEK, False)  # consumes BACK if it was not consumed yet
        data, self.late = self.late, None
        deliver_pieces(self, data)
    return 0


cdef int hold_lower(LoopConnection self) except -1:
    """Pauses the lower transport after it has read bytes of a plug, until the plug is answered."""
    if fs_keeps_plug(&self.endpoint.c):
        self.lower_held = True
        self.lower.pause_reading()
    return 0


cdef int release_lower(LoopConnection self) except -1:
    if self.lower_held and not fs_keeps_plug(&self.endpoint.c):
        self.lower_held = False
        if self.reading or receives_on_ring(self):
            self.lower.resume_reading()
    return 0


# ---- sending -------------------------------------------------------------------------------------------------


cdef int post(LoopConnection self, const char *data, Py_ssize_t length) except -1:
    """Writes to the ring. Data without room goes to the end of the backlog."""
    cdef int64_t sent = 0
    if length == 0:
        return 0
    self.origin.queue.writes += 1
    if self.backlog_size == 0:
        sent = fs_try_send(&self.endpoint.c, data, length, MSG_NOSIGNAL)
        if sent == length:
            return 0
        if sent < 0:
            if sent != -EAGAIN:
                self.fail(sent)
                return 0
            sent = 0
    if self.backlog is None:
        self.backlog = _deque()
    self.backlog.append(PyBytes_FromStringAndSize(data + sent, length - sent))
    self.backlog_size += length - sent
    self.origin.queue.activate(self)  # the queue arms for credits when polling does not pay
    if self.lower_ended:
        self.origin.queue.watch(self)
    update_paused(self)
    return 0


cdef bint send_backlog(LoopConnection self) except -1:
    """Sends as much of the backlog as there is room for. Returns true if anything was sent."""
    cdef int64_t sent
    cdef bint any = False
    cdef bytes piece
    self.credit = False
    while self.backlog_size and self.endpoint is not None:
        piece = self.backlog[0]
        sent = fs_try_send(
            &self.endpoint.c, PyBytes_AS_STRING(piece) + self.first_sent, PyBytes_GET_SIZE(piece) - self.first_sent, MSG_NOSIGNAL
        )
        if sent < 0:
            if sent != -EAGAIN:
                self.fail(sent)
                return True
            if fs_kernel_is_next(&self.endpoint.c):
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
    if any:
        self.flushing = True
        update_paused(self)
        self.flushing = False
        if not self.backlog_size:
            backlog_is_empty(self)
    return any


cdef int hand_backlog_down(LoopConnection self) except -1:
    """Moves the backlog to the lower transport, as the peer has fallen back to kernel TCP."""
    cdef list pieces = list(self.backlog)
    pieces[0] = pieces[0][self.first_sent :]
    self.drop_backlog()
    for piece in pieces:
        self.lower.write(piece)
    update_paused(self)
    backlog_is_empty(self)
    return 0


cdef int backlog_is_empty(LoopConnection self) except -1:
    """Completes close or write_eof, which waited for the backlog."""
    if self.closing:
        self.end_endpoint()
        self.lower.close()
    elif self.write_ended:
        end_sending(self)
    return 0


cdef int end_sending(LoopConnection self) except -1:
    cdef bint stood = False
    if self.entered:
        stood = self.endpoint.shutdown(False, True)  # packet FIN: a FIN of the kernel alone means that the peer died
    else:
        self.stay_on_kernel(self.origin.policy.ENDING)  # the lower transport sends FIN after all its data
    try:
        self.lower.write_eof()
    except OSError as error:
        if error.errno != ENOTCONN or not stood:
            raise
    return 0


cdef int update_paused(LoopConnection self) except -1:
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


cdef int wake_waiters(LoopConnection self) except -1:
    """Completes the futures of those who wait until bytes are sent."""
    cdef list waiters = self.waiters
    if waiters is not None:
        self.waiters = None
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
    return 0
