# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=False
"""The way out, as far as it needs Python: what a loop's transport keeps, and a bridge under the descriptors.

Between fs_fallback_begin and fs_fallback_end (core/conn/fallback.h), of a connection that cannot go back to the kernel
as it is. No endpoint is known here: who leaves looks after its own tables.
"""

from libc.stdint cimport int64_t
from libc.stdlib cimport free, realloc

from fastsock._native.core cimport *
from fastsock._native.core_ring cimport *

import os as _os


cdef int keep_unread(fs_connection *c, fs_fallback_lock *fallback, fs_unread_data *unread_data, object queue) except -1:
    """Gives the loop's transport (by its `queue`) what the peer cannot put into our kernel queue again. How the leaving
    ends."""
    cdef int outcome = fs_fallback_collect(c, fallback, unread_data)
    if outcome == FS_FELL_BACK:
        queue.keep_late(fs_slot_of(c), _os.pread(unread_data.fd, <size_t>unread_data.size, 0))
        fs_fallback_done(c, fallback)
    return outcome


cdef int64_t start_bridge(fs_connection *c, fs_fallback_lock *fallback, fs_unread_data *unread_data, set descriptors) except? -1:
    """Puts a bridge under the connection's descriptors. Its process id, or -errno if there are no resources for one;
    -ECONNRESET if it could not be put there, and the connection has been reset.
    The descriptors lead to another socket then, and `inode` is that one's."""
    cdef int near = -1
    cdef int64_t pid
    cdef fs_shared_side *new = fs_side_new()
    if new == NULL:
        raise MemoryError("no address space for connection state")
    pid = fs_start_bridge(c, fallback, unread_data, &near)
    if pid < 0:
        fs_slab_free(new, sizeof(fs_shared_side))
        return pid
    try:
        if not change_over(c, near, new, descriptors):
            fs_slab_free(new, sizeof(fs_shared_side))
            pid = -ECONNRESET
    except BaseException:
        fs_reset_connection(fs_fd(c))  # the process has it already, and two would read it
        raise
    finally:
        sys_close(near)
    return pid


cdef bint change_over(fs_connection *c, int near, fs_shared_side *new, set descriptors) except -1:
    """The descriptors become `near`, a kernel TCP connection like any other, with `new` as the connection's state.
    False: one of them could not, and the connection has been reset."""
    cdef int *numbers = NULL
    cdef int *larger
    cdef int at, count, changed
    cdef tuple present
    try:
        while True:
            # (A new object may run the garbage collector, and so anything: none is made behind this one.)
            present = tuple(descriptors)
            count = <int>len(present)
            larger = <int *>realloc(numbers, (<size_t>count + 1) * sizeof(int))
            if larger == NULL:
                raise MemoryError("no memory for the numbers of the descriptors")
            numbers = larger
            for at in range(count):
                numbers[at] = present[at]
            changed = fs_swap_to_bridge(c, near, new, numbers, count)
            if changed:
                return changed > 0
            fs_wait_for_side(c)
    finally:
        free(numbers)
