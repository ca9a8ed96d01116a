# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=True
"""The data methods of fastsock.socket, native so that no Python frame runs on the fast path.

Without an endpoint (UDP, unix sockets) a method calls the stdlib's. Invalid arguments also go to the stdlib's method, which
raises.
"""

from libc.stdint cimport int64_t
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.object cimport PyObject

from fastsock._native.core cimport *
from fastsock._native.core_ring cimport *
from fastsock._native.endpoint cimport Endpoint
from fastsock._native.socket_lifecycle cimport endpoint_of, socket_class, timeout_of
from fastsock._native.socket_io cimport (
    SEND, SEND_ALL, USE_KERNEL, gathered, has_pending_error, may_be_on_ring, receive, receive_bytes, receive_scattered, transmit_buffer, transmit_file,
    writable_views,
)

import _socket
from os import sendfile as os_sendfile

cdef extern from "Python.h":
    int PySys_Audit(const char *, const char *, ...) except -1

cdef enum:
    RECEIVE_MAX = 1 << 30  # most bytes of one receive call

cdef Py_ssize_t SIZE_MAX_CHECKED = <Py_ssize_t>1 << 40  # larger sizes go to the stdlib's call, which raises
cdef object MISSING = object()  # default of an omitted argument

cdef object kernel_recv = _socket.socket.recv
cdef object kernel_recv_into = _socket.socket.recv_into
cdef object kernel_recvfrom = _socket.socket.recvfrom
cdef object kernel_recvfrom_into = _socket.socket.recvfrom_into
cdef object kernel_recvmsg = _socket.socket.recvmsg
cdef object kernel_recvmsg_into = _socket.socket.recvmsg_into
cdef object kernel_sendto = _socket.socket.sendto
cdef object kernel_send = _socket.socket.send
cdef object kernel_sendall = _socket.socket.sendall
cdef object kernel_fileno = _socket.socket.fileno
cdef object kernel_sendmsg = _socket.socket.sendmsg


# ---- receiving -----------------------------------------------------------------------------------------------


cdef inline bint handles_receive(Endpoint endpoint, int flags):
    """Returns true if this receive is handled here and not by the stdlib's call."""
    if endpoint is None or flags & (MSG_OOB | MSG_ERRQUEUE):
        return False
    return may_be_on_ring(endpoint) or has_pending_error(endpoint) or fs_spin_pays(&endpoint.c)


cdef inline bint parse_receive(Endpoint endpoint, object size, object flags, Py_ssize_t *room, int *bits):
    """Parses the arguments of a receive call. Returns false if the stdlib's call must handle it, for example to raise."""
    if endpoint is None:
        return False
    try:
        bits[0] = flags
        room[0] = size
    except (TypeError, OverflowError):
        return False
    if RECEIVE_MAX < room[0] < SIZE_MAX_CHECKED and fs_is_attached(&endpoint.c):
        room[0] = RECEIVE_MAX
    if not (0 <= room[0] <= RECEIVE_MAX and handles_receive(endpoint, bits[0])):
        return False
    bits[0] &= FS_RECEIVE_FLAGS  # drops flags that TCP ignores
    return True


cdef inline bint is_ancillary_size(Endpoint endpoint, object size):
    """Returns true for a valid size of ancillary data, which TCP never has. The stdlib's call raises for other sizes."""
    return endpoint is not None and isinstance(size, int) and 0 <= size <= 0x7fffffff


def recv(self, bufsize=MISSING, flags=0, /):
    """Like socket.recv."""
    cdef Endpoint endpoint = endpoint_of(self)
    cdef Py_ssize_t room
    cdef int bits
    if parse_receive(endpoint, bufsize, flags, &room, &bits):
        data = receive_bytes(endpoint, self, timeout_of(self), room, bits)
        if data is not None:
            return data
    return kernel_recv(self) if bufsize is MISSING else kernel_recv(self, bufsize, flags)


