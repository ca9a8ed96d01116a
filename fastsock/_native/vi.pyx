# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=False
"""The endpoints of this process: which one a descriptor belongs to (the papers' descriptor tracking), how a connection
begins, what a fork does to them, and what they counted."""

from libc.stdint cimport INT64_MAX, int64_t, uint32_t

from fastsock._native.core cimport *
from fastsock._native.core_ring cimport *
from fastsock._native.endpoint cimport (
    Endpoint, by_descriptor, by_inode, identify, inode_of, let_go, nameless, reason_number, reason_numbers, say_goodbye,
    totals,
)
from fastsock._native.front cimport note_process
from fastsock._native.reports cimport counts

cdef extern from "pythread.h":
    unsigned long PyThread_get_thread_ident()

cdef extern from "errno.h":
    int errno

globals()["Endpoint"] = Endpoint  # for Python, which finds it here


# ---- which endpoint a descriptor belongs to ------------------------------------------------------------------


cdef Endpoint endpoint_at(object fd):
    """The endpoint of a descriptor, or None. Asks the kernel whether the number still means that connection."""
    cdef Endpoint endpoint = by_descriptor.get(fd)
    if endpoint is not None:
        identify(endpoint)
    if endpoint is None or inode_of(fd) == endpoint.c.inode:
        return endpoint
    # Closed behind our back (by C code): the number has been given away.
    endpoint.forget(fd)
    return None


cpdef find(int fd):
    """The endpoint that `fd` belongs to in this process: by number, or as another descriptor of a connection
    known here (an unseen dup). None if there is none."""
    endpoint = endpoint_at(fd)
    if endpoint is None:
        for other in list(nameless):
            identify(other)
        endpoint = by_inode.get(inode_of(fd))
    return endpoint


def tracked():
    """The live descriptor table, for the patched functions of `os`: descriptor -> Endpoint. Read only."""
    return by_descriptor


def endpoints():
    """All live endpoints of this process, a list."""
    return [*nameless, *by_inode.values()]


# ---- forks and the end of the process ------------------------------------------------------------------------


cdef bint is_any_attaching():
    """In another thread. (What forks in a signal handler cannot wait for the thread that it interrupted.)"""
    cdef Endpoint endpoint
    cdef unsigned long here = PyThread_get_thread_ident()
    for endpoint in by_inode.values():
        if endpoint.attaching and endpoint.attaching != here:
            return True
    return False


def before_fork():
    """This thread is about to fork, and no endpoint begins to attach any more. Waits for those that are at it: the
    child would believe itself on kernel TCP, and its parent and the peer be on the ring. Other threads may still open
    and close connections before the fork, so the child is counted at the last moment (`count_child`)."""
    while is_any_attaching():
        with nogil:
            fs_nap()
    fs_announce_fork(True)


def after_fork_in_parent():
    cdef int error = errno
    fs_announce_fork(False)  # os.forkpty that finds no terminal does not fork
    return error


def leave_errno(int error):
    global errno
    errno = error


cdef void count_child(int by) noexcept with gil:
    """Counts the child in as a holder of every connection, before it exists; and out again, if the fork fails
    (fs_watch_forks)."""
    cdef Endpoint endpoint
    for endpoint in nameless:
        fs_count_child(endpoint.c.own, by)
    for endpoint in by_inode.values():
        fs_count_child(endpoint.c.own, by)
    if by > 0:
        fs_tell_of_number()  # who sleeps looks now and then from here on: the child may take its wakeup and be killed


if fs_watch_forks(count_child):
    raise MemoryError("forks cannot be watched")


def after_fork_in_child():
    note_process()
    fs_forget_blocks_after_fork()
    fs_forget_news()
    cdef Endpoint endpoint
    cdef fs_call call
    for endpoint in endpoints():
        endpoint.attaching = 0
        fs_inherit(&endpoint.c)  # the threads that were inside are not in this process
    for endpoint in endpoints():
        if fs_begin(&endpoint.c, &call):
            endpoint.end(&call)  # a connection that waited for calls of other threads to be closed ends with this one
        else:
            let_go(endpoint)  # another thread was about to, and the child was counted


def before_exit():
    """Says goodbye on every connection, for os._exit, which runs no destructors. Nothing is given back: other threads
    may be inside calls, and loops look at regions without the GIL."""
    cdef Endpoint endpoint
    cdef fs_call call
    for endpoint in endpoints():
        if fs_begin(&endpoint.c, &call):
            try:
                if fs_note_finished(&endpoint.c):
                    say_goodbye(endpoint)
            finally:
                fs_end_call(&endpoint.c, &call)  # (nobody does what it says)


