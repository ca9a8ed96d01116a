# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=True
"""The data calls, as the facade's class has them, native so that no Python frame runs on the fast path.

Each finds its socket's endpoint. Without one (UDP, unix sockets) it is the stdlib's call and nothing else; that call also
says what is wrong with arguments.
"""

from libc.stdint cimport int64_t
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.object cimport PyObject

from fastsock._native.core cimport *
from fastsock._native.core_ring cimport *
from fastsock._native.endpoint cimport Endpoint
from fastsock._native.socket_lifecycle cimport endpoint_of, facade, timeout_of
from fastsock._native.socket_io cimport (
    SEND, SEND_ALL, USE_KERNEL, gathered, has_to_tell, may_be_on_ring, receive, receive_bytes, receive_scattered, transmit_buffer, transmit_file,
    writable_views,
)

import _socket
from os import sendfile as os_sendfile

cdef extern from "Python.h":
    int PySys_Audit(const char *, const char *, ...) except -1

cdef enum:
    SENSIBLE = 1 << 30  # bytes of one receive call; whoever asks for more gets less

cdef Py_ssize_t NONSENSE = <Py_ssize_t>1 << 40  # the stdlib's call tells what it thinks of it
cdef object MISSING = object()  # an argument that was left out

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


cdef inline bint ours(Endpoint endpoint, int flags):
    """Whether this receive is driven here and not by the stdlib's call."""
    if endpoint is None or flags & (MSG_OOB | MSG_ERRQUEUE):
        return False
    return may_be_on_ring(endpoint) or has_to_tell(endpoint) or fs_spin_pays(&endpoint.c)


cdef inline bint asks(Endpoint endpoint, object size, object flags, Py_ssize_t *room, int *bits):
    """Takes the arguments of a receive call that is driven here. False: the stdlib's call does it, or says in its
    own words what is wrong with them."""
    if endpoint is None:
        return False
    try:
        bits[0] = flags
        room[0] = size
    except (TypeError, OverflowError):
        return False
    if SENSIBLE < room[0] < NONSENSE and fs_is_attached(&endpoint.c):
        room[0] = SENSIBLE
    if not (0 <= room[0] <= SENSIBLE and ours(endpoint, bits[0])):
        return False
    bits[0] &= FS_RECEIVE_FLAGS  # those that mean nothing to a receive on TCP
    return True


cdef inline bint takes_no_ancillary(Endpoint endpoint, object size):
    """Room for ancillary data stays empty on a TCP stream; a size that is none is the stdlib's to complain about."""
    return endpoint is not None and isinstance(size, int) and 0 <= size <= 0x7fffffff


def recv(self, bufsize=MISSING, flags=0, /):
    """As socket.recv."""
    cdef Endpoint endpoint = endpoint_of(self)
    cdef Py_ssize_t room
    cdef int bits
    if asks(endpoint, bufsize, flags, &room, &bits):
        data = receive_bytes(endpoint, self, timeout_of(self), room, bits)
        if data is not None:
            return data
    return kernel_recv(self) if bufsize is MISSING else kernel_recv(self, bufsize, flags)


def recvfrom(self, bufsize=MISSING, flags=0, /):
    """As socket.recvfrom: a TCP socket tells no address."""
    cdef Endpoint endpoint = endpoint_of(self)
    cdef Py_ssize_t room
    cdef int bits
    if asks(endpoint, bufsize, flags, &room, &bits):
        data = receive_bytes(endpoint, self, timeout_of(self), room, bits)
        if data is not None:
            return data, None
    return kernel_recvfrom(self) if bufsize is MISSING else kernel_recvfrom(self, bufsize, flags)


cdef Py_ssize_t receive_buffer(Endpoint endpoint, object self, object buffer, object nbytes, object flags) except -3:
    cdef Py_buffer view
    cdef Py_ssize_t got, room
    cdef int bits
    if not asks(endpoint, nbytes, flags, &room, &bits):
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
    """As socket.recv_into."""
    cdef Py_ssize_t got = receive_buffer(endpoint_of(self), self, buffer, nbytes, flags)
    return kernel_recv_into(self, buffer, nbytes, flags) if got == USE_KERNEL else got


def recvfrom_into(self, buffer, nbytes=0, flags=0):
    """As socket.recvfrom_into."""
    cdef Py_ssize_t got = receive_buffer(endpoint_of(self), self, buffer, nbytes, flags)
    return kernel_recvfrom_into(self, buffer, nbytes, flags) if got == USE_KERNEL else (got, None)


def recvmsg(self, bufsize=MISSING, ancbufsize=0, flags=0, /):
    """As socket.recvmsg: a TCP stream carries no ancillary data."""
    cdef Endpoint endpoint = endpoint_of(self)
    cdef Py_ssize_t room
    cdef int bits
    if takes_no_ancillary(endpoint, ancbufsize) and asks(endpoint, bufsize, flags, &room, &bits):
        data = receive_bytes(endpoint, self, timeout_of(self), room, bits)
        if data is not None:
            return data, [], bits & MSG_CMSG_CLOEXEC, None
    return kernel_recvmsg(self) if bufsize is MISSING else kernel_recvmsg(self, bufsize, ancbufsize, flags)