def recvfrom(self, bufsize=MISSING, flags=0, /):
    """Like socket.recvfrom. TCP gives no address."""
    cdef Endpoint endpoint = endpoint_of(self)
    cdef Py_ssize_t room
    cdef int bits
    if parse_receive(endpoint, bufsize, flags, &room, &bits):
        data = receive_bytes(endpoint, self, timeout_of(self), room, bits)
        if data is not None:
            return data, None
    return kernel_recvfrom(self) if bufsize is MISSING else kernel_recvfrom(self, bufsize, flags)


cdef Py_ssize_t receive_buffer(Endpoint endpoint, object self, object buffer, object nbytes, object flags) except -3:
    cdef Py_buffer view
    cdef Py_ssize_t got, room
    cdef int bits
    if not parse_receive(endpoint, nbytes, flags, &room, &bits):
        return USE_KERNEL
    try:
        PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    except (TypeError, BufferError):
        return USE_KERNEL
    try:
        if room > view.len:
            return USE_KERNEL
        return receive(endpoint, self, timeout_of(self), <char *>view.buf, room if room else view.len, bits)
    finally:
        PyBuffer_Release(&view)


def recv_into(self, buffer, nbytes=0, flags=0):
    """Like socket.recv_into."""
    cdef Py_ssize_t got = receive_buffer(endpoint_of(self), self, buffer, nbytes, flags)
    return kernel_recv_into(self, buffer, nbytes, flags) if got == USE_KERNEL else got


def recvfrom_into(self, buffer, nbytes=0, flags=0):
    """Like socket.recvfrom_into."""
    cdef Py_ssize_t got = receive_buffer(endpoint_of(self), self, buffer, nbytes, flags)
    return kernel_recvfrom_into(self, buffer, nbytes, flags) if got == USE_KERNEL else (got, None)


def recvmsg(self, bufsize=MISSING, ancbufsize=0, flags=0, /):
    """Like socket.recvmsg. TCP has no ancillary data."""
    cdef Endpoint endpoint = endpoint_of(self)
    cdef Py_ssize_t room
    cdef int bits
    if is_ancillary_size(endpoint, ancbufsize) and parse_receive(endpoint, bufsize, flags, &room, &bits):
        data = receive_bytes(endpoint, self, timeout_of(self), room, bits)
        if data is not None:
            return data, [], bits & MSG_CMSG_CLOEXEC, None
    return kernel_recvmsg(self) if bufsize is MISSING else kernel_recvmsg(self, bufsize, ancbufsize, flags)


def recvmsg_into(self, buffers=MISSING, ancbufsize=0, flags=0, /):
    """Like socket.recvmsg_into."""
    cdef Endpoint endpoint = endpoint_of(self)
    cdef Py_ssize_t got, room
    cdef int bits
    if is_ancillary_size(endpoint, ancbufsize) and parse_receive(endpoint, 0, flags, &room, &bits):
        if not isinstance(buffers, (list, tuple)):
            try:
                buffers = list(buffers)
            except TypeError:
                return kernel_recvmsg_into(self, buffers)
        views = writable_views(buffers)
        if views is not None:
            got = receive_scattered(endpoint, self, timeout_of(self), views, bits)
            if got != USE_KERNEL:
                return got, [], bits & MSG_CMSG_CLOEXEC, None
    return kernel_recvmsg_into(self) if buffers is MISSING else kernel_recvmsg_into(self, buffers, ancbufsize, flags)


# ---- sending -------------------------------------------------------------------------------------------------


cdef inline bint handles_send(Endpoint endpoint, int flags):
    if endpoint is None:
        return False
    if flags & MSG_OOB:
        return fs_is_attached(&endpoint.c)
    return may_be_on_ring(endpoint) or has_pending_error(endpoint)


