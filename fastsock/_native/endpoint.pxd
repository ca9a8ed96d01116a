# The endpoint: one end of one connection, and what Python knows of it.

from libc.stdint cimport int64_t, uint32_t, uint64_t

from fastsock._native.core cimport fs_call, fs_connection
from fastsock._native.core_ring cimport fs_counters, fs_word32

cdef class Endpoint:
    cdef object __weakref__
    cdef fs_connection c
    cdef readonly set descriptors
    # rendezvous
    cdef public object search
    cdef public object step
    cdef readonly object reason
    cdef public object kit
    cdef public object session  # told how many operations there were, when the endpoint ends
    cdef public object queue  # the completion queue of the loop that drives it, or None
    cdef public int64_t operations
    cdef public int64_t next_step
    cdef fs_word32 *arrival  # the state of the meeting that it waits for
    cdef unsigned long attaching  # the thread that is at it; 0: none
    cdef readonly int bridge

    cdef int point_to(self, int fd) except -1
    cdef int end(self, fs_call *call) except -1


cdef dict by_descriptor
cdef dict by_inode
cdef set nameless
cdef dict reason_numbers
cdef fs_counters totals
cdef uint64_t inode_of(int fd) except? 0
cdef bint identify(Endpoint self) except? True
cdef uint32_t reason_number(object reason) except? 0
cdef tuple standing_of(Endpoint self)
cdef int say_goodbye(Endpoint self) except -1
cdef int let_go(Endpoint self) except -1
cdef int let_loose(Endpoint self) except -1
