# The transports of an event loop, and the completion queue that polls them. One module, as each needs the other; transport.pyx
# names its files.

cimport cython
from libc.stdint cimport int64_t, uint32_t

from fastsock._native.core cimport FS_IS_RECEIVING_RING, epoll_event, fs_is, fs_poller
from fastsock._native.endpoint cimport Endpoint

cdef enum:
    TOLD = 256  # transports that a look finds at most

cdef enum LoopKind:
    STDLIB_LOOP
    UVLOOP

cdef enum TransportState:
    OPEN
    CLOSING  # no more data is delivered; what was written before is still sent
    LOST     # the protocol was told


@cython.final
cdef class CompletionQueue:
    cdef object __weakref__
    cdef object loop
    cdef LoopKind kind
    cdef object call_soon
    cdef object poll_method
    cdef object context       # an empty one, for the queue's own callbacks
    cdef fs_poller *poller    # NULL until the first connection attaches
    cdef Transport inside     # during a sweep: the transport whose context is entered
    cdef object ready         # the loop's deque of ready callbacks
    cdef epoll_event seen[TOLD]  # transports that had data or room at the last look; NULL: it has ended since
    cdef int count, at        # of them, and those that were delivered to already
    cdef readonly set begun   # transports with an endpoint
    cdef bint scheduled       # `poll` will be called
    cdef bint closed
    cdef object timer         # while some transport is to be looked at, though no event may report it
    cdef int64_t writes       # number of writes to the ring: shows if a protocol answered from its callback
    cdef int64_t left_at      # monotonic ns

    cdef int make_poller(self) except -1
    cdef int enter(self, Transport transport) except -1
    cdef void forget(self, Transport transport) noexcept
    cdef int activate(self, Transport transport) except -1
    cdef int schedule_poll(self) except -1
    cdef int sleep(self) except -1
    cdef int set_timer(self) except -1
    cdef bint sweep_all(self) except -1
    cdef int step_into(self, Transport transport) except -1
    cdef int step_out(self) except -1
    cdef bint sweep_while_answered(self) except -1
    cdef int look(self, int64_t now) noexcept
    cdef bint deliver_seen(self, bint *unanswered) except -1
    cdef bint spin(self, int64_t until) noexcept


@cython.final
cdef class Transport:
    cdef object __weakref__
    cdef dict __dict__
    cdef CompletionQueue queue
    cdef readonly object lower        # the loop's own transport
    cdef object write_to_lower        # its method write; set when the connection is busy
    cdef object clients               # the set of a server that may close this transport, or None
    cdef TransportState state
    # the program's protocol and its methods
    cdef object protocol
    cdef object data_received
    cdef object get_buffer            # None: not a BufferedProtocol
    cdef object buffer_updated
    cdef object context               # the context for calls of the protocol
    cdef bint in_context              # after the move we enter `context` for calls of the protocol; before, the loop does
    cdef object relay                 # the protocol of `lower` (relay_protocol.pyx)
    cdef bint relay_is_buffered
    # the connection
    cdef Endpoint endpoint            # None if the connection may not move, before it has made some operations, and after its end
    cdef readonly int64_t operations
    cdef int64_t acts_at              # number of operations from which on an operation does more than count; INT64_MAX: never
    cdef tuple last_info              # info_of the endpoint when it ended, or before it is needed; or None
    cdef bint is_early                # it has made too few operations to need an endpoint
    # as the queue sees it
    cdef bint entered                 # on the ring: the queue has this transport
    # receiving
    cdef bint reading                 # state of pause_reading and resume_reading
    cdef bytes late                   # bytes of a peer that fell back to kernel TCP, kept while reading is paused
    cdef bint lower_ended             # the kernel's end of stream was read
    cdef bint ended                   # the protocol's eof_received was called
    # sending
    cdef object backlog               # deque of bytes that had no room on the ring; None until the first
    cdef size_t backlog_size          # bytes in it that were not sent
    cdef Py_ssize_t first_sent        # bytes of its first piece that were sent
    cdef bint lower_paused            # the lower transport has called pause_writing
    cdef bint protocol_paused         # the program's protocol was told to pause (update_paused)
    cdef bint flushing                # during the call of resume_writing
    cdef bint write_ended
    cdef public bint sends_file       # so the connection may not move, and the program may not write
    cdef list waiters                 # futures that wait until bytes are sent, or None
    # what the program has asked for
    cdef object shown_socket          # the result of get_extra_info("socket")
    cdef bint handed_out              # the descriptor's number was handed out

    cdef object write_other(self, data)
    cdef object write_lower(self, data)
    cdef int use_protocol(self, protocol, bint buffered) except -1


cdef inline bint receives_on_ring(Transport self) noexcept:
    return self.endpoint is not None and fs_is(self.endpoint.c, FS_IS_RECEIVING_RING)


# loop_kinds.pxi
cdef bint is_buffered(CompletionQueue queue, protocol)
cdef object buffer_for_lower(Transport self, hint)
# transport_path.pxi
cdef int note_read(Transport self) except -1
cdef int note_context(Transport self) except -1
cdef int begin(Transport self) except -1
cdef int drive(Transport self) except -1
cdef int fail(Transport self, int64_t result) except -1
cdef int end_endpoint(Transport self) except -1
cdef int drop_backlog(Transport self) except -1
# transport_io.pxi
cdef int want(Transport self) noexcept
cdef int drain(Transport self) except -1
cdef int deliver_late(Transport self, bytes data) except -1
cdef int update_paused(Transport self) except -1
cdef int wake_waiters(Transport self) except -1
# protocol_calls.pxi
cdef int deliver(Transport self, data) except -1
cdef int call_buffer_updated(Transport self, Py_ssize_t count) except -1
cdef object run_in_context(Transport self, method, argument)
cdef bint ask_to_keep_open(Transport self) except -1
