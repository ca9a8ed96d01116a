# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=False
"""The connection thread and its accept queue, the look-up of the other end, and the mapping of regions: what Python calls of
core/channel. There is no logic here but that of a seeker's step (`Lookup`), and each function lets go of the GIL only where
core/channel says so.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t, uintptr_t

from fastsock._native.channel cimport *
from fastsock._native.core cimport fs_count_holders
from fastsock._native.vi cimport Endpoint, totals

import os as _os

fs_counters_of_gone = &totals


cdef int check(int result) except -1:
    """What a function of the core returned, if it is no failure. OSError for one."""
    if result >= 0:
        return result
    if result == FS_NO_THREAD:
        raise OSError(EAGAIN, "no connection thread could be started")
    if result == FS_TOO_MANY_NAMES:
        raise BlockingIOError("too many names published")
    raise OSError(-result, _os.strerror(-result))


# ---- regions


def region_size(int window, int chunk):
    """Bytes of a region."""
    return fs_region_size(window, chunk)


def create_region(int window, int chunk, bytes id not None):
    """A new sealed region: (memfd, address, size). OSError or MemoryError if there is none to be had."""
    cdef void *memory
    cdef int memfd = fs_create_region(window, chunk, id, &memory)
    if memfd == -ENOMEM:
        raise MemoryError("no address space for a region")
    check(memfd)
    return memfd, <uintptr_t>memory, fs_region_size(window, chunk)


def unmap_region(uintptr_t memory, size_t size):
    munmap(<void *>memory, size)


def mark_done(uintptr_t memory, size_t size, int side, int window):
    """This side will not touch the region any more. The second to say so gives the arenas' pages back to the system,
    but for the first few."""
    fs_mark_done(<void *>memory, size, side, window)


def recycle_region(uintptr_t memory, int window):
    """Readies a region for the next connection if both sides are done with it: true if they are."""
    return fs_recycle_region(<void *>memory, window)


def wakeup_seen(uintptr_t memory):
    """Packet WAKEUP: whether the publisher has taken the region."""
    return fs_wakeup_seen(<void *>memory)


def park(uintptr_t memory, size_t size, int wake_fd, int peer_fd, uint32_t turn, bytes id not None):
    """The publisher's side of the region cache: keeps a finished connection's mapping for the next one. What it
    displaces is unmapped: its size, 0 if nothing."""
    return fs_park(<void *>memory, size, wake_fd, peer_fd, turn, id)


def drop_parked():
    """Unmaps what the cache holds. The bytes given back."""
    return fs_drop_parked()


# ---- descriptors out of the program's way


def descriptor_turn():
    """A number that changes when the program has closed our descriptors: those of an earlier turn are somebody else's now."""
    return fs_descriptor_turn()


def close_eventfd(int fd):
    """Closes one, unless the number means another file by now."""
    fs_close_eventfd(fd)


def new_eventfd():
    """An eventfd in our share of the descriptor numbers. OSError without one, as keep_away."""
    return check(fs_keep_number(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), False))


def keep_away(int fd, bint passing=False):
    """Moves a descriptor into our share of the numbers (share.h), its upper half if it serves a meeting only (`passing`).
    Raises BlockingIOError when that is full, OSError (EMFILE) when the program is near its limit or `fd` is negative."""
    return check(fs_keep_number(fd, passing))


# ---- names and what comes through them


def set_trust(bint any_user):
    """Whom the connection thread answers: processes of this user and root, or those of any user."""
    fs_set_trust(any_user)


def set_backlog(int length):
    """The bound of the accept queue: the largest backlog any listener asked for."""
    fs_set_backlog(length)


def publish(bytes name not None, Endpoint endpoint not None, bint steps):
    """Publishes an abstract unix name and returns a handle for it; when something has come of it, the endpoint's
    operations take their next step (`steps`: and before, as they did). OSError if it cannot be published (EADDRINUSE:
    somebody holds it), BlockingIOError if too many are published already."""
    cdef uint64_t handle
    check(fs_publish(name, len(name), endpoint.c.fd, NULL if steps else &endpoint.arrival, &handle))
    return handle


def arrived(uint64_t handle, Endpoint endpoint not None):
    """What came through a published name. None: nothing yet. A str: a violation of whoever came. False: the name
    was withdrawn unclaimed. Else (memory, size, wake_fd, peer_fd, id, reused): the VI, taken from the accept queue;
    `reused`: its region was parked here. Raises OSError (EMFILE) if one came and there were no descriptors for it."""
    cdef fs_arrival came
    cdef int state = fs_arrived(handle, &endpoint.arrival, &came)
    if state == FS_MEETING_WAITING:
        return None
    if state == FS_MEETING_ARRIVED:
        return <uintptr_t>came.memory, came.size, came.wake_fd, came.peer_fd, (<char *>came.id)[:16], came.reused
    if state == FS_MEETING_FAILED:
        return (<bytes>came.failure).decode()
    if state == FS_MEETING_SHORT:
        check(-EMFILE)
    return False


