# Calls of the program's protocol: in its context, and what it raises is reported as the loops do.

cdef extern from *:
    """
    /* Raises the exception that a call has left. */
    static inline int fs_raise(void) { return -1; }
    """
    int fs_raise() except -1


cdef int deliver(Transport self, data) except -1:
    """Bytes to the program's Protocol."""
    return tell(self, self.data_received, data, "data_received")


cdef int tell_updated(Transport self, Py_ssize_t count) except -1:
    """To a BufferedProtocol: its buffer holds so many bytes."""
    return tell(self, self.buffer_updated, count, "buffer_updated")


cdef inline bint steps_in(Transport self) noexcept:
    """Whether a call of the protocol has to enter its context: not on the kernel, and not in a sweep, which has done so."""
    return self.in_context and self.origin.queue.inside is not self


cdef int tell(Transport self, method, argument, str name) except -1:
    if not steps_in(self):
        return call(self, method, argument, name)
    PyContext_Enter(self.context)
    try:
        return call(self, method, argument, name)
    finally:
        PyContext_Exit(self.context)


cdef inline int call(Transport self, method, argument, str name) except -1:
    # No `try`, which would cost as much as the rest.
    cdef PyObject *result = PyObject_CallOneArg(method, argument)
    if result == NULL:
        return failed(self, name)
    Py_DECREF(<object>result)
    return 0


cdef int failed(Transport self, str method) except -1:
    """A method of the protocol's has raised: reported here, with the transport and the protocol that the program knows."""
    try:
        fs_raise()
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        fatal(self, error, f"Fatal error: protocol.{method}() call failed.")
    return 0


cdef object run_in_context(Transport self, method, argument):
    """A call of the protocol's method whose result is wanted, or whose exception is the caller's."""
    if not steps_in(self):
        return method(argument)
    PyContext_Enter(self.context)
    try:
        return method(argument)
    finally:
        PyContext_Exit(self.context)


cdef int deliver_pieces(Transport self, bytes data) except -1:
    """Bytes to a protocol of either kind."""
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
        tell_updated(self, part)
    return 0


cdef int tell_end(Transport self) except -1:
    """The end of the stream, to the protocol."""
    self.ended = True
    if not ask_to_keep_open(self):
        self.close()
    return 0


cdef bint ask_to_keep_open(Transport self) except -1:
    """Whether the protocol goes on sending after the end of the stream."""
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
            # A copy, as in uvloop: pause_writing is called from within write(), perhaps inside our own.
            self.context.copy().run(method)
        else:
            method()
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        report(self, error, f"protocol.{name}() failed")
    return 0


cdef int no_buffer(Transport self, error) except -1:
    """A protocol's get_buffer has failed, or given an empty one."""
    if not self.origin.stdlib:
        error = RuntimeError("unhandled error (or an empty buffer) in get_buffer()")  # as uvloop's transport says
    return fatal(self, error, "Fatal error: protocol.get_buffer() call failed.")


cdef int fatal(Transport self, error, message) except -1:
    """An exception of the protocol's: reported, and the connection ends. `message`: as the stdlib's loops say."""
    if not self.origin.stdlib:
        message = f"Fatal error on transport {type(self.lower).__name__}"
    if not isinstance(error, OSError):
        report(self, error, message)
    elif self.origin.loop.get_debug():
        policy.debug(self, message)
    self._force_close(error)
    return 0


cdef int report(Transport self, error, message) except -1:
    self.origin.loop.call_exception_handler(
        {"message": message, "exception": error, "transport": self, "protocol": self.protocol}
    )
    return 0
