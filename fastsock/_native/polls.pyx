# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=False, embedsignature=True, embedsignature.format=clinic
"""What stands for `select.select` and `select.poll`: their arguments, and what they return. How a thread waits is told in
waiters.pyx.
"""

from libc.stdint cimport int64_t
from cpython.sequence cimport PySequence_Fast
cimport cython

from fastsock._native.endpoint cimport by_descriptor
from fastsock._native.epolls cimport number_at
from fastsock._native.members cimport LEVELS, MILLISECOND
from fastsock._native.waiters cimport is_member_among, is_member_in, wait_for

import math as _math
import select as _select

cdef extern from "Python.h":
    ctypedef struct PyTypeObject:
        const char *tp_name
    Py_ssize_t PySequence_Fast_GET_SIZE(object)
    object PySequence_ITEM(object, Py_ssize_t)

cdef extern from "<poll.h>" nogil:
    enum: POLLIN, POLLOUT, POLLPRI, POLLERR, POLLHUP, POLLNVAL, POLLRDNORM, POLLRDBAND, POLLWRNORM, POLLWRBAND

cdef enum:
    READS = POLLIN | POLLRDNORM | POLLRDBAND  # what select asks for, as the kernel's does (fs/select.c),
    WRITES = POLLOUT | POLLWRNORM | POLLWRBAND
    READABLE = READS | POLLHUP | POLLERR | POLLNVAL  # and what it counts: also what is closed during the call
    WRITABLE = WRITES | POLLERR | POLLNVAL
    URGENT = POLLPRI | POLLNVAL
    SECOND = 1_000_000_000
    NOT_A_TIME = -3
    LONGEST = 1_000_000_000  # seconds that a wait takes here; with longer ones a deadline would be too large

cdef object TOO_LONG = 9223372037  # seconds: 2**63 ns and more (not the numbers just below, with which the kernel's would sleep)
cdef object kernel_select = _select.select
cdef object kernel_poll = _select.poll
cdef int largest = getattr(_select, "FD_SETSIZE", 1024)


# ---- select ----------------------------------------------------------------------------------------------------


cdef tuple numbers_in(object objects):
    """The objects of an argument of select, and their descriptors."""
    cdef Py_ssize_t i = 0
    cdef int number
    sequence = PySequence_Fast(objects, "arguments 1-3 must be sequences")
    cdef list found = [], numbers = []
    while i < PySequence_Fast_GET_SIZE(sequence):
        each = PySequence_ITEM(sequence, i)
        number = number_at(each)
        if number >= largest:
            raise ValueError("filedescriptor out of range in select()")
        if i >= largest:
            raise ValueError("too many file descriptors in select()")
        found.append(each)
        numbers.append(number)
        i += 1
    return found, numbers


cdef int64_t patience_of_select(object timeout) except -2:
    """Nanoseconds; -1: for ever. Raises what select raises."""
    if timeout is None:
        return -1
    if type(timeout) is not int and not isinstance(timeout, float):
        if not hasattr(timeout, "__index__"):
            kernel_select((), (), (), timeout)
            raise TypeError("timeout must be a float or None")
        timeout = timeout.__index__()
    if not 0 <= timeout < TOO_LONG:
        kernel_select((), (), (), timeout)  # which raises
    if timeout > LONGEST:
        timeout = LONGEST
    return _math.ceil(timeout * SECOND)


cdef bint are_the_kernels(object objects) except -1:
    """Whether an argument of select has nothing but numbers of other files, at a glance."""
    if type(objects) is not list and type(objects) is not tuple:
        return False
    for each in objects:
        if type(each) is not int or each in by_descriptor:
            return False
    return True


cdef list objects_of(list objects, list numbers, list found):
    """The objects whose descriptors have been found."""
    if not found:
        return []
    cdef set those = set(found)
    return [each for each, number in zip(objects, numbers) if number in those]


cdef inline list these(list objects, list numbers, dict ready, int counted):
    return [each for each, number in zip(objects, numbers) if ready.get(number, 0) & counted]


