# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=False
"""The endpoints of this process: which one a descriptor belongs to (the papers' descriptor tracking), how a connection
begins and how it steps until its path is decided, what a fork does to them, and what they counted."""

from libc.stdint cimport INT64_MAX, int64_t, uint32_t
from cpython.exc cimport PyErr_CheckSignals

from fastsock._native.core_control cimport FS_NO_THREAD, fs_control_thread_after_fork, fs_control_thread_stop, fs_control_thread_is_wanted
from fastsock._native.core cimport *
from fastsock._native.core_ring cimport *
from fastsock._native.endpoint cimport (
    Endpoint, by_descriptor, by_inode, identify, inode_of, let_go, nameless, say_goodbye, totals,
)
from fastsock._native.gil cimport note_process
from fastsock._native.core_rendezvous cimport *
from fastsock._native.connection_info cimport counts, reason_texts
from fastsock._native.session_stats cimport SessionStats

cdef extern from "pythread.h":
    unsigned long PyThread_get_thread_ident()

import os as _os

cdef extern from "errno.h":
    int errno
    enum: ECANCELED

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


cdef inline bint has_endpoints():
    return len(by_inode) > 0 or len(nameless) > 0


cdef bint is_any_attaching():
    """In another thread. (What forks in a signal handler cannot wait for the thread that it interrupted.)"""
    cdef Endpoint endpoint
    cdef unsigned long here = PyThread_get_thread_ident()
    for endpoint in by_inode.values():
        if endpoint.path.attaching and endpoint.path.attaching != here:
            return True
    return False


def before_fork():
    """A fork stops the connection thread, as threads do not survive it, and Python 3.12 and later warn of any. From now on no
    endpoint begins to attach. Waits for those that are at it: the child would believe itself on kernel TCP, and its parent and the
    peer be on the ring. Other threads may still open and close connections before the fork, so the child is counted at the last
    moment (`count_child`). Where there are no connections, this and what follows write next to nothing: after a fork each page that
    is written has to be copied first."""
    cdef Endpoint endpoint
    fs_control_thread_stop()
    if has_endpoints():
        for endpoint in endpoints():
            fs_path_await_thread(&endpoint.path, &endpoint.c)
    while is_any_attaching():
        with nogil:
            fs_short_sleep()
    fs_expect_fork(True)


def after_fork_in_parent():
    """The fork is over, whether or not there is a child. Leaves errno alone, by which Python up to 3.11 tells of a fork that failed
    only after everything that runs behind a fork."""
    global errno
    cdef int error = errno
    fs_expect_fork(False)  # os.forkpty that finds no terminal does not fork
    try:
        fs_control_thread_after_fork()
        if fs_control_thread_is_wanted():
            policy.fork_is_over()
    finally:
        errno = error


cdef int count_child(int by) noexcept with gil:
    """Counts the child in as a holder of every connection, before it exists; and out again, if the fork fails. Returns how many
    there are (fs_atfork_install)."""
    cdef Endpoint endpoint
    for endpoint in nameless:
        fs_count_child(fs_own(&endpoint.c), by)
    for endpoint in by_inode.values():
        fs_count_child(fs_own(&endpoint.c), by)
        if by > 0 and (fs_load_sc(&endpoint.c.recv_sleepers) or fs_load_sc(&endpoint.c.send_sleepers)):
            fs_wake_local(&endpoint.c)  # who sleeps looks now and then from here on: the child may be killed in a turn
    return <int>(len(nameless) + len(by_inode))


if fs_atfork_install(count_child):
    raise MemoryError("forks cannot be watched")


def after_fork_in_child():
    """The child's endpoints are inherited, and none of the threads that were inside them. What the parent was about to agree on is
    the parent's, as what it has published and parked is; the child starts over when it is the only holder."""
    cdef Endpoint endpoint
    cdef fs_call call
    note_process()
    fs_slab_forget()
    fs_fd_change_forget()
    if has_endpoints():
        for endpoint in endpoints():
            endpoint.path.attaching = 0
            fs_conn_inherit(&endpoint.c)  # the threads that were inside are not in this process
        for endpoint in endpoints():
            if fs_call_enter(&endpoint.c, &call):
                endpoint.end(&call)  # a connection that waited for calls of other threads to be closed ends with this one
            else:
                let_go(endpoint)  # another thread was about to, and the child was counted
    fs_regions_forget()
    if has_endpoints():
        for endpoint in endpoints():
            fs_path_restart(&endpoint.path, &endpoint.c)