# ---- what is told of them ------------------------------------------------------------------------------------

def name_reasons(texts):
    """Numbers the reasons that `note_reason` is told, in this order."""
    for number, text in enumerate(texts):
        reason_numbers[text] = number


cpdef note_reason(Endpoint endpoint, reason):
    """Why the connection is on kernel TCP, from now on; "": it is not."""
    endpoint.reason = reason
    fs_note_on_roll(endpoint.c.place, endpoint.c.inode, endpoint.c.fd, reason_number(reason))


def counters():
    """The counters of this process: of endpoints that are gone and of those that live, a dict."""
    cdef fs_counters sum = totals
    cdef Endpoint endpoint
    for endpoint in endpoints():
        fs_add_counters(&sum, &endpoint.c.vi.count, False)
    return counts(&sum)


def set_poll_budget(int microseconds):
    """How long a wait may poll before it sleeps, in microseconds; 0: never."""
    global fs_poll_ns
    fs_poll_ns = <int64_t>microseconds * 1000


# ---- how a connection begins, on kernel TCP ------------------------------------------------------------------
# Run for every connection, one-shots too, so that no Python frame runs for it.

cdef object few_operations = None  # the reason why a connection is on kernel TCP at first
cdef uint64_t opened = 0           # connections, ever
cdef object first_step = None
cdef object read_settings = None   # puts the settings in force; None once they are
cdef bint enabled = True
cdef bint meets_at_once = False
cdef int64_t operations_before = 0


def install_beginning(reason, step, settings):
    """Tells this module why a connection is on kernel TCP at first, what its first step is, and what reads the
    settings, which calls `set_beginning`."""
    global few_operations, first_step, read_settings
    few_operations, first_step, read_settings = reason, step, settings


def set_beginning(bint may_move, int64_t move_after, bint at_once):
    """The settings `enabled` and `move_after`, and whether the first step is taken at once."""
    global read_settings, enabled, operations_before, meets_at_once
    read_settings = None
    enabled, operations_before, meets_at_once = may_move, move_after, at_once


cdef bint may_begin() except -1:
    """Whether connections may move at all."""
    if read_settings is not None:
        read_settings()
    return enabled


cdef int64_t count_beginning() except -1:
    """Counts a connection as opened. After how many operations it shall look for its peer; INT64_MAX: never."""
    global opened
    if not may_begin():
        return INT64_MAX
    opened += 1
    return operations_before


def connections_opened():
    """Connections of this process so far, connected plus accepted. (A number: with a dict of reasons to count in, every
    connection would pay for two look-ups.)"""
    return opened


cpdef begin_undecided(Endpoint endpoint):
    """Starts the undecided time of a connected endpoint. A one-shot ends before anything is looked up for it."""
    cdef int64_t after = count_beginning()
    if after == INT64_MAX:
        return
    endpoint.next_step = endpoint.operations + after
    note_reason(endpoint, few_operations)
    fs_store_relaxed(&endpoint.c.locality, FS_LOCALITY_UNKNOWN)
    endpoint.step = first_step
    if meets_at_once and identify(endpoint):
        first_step(endpoint)  # so that the other end's first operation finds the name


cdef int take_step(Endpoint endpoint) except -1:
    """The next step of an undecided connection. Like a call: the endpoint does not end meanwhile."""
    cdef fs_call call
    if identify(endpoint) and fs_begin(&endpoint.c, &call):
        try:
            endpoint.step(endpoint)
        finally:
            endpoint.end(&call)
    return 0


def claim(Endpoint endpoint not None, step, instead):
    """Whether the endpoint's step is still `step`; it is `instead` from then on. True for one thread only."""
    if endpoint.step is not step:
        return False
    endpoint.step = instead
    return True


cpdef begin_when_connected(Endpoint endpoint):
    """A connect is under way: the undecided time begins with the first operation after it."""
    note_reason(endpoint, few_operations)
    endpoint.step = when_connected


def when_connected(Endpoint endpoint):
    """The step of such an endpoint."""
    cdef unsigned char address[16]
    cdef int port
    # If not: not yet, or never; the kernel's answer to this operation says which.
    if fs_end_of(endpoint.c.fd, 1, address, &port) >= 0:
        note_connected(endpoint)


cdef int note_connected(Endpoint endpoint) except -1:
    """Connected: if nobody has seen that before, the undecided time begins."""
    if endpoint.step is when_connected:
        endpoint.step = None
        begin_undecided(endpoint)
    return 0
