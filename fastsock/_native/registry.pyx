# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=False
"""The endpoints of this process: look-up by descriptor (descriptor tracking in the papers), the start of connections, the steps
until the path is decided, and counters."""

from libc.stdint cimport INT64_MAX, int64_t, uint32_t
from cpython.exc cimport PyErr_CheckSignals

from fastsock._native.core_control cimport FS_NO_THREAD
from fastsock._native.core cimport *
from fastsock._native.core_ring cimport *
from fastsock._native.endpoint cimport Endpoint, by_descriptor, by_inode, identify, inode_of, nameless, totals
from fastsock._native.core_rendezvous cimport *
from fastsock._native.connection_info cimport counts, reason_texts
from fastsock._native.session_stats cimport SessionStats

import os as _os

cdef extern from "errno.h":
    enum: ECANCELED

globals()["Endpoint"] = Endpoint  # for Python code, which imports it from here


# ---- look-up by descriptor -----------------------------------------------------------------------------------


cdef Endpoint endpoint_at(object fd):
    """Returns the endpoint of a descriptor, or None. Checks the inode, as the number may mean another file now."""
    cdef Endpoint endpoint = by_descriptor.get(fd)
    if endpoint is not None:
        identify(endpoint)
    if endpoint is None or inode_of(fd) == endpoint.c.inode:
        return endpoint
    # Closed by C code without our knowledge, and the number was reused.
    endpoint.forget(fd)
    return None


cpdef find(int fd):
    """Returns the endpoint of a descriptor, also if it is an unknown duplicate, or None. Raises OSError if `fd` is not an open
    descriptor."""
    endpoint = endpoint_at(fd)
    if endpoint is None:
        for other in list(nameless):
            identify(other)
        endpoint = by_inode.get(inode_of(fd))
    return endpoint


def tracked():
    """Returns the live table descriptor -> Endpoint. The caller must not change it."""
    return by_descriptor


def endpoints():
    """Returns all live endpoints of this process."""
    return [*nameless, *by_inode.values()]


# ---- reasons and counters ------------------------------------------------------------------------------------

REASONS = {fs_reason_name(number).decode(): reason_texts[number] for number in range(1, FS_REASONS)}
cdef dict reason_numbers = {text: number for number, text in enumerate(reason_texts)}


def counters():
    """Returns the counters of this process, summed over ended and live endpoints."""
    cdef fs_counters sum
    cdef Endpoint endpoint
    with nogil:  # its lock is taken
        fs_libc_sum_counters(&sum)
    fs_add_counters(&sum, &totals, False)
    for endpoint in endpoints():
        fs_add_counters(&sum, &endpoint.c.ring.count, False)
    return counts(&sum)


def is_served_below():
    """Returns true if libfastsock.so serves this process at the C library's calls: Python then makes no endpoints."""
    return fs_libc_serves() != 0


def serve_below(bytes settings not None):
    """Lets libfastsock.so serve this process at the C library's calls, with settings in the format of `config.text_of`. Returns None, or
    why that is not possible."""
    if (by_inode or nameless) and not fs_libc_serves():
        return "sockets of fastsock are open"
    cdef const char *text = settings
    cdef const char *why
    with nogil:
        why = fs_libc_install(text)
    return None if why == NULL else (<bytes>why).decode()


def end_below():
    """Serves no new connections at the C library's calls. Its functions are taken out when the last one has ended."""
    with nogil:
        fs_libc_uninstall()


def standing_below(int fd):
    """Returns what `Endpoint.standing` is of a connection that is served at the C library's calls, or None."""
    cdef fs_libc_path_ path
    if not fs_libc_path(fd, &path):
        return None
    return path.sends, path.receives, path.attached, reason_texts[path.reason]


def path_counts():
    """Returns the number of connections on the ring, and {reason: number} of those on kernel TCP."""
    cdef int number
    return fs_path_counts.ring, {
        reason_texts[number]: fs_path_counts.by_reason[number] for number in range(1, FS_REASONS) if fs_path_counts.by_reason[number] > 0
    }


