# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=True
"""How socket objects get and lose their endpoints, and other code that runs for every connection, so that it is native.

Without an endpoint (UDP, unix sockets) each method calls the stdlib's.
"""

from libc.stdint cimport int64_t
from cpython.exc cimport PyErr_SetFromErrno
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF, Py_XDECREF

from fastsock._native.core cimport *
from fastsock._native.core_ring cimport *
from fastsock._native.endpoint cimport Endpoint, by_descriptor
from fastsock._native.core_rendezvous cimport FS_THREAD_LATER
from fastsock._native.session_stats cimport SessionStats, stats_of_port
from fastsock._native.registry cimport (
    begin_undecided, begin_when_connected, find, give_back_descriptors, may_begin, prepare_to_sleep,
)

import socket as stdlib
import _socket

cdef extern from *:
    """
    #include <structmember.h>
    /* Returns the offset of a class's slot `name`, or -1 if it is not a slot. */
    static Py_ssize_t fs_slot_offset(PyObject *type, const char *name) {
        PyObject *d = PyObject_GetAttrString(type, name);
        if (!d) return -1;
        Py_ssize_t offset = Py_TYPE(d) == &PyMemberDescr_Type ? ((PyMemberDescrObject *)d)->d_member->offset : -1;
        Py_DECREF(d);
        return offset;
    }
    static int fs_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }
    """
    Py_ssize_t fs_slot_offset(object, const char *) except? -1
    bint fs_open(int)
    int errno

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8(object) except NULL

cdef extern from "<netinet/in.h>":
    enum: AF_INET, AF_INET6, SOCK_STREAM

cdef enum:
    NOTED_MOST = 32

cdef PyTypeObject *socket_type = NULL
cdef object socket_class = None
cdef object plain_class = None  # the stdlib's class
cdef Py_ssize_t endpoint_slot = 0
cdef Py_ssize_t timeout_slot = 0
cdef Py_ssize_t limits_slot = 0
cdef Py_ssize_t handed_out_slot = 0
cdef Py_ssize_t family_member = fs_slot_offset(_socket.socket, b"family")
cdef Py_ssize_t type_member = fs_slot_offset(_socket.socket, b"type")
cdef Py_ssize_t protocol_member = fs_slot_offset(_socket.socket, b"proto")

cdef object kernel_accept = _socket.socket._accept
cdef object kernel_init = _socket.socket.__init__
cdef object kernel_fileno = _socket.socket.fileno
cdef object kernel_timeout = _socket.socket.gettimeout
cdef object kernel_settimeout = _socket.socket.settimeout
cdef object kernel_setblocking = _socket.socket.setblocking
cdef object kernel_connect = _socket.socket.connect
cdef object kernel_connect_ex = _socket.socket.connect_ex
cdef object kernel_getsockopt = _socket.socket.getsockopt
cdef object kernel_setsockopt = _socket.socket.setsockopt
cdef object kernel_close = _socket.socket.close
cdef object kernel_close_number = _socket.close
cdef object kernel_detach = _socket.socket.detach
cdef object kernel_del = _socket.socket.__del__
cdef object default_timeout = _socket.getdefaulttimeout

cdef object KERNEL_FAMILY = stdlib.AF_INET
cdef object KERNEL_TYPE = stdlib.SOCK_STREAM
cdef tuple NO_LIMITS = (0, 0)
cdef int noted[2 * NOTED_MOST]  # socket_class._NOTED as alternating levels and options
cdef int noted_count = 0


def install(type):
    """Sets the class fastsock.socket, whose slots this module reads and writes (see the stub file)."""
    global socket_class, plain_class, socket_type, endpoint_slot, timeout_slot, limits_slot, handed_out_slot, noted_count
    socket_class, plain_class = type, type.__base__
    socket_type = <PyTypeObject *>type
    endpoint_slot = fs_slot_offset(type, b"_endpoint")
    timeout_slot = fs_slot_offset(type, b"_timeout_ns")
    limits_slot = fs_slot_offset(type, b"_buffer_limits")
    handed_out_slot = fs_slot_offset(type, b"_handed_out")
    if min(endpoint_slot, timeout_slot, limits_slot, handed_out_slot) < 0:
        raise TypeError("the class has not the slots _endpoint, _timeout_ns, _buffer_limits, _handed_out")
    for noted_count, (level, option) in enumerate(type._NOTED, 1):
        if noted_count > NOTED_MOST:
            raise ValueError(f"_NOTED has more than {NOTED_MOST} options")
        noted[2 * noted_count - 2], noted[2 * noted_count - 1] = level, option


