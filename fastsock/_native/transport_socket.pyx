# cython: language_level=3, boundscheck=False, wraparound=False
"""The sockets that transports return from get_extra_info("socket"), created at the first call. After fileno() the
front end serves the number, as C code may then read and write there.

Servers set options and query addresses of every connection. uvloop creates a socket object for each such call; this module calls
the kernel directly, without a Python frame. The objects do not keep the descriptor: they ask the loop's own socket each time, which
has none after the connection is closed.
"""

from cpython.exc cimport PyErr_SetFromErrno

from fastsock._native.core cimport *

import _socket
import weakref as _weakref
from asyncio.trsock import TransportSocket as _TransportSocket
from socket import SOCK_STREAM as _SOCK_STREAM

cdef extern from "<sys/socket.h>" nogil:
    ctypedef unsigned int socklen_t
    int sys_getsockopt "getsockopt"(int fd, int level, int option, void *value, socklen_t *size)
    int sys_setsockopt "setsockopt"(int fd, int level, int option, const void *value, socklen_t size)

cdef object bare_class = _socket.socket
cdef int stream = _SOCK_STREAM


cdef object show(object transport, object sock):
    """Returns our socket object for a transport whose lower transport has `sock`."""
    shown = shown_as.get(type(sock))
    return sock if shown is None else shown(sock, transport)


cdef int hand_out(object transport) except -1:
    """Called when the program asks for the descriptor of a transport."""
    alive = transport()
    if alive is not None:
        alive.hand_out()
    return 0


cdef object path_behind(object transport):
    """Returns the path of a transport, or None if it was deleted. For fastsock.path_of; does not hand out the descriptor."""
    alive = transport()
    return alive.path() if alive is not None else None


# ---- on the stdlib's loops -----------------------------------------------------------------------------------


class _ShownSocket(_TransportSocket):
    """The socket of a transport on a stdlib loop."""

    __slots__ = ("_transport",)

    def __init__(self, sock, transport):
        self._sock = sock._sock
        self._transport = _weakref.ref(transport)

    def fileno(self):
        hand_out(self._transport)
        return self._sock.fileno()

    def dup(self):
        hand_out(self._transport)
        return self._sock.dup()

    def shutdown(self, how):
        hand_out(self._transport)
        self._sock.shutdown(how)

    def __repr__(self):
        return repr(_TransportSocket(self._sock))

    def fastsock_path(self):
        return path_behind(self._transport)


cdef dict shown_as = {_TransportSocket: _ShownSocket}  # class of the lower transport's socket -> our class


# ---- on uvloop -----------------------------------------------------------------------------------------------


cdef object ipv4_end(int fd, bint remote):
    """Returns (address, port) of the local or remote end of an IPv4 connection; None for another family or if closed. Raises
    OSError like the kernel."""
    cdef unsigned char address[16]
    cdef int port = 0, length = fs_endpoint_address(fd, remote, address, &port) if fd >= 0 else 0
    if length < 0:
        PyErr_SetFromErrno(OSError)
    return (f"{address[0]}.{address[1]}.{address[2]}.{address[3]}", port) if length == 4 else None


cdef bint takes_option(int fd, tuple arguments, dict more, Py_ssize_t count, int *into):
    """Returns true if the arguments are all ints and the connection is open, so the kernel can be called directly. Other
    arguments go to the method of the C class, which checks them."""
    if fd < 0 or more or len(arguments) != count:
        return False
    try:
        for i in range(count):
            if not isinstance(arguments[i], int):
                return False
            into[i] = arguments[i]
    except OverflowError:
        return False
    return True


def show_above(base):
    """Sets the class of uvloop's transport sockets. Ours are of a class derived from it."""
    number_of = base.fileno

    def ask(self, question, arguments=(), more={}):
        # Like uvloop, use a temporary socket object and detach it. The C class is used, as ours would take over the
        # connection.
        bare = bare_class(self.family, stream, self.proto, number_of(self._own))
        try:
            return question(bare, *arguments, **more)
        finally:
            bare.detach()

    class _ShownSocket(base):
        """The socket of a transport on uvloop. `_own` is the socket of the loop's transport, which answers for attributes of the
        base class."""

        __slots__ = ("_own", "_transport", "_peer", "_here")

        def __init__(self, sock, transport):
            base.__init__(self, 0, stream, 0, -1)
            self._own = sock
            self._transport = _weakref.ref(transport)
            self._peer = self._here = None

        @property
        def family(self):
            return self._own.family

        @property
        def proto(self):
            return self._own.proto

        def fileno(self):
            hand_out(self._transport)
            return number_of(self._own)

        def dup(self):
            hand_out(self._transport)
            return self._own.dup()

        def get_inheritable(self):
            return self._own.get_inheritable()

        def set_inheritable(self, *arguments):
            self._own.set_inheritable(*arguments)

        def share(self, process_id):
            return self._own.share(process_id)

        def getpeername(self):
            if self._peer is None:
                self._peer = ipv4_end(number_of(self._own), True) or ask(self, bare_class.getpeername)
            return self._peer

        def getsockname(self):
            if self._here is None:
                self._here = ipv4_end(number_of(self._own), False) or ask(self, bare_class.getsockname)
            return self._here

        def getsockopt(self, *arguments, **more):
            cdef int said[2]
            cdef int fd = number_of(self._own), value = 0
            cdef socklen_t size = sizeof(value)
            if not takes_option(fd, arguments, more, 2, said):
                return ask(self, bare_class.getsockopt, arguments, more)
            if sys_getsockopt(fd, said[0], said[1], &value, &size) < 0:
                PyErr_SetFromErrno(OSError)
            return value

        def setsockopt(self, *arguments, **more):
            cdef int said[3]
            cdef int fd = number_of(self._own)
            if not takes_option(fd, arguments, more, 3, said):
                ask(self, bare_class.setsockopt, arguments, more)
            elif sys_setsockopt(fd, said[0], said[1], &said[2], sizeof(said[2])) < 0:
                PyErr_SetFromErrno(OSError)

        def __repr__(self):
            return repr(self._own)

        def fastsock_path(self):
            return path_behind(self._transport)

    shown_as[base] = _ShownSocket
