# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=False
"""A connection of an event loop: the state of its transport, its end, and the calls of the program's protocol.

Methods of the protocol are called in its context. Their exceptions are reported as by the loops.
"""

from libc.stdint cimport INT64_MAX, int64_t
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF

from fastsock._native.core cimport FS_VIOLATED, fs_fd, fs_receives_on_ring, fs_sends_on_ring
from fastsock._native.core_ring cimport ECONNRESET
from fastsock._native.endpoint cimport Endpoint, unpin
from fastsock._native.completion_queue cimport CompletionQueue, QueuedConnection
from fastsock._native.connection_info cimport info_of

import os as _os
from asyncio import BufferedProtocol as _BufferedProtocol
from asyncio import Protocol as _Protocol

cdef extern from "Python.h":
    int PyContext_Enter(object) except -1
    int PyContext_Exit(object) except -1
    PyObject *PyObject_CallOneArg(object, object)

cdef extern from *:
    """
    #include <stdlib.h>
    /* glibc maps and unmaps large blocks, until a block of that size was freed. Then it uses the heap. */
    static void fs_take_from_heap(size_t size) {
        volatile char *block = malloc(size);
        if (block) block[0] = 0;
        free((void *)block);
    }
    """
    void fs_take_from_heap(size_t)

cdef extern from *:
    """
    /* Raises the current exception. */
    static inline int fs_raise(void) { return -1; }
    """
    int fs_raise() except -1


cdef class LoopContext:
    """State shared by all transports of a loop. `stdlib`: true for the stdlib's loops. `policy`: the module with the
    functions that decide about paths, and with the Python classes (fastsock.aio.transport_policy)."""

    def __cinit__(self, loop, CompletionQueue queue not None, bint stdlib, policy):
        self.loop = loop
        self.queue = queue
        self.stdlib = stdlib
        self.policy = policy
        if stdlib:
            # Its transports allocate DELIVERY bytes for each read from the kernel. This makes the allocation three times as
            # fast.
            fs_take_from_heap(2 * DELIVERY)


cdef class LowerProtocol:
    """The protocol of the loop's own transport, below our transport: the part that transports use of RelayProtocol."""

    cdef int replace(self, protocol) except -1:
        """Replaces this object, as the program's new protocol is of the other kind (buffered or not)."""
        raise NotImplementedError


cdef class LoopConnection(QueuedConnection):
    """The state of a transport, and its end. Used by the loop's thread only."""

    def __cinit__(self):
        self.acts_at = INT64_MAX
        self.reading = True

    cdef int stay_on_kernel(self, reason) except -1:
        """Keeps the connection on kernel TCP. It must not have a region."""
        self.kernel_because = reason
        if self.endpoint is not None:
            self.origin.policy.decide(self.endpoint, reason)
        else:
            if self.acts_at != INT64_MAX:
                self.origin.policy.counted_as(self.last_standing, reason)
            self.last_standing = (False, False, False, reason)
        self.acts_at = INT64_MAX
        return 0

    # ---- ending ------------------------------------------------------------------------------------------

    def is_closing(self):
        """Like asyncio.BaseTransport.is_closing."""
        # If a write of the lower transport fails, it closes and reports that in a later iteration.
        return self.closing or (self.lower is not None and not (
            self.endpoint is not None and fs_sends_on_ring(&self.endpoint.c)) and self.lower.is_closing())

    def close(self):
        """Like asyncio.BaseTransport.close: sends the written data first."""
        if self.closing:
            return
        self.closing = True
        if self.lower is None:
            return
        if self.backlog_size:
            self.origin.queue.activate(self)  # closes when the backlog is sent
            return
        if self.entered:
            self.end_endpoint()
        self.lower.close()

    def abort(self):
        """Like asyncio.WriteTransport.abort."""
        self._force_close(None)

    def _force_close(self, error):
        # asyncio's and uvloop's SSLProtocol call this.
        if self.lost or self.lower is None:
            return
        self.closing = True
        self.drop_backlog()
        self.end_endpoint()
        self.lower._force_close(error)

    cdef int end_endpoint(self) except -1:
        cdef Endpoint endpoint = self.endpoint
        if endpoint is None:
            return 0
        self.last_standing = info_of(endpoint)
        endpoint.path.operations = self.operations
        self.origin.queue.forget(self)
        self.entered = False
        self.endpoint = endpoint.queue = None
        self.acts_at = INT64_MAX
        endpoint.forget(fs_fd(&endpoint.c))
        return unpin(endpoint)

    cdef int fail(self, int64_t result) except -1:
        """Ends the connection because of a negative result of the endpoint."""
        if result == FS_VIOLATED:
            self.origin.policy.violated(self.endpoint)
            result = -ECONNRESET
        self._force_close(OSError(<int>-result, _os.strerror(<int>-result)))
        return 0

    cdef void drop_backlog(self) noexcept:
        if self.backlog_size:
            self.backlog.clear()
            self.backlog_size = self.first_sent = 0


