# What the sessions of a service were like.

from libc.stdint cimport int64_t

from fastsock._native.meeting cimport fs_sessions

cdef class Sessions:
    cdef fs_sessions sessions

cdef Sessions sessions_with(int port)