def set_poll_budget(int microseconds):
    """Sets the longest time that a wait polls before it sleeps, in microseconds; 0: never poll."""
    global fs_spin_ns
    fs_spin_ns = <int64_t>microseconds * 1000


# ---- the start of a connection, on kernel TCP ----------------------------------------------------------------
# Runs for every connection, so it is native.

cdef object path_events = None    # the module of this name: settings and events
cdef bint settings_read = False
cdef bint enabled = True
cdef bint meets_at_once = False
cdef int64_t operations_before = 0
cdef int64_t meeting_ns = 0  # total time that operations of a connection wait for the other end


def install_policy(module):
    """Sets the module with the callbacks: `settings()`, which applies the settings; `moved(endpoint, name)`, `stays(endpoint)`,
    `report_violation(endpoint, what)`, `failed(endpoint, error)`, `no_thread(error)`, and `fork_is_over()`, which starts the thread
    again."""
    global path_events
    path_events = module


def set_beginning(bint may_move, int64_t move_after, int64_t meeting_ms):
    """Applies the settings `enabled`, `move_after` and `_meeting_ms`."""
    global settings_read, enabled, operations_before, meets_at_once, meeting_ns
    settings_read = True
    enabled, operations_before, meets_at_once, meeting_ns = may_move, move_after, meeting_ms > 0, meeting_ms * 1_000_000


def set_terms(int window, int chunk, int ack_threshold, int combine_limit, bint combine_when_full, int64_t memory_cap,
              double patience, bint moves_polled):
    """Applies the settings of the search for peers (struct fs_upgrade_config); `patience` in seconds. Call `set_beginning` first."""
    cdef fs_upgrade_config config
    config.window, config.chunk = window, chunk
    config.flow.ack_threshold, config.flow.combine_limit = <uint32_t>ack_threshold, <uint32_t>combine_limit
    config.flow.combine_when_full = combine_when_full
    config.memory_cap, config.patience = memory_cap, <int64_t>(patience * 1e9)
    config.moves_polled, config.waits = moves_polled, meets_at_once
    fs_set_upgrade_config(&config)


