# The transport for the program's protocol.

from fastsock._native.endpoint cimport Endpoint
from fastsock._native.loop_connection cimport LoopConnection


cdef class Transport(LoopConnection):
    cdef int note_read(self) except -1
    cdef bint acts(self) noexcept
    cdef int note_context(self) except -1
    cdef int operate(self) except -1
    cdef int begin(self) except -1
    cdef int drive(self, Endpoint endpoint) except -1
    cdef int take_over(self, Endpoint endpoint) except -1
    cdef int enter(self) except -1
    cdef bint sends_on_ring(self) noexcept
    cdef bint is_dead(self) noexcept
    cdef object write_other(self, data)
    cdef object write_lower(self, data)
    cdef int use_protocol(self, protocol, bint buffered) except -1
    cdef void forget_protocol(self) noexcept