def select(rlist, wlist, xlist, timeout=None, /):
    """As select.select."""
    cdef int64_t patience
    cdef dict wanted = {}, counted = {}, ready
    if are_the_kernels(rlist) and are_the_kernels(wlist) and are_the_kernels(xlist):
        return kernel_select(rlist, wlist, xlist, timeout)
    patience = patience_of_select(timeout)
    reads, readers = numbers_in(rlist)
    writes, writers = numbers_in(wlist)
    others, watchers = numbers_in(xlist)
    if not (is_member_among(readers) or is_member_among(writers) or is_member_among(watchers)):
        found = kernel_select(readers, writers, watchers, timeout)
        return (objects_of(reads, readers, found[0]), objects_of(writes, writers, found[1]),
                objects_of(others, watchers, found[2]))
    for number in readers:
        wanted[number], counted[number] = READS, READABLE
    for number in writers:
        wanted[number] = wanted.get(number, 0) | WRITES
        counted[number] = counted.get(number, 0) | WRITABLE
    for number in watchers:
        wanted[number] = wanted.get(number, 0) | POLLPRI
        counted[number] = counted.get(number, 0) | URGENT
    numbers = list(wanted)
    for number in numbers:
        if number in by_descriptor:  # (of TCP these say all that the kernel's select asks for)
            wanted[number] &= LEVELS
    ready = dict(zip(numbers, wait_for(numbers, list(wanted.values()), list(counted.values()), patience, True)))
    return (these(reads, readers, ready, READABLE), these(writes, writers, ready, WRITABLE),
            these(others, watchers, ready, URGENT))


# ---- poll ------------------------------------------------------------------------------------------------------


cdef int64_t patience_of_poll(object timeout) except -2:
    """Nanoseconds; -1: for ever; NOT_A_TIME: the kernel's own call says what is wrong with it."""
    if timeout is None:
        return -1
    if type(timeout) is not int and not isinstance(timeout, float):
        if not hasattr(timeout, "__index__"):
            return NOT_A_TIME
        timeout = timeout.__index__()
    if timeout < 0:
        return -1
    if not timeout <= 2147483647:
        return NOT_A_TIME
    return <int64_t>_math.ceil(timeout) * MILLISECOND


cdef bint making = False


def poll():
    """As select.poll."""
    global making
    making = True
    return Poll.__new__(Poll)


@cython.final
cdef class Poll:
    """What `poll` makes, and nobody else."""

    cdef object kernel     # the kernel's, which says what is registered
    cdef dict wanted       # by descriptor
    cdef bint waiting

    def __cinit__(self):
        global making
        if not making:
            raise TypeError("cannot create 'select.poll' instances")
        making = False
        self.kernel = kernel_poll()
        self.wanted = {}

    def register(self, fd, eventmask=7, /):  # POLLIN | POLLPRI | POLLOUT, as a number for the signature
        """As select.poll.register."""
        cdef int number = number_at(fd)
        self.kernel.register(number, eventmask)
        self.wanted[number] = int(eventmask)

    def modify(self, fd, eventmask, /):
        """As select.poll.modify."""
        cdef int number = number_at(fd)
        self.kernel.modify(number, eventmask)
        self.wanted[number] = int(eventmask)

    def unregister(self, fd, /):
        """As select.poll.unregister."""
        cdef int number = number_at(fd)
        self.kernel.unregister(number)
        del self.wanted[number]

    def poll(self, timeout=None, /):
        """As select.poll.poll."""
        cdef int64_t patience
        cdef list numbers, wanted, counted
        if self.waiting:
            raise RuntimeError("concurrent poll() invocation")
        patience = patience_of_poll(timeout) if is_member_in(self.wanted) else NOT_A_TIME
        if patience == NOT_A_TIME:
            self.waiting = True
            try:
                return self.kernel.poll(timeout)
            finally:
                self.waiting = False
        numbers, wanted = list(self.wanted), list(self.wanted.values())
        counted = [events | POLLERR | POLLHUP | POLLNVAL for events in wanted]
        self.waiting = True
        try:
            found = wait_for(numbers, wanted, counted, patience)
        finally:
            self.waiting = False
        return [(number, events) for number, events in zip(numbers, found) if events]

    def __reduce_ex__(self, protocol):
        raise TypeError("cannot pickle 'select.poll' object")


# What a program sees of them: in reprs, in messages, as `__module__`.
(<PyTypeObject *>Poll).tp_name = "select.poll"
select.__module__ = poll.__module__ = "select"
