# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=False, embedsignature=True, embedsignature.format=clinic
"""The class that stands for `select.epoll`: the kernel's epoll, and beside it connections on the ring, which are
asked in memory.

The kernel's epoll decides what is registered, and what is an error. A connection becomes a member of the event set
if this object alone waits for it, level-triggered; of all others the kernel tells, with the help of doorbell bytes.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from cpython.exc cimport PyErr_CheckSignals, PyErr_SetFromErrno
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from cpython.number cimport PyNumber_Index
from cpython.object cimport PyObject_TypeCheck
cimport cython

from fastsock._native.core cimport *
from fastsock._native.core_ring cimport *
from fastsock._native.endpoint cimport Endpoint, totals
from fastsock._native.members cimport (
    EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLPRI, KERNEL_NS, LEVELS, MILLISECOND, RETURNS, SLICE, VAIN, EventSet, Member,
    has_other_member, may_be_asked)
from fastsock._native.sockets cimport endpoint_in, facade, facade_struct
from fastsock._native.vi cimport endpoint_at

import _socket
import math as _math
import select as _select

cdef extern from "errno.h":
    int errno

cdef extern from "Python.h":
    int PyObject_AsFileDescriptor(object) except -1
    ctypedef struct PyTypeObject:
        const char *tp_name

cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        uint64_t u64
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_ctl(int, int, int, epoll_event *)
    int epoll_wait(int, epoll_event *, int, int)
    enum: EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL

cdef enum:
    PROBE_MS = 500        # between looks at a peer whose death would be no event
    SECOND = 1_000_000_000
    NOT_A_TIME = -3
    LARGEST = 2147483647  # int

cdef int default_events = _select.FD_SETSIZE - 1 if hasattr(_select, "FD_SETSIZE") else 1023
cdef object kernel_class = _select.epoll
cdef object kernel_fileno = _socket.socket.fileno
cdef uint64_t keys = 0


cdef Endpoint endpoint_behind(object sock):
    """The endpoint of a socket object of ours whose number says nothing but that; else None."""
    if not PyObject_TypeCheck(sock, facade_struct):
        return None
    if type(sock) is not facade and type(sock).fileno is not facade.fileno:
        return None
    cdef Endpoint endpoint = endpoint_in(sock)
    return None if endpoint is None or endpoint.c.listens or fs_is_driven(&endpoint.c) else endpoint


def number_of(sock):
    """The descriptor of a socket object that an `epoll` of this module may wait for, which is not handed out by
    this; -1: for any other object."""
    cdef Endpoint endpoint = endpoint_behind(sock)
    if endpoint is None:
        return -1
    endpoint.numbered = True  # (`SelectorKey.fd`)
    return kernel_fileno(sock)


cdef int number_at(object fd) except -1:
    """As PyObject_AsFileDescriptor, of an object that is registered here."""
    cdef int number = -1
    cdef Endpoint endpoint = endpoint_behind(fd) if type(fd) is not int else None
    if endpoint is not None:
        endpoint.numbered = True
        number = kernel_fileno(fd)
    return number if number >= 0 else PyObject_AsFileDescriptor(fd)


cdef int64_t nanoseconds(object timeout) except -2:
    """Whole milliseconds, as the kernel takes them; -1: for ever; NOT_A_TIME: the kernel's own call says what is wrong with it.
    (Python rounds away from zero to nanoseconds, and up to milliseconds. So what is less than one below zero is no wait.)"""
    if timeout is None:
        return -1
    if type(timeout) is not int and not isinstance(timeout, float):
        if not hasattr(timeout, "__index__"):
            return NOT_A_TIME
        timeout = PyNumber_Index(timeout)
    if not -2147483.649 < timeout <= 2147483.647:
        return NOT_A_TIME
    cdef int64_t exact = _math.ceil(abs(timeout) * SECOND)
    if timeout < 0:
        return -1 if exact >= MILLISECOND else 0
    return (exact + MILLISECOND - 1) // MILLISECOND * MILLISECOND


cdef uint32_t mask_in(object events) except? 0:
    """The bits of any number."""
    return PyNumber_Index(events) & 0xffffffff


@cython.final
cdef class epoll(EventSet):
    """As select.epoll. Connections that have moved to the ring are asked in memory, everything else in the kernel."""

    cdef object kernel      # the kernel's, which closes the descriptor
    cdef int fd
    cdef dict numbers       # descriptor -> the member that the program registered by it
    cdef int returns        # from memory alone, since the kernel was asked
    cdef int64_t asked      # when that was
    cdef bint full          # the last answer had no room for more, and what the kernel told came first in it

    def __cinit__(self, *args, **kwargs):
        self.fd = -1
        self.numbers = {}
        if args and type(args[0]) is kernel_class:
            self.kernel = args[0]
            self.aside = True  # somebody else may have it
        else:
            self.kernel = kernel_class(*args, **kwargs)
        self.fd = -1 if self.kernel.closed else self.kernel.fileno()

    def __del__(self):
        self.end_set()

    @classmethod
    def fromfd(cls, fd, /):
        """As select.epoll.fromfd."""
        return epoll.__new__(epoll, kernel_class.fromfd(fd))

    def close(self):
        """As select.epoll.close."""
        if self.fd < 0:
            return
        self.end_set()
        self.fd = -1
        self.numbers.clear()
        self.kernel.close()

    @property
    def closed(self):
        return self.fd < 0

    def fileno(self):
        """As select.epoll.fileno. Whoever asks may wait for the epoll itself, which the kernel alone makes readable."""
        self.check_open()
        self.step_aside()
        return self.fd

    def __enter__(self):
        self.check_open()
        return self

    def __exit__(self, exc_type=None, exc_value=None, exc_tb=None, /):
        self.close()

    def __reduce_ex__(self, protocol):
        raise TypeError("cannot pickle 'select.epoll' object")

    cdef int check_open(self) except -1:
        if self.fd < 0:
            raise ValueError("I/O operation on closed epoll object")
        return 0

    # ---- registrations -----------------------------------------------------------------------------------

    def register(self, fd, eventmask=7):  # EPOLLIN | EPOLLPRI | EPOLLOUT, as a number for the signature
        """As select.epoll.register."""
        global keys
        cdef int number = number_at(fd)
        cdef uint32_t events = mask_in(eventmask)
        cdef Endpoint endpoint
        cdef Member member, before
        self.check_open()
        endpoint = endpoint_at(number)
        if endpoint is None or has_other_member(endpoint) or not self.may_ask(endpoint, events):
            self.control(EPOLL_CTL_ADD, number, events, number)
            self.numbers.pop(number, None)  # closed meanwhile, but for a duplicate
            if endpoint is not None and may_be_asked(endpoint):
                endpoint.expose()  # the kernel shall tell of it
            return
        keys += 1
        self.control(EPOLL_CTL_ADD, number, events, keys << 32 | <uint32_t>number)
        before = endpoint.member
        if before is not None:
            before.part()  # from a set that waits for nothing now
        member = Member.__new__(Member)
        member.endpoint, member.fd, member.key = endpoint, number, keys << 32 | <uint32_t>number
        member.events = member.masked = events
        member.owner = <void *>self
        self.members[member.key] = member
        self.numbers[number] = member
        endpoint.member = member
        if fs_is_attached(&endpoint.c):
            member.enter()

    def modify(self, fd, eventmask):
        """As select.epoll.modify."""
        cdef int number = number_at(fd)
        cdef uint32_t events = mask_in(eventmask), masked
        cdef Member member
        self.check_open()
        member = self.member_of(number)
        if member is None:
            self.control(EPOLL_CTL_MOD, number, events, number)
            return
        masked = events
        if member.entered and fs_hides_room(&member.endpoint.c):
            masked &= ~<uint32_t>EPOLLOUT
        if events & ~<uint32_t>LEVELS:
            masked = events
        self.control(EPOLL_CTL_MOD, number, masked, member.key)
        member.events, member.masked = events, masked
        if events & ~<uint32_t>LEVELS:
            member.stand_aside()
        else:
            self.attend(member)

    def unregister(self, fd):
        """As select.epoll.unregister."""
        cdef int number = number_at(fd)
        cdef Member member
        self.check_open()
        member = self.member_of(number)
        self.control(EPOLL_CTL_DEL, number, 0, 0)
        if member is not None:
            del self.numbers[number]
            member.part()

    cdef Member member_of(self, int number):
        """The member that was registered by this number and has not parted since."""
        cdef Member member = self.numbers.get(number)
        if member is not None and member.owner == NULL:
            del self.numbers[number]
            return None
        return member

    cdef int control(self, int what, int number, uint32_t events, uint64_t key) except -1:
        global errno
        cdef epoll_event event
        event.events = events
        event.data.u64 = key
        if epoll_ctl(self.fd, what, number, &event) < 0:
            PyErr_SetFromErrno(OSError)
        return 0

    # ---- as its members see it ---------------------------------------------------------------------------

    cdef int kernel_epoll(self) except -1:
        return self.fd

    cdef int remask(self, Member member) except -1:
        """(What fails means nothing: the program has closed the number, and the kernel's registration goes or stays
        as it was.)"""
        cdef epoll_event event
        event.events = member.masked
        event.data.u64 = member.key
        if self.numbers.get(member.fd) is member:  # (else another file is registered by that number)
            epoll_ctl(self.fd, EPOLL_CTL_MOD, member.fd, &event)
        return 0

    # ---- waiting -----------------------------------------------------------------------------------------

    def poll(self, timeout=None, maxevents=-1):
        """As select.epoll.poll."""
        cdef int64_t patience
        cdef int most = default_events
        cdef epoll_event *events
        self.check_open()
        patience = nanoseconds(timeout)
        if maxevents != -1:
            if patience == NOT_A_TIME or not 0 < PyNumber_Index(maxevents) <= LARGEST:
                return self.kernel.poll(timeout, maxevents)  # which raises
            most = PyNumber_Index(maxevents)
        elif patience == NOT_A_TIME:
            return self.kernel.poll(timeout)
        events = <epoll_event *>PyMem_RawMalloc(<size_t>most * sizeof(epoll_event))
        if events == NULL:
            raise MemoryError
        try:
            return self.wait(patience, most, events)
        finally:
            PyMem_RawFree(events)
            if self.sleepers:
                self.settle()

    cdef list wait(self, int64_t patience, int most, epoll_event *events):
        cdef int64_t now = fs_now(), began = now, budget = -1, slept
        cdef int64_t deadline = -1 if patience < 0 else now + patience
        cdef int vain = 0, n, room
        cdef bint uncertain = False, polled = False
        cdef list found = [], told = [], again
        cdef uint64_t wait
        self.waits += 1
        wait = self.waits
        while True:
            if self.aside and self.members:
                self.step_aside()
            self.take_hints()
            if self.hot:
                self.look_at_all(now, wait, found)
            if found:
                if polled:
                    fs_learn(&self.habit, &totals, began, True, True)
                if patience and not self.asks_kernel and self.returns < RETURNS and now - self.asked < KERNEL_NS:
                    self.returns += 1
                    self.full = True
                    return self.tell(found, told, most)
                if not self.full:
                    room = most
                elif self.asks_kernel:  # it has to be asked for an end too
                    room = max(1, most - <int>len(found))
                else:
                    room = most - <int>len(found)
                if room > 0:
                    self.ask(events, room, wait, found, told)
                return self.tell(found, told, most)
            if patience == 0:
                self.ask(events, most, wait, found, told, True)
                if not found and not told and self.set != NULL and fs_is_hinted(self.set):
                    self.take_hints()  # what came meanwhile
                    self.look_at_all(now, wait, found)
                return self.tell(found, told, most)
            if self.hot and not uncertain:
                if budget < 0:
                    budget = 0 if fs_crowded(now) else fs_may_poll(&self.habit, now, self.peer_processor())
                if now - began < budget and (deadline < 0 or now < deadline):
                    polled = True
                    if now - self.asked >= SLICE:
                        self.ask(events, most, wait, found, told)
                        if found or told:
                            return self.tell(found, told, most)
                    self.spin(now + min(SLICE, budget - (now - began)))
                    PyErr_CheckSignals()
                    now = fs_now()
                    continue
            PyErr_CheckSignals()  # (one that came since the program's last step would not end the sleep)
            # Nothing is there. (A member that says twice that something may be, and has nothing, is looked at by
            # the clock.)
            if self.set != NULL and (not self.arm_all() or fs_fall_asleep(self.set)):
                if not uncertain:
                    uncertain = True
                    continue
            slept = fs_now()
            n = self.sleep(events, deadline, most, uncertain and self.hot)
            now = fs_now()
            if now - slept > MILLISECOND:
                vain = 0
            if n:
                self.asks_kernel = False
                self.sort(events, n, wait, found, told)
                if found and self.asks_kernel and len(told) < most:
                    again = []
                    self.ask(events, most - <int>len(told), wait, found, again)
                    told = list((dict(again) | dict(told)).items())  # (what is told once was told before)
                if found or told:
                    if self.set != NULL:
                        fs_learn(&self.habit, &totals, began, polled, False)
                    return self.tell(found, told, most)
                vain += 1
                if vain > VAIN:
                    with nogil:
                        fs_nap()
            if deadline >= 0 and now >= deadline:  # (also behind an event that means nothing)
                return []
            uncertain = False

    cdef int ask(self, epoll_event *events, int most, uint64_t wait, list found, list told, bint lets_go=False) except -1:
        """Asks the kernel, without waiting. `lets_go`: other threads may run, as with the kernel's own; nothing has been found
        yet, which they could change."""
        global errno
        cdef int n, failed, fd = self.fd
        if lets_go:
            with nogil:
                n = epoll_wait(fd, events, most, 0)
                failed = errno
        else:
            n = epoll_wait(fd, events, most, 0)
            failed = errno
        if n < 0:
            if failed != EINTR:
                errno = failed
                PyErr_SetFromErrno(OSError)
            PyErr_CheckSignals()
            return 0
        return self.sort(events, n, wait, found, told)

    cdef int sleep(self, epoll_event *events, int64_t deadline, int most, bint briefly) except -1:
        """Sleeps in the kernel. How many events it has told of; 0 too if it is time to look again."""
        global errno
        cdef int n, failed, milliseconds = -1, fd = self.fd
        cdef int64_t rest
        if deadline >= 0:
            rest = deadline - fs_now()
            milliseconds = 0 if rest <= 0 else <int>((rest + MILLISECOND - 1) / MILLISECOND)
        if briefly or (self.set != NULL and self.aside and self.members):
            milliseconds = 1 if milliseconds < 0 else min(milliseconds, 1)
        elif self.dying:
            milliseconds = PROBE_MS if milliseconds < 0 else min(milliseconds, PROBE_MS)
        self.sleepers += 1
        with nogil:
            n = epoll_wait(fd, events, most, milliseconds)
            failed = errno
        self.sleepers -= 1
        self.asked, self.returns = fs_now(), 0
        if self.set != NULL and not self.sleepers:
            fs_rise(self.set)
        if self.dying:
            self.look_at_dying()
        if n < 0:
            if failed != EINTR:
                errno = failed
                PyErr_SetFromErrno(OSError)
            PyErr_CheckSignals()
            return 0
        return n

    cdef int look_at_dying(self) except -1:
        """Those that wait for credits of a peer that may be dead without an event are looked at again."""
        cdef Member member
        for member in list(self.members.values()):
            if member.entered and member.masked != member.events and not fs_has_ended(&member.endpoint.c) and (
                    fs_hides_death(&member.endpoint.c)):
                self.heat(member)
        return 0

    cdef int sort(self, epoll_event *events, int n, uint64_t wait, list found, list told) except -1:
        """What the kernel has told, of members and of others."""
        cdef int i
        cdef uint64_t key
        cdef Member member
        cdef bint hinted = False
        cdef uint32_t before
        self.asked, self.returns = fs_now(), 0
        for i in range(n):
            key = events[i].data.u64
            if key == FS_SET_EVENT:
                hinted = True
                continue
            member = self.members.get(key) if key > FS_SET_EVENT else None
            if member is None:
                told.append((<int>(key & 0xffffffff), <object>events[i].events))
                continue
            before = member.found if member.listed == wait else 0
            member.verify(events[i].events)
            member.found |= before
            if member.found and member.listed != wait:
                member.listed = wait
                found.insert(0, member)  # before those that memory tells of in each call
            self.heat(member)
        if hinted and not found and not told:
            self.take_hints()
            self.look_at_all(self.asked, wait, found)
        return 0

    cdef list tell(self, list found, list told, int most):
        """What the program gets. Where there is no room for all, the kernel's come first in one call, and those that memory
        tells of in the next, so that nobody starves; the kernel is not asked for more than there is room for, as it tells
        of an edge only once. Both put those behind the others that have been told of."""
        cdef Member member
        cdef list result = told
        cdef Py_ssize_t others = len(told)
        for member in dict.fromkeys(found):
            if len(result) == most:
                break
            result.append((member.fd, member.found & (member.events | <uint32_t>(EPOLLERR | EPOLLHUP))))
        if len(result) < most:
            self.full = False
            return result
        self.full = not self.full
        if len(self.hot) > 1:
            self.hot.sort(key=set(list(dict.fromkeys(found))[:len(result) - others]).__contains__)
        return result


# What a program sees of the class: in its repr, in messages, as `__module__`.
(<PyTypeObject *>epoll).tp_name = "select.epoll"
