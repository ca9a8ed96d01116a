# The endpoint: one end of one connection, on kernel TCP, on the virtual interface, or on its way.

from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t
from cpython.object cimport PyObject

from fastsock._native.headers cimport (
    fs_counters, fs_load_acquire, fs_load_relaxed, fs_side, fs_vi, fs_word32,
)

cdef enum:
    RECEIVE = 1
    SEND = 2
    MEETING_WAITING = 1

# Whether polling pays: score, waits still to go without it, and how many that were the last time. Relaxed: threads that wait
# at once share it, and what one of them learns may be lost to another.
cdef struct poll_habit:
    fs_word32 score
    fs_word32 skip
    fs_word32 penalty

cdef enum:  # of the peer
    LOCALITY_UNKNOWN = 0
    HERE = 1
    ELSEWHERE = 2

# A call of this process that is inside an endpoint. A thread's calls form a chain, since a signal handler that runs inside
# of one may make another one, or fork: the child has this thread's calls and no others.
cdef struct fs_call:
    PyObject *endpoint
    fs_call *outer

# What a sleeper hears of numbers by (numbers.pxi).
cdef struct news_t:
    int fd
    uint64_t inode
    int sleepers
    fs_word32 over  # nobody joins it any more; relaxed, since who reads it has the GIL
    news_t *next

cdef class Endpoint:
    cdef object __weakref__
    # identity
    cdef readonly int fd
    cdef readonly set descriptors
    cdef readonly uint64_t inode
    # rendezvous
    cdef public object search
    cdef public object step
    cdef readonly object reason
    cdef int place  # in the roll; -1: none
    cdef public object kit
    cdef public object session  # told how many operations there were, when the endpoint ends
    cdef public object queue  # the completion queue of the loop that drives it, or None
    cdef public int64_t operations
    cdef public int64_t next_step
    # state
    cdef fs_word32 attached_word  # is_attached
    cdef unsigned long attaching  # the thread that is at it; 0: none
    # Relaxed, each written once or in turn, and whoever has to be exact looks under a lock.
    cdef fs_word32 exposed_word  # is_exposed
    cdef readonly bint driven
    cdef fs_word32 broken_word  # is_broken
    cdef readonly bint finished
    cdef fs_word32 nodelay_word  # is_nodelay
    cdef fs_word32 locality      # of the peer
    cdef bint listens
    cdef public int64_t receive_timeout
    cdef public int64_t send_timeout
    cdef public uint32_t receive_limit
    cdef public uint32_t send_limit
    cdef fs_vi vi
    cdef fs_side *own
    cdef bint own_inherited
    cdef int wake_fd
    cdef int peer_fd
    cdef int active      # calls inside, of all threads of this process
    cdef int in_kernel   # of those, in the kernel's own blocking call
    cdef fs_word32 recv_sleepers, send_sleepers  # threads of this process,
    cdef fs_word32 recv_watchers, send_watchers  # and those of them that watch the eventfd
    cdef fs_word32 number  # what `fd` becomes as soon as whoever decided it has both turns
    cdef bint finishing
    cdef bint kept  # by a loop's transport, which looks at the region
    cdef bint recyclable  # the region, once this end has said goodbye
    # Relaxed, as above: a call beside the one that writes may be the earlier one.
    cdef fs_word32 shut_receiving
    cdef fs_word32 shut_sending
    cdef fs_word32 lost
    cdef fs_word32 death_told
    cdef fs_word32 pending_error  # an errno, 0: none
    cdef poll_habit habit
    cdef bint plugs
    cdef bint receive_buffer_grown  # by itself, beyond what doorbell bytes need
    cdef uint32_t held_from  # doorbell bytes heard until then
    cdef bint plug_seen  # the peer's
    cdef uint32_t plug_seen_at  # descriptors consumed
    cdef bint peer_late  # a doorbell byte that it was about to send did not come
    cdef int late  # what a turn to receive has left to be waited for without it (LATE_*); under the receive lock
    cdef bint late_sending  # a turn to send has left doorbell bytes to be sent without it; under the send lock
    cdef unsigned int unacknowledged_sends
    cdef fs_word32 send_buffer_before  # SO_SNDBUF as the program knows it, while it is wider; 0: it is the kernel's
    cdef fs_word32 spun
    cdef fs_word32 *arrival
    cdef int64_t last_look
    cdef unsigned char region_id[16]
    cdef int64_t held_since
    cdef readonly int bridge
    cdef bint bridged
    cdef bint bridged_inherited

    # what a transport or a facade method calls; none of these blocks, except spin for the budget and sleep
    cdef int64_t try_receive(self, char *into, size_t room, int flags, bint final) noexcept nogil
    cdef int64_t try_send(self, const char *data, size_t length, int flags) noexcept nogil
    cdef int64_t try_send_urgent(self, const char *data, size_t length) noexcept nogil
    cdef bint spin(self, int what) noexcept nogil
    cdef int sleep(self, int what, int64_t deadline, news_t *news) noexcept nogil
    cdef bint nonblocking_by_flag(self) noexcept nogil
    cdef bint on_this_host(self) noexcept nogil
    cdef bint moved_receiving(self) noexcept nogil
    cdef bint sender_waits(self) noexcept nogil
    cdef bint kernel_part_read(self, uint64_t) noexcept nogil
    cdef bint position(self, uint64_t *) noexcept nogil
    cdef bint moved_sending(self) noexcept nogil
    cdef bint may_switch(self) noexcept nogil
    cdef bint gone(self) noexcept nogil
    cdef bint lacks_doorbell_byte(self) noexcept nogil
    cdef bint plug_if_full(self) noexcept nogil
    cdef int64_t timeout_option(self, int what) noexcept
    cdef bint ask_peer(self) noexcept nogil
    cdef bint begin(self, fs_call *call) noexcept
    cdef int end(self, fs_call *call) except -1

    cdef void move_sending(self) noexcept nogil
    cdef bint count_received(self, uint64_t *taken) noexcept nogil
    cdef void serve_sender(self) noexcept nogil
    cdef void quiet(self) noexcept nogil
    cdef int point_to(self, int fd) except -1
    cdef void add_counters(self, fs_counters *into) noexcept
    cdef bint may_look_in_kernel(self, int64_t now) noexcept nogil
    cdef int64_t budget(self, int64_t now) noexcept nogil
    cdef void settle(self, int64_t began, bint polled, bint paid) noexcept nogil
    cdef bint polls(self) noexcept nogil
    cdef poll_habit *habits(self) noexcept nogil
    cdef void ring_for_asker(self) noexcept nogil


