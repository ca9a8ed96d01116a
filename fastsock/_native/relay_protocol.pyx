# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=False
"""The protocol of the loop's own transport, and the wrappers of loop methods that install it.

The wrappers, at the end of this file, run for every connection, so they are native.
"""

cimport cython
from libc.stdint cimport int64_t, uint64_t
from cpython.object cimport PyObject_TypeCheck, PyTypeObject

from fastsock._native.transport_io cimport deliver_late, drain, hold_lower, update_paused, wake_waiters
from fastsock._native.core cimport *
from fastsock._native.endpoint cimport Endpoint
from fastsock._native.loop_connection cimport LowerProtocol, LoopContext, ask_to_keep_open, deliver, fatal, is_buffered
from fastsock._native.loop_connection cimport run_in_context, call_buffer_updated
from fastsock._native.transport cimport Transport
from fastsock._native.session_stats cimport SessionStats, stats_of_port
from fastsock._native.registry cimport count_beginning, endpoint_at, may_begin, may_look_later

import _socket

cdef extern from "<netinet/in.h>":
    enum: AF_INET, AF_INET6

cdef extern from *:
    """
    /* Returns a new object of a class derived from one of ours, without calling __init__. */
    static inline PyObject *fs_new(PyObject *type, PyObject *nothing) {
        return ((PyTypeObject *)type)->tp_new((PyTypeObject *)type, nothing, NULL);
    }
    """
    object fs_new(object, object)


cdef RelayProtocol new_relay(LoopContext origin, protocol, Transport transport, sock, SessionStats session):
    """Returns a relay for a new connection, or for a `transport` with a new protocol of the other kind. `sock`: the socket
    object of the connection, or None. `session`: statistics of the service's sessions, or None."""
    cdef bint buffered = is_buffered(origin, protocol)
    cdef RelayProtocol relay = origin.policy.BufferedRelayProtocol() if buffered else RelayProtocol.__new__(RelayProtocol)
    relay.origin = origin
    relay.protocol = protocol
    relay.transport = transport
    relay.buffered = buffered
    relay.sock = sock
    relay.session = session
    return relay


cdef class RelayProtocol(LowerProtocol):
    """The protocol between the loop's transport and ours. On kernel TCP it passes on data and events, with one native call
    and in the context of the loop's call. After the move it receives doorbell bytes and the end of the kernel connection.
    """

    cdef object __weakref__
    cdef object protocol              # the program's protocol
    cdef Transport transport
    cdef object sock
    cdef SessionStats session

    def __cinit__(self):
        pass  # __cinit__ prevents pickling, which makes no sense here

    cdef Transport above(self, lower):
        """Creates our transport above the loop's own."""
        cdef Transport transport = (
            <Transport>fs_new(self.origin.policy.StdlibTransport, ()) if self.origin.stdlib else Transport.__new__(Transport))
        transport.origin = self.origin
        transport.lower = lower
        self.transport = transport
        transport.relay = self
        transport.use_protocol(self.protocol, self.buffered)
        return transport

    cdef int replace(self, protocol) except -1:
        cdef Transport transport = self.transport
        transport.relay = new_relay(self.origin, protocol, transport, None, None)
        transport.lower.set_protocol(transport.relay)
        return 0

    def connection_made(self, lower, /):
        cdef Transport transport = self.transport
        cdef Endpoint endpoint = None
        if transport is None:
            transport = self.above(lower)
        if self.sock is not None:
            sock, self.sock = self.sock, None
            endpoint = endpoint_of(sock)
            if endpoint is not None or self.origin.stdlib and overrides_data_calls(self.origin, sock):
                begin_with(transport, sock, endpoint)
            else:
                begin_without(transport, self.session)
        else:
            begin_without(transport, self.session)
        if transport.kernel_because is not None:
            transport.stay_on_kernel(transport.kernel_because)
        run_in_context(transport, self.protocol.connection_made, transport)
        transport.note_context()

    def connection_lost(self, error, /):
        """The kernel connection has ended. Delivers what the peer had sent before, unless reading is paused: a reset discards
        unread data."""
        cdef Transport transport = self.transport
        if transport is None:
            return
        if transport.entered and transport.reading:
            drain(transport)
        transport.closing = transport.lost = True
        if transport.endpoint is None and transport.session is not None:
            transport.session.note(transport.operations)
        transport.session = None
        transport.end_endpoint()
        transport.drop_backlog()
        wake_waiters(transport)
        if transport.clients is not None:
            transport.clients.discard(transport)
        try:
            run_in_context(transport, transport.protocol.connection_lost, error)
        finally:
            transport.forget_protocol()

    def data_received(self, data, /):
        """Receives bytes of the kernel's stream: the program's data or, after the switch, doorbell bytes."""
        cdef Transport transport = self.transport
        cdef Py_ssize_t mine, behind
        if transport.entered:
            mine = self.account(len(data), &behind)
            late = data[len(data) - behind :] if behind else None
            if mine:
                deliver(transport, data if mine == len(data) else data[:mine])
            if late:
                deliver_late(transport, late)
        else:
            transport.note_read()
            if not transport.closing:
                deliver(transport, data)

    cdef Py_ssize_t account(self, Py_ssize_t count, Py_ssize_t *behind) except -1:
        """Accounts for `count` bytes from the kernel connection of a transport with a region. Returns the number of bytes at
        the start that belong to the program, and in `behind` the number at the end; the others are doorbell bytes."""
        cdef Transport transport = self.transport
        cdef uint64_t late = 0
        cdef int64_t mine = fs_account_read(&transport.endpoint.c, count, &late)
        behind[0] = <Py_ssize_t>late
        if mine < 0:
            transport.fail(mine)
            return 0
        if mine < count:
            hold_lower(transport)
        if mine < count or fs_switch_reached(&transport.endpoint.c):
            transport.origin.queue.activate(transport)
        return mine

    def eof_received(self):
        """The kernel's stream has ended. Returns true to keep the lower transport open: ours closes it when the ring is
        read to its end."""
        cdef Transport transport = self.transport
        if not transport.entered:
            if transport.closing or transport.ended:  # uvloop may call this twice
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
            transport.origin.queue.watch(transport)
        return True

    def pause_writing(self):
        self.transport.lower_paused = True
        update_paused(self.transport)

    def resume_writing(self):
        self.transport.lower_paused = False
        update_paused(self.transport)


