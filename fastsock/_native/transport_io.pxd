# Receiving and sending of transports on the ring.

from fastsock._native.loop_connection cimport LoopConnection

cdef bint receive(LoopConnection self, bint final) except -1
cdef int drain(LoopConnection self) except -1
cdef int deliver_late(LoopConnection self, bytes data) except -1
cdef int hold_lower(LoopConnection self) except -1
cdef int post(LoopConnection self, const char *data, Py_ssize_t length) except -1
cdef bint send_backlog(LoopConnection self) except -1
cdef int end_sending(LoopConnection self) except -1
cdef int update_paused(LoopConnection self) except -1
cdef int wake_waiters(LoopConnection self) except -1
