# The Python part of the fallback to kernel TCP.

from libc.stdint cimport int64_t

from fastsock._native.core cimport fs_connection, fs_unread_data
from fastsock._native.core_ring cimport fs_fallback_lock

cdef int keep_unread(fs_connection *c, fs_fallback_lock *fallback, fs_unread_data *unread_data, object queue) except -1
cdef int64_t start_bridge(fs_connection *c, fs_fallback_lock *fallback, fs_unread_data *unread_data, set descriptors) except? -1
