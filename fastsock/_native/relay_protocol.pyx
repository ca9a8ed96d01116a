# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=False
"""The protocol of the loop's own transport, and the wrappers of loop methods that install it.

The wrappers, at the end of this file, run for every connection, so they are native.
"""

cimport cython
from libc.stdint cimport int64_t, uint64_t
from cpython.object cimport PyObject_TypeCheck, PyTypeObject

from fastsock._native.core cimport *
from fastsock._native.transport cimport *

import _socket
from asyncio import BufferedProtocol as _BufferedProtocol

from fastsock import path_events

cdef extern from "<netinet/in.h>":
    enum: AF_INET, AF_INET6, AF_UNIX


cdef RelayProtocol new_relay(CompletionQueue queue, protocol, sock):
    """Returns a relay for a new connection. `sock`: the socket object of the connection, or None."""
    cdef RelayProtocol relay = relay_for(queue, protocol)
    relay.passes_on = sock is not None and overrides_data_calls(queue, sock)
    return relay


cdef RelayProtocol relay_for(CompletionQueue queue, protocol):
    cdef bint buffered = is_buffered(queue, protocol)
    cdef RelayProtocol relay = BufferedRelayProtocol() if buffered else RelayProtocol.__new__(RelayProtocol)
    relay.queue = queue
    relay.protocol = protocol
    relay.buffered = buffered
    return relay


cdef class RelayProtocol:
    """The protocol between the loop's transport and ours. On kernel TCP it passes on data and events, with one native call
    and in the context of the loop's call. After the move it receives the end of the kernel connection.
    """

    cdef object __weakref__
    cdef CompletionQueue queue
    cdef bint buffered
    cdef object protocol              # the program's protocol
    cdef Transport transport
    cdef bint passes_on               # and does nothing else

    def __cinit__(self):
        pass  # __cinit__ prevents pickling, which makes no sense here

    cdef Transport above(self, lower):
        """Creates our transport above the loop's own."""
        cdef Transport transport = Transport.__new__(Transport)
        transport.queue = self.queue
        transport.lower = lower
        transport.use_protocol(self.protocol, self.buffered)
        self.put_below(transport)
        return transport

    cdef int put_below(self, Transport transport) except -1:
        self.transport = transport
        transport.relay = self
        transport.relay_is_buffered = self.buffered
        return 0

    def replace(self):
        """Puts another relay in this one's place, as the program's new protocol is of the other kind (buffered or not)."""
        cdef RelayProtocol relay = relay_for(self.queue, self.transport.protocol)
        relay.put_below(self.transport)
        self.transport.lower.set_protocol(relay)

    def connection_made(self, lower, /):
        cdef Transport transport = self.transport
        if transport is None:
            transport = self.above(lower)
        if not self.passes_on:
            begin(transport)
        run_in_context(transport, self.protocol.connection_made, transport)
        note_context(transport)

    def connection_lost(self, error, /):
        """The kernel connection has ended. Delivers what the peer had sent before, unless reading is paused: a reset discards
        unread data."""
        cdef Transport transport = self.transport
        if transport is None:
            return
        if transport.entered and transport.reading:
            drain(transport)
        transport.state = LOST
        end_endpoint(transport)
        drop_backlog(transport)
        wake_waiters(transport)
        if transport.clients is not None:
            transport.clients.discard(transport)
        try:
            run_in_context(transport, transport.protocol.connection_lost, error)
        finally:
            # No reference cycle is left.
            transport.protocol = transport.data_received = transport.get_buffer = transport.buffer_updated = None
            transport.late = transport.relay = transport.write_to_lower = None

    def data_received(self, data, /):
        """Receives bytes of the kernel's stream."""
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
            note_read(transport)
            if transport.state == OPEN:
                deliver(transport, data)

    cdef Py_ssize_t account(self, Py_ssize_t count, Py_ssize_t *behind) except -1:
        """Accounts for `count` bytes from the kernel connection of a transport with a region. Returns the number of bytes
        that come before those in the ring, and in `behind` of those that come after."""
        cdef Transport transport = self.transport
        cdef uint64_t late = 0
        cdef int64_t mine = fs_account_read(transport.endpoint.c, count, &late)
        behind[0] = <Py_ssize_t>late
        if mine < 0:
            fail(transport, mine)
            return 0
        if mine < count or fs_switch_reached(transport.endpoint.c):
            transport.queue.activate(transport)
        return mine

    def eof_received(self):
        """The kernel's stream has ended. Returns true to keep the lower transport open: ours closes it when the ring is
        read to its end."""
        cdef Transport transport = self.transport
        if not transport.entered:
            if transport.state != OPEN or transport.ended:  # uvloop may call this twice
                return transport.state == OPEN
            transport.ended = True
            keep = ask_to_keep_open(transport)
            if not keep and transport.state == OPEN:
                transport.state = CLOSING
            return keep
        transport.lower_ended = True
        if transport.reading:
            drain(transport)
        transport.queue.activate(transport)  # (the death of the peer may be no event from here on)
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
        buffer = buffer_for_lower(transport, hint)
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
            note_read(transport)
        if count and transport.state == OPEN:
            call_buffer_updated(transport, count)
        if late is not None:
            deliver_late(transport, late)


