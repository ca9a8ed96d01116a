# The state of a connection and its counters, for reading only.

from fastsock._native.core cimport fs_connection
from fastsock._native.core_ring cimport fs_counters
from fastsock._native.core_rendezvous cimport fs_path

cdef class ConnectionInfo:
    cdef fs_connection c
    cdef fs_path path  # the state of the search for the peer, until the path is decided


cdef list reason_texts
cdef tuple info_of(ConnectionInfo self)
cdef dict description(fs_connection *c)
cdef dict counts(fs_counters *count)
