# The protocol that the loop's own transport sees.

cdef object policy = None  # the module that decides about paths: begin(), path_of(), ...
cdef object buffered_shim = None
cdef object stdlib_transport = None
cdef tuple plain_sockets = None  # the classes of sockets without data calls of a program's own


def install(module, buffered, stdlib, plain):
    """Tells this module whom it asks about paths, the class of the shims below a BufferedProtocol, that of the transports on
    the stdlib's loops, and the two classes of sockets that are the facade's and the stdlib's."""
    global policy, buffered_shim, stdlib_transport, plain_sockets
    policy, buffered_shim, stdlib_transport, plain_sockets = module, buffered, stdlib, plain


cdef extern from *:
    """
    #include <stdlib.h>
    /* glibc maps and unmaps a large block each time, until one as large was freed: then it takes them from the heap. */
    static void fs_take_from_heap(size_t size) {
        volatile char *block = malloc(size);
        if (block) block[0] = 0;
        free((void *)block);
    }
    """
    void fs_take_from_heap(size_t)

cdef extern from *:
    """
    /* A new object of a class that is derived from one of ours, without __init__. */
    static inline PyObject *fs_new(PyObject *type, PyObject *nothing) {
        return ((PyTypeObject *)type)->tp_new((PyTypeObject *)type, nothing, NULL);
    }
    """
    object fs_new(object, object)


cdef class Origin:
    """What the transports of a loop have in common. `stdlib`: whether it is one of the stdlib's loops."""

    cdef readonly object loop
    cdef readonly CompletionQueue queue
    cdef bint stdlib

    def __cinit__(self, loop, CompletionQueue queue not None, bint stdlib):
        self.loop = loop
        self.queue = queue
        self.stdlib = stdlib
        if stdlib:
            # Its transports allocate as much (DELIVERY) for each read from the kernel, which cost three times as much where
            # nothing large had been freed before.
            fs_take_from_heap(2 * DELIVERY)


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
    """Made with the connection, or for a `transport` whose protocol became one of the other kind. `sock`: the socket object
    that the connection is made of, if there is one."""
    cdef bint buffered = is_buffered(protocol)
    cdef Shim shim = buffered_shim() if buffered else Shim.__new__(Shim)
    shim.origin = origin
    shim.protocol = protocol
    shim.transport = transport
    shim.buffered = buffered
    shim.sock = sock
    return shim


@cython.freelist(16)
cdef class Shim:
    """Stands between the loop's transport and ours. While the connection is on the kernel it passes on what comes, at the
    cost of one native call and in the context in which the loop calls; after the move it hears doorbell bytes and the end
    of the lifeline.
    """

    cdef object __weakref__
    cdef Origin origin
    cdef object protocol              # the program's, as the factory made it
    cdef Transport transport
    cdef bint buffered
    cdef object sock

    def __cinit__(self):
        pass  # (no pickling: a shim without a transport is of no use)

    cdef Transport above(self, lower):
        """Our transport above the loop's own."""
        cdef Transport transport = (
            <Transport>fs_new(stdlib_transport, ()) if self.origin.stdlib else Transport.__new__(Transport))
        transport.origin = self.origin
        transport.lower = lower
        self.transport = transport
        transport.shim = self
        transport.use_protocol(self.protocol, self.buffered)
        return transport

    def connection_made(self, lower, /):
        cdef Transport transport = self.transport
        cdef Endpoint endpoint = None
        if transport is None:
            transport = self.above(lower)
        if self.sock is not None:
            sock, self.sock = self.sock, None
            endpoint = endpoint_of(sock)
            if endpoint is not None or self.origin.stdlib and overrides_data_calls(sock):
                begin_with(transport, sock, endpoint)
            else:
                transport.acts_at = count_beginning()
        else:
            transport.acts_at = count_beginning()
        if transport.kernel_because is not None:
            transport.stay_on_kernel(transport.kernel_because)
        run_in_context(transport, self.protocol.connection_made, transport)
        transport.note_context()

    def connection_lost(self, error, /):
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
        try:
            run_in_context(transport, transport.protocol.connection_lost, error)
        finally:
            transport.forget_protocol()

    def data_received(self, data, /):
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
            transport.note_read()
            if not transport.closing:
                deliver(transport, data)

    cdef Py_ssize_t heard(self, Py_ssize_t count, Py_ssize_t *behind) except -1:
        """`count` bytes came over the kernel connection of a transport with a region: how many of the first are the
        program's, and how many of the last (`behind`)."""
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
            transport.origin.queue.heat(transport)
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
            transport.origin.queue.watch(transport)
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

    cdef object buffer

    def get_buffer(self, hint, /):
        cdef Transport transport = self.transport
        if not self.origin.stdlib:
            # uvloop ends the connection itself, when it has left the call for a buffer, in which its transport must not be
            # ended.
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
                raise ConnectionAbortedError  # so that nothing is read; the loop's transport has ended and says no more
        if transport.entered:
            self.buffer = buffer  # bytes of a peer that goes back to the kernel may have to be kept for later
        return buffer

    def buffer_updated(self, Py_ssize_t count, /):
        cdef Transport transport = self.transport
        cdef Py_ssize_t behind = 0
        cdef bytes late = None
        if transport.entered:
            filled = memoryview(self.buffer)[:count]
            count = self.heard(count, &behind)
            if behind:
                late = bytes(filled[len(filled) - behind :])
            filled.release()
        else:
            transport.note_read()
        if count and not transport.closing:
            tell_updated(transport, count)
        if late is not None:
            deliver_late(transport, late)
