# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=False
"""The transport for the program's protocol, on kernel TCP or on the ring, for all loops.

The loop's own TCP transport handles a connection until it is busy and both ends use fastsock. The protocol of that
transport is a `RelayProtocol`; the program's protocol gets our transport. After the move the program's bytes go through the
ring, and the loop's transport only watches the kernel connection. This file has the move to the ring and the methods of
asyncio.Transport.
"""

from libc.stdint cimport INT64_MAX, int64_t
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE

from fastsock._native.transport_io cimport deliver_late, end_sending, post, receive, send_backlog, update_paused
from fastsock._native.core_control cimport FS_LISTING_WAITING, fs_set_register
from fastsock._native.core cimport *
from fastsock._native.core_ring cimport *
from fastsock._native.endpoint cimport Endpoint
from fastsock._native.transport_socket cimport show
from fastsock._native.loop_connection cimport LoopConnection, fatal, is_buffered, receives_on_ring
from fastsock._native.registry cimport acts_again_at, prepare_to_sleep, note_connected, operate

from asyncio import Transport as _AsyncioTransport
from errno import EPIPE as _EPIPE
from os import strerror as _strerror

cdef extern from "Python.h":
    object PyContext_CopyCurrent()


cdef int check_type(data) except -1:
    """Raises TypeError like the stdlib's transports."""
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(f"data argument must be a bytes-like object, not {type(data).__name__!r}")
    return 0


