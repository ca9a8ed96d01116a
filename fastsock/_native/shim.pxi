# The protocol that the loop's own transport sees.

cdef object policy = None  # the module that decides about paths: begin(), path_of(), ...
cdef object plain_shim = None
cdef object buffered_shim = None
cdef object family_of = _socket.socket.family.__get__


def install(module, plain, buffered):
    """Tells this module whom it asks about paths, and the classes of the shims below a Protocol and a
    BufferedProtocol."""
    global policy, plain_shim, buffered_shim
    policy, plain_shim, buffered_shim = module, plain, buffered


cdef class Origin:
    """What the transports of a loop have in common. `kind` is their class: Transport or one derived from it."""

    cdef readonly object loop
    cdef readonly CompletionQueue queue
    cdef object kind

    def __cinit__(self, loop, CompletionQueue queue not None, kind):
        self.loop = loop
        self.queue = queue
        self.kind = kind


cdef Origin origin_of(loop):
    # Not by loop.__dict__: an object whose dict was asked for has slower attributes from then on (Python 3.11 and later).
    origin = getattr(loop, "_fastsock_origin", None)
    if origin is None:
        origin = loop._fastsock_origin = policy.new_origin(loop)
    return origin


cdef bint is_buffered(protocol):
    """Whether a protocol is a BufferedProtocol, by the rule of uvloop, whose SSLProtocol is one by its methods only."""
    return not isinstance(protocol, _Protocol) and hasattr(protocol, "get_buffer")


cdef Shim new_shim(Origin origin, protocol, Transport transport, sock):
    cdef bint buffered = is_buffered(protocol)
    return (buffered_shim if buffered else plain_shim)(origin, protocol, transport, buffered, sock)


def may_move(sock):
    """Whether a connection that a loop makes of this object may move: a socket, and not a test's mock of one, of an internet
    family, and fastsock is on."""
    return issubclass(type(sock), _socket.socket) and family_of(sock) in (AF_INET, AF_INET6) and may_begin()


def shim_of_socket(loop, protocol, sock):
    """The shim for a connection that the loop makes of a socket object; None if that cannot move."""
    return new_shim(origin_of(loop), protocol, None, sock) if may_move(sock) else None


cdef class ShimFactory:
    """A protocol factory for the loop's own transport: makes the program's protocol with a shim below it. `sock`: the
    socket object that the connection is made of, if the program has it."""

    cdef Origin origin
    cdef object protocol_factory
    cdef object sock

    def __cinit__(self, loop, protocol_factory, sock=None):
        self.origin = origin_of(loop)
        self.protocol_factory = protocol_factory
        self.sock = sock

    def __call__(self):
        return new_shim(self.origin, self.protocol_factory(), None, self.sock)


async def made_above(connecting):
    """What a loop's method makes with a ShimFactory, as a program shall see it: (our transport, the program's protocol).
    (Native, as the loop's own method is: run for every connection.)"""
    cdef Shim shim
    _, shim = await connecting
    return shim.transport, shim.protocol


cdef class Shim:
    """Stands between the loop's transport and ours. While the connection is on the kernel it passes on what comes, at the
    cost of one native call; after the move it hears doorbell bytes and the end of the lifeline.

    Made with the connection, or for a transport whose protocol became one of the other kind (`transport`). `sock`: the
    socket object that the connection is made of, if there is one.
    """

    cdef object __weakref__
    cdef Origin origin
    cdef readonly object protocol
    cdef readonly Transport transport
    cdef readonly bint buffered
    cdef object sock

    def __cinit__(self, Origin origin not None, protocol, Transport transport, bint buffered, sock):
        self.origin = origin
        self.protocol = protocol
        self.transport = transport
        self.buffered = buffered
        self.sock = sock

    def above(self, lower, clients=None):
        """Our transport above the loop's own. `clients`: the set in which a server of the loop keeps its transports, so that
        it can close them: ours, from now on."""
        cdef Transport transport = self.origin.kind(self.origin, lower)
        self.transport = transport
        transport.shim = self
        transport.use_protocol(self.protocol, self.buffered)
        if clients is not None:
            clients.discard(lower)
            clients.add(transport)
            transport.clients = clients
        return transport

    def connection_made(self, lower):
        cdef Transport transport = self.transport
        cdef Endpoint endpoint = None
        if transport is None:
            transport = self.above(lower)
        if self.sock is not None:
            endpoint = take_endpoint(self.sock)
            self.sock = None
        if endpoint is not None:
            transport.take_over(endpoint)
        else:
            transport.begins_at = count_beginning()
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
        if transport.clients is not None:
            transport.clients.discard(transport)
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


cdef Endpoint take_endpoint(sock):
    """The endpoint that a socket object had before the loop got it; the object's methods, which the loop's transport calls,
    are the kernel's from now on. None: there is none."""
    cdef object endpoint = getattr(sock, "_endpoint", None)
    if type(endpoint) is Endpoint:
        sock._endpoint = None
    else:
        endpoint = endpoint_at(sock.fileno())
    return None if endpoint is None or (<Endpoint>endpoint).finished else endpoint


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