cpdef before_exit():
    """Says goodbye on every connection, for os._exit, which runs no destructors. Nothing is given back: other threads
    may be inside calls, and loops look at regions without the GIL."""
    cdef Endpoint endpoint
    cdef fs_call call
    if not has_endpoints():
        return
    for endpoint in endpoints():
        if fs_call_enter(&endpoint.c, &call):
            try:
                if fs_note_ended(&endpoint.c):
                    say_goodbye(endpoint)
            finally:
                fs_call_exit(&endpoint.c, &call)  # (nobody does what it says)


cdef object fork_beneath = None, forkpty_beneath = None, exit_beneath = None


def keep_beneath(fork, forkpty, exit):
    """What the three functions below call: those that stood in `os` before these were put there first."""
    global fork_beneath, forkpty_beneath, exit_beneath
    if fork_beneath is None:
        fork_beneath, forkpty_beneath, exit_beneath = fork, forkpty, exit


cdef object forked(object beneath, bint pair):
    """A fork of `os`. Starts the connection thread again afterwards, when Python has looked for threads to warn of."""
    try:
        result = beneath()
    except (OSError, Warning):  # no child; or there is one, and the warning of threads is an error (from 3.15 on)
        start_thread_again()
        raise
    if result[0] if pair else result:
        start_thread_again()
    return result


cdef int start_thread_again() except -1:
    if fs_control_thread_is_wanted():
        policy.start_thread_again()
    return 0


def fork():
    """As os.fork."""
    return forked(fork_beneath, False)


def forkpty():
    """As os.forkpty."""
    return forked(forkpty_beneath, True)


def _exit(status):
    """As os._exit: first lets go of the connections, since no destructor runs afterwards."""
    before_exit()
    return exit_beneath(status)


# ---- what is told of them ------------------------------------------------------------------------------------

REASONS = {
    "FEW": FS_REASON_FEW, "SEEKING": FS_REASON_SEEKING, "EXCLUDED": FS_REASON_EXCLUDED, "REMOTE": FS_REASON_REMOTE,
    "PEER": FS_REASON_PEER, "UNTRUSTED": FS_REASON_UNTRUSTED, "NAME": FS_REASON_NAME, "REFUSED": FS_REASON_REFUSED,
    "OPTION": FS_REASON_OPTION, "POLLED": FS_REASON_POLLED, "DETACHED": FS_REASON_DETACHED, "BACK": FS_REASON_BACK,
    "OVERRIDDEN": FS_REASON_OVERRIDDEN, "HANDED_OUT": FS_REASON_HANDED_OUT, "FORKED": FS_REASON_FORKED,
    "MEMORY_CAP": FS_REASON_MEMORY_CAP, "RESOURCES": FS_REASON_RESOURCES, "ENDING": FS_REASON_ENDING,
    "VIOLATION": FS_REASON_VIOLATION, "VERSION": FS_REASON_VERSION, "UNPAID": FS_REASON_UNPAID,
}
cdef dict reason_numbers = {}


def name_reasons(texts):
    """The text of each reason, by its number."""
    reason_texts[:] = texts
    reason_numbers.update({text: number for number, text in enumerate(texts)})


def counters():
    """The counters of this process: of endpoints that are gone and of those that live, a dict."""
    cdef fs_counters sum = totals
    cdef Endpoint endpoint
    for endpoint in endpoints():
        fs_add_counters(&sum, &endpoint.c.ring.count, False)
    return counts(&sum)


def path_counts():
    """Connections of this process, connected plus accepted, by their path: (on the ring, {reason: how many on kernel TCP})."""
    cdef int number
    return fs_path_counts.ring, {
        reason_texts[number]: fs_path_counts.by_reason[number] for number in range(1, FS_REASONS) if fs_path_counts.by_reason[number] > 0
    }


def count_as(before, reason):
    """A connection that was counted as opened for the reason `before`, and has no endpoint, stays on kernel TCP for another one."""
    fs_count_changed(reason_numbers[before], reason_numbers[reason])


def set_poll_budget(int microseconds):
    """How long a wait may poll before it sleeps, in microseconds; 0: never."""
    global fs_spin_ns
    fs_spin_ns = <int64_t>microseconds * 1000


