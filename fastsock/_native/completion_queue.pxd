# The completion queue of an event loop, and its view of the loop's transports.

from libc.stdint cimport int64_t, uint32_t

from fastsock._native.core cimport fs_spin_stats, fs_event_set
from fastsock._native.endpoint cimport Endpoint


cdef class QueuedConnection:
    cdef object __weakref__
    cdef Endpoint endpoint            # None before the connection is busy, and after its end
    cdef object context               # the context for calls of the protocol
    cdef bint active
    cdef int64_t last_event
    cdef size_t backlog_size          # bytes waiting to be sent

    cdef bint something(self) noexcept nogil
    cdef bint progress(self) except -1
    cdef bint arm(self) except -1
    cdef int keep_late(self, bytes data) except -1
    cdef int end_endpoint(self) except -1


cdef class CompletionQueue:
    cdef object __weakref__
    cdef object loop
    cdef object call_soon
    cdef object turn_method
    cdef object context
    cdef fs_event_set *set        # NULL until the first connection attaches
    cdef QueuedConnection inside      # during a sweep: the transport whose context is entered
    cdef object ready       # the loop's deque of ready callbacks
    cdef list active
    cdef list seen          # transports that had data or credits at the last look
    cdef readonly set begun  # transports with an endpoint
    cdef bint scheduled
    cdef bint stale         # `active` contains transports that are no longer active
    cdef bint closed
    cdef set watched        # transports with a backlog whose kernel stream has ended: no event would report the peer's death
    cdef object probe_timer
    cdef fs_spin_stats spin_stats
    cdef int64_t writes     # number of writes to the ring: shows if a protocol answered from its callback
    cdef int64_t quiet_since  # monotonic ns; 0: the last sweep delivered something
    cdef int64_t left_at
    cdef int64_t spun       # ns polled in this wait
    cdef int64_t budget     # ns of polling allowed in this wait, which began at quiet_since

    cdef int make_set(self) except -1
    cdef int enter(self, QueuedConnection transport) except -1
    cdef void forget(self, QueuedConnection transport) noexcept
    cdef int activate(self, QueuedConnection transport) except -1
    cdef int order_turn(self) except -1
    cdef void deactivate(self, QueuedConnection transport) noexcept
    cdef bint leave_to_set(self, QueuedConnection transport) except -1
    cdef int watch(self, QueuedConnection transport) except -1
    cdef int take_hints(self, list woken) except -1
    cdef int sleep(self) except -1
    cdef bint sweep_all(self) except -1
    cdef int step_into(self, QueuedConnection transport) except -1
    cdef int step_out(self) except -1
    cdef bint sweep_while_answered(self) except -1
    cdef uint32_t peer_processor(self) noexcept
    cdef bint answer_comes(self) noexcept
    cdef int look(self, int64_t now) except -1
    cdef bint deliver_seen(self, int64_t now, bint *unanswered) except -1
    cdef void drop_inactive(self) noexcept
    cdef bint spin(self, int64_t until) except -1
    cdef int arm_all(self) except -1
