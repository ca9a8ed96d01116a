# How a thread waits for descriptors, of which some are connections on the ring.

from libc.stdint cimport int64_t

cdef bint is_member_among(list numbers) except -1
cdef bint is_member_in(dict numbers) except -1
cdef list wait_for(list numbers, list wanted, list counted, int64_t patience, bint refuses=*)
