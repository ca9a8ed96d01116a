# The sockets of transports.

cdef object show(object transport, object sock)