def recvmsg_into(self, buffers=MISSING, ancbufsize=0, flags=0, /):
    """As socket.recvmsg_into."""
    cdef Endpoint endpoint = endpoint_of(self)
    cdef Py_ssize_t got, room
    cdef int bits
    if takes_no_ancillary(endpoint, ancbufsize) and asks(endpoint, 0, flags, &room, &bits):
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


cdef inline bint sends_ours(Endpoint endpoint, int flags):
    if endpoint is None:
        return False
    if flags & MSG_OOB:
        return fs_is_attached(&endpoint.c)
    return may_be_on_ring(endpoint) or has_to_tell(endpoint)


cdef inline bint gives(Endpoint endpoint, object flags, int *bits):
    """Takes the flags of a send call that is driven here. False: the stdlib's call does it."""
    if endpoint is None:
        return False
    try:
        bits[0] = flags
    except (TypeError, OverflowError):
        return False
    return sends_ours(endpoint, bits[0])


def send(self, data=MISSING, flags=0, /):
    """As socket.send."""
    cdef int bits
    cdef Endpoint endpoint = endpoint_of(self)
    cdef Py_ssize_t sent
    if data is not MISSING and gives(endpoint, flags, &bits):
        sent = transmit_buffer(endpoint, self, timeout_of(self), data, bits, SEND)
        if sent != USE_KERNEL:
            return sent
    return kernel_send(self) if data is MISSING else kernel_send(self, data, flags)


def sendall(self, data=MISSING, flags=0, /):
    """As socket.sendall. A long one may move to the ring on its way."""
    cdef int bits
    cdef Endpoint endpoint = endpoint_of(self)
    if data is not MISSING and gives(endpoint, flags, &bits):
        if transmit_buffer(endpoint, self, timeout_of(self), data, bits, SEND_ALL) != USE_KERNEL:
            return None
    return kernel_sendall(self) if data is MISSING else kernel_sendall(self, data, flags)


def sendto(self, *args):
    """As socket.sendto: on a connected TCP socket the address is not looked at."""
    cdef int bits
    cdef Py_ssize_t sent
    cdef Endpoint endpoint = endpoint_of(self)
    if len(args) in (2, 3) and isinstance(args[len(args) - 1], tuple) and gives(
            endpoint, args[1] if len(args) == 3 else 0, &bits):
        kernel_sendto(self, b"", *args[1:])  # it objects to an address that is none
        sent = transmit_buffer(endpoint, self, timeout_of(self), args[0], bits, SEND)
        if sent != USE_KERNEL:
            return sent
    return kernel_sendto(self, *args)


def sendmsg(self, buffers=MISSING, ancdata=(), flags=0, address=None, /):
    """As socket.sendmsg: a TCP stream carries no ancillary data, which the stdlib's call says in its own words."""
    cdef int bits
    cdef Py_ssize_t sent
    cdef Endpoint endpoint = endpoint_of(self)
    if ancdata and endpoint is None:
        if not isinstance(ancdata, (list, tuple)):
            try:
                ancdata = list(ancdata)
            except TypeError:
                return kernel_sendmsg(self, buffers, ancdata)
        facade._leave_rights(ancdata)  # descriptors of ours may be among what it passes on
    if gives(endpoint, flags, &bits):
        if not isinstance(buffers, (list, tuple)):
            try:
                buffers = list(buffers)
            except TypeError:
                return kernel_sendmsg(self, buffers)
        plain = ancdata == () and address is None
        if fs_is_attached(&endpoint.c) and not plain:
            kernel_sendmsg(self, (), ancdata, flags, address)  # no bytes, but it objects to what is wrong with the rest
        piece = gathered(buffers) if plain or fs_is_attached(&endpoint.c) else None
        if piece is not None:
            if plain:
                PySys_Audit("socket.sendmsg", "OO", <PyObject *>self, <PyObject *>address)  # as the stdlib's call does
            sent = transmit_buffer(endpoint, self, timeout_of(self), piece, bits, SEND)
            if sent != USE_KERNEL:
                return sent
    return kernel_sendmsg(self) if buffers is MISSING else kernel_sendmsg(self, buffers, ancdata, flags, address)


def send_file(self, file, offset, count, /):
    """As os.sendfile on the socket's number, for socket.sendfile; but it waits as the socket does."""
    cdef Endpoint endpoint = endpoint_of(self)
    cdef Py_ssize_t sent = USE_KERNEL, total = 0
    if sends_ours(endpoint, 0):
        sent = transmit_file(endpoint, self, timeout_of(self), file, offset, count, &total)
    return os_sendfile(kernel_fileno(self), file, offset, count) if sent == USE_KERNEL else sent
