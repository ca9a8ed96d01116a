# The endpoint: a connection that the transport of an event loop drives.

from fastsock._native.core cimport *

cdef class Endpoint:
    cdef object __weakref__
    cdef fs_connection *c
    cdef fs_member *member  # of the loop's poller; NULL before it attaches

    cdef int end(self, fs_call *call) except -1

cdef Endpoint endpoint_of(int fd)
cdef int end_of(Endpoint self) except -1
cdef tuple info_of(Endpoint self)
cdef int step(Endpoint self, fs_poller *poller, void *data) except -1
cdef int decide(Endpoint self, int reason) except -1
cdef bint hand_over(Endpoint self, fs_poller *poller, void *data) except -1
cdef bint shutdown(Endpoint self) except -1
cdef object leave(Endpoint self)
cdef int reset(Endpoint self) except -1