cdef inline int member(object sock, Py_ssize_t offset):
    return (<int *>((<char *><PyObject *>sock) + offset))[0]


cdef inline void set_slot(object sock, Py_ssize_t offset, object value):
    cdef PyObject **at = <PyObject **>((<char *><PyObject *>sock) + offset)
    cdef PyObject *before = at[0]
    Py_INCREF(value)
    at[0] = <PyObject *>value
    Py_XDECREF(before)


cdef int refuse(object sock) except -1:
    """Raises TypeError for `check`."""
    raise TypeError(f"descriptor requires a 'fastsock.socket' object but received {type(sock).__name__!r}")


cdef Endpoint find_again(object self):
    """Returns the endpoint for a socket whose own endpoint has ended because its descriptor was closed. The number means nothing or
    another connection now; as on TCP, the object then uses that connection."""
    cdef int fd = kernel_fileno(self)
    cdef Endpoint endpoint = find(fd) if fd >= 0 and fs_open(fd) else None
    if endpoint is not None and (fs_is_loop_driven(&endpoint.c) or fs_is_closed(&endpoint.c)):
        endpoint = None
    set_slot(self, endpoint_slot, endpoint)
    if endpoint is not None:
        endpoint.adopt(fd)
        endpoint.expose()
    return endpoint


cdef bint means(object caller, Endpoint endpoint) except -1:
    """Returns true if this socket object, or number, still means the endpoint. A signal handler may have closed it during a call. The
    call then goes on in the kernel with the file that the number means now; a connection of ours falls back for that."""
    cdef Endpoint now = by_descriptor.get(caller if isinstance(caller, int) else kernel_fileno(caller))
    if now is not None and now is not endpoint:
        now.leave()
    return now is endpoint


cdef int64_t timeout_of_caller(object caller) except? -2:
    """Returns the timeout of a socket object; -1 for a number, which has none."""
    return -1 if isinstance(caller, int) else timeout_of(caller)


cdef bint is_nonblocking(object caller, Endpoint endpoint) except -1:
    """Returns true if a signal handler has made the socket or its descriptor non-blocking during a blocking call. If it has set a
    timeout, the stdlib's calls go on."""
    cdef int64_t timeout = timeout_of_caller(caller)
    return timeout == 0 or timeout < 0 and sys_fcntl(fs_fd(&endpoint.c), F_GETFL) & O_NONBLOCK != 0


def may_move(self):
    """Returns true if the socket's connection may move: TCP over IP, no TLS, and fastsock is enabled."""
    check(self)
    return (member(self, family_member) in (AF_INET, AF_INET6) and member(self, type_member) == SOCK_STREAM
            and member(self, protocol_member) in (0, IPPROTO_TCP) and may_begin()
            and (type(self) is socket_class or not socket_class._is_tls(self)))


cpdef Endpoint new_endpoint(self):
    """Creates an endpoint for the socket. Returns it, or None if the socket has one or its connection may not move."""
    cdef Endpoint endpoint, before
    if endpoint_in(self) is not None or not may_move(self):
        return None
    fd = kernel_fileno(self)
    if fd < 0:
        return None
    before = <Endpoint>by_descriptor.get(fd)
    if before is not None:
        if not before.c.inode:
            before.forget(fd)  # closed without our knowledge: the number is now this socket's
        elif find_again(self) is not None:
            return None  # another thread has meanwhile given the number to that connection
    endpoint = Endpoint(fd, True)
    endpoint.adopt(fd)
    limits = slot(self, limits_slot)
    if limits is not None:  # None: a derived class did not call our __init__
        endpoint.c.receive_limit, endpoint.c.send_limit = limits
    if slot(self, handed_out_slot):
        endpoint.expose()
    set_slot(self, endpoint_slot, endpoint)
    return endpoint


