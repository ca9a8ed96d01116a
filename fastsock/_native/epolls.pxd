# The class that stands for select.epoll, and how a descriptor is named to what waits for it.

from fastsock._native.endpoint cimport Endpoint

cdef Endpoint endpoint_behind(object sock)
cdef int number_at(object fd) except -1
