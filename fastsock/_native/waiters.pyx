# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=True
"""The event set of a thread, with which it waits in its calls of `select` and `poll`: the kernel's poll, and beside it
connections on the ring, which are asked in memory.

A thread has one for all its calls. A connection becomes a member when a call names it, and stays one until
it ends or another set names it, so that a second call costs nothing. A set gives up its members while its thread is in
no call. What memory cannot answer alone the kernel tells, with the help of doorbell bytes.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from cpython.exc cimport PyErr_CheckSignals
from cpython.mem cimport PyMem_Free, PyMem_Malloc

from fastsock._native.channel cimport fs_tend
from fastsock._native.core cimport *
from fastsock._native.core_ring cimport *
from fastsock._native.endpoint cimport Endpoint, by_descriptor, totals
from fastsock._native.members cimport (
    HINTS, KERNEL_NS, LEVELS, MILLISECOND, RETURNS, SLICE, TAKES, VAIN, EventSet, Member, has_other_member, may_be_asked)

import errno as _errno
import os as _os
import threading as _threading

cdef extern from "errno.h":
    int errno

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    struct timespec:
        int64_t tv_sec
        int64_t tv_nsec
    int ppoll(pollfd *, unsigned long, const timespec *, const void *)
    enum: POLLIN, POLLNVAL

cdef enum:
    MOST_SETS = 8         # of one process: each has two descriptors here, and one in each process at the other ends
    SECOND = 1_000_000_000
    PROBE_NS = 500_000_000  # between looks at a peer whose death would be no event

cdef object here = _threading.local()
cdef uint64_t keys = 0
cdef int sets = 0


cdef class Waiter(EventSet):
    """The event set of one thread, which alone waits on it, for its calls of select and poll."""

    cdef bint waiting       # the thread is in a call
    cdef bint refuses       # a number of its that nobody has is an error, when the kernel is asked for the first time
    cdef int returns        # from memory alone, since the kernel was asked
    cdef int64_t asked      # when that was

    def __del__(self):
        self.end_set()

    cdef int make_set(self) except 1:
        global sets
        cdef int failed
        if self.set != NULL:
            return 0
        if sets >= MOST_SETS:
            raise OSError(_errno.EMFILE, _os.strerror(_errno.EMFILE))
        self.set = fs_new_set(&failed)
        if self.set == NULL:
            raise OSError(-failed, _os.strerror(-failed))
        sets += 1
        return 0

    cdef int end_set(self) except -1:
        global sets
        if self.set != NULL:
            sets -= 1
        return EventSet.end_set(self)

    cdef bint gives_up(self, Member member) noexcept:
        return not self.waiting or member.listed != self.waits

    cdef int step_aside(self) except -1:
        """A fork comes. A member that nobody waits for is no more than an expectation."""
        cdef Member member
        self.aside = True
        for member in list(self.members.values()):
            if self.gives_up(member):
                member.part()
            else:
                member.stand_aside()
        return 0

    cdef int remask(self, Member member) except -1:
        """(Each call of the kernel's is told what it is asked for.)"""
        return self.rouse()

    cdef int attend(self, Member member) except -1:
        return self.rouse()

    cdef int rouse(self) except -1:
        if self.sleepers and self.set != NULL:
            fs_rouse(self.set)
        return 0

    cdef int take_hints(self) except -1:
        """(All members that a call names are looked at in any case.)"""
        cdef uint32_t places[HINTS]
        cdef int takes
        if self.set == NULL or not fs_is_own_set(self.set) or not fs_is_hinted(self.set):
            return 0
        fs_tend(self.set)
        for takes in range(TAKES):
            if fs_take_hints(self.set, places, HINTS) == 0:
                return 0
        return 0

    # ---- who is asked in memory ----------------------------------------------------------------------------

    cdef int begin(self, bint refuses) except -1:
        """A call begins."""
        if self.set != NULL and not fs_is_own_set(self.set):  # a forked child's: the set is its parent's
            self.end_set()
        self.aside = False
        self.waiting = True
        self.refuses = refuses
        self.waits += 1
        return 0

    cdef int leave(self) except -1:
        """The call is over."""
        self.waiting = False
        self.hot = []
        if self.set != NULL:
            fs_rise(self.set)
        return 0

    cdef Member join(self, Endpoint endpoint, int fd, uint32_t events):
        """The connection as a member that this call waits for; None: the kernel tells all of it."""
        global keys
        cdef Member member = endpoint.member
        if (member is not None and member.owner != <void *>self and has_other_member(endpoint)) or (
                not self.may_ask(endpoint, events)):
            if member is not None and member.owner == <void *>self:
                member.part()
            if may_be_asked(endpoint):
                endpoint.expose()
            return None
        if member is None or member.owner != <void *>self:
            if member is not None:
                member.part()
            keys += 1
            member = Member.__new__(Member)
            member.endpoint, member.key, member.owner, member.listed = endpoint, keys, <void *>self, self.waits
            member.fd, member.events, member.masked = fd, events, events
            self.members[keys] = member
            endpoint.member = member
            if fs_is_attached(&endpoint.c):
                member.enter()
                if member.owner != <void *>self:
                    return None  # there is no room in the set
        member.fd, member.events, member.masked = fd, events, events
        member.listed = self.waits
        return member

    cdef Member glance_at(self, Endpoint endpoint, int fd, uint32_t events):
        """The same for a call that does not wait: nobody has to be told, so the connection need not be a member."""
        cdef fs_connection *c = &endpoint.c
        cdef Member member
        if events & ~<uint32_t>LEVELS or endpoint.queue is not None or c.listens or fs_is_driven(c) or fs_is_closed(c) or (
                fs_is_exposed(c) or fs_is_out(c) or not fs_is_attached(c)):
            return None
        member = Member.__new__(Member)
        member.endpoint, member.owner, member.entered = endpoint, <void *>self, True
        member.fd, member.events, member.masked = fd, events, events
        return member

    # ---- waiting -------------------------------------------------------------------------------------------

    cdef int look_at_these(self, list members, pollfd *fds, const uint32_t *counts) except -1:
        """Asks memory. How many members are ready."""
        cdef Member member
        cdef int i, n = 0
        self.hot = []
        self.asks_kernel = False
        for i in range(len(members)):
            fds[i].revents = 0
            member = <Member>members[i]
            if member is None or member.owner != <void *>self or not member.entered:
                continue
            member.look()
            if member.owner != <void *>self:
                continue  # the kernel tells of it from now on
            member.hot = True
            self.hot.append(member)
            fds[i].revents = <short>(member.found & counts[i])
            if fds[i].revents:
                n += 1
                self.asks_kernel |= member.ended or (
                    (member.events & <uint32_t>POLLOUT) != 0 and member.masked == member.events)
        return n

    cdef int sort(self, list members, pollfd *fds, const uint32_t *counts) except -1:
        """What the kernel has told, with what memory says of members. How many are ready."""
        cdef Member member
        cdef uint32_t told
        cdef int i, n = 0
        for i in range(len(members)):
            told = <unsigned short>fds[i].revents
            member = <Member>members[i]
            if member is not None and member.owner == <void *>self and not told & <uint32_t>POLLNVAL:
                if told:
                    member.verify(told)
                else:
                    member.look()
                told = member.found
            fds[i].revents = <short>(told & counts[i])
            n += fds[i].revents != 0
        return n

    cdef int ask(self, list members, pollfd *fds, int64_t patience, bint asleep) except -1:
        """Asks the kernel, and waits for at most so many ns; -1: for ever. How many events it has told of."""
        cdef Member member
        cdef timespec rest
        cdef int i, n, failed, count = <int>len(members)
        cdef bint lives = False
        for i in range(count):
            fds[i].revents = 0
            member = <Member>members[i]
            if member is not None:
                fds[i].events = <short>(member.masked if member.owner == <void *>self else member.events)
                lives |= member.owner == <void *>self
        fds[count].revents = 0
        if asleep and lives and self.set != NULL and fs_is_own_set(self.set):
            fds[count].fd, fds[count].events = self.set.epoll, POLLIN
            count += 1
        rest.tv_sec, rest.tv_nsec = patience // SECOND, patience % SECOND
        self.sleepers += asleep
        with nogil:
            n = ppoll(fds, count, NULL if patience < 0 else &rest, NULL)
            failed = errno
        self.sleepers -= asleep
        self.asked, self.returns = fs_now(), 0
        if asleep and self.set != NULL:
            fs_rise(self.set)
            if n > 0 and fds[len(members)].revents and fs_is_own_set(self.set):
                fs_clear_set(self.set)
        if n < 0:
            for i in range(count):
                fds[i].revents = 0
            if failed != EINTR:
                raise OSError(failed, _os.strerror(failed))
            PyErr_CheckSignals()
            return 0
        if self.refuses:
            self.refuses = False
            for i in range(len(members)):
                if fds[i].revents & POLLNVAL:
                    raise OSError(_errno.EBADF, _os.strerror(_errno.EBADF))
        return n

    cdef bint arm_these(self) except -1:
        """Before a sleep. Whether nothing is there, and who posts tells."""
        cdef Member member
        cdef bint armed = True
        self.dying = False
        for member in self.hot:
            if member.owner == <void *>self and member.arm():
                armed = False
        return armed

    cdef int wait(self, list members, pollfd *fds, const uint32_t *counts, int64_t patience) except -1:
        """Waits for at most `patience` ns; -1: for ever. `members` has a member or None for each descriptor, `fds` one place
        more, `counts` the events that make a descriptor ready. How many are ready; `revents` says for what."""
        cdef int64_t now = fs_now(), began = now, budget = -1, slept, rest
        cdef int64_t deadline = -1 if patience < 0 else now + patience
        cdef int vain = 0, n
        cdef bint uncertain = False, polled = False
        while True:
            n = self.look_at_these(members, fds, counts)
            if n or patience == 0:
                if n and polled:
                    fs_learn(&self.habit, &totals, began, True, True)
                if patience and not self.asks_kernel and self.returns < RETURNS and now - self.asked < KERNEL_NS:
                    self.returns += 1
                    return n
                self.ask(members, fds, 0, False)
                n = self.sort(members, fds, counts)
                now = fs_now()
                if n or patience == 0 or (deadline >= 0 and now >= deadline):
                    return n
                continue  # another thread has read it meanwhile, or the kernel tells of it from now on
            if self.hot and not uncertain:
                if budget < 0:
                    budget = 0 if fs_crowded(now) else fs_may_poll(&self.habit, now, self.peer_processor())
                if now - began < budget and (deadline < 0 or now < deadline):
                    polled = True
                    if now - self.asked >= SLICE and self.ask(members, fds, 0, False):
                        n = self.sort(members, fds, counts)
                        if n:
                            return n
                    self.spin(now + min(SLICE, budget - (now - began)))
                    PyErr_CheckSignals()
                    self.take_hints()
                    now = fs_now()
                    continue
            if self.refuses and self.ask(members, fds, 0, False):  # (what is closed during the sleep is no error)
                n = self.sort(members, fds, counts)
                if n:
                    return n
            PyErr_CheckSignals()  # (one that came since the program's last step would not end the sleep)
            # Nothing is there. (A member that says twice that something may be, and has nothing, is looked at by the
            # clock.)
            if self.hot and (not self.arm_these() or fs_fall_asleep(self.set)):
                if not uncertain:
                    uncertain = True
                    self.take_hints()
                    continue
            slept = fs_now()
            rest = -1 if deadline < 0 else max(<int64_t>0, deadline - slept)
            if uncertain and self.hot:
                rest = MILLISECOND if rest < 0 else min(rest, <int64_t>MILLISECOND)
            elif self.dying:
                rest = PROBE_NS if rest < 0 else min(rest, <int64_t>PROBE_NS)
            n = self.ask(members, fds, rest, True)
            now = fs_now()
            self.take_hints()
            if now - slept > MILLISECOND:
                vain = 0
            if n:
                n = self.sort(members, fds, counts)
                if n:
                    if self.set != NULL:
                        fs_learn(&self.habit, &totals, began, polled, False)
                    return n
                vain += 1
                if vain > VAIN:
                    with nogil:
                        fs_nap()
            if deadline >= 0 and now >= deadline:
                return 0
            uncertain = False


cdef Waiter waiter_of_thread():
    """The event set of this thread; another one for a signal handler that interrupts a call."""
    cdef Waiter waiter = getattr(here, "waiter", None)
    if waiter is None:
        waiter = here.waiter = Waiter()
    elif waiter.waiting:
        waiter = Waiter()
    return waiter


cdef bint is_member_among(list numbers) except -1:
    """Whether memory may have to be asked for one of these descriptors."""
    for number in numbers:
        if number in by_descriptor and is_asked(<Endpoint>by_descriptor[number]):
            return True
    return False


cdef bint is_member_in(dict numbers) except -1:
    """The same of the keys. Most programs have few connections and many other files, or the reverse."""
    cdef dict fewer, others
    fewer, others = (numbers, by_descriptor) if len(numbers) < len(by_descriptor) else (by_descriptor, numbers)
    for number in fewer:
        if number in others and is_asked(<Endpoint>by_descriptor[number]):
            return True
    return False


cdef inline bint is_asked(Endpoint endpoint) noexcept:
    return may_be_asked(endpoint) and not fs_is_told_exposed(&endpoint.c)


cdef list wait_for(list numbers, list wanted, list counted, int64_t patience, bint refuses=False):
    """What the descriptors are ready for, in their order: of each the events of `counted` that it has. `refuses`: a number that
    is nobody's as the call begins is an error; one that is closed during the call is not."""
    cdef Waiter waiter = waiter_of_thread()
    cdef Py_ssize_t i, count = len(numbers)
    cdef Endpoint endpoint
    cdef list members = [None] * count
    cdef pollfd *fds = <pollfd *>PyMem_Malloc((count + 1) * sizeof(pollfd))
    cdef uint32_t *counts = <uint32_t *>PyMem_Malloc((count + 1) * sizeof(uint32_t))
    try:
        if fds == NULL or counts == NULL:
            raise MemoryError
        waiter.begin(refuses)
        for i in range(count):
            fds[i].fd, fds[i].events, counts[i] = numbers[i], <short><int>wanted[i], <uint32_t><int>counted[i]
            endpoint = <Endpoint>by_descriptor.get(numbers[i])
            if endpoint is not None and patience == 0:
                members[i] = waiter.glance_at(endpoint, numbers[i], <uint32_t><unsigned short>fds[i].events)
            elif endpoint is not None:
                members[i] = waiter.join(endpoint, numbers[i], <uint32_t><unsigned short>fds[i].events)
                if members[i] is not None and not (<Member>members[i]).entered:
                    enter_later(waiter, <Member>members[i])
        waiter.wait(members, fds, counts, patience)
        return [<unsigned short>fds[i].revents for i in range(count)]
    finally:
        waiter.leave()
        if getattr(here, "waiter", None) is not waiter:
            waiter.end_set()
        PyMem_Free(fds)
        PyMem_Free(counts)


cdef int enter_later(Waiter waiter, Member member) except -1:
    """The connection may move while this thread sleeps: the event set has to be there before it does."""
    try:
        waiter.make_set()
    except OSError:
        member.stand_aside()
    return 0
