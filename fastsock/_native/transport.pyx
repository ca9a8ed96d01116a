# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=False
"""The transport that the program's protocol sees, on the virtual interface, whatever the loop.

The loop's own TCP transport carries a connection natively until both ends are fastsock and it proves busy. A *shim* stands
below as that transport's protocol, and our transport above as the program's. When the connection moves, the program's
bytes go through the ring and the loop's transport stays as the lifeline. Here is the way to the ring, and what asyncio asks.
"""

from libc.stdint cimport INT64_MAX, int64_t
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE

from fastsock._native.transport_io cimport deliver_late, end_sending, post, receive, send_backlog, tell_if_paused
from fastsock._native.core_control cimport FS_LISTING_WAITING, fs_set_register
from fastsock._native.core cimport *
from fastsock._native.core_ring cimport *
from fastsock._native.endpoint cimport Endpoint
from fastsock._native.transport_socket cimport show
from fastsock._native.loop_connection cimport LoopConnection, fatal, is_buffered, receives_on_ring
from fastsock._native.registry cimport acts_again_at, is_asked_here, note_connected, operate

from asyncio import Transport as _AsyncioTransport
from errno import EPIPE as _EPIPE
from os import strerror as _strerror

cdef extern from "Python.h":
    object PyContext_CopyCurrent()


cdef int check_type(data) except -1:
    """As the stdlib's transports do."""
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(f"data argument must be a bytes-like object, not {type(data).__name__!r}")
    return 0