cdef int begin(self, address, service) except -1:
    """Starts the endpoint of a socket connected to `address`. `service`: statistics of the listener's sessions; None if this end
    has connected."""
    endpoint = new_endpoint(self)
    if endpoint is not None:
        endpoint.session = service_at(address) if service is None else service
        begin_undecided(endpoint)
        note_peer(endpoint, address)
    return 0


cdef inline service_at(address):
    """Returns the statistics of the sessions with the service at an address, or None."""
    if type(address) is tuple and len(<tuple>address) > 1 and type((<tuple>address)[1]) is int:
        return stats_of_port((<tuple>address)[1])
    return None


cdef inline service_of(Endpoint listener):
    """Returns the statistics of the sessions that a listener has accepted, or None."""
    if listener is not None and listener.session is None:
        listener.session = SessionStats()
    return None if listener is None else listener.session


cdef inline int note_peer(Endpoint endpoint, address) except -1:
    """Marks a peer with a loopback address as local, which saves a system call at the first wait."""
    if type(address) is tuple and len(<tuple>address) and type((<tuple>address)[0]) is str:
        if fs_is_loopback(PyUnicode_AsUTF8((<tuple>address)[0])):
            fs_store_relaxed(&endpoint.c.locality, FS_HERE)
    return 0


cpdef begin_connecting(self, address=None):
    """Creates an endpoint while a connect to `address` is in progress. Without `address` the socket may also be connected already."""
    endpoint = new_endpoint(self)
    if endpoint is not None:
        endpoint.session = service_at(address)
        begin_when_connected(endpoint)


def init(self, family=-1, type=-1, proto=-1, fileno=None):
    """Like socket.__init__, but native, which saves a Python frame per connection."""
    check(self)
    set_slot(self, endpoint_slot, None)
    set_slot(self, limits_slot, NO_LIMITS)
    set_slot(self, handed_out_slot, fileno is not None)
    if fileno is None:
        family = KERNEL_FAMILY if family == -1 else family
        type = KERNEL_TYPE if type == -1 else type
        proto = 0 if proto == -1 else proto
    try:
        kernel_init(self, family, type, proto, fileno)
    except OSError as error:
        if error.errno not in (EMFILE, ENFILE) or not give_back_descriptors():
            raise
        kernel_init(self, family, type, proto, fileno)
    self._io_refs = 0
    self._closed = False
    note_timeout(self)
    if fileno is not None:
        self._adopt()


def connect(self, address, /):
    """Like socket.connect."""
    global errno
    check(self)
    if timeout_of(self) == 0:
        # EINPROGRESS is usual here. connect() would raise it, which costs more than everything else.
        errno = try_connect(self, address)
        if errno:
            PyErr_SetFromErrno(OSError)
        return
    try:
        kernel_connect(self, address)
    except BlockingIOError:
        begin_connecting(self, address)
        raise
    begin(self, address, None)


cdef int try_connect(self, address) except -1:
    cdef int error = kernel_connect_ex(self, address)
    if error == 0 or error == EISCONN:
        begin(self, address if error == 0 else None, None)
    elif error == EINPROGRESS:
        begin_connecting(self, address)
    return error


def connect_ex(self, address, /):
    """Like socket.connect_ex."""
    check(self)
    return try_connect(self, address)


def fileno(self):
    """Like socket.fileno. The program may poll the descriptor, so from now on it is readable while the ring has data."""
    cdef Endpoint endpoint = endpoint_in(self)
    set_slot(self, handed_out_slot, True)
    if endpoint is not None and not fs_is_told_exposed(&endpoint.c):
        if endpoint.path.state == FS_THREAD_LATER:
            prepare_to_sleep(endpoint)  # the program may sleep in the kernel's poll next, without another call of ours
        endpoint.expose()
    return kernel_fileno(self)


def endpoint_now(self):
    """Returns the endpoint of the connection that the socket's descriptor means now, or None."""
    return endpoint_in(self)


def real_close(self, *arguments):
    """Like socket._real_close."""
    cdef Endpoint endpoint = endpoint_in(self)
    if endpoint is None:
        kernel_close(self)
        return
    set_slot(self, endpoint_slot, None)
    number = kernel_detach(self)  # first: otherwise another thread's call on this object would use the kernel's stream now
    try:
        endpoint.forget(number)
    finally:
        kernel_close_number(number)