class BufferedRelayProtocol(BufferedRelay, _BufferedProtocol):
    """The relay below a BufferedProtocol. asyncio checks the base class."""

    __slots__ = ()


# ---- connections that may move -------------------------------------------------------------------------------

cdef object kernel_socket = _socket.socket
cdef object family_of = _socket.socket.family.__get__


def may_move(sock):
    """Returns true if connections of this object may move: a real socket (not a mock) of a family that is served, and fastsock serves this process."""
    cdef int family
    if not PyObject_TypeCheck(sock, <PyTypeObject *>kernel_socket):
        return False
    family = family_of(sock)
    if family == AF_UNIX:
        return path_events.serves_unix()
    return (family == AF_INET or family == AF_INET6) and path_events.serves()


cdef bint overrides_data_calls(CompletionQueue queue, sock) except -1:
    """Returns true if the socket's class or the object overrides recv or send, and the loop's transport calls these methods: on the stdlib's
    loops. It must then keep calling them, so no transport of ours drives the connection."""
    kind = type(sock)
    if queue.kind == UVLOOP:
        return False
    own = getattr(sock, "__dict__", ())
    for name in ("recv", "recv_into", "send", "sendmsg"):
        if name in own or getattr(kind, name, None) is not getattr(kernel_socket, name):
            return True
    return False


cdef CompletionQueue queue_of(loop):
    """Returns the completion queue of a loop. Creates it at the loop's first connection."""
    # Not through loop.__dict__: using it slows down the object's attributes (Python 3.11 and later).
    queue = getattr(loop, "_fastsock_queue", None)
    if queue is None:
        queue = loop._fastsock_queue = CompletionQueue(loop)
    return queue


def close_queue(loop):
    """Closes the loop's completion queue, if it has one. Called before the loop is closed."""
    queue = getattr(loop, "_fastsock_queue", None)
    if queue is not None:
        del loop._fastsock_queue
        queue.close()


# ---- uvloop: connections are made natively, inside the methods that a program calls --------------------------


@cython.freelist(16)
cdef class RelayFactory:
    """A protocol factory for the loop's own transport: creates the program's protocol and a relay below. `sock`: the socket
    object of the connection, if the program gave one."""

    cdef CompletionQueue queue
    cdef object protocol_factory
    cdef object sock

    def __cinit__(self, loop, protocol_factory, sock=None):
        self.queue = queue_of(loop)
        self.protocol_factory = protocol_factory
        self.sock = sock

    def __call__(self):
        return new_relay(self.queue, self.protocol_factory(), self.sock)


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
            end_endpoint(factory.relay.transport)
        raise
    return factory.relay.transport, factory.relay.protocol


def connecting(original, secured):
    """Returns a wrapper of uvloop's create_connection. `original`: uvloop's method. `secured`: the method for connections
    with TLS."""

    @cython.binding(True)
    def create_connection(self, protocol_factory, host=None, port=None, **options):
        if not path_events.serves():
            return original(self, protocol_factory, host, port, **options)
        if not options:
            factory = ConnectionFactory(self, protocol_factory)
            return made_above(original(self, factory, host, port), factory)
        if options.get("ssl"):
            return secured(self, protocol_factory, host, port, **options)
        factory = ConnectionFactory(self, protocol_factory, options.get("sock"))
        return made_above(original(self, factory, host, port, **options), factory)

    return create_connection


# ---- the stdlib's loops: all stream connections are made by one method ----------------------------------------


def making_of_socket(original):
    """Returns a wrapper of the stdlib loops' _make_socket_transport."""

    @cython.binding(True)
    def _make_socket_transport(self, sock, protocol, *arguments, **options):
        cdef RelayProtocol relay
        cdef Transport transport
        if not may_move(sock):
            return original(self, sock, protocol, *arguments, **options)
        server = options.get("server")
        relay = new_relay(queue_of(self), protocol, sock)
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
