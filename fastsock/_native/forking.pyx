# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=False
"""Forks and the end of the process: what they mean for its connections and for the connection thread."""

from fastsock._native.core_control cimport fs_control_thread_after_fork, fs_control_thread_is_wanted, fs_control_thread_stop
from fastsock._native.core cimport *
from fastsock._native.core_ring cimport *
from fastsock._native.core_rendezvous cimport *
from fastsock._native.endpoint cimport Endpoint, by_inode, close_inherited, finish, nameless
from fastsock._native.gil cimport note_process
from fastsock._native.registry cimport path_events

from fastsock._native.registry import endpoints

cdef extern from "pythread.h":
    unsigned long PyThread_get_thread_ident()

cdef extern from "errno.h":
    int errno


cdef inline bint has_endpoints():
    return len(by_inode) > 0 or len(nameless) > 0


cdef bint is_any_attaching():
    """Returns true if an endpoint is attaching in another thread. A fork in a signal handler cannot wait for its own thread."""
    cdef Endpoint endpoint
    cdef unsigned long here = PyThread_get_thread_ident()
    for endpoint in by_inode.values():
        if endpoint.path.attaching and endpoint.path.attaching != here:
            return True
    return False


def before_fork():
    """Prepares a fork. Stops the connection thread, as threads do not survive a fork, and Python 3.12 and later warn of threads. From
    now on no endpoint starts to attach. Waits for those that are attaching: otherwise the child would use kernel TCP while its
    parent and the peer are on the ring. Other threads may still open and close connections before the fork, so the child is
    counted at the last moment (`count_child`). Without connections this code writes almost no memory, as each page that is
    written after a fork must be copied."""
    cdef Endpoint endpoint
    if fs_libc_serves():
        return
    fs_control_thread_stop()
    if has_endpoints():
        for endpoint in endpoints():
            fs_path_await_thread(&endpoint.path, &endpoint.c)
    while is_any_attaching():
        with nogil:
            fs_short_sleep()
    fs_expect_fork(True)


def after_fork_in_parent():
    """Called after a fork, successful or not. Keeps errno, which Python up to 3.11 reads after this call."""
    global errno
    cdef int error = errno
    if fs_libc_serves():
        return
    fs_expect_fork(False)  # os.forkpty may fail before it forks
    try:
        fs_control_thread_after_fork()
        if fs_control_thread_is_wanted():
            path_events.fork_is_over()
    finally:
        errno = error


cdef int count_child(int by) noexcept with gil:
    """Adds `by` holders to every connection: 1 right before the fork, -1 if it fails. Returns the number of connections
    (fs_atfork_install)."""
    cdef Endpoint endpoint
    for endpoint in nameless:
        fs_count_child(fs_own(&endpoint.c), by)
    for endpoint in by_inode.values():
        fs_count_child(fs_own(&endpoint.c), by)
        if by > 0 and (fs_load_sc(&endpoint.c.recv_sleepers) or fs_load_sc(&endpoint.c.send_sleepers)):
            fs_wake_local(&endpoint.c)  # sleepers check regularly from now on: the child may be killed while it holds a lock
    return <int>(len(nameless) + len(by_inode))


if not fs_libc_serves() and fs_atfork_install(count_child):
    raise MemoryError("out of memory: cannot register fork handlers")


def after_fork_in_child():
    """Called in the forked child, which inherits the endpoints but no other threads. Published names, kept regions and running
    handshakes belong to the parent. Undecided connections start over when the child is the only holder."""
    cdef Endpoint endpoint
    cdef fs_call call
    if fs_libc_serves():
        return
    note_process()
    fs_slab_forget()
    fs_fd_change_forget()
    if has_endpoints():
        for endpoint in endpoints():
            endpoint.path.attaching = 0
            fs_conn_inherit(&endpoint.c)  # threads that were inside do not exist in this process
        for endpoint in endpoints():
            if fs_call_enter(&endpoint.c, &call):
                endpoint.end(&call)  # ends a connection whose close waited for calls of other threads
            else:
                close_inherited(endpoint)  # another thread was about to finish it, and the child was counted
    fs_regions_forget()
    if has_endpoints():
        for endpoint in endpoints():
            fs_path_restart(&endpoint.path, &endpoint.c)


cpdef before_exit():
    """Ends all connections, for os._exit, which runs no destructors. Frees nothing, as other threads may be inside calls, and
    loops read regions without the GIL."""
    cdef Endpoint endpoint
    cdef fs_call call
    if not has_endpoints():
        return
    for endpoint in endpoints():
        if fs_call_enter(&endpoint.c, &call):
            try:
                if fs_note_ended(&endpoint.c):
                    finish(endpoint)
            finally:
                fs_call_exit(&endpoint.c, &call)  # the result is ignored: nothing is freed


cdef object fork_beneath = None, forkpty_beneath = None, exit_beneath = None


def keep_beneath(fork, forkpty, exit):
    """Sets the functions that `fork`, `forkpty` and `_exit` call: those of `os` before the first patch."""
    global fork_beneath, forkpty_beneath, exit_beneath
    if fork_beneath is None:
        fork_beneath, forkpty_beneath, exit_beneath = fork, forkpty, exit


cdef object forked(object beneath, bint pair):
    """Forks, and starts the connection thread again afterwards, when Python has checked for threads to warn of."""
    try:
        result = beneath()
    except (OSError, Warning):  # the fork failed, or the warning about threads is an error (from 3.15 on)
        start_thread_again()
        raise
    if result[0] if pair else result:
        start_thread_again()
    return result


cdef int start_thread_again() except -1:
    if fs_control_thread_is_wanted():
        path_events.start_thread_again()
    return 0


def fork():
    """Like os.fork."""
    return forked(fork_beneath, False)


def forkpty():
    """Like os.forkpty."""
    return forked(forkpty_beneath, True)


def _exit(status):
    """Like os._exit. Ends the connections first, as no destructor runs afterwards."""
    before_exit()
    return exit_beneath(status)
