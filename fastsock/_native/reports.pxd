# What is told of connections: where one stands, and what they counted.

from fastsock._native.core cimport fs_connection
from fastsock._native.core_ring cimport fs_counters

cdef dict description(fs_connection *c)
cdef dict counts(fs_counters *count)