cdef int64_t VIOLATED
cdef uint32_t own_pid
cdef fs_counters totals
cdef fs_side *lock_receiving(Endpoint self) noexcept nogil
cdef fs_side *lock_sending(Endpoint self) noexcept nogil
cdef bint end_turn_to_receive(Endpoint self, fs_side *own) noexcept nogil
cdef bint end_turn_to_send(Endpoint self, fs_side *own) noexcept nogil
cdef Endpoint endpoint_at(object fd)
cdef bint may_begin() except -1
cdef int64_t count_beginning() except -1
cpdef begin_undecided(Endpoint endpoint)
cpdef begin_when_connected(Endpoint endpoint)
cdef int take_step(Endpoint endpoint) except -1
cdef int let_loose(Endpoint self) except -1
cdef tuple standing_of(Endpoint self)
cdef uint32_t count_holders(fs_side *own) noexcept nogil
cdef int note_connected(Endpoint endpoint) except -1
cdef void put_back(Endpoint self, int parcel) noexcept nogil
cdef bint on_roll(uint32_t place, uint64_t *word) noexcept nogil
cpdef note_reason(Endpoint endpoint, reason)
cdef bint waits_for_leaver(Endpoint self) noexcept nogil
cdef bint owes_nothing(Endpoint self) noexcept nogil
cdef news_t *join_news() noexcept
cdef void leave_news(news_t *joined) noexcept

cdef void take_up_polling(poll_habit *habit) noexcept nogil
cdef int64_t may_poll(poll_habit *habit, int64_t now, uint32_t peer_processor) noexcept nogil
cdef bint shares_processor(uint32_t peer_processor) noexcept nogil
cdef void learn(poll_habit *habit, fs_counters *count, int64_t began, bint polled, bint paid) noexcept nogil


cdef inline bint is_attached(Endpoint endpoint) noexcept nogil:
    """Whether there is a region: from then on `vi` and the eventfds are what they stay."""
    # SYNC: attached - pairs with attach.
    return fs_load_acquire(&endpoint.attached_word) != 0


cdef inline bint is_exposed(Endpoint endpoint) noexcept nogil:
    """Whether somebody may poll the descriptor."""
    return fs_load_relaxed(&endpoint.exposed_word) != 0


cdef inline bint is_broken(Endpoint endpoint) noexcept nogil:
    """Whether the peer has broken the protocol."""
    return fs_load_relaxed(&endpoint.broken_word) != 0


cdef inline bint is_nodelay(Endpoint endpoint) noexcept nogil:
    return fs_load_relaxed(&endpoint.nodelay_word) != 0


cdef inline int64_t acts_again_at(Endpoint endpoint) noexcept:
    """The number of the operation from which on `operate` has something to do but counting."""
    if endpoint.step is None:
        return INT64_MAX
    return endpoint.next_step if endpoint.arrival == NULL else 0


cdef inline int operate(Endpoint endpoint) except -1:
    """Counts an operation of the program, and lets an undecided connection take its next step. (What has become of a meeting is
    read as a hint: `arrived` looks under the table's lock.)"""
    endpoint.operations += 1
    if endpoint.step is not None and not endpoint.in_kernel and (
            endpoint.operations >= endpoint.next_step if endpoint.arrival == NULL
            else fs_load_relaxed(endpoint.arrival) != MEETING_WAITING):
        return take_step(endpoint)
    return 0
