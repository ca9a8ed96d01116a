# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=False
"""Connections on the ring in an event set of the program's selectors: who is asked in memory, and how a sleeper is
told.

An `EventSet` belongs to one object that the program waits with. Its members are connections that were registered
there, and that nobody else polls. The kernel knows all of them too, and is asked for everything that it can tell:
what comes by the kernel, and the ends of connections. Memory is asked for the rest. A member that the set does not
look at is armed: who posts leaves a hint.

Any thread may call these, with the GIL. While threads sleep in the kernel the set says that it sleeps, so that
peers ring. A thread that looks at members without the GIL is stopped (`halt`) before one of them may go.

Where a connection cannot be asked in memory any more (a fork, another epoll, a file object on the number), it
stands aside: its descriptor is exposed, so that doorbell bytes tell of the ring, and the kernel is asked for all of
it.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from cpython.object cimport PyObject

from fastsock._native.channel cimport fs_look_after, fs_seat, fs_tend
from fastsock._native.core cimport *
from fastsock._native.core_ring cimport *
from fastsock._native.endpoint cimport Endpoint, totals
from fastsock._native.vi cimport is_asked_here, is_undecided

import sys as _sys
import weakref as _weakref

from fastsock._native.vi import watch_forks as _watch_forks

cdef enum:
    SPUN = 64     # members that are polled without the GIL, at most
    LOOKS = 16    # at them between two looks at the clock and at the hints

cdef enum:  # nanoseconds
    COOL = 1_000_000  # after which a quiet member is armed and left to the set

alive = {}
"""The event sets of this process: weak references, by the sets' addresses. (Other threads make sets and drop them while a fork
hook goes through all: it does so over a list, which is made in one piece. A WeakSet is iterated over as it changes.)"""


def forget(reference):
    """The event set is gone."""
    alive.pop(reference.key, None)


cdef list all_alive():
    return [waiter for waiter in [reference() for reference in list(alive.values())] if waiter is not None]


def before_fork():
    """A fork shares the kernel's registrations with the child, and members are nobody's but this process's: from now on all
    stand aside, and the kernel tells."""
    cdef EventSet waiter
    for waiter in all_alive():
        waiter.step_aside()


def after_fork_in_parent():
    """(A set that another thread has made while the fork waited for others.)"""
    before_fork()


def after_fork_in_child():
    """The threads that slept or polled are the parent's."""
    cdef EventSet waiter
    for waiter in all_alive():
        waiter.aside = True
        waiter.sleepers = 0
        fs_store_relaxed(&waiter.spinners, 0)
        fs_store_relaxed(&waiter.stop, 0)


cdef bint has_other_member(Endpoint endpoint) except -1:
    """Whether the connection has to stay a member of the set that it is in."""
    cdef Member member = endpoint.member
    return member is not None and not (<EventSet>member.owner).gives_up(member)


cdef bint may_be_asked(Endpoint endpoint) noexcept:
    """Whether the connection is on the ring, or may come there, and no loop drives it: memory can answer for it, or will."""
    cdef fs_connection *c = &endpoint.c
    return not c.listens and not fs_is_driven(c) and (fs_is_attached(c) or is_undecided(endpoint))


