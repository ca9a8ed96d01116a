# cython: language_level=3, boundscheck=False, wraparound=False
"""The sockets that transports show (get_extra_info), made when somebody wants one. Whoever asks for the descriptor's number takes the
connection off the ring: C code may read and write it.

Servers set options of each connection, one-shots too, and ask for its ends. uvloop makes a socket object for each such question; here
the kernel is asked, and no Python frame runs. None of these objects keeps the number: the loop's own socket is asked each time, which
has none once the connection is closed.
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
    """What a transport shows of ours, where the loop's own one shows `sock`."""
    shown = shown_as.get(type(sock))
    return sock if shown is None else shown(sock, transport)


cdef int hand_out(object transport) except -1:
    """Somebody asks for the number of a transport's descriptor."""
    alive = transport()
    if alive is not None:
        alive.hand_out()
    return 0


cdef object path_behind(object transport):
    """The path of a transport, None if it is gone: for fastsock.path_of, which hands nothing out."""
    alive = transport()
    return alive.path() if alive is not None else None


# ---- on the stdlib's loops -----------------------------------------------------------------------------------


class _ShownSocket(_TransportSocket):
    """The socket of a transport on one of the stdlib's loops."""

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


cdef dict shown_as = {_TransportSocket: _ShownSocket}  # by the class of what the loop's own transport shows


# ---- on uvloop -----------------------------------------------------------------------------------------------


cdef object ipv4_end(int fd, bint remote):
    """(address, port) of the local or the remote end of an IPv4 connection; None if it is another, or closed. OSError as
    from the kernel."""
    cdef unsigned char address[16]
    cdef int port = 0, length = fs_endpoint_address(fd, remote, address, &port) if fd >= 0 else 0
    if length < 0:
        PyErr_SetFromErrno(OSError)
    return (f"{address[0]}.{address[1]}.{address[2]}.{address[3]}", port) if length == 4 else None


cdef bint takes_option(int fd, tuple arguments, dict more, Py_ssize_t count, int *into):
    """Whether the kernel can be asked right away: an open connection, and so many numbers are all that is said. The method of
    the class of C knows the other ways to say it, and what is wrong with them."""
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
    """`base` is what uvloop's transports show: ours show an object of a class derived from it."""
    number_of = base.fileno

    def ask(self, question, arguments=(), more={}):
        # As uvloop makes a socket object for one question, and detaches it again. (Of the class of C: the facade's would take
        # the connection for one that came from elsewhere.)
        bare = bare_class(self.family, stream, self.proto, number_of(self._own))
        try:
            return question(bare, *arguments, **more)
        finally:
            bare.detach()

    class _ShownSocket(base):
        """The socket of a transport on uvloop. `_own` is the loop's own one. (What the base class would say of itself is asked
        of that: its fields are not the connection's.)"""

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