cdef class Transport(LoopConnection):
    """A connection of a loop, on kernel TCP or on the ring, with the methods of asyncio.Transport. `LoopConnection` has its end.

    Raises the same exceptions as the loop's own transports. `write` never blocks: data without room on the ring goes to
    `backlog`.
    """

    def __init__(self):
        raise TypeError("the methods of event loops make transports")

    def __repr__(self):
        state = "closed" if self.lost else "closing" if self.closing else "open"
        return f"<{type(self).__name__} {state} path={self.path().path} {self.lower!r}>"

    # ---- from the kernel to the ring ---------------------------------------------------------------------

    cdef int note_read(self) except -1:
        """Counts a read. Called from the loop's transport, so the current context is the protocol's."""
        self.operations += 1
        if self.acts():
            if not self.in_context:
                self.context = PyContext_CopyCurrent()
            self.operate()
        return 0

    cdef bint acts(self) noexcept:
        """Returns true if the operation just counted needs a step: not while a published name has no answer yet."""
        return self.operations >= self.acts_at and (
            self.endpoint is None or self.endpoint.path.listing_state == NULL or fs_load_relaxed(self.endpoint.path.listing_state) != FS_LISTING_WAITING)

    cdef int note_context(self) except -1:
        """Keeps a copy of the current context, which is that of the protocol's calls. Later changes on kernel TCP are taken over
        by the reads with which the connection looks for its peer."""
        if self.context is None:
            self.context = PyContext_CopyCurrent()
        return 0

    cdef int operate(self) except -1:
        """Counts an operation of a busy connection, and takes the next step to find its peer and to move."""
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
        """Gives a busy connection an endpoint, if it can move."""
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
            if fs_call_enter(&endpoint.c, &call):  # another thread may close it while this one waits for the lock
                with nogil:
                    fs_drive_by_loop(&endpoint.c)
                endpoint.end(&call)
        return 0

    cdef int take_over(self, Endpoint endpoint) except -1:
        """Takes over the endpoint of a socket object. Only this transport uses it from now on. An attached endpoint must have
        a slot in the queue's event set already."""
        self.operations = endpoint.path.operations
        self.drive(endpoint)
        if fs_is_attached(&endpoint.c):
            self.enter()
        else:
            note_connected(endpoint)
        return 0

    cdef int enter(self) except -1:
        if not fs_pin(&self.endpoint.c):
            return 0  # it has ended, and its memory is freed
        self.entered = self.in_context = True
        self.note_context()
        with nogil:
            fs_drive_by_loop(&self.endpoint.c)
        return self.origin.queue.enter(self)

    cdef bint sends_on_ring(self) noexcept:
        """Returns true if the next bytes go to the ring. Switches to the ring if the peer is ready and the kernel's part is
        complete."""
        if not fs_kernel_is_next(&self.endpoint.c):
            return True
        if self.sends_file or not fs_may_switch(&self.endpoint.c) or self.lower.get_write_buffer_size():
            return False
        return fs_switch_if_ready(&self.endpoint.c)

    # ---- called by the queue -----------------------------------------------------------------------------

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
        if not prepare_to_sleep(self.endpoint):
            return True
        fs_set_register(self.origin.queue.set, &self.endpoint.c)
        if fs_arm_for_loop(&self.endpoint.c, self.reading and not self.ended and not self.closing, self.backlog_size != 0):
            # Checking has consumed the credits, so fs_credit_returned does not see those that came just before.
            self.credit = self.backlog_size != 0
            fs_disarm_receiver(&self.endpoint.c.ring, FS_SET_ASLEEP)
            return True
        return False

    cdef int keep_late(self, bytes data) except -1:
        # The lower transport reads nothing until they are delivered, after the callbacks that are ready now.
        self.late = data if self.late is None else self.late + data
        if self.reading:
            self.lower.pause_reading()
            self.origin.loop.call_soon(self.deliver_kept, context=self.origin.queue.context)
        return 0

    cdef bint is_dead(self) noexcept:
        """Returns true if the loop's transport was closed together with its loop, as uvloop does, and rejects calls."""
        return not self.origin.stdlib and self.origin.queue.closed

    # ---- receiving ---------------------------------------------------------------------------------------

    def pause_reading(self):
        """Like asyncio.ReadTransport.pause_reading."""
        if self.closing or not self.reading:
            return
        self.reading = False
        if not receives_on_ring(self):
            self.lower.pause_reading()

    def resume_reading(self):
        """Like asyncio.ReadTransport.resume_reading."""
        if self.is_dead():
            return self.lower.resume_reading()
        if self.closing or self.reading:
            return
        self.reading = True
        if self.late is not None:  # not from here: the protocol may call pause_reading, and this call would undo it
            self.origin.loop.call_soon(self.deliver_kept, context=self.origin.queue.context)
        elif not receives_on_ring(self) and not self.lower.is_reading():
            self.lower.resume_reading()
        if self.entered:
            self.origin.queue.activate(self)

    def deliver_kept(self):
        """Delivers the bytes in `late`. A callback of the loop; the lower transport is paused until then."""
        if self.lower is None or self.late is None or not self.reading:
            return  # resume_reading continues
        deliver_late(self, b"")
        if self.reading and not self.closing and not self.lower.is_reading():
            self.lower.resume_reading()

    def is_reading(self):
        """Like asyncio.ReadTransport.is_reading."""
        return self.reading and not self.closing and (self.origin.stdlib or not self.ended) and not self.is_dead()

    # ---- sending -----------------------------------------------------------------------------------------

    def write(self, data):
        """Like asyncio.WriteTransport.write."""
        # A closing transport still accepts writes from resume_writing: asyncio's TLS sends its close_notify there.
        if not self.entered or self.lost or self.write_ended or self.sends_file or (
                not self.backlog_size and not self.flushing and (self.closing or not self.sends_on_ring())):
            return self.write_lower(data)
        if PyBytes_CheckExact(data):
            post(self, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
            return None
        return self.write_other(data)

    cdef object write_other(self, data):
        """Writes data other than bytes to the ring. Accepts and rejects the same types as the loop's own transport."""
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
        """Writes to the loop's own transport, which may also ignore or reject the data."""
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
        """Writes bytes of a file. Raises after write_eof, like the kernel's sendfile; the connection stays open."""
        if self.write_ended:
            raise BrokenPipeError(_EPIPE, _strerror(_EPIPE))
        if self.entered and (self.backlog_size or self.sends_on_ring()):
            post(self, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        else:
            self.lower.write(data)

    def writelines(self, list_of_data):
        """Like asyncio.WriteTransport.writelines: sends one message."""
        if not self.origin.stdlib:
            if self.write_ended:
                raise RuntimeError("Cannot call writelines() after write_eof()")
            if self.is_dead() or (self.closing and not self.backlog_size):
                return self.lower.writelines(list_of_data)
        self.write(b"".join(list_of_data))

    def can_write_eof(self):
        """Like asyncio.WriteTransport.can_write_eof."""
        return True

    def write_eof(self):
        """Like asyncio.WriteTransport.write_eof."""
        if self.closing and not self.origin.stdlib:
            if not self.backlog_size:
                self.lower.write_eof()  # raises after the end
            self.write_ended = True
        if self.closing or self.write_ended:
            return
        self.write_ended = True
        if not self.backlog_size:
            end_sending(self)

    def get_write_buffer_size(self):
        """Like asyncio.WriteTransport.get_write_buffer_size."""
        return self.backlog_size + (self.lower.get_write_buffer_size() if self.lower is not None else 0)

    def get_write_buffer_limits(self):
        """Like asyncio.WriteTransport.get_write_buffer_limits."""
        return self.lower.get_write_buffer_limits()

    def set_write_buffer_limits(self, high=None, low=None):
        """Like asyncio.WriteTransport.set_write_buffer_limits."""
        self.lower.set_write_buffer_limits(high=high, low=low)
        if not self.protocol_paused:
            update_paused(self)

    # ---- protocol and information ------------------------------------------------------------------------

    def get_protocol(self):
        """Like asyncio.BaseTransport.get_protocol."""
        return self.protocol

    def set_protocol(self, protocol):
        """Like asyncio.BaseTransport.set_protocol."""
        if protocol is None and not self.origin.stdlib:
            raise TypeError("protocol is required")
        self.use_protocol(protocol, is_buffered(self.origin, protocol))
        if not self.lost and (self.get_buffer is not None) != self.relay.buffered:
            self.relay.replace(protocol)
            if not self.reading and not receives_on_ring(self):
                self.lower.pause_reading()  # uvloop resumes reading with a new protocol
        if self.entered:
            self.origin.queue.activate(self)

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
        """Drops references after the connection is lost, so that no reference cycle is left."""
        self.protocol = self.data_received = self.get_buffer = self.buffer_updated = self.late = None
        self.relay = self.write_to_lower = None

    def get_extra_info(self, name, default=None):
        """Like asyncio.BaseTransport.get_extra_info. "fastsock" gives the connection's path (fastsock.Path)."""
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
        """Keeps the connection on kernel TCP, or takes it back there, as the program asks for the descriptor and may read and
        write it."""
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
        # On kernel TCP the lower transport reads only if the program wants to read; for the ring it read always.
        self.lower_held = False
        if self.reading != self.lower.is_reading():
            if self.reading:
                self.lower.resume_reading()
            else:
                self.lower.pause_reading()

    def path(self):
        """Returns the connection's path and its reason: a fastsock.Path."""
        return self.origin.policy.path_of(self.endpoint.standing if self.endpoint is not None else self.last_standing)

    @property
    def on_kernel(self):
        """True if the next bytes go through the loop's own transport."""
        return not self.entered or not self.sends_on_ring()

    @property
    def unsent(self):
        """Number of bytes that wait for room on the ring."""
        return self.backlog_size

    def sending_changes(self):
        """Returns a future that is done when waiting bytes were sent, or the connection is lost."""
        waiter = self.origin.loop.create_future()
        if self.waiters is None:
            self.waiters = []
        self.waiters.append(waiter)
        return waiter

    def end_file(self):
        """Ends the sending of a file."""
        self.sends_file = False
        if not self.is_closing():
            update_paused(self)

    @property
    def _closing(self):  # exists on both loops' transports
        return self.is_closing()

    @property
    def _protocol_paused(self):
        return self.protocol_paused

    @property
    def _paused(self):  # used by uvloop's SSLProtocol
        return not self.is_reading()



cdef class StdlibTransport(Transport):
    """The transport on a stdlib loop. isinstance() treats it as an asyncio.Transport, like the loop's own; uvloop's are not."""

    @property
    def __class__(self):
        return _AsyncioTransport

    @property
    def _start_tls_compatible(self):
        """True: the loop's start_tls may put TLS above this transport."""
        return True

    @property
    def _eof(self):
        """True if write_eof was called."""
        return self.write_ended
