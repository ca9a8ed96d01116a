# The way out, as far as it needs Python.

from libc.stdint cimport int64_t

from fastsock._native.core cimport fs_connection, fs_parcel
from fastsock._native.core_ring cimport fs_leaver

cdef int keep_parcel(fs_connection *c, fs_leaver *leaver, fs_parcel *parcel, object queue) except -1
cdef int64_t start_bridge(fs_connection *c, fs_leaver *leaver, fs_parcel *parcel, set descriptors) except? -1