# ---- how a connection begins, on kernel TCP ------------------------------------------------------------------
# Run for every connection, one-shots too, so that no Python frame runs for it.

cdef object policy = None    # decides what is a matter of settings, and tells of what comes of it (rendezvous.py)
cdef bint settings_read = False
cdef bint enabled = True
cdef bint meets_at_once = False
cdef int64_t operations_before = 0
cdef int64_t meeting_ns = 0  # that the operations of one connection may wait for the other end


def install_policy(module):
    """What this module asks: `settings()`, which puts the settings in force; and what it tells: `moved(endpoint, name)`,
    `stays(endpoint)`, `report_violation(endpoint, what)`, `failed(endpoint, error)`, `no_thread(error)`, `fork_is_over()` where the
    thread has to be started again."""
    global policy
    policy = module


def set_beginning(bint may_move, int64_t move_after, int64_t meeting_ms):
    """The settings `enabled`, `move_after` and `meeting_ms`."""
    global settings_read, enabled, operations_before, meets_at_once, meeting_ns
    settings_read = True
    enabled, operations_before, meets_at_once, meeting_ns = may_move, move_after, meeting_ms > 0, meeting_ms * 1_000_000


def set_terms(int window, int chunk, int ack_threshold, int combine_limit, bint combine_when_full, int64_t memory_cap,
              double patience, bint trusts_any, bint moves_polled):
    """The settings that a search follows (struct fs_upgrade_config), `patience` in seconds. After `set_beginning`."""
    cdef fs_upgrade_config config
    config.window, config.chunk = window, chunk
    config.flow.ack_threshold, config.flow.combine_limit = <uint32_t>ack_threshold, <uint32_t>combine_limit
    config.flow.combine_when_full = combine_when_full
    config.memory_cap, config.patience = memory_cap, <int64_t>(patience * 1e9)
    config.trusts_any, config.moves_polled, config.waits = trusts_any, moves_polled, meets_at_once
    fs_set_upgrade_config(&config)


cdef tuple limits_in_force = ()  # the arrays that the core looks at


def set_limits(bytes ports_allowed not None, bytes ports_excluded not None, bytes addresses_allowed not None,
               bytes addresses_excluded not None):
    """The settings of these names, as arrays of struct fs_port_range and of struct fs_network."""
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
    """Whether an address, 16 bytes with IPv4 as ::ffff:..., is one of this host's."""
    if len(packed) != 16:
        raise ValueError("an address has 16 bytes here")
    return fs_is_local_address(<const unsigned char *><const char *>packed)


def owner_of_peer(int fd):
    """The user whose socket the other end of a connection on this host is, as the kernel tells it; None: it does not."""
    cdef uint32_t user
    return user if fs_owner_of_peer(fd, &user) else None


cdef bint may_begin() except -1:
    """Whether connections may move at all."""
    if not settings_read:
        policy.settings()
    return enabled


cdef int64_t count_beginning(SessionStats session) except -1:
    """Counts a connection as opened. After how many operations it shall look for its peer; INT64_MAX: never. `session`: what is
    known of its service, Sessions or None."""
    cdef int64_t after
    if not may_begin():
        return INT64_MAX
    after = begins_after(session)
    fs_count_opened(reason_before(after))
    return after


cdef inline int64_t begins_after(SessionStats session):
    """After how many operations a connection of this service shall look for its peer. (With `move_after` 0 at once, whatever is
    known.)"""
    if operations_before and session is not None and session.sessions.later > operations_before:
        return session.sessions.later
    return operations_before


cdef bint may_look_later(int64_t after) noexcept:
    """Whether a connection that shall look for its peer after so many operations does so later than the settings say."""
    return operations_before < after < INT64_MAX


cdef inline int reason_before(int64_t after) noexcept:
    """Why a connection is on kernel TCP that shall look for its peer after so many operations."""
    return FS_REASON_UNPAID if after > operations_before else FS_REASON_FEW


cpdef begin_undecided(Endpoint endpoint):
    """Starts the undecided time of a connected endpoint. A one-shot ends before anything is looked up for it."""
    cdef int64_t after = count_beginning(endpoint.session)
    if after == INT64_MAX:
        return
    fs_store_relaxed(&endpoint.c.locality, FS_LOCALITY_UNKNOWN)
    fs_path_open(&endpoint.path, &endpoint.c, after, reason_before(after))
    if meets_at_once and after == operations_before and identify(endpoint):
        start(endpoint)  # so that the other end's first operation finds the name


