# Statistics of a service's past sessions.

from libc.stdint cimport int64_t, uint64_t

from fastsock._native.core_rendezvous cimport fs_session_stats

cdef class SessionStats:
    cdef fs_session_stats sessions

    cpdef int note(self, int64_t operations, int sought=*, uint64_t calls=*, uint64_t messages=*) except -1

cdef SessionStats stats_of_port(int port)