cdef class BufferedRelay(RelayProtocol):
    """The relay for a BufferedProtocol: the loop's transport reads into the protocol's own buffer."""

    cdef object buffer

    def get_buffer(self, hint, /):
        cdef Transport transport = self.transport
        if not self.origin.stdlib:
            # uvloop handles errors itself after this call. Its transport must not be closed inside the call.
            buffer = run_in_context(transport, transport.get_buffer, hint)
        else:
            try:
                buffer = run_in_context(transport, transport.get_buffer, hint)
                if not len(buffer):
                    raise RuntimeError("get_buffer() returned an empty buffer")
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                fatal(transport, error, "Fatal error: protocol.get_buffer() call failed.")
                raise ConnectionAbortedError  # so that nothing is read; the loop's transport has ended and ignores the error
        if transport.entered:
            self.buffer = buffer  # bytes of a peer that falls back may have to be kept for later
        return buffer

    def buffer_updated(self, Py_ssize_t count, /):
        cdef Transport transport = self.transport
        cdef Py_ssize_t behind = 0
        cdef bytes late = None
        if transport.entered:
            filled = memoryview(self.buffer)[:count]
            count = self.account(count, &behind)
            if behind:
                late = bytes(filled[len(filled) - behind :])
            filled.release()
        else:
            transport.note_read()
        if count and not transport.closing:
            call_buffer_updated(transport, count)
        if late is not None:
            deliver_late(transport, late)


# ---- a connection that is made of a socket object -------------------------------------------------------------


cdef Endpoint endpoint_of(sock):
    """Returns the endpoint of a socket object that the loop takes over, or None."""
    cdef object endpoint = getattr(sock, "_endpoint", None)
    if type(endpoint) is not Endpoint:
        endpoint = endpoint_at(sock.fileno())
    return None if endpoint is None or fs_has_ended(&(<Endpoint>endpoint).c) else endpoint


cdef bint overrides_data_calls(LoopContext origin, sock) except -1:
    """Returns true if the socket's class or the object overrides recv or send. The stdlib loop's transport must then keep
    calling these methods."""
    cdef tuple plain = origin.policy.PLAIN_SOCKETS
    kind = type(sock)
    if kind is plain[0] or kind is plain[1]:
        return False
    own = getattr(sock, "__dict__", ())
    for name in ("recv", "recv_into", "send", "sendmsg"):
        if name in own:
            return True
        method = getattr(kind, name, None)
        if method is not getattr(plain[0], name) and method is not getattr(plain[1], name):
            return True
    return False


cdef int begin_without(Transport transport, SessionStats session) except -1:
    """Starts a connection without an endpoint. It gets one when it is busy."""
    transport.session = session
    transport.acts_at = count_beginning(session)
    if may_look_later(transport.acts_at):
        transport.last_standing = transport.origin.policy.UNPAID
    return 0


cdef int begin_with(Transport transport, sock, Endpoint endpoint) except -1:
    """Starts a connection of a socket object with an endpoint, or of a class that overrides recv or send."""
    cdef object stays = None, error = None
    if transport.origin.stdlib and overrides_data_calls(transport.origin, sock):
        stays = transport.origin.policy.OVERRIDDEN
    elif fs_is_attached(&endpoint.c):
        try:
            transport.origin.queue.admit(endpoint)
        except OSError as failure:  # the queue has no descriptor, so nothing can wait for the ring
            stays, error = transport.origin.policy.RESOURCES, failure
    if stays is None:
        # The loop's transport calls the object's methods, which must use the kernel from now on.
        if getattr(sock, "_endpoint", None) is endpoint:
            sock._endpoint = None
        return transport.take_over(endpoint)
    if endpoint is None:
        begin_without(transport, None)
    elif not transport.origin.policy.leave(endpoint, stays) and error is not None:
        # The object stays on the ring. A transport that uses the descriptor would read past the ring.
        if not transport.origin.stdlib:
            transport.drive(endpoint)
            transport._force_close(error)
            return 0
    return transport.stay_on_kernel(stays)