cdef class Transport(LoopConnection):
    """One connection of a loop, on kernel TCP or on the ring: what asyncio asks of a transport (how it ends: `Carried`).

    Raises what the loop's own transports raise. `write` never blocks: what the ring has no room for waits in `backlog`.
    """

    def __init__(self):
        raise TypeError("the methods of event loops make transports")

    def __repr__(self):
        state = "closed" if self.lost else "closing" if self.closing else "open"
        return f"<{type(self).__name__} {state} path={self.path().path} {self.lower!r}>"

    # ---- from the kernel to the ring ---------------------------------------------------------------------

    cdef int note_read(self) except -1:
        """An operation more, called by the loop's transport: so the context is the one in which the protocol is called."""
        self.operations += 1
        if self.acts():
            if not self.in_context:
                self.context = PyContext_CopyCurrent()
            self.operate()
        return 0

    cdef bint acts(self) noexcept:
        """Whether there is something to do for the operation just counted. (Nothing, while a name is published of which
        nothing has come.)"""
        return self.operations >= self.acts_at and (
            self.endpoint is None or self.endpoint.path.listing_state == NULL or fs_load_relaxed(self.endpoint.path.listing_state) != FS_LISTING_WAITING)

    cdef int note_context(self) except -1:
        """The protocol is being called, or has just been, by the loop's transport. (What a context variable is set to later,
        on the kernel, is noted with the reads that the connection looks for its peer with.)"""
        if self.context is None:
            self.context = PyContext_CopyCurrent()
        return 0

    cdef int operate(self) except -1:
        """One operation more of a connection that has proved busy: it looks for its peer; when it finds it, it moves."""
        if self.endpoint is None:
            self.begin()
            if self.endpoint is None:
                return 0
        self.endpoint.path.operations = self.operations - 1
        try:
            operate(self.endpoint)
        except ConnectionResetError as error:
            self._force_close(error)
            return 0
        if self.endpoint is None:
            return 0
        if fs_is_attached(&self.endpoint.c):
            self.acts_at = 0
            if not self.entered:
                self.enter()
        else:
            self.acts_at = acts_again_at(self.endpoint)
        return 0

    cdef int begin(self) except -1:
        """The connection has proved busy: gives it an endpoint, unless it is none that could move."""
        self.acts_at = INT64_MAX
        self.write_to_lower = self.lower.write
        self.drive(self.origin.policy.begin(self, self.operations, self.last_standing))
        if self.endpoint is not None:
            self.endpoint.session = self.session
        return 0

    cdef int drive(self, Endpoint endpoint) except -1:
        cdef fs_call call
        self.endpoint = endpoint
        if endpoint is not None:
            self.acts_at = 0
            endpoint.queue = self.origin.queue
            self.origin.queue.begun.add(self)
            if fs_call_enter(&endpoint.c, &call):  # another thread may close it while this one waits for its turn
                with nogil:
                    fs_drive_by_loop(&endpoint.c)
                endpoint.end(&call)
        return 0

    cdef int take_over(self, Endpoint endpoint) except -1:
        """The endpoint that a socket object had before the loop got it. Nobody else drives it from now on. (If it has
        attached, it has a seat in the queue's event set by now.)"""
        self.operations = endpoint.path.operations
        self.drive(endpoint)
        if fs_is_attached(&endpoint.c):
            self.enter()
        else:
            note_connected(endpoint)
        return 0

    cdef int enter(self) except -1:
        if not fs_pin(&self.endpoint.c):
            return 0  # it has ended, and its memory is given back
        self.entered = self.in_context = True
        self.note_context()
        with nogil:
            fs_drive_by_loop(&self.endpoint.c)
        return self.origin.queue.enter(self)

    cdef bint sends_on_ring(self) noexcept:
        """Whether the next bytes go to the ring; moves there if the peer is ready and the kernel's part is complete."""
        if not fs_kernel_is_next(&self.endpoint.c):
            return True
        if self.sends_file or not fs_may_switch(&self.endpoint.c) or self.lower.get_write_buffer_size():
            return False
        return fs_switch_if_ready(&self.endpoint.c)

    # ---- what the queue asks -----------------------------------------------------------------------------

    cdef bint something(self) noexcept nogil:
        if self.reading and not self.ended and not self.closing:
            if self.lower_ended:
                return True
            if fs_receives_on_ring(&self.endpoint.c):
                if fs_ring_readable(&self.endpoint.c.ring):
                    return True
            elif fs_switch_reached(&self.endpoint.c):
                return True
        return self.backlog_size != 0 and (self.credit or fs_credit_returned(&self.endpoint.c))

    cdef bint progress(self) except -1:
        cdef bint any = False
        if self.backlog_size:
            any = send_backlog(self)
        if self.endpoint is None or self.ended or not self.reading or self.closing:
            return any
        if not (self.lower_ended or fs_receives_on_ring(&self.endpoint.c) or fs_switch_reached(&self.endpoint.c)):
            return any
        return receive(self, self.lower_ended) or any

    cdef bint arm(self) except -1:
        if not is_asked_here(self.endpoint):
            return True
        fs_set_register(self.origin.queue.set, &self.endpoint.c)
        if fs_arm_for_loop(&self.endpoint.c, self.reading and not self.ended and not self.closing, self.backlog_size != 0):
            # That look has taken the credits, so fs_credit_returned sees none that came just before it.
            self.credit = self.backlog_size != 0
            fs_disarm_receiver(&self.endpoint.c.ring, FS_SET_ASLEEP)
            return True
        return False

    cdef int keep_late(self, bytes data) except -1:
        # Nothing is read until they are delivered, behind what is ready by now.
        self.late = data if self.late is None else self.late + data
        if self.reading:
            self.lower.pause_reading()
            self.origin.loop.call_soon(self.deliver_kept, context=self.origin.queue.context)
        return 0

    cdef bint is_dead(self) noexcept:
        """Whether the loop's transport was closed with its loop, as uvloop does, and refuses what it is asked."""
        return not self.origin.stdlib and self.origin.queue.closed

    # ---- receiving ---------------------------------------------------------------------------------------

    def pause_reading(self):
        """As asyncio.ReadTransport.pause_reading."""
        if self.closing or not self.reading:
            return
        self.reading = False
        if not receives_on_ring(self):
            self.lower.pause_reading()

    def resume_reading(self):
        """As asyncio.ReadTransport.resume_reading."""
        if self.is_dead():
            return self.lower.resume_reading()
        if self.closing or self.reading:
            return
        self.reading = True
        if self.late is not None:  # (A protocol may not be called from here: one that stops again would not know it.)
            self.origin.loop.call_soon(self.deliver_kept, context=self.origin.queue.context)
        elif not receives_on_ring(self) and not self.lower.is_reading():
            self.lower.resume_reading()
        if self.entered:
            self.origin.queue.heat(self)

    def deliver_kept(self):
        """The loop's callback for bytes that wait in `late`, and hold the kernel's back."""
        if self.lower is None or self.late is None or not self.reading:
            return  # (resume_reading comes back to it)
        deliver_late(self, b"")
        if self.reading and not self.closing and not self.lower.is_reading():
            self.lower.resume_reading()

    def is_reading(self):
        """As asyncio.ReadTransport.is_reading."""
        return self.reading and not self.closing and (self.origin.stdlib or not self.ended) and not self.is_dead()

    # ---- sending -----------------------------------------------------------------------------------------

    def write(self, data):
        """As asyncio.WriteTransport.write."""
        # (While it closes a transport takes what comes with resume_writing: asyncio's TLS says goodbye there.)
        if not self.entered or self.lost or self.write_ended or self.sends_file or (
                not self.backlog_size and not self.flushing and (self.closing or not self.sends_on_ring())):
            return self.write_lower(data)
        if PyBytes_CheckExact(data):
            post(self, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
            return None
        return self.write_other(data)

    cdef object write_other(self, data):
        """To the ring: what the loop's own transport takes beside bytes, and refuses."""
        cdef Py_buffer view
        if self.origin.stdlib:
            check_type(data)
        if not data:
            return None
        if not self.origin.stdlib:
            data = memoryview(data).cast("b")
        try:
            PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        except BufferError as error:
            fatal(self, error, "Fatal write error on socket transport")
            return None
        try:
            post(self, <const char *>view.buf, view.len)
        finally:
            PyBuffer_Release(&view)

    cdef object write_lower(self, data):
        """A write that does not go to the ring: to the kernel, or one that the loop's transport ignores or refuses."""
        if self.write_ended or self.sends_file:
            if self.origin.stdlib:
                check_type(data)
            if self.write_ended:
                raise RuntimeError("Cannot call write() after write_eof()")
            raise RuntimeError("unable to write; sendfile is in progress")
        if self.write_to_lower is not None:
            self.write_to_lower(data)
        else:
            self.lower.write(data)
        self.operations += 1
        if self.acts() and not self.closing:
            self.operate()
        return None

    def write_file(self, bytes data not None):
        """Bytes of the file that is being sent. After write_eof the kernel's sendfile fails, and nothing ends by it."""
        if self.write_ended:
            raise BrokenPipeError(_EPIPE, _strerror(_EPIPE))
        if self.entered and (self.backlog_size or self.sends_on_ring()):
            post(self, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        else:
            self.lower.write(data)

    def writelines(self, list_of_data):
        """As asyncio.WriteTransport.writelines: one message."""
        if not self.origin.stdlib:
            if self.write_ended:
                raise RuntimeError("Cannot call writelines() after write_eof()")
            if self.is_dead() or (self.closing and not self.backlog_size):
                return self.lower.writelines(list_of_data)
        self.write(b"".join(list_of_data))

    def can_write_eof(self):
        """As asyncio.WriteTransport.can_write_eof."""
        return True

    def write_eof(self):
        """As asyncio.WriteTransport.write_eof."""
        if self.closing and not self.origin.stdlib:
            if not self.backlog_size:
                self.lower.write_eof()  # which refuses it after the end
            self.write_ended = True
        if self.closing or self.write_ended:
            return
        self.write_ended = True
        if not self.backlog_size:
            end_sending(self)

    def get_write_buffer_size(self):
        """As asyncio.WriteTransport.get_write_buffer_size."""
        return self.backlog_size + (self.lower.get_write_buffer_size() if self.lower is not None else 0)

    def get_write_buffer_limits(self):
        """As asyncio.WriteTransport.get_write_buffer_limits."""
        return self.lower.get_write_buffer_limits()

    def set_write_buffer_limits(self, high=None, low=None):
        """As asyncio.WriteTransport.set_write_buffer_limits."""
        self.lower.set_write_buffer_limits(high=high, low=low)
        if not self.protocol_paused:
            tell_if_paused(self)

    # ---- protocol and information ------------------------------------------------------------------------

    def get_protocol(self):
        """As asyncio.BaseTransport.get_protocol."""
        return self.protocol

    def set_protocol(self, protocol):
        """As asyncio.BaseTransport.set_protocol."""
        if protocol is None and not self.origin.stdlib:
            raise TypeError("protocol is required")
        self.use_protocol(protocol, is_buffered(self.origin, protocol))
        if not self.lost and (self.get_buffer is not None) != self.shim.buffered:
            self.shim.replace(protocol)
            if not self.reading and not receives_on_ring(self):
                self.lower.pause_reading()  # uvloop starts again with a new protocol
        if self.entered:
            self.origin.queue.heat(self)

    cdef int use_protocol(self, protocol, bint buffered) except -1:
        self.protocol = protocol
        if buffered:
            self.get_buffer = protocol.get_buffer
            self.buffer_updated = protocol.buffer_updated
            self.data_received = None
        else:
            self.get_buffer = self.buffer_updated = None
            self.data_received = getattr(protocol, "data_received", None)
        return 0

    cdef void forget_protocol(self) noexcept:
        """The connection is lost: leaves no circle for the garbage collector to find."""
        self.protocol = self.data_received = self.get_buffer = self.buffer_updated = self.late = None
        self.shim = self.write_to_lower = None

    def get_extra_info(self, name, default=None):
        """As asyncio.BaseTransport.get_extra_info. "fastsock" is the connection's path (fastsock.Path)."""
        if name == "fastsock":
            return self.path()
        if self.lower is None:
            return default
        if name == "socket":
            if self.shown_socket is None:
                self.shown_socket = show(self, self.lower.get_extra_info(name))
            return default if self.shown_socket is None else self.shown_socket
        return self.lower.get_extra_info(name, default)

    def hand_out(self):
        """Somebody asks for the number of the descriptor, and may read and write it: the connection stays on kernel TCP, or
        goes back there."""
        if self.handed_out or self.lost or self.lower is None:
            return
        self.handed_out = True
        if not self.entered:
            self.stay_on_kernel(self.origin.policy.HANDED_OUT)
            return
        self.origin.policy.leave(self.endpoint, self.origin.policy.HANDED_OUT)
        if self.backlog_size:
            send_backlog(self)
        if self.closing or receives_on_ring(self) or self.late is not None:
            return
        # From the kernel the loop's transport reads when the program wants it to; for the ring it went on for ever.
        self.lower_held = False
        if self.reading != self.lower.is_reading():
            if self.reading:
                self.lower.resume_reading()
            else:
                self.lower.pause_reading()

    def path(self):
        """Which path the connection's bytes take, and why."""
        return self.origin.policy.path_of(self.endpoint.standing if self.endpoint is not None else self.last_standing)

    @property
    def on_kernel(self):
        """Whether the next bytes go through the loop's own transport."""
        return not self.entered or not self.sends_on_ring()

    @property
    def unsent(self):
        """Bytes that wait for room on the ring."""
        return self.backlog_size

    def sending_changes(self):
        """A future that is done when bytes that waited are sent, or the connection is lost."""
        waiter = self.origin.loop.create_future()
        if self.waiters is None:
            self.waiters = []
        self.waiters.append(waiter)
        return waiter

    def end_file(self):
        """No file is being sent any more."""
        self.sends_file = False
        if not self.is_closing():
            tell_if_paused(self)

    @property
    def _closing(self):  # of both loops' transports
        return self.is_closing()

    @property
    def _protocol_paused(self):
        return self.protocol_paused

    @property
    def _paused(self):  # uvloop's SSLProtocol asks
        return not self.is_reading()



cdef class StdlibTransport(Transport):
    """On a stdlib loop, whose own transports are instances of asyncio.Transport; uvloop's are not."""

    @property
    def __class__(self):
        return _AsyncioTransport

    @property
    def _start_tls_compatible(self):
        """The loop's own start_tls may put TLS above it."""
        return True

    @property
    def _eof(self):
        """Whether write_eof was called."""
        return self.write_ended
