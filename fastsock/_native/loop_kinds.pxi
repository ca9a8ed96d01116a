# How the stdlib's loops and uvloop differ as far as a program can see. All other code is the same for both. Part of transport.pyx.

cdef enum:
    DELIVERY = 262144    # most bytes given to a protocol at once: as asyncio's transports read
    UVLOOP_HINT = 65536  # bytes that libuv asks for (uv__read); uvloop's SSLProtocol takes a size_t, so -1 is not possible

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


cdef LoopKind kind_of(loop) except *:
    """Returns the kind of a loop, at its first connection."""
    if not isinstance(loop, _BaseEventLoop):
        return UVLOOP
    fs_take_from_heap(2 * DELIVERY)  # makes the allocation of its transports for each read three times as fast
    return STDLIB_LOOP


# ---- protocols -----------------------------------------------------------------------------------------------


cdef bint is_buffered(CompletionQueue queue, protocol):
    """Returns true if the loop treats the protocol as a BufferedProtocol. uvloop's SSLProtocol is not a subclass."""
    if queue.kind == STDLIB_LOOP:
        return isinstance(protocol, _BufferedProtocol)
    return not isinstance(protocol, _Protocol) and hasattr(protocol, "get_buffer")


cdef inline Py_ssize_t buffer_hint(CompletionQueue queue) noexcept:
    """Returns the size that the loop's own transport requests from get_buffer."""
    return -1 if queue.kind == STDLIB_LOOP else UVLOOP_HINT


cdef object buffer_for_lower(Transport self, hint):
    """Returns the protocol's buffer for the lower transport, which asks for it. uvloop handles errors itself after this call. The
    stdlib's transport gets one that ends its read: it has ended then, and ignores it."""
    if self.queue.kind == UVLOOP:
        return run_in_context(self, self.get_buffer, hint)
    try:
        buffer = run_in_context(self, self.get_buffer, hint)
        if not len(buffer):
            raise RuntimeError("get_buffer() returned an empty buffer")
        return buffer
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        no_buffer(self, error)
        raise ConnectionAbortedError


cdef int no_buffer(Transport self, error) except -1:
    """Ends the connection because get_buffer has failed or returned an empty buffer."""
    if self.queue.kind == UVLOOP:
        error = RuntimeError("unhandled error (or an empty buffer) in get_buffer()")  # the text of uvloop's transport
    return fatal(self, error, "Fatal error: protocol.get_buffer() call failed.")


cdef object fatal_message(Transport self, message):
    """Returns the text for an exception that ends a connection. `message`: the text of the stdlib's loops."""
    return message if self.queue.kind == STDLIB_LOOP else f"Fatal error on transport {type(self.lower).__name__}"


# ---- calls of the program ------------------------------------------------------------------------------------


cdef int check_written(Transport self, data) except -1:
    """Raises TypeError for data that the stdlib's transports reject. uvloop rejects it when it makes a view (view_of)."""
    if self.queue.kind == STDLIB_LOOP and not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(f"data argument must be a bytes-like object, not {type(data).__name__!r}")
    return 0


cdef object view_of(Transport self, data):
    """Returns what the loop's own transport takes a buffer of, for data that is not empty."""
    return data if self.queue.kind == STDLIB_LOOP else memoryview(data).cast("b")


cdef inline bint is_dead(Transport self) noexcept:
    """Returns true if the loop's transport was closed together with its loop, as uvloop does, and rejects calls."""
    return self.queue.kind == UVLOOP and self.queue.closed


cdef bint was_unasked(Transport self, sock) except -1:
    """Returns true if the program asks for the socket of a closed transport for the first time on uvloop, which has none then. It has
    `sock` as we asked at the beginning."""
    return self.queue.kind == UVLOOP and sock is not None and sock.fileno() < 0


cdef bint shows_reading(Transport self) noexcept:
    """Returns the value of is_reading for an open transport that was not paused."""
    return self.queue.kind == STDLIB_LOOP or not (self.ended or self.queue.closed)


cdef bint lines_go_below(Transport self) except -1:
    """Returns true if writelines is the lower transport's business: on uvloop it raises where write does not."""
    if self.queue.kind == STDLIB_LOOP:
        return False
    if self.write_ended:
        raise RuntimeError("Cannot call writelines() after write_eof()")
    return self.queue.closed or (self.state != OPEN and not self.backlog_size)


cdef int write_eof_when_closing(Transport self) except -1:
    """Handles write_eof of a closing transport, which the stdlib's loops ignore."""
    if self.queue.kind == UVLOOP:
        if not self.backlog_size:
            self.lower.write_eof()  # raises after the end
        self.write_ended = True
    return 0


cdef int check_protocol(Transport self, protocol) except -1:
    """Raises TypeError for None, like uvloop."""
    if protocol is None and self.queue.kind == UVLOOP:
        raise TypeError("protocol is required")
    return 0


cdef object class_of(Transport self):
    """Returns the class for isinstance(): the stdlib's transports are instances of asyncio.Transport, uvloop's are not."""
    return _AsyncioTransport if self.queue is not None and self.queue.kind == STDLIB_LOOP else Transport


cdef object of_lower(str name):
    """Returns a property that delegates to the lower transport: programs use these attributes of the stdlib's."""
    def get(self):
        return getattr(self.lower, name)

    def set(self, value):
        setattr(self.lower, name, value)

    return property(get, set)
