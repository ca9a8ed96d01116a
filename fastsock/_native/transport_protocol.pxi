# Calls of the program's protocol: in its context, and what it raises is reported as the loops do.

cdef int deliver(Transport self, data) except -1:
    """Bytes to the program's Protocol."""
    PyContext_Enter(self.context)
    try:
        self.data_received(data)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:  # reported here, with the transport and the protocol that the program knows
        fatal(self, error, "Fatal error: protocol.data_received() call failed.")
    finally:
        PyContext_Exit(self.context)
    return 0


cdef int deliver_pieces(Transport self, bytes data) except -1:
    """Bytes to a protocol of either kind."""
    cdef Py_ssize_t at = 0, part
    if self.get_buffer is None:
        return deliver(self, data)
    while at < len(data) and not self.closing:
        try:
            view = memoryview(self.get_buffer(len(data) - at)).cast("B")
            part = min(len(view), len(data) - at)
            view[:part] = data[at : at + part]
        except Exception as error:
            fatal(self, error, "Fatal error: protocol.get_buffer() call failed.")
            break
        at += part
        tell_updated(self, part)
    return 0


cdef int tell_updated(Transport self, Py_ssize_t count) except -1:
    """To a BufferedProtocol: its buffer holds so many bytes."""
    PyContext_Enter(self.context)
    try:
        self.buffer_updated(count)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        fatal(self, error, "Fatal error: protocol.buffer_updated() call failed.")
    finally:
        PyContext_Exit(self.context)
    return 0


cdef int tell_end(Transport self) except -1:
    """The end of the stream, to the protocol."""
    self.ended = True
    if not ask_to_keep_open(self):
        self.close()
    return 0


cdef bint ask_to_keep_open(Transport self) except -1:
    """Whether the protocol goes on sending after the end of the stream."""
    PyContext_Enter(self.context)
    try:
        return self.protocol.eof_received()
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        fatal(self, error, "Fatal error: protocol.eof_received() call failed.")
        return False
    finally:
        PyContext_Exit(self.context)


cdef int call_protocol(Transport self, name) except -1:
    # A copy of the context, as in the loops: pause_writing is called from within write(), perhaps inside our own.
    try:
        self.context.copy().run(getattr(self.protocol, name))
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        report(self, error, f"protocol.{name}() failed")
    return 0


cdef int fatal(Transport self, error, message) except -1:
    """An exception of the protocol's: reported, and the connection ends."""
    if not isinstance(error, OSError):
        report(self, error, message)
    elif self.loop.get_debug():
        policy.debug(self, message)
    self._force_close(error)
    return 0


cdef int report(Transport self, error, message) except -1:
    self.loop.call_exception_handler(
        {"message": message, "exception": error, "transport": self, "protocol": self.protocol}
    )
    return 0