cdef inline bint parse_send(Endpoint endpoint, object flags, int *bits):
    """Parses the flags of a send call. Returns false if the stdlib's call must handle it."""
    if endpoint is None:
        return False
    try:
        bits[0] = flags
    except (TypeError, OverflowError):
        return False
    return handles_send(endpoint, bits[0])


def send(self, data=MISSING, flags=0, /):
    """Like socket.send."""
    cdef int bits
    cdef Endpoint endpoint = endpoint_of(self)
    cdef Py_ssize_t sent
    if data is not MISSING and parse_send(endpoint, flags, &bits):
        sent = transmit_buffer(endpoint, self, timeout_of(self), data, bits, SEND)
        if sent != USE_KERNEL:
            return sent
    return kernel_send(self) if data is MISSING else kernel_send(self, data, flags)


def sendall(self, data=MISSING, flags=0, /):
    """Like socket.sendall. The connection may move to the ring during a long send."""
    cdef int bits
    cdef Endpoint endpoint = endpoint_of(self)
    if data is not MISSING and parse_send(endpoint, flags, &bits):
        if transmit_buffer(endpoint, self, timeout_of(self), data, bits, SEND_ALL) != USE_KERNEL:
            return None
    return kernel_sendall(self) if data is MISSING else kernel_sendall(self, data, flags)


def sendto(self, *args):
    """Like socket.sendto. A connected TCP socket ignores the address."""
    cdef int bits
    cdef Py_ssize_t sent
    cdef Endpoint endpoint = endpoint_of(self)
    if len(args) in (2, 3) and isinstance(args[len(args) - 1], tuple) and parse_send(
            endpoint, args[1] if len(args) == 3 else 0, &bits):
        kernel_sendto(self, b"", *args[1:])  # raises for an invalid address
        sent = transmit_buffer(endpoint, self, timeout_of(self), args[0], bits, SEND)
        if sent != USE_KERNEL:
            return sent
    return kernel_sendto(self, *args)


def sendmsg(self, buffers=MISSING, ancdata=(), flags=0, address=None, /):
    """Like socket.sendmsg. The stdlib's call raises for ancillary data, which TCP does not have."""
    cdef int bits
    cdef Py_ssize_t sent
    cdef Endpoint endpoint = endpoint_of(self)
    if ancdata and endpoint is None:
        if not isinstance(ancdata, (list, tuple)):
            try:
                ancdata = list(ancdata)
            except TypeError:
                return kernel_sendmsg(self, buffers, ancdata)
        socket_class._leave_rights(ancdata)  # it may pass on descriptors of our connections
    if parse_send(endpoint, flags, &bits):
        if not isinstance(buffers, (list, tuple)):
            try:
                buffers = list(buffers)
            except TypeError:
                return kernel_sendmsg(self, buffers)
        plain = ancdata == () and address is None
        if fs_is_attached(&endpoint.c) and not plain:
            kernel_sendmsg(self, (), ancdata, flags, address)  # sends nothing, but raises for invalid arguments
        piece = gathered(buffers) if plain or fs_is_attached(&endpoint.c) else None
        if piece is not None:
            if plain:
                PySys_Audit("socket.sendmsg", "OO", <PyObject *>self, <PyObject *>address)  # as the stdlib's call does
            sent = transmit_buffer(endpoint, self, timeout_of(self), piece, bits, SEND)
            if sent != USE_KERNEL:
                return sent
    return kernel_sendmsg(self) if buffers is MISSING else kernel_sendmsg(self, buffers, ancdata, flags, address)


def send_file(self, file, offset, count, /):
    """Like os.sendfile, for socket.sendfile; waits according to the socket's timeout."""
    cdef Endpoint endpoint = endpoint_of(self)
    cdef Py_ssize_t sent = USE_KERNEL, total = 0
    if handles_send(endpoint, 0):
        sent = transmit_file(endpoint, self, timeout_of(self), file, offset, count, &total)
    return os_sendfile(kernel_fileno(self), file, offset, count) if sent == USE_KERNEL else sent
