# Connections on the ring in an event set of the program's selectors.

from libc.stdint cimport int64_t, uint32_t, uint64_t

from fastsock._native.core cimport fs_habit, fs_set
from fastsock._native.core_ring cimport fs_word32
from fastsock._native.endpoint cimport Endpoint

cdef extern from "<sys/epoll.h>" nogil:
    enum: EPOLLIN, EPOLLOUT, EPOLLPRI, EPOLLERR, EPOLLHUP, EPOLLRDHUP

cdef enum:
    LEVELS = EPOLLIN | EPOLLOUT | EPOLLPRI | EPOLLERR | EPOLLHUP | EPOLLRDHUP  # what memory can answer; of poll they are the same
    HINTS = 256           # taken at a time,
    TAKES = 64            # and so often at most: a peer may make up hints without end
    RETURNS = 16          # from memory alone, at most
    VAIN = 4              # calls of the kernel's that came to nothing, before there is a nap between two
    MILLISECOND = 1_000_000
    KERNEL_NS = 50_000    # without asking the kernel, at most
    SLICE = 20_000        # ns of polling before the kernel is asked in between


cdef class Member:
    cdef Endpoint endpoint
    cdef void *owner       # the EventSet, which has this member; NULL: it has parted
    cdef int fd            # by which the program registered it
    cdef uint64_t key      # by which the kernel's epoll tells of it
    cdef uint32_t events   # that the program waits for: EPOLLIN, EPOLLOUT, ...
    cdef uint32_t masked   # those of them that the kernel is asked for
    cdef uint32_t found    # what the last look has found
    cdef bint ended        # the kernel has told of an end, and has to be asked for what is left of it
    cdef uint64_t listed   # the number of the wait that has it among those that are ready
    cdef bint seated       # it has a place in the set
    cdef bint entered      # attached, and in the set
    cdef bint hot
    cdef int64_t last_event

    cdef int look(self) except -1
    cdef int verify(self, uint32_t told) except -1
    cdef bint arm(self) except -1
    cdef int expose(self) except -1
    cdef int give_place(self) except -1


cdef class EventSet:
    cdef object __weakref__
    cdef fs_set *set           # NULL: nobody has been attached yet
    cdef dict members          # by their keys
    cdef list hot
    cdef bint stale            # `hot` holds some that are not hot any more
    cdef readonly bint aside   # from now on the kernel tells of all connections: others wait for the same epoll
    cdef fs_habit habit
    cdef uint32_t sleepers     # threads that sleep in the kernel
    cdef fs_word32 spinners    # threads that look at members without the GIL, and
    cdef fs_word32 stop        # are to end that
    cdef uint64_t waits        # how many there were
    cdef bint asks_kernel      # one that the last look has found ready may be so in the kernel too
    cdef bint dying            # a peer may die without an event of the kernel's: look now and then

    cdef int make_set(self) except 1
    cdef int kernel_epoll(self) except -1
    cdef bint gives_up(self, Member member) noexcept
    cdef bint may_ask(self, Endpoint endpoint, uint32_t events) noexcept
    cdef int step_aside(self) except -1
    cdef int remask(self, Member member) except -1
    cdef int halt(self) noexcept
    cdef int heat(self, Member member) except -1
    cdef int attend(self, Member member) except -1
    cdef int drop_cooled(self) except -1
    cdef int take_hints(self) except -1
    cdef int look_at_all(self, int64_t now, uint64_t wait, list found) except -1
    cdef bint spin(self, int64_t until) except -1
    cdef uint32_t peer_processor(self) noexcept
    cdef bint arm_all(self) except -1
    cdef int settle(self) except -1
    cdef int end_set(self) except -1


cdef bint has_other_member(Endpoint endpoint) except -1
cdef bint may_be_asked(Endpoint endpoint) noexcept
