# What a transport of a loop holds, how it ends, and the calls of its program's protocol.

from libc.stdint cimport int64_t

from fastsock._native.core cimport fs_receives_on_ring
from fastsock._native.completion_queue cimport CompletionQueue, QueuedConnection
from fastsock._native.session_stats cimport SessionStats

cdef enum:
    DELIVERY = 262144   # bytes given to a protocol at once, at most: what asyncio's own transports read


cdef class LoopContext:
    cdef readonly object loop
    cdef readonly CompletionQueue queue
    cdef bint stdlib
    cdef object policy                # the table of functions that decide about paths: begin(), path_of(), ...


cdef class LowerProtocol:
    cdef LoopContext origin
    cdef bint buffered

    cdef int replace(self, protocol) except -1


cdef class LoopConnection(QueuedConnection):
    cdef LoopContext origin
    cdef readonly object lower        # the loop's own transport
    cdef object write_to_lower        # its method, of a connection that has proved busy
    cdef object clients               # the set of a server that may close us, or None
    cdef bint in_context              # the protocol is called in `context` by us; until the move the loop's transport does that
    # the program's protocol and its methods
    cdef object protocol
    cdef object data_received
    cdef object get_buffer            # None: not a BufferedProtocol
    cdef object buffer_updated
    cdef LowerProtocol shim
    # the connection
    cdef readonly int64_t operations
    cdef int64_t acts_at              # operations, from which on there is something to do beside counting them
    cdef SessionStats session             # what is known of the service's sessions, or None
    cdef bint entered                 # the queue has it
    # receiving
    cdef bint reading                 # as pause_reading and resume_reading left it
    cdef bytes late                   # of a peer that went back to the kernel, while reading is paused
    cdef bint lower_held              # does not read, because of the peer's plug
    cdef bint lower_ended             # the kernel's end of stream was seen
    cdef bint ended                   # the protocol was told of the end of the stream
    # sending
    cdef object backlog               # deque of bytes that found no room; None: there never were any
    cdef Py_ssize_t first_sent        # bytes of its first piece that are sent
    cdef bint lower_paused            # the loop's transport says that enough waits in it
    cdef bint protocol_paused         # as the program's protocol was told (carrying.tell_if_paused)
    cdef bint credit                  # was seen for the backlog when the loop was about to sleep
    cdef bint flushing                # tells the protocol that the backlog is small
    cdef bint write_ended
    cdef public bint sends_file       # so nothing may move, and the program may not write
    cdef list waiters                 # futures of who waits until bytes are sent, or None
    # ending
    cdef bint closing
    cdef bint lost
    cdef object last_standing         # the endpoint's, of a connection that has ended or has none to move with
    cdef object kernel_because        # the reason why it shall not move; None: it may
    cdef object shown_socket          # what get_extra_info("socket") gives
    cdef bint handed_out              # somebody knows the descriptor's number

    cdef int stay_on_kernel(self, reason) except -1
    cdef int fail(self, int64_t result) except -1
    cdef void drop_backlog(self) noexcept


cdef inline bint receives_on_ring(LoopConnection self) noexcept:
    return self.endpoint is not None and fs_receives_on_ring(&self.endpoint.c)


cdef bint is_buffered(LoopContext origin, protocol)
cdef int deliver(LoopConnection self, data) except -1
cdef int tell_updated(LoopConnection self, Py_ssize_t count) except -1
cdef object run_in_context(LoopConnection self, method, argument)
cdef int deliver_pieces(LoopConnection self, bytes data) except -1
cdef int tell_end(LoopConnection self) except -1
cdef bint ask_to_keep_open(LoopConnection self) except -1
cdef int call_protocol(LoopConnection self, name) except -1
cdef int no_buffer(LoopConnection self, error) except -1
cdef int fatal(LoopConnection self, error, message) except -1
