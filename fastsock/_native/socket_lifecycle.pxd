# How socket objects get and lose their endpoints.

from libc.stdint cimport int64_t
from cpython.object cimport PyObject, PyObject_TypeCheck, PyTypeObject

from fastsock._native.core cimport fs_is_closed
from fastsock._native.endpoint cimport Endpoint
from fastsock._native.registry cimport operate

cdef PyTypeObject *socket_type
cdef object socket_class  # fastsock.socket, which also has the callbacks
cdef object plain_class   # the stdlib's class
cdef Py_ssize_t endpoint_slot
cdef Py_ssize_t timeout_slot
cdef int refuse(object sock) except -1
cdef Endpoint find_again(object self)
cdef bint means(object caller, Endpoint endpoint) except -1
cdef int64_t timeout_of_caller(object caller) except? -2
cdef bint is_nonblocking(object caller, Endpoint endpoint) except -1


cdef inline int check(object sock) except -1:
    """Raises TypeError unless `sock` is a fastsock.socket. A method called through the class may get any object, without these
    slots."""
    return 0 if PyObject_TypeCheck(sock, socket_type) else refuse(sock)


cdef inline object slot(object sock, Py_ssize_t offset):
    """Returns the value of a slot of a checked socket; None if it was never set."""
    cdef PyObject *value = (<PyObject **>((<char *><PyObject *>sock) + offset))[0]
    return None if value == NULL else <object>value


cdef inline Endpoint endpoint_in(object self):
    """Returns the socket's endpoint or None."""
    cdef Endpoint endpoint
    check(self)
    endpoint = <Endpoint>slot(self, endpoint_slot)
    return endpoint if endpoint is None or not fs_is_closed(&endpoint.c) else find_again(self)


cdef inline Endpoint endpoint_of(object self):
    """Returns the socket's endpoint, or None if the stdlib's call must be used. Counts the operation, and takes the next step of an
    undecided connection."""
    cdef Endpoint endpoint = endpoint_in(self)
    if endpoint is not None:
        operate(endpoint)
    return endpoint


cdef inline int64_t timeout_of(object self) except -2:
    """Returns the timeout in nanoseconds; -1: blocking, 0: non-blocking."""
    timeout = slot(self, timeout_slot)
    return -1 if timeout is None else <int64_t>timeout
