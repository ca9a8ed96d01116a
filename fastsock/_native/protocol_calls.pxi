# The calls of the program's protocol: in its context, and with its exceptions reported as by the loops. Part of transport.pyx.

cdef extern from "Python.h":
    PyObject *PyObject_CallOneArg(object, object)

cdef extern from *:
    """
    /* Raises the current exception. */
    static inline int fs_raise(void) { return -1; }
    """
    int fs_raise() except -1


cdef int deliver(Transport self, data) except -1:
    """Calls data_received of the program's protocol."""
    return call_in_context(self, self.data_received, data, "data_received")


cdef int call_buffer_updated(Transport self, Py_ssize_t count) except -1:
    """Calls buffer_updated of the program's BufferedProtocol."""
    return call_in_context(self, self.buffer_updated, count, "buffer_updated")


cdef inline bint steps_in(Transport self) noexcept:
    """Returns true if calls of the protocol must enter its context: not on kernel TCP, nor during a sweep, which has
    entered it."""
    return self.in_context and self.queue.inside is not self


cdef int call_in_context(Transport self, method, argument, str name) except -1:
    if not steps_in(self):
        return call(self, method, argument, name)
    PyContext_Enter(self.context)
    try:
        return call(self, method, argument, name)
    finally:
        PyContext_Exit(self.context)


cdef inline int call(Transport self, method, argument, str name) except -1:
    # Without `try`, which would double the cost.
    cdef PyObject *result = PyObject_CallOneArg(method, argument)
    if result == NULL:
        return failed(self, name)
    Py_DECREF(<object>result)
    return 0


cdef int failed(Transport self, str method) except -1:
    """Reports an exception of the protocol's method, with the transport and the protocol that the program knows."""
    try:
        fs_raise()
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        fatal(self, error, f"Fatal error: protocol.{method}() call failed.")
    return 0


cdef object run_in_context(Transport self, method, argument):
    """Calls the protocol's method in its context. Returns its result; exceptions go to the caller."""
    if not steps_in(self):
        return method(argument)
    PyContext_Enter(self.context)
    try:
        return method(argument)
    finally:
        PyContext_Exit(self.context)


cdef int deliver_pieces(Transport self, bytes data) except -1:
    """Delivers bytes to a protocol of either kind."""
    cdef Py_ssize_t at = 0, part
    if self.get_buffer is None:
        return deliver(self, data)
    while at < len(data) and self.state == OPEN:
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


cdef int report_eof(Transport self) except -1:
    """Reports the end of the stream to the protocol. Closes the transport if the protocol does not keep it open."""
    self.ended = True
    want(self)
    if not ask_to_keep_open(self):
        self.close()
    return 0


cdef bint ask_to_keep_open(Transport self) except -1:
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


cdef int call_protocol(Transport self, name) except -1:
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


cdef int fatal(Transport self, error, message) except -1:
    """Reports an exception of the protocol and ends the connection. `message`: the text of the stdlib's loops."""
    message = fatal_message(self, message)
    if not isinstance(error, OSError):
        report(self, error, message)
    elif self.queue.loop.get_debug():
        _log.debug("%r: %s", self, message, exc_info=True)
    self._force_close(error)
    return 0


cdef int report(Transport self, error, message) except -1:
    self.queue.loop.call_exception_handler(
        {"message": message, "exception": error, "transport": self, "protocol": self.protocol}
    )
    return 0