cdef bint is_buffered(LoopContext origin, protocol):
    """Returns true if the loop treats the protocol as a BufferedProtocol. uvloop's SSLProtocol is not a subclass."""
    if origin.stdlib:
        return isinstance(protocol, _BufferedProtocol)
    return not isinstance(protocol, _Protocol) and hasattr(protocol, "get_buffer")


# ---- calls of the program's protocol ------------------------------------------------------------------------


cdef int deliver(LoopConnection self, data) except -1:
    """Calls data_received of the program's protocol."""
    return call_in_context(self, self.data_received, data, "data_received")


cdef int call_buffer_updated(LoopConnection self, Py_ssize_t count) except -1:
    """Calls buffer_updated of the program's BufferedProtocol."""
    return call_in_context(self, self.buffer_updated, count, "buffer_updated")


cdef inline bint steps_in(LoopConnection self) noexcept:
    """Returns true if calls of the protocol must enter its context: not on kernel TCP, nor during a sweep, which has
    entered it."""
    return self.in_context and self.origin.queue.inside is not self


cdef int call_in_context(LoopConnection self, method, argument, str name) except -1:
    if not steps_in(self):
        return call(self, method, argument, name)
    PyContext_Enter(self.context)
    try:
        return call(self, method, argument, name)
    finally:
        PyContext_Exit(self.context)


cdef inline int call(LoopConnection self, method, argument, str name) except -1:
    # Without `try`, which would double the cost.
    cdef PyObject *result = PyObject_CallOneArg(method, argument)
    if result == NULL:
        return failed(self, name)
    Py_DECREF(<object>result)
    return 0


cdef int failed(LoopConnection self, str method) except -1:
    """Reports an exception of the protocol's method, with the transport and the protocol that the program knows."""
    try:
        fs_raise()
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        fatal(self, error, f"Fatal error: protocol.{method}() call failed.")
    return 0


cdef object run_in_context(LoopConnection self, method, argument):
    """Calls the protocol's method in its context. Returns its result; exceptions go to the caller."""
    if not steps_in(self):
        return method(argument)
    PyContext_Enter(self.context)
    try:
        return method(argument)
    finally:
        PyContext_Exit(self.context)


cdef int deliver_pieces(LoopConnection self, bytes data) except -1:
    """Delivers bytes to a protocol of either kind."""
    cdef Py_ssize_t at = 0, part
    if self.get_buffer is None:
        return deliver(self, data)
    while at < len(data) and not self.closing:
        try:
            view = memoryview(run_in_context(self, self.get_buffer, len(data) - at)).cast("B")
            part = min(len(view), len(data) - at)
            view[:part] = data[at : at + part]
            if not part:
                raise RuntimeError("get_buffer() returned an empty buffer")
        except Exception as error:
            no_buffer(self, error)
            break
        at += part
        call_buffer_updated(self, part)
    return 0


cdef int report_eof(LoopConnection self) except -1:
    """Reports the end of the stream to the protocol. Closes the transport if the protocol does not keep it open."""
    self.ended = True
    if not ask_to_keep_open(self):
        self.close()
    return 0


cdef bint ask_to_keep_open(LoopConnection self) except -1:
    """Calls eof_received. Returns true if the protocol keeps the transport open for sending."""
    try:
        if steps_in(self):
            return self.context.run(self.protocol.eof_received)
        return self.protocol.eof_received()
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        fatal(self, error, "Fatal error: protocol.eof_received() call failed.")
        return False


cdef int call_protocol(LoopConnection self, name) except -1:
    try:
        method = getattr(self.protocol, name)
        if self.in_context:
            # A copy, as in uvloop: write() may call pause_writing while the context is entered.
            self.context.copy().run(method)
        else:
            method()
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        report(self, error, f"protocol.{name}() failed")
    return 0


cdef int no_buffer(LoopConnection self, error) except -1:
    """Ends the connection because get_buffer has failed or returned an empty buffer."""
    if not self.origin.stdlib:
        error = RuntimeError("unhandled error (or an empty buffer) in get_buffer()")  # the text of uvloop's transport
    return fatal(self, error, "Fatal error: protocol.get_buffer() call failed.")


cdef int fatal(LoopConnection self, error, message) except -1:
    """Reports an exception of the protocol and ends the connection. `message`: the text of the stdlib's loops."""
    if not self.origin.stdlib:
        message = f"Fatal error on transport {type(self.lower).__name__}"
    if not isinstance(error, OSError):
        report(self, error, message)
    elif self.origin.loop.get_debug():
        self.origin.policy.debug(self, message)
    self._force_close(error)
    return 0


cdef int report(LoopConnection self, error, message) except -1:
    self.origin.loop.call_exception_handler(
        {"message": message, "exception": error, "transport": self, "protocol": self.protocol}
    )
    return 0