def set_trust(bint any_user, bint own_user, bytes named not None):
    """Applies the setting `trust`: every user; this process's and root; the users in an array of uint32_t."""
    cdef fs_trust given
    given.any, given.self, given.count = any_user, own_user, <int>(len(named) // sizeof(uint32_t))
    given.users = <const uint32_t *><const char *>named
    fs_set_trust(&given)


cdef tuple limits_in_force = ()  # keeps the arrays alive that the core reads


def set_limits(bytes ports_allowed not None, bytes ports_excluded not None, bytes addresses_allowed not None,
               bytes addresses_excluded not None):
    """Applies the settings of these names, given as arrays of struct fs_port_range and struct fs_network."""
    global limits_in_force
    cdef fs_limits limits
    limits.ports_allowed = <const fs_port_range *><const char *>ports_allowed
    limits.ports_excluded = <const fs_port_range *><const char *>ports_excluded
    limits.addresses_allowed = <const fs_network *><const char *>addresses_allowed
    limits.addresses_excluded = <const fs_network *><const char *>addresses_excluded
    limits.ports_allowed_count = <int>(len(ports_allowed) // sizeof(fs_port_range))
    limits.ports_excluded_count = <int>(len(ports_excluded) // sizeof(fs_port_range))
    limits.addresses_allowed_count = <int>(len(addresses_allowed) // sizeof(fs_network))
    limits.addresses_excluded_count = <int>(len(addresses_excluded) // sizeof(fs_network))
    fs_set_limits(&limits)
    limits_in_force = ports_allowed, ports_excluded, addresses_allowed, addresses_excluded


def is_local_address(bytes packed not None):
    """Returns true if an address (16 bytes, IPv4 as ::ffff:...) belongs to this host."""
    if len(packed) != 16:
        raise ValueError("the address must have 16 bytes (IPv4 as ::ffff:...)")
    return fs_is_local_address(<const unsigned char *><const char *>packed)


def owner_of_peer(int fd):
    """Returns the user id of the socket at the other end, on this host, or None if the kernel does not tell."""
    cdef uint32_t user
    return user if fs_owner_of_peer(fd, &user) else None


cdef bint may_begin() except -1:
    """Returns true if fastsock is enabled. Applies the settings at the first call."""
    if not settings_read:
        path_events.settings()
    return enabled and not fs_libc_serves()


cdef int64_t count_beginning(SessionStats session) except -1:
    """Counts a new connection. Returns the number of operations before it looks for its peer; INT64_MAX: never. `session`:
    statistics of its service, or None."""
    cdef int64_t after
    if not may_begin():
        return INT64_MAX
    after = begins_after(session)
    fs_count_opened(fs_reason_before(after, operations_before))
    return after


cdef inline int64_t begins_after(SessionStats session):
    """Returns the number of operations before a connection of this service looks for its peer; 0 with `move_after` 0."""
    return fs_search_begins(NULL if session is None else &session.sessions, operations_before)


cdef bint may_look_later(int64_t after) noexcept:
    """Returns true if this number of operations is larger than the setting, because of past sessions."""
    return operations_before < after < INT64_MAX


cpdef begin_undecided(Endpoint endpoint):
    """Starts a connected endpoint: its path is undecided, and its operations are counted. A short connection ends before a
    look-up."""
    cdef int64_t after = count_beginning(endpoint.session)
    if after == INT64_MAX:
        return
    fs_store_relaxed(&endpoint.c.locality, FS_LOCALITY_UNKNOWN)
    fs_path_open(&endpoint.path, &endpoint.c, after, fs_reason_before(after, operations_before))
    if meets_at_once and after == operations_before and identify(endpoint):
        start(endpoint)  # so that the other end's first operation finds the name


cdef int begin_search(Endpoint endpoint, int64_t operations, int reason) except -1:
    """Lets the next operation start the search of a busy connection, which was counted before for `reason`."""
    endpoint.path.operations = operations
    fs_path_open(&endpoint.path, &endpoint.c, 0, reason)
    return 0


cpdef begin_when_connected(Endpoint endpoint):
    """Prepares an endpoint whose connect is in progress: its first operation afterwards starts it."""
    fs_path_event(&endpoint.path, FS_PATH_CONNECT)
    fs_note_reason(&endpoint.path, &endpoint.c, FS_REASON_FEW)


cdef int note_connected(Endpoint endpoint) except -1:
    """Starts the endpoint when its connect has succeeded, unless it was started before."""
    if fs_path_event(&endpoint.path, FS_PATH_CONNECTED):
        begin_undecided(endpoint)
    return 0


# ---- the steps of an undecided connection --------------------------------------------------------------------


cdef object error_of(int failed):
    """Returns the exception for an error of the core."""
    if failed == FS_NO_THREAD:
        return OSError(EAGAIN, "cannot start the connection thread")
    return OSError(-failed, _os.strerror(-failed))


cdef int take_step(Endpoint endpoint) except -1:
    """Takes the next step of an undecided connection. Admitted like a call, so the endpoint does not end meanwhile."""
    cdef fs_call call
    cdef unsigned char address[16]
    cdef int port
    if not identify(endpoint) or not fs_call_enter(&endpoint.c, &call):
        return 0
    try:
        if endpoint.path.state == FS_CONNECTING:
            # Otherwise not connected yet, or failed: the kernel's result of this operation says which.
            if fs_endpoint_address(fs_fd(&endpoint.c), 1, address, &port) >= 0:
                note_connected(endpoint)
        elif endpoint.path.state == FS_FEW_OPERATIONS:
            start(endpoint)
        else:
            step(endpoint)
    finally:
        endpoint.end(&call)
    return 0


cdef int start(Endpoint endpoint) except -1:
    """Starts the search if this connection may look for its peer. Only one of several threads does so."""
    cdef int failed
    cdef int came = fs_connector_start(&endpoint.path, &endpoint.c, &failed)
    if failed:
        path_events.failed(endpoint, error_of(failed))
    if came == FS_STEP_TCP:
        path_events.stays(endpoint)
        return 0
    return step(endpoint)


cdef int step(Endpoint endpoint) except -1:
    cdef bint searches = fs_is_searching(&endpoint.path)
    advance(endpoint)
    if searches and meeting_ns and endpoint.path.operations and not endpoint.path.waits:
        endpoint.path.waits = True
        try:
            await_peer(endpoint)
        finally:
            endpoint.path.waits = False
    return 0


cdef int await_peer(Endpoint endpoint) except -1:
    """Takes steps until the other end consents or can no longer join. For tests (`_meeting_ms`)."""
    cdef int64_t before
    while endpoint.path.waited < meeting_ns and not fs_has_ended(&endpoint.c) and not endpoint.peer_consents:
        before = fs_now()
        with nogil:
            fs_short_sleep()
        PyErr_CheckSignals()
        if fs_is_searching(&endpoint.path):
            advance(endpoint)
        elif not fs_is_attached(&endpoint.c):
            return 0
        endpoint.path.waited += fs_now() - before
    return 0


cdef int advance(Endpoint endpoint) except -1:
    """Takes a step in the core, and reports the result."""
    cdef fs_step_result outcome
    cdef fs_attach_hooks hooks
    cdef list asked = None
    if endpoint.queue is None:
        fs_connector_step(&endpoint.path, &endpoint.c, NULL, &outcome)
    else:
        asked = [endpoint, None]
        hooks.watch, hooks.ignore, hooks.whose = alloc_slot, free_slot, <void *>asked
        fs_connector_step(&endpoint.path, &endpoint.c, &hooks, &outcome)
    report_outcome(endpoint, &outcome)
    if asked is not None and asked[1] is not None:
        raise asked[1]
    return 0


cdef int alloc_slot(void *whose, fs_connection *c) noexcept:
    """Allocates a slot in the event set, before the endpoint attaches. Returns 0 or -errno."""
    asked = <list>whose
    try:
        asked[0].queue.admit(asked[0])
    except OSError as error:
        return -(error.errno or EAGAIN)
    except MemoryError:
        return -ENOMEM
    except BaseException as error:  # not an OS error: the program's call raises it
        asked[1] = error
        return -ECANCELED
    return 0


cdef void free_slot(void *whose, fs_connection *c) noexcept:
    endpoint = (<list>whose)[0]
    endpoint.queue.dismiss(endpoint)


cdef int report_outcome(Endpoint endpoint, fs_step_result *outcome) except -1:
    if outcome.no_thread:
        path_events.no_thread(error_of(outcome.no_thread))
    if outcome.failed:
        path_events.failed(endpoint, error_of(outcome.failed))
    if outcome.what == FS_STEP_MOVED:
        path_events.moved(endpoint, (<bytes>outcome.name).decode())
    elif outcome.what == FS_STEP_TCP:
        path_events.stays(endpoint)
    elif outcome.what == FS_STEP_BROKEN:
        path_events.stays(endpoint)
        path_events.report_violation(endpoint, (<bytes>outcome.violation).decode())
        raise ConnectionResetError(ECONNRESET, _os.strerror(ECONNRESET))
    return 0


def decide(Endpoint endpoint not None, str reason not None):
    """Keeps the connection on kernel TCP for `reason`. Does nothing if it is on the ring already."""
    decide_tcp(endpoint, reason_numbers[reason])


cdef int decide_tcp(Endpoint endpoint, int reason) except -1:
    """Like `decide`, by the reason's number."""
    if fs_path_decide_tcp(&endpoint.path, &endpoint.c, reason):
        path_events.stays(endpoint)
    return 0


cpdef give_back_descriptors():
    """Called when the program is out of descriptors. Ends the searches for peers, which use some. Returns true if there were any."""
    cdef Endpoint endpoint
    cdef bint gave = False
    for endpoint in endpoints():
        if fs_is_searching(&endpoint.path) and not fs_is_attached(&endpoint.c):
            decide_tcp(endpoint, FS_REASON_RESOURCES)
            gave = True
    return gave
