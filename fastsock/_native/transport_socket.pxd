# The sockets that transports show.

cdef object show(object transport, object sock)
