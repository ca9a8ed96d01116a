# The protocol that the loop's own transport sees.

cdef class Origin:
    """What the transports of one call of a loop's method have in common. `looks_closer`: the socket object may have an
    endpoint already, or a server keep account of the loop's transports."""

    cdef readonly object loop
    cdef readonly object policy
    cdef readonly CompletionQueue queue
    cdef readonly bint looks_closer
    cdef object kind  # of transport: Transport or a class derived from it

    def __cinit__(self, loop, policy, CompletionQueue queue not None, kind, bint looks_closer):
        self.loop = loop
        self.policy = policy
        self.queue = queue
        self.kind = kind
        self.looks_closer = looks_closer


cdef class Shim:
    """Stands between the loop's transport and ours. While the connection is on the kernel it passes on what comes, at the
    cost of one native call; after the move it hears doorbell bytes and the end of the lifeline.

    Made by the protocol factory (`protocol`), or by a transport whose protocol changed its kind (`transport`).
    """

    cdef object __weakref__
    cdef Origin origin
    cdef readonly object protocol
    cdef readonly Transport transport
    cdef readonly bint buffered

    def __cinit__(self, Origin origin not None, protocol, Transport transport, bint buffered):
        self.origin = origin
        self.protocol = protocol
        self.transport = transport
        self.buffered = buffered

    def connection_made(self, lower):
        cdef Transport transport = self.origin.kind(self.origin, lower)
        self.transport = transport
        transport.shim = self
        transport.use_protocol(self.protocol, self.buffered)
        endpoint = self.origin.policy.opened(transport, lower) if self.origin.looks_closer else None
        if endpoint is not None:
            transport.take_over(endpoint)
        PyContext_Enter(transport.context)
        try:
            self.protocol.connection_made(transport)
        finally:
            PyContext_Exit(transport.context)

    def connection_lost(self, error):
        """The lifeline has ended. What the peer had posted before comes first, unless reading is paused: a reset throws away
        what nobody has read."""
        cdef Transport transport = self.transport
        if transport is None:
            return
        if transport.entered and transport.reading:
            drain(transport)
        transport.closing = transport.lost = True
        transport.end_endpoint()
        drop_backlog(transport)
        if self.origin.looks_closer:
            self.origin.policy.lost(transport)
        protocol = transport.protocol
        PyContext_Enter(transport.context)
        try:
            protocol.connection_lost(error)
        finally:
            PyContext_Exit(transport.context)
            transport.forget_protocol()

    def data_received(self, data):
        """Bytes of the kernel's stream: the program's, or, behind the switch, doorbell bytes."""
        cdef Transport transport = self.transport
        cdef Py_ssize_t mine, behind
        if transport.entered:
            mine = self.heard(len(data), &behind)
            late = data[len(data) - behind :] if behind else None
            if mine:
                deliver(transport, data if mine == len(data) else data[:mine])
            if late:
                deliver_late(transport, late)
        else:
            transport.operate()
            if not transport.closing:
                deliver(transport, data)

    cdef Py_ssize_t heard(self, Py_ssize_t count, Py_ssize_t *behind) except -1:
        """`count` bytes came over the kernel connection of a transport with a region: how many of the first are the
        program's, and how many of the last (`behind`)."""
        cdef Transport transport = self.transport
        cdef uint64_t late = 0
        cdef int64_t mine = took_from_kernel(transport.endpoint, count, &late)
        behind[0] = <Py_ssize_t>late
        if mine < 0:
            transport.fail(mine)
            return 0
        if mine < count:
            hold_lower(transport)
        if mine < count or switch_reached(transport.endpoint):
            transport.queue.heat(transport)
        return mine

    def eof_received(self):
        """The end of the kernel's stream. True: our own transport closes, when the ring is read to its end."""
        cdef Transport transport = self.transport
        if not transport.entered:
            if transport.closing or transport.ended:  # (uvloop may tell it twice)
                return not transport.closing
            transport.ended = True
            keep = ask_to_keep_open(transport)
            if not keep:
                transport.closing = True
            return keep
        transport.lower_ended = True
        if transport.reading:
            drain(transport)
        if transport.backlog_size:
            transport.queue.watch(transport)
        return True

    def pause_writing(self):
        cdef Transport transport = self.transport
        if not transport.protocol_paused:
            transport.protocol_paused = True
            call_protocol(transport, "pause_writing")

    def resume_writing(self):
        cdef Transport transport = self.transport
        if transport.protocol_paused and not transport.backlog_size:
            transport.protocol_paused = False
            call_protocol(transport, "resume_writing")


cdef class ShimOfBuffered(Shim):
    """The same above a BufferedProtocol: the loop's transport reads into the protocol's own buffer."""

    cdef object get_buffer_error
    cdef object buffer

    def get_buffer(self, hint):
        cdef Transport transport = self.transport
        PyContext_Enter(transport.context)
        try:
            buffer = transport.get_buffer(hint)
            if not len(buffer):
                raise RuntimeError("get_buffer() returned an empty buffer")
            if transport.entered:
                self.buffer = buffer  # bytes of a peer that goes back to the kernel may have to be kept for later
            return buffer
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            # Told in buffer_updated: a uvloop transport that is ended while it asks for a buffer crashes. What is read
            # into this one is thrown away.
            self.get_buffer_error = error
            self.buffer = bytearray(1)
            return self.buffer
        finally:
            PyContext_Exit(transport.context)

    def buffer_updated(self, Py_ssize_t count):
        cdef Transport transport = self.transport
        cdef Py_ssize_t behind = 0
        cdef bytes late = None
        if self.get_buffer_error is not None:
            error, self.get_buffer_error = self.get_buffer_error, None
            fatal(transport, error, "Fatal error: protocol.get_buffer() call failed.")
            return
        if transport.entered:
            filled = memoryview(self.buffer)[:count]
            count = self.heard(count, &behind)
            if behind:
                late = bytes(filled[len(filled) - behind :])
            filled.release()
        else:
            transport.operate()
        if count and not transport.closing:
            tell_updated(transport, count)
        if late is not None:
            deliver_late(transport, late)