def withdraw(uint64_t handle, Endpoint endpoint not None):
    """Takes a name back, and refuses a VI that was not yet taken. Bytes unmapped of a region that had been parked."""
    return fs_withdraw(handle, &endpoint.arrival)


cdef class Lookup:
    """The step of a seeker until its peer is found: looks `name` up, ever less often.

    Whatever else there is to do is left to the step of the endpoint's search: at first, when the name was found, when it
    was looked for long enough (`over`), and while the connection is on kernel TCP for another reason than `reason`.
    """

    cdef bytes name
    cdef object reason
    cdef fs_lookup lookup

    def __cinit__(self, bytes name not None, reason, double seconds):
        self.name = name
        self.reason = reason
        fs_begin_lookup(&self.lookup, self.name, len(name), <int64_t>(seconds * 1e9))

    def __dealloc__(self):
        if self.name is not None:  # else nothing was begun
            fs_end_lookup(&self.lookup)

    @property
    def over(self):
        return self.lookup.over

    def __call__(self, Endpoint endpoint not None):
        if (self.lookup.fd < 0 or self.lookup.found or self.lookup.over or endpoint.reason is not self.reason
                or fs_count_holders(endpoint.c.own) > 1 or self.finds(endpoint) or self.lookup.over):
            if endpoint.search is not None:
                endpoint.search.step(endpoint)

    cpdef bint finds(self, Endpoint endpoint) except -1:
        """One look-up. If the name is not there, the endpoint's next step is the next one. OSError without a descriptor, as
        keep_away."""
        return check(fs_look_up(&self.lookup, endpoint.operations, &endpoint.next_step))

    cpdef int64_t pause(self, int64_t now, int64_t operations) noexcept:
        """Operations until the next look-up, after one that was in vain `now` (monotonic ns). They are as many as the
        connection's pace makes of the time that looking has taken so far: the longer the peer has not been found, the
        less a server with many foreign clients shall pay for each."""
        return fs_pause_lookup(&self.lookup, now, operations)

    def take(self):
        """The socket that is connected to the peer's connection thread: its descriptor, the caller's from now on."""
        return fs_take_found(&self.lookup)

    def close(self):
        """Ends the look-up; the next one starts over."""
        fs_end_lookup(&self.lookup)


# ---- requests of the peers


def expect_asks(Endpoint endpoint not None, int side, bytes id not None):
    """Makes the connection thread ready to answer the requests of `endpoint`'s peer. Everything that can fail is done here,
    before the endpoint attaches: OSError or MemoryError, and nothing has changed."""
    cdef int failed = fs_expect_asks(&endpoint.c, side, id)
    if failed == -ENOMEM:
        raise MemoryError("no memory for one more connection that answers requests")
    check(failed)


def answer_asks(uintptr_t memory, int side):
    """The endpoint of this region, which `expect_asks` knows, has attached: the region says where to ask. Cannot fail."""
    fs_answer_asks(<void *>memory, side)


def ignore_asks(Endpoint endpoint not None):
    """The endpoint ends, or has not attached. If it is being asked for something at this moment, this waits for the answer."""
    fs_ignore_asks(&endpoint.c)


def ask(uintptr_t memory, int side, bytes id not None):
    """Asks the other side of a region for a doorbell byte."""
    fs_ask_for_byte(<void *>memory, side, id)


# ---- the thread


def ensure_thread():
    """Starts the connection thread unless it runs."""
    check(fs_ensure_thread())


def stop_thread():
    """Before a fork: a thread does not survive it, and its locks must be free. No thread is started before `fork_is_over`.
    Several threads may fork at once: one of them joins the thread, and the others wait for that."""
    fs_stop_thread()


def fork_is_over():
    """In the parent, whether or not there is a child."""
    fs_fork_is_over()


def forks_under_way():
    """How many forks of this process are under way."""
    return fs_forks_under_way()


def start_again():
    """Starts the thread if a fork has stopped or delayed it, and no fork is under way."""
    check(fs_start_thread_again())


def after_fork_in_child():
    """What the parent published is the parent's, and so is its epoll. Bytes of parked regions that were unmapped."""
    return fs_leave_channel_to_parent()
