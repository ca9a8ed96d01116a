# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=False
"""The transport for the program's protocol, on kernel TCP or on the ring, for all loops.

The loop's own TCP transport handles a connection until it is busy and both ends use fastsock. The protocol of that
transport is a `RelayProtocol`; the program's protocol gets our transport. After the move the program's bytes go through the
ring, and the loop's transport only watches the kernel connection.

This file has the methods of asyncio.Transport. The files that it includes have functions that take a transport, and the
completion queue. Everything here is used by the loop's thread only.
"""

cimport cython
from libc.stdint cimport INT64_MAX, int64_t, uint32_t
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF

from fastsock._native.core cimport *
from fastsock._native.endpoint cimport (
    Endpoint, decide, end_of, endpoint_of, hand_over, info_of, leave, reset, shutdown, step,
)
from fastsock._native.libc_front cimport reason_texts
from fastsock._native.transport_socket cimport show

import contextvars as _contextvars
import gc as _gc
import os as _os
from asyncio import BaseEventLoop as _BaseEventLoop
from asyncio import BufferedProtocol as _BufferedProtocol
from asyncio import Protocol as _Protocol
from asyncio import Transport as _AsyncioTransport
from asyncio.log import logger as _log
from collections import deque as _deque
from errno import EPIPE as _EPIPE

from fastsock import path_events
from fastsock._native.libc_front import standing as _standing

include "loop_kinds.pxi"
include "protocol_calls.pxi"
include "transport_path.pxi"
include "transport_io.pxi"
include "completion_queue.pxi"


