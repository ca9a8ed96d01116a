# The endpoint: one end of a connection in this process.

from libc.stdint cimport uint32_t, uint64_t

from fastsock._native.core cimport fs_call
from fastsock._native.core_ring cimport fs_counters
from fastsock._native.connection_info cimport ConnectionInfo
from fastsock._native.session_stats cimport SessionStats

cdef class Endpoint(ConnectionInfo):
    cdef object __weakref__
    cdef readonly set descriptors
    cdef public SessionStats session  # statistics of the service's sessions, updated at the end; or None
    cdef public object queue  # the completion queue of the event loop, or None
    cdef readonly int bridge_process
    cdef bint numbered      # a selector handles the number, so the connection need not be exposed

    cpdef adopt(self, int fd)
    cpdef forget(self, int fd)
    cpdef expose(self)
    cdef int point_to(self, int fd) except -1
    cdef int end(self, fs_call *call) except -1


cdef dict by_descriptor
cdef dict by_inode
cdef set nameless
cdef fs_counters totals
cdef uint64_t inode_of(int fd) except? 0
cdef bint identify(Endpoint self) except? True
cdef int finish(Endpoint self) except -1
cdef int close_inherited(Endpoint self) except -1
cdef int unpin(Endpoint self) except -1