cdef class Member:
    """A connection in an event set."""

    # ---- what its endpoint tells (Endpoint.member) --------------------------------------------------------

    def admit(self):
        """The connection is about to attach: takes a place in the set. OSError without."""
        cdef EventSet waiter = <EventSet>self.owner if self.owner != NULL else None
        cdef int failed
        if waiter is None or self.seated:
            return
        waiter.make_set()
        waiter.halt()
        failed = fs_take_seat(&self.endpoint.c, waiter.set)
        if failed:
            raise OSError(-failed, "no place in the event set")
        self.seated = True

    def dismiss(self):
        """It has not attached."""
        self.give_place()

    def enter(self):
        """It is attached: from now on it is asked in memory."""
        cdef EventSet waiter
        if self.entered or self.owner == NULL:
            return
        waiter = <EventSet>self.owner
        if waiter.aside or fs_is_shared(&self.endpoint.c):
            self.stand_aside()
            return
        try:
            self.admit()
        except OSError:
            self.stand_aside()
            return
        fs_put_member(waiter.set, fs_seat_of(&self.endpoint.c), <void *>self)
        fs_seat(waiter.set, &self.endpoint.c)
        self.entered = True
        waiter.attend(self)

    def stand_aside(self):
        """From now on the kernel tells of it, to everybody who has its number."""
        cdef EventSet waiter
        if self.owner == NULL:
            return
        waiter = <EventSet>self.owner
        self.expose()
        if self.owner != NULL:  # (while a doorbell byte was awaited)
            if self.masked != self.events and not fs_has_ended(&self.endpoint.c):
                self.masked = self.events
                waiter.remask(self)
            self.part()

    def part(self):
        """It leaves the set: the program has unregistered it, or the connection ends."""
        cdef EventSet waiter
        if self.owner == NULL:
            return
        waiter = <EventSet>self.owner
        waiter.halt()
        self.give_place()
        self.owner = NULL
        self.entered = False
        self.hot = False
        waiter.stale = True
        if self.endpoint.member is self:
            self.endpoint.member = None
        waiter.members.pop(self.key, None)

    cdef int give_place(self) except -1:
        cdef EventSet waiter
        if self.owner != NULL and self.seated:
            waiter = <EventSet>self.owner
            waiter.halt()
            fs_leave_seat(&self.endpoint.c, waiter.set)
            self.seated = False
        return 0

    cdef int expose(self) except -1:
        self.endpoint.expose()
        return 0

    # ---- readiness ----------------------------------------------------------------------------------------

    cdef int look(self) except -1:
        """Asks memory what it is ready for: `found`."""
        cdef fs_connection *c = &self.endpoint.c
        cdef fs_call call
        cdef bint reads
        self.found = 0
        if not self.entered or fs_has_ended(c):
            return 0
        if self.events & EPOLLOUT and (self.masked == self.events) == fs_hides_room(c):
            self.masked = self.events & ~<uint32_t>EPOLLOUT if fs_hides_room(c) else self.events
            (<EventSet>self.owner).remask(self)
        reads = (self.events & EPOLLIN) != 0
        if reads and fs_receives_on_ring(c) and fs_waiting(&c.vi) and not fs_load_relaxed64(&c.vi.rx.urgent):
            self.found = EPOLLIN
            reads = False
        if not reads and self.masked == self.events:
            return 0
        if not fs_begin(c, &call):
            return 0
        try:
            if reads and fs_has_bytes(c):
                self.found |= EPOLLIN
            if self.masked != self.events and fs_has_room(c):
                self.found |= EPOLLOUT
                if fs_is_gone(c) and self.owner != NULL:  # that has perhaps drawn a reset, which the kernel tells
                    (<EventSet>self.owner).asks_kernel = True
        finally:
            self.endpoint.end(&call)
        return 0

    cdef int verify(self, uint32_t told) except -1:
        """The kernel has told of it: what that means, with what memory says, is `found`."""
        cdef fs_connection *c = &self.endpoint.c
        cdef fs_call call
        if not self.entered:
            self.found = told
            return 0
        self.look()
        if told & (EPOLLRDHUP | EPOLLHUP | EPOLLERR):
            self.ended = True
        self.found |= told & ~<uint32_t>(EPOLLIN | EPOLLOUT)
        if told & (EPOLLERR | EPOLLHUP):
            self.found |= self.events & (EPOLLIN | EPOLLOUT)
        elif told & EPOLLIN and not self.found & EPOLLIN:
            if told & EPOLLRDHUP:
                self.found |= EPOLLIN
            elif fs_begin(c, &call):
                try:
                    if fs_has_bytes_after_all(c):
                        self.found |= EPOLLIN
                finally:
                    self.endpoint.end(&call)
        if told & EPOLLOUT and self.masked == self.events:
            self.found |= EPOLLOUT
        return 0

    cdef bint arm(self) except -1:
        """Says that the set sleeps until it is told. True if something may be there already, or nobody would tell."""
        cdef fs_connection *c = &self.endpoint.c
        cdef EventSet waiter = <EventSet>self.owner
        cdef fs_call call
        cdef bint there, sends = self.masked != self.events
        if not is_asked_here(self.endpoint):
            return True
        if self.owner == NULL or not self.entered:  # (the step of the connection has ended it)
            return False
        waiter.halt()
        fs_seat(waiter.set, c)
        if not fs_begin(c, &call):
            return False
        try:
            there = fs_arm_for_loop(c, (self.events & EPOLLIN) != 0, sends)
            if sends and not there and fs_hides_death(c):
                waiter.dying = True
                there = fs_probe_driven_peer(c)
            if there:
                fs_disarm_receiver(&c.vi, FS_SET_ASLEEP)
            elif sends:
                fs_look_after(c)
        finally:
            self.endpoint.end(&call)
        return there


