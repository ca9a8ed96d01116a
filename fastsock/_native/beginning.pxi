# How a connection begins, on kernel TCP: run for every connection, one-shots too, so no Python frame runs for it.

cdef object few_operations = None  # the reason why a connection is on kernel TCP at first
cdef uint64_t opened = 0           # connections, ever
cdef object first_step = None
cdef object read_settings = None   # puts the settings in force; None once they are
cdef bint enabled = True
cdef bint meets_at_once = False
cdef int64_t operations_before = 0


def install_beginning(reason, step, settings):
    """Tells this module why a connection is on kernel TCP at first, what its first step is, and what reads the settings,
    which calls `set_beginning`."""
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
    fs_store_relaxed(&endpoint.locality, LOCALITY_UNKNOWN)
    endpoint.step = first_step
    if meets_at_once:
        first_step(endpoint)  # so that the other end's first operation finds the name


cdef int take_step(Endpoint endpoint) except -1:
    """The next step of an undecided connection. Like a call: the endpoint does not end meanwhile."""
    cdef fs_call call
    if endpoint.begin(&call):
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
    if fs_end_of(endpoint.fd, 1, address, &port) >= 0:
        note_connected(endpoint)


cdef int note_connected(Endpoint endpoint) except -1:
    """Connected: if nobody has seen that before, the undecided time begins."""
    if endpoint.step is when_connected:
        endpoint.step = None
        begin_undecided(endpoint)
    return 0