@cython.final
cdef class Transport:
    """A connection of a loop, on kernel TCP or on the ring, with the methods of asyncio.Transport.

    Raises the same exceptions as the loop's own transports. `write` never blocks: data without room on the ring goes to
    `backlog`.
    """

    def __cinit__(self):
        self.acts_at = INT64_MAX
        self.reading = True

    def __init__(self):
        raise TypeError("the methods of event loops make transports")

    def __repr__(self):
        state = "closed" if self.state == LOST else "closing" if self.state == CLOSING else "open"
        return f"<Transport {state} path={self.path().path} {self.lower!r}>"

    @property
    def __class__(self):
        return class_of(self)

    # ---- the end -----------------------------------------------------------------------------------------

    def is_closing(self):
        """Like asyncio.BaseTransport.is_closing."""
        # If a write of the lower transport fails, it closes and reports that in a later iteration.
        return self.state != OPEN or (self.lower is not None and not (
            self.endpoint is not None and fs_is(self.endpoint.c, FS_IS_SENDING_RING)) and self.lower.is_closing())

    def close(self):
        """Like asyncio.BaseTransport.close: sends the written data first."""
        if self.state != OPEN:
            return
        self.state = CLOSING
        if self.lower is None:
            return
        if self.backlog_size:
            self.queue.activate(self)  # closes when the backlog is sent
            return
        if self.entered:
            end_endpoint(self)
        self.lower.close()

    def abort(self):
        """Like asyncio.WriteTransport.abort."""
        self._force_close(None)

    def _force_close(self, error):
        # asyncio's and uvloop's SSLProtocol call this.
        if self.state == LOST or self.lower is None:
            return
        self.state = CLOSING
        drop_backlog(self)
        end_endpoint(self)
        self.lower._force_close(error)

    # ---- receiving ---------------------------------------------------------------------------------------

    def pause_reading(self):
        """Like asyncio.ReadTransport.pause_reading."""
        if self.state != OPEN or not self.reading:
            return
        self.reading = False
        want(self)
        if not receives_on_ring(self):
            self.lower.pause_reading()

    def resume_reading(self):
        """Like asyncio.ReadTransport.resume_reading."""
        if is_dead(self):
            return self.lower.resume_reading()
        if self.state != OPEN or self.reading:
            return
        self.reading = True
        if self.late is not None:  # not from here: the protocol may call pause_reading, and this call would undo it
            self.queue.loop.call_soon(self.deliver_kept, context=self.queue.context)
        elif not receives_on_ring(self) and not self.lower.is_reading():
            self.lower.resume_reading()
        if self.entered:
            self.queue.activate(self)

    def deliver_kept(self):
        """Delivers the bytes in `late`. A callback of the loop; the lower transport is paused until then."""
        if self.lower is None or self.late is None or not self.reading:
            return  # resume_reading continues
        deliver_late(self, b"")
        if self.reading and self.state == OPEN and not self.lower.is_reading():
            self.lower.resume_reading()

    def is_reading(self):
        """Like asyncio.ReadTransport.is_reading."""
        return self.reading and self.state == OPEN and shows_reading(self)

    # ---- sending -----------------------------------------------------------------------------------------

    def write(self, data):
        """Like asyncio.WriteTransport.write."""
        # A closing transport still accepts writes from resume_writing: asyncio's TLS sends its close_notify there.
        if not self.entered or self.state == LOST or self.write_ended or self.sends_file or (
                not self.backlog_size and not self.flushing and (self.state != OPEN or not sends_on_ring(self))):
            return self.write_lower(data)
        if PyBytes_CheckExact(data):
            post(self, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
            return None
        return self.write_other(data)

    cdef object write_other(self, data):
        """Writes data other than bytes to the ring. Accepts and rejects the same types as the loop's own transport."""
        cdef Py_buffer view
        check_written(self, data)
        if not data:
            return None
        data = view_of(self, data)
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
            check_written(self, data)
            if self.write_ended:
                raise RuntimeError("Cannot call write() after write_eof()")
            raise RuntimeError("unable to write; sendfile is in progress")
        if self.write_to_lower is not None:
            self.write_to_lower(data)
        else:
            self.lower.write(data)
        self.operations += 1
        if acts(self) and self.state == OPEN:
            take_next_step(self)
        return None

    def write_file(self, bytes data not None):
        """Writes bytes of a file. Raises after write_eof, like the kernel's sendfile; the connection stays open."""
        if self.write_ended:
            raise BrokenPipeError(_EPIPE, _os.strerror(_EPIPE))
        if self.entered and (self.backlog_size or sends_on_ring(self)):
            post(self, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        else:
            self.lower.write(data)

    def writelines(self, list_of_data):
        """Like asyncio.WriteTransport.writelines: sends one message."""
        if lines_go_below(self):
            return self.lower.writelines(list_of_data)
        self.write(b"".join(list_of_data))

    def can_write_eof(self):
        """Like asyncio.WriteTransport.can_write_eof."""
        return True

    def write_eof(self):
        """Like asyncio.WriteTransport.write_eof."""
        if self.state != OPEN:
            write_eof_when_closing(self)
            return
        if self.write_ended:
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
        check_protocol(self, protocol)
        self.use_protocol(protocol, is_buffered(self.queue, protocol))
        if self.state != LOST and (self.get_buffer is not None) != self.relay_is_buffered:
            self.relay.replace()
            if not self.reading and not receives_on_ring(self):
                self.lower.pause_reading()  # uvloop resumes reading with a new protocol
        if self.entered:
            self.queue.activate(self)

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

    def get_extra_info(self, name, default=None):
        """Like asyncio.BaseTransport.get_extra_info. "fastsock" gives the connection's path (fastsock.Path)."""
        if name == "fastsock":
            return self.path()
        if self.lower is None:
            return default
        if name == "socket":
            if self.shown_socket is None:
                sock = self.lower.get_extra_info(name)
                if was_unasked(self, sock):
                    return default
                self.shown_socket = show(self, sock)
            return default if self.shown_socket is None else self.shown_socket
        return self.lower.get_extra_info(name, default)

    def hand_out(self):
        """The program asks for the descriptor, and may read and write it. So the front end serves the number from now on, and the loop's
        own transport goes on with it, on the ring or not. Where that is not possible, the connection goes back to kernel TCP."""
        if self.handed_out or self.state == LOST or self.lower is None:
            return
        self.handed_out = True
        drive(self)
        if self.endpoint is None:
            return
        self.acts_at = INT64_MAX
        if not hands_over(self):
            decide(self.endpoint, FS_REASON_DETACHED)
            if not self.entered:
                return
            late = leave(self.endpoint)
            if late:
                keep_late(self, late)
        if self.backlog_size:
            send_backlog(self)
        if self.state != OPEN or receives_on_ring(self) or self.late is not None:
            return
        # From now on the lower transport reads only if the program wants to read; for the ring it read always.
        if self.reading != self.lower.is_reading():
            if self.reading:
                self.lower.resume_reading()
            else:
                self.lower.pause_reading()

    def path(self):
        """Returns the connection's path and its reason: a fastsock.Path."""
        return path_events.path_from(info_of_path(self))

    @property
    def on_kernel(self):
        """True if the next bytes go through the loop's own transport."""
        return not self.entered or not sends_on_ring(self)

    @property
    def unsent(self):
        """Number of bytes that wait for room on the ring."""
        return self.backlog_size

    def sending_changes(self):
        """Returns a future that is done when waiting bytes were sent, or the connection is lost."""
        waiter = self.queue.loop.create_future()
        if self.waiters is None:
            self.waiters = []
        self.waiters.append(waiter)
        return waiter

    def end_file(self):
        """Ends the sending of a file."""
        self.sends_file = False
        if not self.is_closing():
            update_paused(self)

    # ---- attributes of the loops' own transports that programs use ----------------------------------------

    @property
    def _closing(self):
        return self.is_closing()

    @property
    def _protocol_paused(self):
        return self.protocol_paused

    @property
    def _paused(self):  # used by uvloop's SSLProtocol
        return not self.is_reading()

    @property
    def _eof(self):
        return self.write_ended

    _protocol = property(get_protocol, set_protocol)
    _sock = of_lower("_sock")
    _sock_fd = of_lower("_sock_fd")
    _extra = of_lower("_extra")
    _server = of_lower("_server")
    _loop = of_lower("_loop")
    _conn_lost = of_lower("_conn_lost")
    _buffer = of_lower("_buffer")
    _empty_waiter = of_lower("_empty_waiter")
    _sendfile_compatible = of_lower("_sendfile_compatible")
    _start_tls_compatible = of_lower("_start_tls_compatible")
