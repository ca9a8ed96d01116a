# The bytes of a connection that a loop carries.

from fastsock._native.telling cimport Carried

cdef bint receive(Carried self, bint final) except -1
cdef int drain(Carried self) except -1
cdef int deliver_late(Carried self, bytes data) except -1
cdef int hold_lower(Carried self) except -1
cdef int post(Carried self, const char *data, Py_ssize_t length) except -1
cdef bint send_backlog(Carried self) except -1
cdef int end_sending(Carried self) except -1
cdef int tell_if_paused(Carried self) except -1
cdef int wake_waiters(Carried self) except -1