def begin_search(Endpoint endpoint not None, int64_t operations, reason not None):
    """The next operation starts the search of a connection that was counted as opened before, for `reason`, and has proved busy
    since by so many operations."""
    endpoint.path.operations = operations
    fs_path_open(&endpoint.path, &endpoint.c, 0, reason_numbers[reason])


cpdef begin_when_connected(Endpoint endpoint):
    """A connect is under way: the undecided time begins with the first operation after it."""
    fs_path_event(&endpoint.path, FS_PATH_CONNECT)
    fs_note_reason(&endpoint.path, &endpoint.c, FS_REASON_FEW)


cdef int note_connected(Endpoint endpoint) except -1:
    """Connected: if nobody has seen that before, the undecided time begins."""
    if fs_path_event(&endpoint.path, FS_PATH_CONNECTED):
        begin_undecided(endpoint)
    return 0


# ---- the steps of an undecided connection --------------------------------------------------------------------


cdef object error_of(int failed):
    """The exception for a failure that the core has told."""
    if failed == FS_NO_THREAD:
        return OSError(EAGAIN, "no connection thread could be started")
    return OSError(-failed, _os.strerror(-failed))


cdef int take_step(Endpoint endpoint) except -1:
    """The next step of an undecided connection. Like a call: the endpoint does not end meanwhile."""
    cdef fs_call call
    cdef unsigned char address[16]
    cdef int port
    if not identify(endpoint) or not fs_call_enter(&endpoint.c, &call):
        return 0
    try:
        if endpoint.path.state == FS_CONNECTING:
            # If not: not yet, or never; the kernel's answer to this operation says which.
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
    """Decides whether this connection may look for its peer; of several threads one does so. Then the search begins."""
    cdef int failed
    cdef int came = fs_connector_start(&endpoint.path, &endpoint.c, &failed)
    if failed:
        policy.failed(endpoint, error_of(failed))
    if came == FS_STEP_TCP:
        policy.stays(endpoint)
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
    """Goes on stepping while the other end may still join, and until it consents: for tests (`meeting_ms`)."""
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
    """One step of the core's, and what comes of it."""
    cdef fs_step_result outcome
    cdef fs_attach_hooks hooks
    cdef list asked = None
    if endpoint.queue is None:
        fs_connector_step(&endpoint.path, &endpoint.c, NULL, &outcome)
    else:
        asked = [endpoint, None]
        hooks.watch, hooks.ignore, hooks.whose = take_seat, leave_seat, <void *>asked
        fs_connector_step(&endpoint.path, &endpoint.c, &hooks, &outcome)
    tell(endpoint, &outcome)
    if asked is not None and asked[1] is not None:
        raise asked[1]
    return 0


cdef int take_seat(void *whose, fs_connection *c) noexcept:
    """The event set that waits for the endpoint shall know of it before it attaches."""
    asked = <list>whose
    try:
        asked[0].queue.admit(asked[0])
    except OSError as error:
        return -(error.errno or EAGAIN)
    except MemoryError:
        return -ENOMEM
    except BaseException as error:  # no matter of the kernel's: the program's call raises it
        asked[1] = error
        return -ECANCELED
    return 0


cdef void leave_seat(void *whose, fs_connection *c) noexcept:
    endpoint = (<list>whose)[0]
    endpoint.queue.dismiss(endpoint)


cdef int tell(Endpoint endpoint, fs_step_result *outcome) except -1:
    if outcome.no_thread:
        policy.no_thread(error_of(outcome.no_thread))
    if outcome.failed:
        policy.failed(endpoint, error_of(outcome.failed))
    if outcome.what == FS_STEP_MOVED:
        policy.moved(endpoint, (<bytes>outcome.name).decode())
    elif outcome.what == FS_STEP_TCP:
        policy.stays(endpoint)
    elif outcome.what == FS_STEP_BROKEN:
        policy.stays(endpoint)
        policy.report_violation(endpoint, (<bytes>outcome.violation).decode())
        raise ConnectionResetError(ECONNRESET, _os.strerror(ECONNRESET))
    return 0


def decide(Endpoint endpoint not None, str reason not None):
    """The connection stays on kernel TCP for `reason`. Nothing happens if it is on the ring already."""
    if fs_path_decide_tcp(&endpoint.path, &endpoint.c, reason_numbers[reason]):
        policy.stays(endpoint)
