# A connection of an event loop: the state of its transport, its end, and the calls of the program's protocol.

from libc.stdint cimport int64_t

from fastsock._native.core cimport fs_receives_on_ring
from fastsock._native.completion_queue cimport CompletionQueue, QueuedConnection
from fastsock._native.session_stats cimport SessionStats

cdef enum:
    DELIVERY = 262144   # most bytes given to a protocol at once: as asyncio's transports read


cdef class LoopContext:
    cdef readonly object loop
    cdef readonly CompletionQueue queue
    cdef bint stdlib
    cdef object policy                # the module with begin(), path_of(), ...


cdef class LowerProtocol:
    cdef LoopContext origin
    cdef bint buffered

    cdef int replace(self, protocol) except -1


cdef class LoopConnection(QueuedConnection):
    cdef LoopContext origin
    cdef readonly object lower        # the loop's own transport
    cdef object write_to_lower        # its method write; set when the connection is busy
    cdef object clients               # the set of a server that may close this transport, or None
    cdef bint in_context              # after the move we enter `context` for calls of the protocol; before, the loop does
    # the program's protocol and its methods
    cdef object protocol
    cdef object data_received
    cdef object get_buffer            # None: not a BufferedProtocol
    cdef object buffer_updated
    cdef LowerProtocol relay
    # the connection
    cdef readonly int64_t operations
    cdef int64_t acts_at              # number of operations from which on `operate` does more than count
    cdef SessionStats session             # statistics of the service's sessions, or None
    cdef bint entered                 # the queue has this transport
    # receiving
    cdef bint reading                 # state of pause_reading and resume_reading
    cdef bytes late                   # bytes of a peer that fell back to kernel TCP, kept while reading is paused
    cdef bint lower_held              # the lower transport does not read, because of the peer's plug
    cdef bint lower_ended             # the kernel's end of stream was read
    cdef bint ended                   # the protocol's eof_received was called
    # sending
    cdef object backlog               # deque of bytes that had no room on the ring; None until the first
    cdef Py_ssize_t first_sent        # bytes of its first piece that were sent
    cdef bint lower_paused            # the lower transport has called pause_writing
    cdef bint protocol_paused         # the program's protocol was told to pause (transport_io.update_paused)
    cdef bint credit                  # credit for the backlog was seen when the loop was about to sleep
    cdef bint flushing                # during the call of resume_writing
    cdef bint write_ended
    cdef public bint sends_file       # so the connection may not move, and the program may not write
    cdef list waiters                 # futures that wait until bytes are sent, or None
    # ending
    cdef bint closing
    cdef bint lost
    cdef object last_standing         # the standing of an ended endpoint, or of a connection without one
    cdef object kernel_because        # the reason not to move; None: may move
    cdef object shown_socket          # the result of get_extra_info("socket")
    cdef bint handed_out              # the descriptor's number was handed out

    cdef int stay_on_kernel(self, reason) except -1
    cdef int fail(self, int64_t result) except -1
    cdef void drop_backlog(self) noexcept


cdef inline bint receives_on_ring(LoopConnection self) noexcept:
    return self.endpoint is not None and fs_receives_on_ring(&self.endpoint.c)


cdef bint is_buffered(LoopContext origin, protocol)
cdef int deliver(LoopConnection self, data) except -1
cdef int call_buffer_updated(LoopConnection self, Py_ssize_t count) except -1
cdef object run_in_context(LoopConnection self, method, argument)
cdef int deliver_pieces(LoopConnection self, bytes data) except -1
cdef int report_eof(LoopConnection self) except -1
cdef bint ask_to_keep_open(LoopConnection self) except -1
cdef int call_protocol(LoopConnection self, name) except -1
cdef int no_buffer(LoopConnection self, error) except -1
cdef int fatal(LoopConnection self, error, message) except -1
