# Making connections: what the wrapped methods of the loops do natively, for every connection, one-shots too.

cdef object kernel_socket = _socket.socket
cdef object family_of = _socket.socket.family.__get__


def may_move(sock):
    """Whether a connection that a loop makes of this object may move: a socket, and not a test's mock of one, of an internet
    family, and fastsock is on."""
    cdef int family
    if not PyObject_TypeCheck(sock, <PyTypeObject *>kernel_socket):
        return False
    family = family_of(sock)
    return (family == AF_INET or family == AF_INET6) and may_begin()


cdef Endpoint endpoint_of(sock):
    """The endpoint that a socket object has when the loop gets it, or None."""
    cdef object endpoint = getattr(sock, "_endpoint", None)
    if type(endpoint) is not Endpoint:
        endpoint = endpoint_at(sock.fileno())
    return None if endpoint is None or fs_has_ended(&(<Endpoint>endpoint).c) else endpoint


cdef bint overrides_data_calls(sock) except -1:
    """Whether the stdlib loop's transport would call methods of the program's own when it receives or sends: then it has to
    go on calling them."""
    kind = type(sock)
    if kind is plain_sockets[0] or kind is plain_sockets[1]:
        return False
    own = getattr(sock, "__dict__", ())
    for name in ("recv", "recv_into", "send", "sendmsg"):
        if name in own:
            return True
        method = getattr(kind, name, None)
        if method is not getattr(plain_sockets[0], name) and method is not getattr(plain_sockets[1], name):
            return True
    return False


cdef int begin_with(Transport transport, sock, Endpoint endpoint) except -1:
    """A connection that is made of a socket object with an endpoint, or of one whose class has data calls of its own."""
    cdef object stays = None, error = None
    if transport.origin.stdlib and overrides_data_calls(sock):
        stays = policy.OVERRIDDEN
    elif fs_is_attached(&endpoint.c):
        try:
            transport.origin.queue.watch_eventfd(endpoint.c.wake_fd)
        except OSError as failure:  # without a descriptor for the queue the ring cannot be waited for
            stays, error = policy.RESOURCES, failure
    if stays is None:
        # The object's methods, which the loop's transport calls, are the kernel's from now on.
        if getattr(sock, "_endpoint", None) is endpoint:
            sock._endpoint = None
        return transport.take_over(endpoint)
    if endpoint is None:
        transport.acts_at = count_beginning()
    elif not policy.leave(endpoint, stays) and error is not None:
        # The object stays on the ring. The loop's transport would read past it if it has the number only.
        if not transport.origin.stdlib:
            transport.drive(endpoint)
            transport._force_close(error)
            return 0
    return transport.stay_on_kernel(stays)


# ---- uvloop: connections are made natively, inside the methods that a program calls --------------------------


@cython.freelist(16)
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
    """What a loop's method makes with a ShimFactory, as a program shall see it: (our transport, the program's protocol)."""
    cdef Shim shim
    _, shim = await connecting
    return shim.transport, shim.protocol


def connecting(original, secured):
    """uvloop's create_connection, from its own, and from one for connections with TLS."""

    @cython.binding(True)
    def create_connection(self, protocol_factory, host=None, port=None, **options):
        if not may_begin():
            return original(self, protocol_factory, host, port, **options)
        if not options:
            return made_above(original(self, ShimFactory(self, protocol_factory), host, port))
        if options.get("ssl"):
            return secured(self, protocol_factory, host, port, **options)
        return made_above(
            original(self, ShimFactory(self, protocol_factory, options.get("sock")), host, port, **options))

    return create_connection


# ---- the stdlib's loops: all stream connections are made by one method ----------------------------------------


def making_of_socket(original):
    """The stdlib loops' _make_socket_transport, from their own."""

    @cython.binding(True)
    def _make_socket_transport(self, sock, protocol, *arguments, **options):
        cdef Shim shim
        cdef Transport transport
        if not may_move(sock):
            return original(self, sock, protocol, *arguments, **options)
        shim = new_shim(origin_of(self), protocol, None, sock)
        lower = original(self, sock, shim, *arguments, **options)
        transport = shim.above(lower)
        # From Python 3.13 on a server knows its transports, and can close them: ours, from now on.
        clients = getattr(options.get("server"), "_clients", None)
        if clients is not None:
            clients.discard(lower)
            clients.add(transport)
            transport.clients = clients
        return transport

    return _make_socket_transport