# ---- connections that may move -------------------------------------------------------------------------------

cdef object kernel_socket = _socket.socket
cdef object family_of = _socket.socket.family.__get__


def may_move(sock):
    """Returns true if connections of this object may move: a real socket (not a mock) of an internet family, and fastsock is
    enabled."""
    cdef int family
    if not PyObject_TypeCheck(sock, <PyTypeObject *>kernel_socket):
        return False
    family = family_of(sock)
    return (family == AF_INET or family == AF_INET6) and may_begin()


cpdef LoopContext origin_of(loop, new_origin):
    """Returns the state shared by the transports of a loop. `new_origin(loop)` creates it at the first connection."""
    # Not through loop.__dict__: using it slows down the object's attributes (Python 3.11 and later).
    origin = getattr(loop, "_fastsock_origin", None)
    if origin is None:
        origin = loop._fastsock_origin = new_origin(loop)
    return origin


# ---- uvloop: connections are made natively, inside the methods that a program calls --------------------------


@cython.freelist(16)
cdef class RelayFactory:
    """A protocol factory for the loop's own transport: creates the program's protocol and a relay below. `sock`: the socket
    object of the connection, if the program gave one. `port`: the port to connect to; None for accepted connections, which
    belong to one service."""

    cdef LoopContext origin
    cdef object protocol_factory
    cdef object sock
    cdef SessionStats session

    def __cinit__(self, LoopContext origin not None, protocol_factory, sock=None, port=None):
        self.origin = origin
        self.protocol_factory = protocol_factory
        self.sock = sock
        self.session = stats_of_port(port) if type(port) is int and 0 < port < 65536 else SessionStats()

    def __call__(self):
        return new_relay(self.origin, self.protocol_factory(), None, self.sock, self.session)


cdef class ConnectionFactory(RelayFactory):
    """A RelayFactory for a single connection; keeps the relay."""

    cdef RelayProtocol relay

    def __call__(self):
        self.relay = RelayFactory.__call__(self)
        return self.relay


async def made_above(connecting, ConnectionFactory factory):
    """Awaits a connection that a loop's method makes with this factory. Returns (our transport, the program's protocol)."""
    try:
        await connecting
    except BaseException:
        # For example cancelled after connection_made: uvloop has closed the descriptor without calling the protocol.
        if factory.relay is not None and factory.relay.transport is not None:
            factory.relay.transport.end_endpoint()
        raise
    return factory.relay.transport, factory.relay.protocol


def connecting(original, secured, new_origin):
    """Returns a wrapper of uvloop's create_connection. `original`: uvloop's method. `secured`: the method for connections
    with TLS. `new_origin`: see origin_of."""

    @cython.binding(True)
    def create_connection(self, protocol_factory, host=None, port=None, **options):
        if not may_begin():
            return original(self, protocol_factory, host, port, **options)
        if not options:
            factory = ConnectionFactory(origin_of(self, new_origin), protocol_factory, None, port)
            return made_above(original(self, factory, host, port), factory)
        if options.get("ssl"):
            return secured(self, protocol_factory, host, port, **options)
        factory = ConnectionFactory(origin_of(self, new_origin), protocol_factory, options.get("sock"), port)
        return made_above(original(self, factory, host, port, **options), factory)

    return create_connection


# ---- the stdlib's loops: all stream connections are made by one method ----------------------------------------


cdef SessionStats sessions_of(server):
    """Returns the statistics of the sessions that a server of a stdlib loop has accepted."""
    found = getattr(server, "_fastsock_sessions", None)
    if found is None:
        found = server._fastsock_sessions = SessionStats()
    return found


def making_of_socket(original, new_origin):
    """Returns a wrapper of the stdlib loops' _make_socket_transport. `new_origin`: see origin_of."""

    @cython.binding(True)
    def _make_socket_transport(self, sock, protocol, *arguments, **options):
        cdef RelayProtocol relay
        cdef Transport transport
        if not may_move(sock):
            return original(self, sock, protocol, *arguments, **options)
        server = options.get("server")
        relay = new_relay(origin_of(self, new_origin), protocol, None, sock, None if server is None else sessions_of(server))
        lower = original(self, sock, relay, *arguments, **options)
        transport = relay.above(lower)
        # From Python 3.13 on, a server keeps its transports, to close them. Give it ours.
        clients = getattr(server, "_clients", None)
        if clients is not None:
            clients.discard(lower)
            clients.add(transport)
            transport.clients = clients
        return transport

    return _make_socket_transport
