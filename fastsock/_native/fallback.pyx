# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=False
"""The Python part of the fallback to kernel TCP: unread data of a transport, and a bridge behind the descriptors.

Used between fs_fallback_begin and fs_fallback_end (core/conn/fallback.h), for a connection that cannot fall back without
help. The caller updates the tables of endpoints.
"""

from libc.stdint cimport int64_t
from libc.stdlib cimport free, realloc

from fastsock._native.core cimport *
from fastsock._native.core_ring cimport *

import os as _os


cdef int keep_unread(fs_connection *c, fs_fallback_lock *fallback, fs_unread_data *unread_data, object queue) except -1:
    """Gives unread data that the peer cannot send again to the transport, through its `queue`. Returns the outcome of the
    fallback."""
    cdef int outcome = fs_fallback_collect(c, fallback, unread_data)
    if outcome == FS_FELL_BACK:
        queue.keep_late(fs_slot_of(c), _os.pread(unread_data.fd, <size_t>unread_data.size, 0))
        fs_fallback_done(c, fallback)
    return outcome


cdef int64_t start_bridge(fs_connection *c, fs_fallback_lock *fallback, fs_unread_data *unread_data, set descriptors) except? -1:
    """Starts a bridge process and makes the connection's descriptors lead to it; `inode` becomes that of the new socket. Returns
    the process id, or -errno if resources are missing; -ECONNRESET if a descriptor could not be replaced and the connection
    was reset."""
    cdef int near = -1
    cdef int64_t pid
    cdef fs_shared_side *new = fs_side_new()
    if new == NULL:
        raise MemoryError("out of memory for connection state")
    pid = fs_start_bridge(c, fallback, unread_data, &near)
    if pid < 0:
        fs_slab_free(new, sizeof(fs_shared_side))
        return pid
    try:
        if not swap_to_bridge(c, near, new, descriptors):
            fs_slab_free(new, sizeof(fs_shared_side))
            pid = -ECONNRESET
    except BaseException:
        fs_reset_connection(fs_fd(c))  # the bridge has the connection already, and two must not read it
        raise
    finally:
        sys_close(near)
    return pid


cdef bint swap_to_bridge(fs_connection *c, int near, fs_shared_side *new, set descriptors) except -1:
    """Replaces the descriptors by `near`, a plain kernel TCP connection, with `new` as its state. Returns false if one could
    not be replaced and the connection was reset."""
    cdef int *numbers = NULL
    cdef int *larger
    cdef int at, count, changed
    cdef tuple present
    try:
        while True:
            # Creating objects may run the garbage collector, and so any code: none is created after this one.
            present = tuple(descriptors)
            count = <int>len(present)
            larger = <int *>realloc(numbers, (<size_t>count + 1) * sizeof(int))
            if larger == NULL:
                raise MemoryError("out of memory for descriptor numbers")
            numbers = larger
            for at in range(count):
                numbers[at] = present[at]
            changed = fs_swap_to_bridge(c, near, new, numbers, count)
            if changed:
                return changed > 0
            fs_wait_for_side(c)
    finally:
        free(numbers)