def finalize(self):
    """Like socket.__del__."""
    cdef Endpoint endpoint = endpoint_in(self)
    if endpoint is not None:
        set_slot(self, endpoint_slot, None)
        endpoint.forget(kernel_fileno(self))
    kernel_del(self)


def note_timeout(self):
    """Reads the socket's timeout after a change."""
    check(self)
    timeout = kernel_timeout(self)
    set_slot(self, timeout_slot, -1 if timeout is None else <int64_t>(<double>timeout * 1e9))


def settimeout(self, value, /):
    """Like socket.settimeout."""
    check(self)
    kernel_settimeout(self, value)
    note_timeout(self)


def setblocking(self, flag, /):
    """Like socket.setblocking."""
    check(self)
    kernel_setblocking(self, flag)
    note_timeout(self)


def setsockopt(self, level, option, *arguments):
    """Like socket.setsockopt. Options that affect the data also apply to the ring."""
    cdef Endpoint endpoint = endpoint_in(self)
    if endpoint is not None and fs_is_attached(&endpoint.c):
        self._set_option(level, option, *arguments)
        return
    kernel_setsockopt(self, level, option, *arguments)
    if is_noted(level, option):
        self._note_option(level, option)


cdef bint is_noted(int level, int option) except -1:
    """Returns true if an option is in socket_class._NOTED."""
    cdef int at
    for at in range(noted_count):
        if noted[2 * at] == level and noted[2 * at + 1] == option:
            return True
    return False


def getsockopt(self, level, option, *arguments):
    """Like socket.getsockopt."""
    cdef Endpoint endpoint = endpoint_in(self)
    if endpoint is not None and fs_is_attached(&endpoint.c):
        return self._option(level, option, *arguments)
    return kernel_getsockopt(self, level, option, *arguments)


def accept(self):
    """Like socket.accept, but polls before it sleeps."""
    cdef Endpoint endpoint = endpoint_in(self)
    if endpoint is None:
        self._begin_listening()
        endpoint = endpoint_in(self)
    try:
        if endpoint is None or timeout_of(self) == 0:
            fd, address = kernel_accept(self)
        else:
            fd, address = accept_polling(self, endpoint)
    except OSError as error:
        if error.errno not in (EMFILE, ENFILE) or not give_back_descriptors():
            raise
        fd, address = kernel_accept(self)
    made = stdlib.socket
    if made is not socket_class and made is not plain_class:
        # The program has replaced socket.socket by its own class or function: use that for the accepted socket.
        sock = made(self.family, self.type, self.proto, fileno=fd)
        if default_timeout() is None and kernel_timeout(self):
            sock.setblocking(True)
        return sock, address
    sock = socket_class.__new__(socket_class)
    set_slot(sock, endpoint_slot, None)
    set_slot(sock, limits_slot, slot(self, limits_slot))
    set_slot(sock, handed_out_slot, False)
    # Like socket.__init__, without converting numbers to enum members and back.
    kernel_init(sock, member(self, family_member), member(self, type_member), member(self, protocol_member), fd)
    sock._io_refs = 0
    sock._closed = False
    if default_timeout() is None and kernel_timeout(self):
        kernel_setblocking(sock, True)
    note_timeout(sock)
    begin(sock, address, service_of(endpoint))
    return sock, address


cdef accept_polling(self, Endpoint endpoint):
    """Like socket._accept, but polls before it sleeps."""
    cdef int64_t began = fs_now()
    cdef bint ready = False
    cdef fs_call call
    if fs_wait_budget(&endpoint.c, began) == 0:
        result = kernel_accept(self)
        fs_note_wait(&endpoint.c, began, False, False)
        return result
    if fs_call_enter(&endpoint.c, &call):
        try:
            with nogil:
                ready = fs_spin(&endpoint.c, FS_RECEIVE)
        finally:
            endpoint.end(&call)
    result = kernel_accept(self)
    if not ready:
        fs_note_wait(&endpoint.c, began, True, False)
    return result
