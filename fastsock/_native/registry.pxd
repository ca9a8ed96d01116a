# The endpoints of this process: look-up by descriptor, and the start of connections.

from libc.stdint cimport INT64_MAX, int64_t

from fastsock._native.core_control cimport FS_LISTING_WAITING, fs_forks_under_way
from fastsock._native.core cimport fs_is_in_kernel
from fastsock._native.core_ring cimport fs_load_relaxed
from fastsock._native.endpoint cimport Endpoint, totals
from fastsock._native.core_rendezvous cimport FS_ANSWER_LATER, FS_THREAD_LATER, fs_has_step, fs_is_searching, fs_is_undecided
from fastsock._native.session_stats cimport SessionStats

cdef object path_events  # the module of this name: settings and events
cdef Endpoint endpoint_at(object fd)
cpdef find(int fd)
cdef bint may_begin() except -1
cdef int64_t count_beginning(SessionStats session) except -1
cpdef begin_undecided(Endpoint endpoint)
cpdef begin_when_connected(Endpoint endpoint)
cdef int take_step(Endpoint endpoint) except -1
cdef int note_connected(Endpoint endpoint) except -1
cdef int begin_search(Endpoint endpoint, int64_t operations, int reason) except -1
cdef int decide_tcp(Endpoint endpoint, int reason) except -1
cpdef give_back_descriptors()
cdef object error_of(int failed)


cdef bint may_look_later(int64_t after) noexcept


cdef inline bint is_undecided(Endpoint endpoint) noexcept:
    """Returns true if the path is not decided yet."""
    return fs_is_undecided(&endpoint.path)


cdef inline int64_t acts_again_at(Endpoint endpoint) noexcept:
    """Returns the number of operations from which on `operate` does more than count."""
    if not fs_has_step(&endpoint.path):
        return INT64_MAX
    return endpoint.path.next if endpoint.path.listing_state == NULL else 0


cdef inline int operate(Endpoint endpoint) except -1:
    """Counts an operation of the program, and takes the next step of a connection that has one. Reads the result of a listing
    as a hint only: fs_listing_result checks it with the table lock held."""
    endpoint.path.operations += 1
    if fs_has_step(&endpoint.path) and not fs_is_in_kernel(&endpoint.c) and (
            endpoint.path.operations >= endpoint.path.next if endpoint.path.listing_state == NULL
            else fs_load_relaxed(endpoint.path.listing_state) != FS_LISTING_WAITING):
        return take_step(endpoint)
    return 0


cdef inline bint prepare_to_sleep(Endpoint endpoint) except -1:
    """Called before an event set sleeps, if the connection thread must wake it. After a fork, starts the thread of this process by
    taking a step. Returns false while another fork is in progress."""
    if endpoint.path.state == FS_ANSWER_LATER or endpoint.path.state == FS_THREAD_LATER:
        if fs_forks_under_way():
            return False
        if endpoint.path.operations >= endpoint.path.next:  # otherwise the thread could not be started shortly before
            take_step(endpoint)
    return True
