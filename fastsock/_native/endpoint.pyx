# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=False
"""The endpoint: a connection that the transport of an event loop drives.

The front end at the C library's calls has its record; until the endpoint ends, calls by the number are the kernel's, for the loop's own
transport (interpose/loop_driven.c). The GIL is released around functions that take that front end's lock.
"""

from libc.stdint cimport int64_t
from cpython.exc cimport PyErr_CheckSignals

from fastsock._native.core cimport *
from fastsock._native.libc_front cimport reason_texts

import os as _os

cdef extern from "stdlib.h":
    void *aligned_alloc(size_t alignment, size_t size)

# What an ended endpoint points to: a connection that is not open, so that what is still asked of it has an answer.
cdef void *memory = aligned_alloc(64, fs_conn_size())
if memory == NULL:
    raise MemoryError("out of memory for connection state")
cdef fs_connection *nothing = fs_conn_init(memory)


cdef class Endpoint:
    """A connection that a transport drives."""

    def __cinit__(self):
        self.c = nothing

    def __dealloc__(self):
        if self.member != NULL:
            fs_loop_drop(self.member)
        if self.c != nothing:
            with nogil:
                fs_libc_end(self.c)

    cdef int end(self, fs_call *call) except -1:
        """Ends a call that fs_call_enter has admitted."""
        with nogil:
            fs_libc_exit(self.c, call)
        return 0


cdef Endpoint endpoint_of(int fd):
    """Takes over the connection behind a number, if it may still move; else returns None."""
    cdef fs_connection *c
    cdef Endpoint endpoint
    with nogil:
        c = fs_libc_drive(fd)
    if c == NULL:
        return None
    endpoint = Endpoint.__new__(Endpoint)
    endpoint.c = c
    return endpoint


cdef int end_of(Endpoint self) except -1:
    """Ends the connection in this process, before its descriptor is closed: FIN, or a reset if bytes are unread."""
    cdef fs_connection *c = self.c
    self.c = nothing
    if self.member != NULL:
        fs_loop_drop(self.member)
        self.member = NULL
    if c != nothing:
        with nogil:
            fs_libc_end(c)
    return 0


cdef tuple info_of(Endpoint self):
    """(sending has moved, receiving has moved, attached, reason): the input of path_events.path_from."""
    cdef fs_connection *c = self.c
    return (fs_is(c, FS_IS_SENDING_RING), fs_is(c, FS_IS_RECEIVING_RING), fs_is(c, FS_IS_ATTACHED),
            reason_texts[fs_reason_of(c)])


# ---- the path ------------------------------------------------------------------------------------------------


cdef int step(Endpoint self, fs_poller *poller, void *data) except -1:
    """Takes the next step of a connection that has one; it becomes a member of the poller if it attaches. Raises ConnectionResetError if the peer
    has broken the protocol."""
    cdef fs_step_result result
    cdef fs_loop_seat seat = fs_loop_seat(poller, data, self.member)
    with nogil:
        fs_libc_step(self.c, &seat, &result)
    self.member = seat.member
    if result.what == FS_STEP_BROKEN:
        raise ConnectionResetError(ECONNRESET, _os.strerror(ECONNRESET))
    return 0


cdef int decide(Endpoint self, int reason) except -1:
    """Keeps the connection on kernel TCP for `reason`. Does nothing if it is on the ring already."""
    with nogil:
        fs_libc_decide(self.c, reason)
    return 0


# ---- the way back, and the end -------------------------------------------------------------------------------


cdef bint hand_over(Endpoint self, fs_poller *poller, void *data) except -1:
    """Gives the connection back to the front end, which serves calls on its number from now on. The endpoint has none any more. Returns
    false if it has to stay here. Raises OSError if there is no place for it here either."""
    cdef int failed
    cdef fs_loop_seat seat = fs_loop_seat(poller, data, self.member)
    with nogil:
        failed = fs_libc_hand_over(self.c, &seat)
    self.member = seat.member
    if failed == -ENOTCONN:
        raise OSError(ENOMEM, _os.strerror(ENOMEM))
    if failed:
        if self.member != NULL:
            fs_loop_enter(self.member)
        return False
    self.c = nothing
    return True


cdef bint shutdown(Endpoint self) except -1:
    """Sends packet FIN, before the kernel's shutdown for sending. Returns true if the caller must ignore ENOTCONN of that."""
    cdef fs_call call
    cdef int stood = -EINTR
    if not fs_call_enter(self.c, &call):
        return False
    try:
        while stood == -EINTR:
            with nogil:
                stood = fs_conn_shutdown(self.c, False, True)
            if stood == -EINTR:
                PyErr_CheckSignals()
    finally:
        self.end(&call)
    return stood != 0


cdef object leave(Endpoint self):
    """Takes the connection back to kernel TCP, as other code is about to read and write the descriptor. If the peer does not cooperate, a
    bridge process forwards the data. Returns the bytes that come before those in the kernel's queue; None if it must stay on the ring, for
    want of resources."""
    cdef int unread = -1
    cdef bint left
    with nogil:
        left = fs_libc_leave(self.c, &unread)
    if unread < 0:
        return b"" if left else None
    try:
        return _os.pread(unread, _os.fstat(unread).st_size, 0)
    finally:
        sys_close(unread)


cdef int reset(Endpoint self) except -1:
    """Resets the connection, whose ring is broken: the peer gets a RST."""
    with nogil:
        fs_libc_reset(self.c)
    return 0
