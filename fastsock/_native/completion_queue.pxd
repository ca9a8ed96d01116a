# The completion queue of a loop, and what it knows of the transports that it polls.

from libc.stdint cimport int64_t, uint32_t

from fastsock._native.core cimport fs_spin_stats, fs_event_set
from fastsock._native.endpoint cimport Endpoint


cdef class QueuedConnection:
    cdef object __weakref__
    cdef Endpoint endpoint            # None until the connection has proved busy, and behind its end
    cdef object context               # in which the protocol is called
    cdef bint hot
    cdef int64_t last_event
    cdef size_t backlog_size          # bytes that wait to be sent

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
    cdef fs_event_set *set        # NULL: no connection has been attached yet
    cdef QueuedConnection inside      # whose context is the current one, during a sweep
    cdef object ready       # the loop's deque of callbacks that are ready
    cdef list hot
    cdef list seen          # transports that had something when the queue last looked
    cdef readonly set begun  # transports with an endpoint
    cdef bint scheduled
    cdef bint stale         # `hot` holds transports that are not hot any more
    cdef bint closed
    cdef set watched        # transports with a backlog whose lifeline has ended: nothing would tell of the peer's death
    cdef object probe_timer
    cdef fs_spin_stats spin_stats
    cdef int64_t writes     # on the ring, ever: tells whether a protocol answered from its callback
    cdef int64_t quiet_since  # monotonic ns; 0: something came with the last sweep
    cdef int64_t left_at
    cdef int64_t spun       # ns that this wait has polled
    cdef int64_t budget     # ns that this wait, which began at quiet_since, may poll

    cdef int make_set(self) except -1
    cdef int enter(self, QueuedConnection transport) except -1
    cdef void forget(self, QueuedConnection transport) noexcept
    cdef int heat(self, QueuedConnection transport) except -1
    cdef int order_turn(self) except -1
    cdef void cool(self, QueuedConnection transport) noexcept
    cdef bint leave_to_set(self, QueuedConnection transport) except -1
    cdef int watch(self, QueuedConnection transport) except -1
    cdef int take_hints(self, list woken) except -1
    cdef int rest(self) except -1
    cdef bint sweep_all(self) except -1
    cdef int step_into(self, QueuedConnection transport) except -1
    cdef int step_out(self) except -1
    cdef bint sweep_while_answered(self) except -1
    cdef uint32_t peer_processor(self) noexcept
    cdef bint answer_comes(self) noexcept
    cdef int look(self, int64_t now) except -1
    cdef bint deliver_seen(self, int64_t now, bint *unanswered) except -1
    cdef void drop_cooled(self) noexcept
    cdef bint spin(self, int64_t until) except -1
    cdef int arm_all(self) except -1
