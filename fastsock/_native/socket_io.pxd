# Receiving and sending on an endpoint.

from libc.stdint cimport int64_t

from fastsock._native.core cimport fs_is_attached
from fastsock._native.core_ring cimport fs_load_relaxed
from fastsock._native.endpoint cimport Endpoint
from fastsock._native.registry cimport is_undecided

cdef enum:
    USE_KERNEL = -2  # instead of a number of bytes: call the stdlib's method
    SEND = 0         # values of `how` in transmit
    SEND_ALL = 1
    SEND_FILE = 2

cdef Py_ssize_t receive(Endpoint endpoint, object caller, int64_t timeout, char *into, Py_ssize_t room, int flags,
                        bint polled=*) except -1
cdef int readable_within(Endpoint endpoint, object caller, int64_t timeout) except -1
cdef bytes receive_bytes(Endpoint endpoint, object caller, int64_t timeout, Py_ssize_t size, int flags)
cdef list writable_views(object buffers)
cdef Py_ssize_t receive_scattered(Endpoint endpoint, object caller, int64_t timeout, list views, int flags) except -1
cdef Py_ssize_t transmit_buffer(Endpoint endpoint, object caller, int64_t timeout, object data, int flags, int how,
                                Py_ssize_t *total=*) except -1
cdef Py_ssize_t transmit_file(Endpoint endpoint, object caller, int64_t timeout, int file, int64_t at, Py_ssize_t count,
                              Py_ssize_t *total) except -1
cdef bytes gathered(object buffers)


cdef inline bint may_be_on_ring(Endpoint endpoint):
    """Returns true if data may come through the ring, or the path is not decided yet."""
    return fs_is_attached(&endpoint.c) or is_undecided(endpoint)


cdef inline bint has_pending_error(Endpoint endpoint):
    """Returns true if the kernel has reported an error that our next receive must raise."""
    return fs_load_relaxed(&endpoint.c.stands.pending_error) != 0