cdef class EventSet:
    """The members of one object that the program waits with."""

    def __cinit__(self):
        self.members = {}
        self.hot = []
        fs_take_up_polling(&self.habit)
        alive[id(self)] = _weakref.KeyedRef(self, forget, id(self))

    cdef int make_set(self) except 1:
        """Makes the event set, if there is none yet. OSError without descriptors."""
        cdef int failed
        cdef fs_set *made
        if self.set != NULL:
            return 0
        made = fs_new_set_in(self.kernel_epoll(), &failed)
        if made == NULL:
            raise OSError(-failed, "no event set")
        self.set = made
        if self.sleepers:
            fs_fall_asleep(made)
        return 0

    cdef int kernel_epoll(self) except -1:
        """The epoll that sleepers wait on."""
        raise NotImplementedError

    cdef bint gives_up(self, Member member) noexcept:
        """Whether a member may become one of another set: nobody waits for it here, and each wait names its members anew."""
        return False

    cdef bint may_ask(self, Endpoint endpoint, uint32_t events) noexcept:
        """Whether memory can answer for the connection, and nobody else needs its number."""
        cdef fs_connection *c = &endpoint.c
        return not (self.aside or events & ~<uint32_t>LEVELS or endpoint.queue is not None or fs_is_closed(c) or fs_is_exposed(c)
                    or fs_is_out(c) or fs_is_shared(c)) and may_be_asked(endpoint)

    cdef int step_aside(self) except -1:
        """The kernel alone tells, from now on."""
        cdef Member member
        self.aside = True
        for member in list(self.members.values()):
            member.stand_aside()
        return 0

    cdef int remask(self, Member member) except -1:
        """The kernel is asked for `member.masked` from now on."""
        raise NotImplementedError

    cdef int halt(self) noexcept:
        """Nobody looks at members or pages without the GIL, which the caller has."""
        if fs_load_sc(&self.spinners):
            fs_store_relaxed(&self.stop, 1)
            while fs_load_sc(&self.spinners):
                sched_yield()
            fs_store_relaxed(&self.stop, 0)
        return 0

    cdef int heat(self, Member member) except -1:
        """Looks at the member from now on."""
        if member.entered and not member.hot:
            self.drop_cooled()  # (this one, which may be among them still)
            fs_disarm_receiver(&member.endpoint.c.vi, FS_SET_ASLEEP)
            member.hot = True
            member.last_event = fs_now()
            self.hot.append(member)
        return 0

    cdef int attend(self, Member member) except -1:
        """The member is new, or is waited for otherwise: those that sleep look at it."""
        self.heat(member)
        if self.sleepers and self.set != NULL:
            fs_rouse(self.set)
        return 0

    cdef int drop_cooled(self) except -1:
        cdef Member member
        if self.stale:
            self.stale = False
            self.hot = [member for member in self.hot if member.hot]
        return 0

    cdef int take_hints(self) except -1:
        cdef uint32_t places[HINTS]
        cdef int n, i, takes
        if self.set == NULL or not fs_is_hinted(self.set):
            return 0
        self.halt()
        fs_tend(self.set)
        for takes in range(TAKES):
            n = fs_take_hints(self.set, places, HINTS)
            if n == 0:
                return 0
            for i in range(n):
                member = fs_member_at(self.set, places[i])
                if member != NULL:
                    self.heat(<Member>member)
        return 0

    cdef int look_at_all(self, int64_t now, uint64_t wait, list found) except -1:
        """One look at each hot member. `found` gets those that are ready; quiet ones are armed."""
        cdef Member member
        self.drop_cooled()
        self.asks_kernel = False
        for member in self.hot:
            if not member.hot:
                continue
            member.look()
            if member.found:
                self.asks_kernel |= member.ended or ((member.events & EPOLLOUT) != 0 and member.masked == member.events)
                member.last_event = now
                if member.listed != wait:
                    member.listed = wait
                    found.append(member)
            elif now - member.last_event > COOL and member.hot and not member.arm():
                member.hot = False
                self.stale = True
        return 0

    cdef bint spin(self, int64_t until) except -1:
        """Polls the hot members without the GIL until something may be there."""
        cdef fs_connection *looked[SPUN]
        cdef int wanted[SPUN]
        cdef Member member
        cdef int n = 0, i, turn
        cdef bint found = False, shares
        cdef fs_set *watched = self.set
        cdef int64_t began = fs_now(), now = began
        self.drop_cooled()
        for member in self.hot:
            if n == SPUN:
                break
            if member.entered and not fs_has_ended(&member.endpoint.c):
                looked[n] = &member.endpoint.c
                wanted[n] = FS_RECEIVE if member.events & EPOLLIN else 0
                wanted[n] |= FS_SEND if member.masked != member.events else 0
                n += 1
        if n == 0:
            return False
        fs_add_sc(&self.spinners, 1)
        with nogil:
            while not found and not fs_load_relaxed(&self.stop):
                now = fs_now()
                if now >= until:
                    break
                if fs_is_hinted(watched):
                    found = True
                    break
                shares = fs_shares_processor(fs_load_relaxed(&looked[0].vi.rx.processor))
                for turn in range(1 if shares else LOOKS):
                    for i in range(n):
                        if fs_may_be_ready(looked[i], wanted[i]):
                            found = True
                            break
                    if found:
                        break
                    fs_pause()
                if shares and not found:
                    sched_yield()
            fs_add_sc(&self.spinners, <uint32_t>-1)
        if now > began:
            fs_count(&totals.poll_ns, now - began)
        return found

    cdef uint32_t peer_processor(self) noexcept:
        """1 + the processor that the peer of a hot member last ran on; 0: unknown."""
        cdef Member member = <Member>self.hot[0]
        return fs_load_relaxed(&member.endpoint.c.vi.rx.processor) if member.entered else 0

    cdef bint arm_all(self) except -1:
        """Before a sleep. Whether all hot members are armed, and none of them has anything."""
        cdef Member member
        cdef bint all_armed = True
        self.dying = False
        self.drop_cooled()
        for member in list(self.hot):
            if not member.hot:
                continue
            if member.arm():
                all_armed = False
            else:
                member.hot = False
                self.stale = True
        return all_armed

    cdef int settle(self) except -1:
        """This thread goes, and others sleep on: whatever is there, or comes, wakes them."""
        cdef bint armed = self.arm_all()
        if self.set != NULL and (fs_fall_asleep(self.set) or not armed):
            fs_rouse(self.set)
        return 0

    cdef int end_set(self) except -1:
        """Nobody waits any more."""
        cdef Member member
        for member in list(self.members.values()):
            member.part()
        self.halt()
        if self.set != NULL:
            fs_end_set(self.set)
            self.set = NULL
        return 0


_watch_forks(_sys.modules[__name__])
