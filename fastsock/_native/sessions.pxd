# What the sessions of a service were like.

from libc.stdint cimport int64_t, uint64_t

from fastsock._native.meeting cimport fs_sessions

cdef class Sessions:
    cdef fs_sessions sessions

    cpdef int note(self, int64_t operations, int sought=*, uint64_t calls=*, uint64_t messages=*) except -1

cdef Sessions sessions_with(int port)
